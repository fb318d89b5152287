"""Two devices under every split mode: recorded loads agree with plans made today, and the page with the record."""

import re
from collections.abc import Iterator
from itertools import product

import pytest

from inferlab.facts import read_table
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory.compute import n_vocab
from inferlab.prediction.predict import predict_memory
from inferlab.settings import SPLIT_MODES
from inferlab.units import KIB, MIB
from studies.several_cards import study
from studies.several_cards.figures import bytes_by_split
from studies.several_cards.measure import BASE
from studies.several_cards.study import KINDS, SHAPES, VALUE_BYTES, Case, DeviceUse, SeveralCards, Use, model_of

RECORDED = study.recorded()
BOTH = ("127.0.0.1:1", "127.0.0.1:2")
PRINTED = 0.0051 * MIB  # llama.cpp prints a buffer to 0.01 MiB


def modes() -> Iterator[dict[str, object]]:
    yield {"split_mode": "none", "main_gpu": 0}
    yield {"split_mode": "none", "main_gpu": 1}
    for mode in ("layer", "tensor"):
        yield from ({"split_mode": mode, "tensor_split": shares} for shares in ((1.0, 1.0), (3.0, 1.0), (1.0, 0.0)))


def test_every_combination_was_asked():
    """Modes, shares, layers, side of the cache and experts, for each shape."""
    expected = []
    for name in SHAPES:
        experts = ({}, {"n_cpu_moe": 3}) if name == "experts" else ({},)
        combined = product(modes(), ({}, {"n_gpu_layers": 3}), ({}, {"offload_kqv": False}), experts)
        expected += [(name, {"split_mode": "row"}), *((name, mode | a | b | c) for mode, a, b, c in combined)]
    assert [(case.shape, case.changes) for case in RECORDED.cases] == expected


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
        plan = predict_memory(model_of(case.shape), asked, simulate=False)
        cards = [device for name, device in plan.devices.items() if name != "host"]
        logged, host = measured_bytes(case.use.host), plan.devices["host"]
        for kind in ("weights", "kv_cache", "output"):
            assert abs(logged.get(("host", kind), 0) - host.parts[kind]) <= PRINTED, (case.shape, case.changes)
        used = [use for use, planned in zip(case.use.devices, case.planned, strict=True) if any(planned)]
        for planned, held in zip(cards, used, strict=False):
            assert (planned.weights_bytes, planned.kv_cache_bytes) == (held.weights_bytes, held.kv_cache_bytes)


def test_sums_and_pipelines_are_where_they_were_computed():
    """Sharing devices allocate space for sums; whole layers alone, with cache and experts there, have a pipeline."""
    for case in RECORDED.loaded:
        assert {device.sums_bytes for device in case.use.devices} == {case.sums_bytes}
        plain = set(case.changes) == {"split_mode", "tensor_split"} and case.changes["split_mode"] == "layer"
        assert case.use.pipelined == plain


@pytest.mark.parametrize("shape", SHAPES)
def test_what_crosses_is_what_the_shape_says(shape):
    """A vector at a boundary, two sums for each block; beside them less than two vectors and 4 KiB."""
    model, (layers, tensors) = model_of(shape), study.received_beside(shape)
    assert 0 <= layers < 4 * KIB
    assert 0 <= tensors - study.vector_bytes(model) < 4 * KIB
    last = RECORDED.at(shape, split_mode="layer", tensor_split=(1.0, 1.0)).use.devices[1]
    assert last.sent_per_token == n_vocab(model) * VALUE_BYTES


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


def test_the_page_counts_what_the_record_has():
    """Every request is a load or a refusal, and every exact plan of a compute buffer is counted once."""
    found = study.numbers()
    assert found["n_loaded"] + found["n_refused"] == found["n_cases"] == len(RECORDED.cases)
    buffers = [n for case in RECORDED.loaded for planned in case.planned for n in planned[2:]]
    assert (found["n_buffers"], found["n_ranged"]) == (len(buffers) - buffers.count(None), buffers.count(None))
    assert found["n_inside"] == found["n_ranged"]
    assert found["table_share"] < 100 < found["idle_weights"] * 100
    assert 0 < found["undivided"] <= found["tiny_layers"]


def test_tables_follow_from_bytes():
    """Two even halves overflow the small card, the larger share does not; sums are two vectors for each block."""
    verdicts = {(row[0], row[1]): row[-1] for row in study.split_table()[1]}
    assert verdicts["`-ts 1,1`", "8 GiB"] == "too large" != verdicts["`-ts 3,1`", "8 GiB"]
    for _, vector, n_sums, each_way, many, _ in study.crossing_table()[1]:
        assert float(each_way) == pytest.approx(float(n_sums) * float(vector), abs=1)
        assert float(many) == pytest.approx(float(each_way) / 2, abs=1)


def test_every_rule_names_its_modes_and_its_place_in_the_source():
    """A reader can look up each line; what the library refuses is bold."""
    heads, rows = study.rules_table()
    for row in rows:
        rule = dict(zip(heads, row, strict=True))
        assert {mode.strip("`") for mode in rule["mode"].split(", ")} <= set(SPLIT_MODES)
        assert rule["says"] in ("refuses", "warns", "silent")
        assert re.fullmatch(r"`[\w./-]+:\d+(-\d+)?(, \d+)?`", rule["where"]), rule["where"]


def test_what_llama_cpp_passes_over_is_refused_where_a_user_could_not_mean_it():
    """A silent rule that is not refused changes no result that a user asked for, or only the bytes."""
    rules = read_table("split_modes").items()
    silent = {name for name, rule in rules if rule["says"] == "silent" and not rule["refused"]}
    tensor = {
        f"tensor-{rule}" for rule in ("flash-attention-auto", "cache-types", "order", "default-shares", "pipeline")
    }
    assert silent == {"zero-share", "layer-pipeline", *tensor}
