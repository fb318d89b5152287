"""How many drafted tokens are accepted, by their position in the draft and by the kind of text; greedy decode.

The embedded model answers pieces of three texts: prose that its training never saw, the same prose with its beginning
repeated at the end of the prompt, and source code. Position 1 is the first drafted token. A token is *tried* if every
token before it in its draft was accepted; only then does its own acceptance say something about the drafter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab import progress as progress_module
from inferlab import statistics, units
from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.queued import queued
from inferlab.measurement.same_answer import n_same, pieces
from inferlab.model.find import find_model, held_out_text
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings
from inferlab.shown import Shown
from studies.speculation.speculative import Drafter, DraftModel, PromptLookup, Round, answers_in_turn

PROSE, REPEATING, CODE = "prose", "repeating", "code"
SOURCES = (statistics, units, progress_module)
"""Modules of this library, whose text is the code."""
N_AGAIN = 24
"""Tokens of its beginning that a repeating prompt has once more at its end."""


@dataclass(frozen=True)
class DraftedAnswer:
    """One answer, without the drafter and with it; seconds of decode in the engine.

    rounds           passes of the model by the number of tokens proposed for them, from 0
    tried, accepted  drafts in which the token at each position was tried, and in which it was accepted
    n_same           tokens that both answers have in common from the beginning
    n_repeated       tokens of the answer that follow the same four tokens as once before in the same answer
    checks           seconds of the passes by the number of tokens proposed for them; they add up to check_seconds
    """

    rounds: tuple[int, ...]
    tried: tuple[int, ...]
    accepted: tuple[int, ...]
    n_same: int
    n_repeated: int
    plain_seconds: float
    draft_seconds: float
    check_seconds: float
    checks: tuple[float, ...] = ()

    @property
    def n_proposed(self) -> int:
        """Tokens proposed."""
        return sum(n * rounds for n, rounds in enumerate(self.rounds))

    @property
    def speedup(self) -> float:
        """Seconds without the drafter over seconds with it."""
        return self.plain_seconds / (self.draft_seconds + self.check_seconds)


@dataclass(frozen=True)
class AcceptanceCase(Shown):
    """All answers to the prompts of one kind with one drafter."""

    text: str
    drafter: str
    answers: tuple[DraftedAnswer, ...]

    def tried(self, position: int) -> int:
        """Drafts whose token at this position, from 1, was tried."""
        return sum(one.tried[position - 1] for one in self.answers)

    def acceptance(self, position: int) -> float | None:
        """Share of the tried tokens at this position, from 1, that were accepted; None if none was tried."""
        tried = self.tried(position)
        return sum(one.accepted[position - 1] for one in self.answers) / tried if tried else None

    @property
    def pooled(self) -> float | None:
        """Share of all tried tokens that were accepted, the a of a geometric draft; None if none was tried."""
        return pooled_acceptance(self.answers)

    @property
    def accepted_share(self) -> float | None:
        """Accepted tokens over proposed ones, as llama-server's log has it; None if nothing was proposed."""
        proposed = sum(one.n_proposed for one in self.answers)
        return sum(sum(one.accepted) for one in self.answers) / proposed if proposed else None

    @property
    def tokens_per_round(self) -> float:
        """Tokens per pass of the model: the accepted ones and one of its own."""
        rounds = sum(sum(one.rounds) for one in self.answers)
        return (sum(sum(one.accepted) for one in self.answers) + rounds) / rounds

    @property
    def speedups(self) -> tuple[float, ...]:
        """Speed-up of each answer."""
        return tuple(one.speedup for one in self.answers)

    def check_cost(self, n_proposed: int, n_gen: int) -> float | None:
        """Cost of a pass with so many proposals while answers are written, in tokens without a drafter; None without.

        The median over the answers that had such passes.
        """
        having = [one for one in self.answers if one.checks and one.rounds[n_proposed]]
        costs = [one.checks[n_proposed] / one.rounds[n_proposed] / (one.plain_seconds / (n_gen - 1)) for one in having]
        return median(costs) if costs else None

    def draft_cost(self, n_gen: int) -> float:
        """Cost of one proposed token, in tokens without a drafter; 0 if nothing was proposed.

        The median over the answers with a proposal.
        """
        having = [one for one in self.answers if one.n_proposed]
        costs = [one.draft_seconds / one.n_proposed / (one.plain_seconds / (n_gen - 1)) for one in having]
        return median(costs) if costs else 0.0


def pooled_acceptance(answers: Sequence[DraftedAnswer]) -> float | None:
    """Accepted tokens over tried ones of several answers; None if none was tried."""
    tried = sum(sum(one.tried) for one in answers)
    return sum(sum(one.accepted) for one in answers) / tried if tried else None


@dataclass(frozen=True, kw_only=True)
class Acceptance(Measurement):
    """Every drafter on every kind of text."""

    n_draft: int
    n_prompt: int
    n_gen: int
    cases: tuple[AcceptanceCase, ...]

    def of(self, text: str, drafter: str) -> AcceptanceCase:
        """One case. Raises InvalidSettings for one that was not measured."""
        for one in self.cases:
            if (one.text, one.drafter) == (text, drafter):
                return one
        known = ", ".join(f"{one.drafter} on {one.text}" for one in self.cases)
        raise InvalidSettings(f"{drafter!r} on {text!r} was not measured, only: {known}.")


def drafters(n_threads: int | None = None) -> dict[str, Callable[[], Drafter]]:
    """The drafters by name: copies of the embedded model in fewer bits, and prompt lookup."""
    from inferlab.engine.quantize import quantize

    copies = {f"copy in {mix}": _copy(quantize, mix, n_threads) for mix in ("Q4_K_M", "Q2_K")}
    return {**copies, "lookup of 2": lambda: PromptLookup(2), "lookup of 4": lambda: PromptLookup(4)}


def _copy(quantize: Callable[..., Path], mix: str, n_threads: int | None) -> Callable[[], Drafter]:
    return lambda: DraftModel(quantize("tiny", mix), n_threads=n_threads)


def prompts_of(engine: LlamaEngine, n_prompts: int, n_prompt: int) -> dict[str, list[Sequence[int]]]:
    """Prompts of each kind of text, as tokens; `engine` has the vocabulary open."""
    prose = pieces(engine.tokenize(held_out_text()), n_prompts, n_prompt)
    sources = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in SOURCES)
    code = pieces(engine.tokenize(sources), n_prompts, n_prompt)
    return {PROSE: prose, REPEATING: [[*one[: n_prompt - N_AGAIN], *one[:N_AGAIN]] for one in prose], CODE: code}


@queued
def measure_acceptance(
    drafters: Mapping[str, Callable[[], Drafter]],
    model: str | Path | None = None,
    settings: Settings | None = None,
    prompts: Mapping[str, Sequence[Sequence[int]]] | None = None,
    n_draft: int = 8,
    n_gen: int = 64,
    n_prompts: int = 16,
    n_prompt: int = 128,
    engine: LlamaEngine | None = None,
    progress: bool | None = None,
) -> Acceptance:
    """Answer each prompt without a drafter and with it, in turn, and count what was accepted.

    prompts  None: `prompts_of`; else tokens by the kind of text, and n_prompts and n_prompt are not used
    Raises InvalidSettings for a text that is too short, ModelError, EngineRefused or EngineCrashed.
    """
    if min(n_draft, n_gen - 1) < 1:
        raise InvalidSettings("n_draft must be at least 1, and n_gen at least 2: the first token is not drafted.")
    engine, path = engine or default_engine(), find_model(model)
    with engine.exclusive():
        engine.open_vocabulary(path)
        prompts = prompts or prompts_of(engine, n_prompts, n_prompt)
        longest = max(len(one) for some in prompts.values() for one in some)
        opening = engine.open(path, (settings or Settings()).but(n_ctx=padded(longest + n_gen + n_draft)))
        cases = [
            _case(engine, name, make, text, some, n_draft, n_gen)
            for name, make in track(drafters.items(), len(drafters), "drafters", progress)
            for text, some in prompts.items()
        ]
        common = common_fields(engine, opening, read_gguf(path))
    return Acceptance(**common, n_draft=n_draft, n_prompt=longest, n_gen=n_gen, cases=tuple(cases))


def _case(
    engine: LlamaEngine, name: str, make: Callable[[], Drafter], text: str, prompts: Sequence[Sequence[int]],
    n_draft: int, n_gen: int,
) -> AcceptanceCase:  # fmt: skip
    drafter = make()
    try:
        answers_in_turn(engine, drafter, prompts[0], n_draft, 2 * n_draft)  # not counted: the first passes are slow
        answers = tuple(_answer(engine, drafter, prompt, n_draft, n_gen) for prompt in prompts)
    finally:
        drafter.close()
    return AcceptanceCase(text, name, answers)


def _answer(engine: LlamaEngine, drafter: Drafter, prompt: Sequence[int], n_draft: int, n_gen: int) -> DraftedAnswer:
    plain, plain_seconds, drafted, rounds = answers_in_turn(engine, drafter, prompt, n_draft, n_gen)
    tried, accepted = by_position(rounds, n_draft)
    return DraftedAnswer(
        rounds=tuple(sum(one.proposed == n for one in rounds) for n in range(n_draft + 1)),
        tried=tried, accepted=accepted, n_same=n_same(plain, drafted), n_repeated=n_repeated(plain),
        plain_seconds=plain_seconds,
        draft_seconds=sum(one.draft_seconds for one in rounds), check_seconds=sum(one.check_seconds for one in rounds),
        checks=tuple(sum(one.check_seconds for one in rounds if one.proposed == n) for n in range(n_draft + 1)),
    )  # fmt: skip


def by_position(rounds: Sequence[Round], n_draft: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each position of a draft, the rounds in which its token was tried and in which it was accepted.

        tried at k = rounds with proposed >= k and accepted >= k - 1,    accepted at k = rounds with accepted >= k
    """
    positions = range(1, n_draft + 1)
    tried = tuple(sum(one.proposed >= k and one.accepted >= k - 1 for one in rounds) for k in positions)
    return tried, tuple(sum(one.accepted >= k for one in rounds) for k in positions)


def n_repeated(answer: Sequence[int], length: int = 4) -> int:
    """Tokens of an answer that follow the same `length` tokens as once before in it: how much it repeats itself."""
    seen = [tuple(answer[i : i + length + 1]) for i in range(len(answer) - length)]
    return len(seen) - len(set(seen))
