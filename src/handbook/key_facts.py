"""Facts that several pages need, computed once: how long a context a card of 8 GB holds.

In a sentence:

    {fact}`longest llama-3.1-8b q8_0`   the longest context, at most the one that the model was trained for
    {fact}`room llama-3.1-8b q8_0`      the context that memory alone allows

In a cell: `longest_context("llama-3.1-8b", "q8_0")`. Models are named as `lab.shape` names them.
The question is always the same: weights in Q4_K_M, all layers on one card of 8 GiB of which 1 GiB stays free, flash
attention on, sliding layers with their window only. It is answered as the planner answers it in a browser.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from inferlab.errors import InferlabError

WEIGHTS = "Q4_K_M"
CARD = "8GiB"
QUESTIONS = ("longest", "room")
FACT = "fact"
"""Class of a fact on a built page; the second class is the question."""


def setup(app: Any) -> None:
    """Make the role known."""
    app.add_role(FACT, FactRole())


@cache
def longest_context(model: str, cache_type: str = "f16", within_trained: bool = True) -> int:
    """Tokens of context on the card of 8 GiB. Raises UnknownModel, InvalidSettings."""
    import inferlab as lab

    settings = lab.Settings(flash_attn="on", type_k=cache_type, type_v=cache_type, swa_full=False)
    fit = lab.fit(lab.shape(model, WEIGHTS), settings, vram=CARD, simulate=False, within_trained=within_trained)
    return int(fit.largest_n_ctx.value or 0)


class FactRole(SphinxRole):
    """A key fact in a sentence; an unknown question or model is an error of the build."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            return [nodes.inline("", answer(self.text), classes=[FACT, nodes.make_id(self.text)])], []
        except (ValueError, InferlabError) as error:
            message = self.inliner.reporter.error(f"fact {self.text!r}: {error}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]


def answer(question: str) -> str:
    """The text of a fact. Raises ValueError for another form of question, and what `longest_context` raises."""
    asked, *named = question.split()
    if asked not in QUESTIONS or len(named) != 2:
        raise ValueError(f"a fact is {' or '.join(QUESTIONS)}, a model and a type of cache: longest llama-3.1-8b f16")
    return f"{longest_context(*named, within_trained=asked == 'longest'):,}"
