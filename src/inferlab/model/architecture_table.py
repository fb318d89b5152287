"""What is known of llama.cpp's architectures, from data/facts/architectures.toml: cache, windows, states, splits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlab.facts import read_table

FULL, LATENT, STATE, COMPRESSED, NONE = "full", "latent", "state", "compressed", "none"
EVERY_LAYER, WITHOUT_HEADS, BESIDE_ATTENTION = "every layer", "layers without KV heads", "beside attention"
BUT_EVERY_NTH, WITHOUT_BOTH = "all but every n-th", "layers without KV heads and feed-forward"
MAMBA, MAMBA2, RWKV, SHORT_CONVOLUTION, DELTA, LINEAR = "mamba", "mamba2", "rwkv", "shortconv", "kda", "linear"
LISTED, AFTER_DENSE = "layers of the list", "after the dense layers"


@dataclass(frozen=True)
class Architecture:
    """One architecture, with the fields that the table's head explains; the defaults are those of an unknown one."""

    source: str = ""
    cache: str = ""
    latent: bool = False
    window_every: int | None = None
    window_after_full: bool = False
    window_pattern: bool = False
    window_optional: bool = False
    assumed_window: int | None = None
    fixed_window: int | None = None
    windows_if_n_layer: int | None = None
    layers_with_cache: int | None = None
    shares_cache: bool = False
    state: str = ""
    attention_every: int | None = None
    mixer: str = ""
    indexer: str = ""
    nextn_cache: bool = False
    loops: bool = False
    tensor_split: bool = True

    @property
    def is_known(self) -> bool:
        """Whether its cache has a formula."""
        return bool(self.cache)

    @property
    def is_latent(self) -> bool:
        """Whether a file that splits keys and values (`attention.key_length_mla`) has a cache of keys alone."""
        return self.latent or self.cache == LATENT

    @property
    def may_have_windows(self) -> bool:
        """Whether layers can have a sliding window."""
        return self.window_every is not None or self.window_pattern


@cache
def architectures() -> dict[str, Architecture]:
    """Every architecture of the table, by llama.cpp's name."""
    return {name: Architecture(**entry) for name, entry in read_table("architectures").items()}


def architecture(name: str | None) -> Architecture:
    """One architecture by name; one of which nothing is known for any other name."""
    return architectures().get(name or "", Architecture())
