"""The directive `repeat same_answer`: how a study's records are measured again, or why they cannot be, folded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from inferlab.records import studies
from studies.recipes import NotRepeatable, Recipe, recipes


def setup(app: Any) -> None:
    """Make the directive known."""
    app.add_directive("repeat", RepeatDirective)


class RepeatDirective(SphinxDirective):
    """A fold for the study that the first argument names; the second says what is measured, where a page has two."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        study, what = (*self.arguments, "it")[:2]
        if study not in {path.name for path in studies()}:
            raise self.error(f"There is no study {study!r}: the folders of src/studies are the studies.")
        parsed = nodes.Element()
        lines = StringList(fold(study, recipes(study), what).splitlines(), source=self.get_source_info()[0])
        self.state.nested_parse(lines, self.content_offset, parsed)
        return parsed.children


def fold(study: str, calls: Mapping[str, Recipe], what: str = "it") -> str:
    """The fold in MyST: one command for all records that can be measured again, and a reason for each other one."""
    names = [name for name, recipe in calls.items() if not isinstance(recipe, NotRepeatable)]
    lines = [f":::{{admonition}} Measure {what} again", ":class: dropdown"]
    if names:
        lines += [f"A call made each record; `--to FOLDER` says where a new one is written: {_listed(names)}."]
        lines += ["", "```sh", f"python -m studies.{study}.measure {names[0]}", "```", ""]
        lines += ["Without a name it lists the calls.", ""]
    reasons: dict[str, list[str]] = {}
    for name, recipe in calls.items():
        if isinstance(recipe, NotRepeatable):
            reasons.setdefault(recipe, []).append(name)
    lines += [f"Not repeatable: {_listed(given)}, because {reason}." for reason, given in reasons.items()]
    return "\n".join([*lines, ":::"])


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
