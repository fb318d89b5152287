"""Texts for translators, the translated pages of the repository, and a page built in another language."""

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from handbook.delivery import translation
from handbook.delivery.translation import catalog

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"`+[^`]+`+")
LANGUAGE = "de"
PAGES = list(translation.translated_pages(ROOT))


def messages(path):
    """The messages of a file by their texts, without its header."""
    return {message.id: message for message in catalog(path) if message.id}


@pytest.fixture(scope="module")
def extracted(tmp_path_factory):
    """The texts of the whole book, written without a warning and without a result: nothing was executed there."""
    root = tmp_path_factory.mktemp("book")
    for name in ("book", "labs", "src", "tests", "node_modules", "_config.yml", "_toc.yml"):
        (root / name).symlink_to(ROOT / name)
    assert translation.extract(root) == 0
    return root / translation.TEXTS


@pytest.mark.engine  # a build looks for llama.cpp, whatever it builds
@pytest.mark.parametrize("po", PAGES, ids=lambda po: po.stem)
def test_a_translated_page_is_whole(extracted, po):
    """Each text of the English page has a translation, none is left over, and none waits for somebody's look."""
    english, translated = messages(extracted / translation.template_of(po)), messages(po)
    assert list(translated) == list(english)
    assert [text for text, message in translated.items() if not message.string or message.fuzzy] == []


@pytest.mark.engine
def test_extraction_leaves_the_site_alone(extracted):
    """What Sphinx has read of the pages for another format would end the next `make book`."""
    assert sorted(path.name for path in extracted.parent.iterdir()) == ["gettext", "gettext.yml"]


@pytest.mark.parametrize("po", PAGES, ids=lambda po: po.stem)
def test_code_and_roles_are_not_translated(po):
    """The words of a link may be; what it leads to, code and numbers of a cell may not."""

    def kept(text):
        return sorted(re.sub(r"[^`<]*<([^>]+)>", r"\1", part) for part in CODE.findall(text))

    wrong = [text for text, message in messages(po).items() if _of(text, kept) != _of(message.string, kept)]
    assert wrong == []


def _of(text, kept):
    """What must be the same: a role whose link has words of its own says where it leads in both."""
    return [part.strip("`").lower() for part in kept(text)]


def test_an_edit_marks_the_translation(tmp_path):
    """What is new is empty, what changed is fuzzy, and what is gone is removed."""
    po = tmp_path / "locale" / LANGUAGE / "LC_MESSAGES" / "page.po"
    po.parent.mkdir(parents=True)
    po.write_text(
        'msgid "The memory of a card is full."\nmsgstr "Der Speicher ist voll."\n\nmsgid "Gone"\nmsgstr "Weg"\n'
    )
    pot = tmp_path / "page.pot"
    pot.write_text('msgid "The memory of a card is nearly full."\nmsgstr ""\n\nmsgid "Quantization"\nmsgstr ""\n')
    translation.update(po, pot)
    told = {text: (message.string, message.fuzzy) for text, message in messages(po).items()}
    assert told == {
        "The memory of a card is nearly full.": ("Der Speicher ist voll.", True),
        "Quantization": ("", False),
    }


def test_settings_are_merged():
    """A build in a language has all other settings of the book."""
    settings = translation.settings(ROOT, {"sphinx": {"config": {"language": LANGUAGE}}})
    assert settings["sphinx"]["config"]["language"] == LANGUAGE
    assert settings["sphinx"]["config"]["locale_dirs"] == ["locale"]
    assert "handbook" in settings["sphinx"]["extra_extensions"]


def test_an_unknown_language_ends_with_the_known_ones():
    """Before anything is built."""
    with pytest.raises(SystemExit, match=f"no translation 'xx'; there are: {LANGUAGE}"):
        translation.build(ROOT, "xx")


@pytest.mark.engine
def test_a_translated_sentence_has_the_number_of_its_page(tmp_path):
    """The cell is executed as in English, and its result stands in the sentence of the translator."""
    for name in ("node_modules", "_config.yml"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "book" / "_static", tmp_path / "book" / "_static")
    shutil.copytree(ROOT / "book" / "_templates", tmp_path / "book" / "_templates")
    (tmp_path / "book" / "references.bib").write_text("")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: page\n")
    header = (
        "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\nkernelspec:\n"
        "  display_name: Python 3\n  language: python\n  name: python3\n---\n"
    )
    cell = '```{code-cell} ipython3\nimport handbook\nhandbook.number("speed", 12.34)\n```\n'
    english = "It has {glue:text}`speed:.1f` tokens/s."
    (tmp_path / "page.md").write_text(f"{header}\n# A page\n\n{cell}\n{english}\n")
    po = tmp_path / "locale" / LANGUAGE / "LC_MESSAGES" / "page.po"
    po.parent.mkdir(parents=True)
    po.write_text(
        textwrap.dedent(f"""\
        msgid ""
        msgstr "Content-Type: text/plain; charset=utf-8\\n"

        msgid "{english}"
        msgstr "Es sind {{glue:text}}`speed:.1f` Token/s."
        """)
    )
    translation.build(tmp_path, LANGUAGE)
    page = (tmp_path / "_build" / LANGUAGE / "_build" / "html" / "page.html").read_text()
    assert re.search(r"Es sind <span[^>]*>12\.3</span> Token/s\.", page)
    assert f'lang="{LANGUAGE}"' in page
