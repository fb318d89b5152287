"""The growth of a server's memory by copies of prompts: as computed, as its log says, and as its process shows."""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Model
from studies.windows_and_states.kept import BEFORE_END, checkpoint_bytes, copy_bytes
from studies.windows_and_states.kept_prompts import NEW, KeptPrompts


@dataclass(frozen=True)
class Growth:
    """What was added between the first and the last of several unrelated prompts.

    n_copies        copies more
    n_tokens        tokens of each
    n_checkpoints   checkpoints in each
    computed_bytes  by `kept.copy_bytes`, with the checkpoints at the two places where the server makes them
    logged_bytes    by the server's log
    rss_bytes       growth of the process; None where the system does not tell
    """

    n_copies: int
    n_tokens: int
    n_checkpoints: int
    computed_bytes: int
    logged_bytes: int
    rss_bytes: int | None


def growth(run: KeptPrompts, model: Model | KnownModel) -> Growth:
    """The growth in a run of unrelated prompts of one length. Raises InvalidSettings for other turns."""
    first, last = run.turns[0], run.turns[-1]
    if len(run.turns) < 2 or {turn.kind for turn in run.turns} != {NEW}:
        raise InvalidSettings(f"Growth needs at least two turns of the kind {NEW!r} and no others. Measure such a run.")
    n_copies = (last.copies or 0) - (first.copies or 0)
    n_tokens, n_checkpoints = last.n_prompt + run.n_gen - 1, len(last.checkpoints)
    places = [last.n_prompt - back for back in (BEFORE_END + run.settings.n_ubatch, BEFORE_END)]
    checkpoints = sum(checkpoint_bytes(model, run.settings, n) for n in places[-n_checkpoints:] if n_checkpoints)
    known = None not in (first.rss_bytes, last.rss_bytes)
    return Growth(
        n_copies,
        n_tokens,
        n_checkpoints,
        n_copies * (copy_bytes(model, run.settings, n_tokens) + checkpoints),
        (last.copies_bytes or 0) - (first.copies_bytes or 0),
        last.rss_bytes - first.rss_bytes if known else None,
    )
