"""What the graph of an architecture does that no tensor of a header tells, from data/facts/graphs.toml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlab.facts import read_table

ATTENTION, FEED_FORWARD = "attention", "feed_forward"


@dataclass(frozen=True)
class Traits:
    """One architecture, with the fields that the table's head explains; the defaults are those of llama's graph."""

    source: str = ""
    layer_norm: bool = False
    post_norms: tuple[str, ...] = ()
    no_ffn_norm: bool = False
    parallel: bool = False
    residual_first: tuple[str, ...] = ()
    residual_last: bool = False
    single: bool = False
    scaled: bool = False
    norm_of_all: bool = False
    values_normed: bool = False
    gated_queries: bool = False
    scales_queries: bool = False
    four_positions: bool = False
    positions_by_sections: bool = False
    positions_first: bool = False
    no_frequencies_in_windows: bool = False
    no_positions: bool = False
    no_positions_every: int = 0
    positions_if_finetuned: bool = False
    positions_in_windows: bool = False
    outputs_last: bool = False
    weights_after: bool = False
    weights_before: bool = False
    weights_normed: bool = False
    weights_normed_by_header: bool = False
    far: bool = False


@cache
def _table() -> dict[str, Traits]:
    return {name: Traits(**entry) for name, entry in read_table("graphs").items()}


def known_traits(architecture: str | None) -> Traits | None:
    """The traits of an architecture whose graph was followed; None for any other."""
    return _table().get(architecture or "")
