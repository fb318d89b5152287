"""The book in other languages: texts for translators, and a build with what they wrote.

    python -m handbook.delivery.translation extract    _build/gettext has every text; locale/<language> is up to date
    python -m handbook.delivery.translation build de   _build/de/_build/html, what is not translated in English

Extraction executes nothing. A translated page executes as the English one does, since code is not translated.
A language is a folder locale/<language>/LC_MESSAGES with the translated pages' .po files; a page is translated by
copying its file from _build/gettext there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from myst_nb.ext.glue.roles import PasteTextRole

TEXTS = Path("_build") / "gettext"
NOTHING_RUN = {
    "execute": {"execute_notebooks": "off"},
    # Numbers and figures that a cell would make are missing; the site's own build tells of those that no cell makes.
    "sphinx": {"config": {"suppress_warnings": ["mystnb.glue", "ref.ref", "ref.numref"]}},
}


class TranslatedNumber(PasteTextRole):
    """`{glue:text}` also in a translated sentence, which is read without the page's results: they are put in later."""

    def run(self) -> tuple[list[Any], list[Any]]:
        if "nb_renderer" not in self.document and "::" not in self.text:
            env = self.document.settings.env
            self.text: str = f"/{Path(env.doc2path(env.docname)).relative_to(env.srcdir).as_posix()}::{self.text}"
        return super().run()


def setup(app) -> None:
    """Let translated sentences show a page's numbers."""
    app.add_role_to_domain("glue", "text", TranslatedNumber(), override=True)


def extract(root: Path) -> int:
    """Write every text of the book, then bring the translated pages up to date; the build's exit status.

    Sphinx reads the pages into a folder of its own, since those of the site cannot be used for another format.
    """
    apart, texts = root / "_build" / "extracted", root / TEXTS
    words = ("--builder=custom", "--custom-builder=gettext", "--all", f"--path-output={apart}")
    if status := jupyter_book(root, NOTHING_RUN, "gettext", *words):
        return status
    shutil.rmtree(texts, ignore_errors=True)
    (apart / "_build" / "gettext").rename(texts)
    shutil.rmtree(apart)
    for po in translated_pages(root):
        update(po, texts / template_of(po))
    return 0


def build(root: Path, language: str) -> int:
    """Build the site in a language. Raises SystemExit with the known ones for a language without a folder."""
    known = sorted(folder.name for folder in (root / "locale").iterdir() if folder.is_dir())
    if language not in known:
        raise SystemExit(f"There is no translation {language!r}; there are: {', '.join(known)}. See CONTRIBUTING.md.")
    words = {"sphinx": {"config": {"language": language}}}
    return jupyter_book(root, words, language, f"--path-output={root / '_build' / language}")


def settings(root: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """The book's settings with changes, of which mappings are merged."""
    return _merged(yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8")), changes)


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(old[key], new[key]) for key in old.keys() & new.keys() if isinstance(new[key], dict)}
    return {**old, **new, **both}


def jupyter_book(root: Path, changes: dict[str, Any], name: str, *words: str) -> int:
    """Build strictly with changed settings, which are written to _build/<name>.yml; the exit status."""
    config = root / "_build" / f"{name}.yml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(yaml.safe_dump(settings(root, changes)), encoding="utf-8")
    strictly = ["-n", "-W", "--keep-going", *words]
    program = Path(sys.executable).parent / "jupyter-book"
    return subprocess.run([program, "build", ".", f"--config={config}", *strictly], cwd=root).returncode


# --- files of translators ---------------------------------------------------------------------


def translated_pages(root: Path) -> Iterator[Path]:
    """The .po files of all languages."""
    yield from sorted((root / "locale").glob("*/LC_MESSAGES/**/*.po"))


def template_of(po: Path) -> Path:
    """The place of a page's texts below _build/gettext."""
    below = po.parts[len(po.parts) - po.parts[::-1].index("LC_MESSAGES") :]
    return Path(*below).with_suffix(".pot")


def update(po: Path, pot: Path) -> None:
    """Bring a translated page up to date: new texts are empty, changed ones are marked fuzzy, gone ones are removed."""
    old = catalog(po)
    old.update(catalog(pot))
    old.obsolete.clear()
    for message in old:
        message.locations = [(place.replace("../", ""), line) for place, line in message.locations]
    text = BytesIO()
    write_po(text, old, width=0)
    po.write_bytes(text.getvalue())


def catalog(path: Path) -> Catalog:
    """The messages of a file."""
    with path.open("rb") as file:
        return read_po(file, locale=_language(path))


def _language(path: Path) -> str | None:
    return path.parts[path.parts.index("LC_MESSAGES") - 1] if "LC_MESSAGES" in path.parts else None


def main(words: list[str]) -> int:
    """Command line of this module."""
    if words == ["extract"]:
        return extract(Path.cwd())
    if len(words) == 2 and words[0] == "build":
        return build(Path.cwd(), words[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
