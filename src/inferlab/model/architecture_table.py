"""What is known of llama.cpp's architectures, from data/facts/architectures.toml: cache, states, splits, layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from inferlab.facts import read_table

FULL, LATENT, STATE = "full", "latent", "state"
EVERY_LAYER, WITHOUT_HEADS, BESIDE_ATTENTION = "every layer", "layers without KV heads", "beside attention"
BUT_EVERY_NTH = "all but every n-th"


@dataclass(frozen=True)
class Architecture:
    """One architecture, with the fields that the table's head explains; the defaults are those of an unknown one."""

    cache: str = ""
    window_every: int | None = None
    assumed_window: int | None = None
    state: str = ""
    attention_every: int | None = None
    simple_compute: bool = False
    tensor_split: bool = True
    layout: dict[str, Any] | None = None

    @property
    def is_known(self) -> bool:
        """Whether its cache has a formula."""
        return bool(self.cache or self.window_every)


@cache
def architectures() -> dict[str, Architecture]:
    """Every architecture of the table, by llama.cpp's name."""
    return {name: Architecture(**entry) for name, entry in read_table("architectures").items()}


def architecture(name: str | None) -> Architecture:
    """One architecture by name; one of which nothing is known for any other name."""
    return architectures().get(name or "", Architecture())
