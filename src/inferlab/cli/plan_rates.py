"""What `inferlab plan` says of speed: by public results on a card of the list, by its calibration on this machine."""

from __future__ import annotations

from inferlab.errors import InferlabError
from inferlab.model.gguf import Model
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.cards import KnownCard, known_card
from inferlab.prediction.expected import PARTIAL, expected_decode, expected_rates, held_text, question_for, rows_text
from inferlab.prediction.fit import Fit
from inferlab.prediction.place import Place
from inferlab.prediction.predict import predict_speed
from inferlab.prediction.speed import SpeedPlan


def rate_lines(fitted: Fit, model: Model, place: Place | None) -> list[str]:
    """How fast it should be; nothing where it does not fit, or nothing is known."""
    if fitted.fits == "no":
        return []
    try:
        return _expected_lines(fitted, model, place) if place else _own_lines(fitted, model)
    except InferlabError as error:
        return [f"No rate is expected: {error}"] if place else []


def _expected_lines(fitted: Fit, model: Model, place: Place) -> list[str]:
    rates = expected_rates(fitted, model, place)
    if rates is None:
        return []
    return [
        f"decode: {rates.start.text}, at the beginning of the context; {rates.end.text}, at its end",
        f"prompt of {rates.n_prompt:,} tokens: {rates.prompt.text}",
        rows_text(rates) + ("" if rates.start.basis == PARTIAL else f" {held_text()}."),
    ]


def _own_lines(fitted: Fit, model: Model) -> list[str]:
    """Raises RecordError where this machine was not calibrated."""
    calibration = Calibration.load()
    plan = predict_speed(model, fitted.plan.settings, calibration)
    told = f"By this machine's calibration of {calibration.date}: "
    card = _card_of(calibration)
    beside = _beside_text(fitted, model, plan, card) if card else ""
    return [f"{told}prefill {plan.prefill.text}; decode {plan.decode.text}{beside}"]


def _card_of(calibration: Calibration) -> KnownCard | None:
    """The card of the list that the machine has; None where it has none, or several kinds."""
    names = {device.description for device in calibration.machine.gpus}
    try:
        return known_card(names.pop()) if len(names) == 1 else None
    except InferlabError:
        return None


def _beside_text(fitted: Fit, model: Model, own: SpeedPlan, card: KnownCard) -> str:
    """How far the calibrated decode is from what public results expect of the card."""
    expected = expected_decode(question_for(fitted.plan, model, card), own.n_prompt + own.n_gen // 2)
    percent = 100 * (own.decode.tokens_per_second / expected.rate - 1)
    where = "above" if percent > 0 else "below"
    return f", which is {abs(percent):.0f} % {where} what public results expect: {expected.text}"
