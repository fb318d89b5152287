"""Models for a coding agent on the usual cards: context, expected rates, and the bytes that the server keeps of it.

The choices are those of the purposes "code" and "experts in RAM", both with 32,768 tokens. What is kept in RAM is
computed by `copy_bytes` and `checkpoint_bytes` of the study `windows_and_states`, which the page passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.free_memory import PROMPT_CACHE_BYTES
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.prediction.place import DEFAULT_RAM_BYTES
from inferlab.settings import Settings
from inferlab.units import GIB, MIB
from studies.which_model.study import Choice

N_CTX = 32_768
"""Tokens of context that the page plans for; both purposes have it."""
MACHINES = {
    "rtx-4060": "8 GB: RTX 4060",
    "rtx-3060": "12 GB: RTX 3060",
    "rtx-5060-ti-16gb": "16 GB: RTX 5060 Ti",
    "rtx-3090": "24 GB: RTX 3090",
    "apple-m4-max-40:64": "64 GB, shared: M4 Max",
}
"""Machine -> what the table calls it."""
DEFAULT_CHECKPOINTS = 32
"""-ctxcp of llama-server, common/common.h:631."""
FEW_CHECKPOINTS = 8
"""What the page sets instead."""
PLAIN = "llama-3.1-8b"
"""A model whose layers all have attention without a window."""
CacheBytes = Callable[[Model, Settings, int], int]
Table = tuple[Sequence[str], list[Sequence[str]]]


@dataclass(frozen=True)
class Kept:
    """What the server keeps of a conversation in RAM.

    copy        bytes of a copy of n tokens, without checkpoints
    checkpoint  bytes of one checkpoint after n tokens; 0 where the model needs none
    """

    copy: CacheBytes
    checkpoint: CacheBytes

    def all_bytes(self, one: Choice, n_checkpoints: int) -> int:
        """Bytes of the copy of a conversation that fills the context, with its checkpoints."""
        model, settings = one.candidate.model, one.settings
        return self.copy(model, settings, N_CTX) + n_checkpoints * self.checkpoint(model, settings, N_CTX)

    def exceeds(self, one: Choice) -> bool:
        """Whether a copy with all checkpoints is larger than what the server keeps by default."""
        return self.all_bytes(one, DEFAULT_CHECKPOINTS) > PROMPT_CACHE_BYTES

    def text(self, one: Choice) -> str:
        """GiB of a copy that fills the context, and the MiB of each checkpoint."""
        checkpoint = self.checkpoint(one.candidate.model, one.settings, N_CTX) / MIB
        return f"{self.all_bytes(one, 0) / GIB:.1f} GiB" + (f" + {checkpoint:.0f} MiB each" if checkpoint else "")


HEADS = ("memory", "model", "context", "tokens/s", "32,768 tokens read", "copy + checkpoints")


def table(choices: Sequence[tuple[str, Choice | None]], kept: Kept) -> Table:
    """A row for each machine and choice; a machine's name stands in its first row."""
    rows: list[Sequence[str]] = []
    told: set[str] = set()
    for machine, one in choices:
        if one is not None:
            rows.append(("" if machine in told else MACHINES[machine], *_cells(one, kept)))
            told.add(machine)
    return HEADS, rows


def _cells(one: Choice, kept: Kept) -> tuple[str, ...]:
    """Cells of the table after the machine: link, weights and rates are those of the page *Which model*."""
    link, _, context, rates, prompt = one.cells
    experts = f", experts of {one.settings.n_cpu_moe} layers in RAM" if one.settings.n_cpu_moe else ""
    return link.replace('"planner.html', '"../planner.html') + experts, context, rates, prompt, kept.text(one)


@dataclass(frozen=True)
class Lines:
    """The lines for llama-server below the table, one for each choice; few checkpoints where all are too large."""

    choices: Sequence[tuple[str, Choice | None]]
    kept: Kept

    def _repr_markdown_(self) -> str:
        """As the last line of a page's cell."""
        told = (
            f"# {MACHINES[machine]}, {one.candidate.known.name}\n{self._line(one)}"
            for machine, one in self.choices
            if one
        )
        return "```sh\n" + "\n".join(told) + "\n```"

    def _line(self, one: Choice) -> str:
        return f"{one.line} --metrics" + (f" -ctxcp {FEW_CHECKPOINTS}" if self.kept.exceeds(one) else "")


def numbers(chosen: Sequence[tuple[str, Choice | None]], kept: Kept) -> dict[str, str | int | float]:
    """What *In short* says of the first choice, and what the server's defaults hold.

    over       the models whose copy of a full context is larger than the default limit, with all checkpoints
    over_gib   the largest of these copies, few_gib the same with few checkpoints
    """
    choices = [one for _, one in chosen if one]
    expected, plain = choices[0].rates.expected, shape(PLAIN, "Q4_K_M")
    if expected is None:
        raise ValueError(f"{choices[0].candidate.known.name} has no expected rate on the smallest card")
    over = {one.candidate.known.name: one for one in choices if kept.exceeds(one)}
    most = {
        n: max((kept.all_bytes(one, n) for one in over.values()), default=0) / GIB
        for n in (FEW_CHECKPOINTS, DEFAULT_CHECKPOINTS)
    }
    return {
        **{"plan_ctx": N_CTX, "all_checkpoints": DEFAULT_CHECKPOINTS},
        "small_model": choices[0].candidate.known.name,
        **{"read_least": N_CTX / expected.prompt.high, "read_most": N_CTX / expected.prompt.low},
        "cram_gib": PROMPT_CACHE_BYTES / GIB,
        "plain_tokens": PROMPT_CACHE_BYTES // kv_cache_bytes_per_token(plain),
        "over": " and ".join(over) or "no model of the table",
        "over_gib": most[DEFAULT_CHECKPOINTS],
        "few_gib": most[FEW_CHECKPOINTS],
        "ram_gib": DEFAULT_RAM_BYTES / GIB,
    }
