"""The requests of a coding agent as parts with a name and a length: our own, of realistic sizes, at any scale.

A long stable beginning (system prompt and tool definitions), a main conversation of 20 turns, and side requests.
The answers in the history are the server's own; a template drops their reasoning once the user writes again, as
those of Qwen3 and Qwen3.5 do (models/templates/Qwen-Qwen3-0.6B.jinja:22-39, Qwen3.5-4B.jinja:74-100).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

N_BEGINNING = 12_000
USER = {1: 220, 7: 160, 13: 300, 18: 120}
"""Turn -> tokens of what the user writes; in every other turn a tool's result comes."""
TOOL = {2: 640, 3: 380, 4: 2600, 5: 520, 6: 300, 8: 700, 9: 3400, 10: 450, 11: 380}
TOOL |= {12: 260, 14: 560, 15: 820, 16: 340, 17: 480, 19: 600, 20: 420}
"""Turn -> tokens of a tool's result; turns 4 and 9 read a file."""
CALL, REASONING, LAST = 90, 160, 240
"""Tokens of an answer with a call of a tool, of the reasoning before it, and of an answer that ends a task."""
REASONED = 1, 2, 4, 7, 8, 10, 13, 15, 18, 19
ENDS = 6, 12, 17, 20
TITLE, CLASSIFY, SUMMARY = "title", "classification", "summary"
TITLE_AFTER, CLASSIFY_AFTER, SUMMARY_AFTER = 1, (4, 8, 12, 16), 19
N_TITLE, N_CLASSIFY, N_SUMMARIZE = 180, 350, 150
"""Tokens of the side requests' own instructions."""
GEN = {TITLE: 16, CLASSIFY: 8, SUMMARY: 250}
N_TURNS = 20
LEAST = 4


@dataclass(frozen=True)
class Part:
    """A piece of a prompt; equal names have equal tokens.

    skip  tokens left out at the beginning of an answer: its reasoning, where the template drops it
    """

    name: str
    n_tokens: int
    skip: int = 0


@dataclass(frozen=True)
class Planned:
    """A request before it is sent; `kind` is "main", or the name of a side request."""

    turn: int
    kind: str
    parts: tuple[Part, ...]
    n_gen: int

    @property
    def n_prompt(self) -> int:
        """Tokens of its prompt."""
        return sum(part.n_tokens - part.skip for part in self.parts)


def session(scale: int = 1, n_turns: int = N_TURNS) -> tuple[Planned, ...]:
    """The requests in their order.

    scale    every length is divided by it; each part has a few tokens at least
    n_turns  of the main conversation
    """
    return tuple(request for turn in range(1, n_turns + 1) for request in _of_turn(turn, scale))


def _of_turn(turn: int, scale: int) -> Iterator[Planned]:
    """The main request of a turn, then its side requests."""
    yield Planned(turn, "main", _conversation(turn, scale), _n_answer(turn, scale))
    if turn == TITLE_AFTER:
        yield _side(turn, TITLE, N_TITLE, (_message(turn, scale),), scale)
    if turn in CLASSIFY_AFTER:
        yield _side(turn, CLASSIFY, N_CLASSIFY, (_message(turn, scale),), scale)
    if turn == SUMMARY_AFTER:
        whole = (*_conversation(turn, scale), Part(f"answer {turn}", _n_answer(turn, scale)))
        yield Planned(turn, SUMMARY, (*whole, Part("summarize", _scaled(N_SUMMARIZE, scale))), GEN[SUMMARY] // scale)


def _side(turn: int, kind: str, n_tokens: int, parts: tuple[Part, ...], scale: int) -> Planned:
    """A request with instructions of its own, which shares nothing with the main conversation's beginning."""
    return Planned(turn, kind, (Part(kind, _scaled(n_tokens, scale)), *parts), _scaled(GEN[kind], scale))


def _conversation(turn: int, scale: int) -> tuple[Part, ...]:
    """The prompt of a turn; reasoning of answers before the user's last message is left out."""
    last_user = max(at for at in USER if at <= turn)
    parts = [Part("beginning", N_BEGINNING // scale)]
    for before in range(1, turn):
        dropped = _n_reasoning(before, scale) if before < last_user else 0
        parts += [_message(before, scale), Part(f"answer {before}", _n_answer(before, scale), dropped)]
    return (*parts, _message(turn, scale))


def _message(turn: int, scale: int) -> Part:
    name = "user" if turn in USER else "tool"
    return Part(f"{name} {turn}", _scaled((USER | TOOL)[turn], scale))


def _n_answer(turn: int, scale: int) -> int:
    return _scaled(LAST if turn in ENDS else CALL, scale) + _n_reasoning(turn, scale)


def _n_reasoning(turn: int, scale: int) -> int:
    return _scaled(REASONING, scale) if turn in REASONED else 0


def _scaled(n_tokens: int, scale: int) -> int:
    return max(LEAST, n_tokens // scale)
