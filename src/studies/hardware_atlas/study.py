"""Errors of the plans of memory and speed over all records, and requests that were measured more than once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from inferlab.atlas.entries import PHASES, AtlasEntry, RecordFile, memory_errors, typical
from inferlab.machine import Machine
from inferlab.prediction import validation
from inferlab.units import MIB

PRINTED = 0.01 * MIB
"""What llama.cpp's log rounds a buffer to."""
MOST_BUFFERS = 4
"""Of a device: their roundings add up."""


def badge(known: Mapping[str, Machine]) -> str:
    """The origin of the figure of rates."""
    return (
        f"recorded: {', '.join(known)}; predicted anew when this page was built, "
        "rates from the calibration beside each record"
    )


def numbers(entries: Sequence[AtlasEntry], files: Sequence[RecordFile]) -> dict[str, float | str]:
    """The numbers of the page."""
    undisturbed = [entry for entry in entries if not entry.disturbed]
    return {
        "n_measurements": len(entries),
        "n_files": len(files),
        **_memory_numbers(undisturbed),
        **_rate_numbers(undisturbed),
        **_repeated_numbers(undisturbed),
    }


def _memory_numbers(undisturbed: Sequence[AtlasEntry]) -> dict[str, float | str]:
    """Bytes planned and logged, where both are known."""
    both = [entry.memory for entry in undisturbed if entry.memory]
    exact, errors = [memory for memory in both if memory.predicted is not None], memory_errors(undisturbed)
    as_printed = sum(abs(memory.predicted - memory.measured) <= MOST_BUFFERS * PRINTED for memory in exact)
    more = len(exact) - as_printed
    return {
        "n_memory": len(exact),
        "n_as_printed": as_printed,
        "n_ranges": sum(memory.predicted is None and memory.least is not None for memory in both),
        "memory_percent": 100 * typical(errors),
        "memory_worst": 100 * max(map(abs, errors)),
        "memory_rest": f"{more} differ by more; the table says by how much"
        if more
        else "No measurement differs by more",
    }


def _rate_numbers(undisturbed: Sequence[AtlasEntry]) -> dict[str, float | str]:
    """Errors of each phase's rate, and how many lie inside the band of their prediction."""
    values: dict[str, float | str] = {}
    for phase in PHASES:
        checked = list(filter(None, (entry.checked(phase) for entry in undisturbed)))
        values |= {
            f"{phase}_percent": 100 * validation.median_error(checked),
            f"{phase}_inside": 100 * validation.share_inside(checked),
            f"{phase}_count": len(checked),
            f"{phase}_worst": 100 * max(abs(rate.error) for rate in checked),
        }
    return values


def repeated(undisturbed: Iterable[AtlasEntry]) -> list[list[AtlasEntry]]:
    """Entries of one request that were measured more than once, with the same plan of memory."""
    alike: dict[tuple, list[AtlasEntry]] = defaultdict(list)
    for entry in undisturbed:
        if entry.memory:
            model = entry.model, entry.type
            alike[model, entry.device, entry.settings, entry.n_prompt, entry.memory.predicted].append(entry)
    return [several for several in alike.values() if len(several) > 1]


def _repeated_numbers(undisturbed: Iterable[AtlasEntry]) -> dict[str, float | str]:
    twice = repeated(undisturbed)
    rates = [[entry.rates["decode"][0] for entry in several if "decode" in entry.rates] for several in twice]
    apart = [max(each) / min(each) - 1 for each, several in zip(rates, twice, strict=True) if len(each) == len(several)]
    return {
        "n_twice": len(twice),
        "n_same": sum(len({entry.memory.measured for entry in several}) == 1 for several in twice),
        "apart": f"by up to {100 * max(apart):.0f} %" if apart else "by an amount that no record shows",
    }
