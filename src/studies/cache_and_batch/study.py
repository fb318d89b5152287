"""Steps of a batch by kernel, hidden cells of a pool, slots that wait or not, and a beginning that is read once.

Steps by kernel and hidden cells are recorded; batches, slots and prefixes are a page's own run and arguments here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from inferlab.measurement.batching import BatchedDecode
from inferlab.measurement.depth import DepthScaling
from inferlab.records import load_all
from studies.cache_and_batch.continuous_batching import Schedule
from studies.cache_and_batch.prefix_cache import PrefixReuse

SIZES = (1, 4, 7, 8, 15, 16)
"""Conversations of the page's tables of kernels."""

Rows = tuple[Sequence[str], Sequence[Sequence[str | float]]]


def by_kernel() -> dict[str, BatchedDecode]:
    """Steps of batches with weights repacked, and as in the file; recorded on two EPYC cores."""
    repacked, as_in_file = load_all("epyc-2c/steps-by-kernel", BatchedDecode)
    return {"repacked (default)": repacked, "as in the file (--no-repack)": as_in_file}


def masked() -> dict[str, DepthScaling]:
    """By flash_attn: tokens of one sequence alone in a pool, and beside the cells of another; two EPYC cores."""
    return {depths.settings.flash_attn: depths for depths in load_all("epyc-2c/masked-cells", DepthScaling)}


def numbers() -> dict[str, float | str]:
    """The recorded numbers of the page *Advanced techniques*."""
    values: dict[str, float | str] = {"masked_badge": masked()["on"].machine.cpu}
    for key, batched in zip(("rp", "file"), by_kernel().values(), strict=True):
        values[f"{key}_worth"] = worth_text(batched)
        for n in SIZES:
            point = batched.at(n)
            values |= {f"{key}_{n}": 1000 * point.median_seconds, f"{key}_sum_{n}": point.tokens_per_second}
            values[f"{key}_gain_{n}"] = batched.gain(n)
    for switch, depths in masked().items():
        for where, cells in zip(("alone", "beside"), depths.seconds, strict=True):
            values[f"{where}_{switch}"] = 1000 * depths.median_seconds(cells)
    return values


def worth_text(batched: BatchedDecode) -> str:
    """The numbers of conversations that no smaller number beats in tokens per second."""
    rates = [(point.n_sequences, point.tokens_per_second) for point in batched.points]
    *most, last = [str(n) for n, rate in rates[1:] if all(rate > other for m, other in rates if m < n)]
    return f"{', '.join(most)} and {last}"


def batch_numbers(batched: BatchedDecode) -> dict[str, float]:
    """A step for one, four and sixteen conversations, and the tokens per second of all and of each."""
    values = {"gain_4": batched.gain(4)}
    for n in (1, 4, 16):
        point = batched.at(n)
        values |= {
            f"step_{n}": 1000 * point.median_seconds,
            f"each_{n}": point.each_tokens_per_second,
            f"sum_{n}": point.tokens_per_second,
        }
    return values


def slot_numbers(ways: Mapping[str, Schedule]) -> dict[str, float]:
    """Static and continuous batching of the same requests: time, steps, and how busy the slots were."""
    static, continuous = ways["static"], ways["continuous"]
    values = {
        "slots_factor": static.seconds / continuous.seconds,
        "slots_steps_factor": len(static.running) / len(continuous.running),
    }
    for name, served in ways.items():
        values |= {
            f"{name}_seconds": served.seconds,
            f"{name}_busy": 100 * served.busy_share,
            f"{name}_steps": len(served.running),
            f"{name}_ms": 1000 * served.seconds / len(served.running),
        }
    return values


def steps_table(ways: Mapping[str, Schedule]) -> Rows:
    """Heads and rows: steps of each way, and how busy its slots were."""
    rows = [(name, len(served.running), f"{100 * served.busy_share:.0f} %") for name, served in ways.items()]
    return ("batching", "steps", "slots busy"), rows


def prefix_numbers(reuse: PrefixReuse) -> dict[str, float]:
    """What the longest shared beginning saved, and how often the first token was the same."""
    longest, same = reuse.prefixes[-1], [pick for prefix in reuse.prefixes for pick in prefix.same_picks]
    return {
        "prefix_gain": longest.gain,
        "prefix_whole": 1000 * median(longest.whole_seconds),
        "prefix_reused": 1000 * median(longest.reused_seconds),
        "prefix_bound": 1 / longest.read_share,
        "prefix_share_us": 1e6 * median(longest.share_seconds),
        "prefix_same": sum(same),
        "prefix_all": len(same),
    }
