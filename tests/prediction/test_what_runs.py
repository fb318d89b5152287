"""What runs on a machine: each listed placement fits by the planner, which finds hardly more."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import RESERVE_BYTES, fit
from inferlab.prediction.free_memory import (
    DEFAULT_BACKEND,
    HostRam,
    free_bytes,
    machine_for,
    room_for,
    usable_bytes,
)
from inferlab.prediction.memory.request import request_for
from inferlab.prediction.place import described_place, place_of_card
from inferlab.prediction.predict import plan_of
from inferlab.prediction.search import largest_from
from inferlab.prediction.steps import WEIGHT_TYPES
from inferlab.prediction.what_runs import ALONE_MOST, ENDLESS, _Candidate, by_size, what_runs
from inferlab.settings import Settings
from inferlab.units import GIB

ASKED = Settings(n_ctx=8192)
NEARLY = 0.95
"""Share of the planner's longest context that a list has at least."""
PARTLY = 0.6
"""The same with a part in RAM, where the list has a bound and says *at least*, and the planner replays the batch."""
PLACE = place_of_card("rtx-4060", 32 * GIB)
LISTED = ("mistral-7b-v0.3", "gemma-3-4b", "qwen3-30b-a3b", "qwen3-235b-a22b", "llama-3.2-1b", "phi-3-mini-4k")


@pytest.fixture(scope="module")
def found(request):
    """The answers for some models of the list."""
    catalog = {name: known_models()[name] for name in LISTED}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferlab.prediction.what_runs.known_models", lambda: catalog)
        return {runs.name: runs for runs in what_runs(PLACE, ASKED)}


def planned(name, type, **settings):
    """The planner's own answer for the same place."""
    asked = ASKED.but(n_ctx=min(ASKED.n_ctx, known_models()[name].n_ctx_train), **settings)
    model = shape(name, type)
    return fit(model, asked, ram=PLACE.ram, simulate=False, within_trained=True, **PLACE.devices)


@pytest.mark.parametrize("name", LISTED)
def test_whole_weights_are_the_largest_that_fit(found, name):
    """With nearly the longest context; the next larger type does not fit."""
    whole = found[name].whole
    if whole is None:
        return
    answer = planned(name, whole.type)
    assert answer.fits == "yes"
    assert NEARLY * answer.largest_n_ctx.value <= whole.longest_n_ctx <= answer.largest_n_ctx.value
    larger = WEIGHT_TYPES[: WEIGHT_TYPES.index(whole.type)]
    assert not larger or planned(name, larger[-1]).fits != "yes"


@pytest.mark.parametrize("name", LISTED)
def test_a_part_in_ram_is_as_small_as_possible(found, name):
    """The fewest experts or layers, as the planner finds them, give or take one."""
    part = found[name].in_ram
    if part is None:
        return
    placed = {"n_cpu_moe": part.n_cpu_moe, "n_gpu_layers": part.n_gpu_layers}
    answer = planned(name, part.type, **placed)
    assert answer.fits == "yes"
    assert PARTLY * answer.largest_n_ctx.value <= part.longest_n_ctx <= answer.largest_n_ctx.value
    whole = planned(name, part.type)
    fewest = whole.expert_layers.value if whole.expert_layers else whole.most_layers.value
    assert abs(fewest - (part.n_cpu_moe if whole.expert_layers else part.n_gpu_layers)) <= 1


def test_what_ram_cannot_hold_does_not_run(found):
    """Neither whole nor in part, with a reason; a small model needs no RAM."""
    large = found["qwen3-235b-a22b"]
    assert (large.whole, large.in_ram) == (None, None)
    assert large.reason == "Not even Q2_K fits."
    assert found["llama-3.2-1b"].in_ram is None


def test_a_model_trained_for_less_is_asked_for_that(found):
    """Its longest context is no shorter for being asked for more."""
    assert found["phi-3-mini-4k"].whole.longest_n_ctx == 4096


def test_the_order_is_by_what_runs_whole(found):
    """Then by size; what does not run comes last."""
    ordered = by_size(found.values())
    assert ordered[-1].name == "qwen3-235b-a22b"
    assert [runs.whole is None for runs in ordered] == sorted(runs.whole is None for runs in ordered)


def test_a_shared_memory_has_no_part_in_ram(monkeypatch):
    """There is one memory."""
    name = "qwen3-30b-a3b"
    monkeypatch.setattr("inferlab.prediction.what_runs.known_models", lambda: {name: known_models()[name]})
    (runs,) = what_runs(described_place([24 * GIB], True, HostRam(32 * GIB)), ASKED)
    assert runs.whole is not None
    assert runs.in_ram is None


SAMPLED = (
    "qwen2.5-14b",
    "qwen2.5-coder-14b",
    "qwen3-next-80b-a3b",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
    "gemma-3-27b",
    "llama-3.1-8b",
    "kimi-linear-48b-a3b",
    "granite-4.0-h-small",
)
MACHINES = {
    "8 GiB": described_place([8 * GIB], False, HostRam(32 * GIB)),
    "24 GiB": described_place([24 * GIB], False, HostRam(64 * GIB)),
    "two cards": described_place([8 * GIB, 8 * GIB], False, HostRam(32 * GIB)),
    "two unlike cards": described_place([6 * GIB, 12 * GIB], False, HostRam(64 * GIB)),
    "Mac": place_of_card("apple-m4-pro:24"),
}


def fits_by_plan(place, name, placed, n_ctx) -> str:
    """What a plan of a listed placement says, without the searches of `fit`."""
    machine, as_cuda = machine_for(**place.devices), place.backend != DEFAULT_BACKEND
    settings = Settings(n_ctx=n_ctx, n_gpu_layers=placed.n_gpu_layers, n_cpu_moe=placed.n_cpu_moe)
    request = request_for(shape(name, placed.type), settings, machine, simulate=False, as_cuda=as_cuda)
    plan = plan_of(request)
    free = free_bytes(machine, request.gpus, place.devices.get("unified"), place.ram)
    return plan.fits(room_for(plan, usable_bytes(free, RESERVE_BYTES, place.ram)))


@pytest.mark.parametrize("place", MACHINES.values(), ids=MACHINES)
def test_what_is_listed_fits_by_a_plan(place, monkeypatch):
    """Each placement of a sample, with its context; twice the context, where memory was the limit, does not.

    With a part in RAM the list's bound is above the planner's, see PARTLY.
    """
    catalog = {name: known_models()[name] for name in SAMPLED}
    monkeypatch.setattr("inferlab.prediction.what_runs.known_models", lambda: catalog)
    compared, limited = 0, 0
    for runs in what_runs(place, Settings(n_ctx=4096)):
        for placed in filter(None, (runs.whole, runs.in_ram)):
            compared += 1
            assert fits_by_plan(place, runs.name, placed, placed.longest_n_ctx) == "yes", (runs.name, placed)
            if not placed.memory_allows_more and placed is runs.whole:
                limited += 1
                assert fits_by_plan(place, runs.name, placed, 2 * placed.longest_n_ctx) != "yes", (runs.name, placed)
    assert compared >= len(SAMPLED) // 2
    assert limited


def test_with_a_part_in_ram_weights_are_quantized(monkeypatch):
    """At most Q8_0, also where RAM would hold F16; whole on a card F16 is listed."""
    catalog = {name: known_models()[name] for name in ("mistral-7b-v0.3", "llama-3.2-1b")}
    monkeypatch.setattr("inferlab.prediction.what_runs.known_models", lambda: catalog)
    large, small = what_runs(described_place([8 * GIB], False, HostRam(256 * GIB)), Settings(n_ctx=4096))
    assert (large.in_ram.type, small.whole.type) == ("Q8_0", "F16")


@pytest.mark.parametrize("changed", [{"split_mode": "tensor"}, {"split_mode": "none"}, {"offload_kqv": False}])
def test_a_list_is_of_whole_layers(changed):
    """Other placements are refused, not listed as if they were not asked for."""
    with pytest.raises(InvalidSettings, match="the list is of whole layers"):
        next(what_runs(PLACE, ASKED.but(**changed)))


def test_a_list_takes_no_devices():
    """Named devices are refused: the cards are those of the place."""
    with pytest.raises(InvalidSettings, match="name only the cards to use: one with --card"):
        next(what_runs(PLACE, ASKED.but(devices=("CUDA0",))))


@pytest.mark.parametrize("place", MACHINES.values(), ids=MACHINES)
def test_bounds_change_no_answer(place, monkeypatch):
    """A list whose compute buffers are all computed is the same to the byte."""
    catalog = {name: known_models()[name] for name in SAMPLED}
    monkeypatch.setattr("inferlab.prediction.what_runs.known_models", lambda: catalog)
    with_bounds = [*what_runs(place, ASKED)]
    monkeypatch.setattr(_Candidate, "_bounds", (ENDLESS, ENDLESS))
    monkeypatch.setattr("inferlab.prediction.what_runs.ALONE_MOST", ENDLESS)
    assert [*what_runs(place, ASKED)] == with_bounds


@pytest.mark.parametrize("changed", [{}, {"flash_attn": "off"}, {"type_k": "q8_0", "type_v": "q8_0"}, {"n_ubatch": 64}])
@pytest.mark.parametrize("name", SAMPLED)
def test_bounds_are_no_less_than_what_is_computed(name, changed):
    """With the first context and the longest one, of host and card, and of the host alone."""
    bounded = candidate(name, Settings(n_ctx=4096, **changed))
    for n_ctx in bounded.computed:
        for alone in (False, True):
            pairs = zip(bounded.compute(n_ctx, alone), bounded._bounded(n_ctx, alone), strict=True)
            assert all(computed <= most for computed, most in pairs)
        assert bounded.compute(n_ctx, alone=True)[0] <= ALONE_MOST * sum(bounded.compute(n_ctx))


def candidate(name, settings) -> _Candidate:
    """A model on one card."""
    machine = machine_for(**PLACE.devices)
    return _Candidate(name, known_models()[name], PLACE, lambda: machine, settings, {"gpu0": 8 * GIB})


def test_models_of_the_same_bytes_are_answered_once(monkeypatch):
    """Each under its own name; one that was trained for a longer context is answered by itself."""
    names = "qwen2.5-14b", "qwen2.5-coder-14b", "qwen3-4b", "qwen3-4b-2507"
    catalog = {name: known_models()[name] for name in names}
    monkeypatch.setattr("inferlab.prediction.what_runs.known_models", lambda: catalog)
    asked = []
    runs = _Candidate.runs
    monkeypatch.setattr(_Candidate, "runs", lambda self: asked.append(self.name) or runs(self))
    found = {runs.name: runs for runs in what_runs(PLACE, ASKED)}
    assert asked == ["qwen2.5-14b", "qwen3-4b", "qwen3-4b-2507"]
    first, second = (found[name] for name in names[:2])
    assert (first.title, second.title) == tuple(catalog[name].name for name in names[:2])
    assert (first.whole, first.in_ram) == (second.whole, second.in_ram)


def test_nothing_of_a_list_is_left():
    """What was counted of a model is freed with its answer, without waiting for the garbage collector."""
    gc.disable()
    try:
        left = candidate("qwen2.5-14b", ASKED)
        model = weakref.ref(left.model)
        left.runs()
        del left
        assert model() is None
    finally:
        gc.enable()


def test_a_search_from_any_guess_finds_the_same():
    """A thousand limits and guesses, each against counting."""
    random = Random(7)
    for _ in range(1000):
        most, limit, guess = random.randint(0, 60), random.randint(-1, 70), random.randint(-5, 80)
        tried = []
        best = largest_from(guess, most, lambda n, limit=limit, tried=tried: tried.append(n) or n <= limit)
        assert best == min(limit, most)
        assert all(0 <= n <= most for n in tried)
