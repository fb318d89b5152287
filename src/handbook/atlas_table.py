"""Makes the tables of the hardware atlas: every measurement beside its prediction, with filters.

The long tables are folded. Without JavaScript the whole table is in its fold and the filters are hidden. Texts of
records are escaped, because anybody may contribute a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from handbook import cells
from inferlab.atlas import campaign
from inferlab.atlas.entries import AtlasEntry, RecordFile, errors_by, gpu_names, typical
from inferlab.engine.session import this_machine
from inferlab.machine import Machine
from inferlab.units import bytes_text, number_text

FILE_HEADINGS = ("Machine", "Record", "Kind", "Measurements", "Made")
CHOICES = {"machine": "Machine", "model": "Model", "type": "Type of weights", "device": "Device"}
HEADINGS = ("Machine, record", "What ran where", "Memory", "Prefill, tokens/s", "Decode, tokens/s")


def table(entries: Sequence[AtlasEntry]) -> Any:
    """Every entry as a row, below filters by machine, model, type and device, in a fold."""
    from IPython.display import HTML

    rows = _scrolling_table("All measurements", HEADINGS, map(_row, entries))
    return HTML(_folded(f"All {len(entries)} measurements beside their predictions", _form(entries) + rows))


def files(records: Sequence[RecordFile]) -> Any:
    """Every file of the repository: its kind, its number of measurements, and when they were made, in a fold."""
    from IPython.display import HTML

    rows = [
        [
            _cell(file.machine),
            _cell(file.record),
            _cell(file.kind),
            _cell(_count_text(file)),
            _cell(", ".join(file.dates) or "not recorded", title=", ".join(file.builds)),
        ]
        for file in records
    ]
    lines = (f"<tr>{_named(FILE_HEADINGS, row)}</tr>" for row in rows)
    return HTML(_folded(f"All {len(records)} records", _scrolling_table("All files", FILE_HEADINGS, lines)))


def _count_text(file: RecordFile) -> str:
    """`7, and 1 refused`: what the engine refused to run is in the file and not among the measurements."""
    return f"{file.n_measurements}, and {file.n_refused} refused" if file.n_refused else str(file.n_measurements)


def _folded(summary: str, html: str) -> str:
    return f'<details class="atlas-fold"><summary>{summary}</summary>{html}</details>'


def _scrolling_table(name: str, headings: Sequence[str], rows: Iterable[str]) -> str:
    """A table that scrolls within its own frame, by keyboard too."""
    heads = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    table = f'<table class="atlas"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="atlas-frame" tabindex="0" role="region" aria-label="{name}">{table}</div>'


def machines(known: Mapping[str, Machine]) -> Any:
    """The machines of the repository, and in one sentence which GPUs are among them."""
    from IPython.display import Markdown

    head = "| machine | processor | cores | memory | GPU | system, engine |\n|---|---|--:|--:|---|---|"
    lines = [
        f"| {name} | {machine.cpu} | {machine.n_cores} | {bytes_text(machine.ram_bytes)} "
        f"| {', '.join(gpu_names({name: machine})) or 'none'} | {machine.system}, {machine.llama_cpp_text} |"
        for name, machine in known.items()
    ]
    return Markdown("\n".join([head, *lines]) + f"\n\n{gpu_note(known)}")


def measured_on(known: Mapping[str, Machine]) -> str:
    """The machines by their processors and cores, with their GPUs or `without a GPU`, to follow `measured on`."""
    several = [f"{machine.cpu.strip()}, {machine.n_cores} cores" for machine in known.values()]
    cards = gpu_names(dict(known))
    gpus = f"with {', '.join(cards)}" if cards else "without a GPU"
    count = f"{len(several)} machine{'s' if len(several) != 1 else ''} {gpus}"
    return f"{count} ({'; '.join(several)})"


def gpu_note(known: Mapping[str, Machine]) -> str:
    """Which GPUs have records, in a sentence."""
    cards = gpu_names(dict(known))
    if cards:
        return f"GPUs with records: {', '.join(cards)}. Of any other nothing is measured here."
    return (
        "**No GPU is among them yet.** Every figure of this page was measured on processors. A device in a figure is "
        "a loopback device: a second process, which shares the processor's memory. Nothing here says how fast a GPU "
        "is."
    )


def stages() -> Any:
    """The stages that `inferlab reference` has for this machine."""
    stages = campaign.stages(this_machine())
    return cells.table(("stage", "measures"), [(f"`{stage.name}`", stage.about) for stage in stages])


def errors(entries: Sequence[AtlasEntry], by: str) -> Any:
    """Median error of the predictions for each value of one field; in brackets, their number."""
    from IPython.display import Markdown

    head = f"| {by} | memory | prefill | decode |\n|---|--:|--:|--:|"
    groups = errors_by(entries, by)
    lines = [f"| {value} | {' | '.join(map(_median_error_text, kinds.values()))} |" for value, kinds in groups.items()]
    return Markdown("\n".join([head, *lines]))


def _median_error_text(several: Sequence[float]) -> str:
    return f"{100 * typical(several):.1f} % ({len(several)})" if several else "none"


def _form(entries: Sequence[AtlasEntry]) -> str:
    selects = "".join(_select(name, label, (getattr(e, name) for e in entries)) for name, label in CHOICES.items())
    return f'<form class="claims-filter atlas-filter" hidden>{selects}{cells.FILTER_WORDS}</form>'


def _select(name: str, label: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in sorted(set(values)))
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _row(entry: AtlasEntry) -> str:
    data_values = {name: getattr(entry, name) for name in CHOICES}
    data_values |= {name: f"{error:.8f}" for name, error in _errors(entry).items()}
    data = "".join(f' data-{name}="{escape(value)}"' for name, value in data_values.items())
    about = f"{entry.date}; {entry.processor}; {entry.build}"
    note = "disturbed on purpose" if entry.disturbed else ""
    row = [
        _cell(entry.machine, entry.record, note, title=about),
        _cell(
            f"{entry.model}, {entry.type}",
            f"{entry.device}; {entry.settings}",
            f"{entry.n_prompt} token{'s' if entry.n_prompt != 1 else ''} of prompt, {entry.n_gen} generated",
        ),
        _memory(entry),
        *(_rate(entry, phase) for phase in ("prefill", "decode")),
    ]
    return f"<tr{data}>{_named(HEADINGS, row)}</tr>"


def _errors(entry: AtlasEntry) -> dict[str, float]:
    """Errors by quantity; none for an entry that was disturbed on purpose."""
    errors = {"memory": entry.memory.error if entry.memory else None}
    errors |= {phase: rate.error for phase in ("prefill", "decode") if (rate := entry.checked(phase))}
    return {} if entry.disturbed else {name: error for name, error in errors.items() if error is not None}


def _memory(entry: AtlasEntry) -> str:
    if entry.memory is None:
        return _cell("not recorded")
    memory = entry.memory
    if memory.predicted is not None and memory.error is not None:
        prediction = f"predicted {bytes_text(memory.predicted)}, {_signed(memory.error, 1)}"
    elif memory.least is not None and memory.most is not None:
        prediction = f"predicted {bytes_text(memory.least)} to {bytes_text(memory.most)}"
    else:
        prediction = "not predicted"
    return _cell(bytes_text(memory.measured), prediction, title=entry.why)


def _rate(entry: AtlasEntry, phase: str) -> str:
    if phase not in entry.rates:
        return _cell("not timed")
    measured, checked = entry.rates[phase]
    prediction = f"predicted {number_text(checked.predicted)}, {_signed(checked.error)}" if checked else "not predicted"
    outside = "" if checked is None or checked.inside else "outside its band"
    return _cell(number_text(measured), prediction, outside, title=entry.why)


def _signed(error: float, digits: int = 0) -> str:
    """`+3 %`; an error that rounds to 0 has no sign."""
    text = f"{100 * error:+.{digits}f} %"
    return text if text.strip("+-0. %") else text[1:]


def _cell(first: str, *more: str, title: str = "") -> str:
    lines = "".join(f"<small>{escape(line)}</small>" for line in more if line)
    hint = f' title="{escape(title)}"' if title else ""
    return f"<td{hint}>{escape(first)}{lines}</td>"


def _named(headings: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row; each names its column, which a narrow screen shows in front of it."""
    named = zip(headings, row, strict=True)
    return "".join(cell.replace("<td", f'<td data-head="{heading}"', 1) for heading, cell in named)


def setup(app: Any) -> None:
    """Load the script of the filters on pages with such a table."""
    from handbook.directives import load_script, tables

    load_script(app, "atlas.js", lambda doctree: tables.has_raw(doctree, 'class="atlas"'))
