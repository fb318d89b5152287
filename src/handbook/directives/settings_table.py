"""Sphinx directive and role for the settings of five programs, from data/facts/options.toml.

```{settings} n_ctx n_gpu_layers type_k    a row for each setting: what it sets, its name and default in each
:engines: llama.cpp Ollama LM-Studio           which programs, in this order; all five where it is missing
:caption: Names of the context                 numbers the table; with :name: it can be referred to
:name: tab-context
```
{setting}`n_ctx:ollama`                        the name of one setting in one program, as code; of LM Studio the title
{setting}`set <n_ctx:ollama> 8192`             a command with the name in it, as one code

Below a page's first table stand the versions that were read, and their sources; below a later one only if it has a
program that no table before it has.
On a narrow screen each row becomes a block of its own, with the program before each name.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxRole

from handbook.directives.tables import TableDirective, month, stacked_table
from inferlab.errors import InvalidSettings
from inferlab.options.names import Option, Program, option_named, program_named, programs

READ_ON_PAGE = "settings-read"
"""Key of the programs whose versions stand on the page that is being read."""
IN_A_COMMAND = re.compile(r"(.*?)<(.+)>(.*)")


def setup(app: Any) -> None:
    """Make the directive and the role known."""
    app.add_directive("settings", SettingsTable)
    app.add_role("setting", SettingName())


class SettingsTable(TableDirective):
    """A table of settings, and a line with what was read."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {**TableDirective.option_spec, "engines": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        self.note_facts("options")
        try:
            chosen = [option_named(name) for name in self.arguments[0].split()]
            shown = [program_named(name) for name in self.options.get("engines", "").split()]
        except InvalidSettings as unknown:
            raise self.error(str(unknown)) from unknown
        shown = shown or list(programs().values())
        table = self.titled(settings_table(chosen, shown))
        keys = {program.key for program in shown}
        read = self.env.temp_data.setdefault(READ_ON_PAGE, set())
        if keys <= read:
            return [table]
        read.update(keys)
        return [table, self.what_was_read(sources_text(shown))]


class SettingName(SphinxRole):
    """The name of one setting in one program, alone or in a command."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        command = IN_A_COMMAND.fullmatch(self.text)
        before, asked, after = command.groups() if command else ("", self.text, "")
        name, _, program = asked.partition(":")
        try:
            names = _names(option_named(name.strip()), program_named(program.strip() or "llama.cpp"))
        except InvalidSettings as unknown:
            return [nodes.inline("", self.text)], [self.inliner.reporter.error(str(unknown), line=self.lineno)]
        if not names:
            message = f"{program or 'llama.cpp'} has no name for {name}."
            return [nodes.inline("", self.text)], [self.inliner.reporter.error(message, line=self.lineno)]
        shown, *_ = names
        shown.insert(0, nodes.Text(before))
        shown.append(nodes.Text(after))
        return [shown], []


def settings_table(chosen: list[Option], shown: list[Program]) -> nodes.table:
    """The table: a row for each setting, a column for each program."""
    return stacked_table(["Sets", *(program.title for program in shown)], (_row(option, shown) for option in chosen))


def sources_text(shown: list[Program]) -> str:
    """`Read in llama.cpp 0c1e57098 (August 2026) {cite}...`: version, date and source of each program, as MyST."""
    texts = [f"{program.title} {program.version} {{cite}}`{program.source}`" for program in shown]
    dates = sorted({program.date for program in shown})
    read = f"Read in {', '.join(texts)}; state of {' and '.join(map(month, dates))}."
    return " ".join([read, *(program.note for program in shown if program.note)])


def _row(option: Option, shown: list[Program]) -> list[nodes.paragraph]:
    what = nodes.paragraph("", "", nodes.strong("", f"{option.what[0].upper()}{option.what[1:]}"))
    return [what, *(_cell(option, program) for program in shown)]


def _cell(option: Option, program: Program) -> nodes.paragraph:
    """Name and default in one program."""
    paragraph = nodes.paragraph()
    names, default = _names(option, program), default_text(option, program)
    if program.key == "ollama" and option.env and not (names or default):
        names, default = [_code(option.env)], "for its llama-server"
    for i, name in enumerate(names):
        paragraph += [nodes.Text(", "), name] if i else [name]
    paragraph += nodes.Text(f"{': ' if names and default else ''}{default}" if names or default else "none")
    return paragraph


def default_text(option: Option, program: Program) -> str:
    """The default in one program, with what a code means in brackets: `0 (none)`, `-1 (chosen)`."""
    default = getattr(option, f"{program.key}_default")
    means = option.python_means if program.key == "python" else ""
    if not means:
        default, _, means = default.partition(": ")
    return f"{default} ({means})" if means else default


def _names(option: Option, program: Program) -> list[nodes.Node]:
    names = [_code(name) for name in option.names_in(program.key)]
    return [nodes.inline("", option.lmstudio), *names] if program.key == "lmstudio" and option.lmstudio else names


def _code(name: str) -> nodes.literal:
    """A name as code, in parts that end in an underscore or a hyphen, after which a narrow column may break it."""
    return nodes.literal("", "", *map(nodes.Text, re.findall(r"-*[^-_]+[-_]?", name)))
