"""Rates that others published, by what ran where: of each card with a model a decode, a prompt and a deep decode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferlab.model.catalog import known_models
from inferlab.prediction.card_rates import USUAL
from inferlab.prediction.cards import known_cards
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, n_sources, sources
from inferlab.settings import Settings

USUAL_TOKENS = {DECODE: 128, PROMPT: 512}
"""What llama-bench measures by default."""


@dataclass(frozen=True)
class PublicGroup:
    """Rows of one card, backend, model and type with the same part in RAM; there is at least one."""

    rows: tuple[PublicRate, ...]

    @property
    def card(self) -> str:
        return known_cards()[self.rows[0].card].title

    @property
    def backend(self) -> str:
        """As the source names it; the card's usual one where it does not, with a word that says so."""
        row = self.rows[0]
        return row.backend or f"{USUAL[known_cards()[row.card].backend]}, likely"

    @property
    def model(self) -> str:
        return known_models().titles[self.rows[0].model]

    @property
    def type(self) -> str:
        return self.rows[0].type

    @property
    def in_ram(self) -> str:
        """What lies in RAM, in words; "" where nothing does."""
        return self.rows[0].in_ram_text

    @property
    def decode(self) -> PublicRate | None:
        return self._usual(DECODE)

    @property
    def prompt(self) -> PublicRate | None:
        return self._usual(PROMPT)

    @property
    def deepest(self) -> PublicRate | None:
        """The decode with most tokens before it, of several as `decode`; None where none lies deeper than that."""
        usual = self.decode
        deeper = [row for row in self._of(DECODE) if usual and row.depth > usual.depth]
        return min(deeper, key=lambda row: (-row.depth, *_by_settings(row)), default=None)

    @property
    def repositories(self) -> tuple[str, ...]:
        """Whose the rows are, each repository once."""
        return tuple(sorted({sources()[row.source].repository for row in self.rows}))

    def _usual(self, phase: str) -> PublicRate | None:
        """The row with the fewest tokens before it, nearest to USUAL_TOKENS, with usual settings, the newest."""

        def far(row: PublicRate) -> tuple[float, ...]:
            return row.depth, abs(row.n_tokens - USUAL_TOKENS[phase]), *_by_settings(row)

        return min(self._of(phase), key=far, default=None)

    def _of(self, phase: str) -> list[PublicRate]:
        return [row for row in self.rows if row.phase == phase]


def _by_settings(row: PublicRate) -> tuple[float, float]:
    """Usual settings first, then the newest."""
    n_ubatch = Settings.n_ubatch if row.phase == DECODE else row.n_ubatch
    usual = Settings.type_k, Settings.type_v, Settings.n_ubatch
    return (row.type_k, row.type_v, n_ubatch) != usual or row.flash_attn is False, -row.year


def groups(rows: Iterable[PublicRate]) -> list[PublicGroup]:
    """Every row in its group, by card in the order of the list, then by model and type."""
    several: dict[tuple[str, ...], list[PublicRate]] = defaultdict(list)
    for row in rows:
        several[row.card, row.model, row.type, row.backend, row.in_ram_text].append(row)
    order = {name: number for number, name in enumerate(known_cards())}
    return [PublicGroup(tuple(several[key])) for key in sorted(several, key=lambda key: (order[key[0]], key[1:]))]


def numbers(grouped: Sequence[PublicGroup]) -> dict[str, int]:
    """The numbers of the page about published rates."""
    rows = [row for group in grouped for row in group.rows]
    return {
        "n_public": len(rows),
        "n_public_cards": len({row.card for row in rows}),
        "n_public_repositories": n_sources(rows),
    }
