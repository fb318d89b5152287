"""Makes the tables of the hardware atlas: every measurement beside its prediction, and published rates; with filters.

The long tables are folded. Without JavaScript the whole table is in its fold and the filters are hidden. Texts of
records are escaped, because anybody may contribute a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from handbook import cells
from inferlab.atlas import campaign
from inferlab.atlas.entries import AtlasEntry, RecordFile, errors_by, gpu_names, typical
from inferlab.engine.session import this_machine
from inferlab.machine import Machine
from inferlab.results.public_rates import PROMPT, PublicRate
from inferlab.settings import Settings
from inferlab.units import bytes_text, number_text
from studies.hardware_atlas.public_groups import PublicGroup

FILE_HEADINGS = ("Machine", "Record", "Kind", "Measurements", "Made")
CHOICES = {"machine": "Machine", "model": "Model", "type": "Type of weights", "device": "Device"}
PUBLIC_CHOICES: dict[str, tuple[str, Callable[[PublicGroup], tuple[str, ...]]]] = {
    "card": ("Card", lambda group: (group.card,)),
    "model": ("Model", lambda group: (group.model,)),
    "backend": ("Backend", lambda group: (group.backend,)),
    "weights": ("Weights", lambda group: ("part in RAM" if group.in_ram else "whole on the card",)),
    "measured": ("Measured", lambda group: _measured(group)),
}
"""Field -> its label, and the values that a line has of it. `memory`, `prefill` and `decode` are errors there."""
PUBLIC_HEADINGS = (
    "Card, backend",
    "Model",
    "Decode, tokens/s",
    "Prefill, tokens/s",
    "Deep, tokens/s",
    "Results, whose",
)
PUBLIC_CAPTION = "Measured and published by others, repeated by nobody here. Each rate leads to where it was read."
HEADINGS = ("Machine, record", "What ran where", "Memory", "Prefill, tokens/s", "Decode, tokens/s")


def table(entries: Sequence[AtlasEntry]) -> Any:
    """Every entry as a row, below filters by machine, model, type and device, in a fold."""
    from IPython.display import HTML

    rows = _scrolling_table("All measurements", HEADINGS, map(_row, entries))
    values = {label: (name, [getattr(entry, name) for entry in entries]) for name, label in CHOICES.items()}
    form = _form("measurements", values)
    return HTML(_folded(f"All {len(entries)} measurements beside their predictions", form + rows))


def public_table(groups: Sequence[PublicGroup]) -> Any:
    """Rates that others published, a line for each group, below filters, in a fold; each rate links to its source."""
    from IPython.display import HTML

    rows = _scrolling_table("Published rates", PUBLIC_HEADINGS, map(_public_row, groups), PUBLIC_CAPTION)
    values = {
        label: (name, [value for group in groups for value in of(group)])
        for name, (label, of) in PUBLIC_CHOICES.items()
    }
    n_rows = sum(len(group.rows) for group in groups)
    summary = f"{n_rows:,} rates that others published, of {len(groups)} combinations of card and model"
    return HTML(_folded(summary, _form("combinations", values, "public-filter") + rows))


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


def _scrolling_table(name: str, headings: Sequence[str], rows: Iterable[str], caption: str = "") -> str:
    """A table that scrolls within its own frame, by keyboard too."""
    told = f"<caption>{caption}</caption>" if caption else ""
    heads = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    table = f'<table class="atlas">{told}<thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
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
        "**No GPU is among them yet.** Every record was measured on processors. A device in a record is a loopback "
        "device: a second process, which shares the processor's memory. No record says how fast a GPU is."
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


def _form(noun: str, values: Mapping[str, tuple[str, Iterable[str]]], more: str = "") -> str:
    """The choices above a table of so many of `noun`: label -> the field of the rows, and its values."""
    selects = "".join(_select(name, label, several) for label, (name, several) in values.items())
    classes = f"claims-filter atlas-filter {more}".strip()
    return f'<form class="{classes}" data-noun="{noun}" hidden>{selects}{cells.FILTER_WORDS}</form>'


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


def _public_row(group: PublicGroup) -> str:
    data_values = {name: "|".join(of(group)) for name, (_, of) in PUBLIC_CHOICES.items()}
    data = "".join(f' data-{name}="{escape(value)}"' for name, value in data_values.items())
    row = [
        _cell(group.card, group.backend),
        _cell(f"{group.model}, {group.type}", group.in_ram),
        *(_public_rate(rate) for rate in (group.decode, group.prompt, group.deepest)),
        _cell(str(len(group.rows)), *group.repositories),
    ]
    return f'<tr{data} data-results="{len(group.rows)}">{_named(PUBLIC_HEADINGS, row)}</tr>'


def _measured(group: PublicGroup) -> tuple[str, ...]:
    """Which rates a line has."""
    rates = {"decode": group.decode, "prefill": group.prompt, "deep decode": group.deepest}
    return tuple(name for name, rate in rates.items() if rate)


def _public_rate(row: PublicRate | None) -> str:
    """A rate with a link to where it was read, its test and its settings; the build and the machine as a hint."""
    if row is None:
        return _cell("none")
    about = "; ".join(filter(None, (row.build and f"build {row.build}", row.date, row.host)))
    return _cell(number_text(row.rate), row.test, _settings_text(row), title=about, link=row.address)


def _settings_text(row: PublicRate) -> str:
    """What a source names beside llama.cpp's defaults: flash attention off, types of the cache, a prompt's ubatch."""
    types = dict.fromkeys((row.type_k, row.type_v))
    named = {
        "flash_attn off": row.flash_attn is False,
        f"cache {' and '.join(types)}": [*types] != [Settings.type_k],
        f"n_ubatch {row.n_ubatch}": row.phase == PROMPT and row.n_ubatch != Settings.n_ubatch,
    }
    return ", ".join(text for text, is_named in named.items() if is_named)


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


def _cell(first: str, *more: str, title: str = "", link: str = "") -> str:
    lines = "".join(f"<small>{escape(line)}</small>" for line in more if line)
    hint = f' title="{escape(title)}"' if title else ""
    text = f'<a href="{escape(link)}">{escape(first)}</a>' if link else escape(first)
    return f"<td{hint}>{text}{lines}</td>"


def _named(headings: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row; each names its column, which a narrow screen shows in front of it."""
    named = zip(headings, row, strict=True)
    return "".join(cell.replace("<td", f'<td data-head="{heading}"', 1) for heading, cell in named)


def setup(app: Any) -> None:
    """Load the script of the filters on pages with such a table."""
    from handbook.directives import load_script, tables

    load_script(app, "atlas.js", lambda doctree: tables.has_raw(doctree, 'class="atlas"'))
