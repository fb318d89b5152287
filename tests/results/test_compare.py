"""Ratios of two groups of values, cards by the names that llama-bench writes, types, and the atlas beside a result."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest
from bench_rows import as_bytes, on_card, rows

from inferlab.errors import RecordError
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.predict import predict_speed
from inferlab.records import RECORDED, load
from inferlab.results.atlas import known_results
from inferlab.results.bound import card_named, known_model_of, type_of
from inferlab.results.compare import compare
from inferlab.results.reading import read_results
from inferlab.results.result import result_of
from inferlab.statistics import _rank_sums, ratio_interval


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (5, 5), (4, 6)])
def test_rank_sums_are_counted_exactly(n, m):
    """As counted over every order of the values."""
    sums = [sum(places) - n * (n - 1) // 2 for places in combinations(range(n + m), n)]
    assert _rank_sums(n, m) == [sums.count(u) for u in range(n * m + 1)]


def test_the_interval_holds_the_factor_as_often_as_it_says():
    """In at least 95 % of groups of five that differ by a factor of 1.5."""
    random, held = Random(3), 0
    for _ in range(1000):
        first, second = ([factor * random.lognormvariate(0, 0.1) for _ in range(5)] for factor in (1, 1.5))
        _, (low, high) = ratio_interval(first, second)
        held += low <= 1.5 <= high
    assert held >= 950


@pytest.mark.parametrize(("n", "has"), [(3, False), (4, True), (25, True), (51, False)])
def test_too_few_or_too_many_values_have_no_interval(n, has):
    """Three of each cannot give 95 %; above fifty nothing is computed, so that no file takes long."""
    ratio, interval = ratio_interval([1.0] * n, [2.0] * n)
    assert (ratio, interval) == (2.0, (2.0, 2.0) if has else None)


def test_tests_with_other_settings_are_not_pooled():
    """Of several tests of one workload, those with equal settings are paired; the rest is alone with the reason."""
    row = rows()[0]
    first = [result_of({**row, "n_threads": n}, "a") for n in (1, 2)]
    second = [result_of({**row, "n_threads": n}, "b") for n in (2, 4)]
    found = compare(first, second)
    assert [pair.first.settings["n_threads"] for pair in found.pairs] == ["2"]
    assert [(one.source, one.settings["n_threads"]) for one, _ in found.alone] == [("a", "1"), ("b", "4")]


@pytest.mark.parametrize(
    ("newer", "n_pairs"),
    [({"newer": (1024,)}, 2), ({"newer": (0, 1024)}, 0), ({"newer": (1024,), "flash_attn": (1,)}, 1)],
)
def test_a_column_that_one_version_lacks_keeps_no_partners_apart(newer, n_pairs):
    """Unless what is left to compare fits several."""
    row = {**rows()[1], "samples_ts": []}
    old = [result_of({**row, "flash_attn": on}, "a") for on in (0, 1)]
    columns = {"flash_attn": (0, 1), **newer}
    new = [result_of({**row, **dict(zip(columns, one, strict=True))}, "b") for one in product(*columns.values())]
    found = compare(old, new)
    assert len(found.pairs) == n_pairs
    assert all(pair.differing.keys() == {"newer"} for pair in found.pairs)
    assert len(found.alone) == len(old) + len(new) - 2 * n_pairs


def test_without_its_number_of_weights_a_test_has_the_partner_of_its_model():
    """Where the others of that model agree in it."""
    row = rows()[1]
    bare = result_of({**row, "model_n_params": None}, "b")
    assert len(compare([result_of(row, "a")], [bare]).pairs) == 1
    others = [result_of({**row, "model_n_params": n}, "a") for n in (1_000_000, 2_000_000)]
    assert compare(others, [bare]).pairs == ()


@pytest.mark.parametrize("slower", [(4, 4, 4), (2, 8), (3, 5, 7, 9)])
def test_a_ratio_turns_with_the_two(slower):
    """The median ratio of second to first is one over that of first to second, for any number of pairs."""
    first = [result_of(on_card(slower=4, n_gen=n)[1], "a") for n in range(1, len(slower) + 1)]
    second = [result_of(on_card(slower=by, n_gen=n)[1], "b") for n, by in enumerate(slower, 1)]
    there, back = compare(first, second), compare(second, first)
    assert there.median_ratio == pytest.approx(1 / back.median_ratio)
    assert [there.n_decided(kind) for kind in (2, 1, 0)] == [back.n_decided(kind) for kind in (1, 2, 0)]
    assert {there.faster, back.faster} in ({1, 2}, {0})


def paired(ratios):
    """Tests of different lengths, each with five repetitions, the second that many times as fast."""
    sides = []
    for factors in ([1] * len(ratios), ratios):
        times = enumerate(factors, 1)
        changed = [{"n_gen": n, "samples_ns": [round(1e8 / by * (1 + k / 100)) for k in range(5)]} for n, by in times]
        bare = {name: value for name, value in rows()[1].items() if name not in ("samples_ts", "avg_ts")}
        sides.append([result_of({**bare, **one}, "a") for one in changed])
    return compare(*sides)


@pytest.mark.parametrize(
    ("ratios", "faster", "sure"),
    [
        ([2], 2, None),
        ([0.5], 1, None),
        ([1.001], 0, None),
        ([2, 2], 2, None),
        ([2, 1.001, 1.001], 0, None),
        ([2] * 5, 2, None),
        ([2] * 5 + [1.001], 2, None),
        ([2] * 6, 2, 0.96875),
        ([2] * 6 + [1.001], 2, 0.96875),
        ([2] * 3 + [0.5] * 3, 0, 0),
    ],
)
def test_intervals_decide_and_signs_only_where_they_can(ratios, faster, sure):
    """Open pairs are counted for nobody, and the sign test says nothing about fewer than six that are decided."""
    found = paired(ratios)
    assert (found.faster, found.confidence) == (faster, sure)
    assert found.n_decided(0) == ratios.count(1.001)


@pytest.mark.parametrize(
    ("n", "m", "lacking"),
    [(5, 3, ""), (4, 4, ""), (3, 3, "too few repetitions"), (0, 5, "does not list"), (51, 5, "more than 50")],
)
def test_what_has_no_interval_has_the_ratio_of_its_rates(n, m, lacking):
    """With the reason, which is not always that there are too few repetitions."""
    first, second = (_timed(times) for times in (n, m))
    (pair,) = compare([first], [second]).pairs
    assert (pair.interval is None, pair.faster is None) == (bool(lacking), bool(lacking))
    assert lacking in pair.lacking
    if lacking:
        assert pair.ratio == second.rate / first.rate


def _timed(n):
    bare = {name: value for name, value in rows()[1].items() if name != "samples_ts"}
    return result_of({**bare, "samples_ns": [10**8 + 10**6 * k for k in range(n)], "avg_ts": 1270.0}, "a")


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ({}, {}),
        ({"n_threads": 7}, {"n_threads": ("2", "7")}),
        ({"build_commit": "abc"}, {"build": ("0c1e570", "abc")}),
        ({"cpu_info": "Z80"}, {"processor": ("Intel(R) Xeon(R) Processor", "Z80")}),
        ({"gpu_info": "Voodoo"}, {"GPU": ("", "Voodoo")}),
        ({"backends": "Vulkan"}, {"backend": ("CPU", "Vulkan")}),
        ({"model_filename": "/other/b.gguf"}, {"model file": ("tiny.gguf", "b.gguf")}),
        ({"model_size": 5_000_000}, {"bytes of the weights": ("11,547,648", "5,000,000")}),
    ],
)
def test_every_difference_is_named(changed, differing):
    """Settings, build, processor, GPU, backend, the model's file and its bytes; nothing where all agree."""
    first, second = (result_of({**rows()[1], **more}, "a") for more in ({}, changed))
    (pair,) = compare([first], [second]).pairs
    assert pair.differing == differing


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "rtx-4060-laptop"),
        ("NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 3080", None),
        ("NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4060", None),
        ("Some card", None),
    ],
)
def test_a_card_is_known_by_its_name(name, card):
    """Not where it is sold with two bandwidths, or where several kinds are in use."""
    found = card_named(result_of(on_card(name)[1], "a"))
    assert (found.name if found else None) == card


WHOLE = as_bytes(rows()).decode()
LINES = as_bytes(rows(), "jsonl").decode().splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WHOLE[:-200], WHOLE[:-200].rstrip().count("\n") + 1),
        ("ggml_cuda_init: found 1 device\n\n" + WHOLE.replace('"poll": 50', '"poll" 50', 1), None),
    ],
)
def test_a_fault_of_json_has_its_line(text, line):
    """As the file counts it, with messages above the results, and that the file is not whole."""
    line = line or next(n for n, one in enumerate(text.splitlines(), 1) if '"poll" 50' in one)
    with pytest.raises(RecordError, match=rf"a\.json is cut off or damaged at line {line}: .*-o json"):
        read_results("a.json", text.encode())


def test_a_damaged_line_is_named_as_the_file_counts_it():
    """Below messages and blank lines, and among whole ones, which are read."""
    found = read_results("a.jsonl", "\n".join(["", "a message", LINES[0], LINES[1][:99], LINES[1]]).encode())
    assert len(found.results) == 2
    (problem,) = found.problems
    assert problem.startswith("Line 4: it is cut off or damaged: ")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"avg_ts": -5}, "avg_ts is -5: no rate"),
        ({"avg_ts": "fast"}, "avg_ts is 'fast': no rate"),
        ({"samples_ts": [-1.0] * 5}, "no list of numbers above 0"),
        ({"samples_ts": [1e999] * 5}, "no list of numbers above 0"),
        ({"samples_ts": [900.0] * 5}, "samples_ts do not follow from samples_ns"),
        ({"samples_ts": [882.687]}, "samples_ts do not follow from samples_ns"),
        ({"n_gen": 128}, "samples_ts do not follow from samples_ns"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(changed, told):
    """Rates that are none, or are not those of the times; as llama-bench rounds them they are taken."""
    assert result_of(rows()[1], "a").samples
    with pytest.raises(RecordError, match=told):
        result_of({**rows()[1], **changed}, "a")


@pytest.mark.parametrize(
    ("description", "mix"),
    [
        ("llama 8B Q4_K - Medium", "Q4_K_M"),
        ("llama ?B F16", "F16"),
        ("qwen3moe 30B.A3B Q5_K - Small", "Q5_K_S"),
        ("gemma3 270M BF16", "BF16"),
        ("llama 8B Q2_K - Medium", "Q2_K"),
        ("llama 8B Q2_K - Small", "Q2_K_S"),
        ("llama 8B IQ3_S - 3.4375 bpw", "IQ3_S"),
        ("llama 8B IQ3_S mix - 3.66 bpw", "IQ3_M"),
        ("llama 8B TQ1_0 - 1.69 bpw ternary", "TQ1_0"),
        ("qwen3moe 30B.A3B MXFP4 MoE", "MXFP4_MOE"),
        ("llama 8B", None),
        ("llama 8B Q9", None),
    ],
)
def test_the_type_stands_in_the_description(description, mix):
    """As llama.cpp writes it after architecture and size."""
    assert type_of(description) == mix


def test_a_known_model_is_recognized_by_its_weights():
    """By their number, type and bytes; of another size it is none."""
    row = on_card()[1]
    assert known_model_of(result_of(row, "a")).n_layer == 32
    assert known_model_of(result_of({**row, "model_size": row["model_size"] // 2}, "a")) is None


def test_the_atlas_has_the_predictions_of_its_page():
    """Rate and prediction of a record are those of `Run` and `predict_speed`."""
    run = load("xeon-2c/llama-3.2-1b-Q4_K_M")
    found = [one for one in known_results() if one.result.source == "xeon-2c/llama-3.2-1b-Q4_K_M"]
    plan = predict_speed(
        "llama-3.2-1b",
        run.settings,
        Calibration.load(RECORDED / "xeon-2c" / "calibration.json"),
        run.n_prompt,
        run.n_gen,
        run.machine,
    )
    assert [one.result.rate for one in found] == pytest.approx(
        [run.prefill_tokens_per_second, run.decode_tokens_per_second]
    )
    assert [one.predicted for one in found] == pytest.approx(
        [plan.prefill.tokens_per_second, plan.decode.tokens_per_second]
    )
