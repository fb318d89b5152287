"""What the log reader shows: findings with their lines, what was allocated where, settings, rates, what is not known.

All texts of a log are cut to lengths that a page can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from inferlab.instruments.views import element, paragraph, table
from inferlab.log_reader import LogFinding, LogReport, Rate
from inferlab.log_reader.report import LoggedContext
from inferlab.units import bytes_text

KINDS = {"weights": "Weights", "kv_cache": "KV cache", "compute": "Compute buffer", "output": "Output buffer"}
RARE_KINDS = {"recurrent": "Recurrent state", "projector": "Projector", "adapter": "LoRA adapter"}
SEVERITIES = {"fault": "It failed", "slow": "It is slow", "note": "Worth knowing"}
BASES = {
    "lines": "the log names the device of each layer",
    "weights": "all weights lie in RAM",
    "offloaded": "as `offloaded` counts them",
    "cache": "from each device's part of the cache, without the output layer",
    "cached layers": "of the layers with a KV cache, from each device's part of it",
}
DRAFT = "a second model, loaded to draft tokens; sizes and settings here are those of the first"
LONGEST_LINE, LONGEST_NAME, MOST = 300, 100, 20
"""Characters of a line and of a name, and entries of a list, that are shown."""
CODE, NAMED = re.compile(r"`([^`]*)`"), re.compile(r"\*([^*]+)\*")


def summary(report: LogReport, example: str | None) -> str:
    """What matters most in a sentence or two."""
    told = cut(_found(report), LONGEST_LINE)
    return f"Example: {told}" if example else told


def _found(report: LogReport) -> str:
    if report.findings:
        first, *more = report.findings
        return first.what.replace("`", "") + (f" {_count(len(more), 'more finding')} below." if more else "")
    return report.nothing_found


def log_view(
    report: LogReport, example: str | None, memory: list[Any] | None = None, not_planned: Sequence[str] = ()
) -> list[Any]:
    """All of a report.

    example      the text of the example if the report is about that
    memory       the view of the load planned again, or `not_planned`, why it could not be
    """
    return element(
        "div",
        {},
        _about_the_example(example) if example else None,
        *map(_finding, report.findings),
        _allocated(report),
        memory,
        _facts(report),
        _list("What the log does not say", [*report.unknown, *not_planned]),
        _elsewhere(),
    )


def cut(text: str, length: int = LONGEST_NAME) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= length else f"{text[:length]} …"


def _about_the_example(example: str) -> list[Any]:
    return element(
        "section",
        {},
        paragraph(
            "The answer below is for an example: llama-server with the handbook's own tiny model, of which only "
            "some layers lie on a device. Paste your own log, and its answer takes this place."
        ),
        element("details", {"id": "example"}, element("summary", {}, "The log of the example"), _lines(example)),
    )


# --- what is wrong -----------------------------------------------------------------------------------------


def _finding(finding: LogFinding) -> list[Any]:
    numbered = [f"{line.number}: {cut(line.text, LONGEST_LINE)}" for line in finding.lines[:MOST]]
    more = len(finding.lines) - len(numbered)
    shown = "\n".join([*numbered, *([f"and {more:,} more lines"] if more else [])])
    fixes = [_fix(sentence) for sentence in finding.fix]
    return element(
        "section",
        {"class": "instrument-finding", "data-state": finding.severity},
        element("h2", {}, f"{SEVERITIES[finding.severity]}: ", *coded(cut(finding.what, 2 * LONGEST_LINE))),
        paragraph("Lines of the log, by their numbers:") if numbered else None,
        _lines(shown) if numbered else None,
        paragraph("Fix:") if fixes else None,
        element("ul", {}, *fixes) if fixes else None,
        paragraph("Explained in ", element("a", {"href": address(finding)}, page_name(finding)), ".")
        if finding.page
        else None,
    )


def coded(text: str) -> list[Any]:
    """A text whose parts between backticks are code."""
    return _marked(text, CODE, "code")


def _fix(sentence: str) -> list[Any]:
    """A sentence of the table of findings: code between backticks, names of settings between asterisks."""
    parts = (_marked(part, NAMED, "em") if isinstance(part, str) else [part] for part in coded(sentence))
    return element("li", {}, *(child for part in parts for child in part))


def _marked(text: str, mark: re.Pattern[str], tag: str) -> list[Any]:
    parts = enumerate(mark.split(text))
    return [element(tag, {}, part) if number % 2 else part for number, part in parts if part]


def address(finding: LogFinding) -> str:
    """The page that explains a finding, seen from the log reader's own page in book/."""
    page = finding.page.removeprefix("book/")
    return f"{'./' if page != finding.page else '../'}{page}.html#{finding.anchor}"


def page_name(finding: LogFinding) -> str:
    """The page in words, for places where a link leads nowhere."""
    return finding.page.rpartition("/")[2].replace("-", " ").capitalize()


def _lines(text: str) -> list[Any]:
    return element("div", {"class": "instrument-code instrument-log"}, element("pre", {}, text))


# --- what the log states -----------------------------------------------------------------------------------


def _allocated(report: LogReport) -> list[Any] | None:
    """What was allocated where, and the share of the weights that is on a device."""
    if not report.table:
        return None
    columns = columns_of(report)
    rows = [
        [cut(device), *(bytes_text(kinds[kind]) if kind in kinds else "not named" for kind in columns)]
        for device, kinds in list(report.table.items())[:MOST]
    ]
    share, more = report.share_on_devices, len(report.table) - len(rows)
    return element(
        "section",
        {"class": "instrument-allocated"},
        element("h2", {}, "What was allocated where"),
        table(["Device", *columns.values()], rows),
        paragraph(f"And {more:,} more devices.") if more else None,
        paragraph(f"{100 * share:.0f} % of the model's weights lie on a GPU or another device.")
        if share is not None
        else None,
    )


def columns_of(report: LogReport) -> dict[str, str]:
    """The kinds of buffers with their names: the usual ones, and others that the log has."""
    here = {kind for kinds in report.table.values() for kind in kinds}
    return KINDS | {kind: name for kind, name in RARE_KINDS.items() if kind in here}


def _facts(report: LogReport) -> list[Any]:
    """Settings, program and rates, as far as the log says them."""
    context, program, model = report.context, report.program, report.model
    facts = {
        "Program": _joined([program.name, program.version, program.build and f"build {program.build}"], " "),
        "Backends": _joined(program.backends),
        "Model": _joined([model.name, model.architecture, model.size, model.file_type]),
        "Draft model": DRAFT if report.has_draft else "",
        "Devices": _joined(device.text for device in report.devices),
        "Layers": _layers(report),
        "Context": _context(report),
        "Cache type": _joined([context.type_k and f"K {context.type_k}", context.type_v and f"V {context.type_v}"]),
        "Flash attention": context.flash_attn,
        "Threads": _threads(report),
        "Prompt": _rate(report.prompt),
        "Answer": _rate(report.answer),
        "Lines": _read(report),
    }
    rows = [[name, cut(said, LONGEST_LINE)] for name, said in facts.items() if said]
    shown = table(["Fact", "In the log"], rows)
    return element("section", {"class": "instrument-facts"}, element("h2", {}, "What the log says"), shown)


def _joined(parts: Iterable[str | None], between: str = ", ") -> str:
    named = [cut(part) for part in parts if part]
    more = [f"and {len(named) - MOST:,} more"] if len(named) > MOST else []
    return between.join([*named[:MOST], *more])


def _layers(report: LogReport) -> str:
    if report.layers is None:
        return ""
    by_device = _joined(f"{count} on {device}" for device, count in report.layers.by_device.items())
    return f"{by_device} ({BASES[report.layers.basis]})"


def _context(report: LogReport) -> str:
    context, trained = report.context, report.model.n_ctx_train
    cells = context.n_ctx if context.n_ctx is not None or not context.shared else context.n_ctx_slot
    return _joined(
        [
            _count(cells, "cell"),
            f"{'shared by ' if context.shared and cells is not None else ''}{_count(context.n_slots, 'slot')}",
            _cells_of_a_slot(context),
            f"{_count(trained, 'token')} in training" if trained is not None else "",
        ]
    )


def _cells_of_a_slot(context: LoggedContext) -> str:
    """Said where it adds something: not of the only slot, and not of slots that share all cells."""
    alone = context.n_slots == 1 and context.n_ctx == context.n_ctx_slot
    if context.n_ctx_slot is None or context.shared or alone:
        return ""
    return f"{_count(context.n_ctx_slot, 'cell')} for each slot"


def _threads(report: LogReport) -> str:
    context = report.context
    return _joined([_count(context.n_threads, "thread"), _count(context.n_processors, "logical processor")])


def _count(value: int | None, unit: str) -> str:
    return "" if value is None else f"{value:,} {unit}{'' if value == 1 else 's'}"


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return ""
    return f"{rate.text}, {_count(rate.n_tokens, 'token')} in {_count(rate.n_requests, 'request')}"


def _read(report: LogReport) -> str:
    loads = f", {report.n_loads} loads; all of this is about the last one" if report.n_loads > 1 else ""
    return f"{report.n_lines:,}{loads}"


def _list(title: str, sentences: Sequence[str]) -> list[Any] | None:
    if not sentences:
        return None
    entries = (element("li", {}, *coded(sentence)) for sentence in sentences)
    return element("section", {}, element("h2", {}, title), element("ul", {}, *entries))


def _elsewhere() -> list[Any]:
    saving = {"type": "button", "class": "pst-js-only", "data-save": "log-report.json"}
    return paragraph(element("button", saving, "Save the report as JSON"))
