"""Speculation in llama-server: its types, and flags that it would ignore or that would end it.

The types lie in data/facts/speculation.toml, with what was read and where; a test compares their names with those of
the compiled program.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache

from inferlab.errors import InvalidSettings
from inferlab.facts import read_table
from inferlab.options.lines.base import on_hub

NONE = "none"
N_MAX, N_MIN, P_MIN = 3, 0, 0.0
"""Defaults of --spec-draft-n-max, -n-min and -p-min (common/common.h:328)."""
SIZES = {
    "ngram-simple": (12, 48),
    "ngram-map-k": (12, 48),
    "ngram-map-k4v": (12, 48),
    "ngram-mod": (24, 64),
}
"""Type -> tokens that are looked up, and tokens that are drafted at most (common/common.h:354, 361)."""
SIZE_FLAGS = {"ngram-mod": ("n-match", "n-max")}
LARGEST = 1024
IN_THE_MODEL = "draft-mtp"
"""The one draft type whose layers may be in the model's own file."""


@dataclass(frozen=True)
class SpeculationType:
    """One type in words; `at` names files and lines of llama.cpp's folder common/."""

    name: str
    needs: str
    proposes: str
    excludes: str
    defaults: str
    at: tuple[str, ...]
    source: str
    date: str

    @property
    def needs_a_model(self) -> bool:
        """Whether a model drafts, and not a look-up in the text."""
        return self.name.startswith("draft-")


@cache
def speculation_types() -> dict[str, SpeculationType]:
    """The types by name, in the order in which llama-server asks them."""
    return {
        name: SpeculationType(name, **{**entry, "at": tuple(entry["at"])})
        for name, entry in read_table("speculation").items()
    }


@dataclass(frozen=True)
class Speculative:
    """What llama-server is to draft with.

    types               names of --spec-type, comma-separated there; for each draft llama-server asks one after another
    draft_model         path of a second model, or its address on the Hub, or None
    n_max, n_min        tokens that a model drafts at most; a shorter draft than n_min is thrown away
    p_min               a draft of a model ends before a token that it gives a smaller probability
    size_n, size_m      tokens that the n-gram types look up, and tokens that they draft at most; None: their defaults

    Raises InvalidSettings for what llama-server would ignore without an error, and for what would end it.
    """

    types: tuple[str, ...]
    draft_model: str | None = None
    n_max: int = N_MAX
    n_min: int = N_MIN
    p_min: float = P_MIN
    size_n: int | None = None
    size_m: int | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_model()
        self._check_draft()
        self._check_sizes()

    def _check_types(self) -> None:
        unknown = [name for name in self.types if name not in (*speculation_types(), NONE)]
        if unknown or not self.types:
            said = f"There is no type {unknown[0]!r} of speculation" if unknown else "No type of speculation was given"
            raise InvalidSettings(f"{said}. llama-server would not start. There are: {', '.join(speculation_types())}.")
        if NONE in self.types and len(self.types) > 1:
            raise InvalidSettings(
                f"{','.join(self.types)} contains {NONE!r}. llama-server would drop the other types without a word "
                f"(speculative.cpp:2250). Leave {NONE!r} out."
            )

    def _check_model(self) -> None:
        drafting = [name for name in self.types if name.startswith("draft-")]
        missing = [name for name in drafting if name != IN_THE_MODEL]
        if missing and not self.draft_model:
            silently = "start without any speculation, n-gram types included, and log one error"
            if "draft-simple" not in missing:
                silently = "leave this type out without a word"
            raise InvalidSettings(
                f"{missing[0]} has no draft model. llama-server would {silently} (speculative.cpp:198, 2623). "
                "Give a second model (-md), or an n-gram type."
            )
        if self.draft_model and not drafting:
            raise InvalidSettings(
                f"{self.draft_model} was given as draft model, but no type that uses it. llama-server would load it, "
                "free it, and draft nothing with it (server-context.cpp:1255). Add draft-simple to the types."
            )

    def _check_draft(self) -> None:
        given = (self.n_max, self.n_min, self.p_min) != (N_MAX, N_MIN, P_MIN)
        if given and not any(name.startswith("draft-") for name in self.types):
            raise InvalidSettings(
                f"{','.join(self.types)} does not use n_max, n_min or p_min: llama-server would ignore them, as the "
                "length of these drafts is size_m (speculative.cpp:2327). Set size_m."
            )
        if self.n_max < 1:
            raise InvalidSettings(
                f"n_max={self.n_max} drafts nothing. With 0 and a draft model, llama-server ends at the first answer "
                "(llama-context.cpp:2273). Give at least 1, or leave the type out."
            )
        if not 0 <= self.n_min <= self.n_max:
            raise InvalidSettings(
                f"n_min={self.n_min} is not between 0 and n_max={self.n_max}. Above n_max, llama-server would compute "
                "every draft and throw it away (speculative.cpp:409). Give a smaller n_min."
            )
        if not 0 <= self.p_min < 1:
            raise InvalidSettings(
                f"p_min={self.p_min:g} is not a probability from 0 to below 1. llama-server would compute every draft "
                "and throw away what is less likely (speculative.cpp:366). Give for example 0.6."
            )

    def _check_sizes(self) -> None:
        sizes = [size for size in (self.size_n, self.size_m) if size is not None]
        if any(not 1 <= size <= LARGEST for size in sizes):
            raise InvalidSettings(f"{sizes} are not sizes from 1 to {LARGEST}. llama-server would not start.")
        size_n, size_m = self._sizes("ngram-simple")
        if "ngram-simple" in self.types and size_m < size_n:
            raise InvalidSettings(
                f"ngram-simple with size_m={size_m} below size_n={size_n} never drafts: llama-server drops drafts "
                "that are shorter than what was looked up (ngram-map.cpp:100). Give size_m of at least size_n."
            )

    def _sizes(self, name: str) -> tuple[int, int]:
        size_n, size_m = SIZES[name]
        return self.size_n or size_n, self.size_m or size_m

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of llama-server; defaults are left out."""
        found = on_hub(self.draft_model) if self.draft_model else None
        of_hub = ("-hfd", found.repo, "-md", found.file) if found else None  # common/arg.cpp:3976, 4241
        model = of_hub or (("-md", self.draft_model) if self.draft_model else ())
        drafts = {"n-max": (self.n_max, N_MAX), "n-min": (self.n_min, N_MIN), "p-min": (self.p_min, P_MIN)}
        given = [(f"--spec-draft-{name}", f"{value:g}") for name, (value, usual) in drafts.items() if value != usual]
        return (*model, "--spec-type", ",".join(self.types), *(part for flag in given for part in flag), *self._sized())

    def _sized(self) -> tuple[str, ...]:
        flags_and_sizes: list[str] = []
        for name in (type for type in self.types if type in SIZES):
            flags = SIZE_FLAGS.get(name, ("size-n", "size-m"))
            for flag, size in zip(flags, (self.size_n, self.size_m), strict=True):
                flags_and_sizes += [f"--spec-{name}-{flag}", str(size)] if size is not None else []
        return tuple(flags_and_sizes)

    @property
    def line(self) -> str:
        """The flags as one types them."""
        return shlex.join(self.flags)
