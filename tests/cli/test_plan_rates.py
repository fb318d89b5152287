"""What `inferlab plan` says of speed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import inferlab as lab
from inferlab.cli import plan_rates
from inferlab.cli.plan_rates import rate_lines
from inferlab.errors import RecordError
from inferlab.machine import Device
from inferlab.model.named import model_named
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.place import described_place, place_of_card
from inferlab.settings import Settings
from inferlab.units import GIB


def lines(name: str, place, **settings) -> list[str]:
    """The lines of a model on a place, or on this machine."""
    model = model_named(name)
    asked = place.devices if place else {"vram": "24GiB"}
    fitted = lab.fit(model, Settings(n_ctx=8192, **settings), simulate=False, **asked)
    return rate_lines(fitted, model, place)


def test_a_card_of_the_list_has_rates():
    """Decode at both ends, a prompt, and from what."""
    decode, prompt, rows = lines("qwen3-8b", place_of_card("rtx-3090"))
    assert re.match(r"decode: about [\d.]+ tokens/s, between .*, at the beginning of the context; about", decode)
    assert re.match(r"prompt of 512 tokens: about [\d,]+ tokens/s, between", prompt)
    assert re.match(r"From \d+ public CUDA results? of this card and \d+ of cards of its generation\.", rows)


def test_nothing_is_said_without_a_card_or_without_room():
    """A size alone is no card, and what does not fit has no rate."""
    place = place_of_card("rtx-3090")
    assert lines("qwen3-8b", described_place([24 * GIB], False, place.ram)) == []
    assert lines("llama-3.3-70b", place) == []


def test_a_calibration_takes_the_place_of_public_results(monkeypatch):
    """On this machine its rates are told, and how far they are from what its card should reach."""
    own = Calibration.load("xeon-2c")
    monkeypatch.setattr(plan_rates.Calibration, "load", lambda: own)
    (told,) = lines("qwen3-0.6b", None, n_gpu_layers=0)
    assert re.match(rf"By this machine's calibration of {own.date}: prefill [\d.]+ tokens/s", told)
    assert "public results" not in told
    gpu = Device("CUDA0", "NVIDIA GeForce RTX 3090", "gpu")
    with_card = replace(own, machine=replace(own.machine, devices=(gpu,)))
    monkeypatch.setattr(plan_rates.Calibration, "load", lambda: with_card)
    (told,) = lines("qwen3-0.6b", None, n_gpu_layers=0)
    assert re.search(r", which is \d+ % (above|below) what public results expect: about [\d.]+ tokens/s, between", told)


def test_a_machine_without_calibration_is_told_nothing(monkeypatch):
    """It is an offer, no error."""

    def missing():
        raise RecordError("none")

    monkeypatch.setattr(plan_rates.Calibration, "load", missing)
    assert lines("qwen3-0.6b", None) == []


@pytest.mark.parametrize("name", ["apple-m4-pro:48", "ryzen-ai-max-395:128"])
def test_shared_memory_has_no_part_in_ram(name):
    """What the plan puts on the host is in the same memory."""
    assert "RAM" not in lines("qwen3-30b-a3b", place_of_card(name), cpu_moe=True)[2]
