"""Sphinx directives for a workshop: the blocks that it is made of, and plans with a clock.

~~~{block} pipeline                            below a heading, which is the block's title
:goal: Say where the time of a request goes.
:read: book/workflow/pipeline#in-short         pages, or a section of one, or its box *In short*
:lab: 03-follow-the-pipeline
:sections: "Predict; Measure: longer prompts"  of the lab; all of them where it is missing
:minutes: 30                                   given, for work that is no lab
What the instructor says.

```{asks} 03-follow-the-pipeline length        a question of a lab, put to the room
- one of its choices => what to say to who chose it
```
```{rooms}
- cpu: what differs in a room without a GPU
```
~~~
```{plan} half-day
:start: 9:00
:minutes: 240
pipeline
memory optional                                left out first, where the time is short
break 15
```

Minutes are computed when a page is written, by `workshop_minutes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from handbook.cells import NOT_SEARCHED
from handbook.directives.predictions import lab_question
from handbook.directives.tables import stacked_table
from handbook.workshop_minutes import (
    IN_SHORT,
    Block,
    Line,
    Minutes,
    Part,
    Plan,
    clock_text,
    lab_part,
    line_of,
    minutes_text,
    pace,
    page_part,
    rest_text,
    section_of,
    title_of,
)

ROOMS = {"cpu": "Without GPUs", "gpu": "With own GPUs", "shared": "With one shared GPU"}
HEADS = ("clock", "block", "minutes")
logger = logging.getLogger(__name__)


def setup(app: Any) -> None:
    """Make the directives known, and compute their minutes when every page was read."""
    for node in (BlockFacts, PlanTable):
        app.add_node(node)
    for name, directive in {"block": BlockDirective, "asks": Asks, "rooms": Rooms, "plan": PlanDirective}.items():
        app.add_directive(name, directive)
    app.connect("env-purge-doc", _forget)
    app.connect("doctree-read", _remember)
    app.connect("env-get-updated", _pages_with_minutes)
    app.connect("doctree-resolved", _fill_in)


class BlockFacts(nodes.General, nodes.Element):
    """Stands for the table of a block until its minutes are known; has what the directive was told."""


class PlanTable(nodes.General, nodes.Element):
    """Stands for a plan until the minutes of its blocks are known; `plan` is a `Plan`."""


class BlockDirective(SphinxDirective):
    """A block: its facts, what to say, what to ask, and what differs between rooms."""

    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012 - docutils wants a plain dict
        "goal": directives.unchanged_required,
        "read": directives.unchanged,
        "lab": directives.unchanged,
        "sections": directives.unchanged,
        "minutes": directives.nonnegative_int,
    }

    def run(self) -> list[nodes.Node]:
        parsed = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, parsed)
        asked = [child for child in parsed.children if "workshop-ask" in child.get("classes", ())]
        rooms = [child for child in parsed.children if "workshop-rooms" in child.get("classes", ())]
        said = [child for child in parsed.children if child not in (*asked, *rooms)]
        facts = self.facts(n_words(said), len(asked))
        ask = [nodes.rubric("", "Ask"), *asked] if asked else []
        differ = [nodes.rubric("", "Rooms"), *rooms] if rooms else []
        say = [nodes.rubric("", "Say"), *said] if said else []
        return [facts, nodes.container("", *say, *ask, *differ, classes=[NOT_SEARCHED])]

    def facts(self, said_words: int, n_asked: int) -> BlockFacts:
        facts = BlockFacts(
            name=self.arguments[0],
            goal=self.options["goal"],
            read=listed(self.options.get("read", "")),
            lab=self.options.get("lab", ""),
            sections=listed(self.options.get("sections", "")),
            given=self.options.get("minutes", 0),
            said_words=said_words,
            n_asked=n_asked,
        )
        self.set_source_info(facts)
        if facts["lab"]:
            self.env.note_dependency(str(Path(self.env.srcdir) / "labs" / f"{facts['lab']}.ipynb"))
        return facts


class Asks(SphinxDirective):
    """A question of a lab with its choices, and what to say to who chose each."""

    required_arguments = 2
    has_content = True

    def run(self) -> list[nodes.Node]:
        lab, name = self.arguments
        path = Path(self.env.srcdir) / "labs" / f"{lab}.ipynb"
        self.env.note_dependency(str(path))
        text, choices = lab_question(path, name)
        replies = dict(self.replies())
        if set(replies) != set(choices):
            raise self.error(f"{lab} {name}: what to say is needed for each of {choices}, found {tuple(replies)}.")
        lines = [f"*{text}*", "", *(f"- **{choice}**: {replies[choice]}" for choice in choices)]
        box = nodes.container(classes=["workshop-ask"])
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), self.content_offset, box)
        return [box]

    def replies(self) -> Iterator[tuple[str, str]]:
        """Choice and reply of each bullet."""
        for line in "\n".join(self.content).replace("\n  ", " ").splitlines():
            if line.startswith("- "):
                choice, _, reply = line[2:].partition(" => ")
                yield choice.strip(), reply.strip()


class Rooms(SphinxDirective):
    """What differs in each kind of room."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        items = [line[2:].partition(": ") for line in "\n".join(self.content).replace("\n  ", " ").splitlines() if line]
        unknown = [room for room, _, _ in items if room not in ROOMS]
        if unknown:
            raise self.error(f"There is no room {', '.join(unknown)}. There are: {', '.join(ROOMS)}.")
        lines = [f"- **{ROOMS[room]}**: {text}" for room, _, text in items]
        box = nodes.container(classes=["workshop-rooms"])
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), self.content_offset, box)
        return [box]


class PlanDirective(SphinxDirective):
    """A plan: its lines, its start and its length."""

    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012 - docutils wants a plain dict
        "start": directives.unchanged_required,
        "minutes": directives.positive_int,
    }

    def run(self) -> list[nodes.Node]:
        hours, minutes = map(int, self.options["start"].split(":"))
        lines = tuple(line_of(text) for text in self.content if text.strip())
        table = PlanTable(name=self.arguments[0], plan=Plan(lines, 60 * hours + minutes, self.options["minutes"]))
        self.set_source_info(table)
        return [table]


def listed(text: str) -> tuple[str, ...]:
    """The entries of an option, which semicolons separate."""
    return tuple(entry.strip() for entry in text.split(";") if entry.strip())


def n_words(parts: Sequence[nodes.Node]) -> int:
    return sum(len(part.astext().split()) for part in parts)


def _forget(app: Any, env: Any, page: str) -> None:
    blocks, plans = _kept(env)
    for name in [name for name, block in blocks.items() if block.page == page]:
        del blocks[name]
    plans.discard(page)


def _kept(env: Any) -> tuple[dict[str, Block], set[str]]:
    """The blocks of the book by name, and the pages that show minutes."""
    return vars(env).setdefault("handbook_blocks", {}), vars(env).setdefault("handbook_plans", set())


def _remember(app: Any, doctree: nodes.document) -> None:
    blocks, plans = _kept(app.env)
    for facts in doctree.findall(BlockFacts):
        section = facts.parent
        told = {key: facts[key] for key in ("goal", "read", "lab", "sections", "said_words", "n_asked", "given")}
        name, title = facts["name"], title_of(section)
        if name in blocks:
            logger.warning("The block %r stands twice.", name, location=facts)
        blocks[name] = Block(name, title, app.env.docname, section["ids"][0], **told)
        plans.add(app.env.docname)
    if any(doctree.findall(PlanTable)):
        plans.add(app.env.docname)


def _pages_with_minutes(app: Any, env: Any) -> list[str]:
    """Pages to write in every build, since another page's words or seconds may have changed."""
    return sorted(_kept(env)[1])


def _fill_in(app: Any, doctree: nodes.document, page: str) -> None:
    blocks, _ = _kept(app.env)
    shown = Shown(app, page)
    for facts in list(doctree.findall(BlockFacts)):
        facts.replace_self(shown.facts(blocks[facts["name"]]))
    for table in list(doctree.findall(PlanTable)):
        unknown = [line.name for line in table["plan"].lines if not line.minutes and line.name not in blocks]
        if unknown:
            logger.warning("There is no block %s.", ", ".join(unknown), location=table)
            table.replace_self([])
        else:
            table.replace_self(shown.plan(table["plan"], blocks))


class Shown:
    """Makes the tables of one page."""

    def __init__(self, app: Any, page: str) -> None:
        self.app, self.env, self.page = app, app.env, page

    def link(self, text: str, page: str, anchor: str = "") -> nodes.reference:
        uri = self.app.builder.get_relative_uri(self.page, page) + (f"#{anchor}" if anchor else "")
        return nodes.reference("", "", nodes.inline("", text), refuri=uri, internal=True)

    def part(self, block: Block) -> Part:
        """What the pages and the lab of a block hold."""
        parts = [page_part(self.env.get_doctree(page), anchor) for page, anchor in map(split_anchor, block.read)]
        return sum((*parts, *self.lab_part(block)), Part())

    def lab_part(self, block: Block) -> Iterator[Part]:
        if block.lab:
            page = f"labs/{block.lab}"
            executed = getattr(self.env, "nb_metadata", {}).get(page, {}).get("exec_data") or {}
            path = Path(self.env.srcdir) / f"{page}.ipynb"
            yield lab_part(path, self.env.get_doctree(page), block.sections, executed.get("cell_seconds"))

    def minutes(self, block: Block) -> Minutes:
        return pace().minutes(block, self.part(block))

    def facts(self, block: Block) -> nodes.Node:
        """Goal, lab, pages and minutes of a block, as a list."""
        items = [("Goal", [nodes.Text(block.goal)])]
        if block.lab:
            items.append(("Run", self.lab_link(block)))
        if block.read:
            items.append(("Read", joined(self.page_link(entry) for entry in block.read)))
        minutes = self.minutes(block)
        items.append(("Minutes", [nodes.Text(minutes_text(minutes))]))
        listed = nodes.bullet_list(classes=["workshop-facts"])
        for head, inlines in items:
            listed += nodes.list_item("", nodes.paragraph("", "", nodes.strong("", f"{head}: "), *inlines))
        return listed

    def page_link(self, entry: str) -> nodes.reference:
        page, anchor = split_anchor(entry)
        title = self.env.titles[page].astext()
        if anchor == IN_SHORT:
            return self.link(f"{title}, In short", page)
        heading = title_of(section_of(self.env.get_doctree(page), anchor)) if anchor else ""
        return self.link(", ".join(filter(None, (title, heading))), page, anchor)

    def lab_link(self, block: Block) -> list[nodes.Node]:
        page = f"labs/{block.lab}"
        which = f", sections: {'; '.join(block.sections)}" if block.sections else ", all of it"
        return [self.link(self.env.titles[page].astext(), page), nodes.Text(which)]

    def plan(self, plan: Plan, blocks: dict[str, Block]) -> list[nodes.Node]:
        """The table of a plan, and the sentence on what is left of the time."""
        minutes = {line.name: self.minutes(blocks[line.name]) for line in plan.lines if not line.minutes}
        rows, clock = [], plan.start
        for line in plan.lines:
            block = blocks.get(line.name)
            rows.append([nodes.paragraph(text=clock_text(clock)), *self.cells(line, block, minutes.get(line.name))])
            clock += line.minutes or minutes[line.name].together
        gone = [blocks[name].title for name in plan.left_out(minutes)]
        table = stacked_table(HEADS, rows)
        table["classes"].append("plan")
        clock = nodes.container("", table, classes=[NOT_SEARCHED])
        return [clock, nodes.paragraph(text=rest_text(plan, minutes, gone))]

    def cells(self, line: Line, block: Block | None, minutes: Minutes | None) -> list[nodes.paragraph]:
        if block is None or minutes is None:
            return [nodes.paragraph(text=line.name), nodes.paragraph(text=f"{line.minutes}")]
        title = nodes.paragraph("", "", self.link(block.title, block.page, block.anchor))
        title += [nodes.Text(" (may be left out)")] if line.optional else []
        unknown = ", without the machine's, which was not executed" if minutes.machine is None else ""
        return [title, nodes.paragraph(text=f"{minutes.together}{unknown}")]


def joined(links: Iterable[nodes.Node]) -> list[nodes.Node]:
    """Links with commas between them."""
    return [part for link in links for part in (nodes.Text("; "), link)][1:]


def split_anchor(entry: str) -> tuple[str, str]:
    page, _, anchor = entry.partition("#")
    return page, anchor
