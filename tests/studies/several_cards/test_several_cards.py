"""Two devices under every split mode: recorded loads agree with plans made today, and what is refused stays refused."""

import pytest

import inferlab as lab
from inferlab.model.synthetic_model import shape
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory.compute import n_vocab
from inferlab.prediction.predict import predict_memory
from inferlab.units import KIB, MIB
from studies.several_cards.between_cards import VALUE_BYTES, boundary_bytes, sum_bytes, vector_bytes
from studies.several_cards.device_use import DeviceUse, Use
from studies.several_cards.figures import bytes_by_split
from studies.several_cards.several_cards import BASE, KINDS, MIX, SHAPES, Case, SeveralCards, all_cases

RECORDED = lab.load("epyc-2c/several-cards")
BOTH = ("127.0.0.1:1", "127.0.0.1:2")
PRINTED = 0.0051 * MIB  # llama.cpp prints a buffer to 0.01 MiB


def model_of(case):
    name, dimensions = SHAPES[case.shape]
    return shape(name, MIX, **dimensions)


def test_every_combination_was_asked():
    """Modes, shares, layers, side of the cache and experts, for each shape."""
    assert [(case.shape, case.changes) for case in RECORDED.cases] == list(all_cases())


def test_weights_and_cache_agree_to_the_byte():
    """And a compute buffer within the range of its plan, or as near as the log prints it, but for a few tensors."""
    assert RECORDED.largest_difference("weights") == RECORDED.largest_difference("kv_cache") == 0
    assert RECORDED.largest_difference("compute") < 6 * KIB
    assert all(inside for case in RECORDED.loaded for inside in case.ranged)
    assert len(RECORDED.loaded) > 100


def test_todays_plans_are_the_recorded_ones():
    """Weights and cache of each device, and the host's as the log prints them, without asking llama.cpp."""
    for case in RECORDED.loaded:
        asked = BASE.but(**case.changes, rpc_servers=BOTH)
        plan = predict_memory(model_of(case), asked, simulate=False)
        cards = [device for name, device in plan.devices.items() if name != "host"]
        logged, host = measured_bytes(case.use.host), plan.devices["host"]
        for kind in ("weights", "kv_cache", "output"):
            assert abs(logged.get(("host", kind), 0) - host.parts[kind]) <= PRINTED, (case.shape, case.changes)
        used = [use for use, planned in zip(case.use.devices, case.planned, strict=True) if any(planned)]
        for planned, held in zip(cards, used, strict=False):
            assert (planned.weights_bytes, planned.kv_cache_bytes) == (held.weights_bytes, held.kv_cache_bytes)


def test_sums_take_the_room_that_was_computed():
    """Where devices share every matrix, each allocates a batch of vectors, for each expert of a token."""
    for case in RECORDED.loaded:
        assert {device.sums_bytes for device in case.use.devices} == {case.sums_bytes}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_crosses_is_what_the_shape_says(shape):
    """A vector at a boundary, two sums for each block; beside them less than two vectors and 4 KiB."""
    layers, tensors = (
        RECORDED.at(shape, split_mode=mode, tensor_split=(1.0, 1.0)) for mode in ("layer", "tensor")
    )
    model = model_of(layers)
    received = layers.use.devices[1].received_per_token - boundary_bytes(model, ["gpu0", "gpu1"])
    assert 0 <= received < 4 * KIB
    assert layers.use.devices[1].sent_per_token == n_vocab(model) * VALUE_BYTES
    sums = sum_bytes(model, ["gpu0"] * (model.n_layer + 1))
    assert 0 <= tensors.use.devices[1].received_per_token - sums - vector_bytes(model) < 4 * KIB


def test_a_pipeline_is_there_for_whole_layers_alone():
    """All of them on the devices, with the cache, and no experts in RAM; the shares do not matter."""
    for case in RECORDED.loaded:
        plain = set(case.changes) == {"split_mode", "tensor_split"} and case.changes["split_mode"] == "layer"
        assert case.use.pipelined == plain


def test_what_is_refused_says_why():
    """Matrices by rows on devices without buffers for it, and heads whose cache is elsewhere."""
    refused = {case.refused for case in RECORDED.cases if not case.use}
    assert all("split buffers" in text or "wrong keys" in text for text in refused)


def test_the_figure_has_both_devices_and_the_plan():
    """A bar for each kind, a mark where the plan ends, and a text alternative that names both devices."""
    held = (DeviceUse(MIB, MIB, 2 * MIB, MIB), DeviceUse(MIB, 0, 2 * MIB, MIB))
    planned = ((MIB, MIB, 2 * MIB), (MIB, 0, 2 * MIB))
    case = Case("experts", {"split_mode": "tensor", "tensor_split": (1.0, 0.0)}, planned, use=Use(held))
    record = SeveralCards(machine=RECORDED.machine, date="2026-01-31", cases=(case,))
    figure = bytes_by_split(record, record.cases)
    marks = next(one for one in figure.data if one.name == "planned")
    assert list(marks.x) == [4.0, 3.0]
    assert "tensor 1:0, device 1" in figure.layout.meta["alt"]
    assert len(figure.data) == len(KINDS) + 2
