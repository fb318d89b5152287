"""How fast a plan should be: the expected rates with their bands, the bound, and the public results behind them."""

from __future__ import annotations

from typing import Any

from inferlab.errors import InferlabError
from inferlab.instruments.views import element, paragraph, table
from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import Model
from inferlab.prediction.decode_bound import decode_bound, decode_bytes
from inferlab.prediction.expected import PARTIAL, ExpectedRates, expected_rates, held_text, rows_text, siblings
from inferlab.prediction.fit import Fit
from inferlab.prediction.memory import LayerBytes
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.place import Place
from inferlab.results.public_rates import PublicRate, nearest, sources
from inferlab.units import GB, count_text, rate_text

MOST_IN_RAM = 1 / 3
"""Share of a token's bytes in RAM above which a bound by the card alone says nothing: RAM is several times slower."""
HOW_JUDGED = element("a", {"href": "./appendix/model-of-a-card.html"}, "how it was judged")
HEADS = ["Card", "Model", "Backend", "Test", "Tokens/s", "Build or date", "Whose"]


def speed(fit: Fit, model: Model, place: Place) -> list[Any] | None:
    """The expected rates with the results behind them, and the bound; None if neither is known, or it does not fit."""
    if fit.fits == "no":
        return None
    try:
        rates = expected_rates(fit, model, place)
        bound = _bound(fit, model, place.bandwidth, alone=rates is None)
    except InferlabError as reason:
        return paragraph(f"There is no bound on the speed: {reason}")
    if rates is None:
        return bound or _no_rate(place)
    return element("section", {}, element("h2", {}, "How fast?"), *_expected(rates, place), bound, _rows(rates, model))


def _no_rate(place: Place) -> list[Any] | None:
    """Why nothing is told of a card that is not in the list."""
    told = "No rate is told of a card that is not in the list; its bandwidth, under More settings, gives a limit."
    return None if place.card or place.bandwidth or len(place.sizes) > 1 else paragraph(told)


def _expected(rates: ExpectedRates, place: Place) -> list[Any]:
    """Both phases in sentences, and from what."""
    start, end, prompt = rates.start, rates.end, rates.prompt
    several = len(place.sizes) > 1
    held = "How often such bands held" if start.basis == PARTIAL else held_text()
    alike = " Cards of one kind work one after another, so a token takes as long as on one." if several else ""
    return [
        paragraph(
            element("strong", {}, f"About {rate_text(start.rate)}"),
            f" at the beginning of the context, {start.range_text}; at its end {end.text}. That is for one sequence.",
        ),
        paragraph(f"A prompt of {rates.n_prompt:,} tokens: {prompt.text}."),
        paragraph(
            f"{rows_text(rates)}{alike} {held}: ",
            HOW_JUDGED,
            ".",
        ),
    ]


def _bound(fit: Fit, model: Model, bandwidth: float | None, alone: bool) -> list[Any] | None:
    """The most tokens per second that the bandwidth allows; None if it is unknown. `alone`: nothing else is told."""
    if not bandwidth:
        return None
    short, long = (decode_bound(fit, model, bandwidth, depth) for depth in (0, n_ctx_of(fit.plan.settings) - 1))
    on_host = in_ram_text(fit)
    if on_host and not alone:
        return None
    if short is None or _share_of_ram(fit, model) > MOST_IN_RAM:
        if not on_host or not alone:
            return None
        return paragraph(
            f"No limit on tokens per second is given: {on_host} lie in RAM, and the speed of RAM is not known here."
        )
    limit = f"At most {rate_text(short)}"
    return paragraph(
        element("strong", {}, limit) if alone and not on_host else limit,
        f" at the beginning of the context and {rate_text(long)} at its end are possible, for one sequence. This is an "
        "upper limit: each token reads the weights that it uses and the cache, and the card's rating is "
        f"{bandwidth / GB:,.0f} GB/s.{_slower_text(on_host)}",
    )


def _rows(rates: ExpectedRates, model: Model) -> list[Any] | None:
    """The public results that are nearest to the question, each with its address, behind a fold."""
    card, name = rates.question.card, model.shape.name if model.shape and not model.file else ""
    found = nearest(card.name, siblings(card.name), name, is_partial=rates.question.work.is_partial)
    if not found:
        return None
    return element(
        "details",
        {"id": "public-rates"},
        element("summary", {}, f"{count_text(len(found), 'public result')} near this"),
        table(HEADS, [_row(row) for row in found]),
    )


def whose(row: PublicRate) -> list[Any]:
    """The repository of a public result, as a link to where it stands."""
    return element("a", {"href": row.address}, sources()[row.source].repository)


def _row(row: PublicRate) -> list[Any]:
    in_ram = f", {row.in_ram_text}" if row.is_partial else ""
    build = f"{row.build}, {row.date}" if row.build else row.date
    backend = row.backend or "not stated"
    return [row.card, f"{row.model} {row.type}{in_ram}", backend, row.test, f"{row.rate:,.1f}", build, whose(row)]


def _share_of_ram(fit: Fit, model: Model) -> float:
    """The share in RAM of the bytes that a token reads at the beginning of the context; 0 in shared memory."""
    if SHARED in fit.usable_bytes:
        return 0.0
    here, there = (
        decode_bytes(fit.plan, model, 0, frozenset(devices)) for devices in ([HOST_DEVICE], fit.plan.devices)
    )
    return here / there


def layers_in_ram(fit: Fit) -> list[LayerBytes]:
    """The layers that lie in RAM beside a card; none if card and RAM are one memory."""
    if SHARED in fit.usable_bytes:
        return []
    return [row for row in fit.plan.layers if row.device == HOST_DEVICE and row.index is not None]


def in_ram_text(fit: Fit) -> str:
    """The layers and experts that lie in RAM beside a card, in words; empty without any."""
    blocks = [row for row in fit.plan.layers if row.index is not None]
    whole, n_moved = len(layers_in_ram(fit)), sum(HOST_DEVICE in row.moved_bytes for row in blocks)
    texts = [f"{whole} of {count_text(len(blocks), 'layer')}"] * bool(whole)
    texts += [f"the experts of {n_moved} of {count_text(len(blocks), 'layer')}"] * bool(n_moved)
    return " and ".join(texts)


def _slower_text(in_ram: str) -> str:
    """A note on layers and experts in RAM, which the limit leaves out; empty without any."""
    return f" What lies in RAM, {in_ram}, is left out of this limit and makes it slower." if in_ram else ""
