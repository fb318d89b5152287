"""When a draft cannot pay: bounds from the cost of verification, and a speed-up predicted before it is measured.

Per pass of the model a drafter proposes n tokens at a cost of d each, and the pass over n + 1 tokens costs v; both in
units of a pass over one token. With E expected tokens a pass,

    speed-up S = E / (v + n d),    E = 1 + sum over k <= n of P(first k tokens accepted) <= n + 1

so S <= (n + 1) / (v + n d), whatever is accepted. If each token is accepted with probability a, independently,
E = (1 - a^(n + 1)) / (1 - a) < 1 / (1 - a), so S > 1 needs a > 1 - 1 / (v + n d). (Leviathan 2023, with v not 1.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inferlab.units import count_text
from studies.speculation.speculative import VerifyCost, expected_tokens

HALVINGS = 60


def most_speedup(cost: float, n_draft: int, draft_cost: float = 0.0) -> float:
    """The speed-up if every proposal is accepted: (n + 1) / (v + n d). At 1 or below no drafter of this cost pays."""
    return (n_draft + 1) / (cost + n_draft * draft_cost)


def least_acceptance(cost: float, n_draft: int, draft_cost: float = 0.0) -> float | None:
    """The acceptance a at which the speed-up is 1: E(a) = v + n d; None where no acceptance reaches it.

    E grows with a, so that halving the interval from 0 to 1 finds it.
    """
    if most_speedup(cost, n_draft, draft_cost) <= 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if expected_tokens(middle, n_draft) >= cost + n_draft * draft_cost else (middle, high)
    return high


def predicted_speedup(
    cost: Callable[[int], float], rounds: Sequence[int], acceptance: float, draft_cost: float = 0.0
) -> float:
    """The speed-up with drafts of different lengths.

        S = sum over n of rounds_n E(a, n) / sum over n of rounds_n (v(n + 1) + n d)

    cost    v: the cost of a pass over so many tokens, such as `VerifyCost.cost`
    rounds  passes by the number of tokens proposed for them, from 0
    """
    gained = sum(count * expected_tokens(acceptance, n) for n, count in enumerate(rounds) if count)
    spent = sum(count * (cost(n + 1) + n * draft_cost) for n, count in enumerate(rounds) if count)
    return gained / spent


def bounds_text(costs: VerifyCost, draft_cost: float = 0.0) -> str:
    """For each measured size from 2, a line: the cost of the pass, the most it can gain, and from which acceptance.

    draft_cost  of one proposal, in passes over one token
    """
    lines = []
    for n_draft in (size - 1 for size in sorted(costs.seconds) if size > 1):
        cost = costs.cost(n_draft + 1)
        least, most = least_acceptance(cost, n_draft, draft_cost), most_speedup(cost, n_draft, draft_cost)
        pays = "no acceptance pays" if least is None else f"pays above {100 * least:.0f} % acceptance"
        checked = f"{count_text(n_draft, 'proposal')}: the check costs {cost:.2f}"
        lines.append(f"{checked}, at most {most:.2f} times as fast, {pays}")
    return "\n".join(lines)
