"""The browser benchmark's answers: plans, a GPU's self-test, statistics of samples, and rows that llama-bench has."""

from __future__ import annotations

import copy
import json
from random import Random
from statistics import mean, median, stdev

import pytest
from browser_results import AGREED, ASKED, NO_FILES, WRITTEN, nanoseconds, planned, results, with_header
from bs4 import BeautifulSoup

from inferlab.errors import InferlabError, InvalidSettings, RecordError
from inferlab.instruments import UNEXPECTED, answered
from inferlab.instruments.browser_bench import DEFAULTS, answer, form
from inferlab.instruments.browser_depths import compared_text
from inferlab.instruments.browser_run import N_CTX, NEAR, BrowserPlan, GpuCheck, read_run
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import html_of
from inferlab.measurement.llama_bench import from_rows, import_llama_bench
from inferlab.measurement.llama_bench_rows import FIELDS
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.statistics import ratio_interval

SOFTWARE = {**AGREED, "gpu_name": "a vendor", "software": True, "lacks": []}
HOSTILE = '<img src=x onerror="alert(1)"></td><script>alert(2)</script>'


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> DroppedFiles:
    """The header of the embedded model, as the page sends it."""
    return with_header(tmp_path_factory.mktemp("files"))


def told(found: dict, files: DroppedFiles, **changes: str) -> dict:
    """The answer to results, with the same question in the form."""
    return answered("browser-bench", {**ASKED, **changes, "results": json.dumps(found)}, files)


def page_of(found: dict) -> BeautifulSoup:
    """An answer as a page."""
    return BeautifulSoup(html_of(found["view"]), "html.parser")


# --- the plan --------------------------------------------------------------------------------------------


def test_before_a_run_the_page_says_what_it_would_measure():
    """No rate stands there, no figure, and nothing to save; each depth has a row."""
    found = answer(DEFAULTS, NO_FILES)
    assert (found.state, found.summary) == ("unsure", "Nothing is measured yet. Start runs llama.cpp in this browser.")
    page = BeautifulSoup(html_of(found.view), "html.parser")
    assert [row.th.get_text() for row in page.select("tbody tr")] == [f"{depth} tokens" for depth in (0, 256, 512)]
    assert [row.th["data-label"] for row in page.select(".instrument-depths tbody tr")] == ["Depth"] * 3
    assert "30 samples" in page.get_text()
    assert "After the first round the page says how much time is left." in page.get_text()
    assert "tokens/s" not in page.get_text()
    assert page.find_all(["svg", "button"]) == []


def test_a_plan_is_what_was_asked():
    """Depths in their order, as numbers; a first step for the CPU, a self-test before it for a GPU."""
    plan = planned(depths="512 0,64", n_prompt="16", n_gen="8", repeats="3", n_threads="2")
    assert plan == {
        "step": "measure",
        "n_ctx": N_CTX,
        "n_checked": 24,
        "check": None,
        "depths": [0, 64, 512],
        "n_prompt": 16,
        "n_gen": 8,
        "repeats": 3,
        "n_threads": 2,
        "backend": "cpu",
    }
    assert planned(backend="webgpu")["step"] == "check"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"depths": "0, 900"}, "Depths: 900 is not from 0 to 895"),
        ({"depths": "0, 992", "n_prompt": "1"}, "Depths: 992 is not from 0 to 990"),
        ({"depths": "-1"}, "Depths: '-1' is no list of whole numbers"),
        ({"depths": "0, x"}, "such as 0, 256, 512"),
        ({"depths": ""}, "Depths: give 1 to 8 different numbers"),
        ({"depths": "5 5"}, "Depths: give 1 to 8 different numbers"),
        ({"depths": " ".join(map(str, range(9)))}, "Depths: give 1 to 8"),
        ({"n_prompt": "0"}, "Prefill: 0 is not from 1"),
        ({"n_gen": "2000"}, "Decode: 2000 is not from 1"),
        ({"repeats": "0"}, "Repetitions: 0 is not from 1"),
        ({"n_threads": "-1"}, "Threads: -1 is not from 0"),
        ({"n_prompt": "many"}, "Prefill: 'many' is no whole number"),
        ({"backend": "cuda"}, "Backend: 'cuda' is not in the list"),
    ],
)
def test_a_plan_that_the_model_cannot_do_is_refused(changes, reason):
    """The field is named, and what may stand there."""
    found = answered("browser-bench", {**ASKED, **changes}, NO_FILES)
    assert found["state"] == "refused"
    assert reason in BeautifulSoup(html_of(found["view"]), "html.parser").get_text()
    assert found["data"] == {}


def test_the_cache_is_as_long_as_the_embedded_models_context():
    """The longest depth is refused by the number in the model's header."""
    assert read_gguf(tiny_model()).n_ctx_train == N_CTX


# --- the self-test ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "agrees", "n_equal"),
    [
        (WRITTEN, True, 3),
        ([[17, -0.25 - NEAR / 2], *WRITTEN[1:]], True, 3),
        ([[17, -0.25 - 2 * NEAR], *WRITTEN[1:]], False, 3),
        ([*WRITTEN[:2], [901, -0.01]], False, 2),
        ([[18, -0.25], *WRITTEN[1:]], False, 0),
        (WRITTEN[:2], False, 2),
        ([*WRITTEN, [5, -1.0]], False, 3),
        ([], False, 0),
    ],
)
def test_a_gpu_agrees_when_all_tokens_are_equal_and_about_as_likely(gpu, agrees, n_equal):
    """Another token, one token fewer, or the same tokens with other probabilities: each is a disagreement."""
    check = GpuCheck(tuple(map(tuple, WRITTEN)), tuple(map(tuple, gpu)), (7, 7))
    assert (check.agrees, check.n_equal) == (agrees, n_equal)


def test_two_empty_texts_are_no_agreement():
    """A GPU and a CPU that wrote nothing have shown nothing."""
    assert not GpuCheck((), (), (7, 7)).agrees


@pytest.mark.parametrize("offloaded", [(0, 0), (0, 7), (6, 7)])
def test_a_text_that_the_cpu_wrote_twice_is_no_agreement(files, offloaded):
    """A backend that cannot use the GPU leaves layers to the CPU, without an error: no rate is called the GPU's."""
    written = tuple(map(tuple, WRITTEN))
    assert not GpuCheck(written, written, offloaded).agrees
    check = {**AGREED, "offloaded": offloaded}
    found = told({"plan": planned(backend="webgpu"), "step": "check", "check": check}, files)
    assert (found["summary"], found["data"]) == ("The GPU is not measured: llama.cpp could not use it.", {})
    assert ("6 of 7 layers" if offloaded[0] else "of 7 layers" if offloaded[1] else "no layer") in page_of(found).text


def test_only_a_gpu_that_agrees_is_measured(files):
    """After agreement the answer has the second step of the same plan; else it has none, and says what differs."""
    plan = planned(backend="webgpu", repeats="2")
    check = {**AGREED, "gpu_name": "a vendor", "software": False, "lacks": []}
    step = {"plan": plan, "step": "check", "check": check}
    passed = told(step, files)
    following = json.loads(json.dumps(passed["data"]["plan"]))
    assert following == {**plan, "step": "measure", "check": check}
    other = [*WRITTEN[:2], [901, -0.01]]
    failed = told({**step, "check": {**AGREED, "gpu": other}}, files)
    assert (failed["state"], failed["data"]) == ("no", {})
    assert "the GPU wrote the first 2 as well" in page_of(failed).get_text()
    unlikely = told({**step, "check": {**AGREED, "gpu": [[17, -9.25], *WRITTEN[1:]]}}, files)
    assert "lie up to 9 apart" in page_of(unlikely).get_text()


@pytest.mark.parametrize("software", [False, True])
def test_what_a_gpu_lacks_is_named(files, software):
    """Where the page could ask for it; an ability that it did not ask for is not guessed."""
    plan, gpu = planned(backend="webgpu"), "software adapter" if software else "GPU"
    check = {**SOFTWARE, "software": software, "offloaded": [0, 7], "lacks": ["shader-f16"]}
    found = told({"plan": plan, "step": "check", "check": check}, files)
    assert found["summary"] == f"The {gpu} is not measured: llama.cpp could not use it."
    shown = page_of(found).get_text()
    assert f"The browser names a {gpu}, a vendor, but llama.cpp's log has 0 of 7 layers on it" in shown
    assert f"needs shader-f16, which this {gpu} does not offer here." in shown
    unknown = page_of(told({"plan": plan, "step": "check", "check": {**check, "lacks": []}}, files)).get_text()
    assert "abilities that not every GPU and driver have" in unknown


def test_rates_of_a_software_adapter_are_never_a_gpus(files):
    """Sentence, facts and file say software, and so does the step between."""
    plan = planned(backend="webgpu")
    passed = told({"plan": plan, "step": "check", "check": SOFTWARE}, files)
    assert passed["summary"].startswith("CPU and software adapter wrote the same text.")
    found = told(results(plan | {"step": "measure", "check": SOFTWARE}, gpu="a vendor"), files)
    assert found["summary"].split(". ")[0].endswith("parameters and WebGPU in software, without a GPU, and 4 threads")
    assert "WebGPU in software, without a GPU: a vendor" in page_of(found).get_text()
    assert {row["gpu_info"] for row in found["data"]} == {"a vendor (software)"}


def test_a_run_says_whether_a_self_test_took_place(files):
    """On a GPU it passed; on a CPU there was nothing to compare."""
    on_gpu = planned(backend="webgpu") | {"step": "measure", "check": AGREED}
    shown = page_of(told(results(on_gpu, gpu="a vendor"), files)).get_text()
    assert "passed: 3 of 3 tokens" in shown
    assert "WebGPU: a vendor" in shown
    assert "did not take place" in page_of(told(results(planned()), files)).get_text()


# --- a run -----------------------------------------------------------------------------------------------


def test_a_table_has_median_range_and_factor_of_each_rate(files):
    """Of hand-made samples, at each depth, for prefill and decode; the factor is that against the least depth."""
    found = told(results(planned()), files)
    rows = page_of(found).select(".instrument-rates tbody tr")
    for depth, row in zip((0, 256, 512, 768), rows, strict=True):
        expected = [f"{depth} tokens"]
        for n_tokens, n_gen in ((128, 0), (32, 32)):
            rates = [1e9 * n_tokens / nanoseconds(n_gen, depth, repetition) for repetition in range(5)]
            at_least = [1e9 * n_tokens / nanoseconds(n_gen, 0, repetition) for repetition in range(5)]
            factor = compared_text(ratio_interval(at_least, rates)) if depth else "1"
            expected += [f"{median(rates):,.0f} tokens/s", f"{min(rates):,.0f} to {max(rates):,.0f}", factor]
        assert [cell.get_text() for cell in row.select("th, td")] == expected
    assert found["summary"].startswith("In this browser llama.cpp processes 1,267 tokens/s in prefill and generates")
    decode = " 159 tokens/s in decode at depth 0, with a model of 5.77 million parameters and 4 threads. "
    assert decode in found["summary"]
    assert found["state"] == "yes"


def test_a_figure_shows_every_sample_and_says_the_medians(files):
    """A dot for each sample and a bar for each median, which nothing joins; depths from left to right."""
    charts = page_of(told(results(planned()), files)).select("svg")
    assert len(charts) == 2
    for chart in charts:
        assert (len(chart.select("circle.sample")), len(chart.select("line.median"))) == (20, 4)
        assert all(bar["y1"] == bar["y2"] for bar in chart.select("line.median"))
        assert [text.get_text() for text in chart.select("text.depth")] == ["0", "256", "512", "768"]
        assert all(f"at depth {depth}" in chart["aria-label"] for depth in (0, 256, 512, 768))
        places = [float(dot["cy"].rstrip("%")) for dot in chart.select("circle")]
        assert 0 < min(places) <= max(places) < 84
        falling = [float(bar["y1"].rstrip("%")) for bar in chart.select("line.median")]
        assert falling == sorted(falling)


def sampled(plan: dict, of_depth: dict[int, tuple[int, int]]) -> dict:
    """Results whose samples at each depth, of both phases, lie between two times in milliseconds."""
    found = results(plan)
    for number, sample in enumerate(found["samples"]):
        sample["ns"] = 10**6 * of_depth[sample["n_depth"]][number // (2 * len(plan["depths"])) % 2]
    return found


SLOWER, FASTER = {0: (100, 110), 256: (120, 130), 512: (200, 220)}, {0: (200, 220), 256: (120, 130), 512: (100, 110)}
NOISY = {0: (100, 150), 256: (120, 130), 512: (90, 140)}


@pytest.mark.parametrize(
    ("of_depth", "changes"),
    [
        (SLOWER, "prefill is 0.5 times as fast; decode is 0.5 times as fast."),
        (FASTER, "prefill is 2 times as fast; decode is 2 times as fast."),
        (NOISY, "prefill is open (0.714 to 1.67 times); decode is open (0.714 to 1.67 times)."),
    ],
)
def test_a_run_says_what_depth_changes(files, of_depth, changes):
    """The greatest depth against the least, where the interval of the factor leaves out 1."""
    found = told(sampled(planned(depths="0, 256, 512", repeats="4"), of_depth), files)
    assert found["summary"].endswith(f" Against depth 0, at depth 512 {changes}")
    assert "where it contains 1, it is open which depth is faster" in page_of(found).get_text()


def test_one_phase_can_show_what_the_other_does_not(files):
    """Each has words of its own."""
    found = sampled(planned(depths="0, 256, 512", repeats="4"), SLOWER)
    for sample in found["samples"]:
        sample["ns"] = sample["ns"] if sample["n_gen"] else 10**8
    expected = "at depth 512 prefill is open (1 to 1 times); decode is 0.5 times as fast."
    assert told(found, files)["summary"].endswith(expected)


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_few_repetitions_show_no_difference(files, repeats):
    """However far apart the samples lie, and of one repetition there is no range; of one depth nothing is compared."""
    found = told(sampled(planned(depths="0, 256, 512", repeats=str(repeats)), SLOWER), files)
    counted = "1 repetition" if repeats == 1 else f"{repeats} repetitions"
    assert found["summary"].endswith(f" With {counted}, a difference between depths may be chance.")
    page = page_of(found)
    assert "for a 95\N{NO-BREAK SPACE}% interval there are too few repetitions" in page.get_text()
    cells = [cell.get_text() for cell in page.select(".instrument-rates tbody tr")[0].select("td")]
    assert (cells[1::3] == ["one sample"] * 2) == (repeats == 1)
    alone = told(results(planned(depths="0")), files)
    assert "gainst depth" not in page_of(alone).get_text() + alone["summary"]


def test_equal_rates_seldom_show_a_difference(files):
    """In at most one of twenty comparisons a 95 % interval leaves out 1; here with room for luck."""
    random, plan, shown = Random(4), planned(depths="0, 512", repeats="5"), 0
    for _ in range(400):
        found = results(plan)
        for sample in found["samples"]:
            sample["ns"] = int(1e8 * random.lognormvariate(0, 0.1))
        shown += told(found, files)["summary"].count("times as fast")
    n_comparisons = 2 * 400
    assert 0 < shown < 1.3 * 0.05 * n_comparisons


def test_one_depth_and_one_repetition_are_a_run(files):
    """A figure of one dot, and standard deviations of 0, as llama-bench has them."""
    found = told(results(planned(depths="0", repeats="1")), files)
    assert len(page_of(found).select("circle.sample")) == 2
    assert [row["stddev_ns"] for row in found["data"]] == [0, 0]


def test_a_site_without_isolation_is_named_as_the_reason_for_one_thread(files):
    """The row of threads says it, and a run with them does not."""
    alone = page_of(told(results(planned(), isolated=False, n_threads=1), files)).get_text()
    assert "1 of 8 processors that this browser names: this site is not isolated" in alone
    assert "not isolated" not in page_of(told(results(planned()), files)).get_text()


def test_a_run_names_the_model_as_its_file_does(files):
    """Name, architecture, parameters, types of its weights, file and bytes."""
    model = read_gguf(tiny_model())
    rows = [[cell.get_text() for cell in row.select("th, td")] for row in facts_of(told(results(planned()), files))]
    said = dict(rows)["Model"]
    assert said.startswith(f"{model.name}, architecture {model.architecture}, ")
    assert f"{model.n_params:,} parameters in F16 and F32" in said
    assert said.endswith(f"file tiny.gguf of {tiny_model().stat().st_size:,} bytes")


def facts_of(found: dict) -> list:
    """The rows of what ran where."""
    return page_of(found).select(".instrument-facts tbody tr")


@pytest.mark.parametrize(
    ("date", "text"),
    [("2026-11-23T09:05:00Z", "23 November 2026, 09:05 UTC"), ("2026-11-23", "2026-11-23"), ("", "")],
)
def test_a_date_is_written_for_people(files, date, text):
    """With its zone; the saved file has it as JSON does."""
    found = told(results(planned(), date=date), files)
    assert facts_of(found)[-1].td.get_text() == f"{text}, 5 repetitions"
    assert {row["test_time"] for row in found["data"]} == {date}


def test_the_form_names_its_groups_by_what_they_are():
    """Depths are part of the tests, repetitions of a run, threads of the processor; a run needs all of them."""
    groups = BeautifulSoup(html_of(form()), "html.parser").select("fieldset")
    names = {group.legend.get_text(): [one["name"] for one in group.select("[name]")] for group in groups}
    assert names == {
        "Tests": ["depths", "n_prompt", "n_gen"],
        "Processor": ["backend", "n_threads"],
        "Run": ["repeats", "results"],
    }


def test_a_changed_form_keeps_the_run_and_says_that_it_is_another(files):
    """Rates are those of the plan that was measured."""
    changed = told(results(planned()), files, repeats="7")
    assert "The form asks for another run" in page_of(changed).get_text()
    assert changed["data"] == told(results(planned()), files)["data"]
    assert "another run" not in page_of(told(results(planned()), files)).get_text()


# --- llama-bench's JSON ----------------------------------------------------------------------------------


def test_the_rows_are_llama_benchs_own(files):
    """All fields in its order and kinds, with its statistics, for each test of the plan."""
    rows = told(results(planned()), files)["data"]
    tests = [(n_prompt, n_gen, depth) for depth in (0, 256, 512, 768) for n_prompt, n_gen in ((128, 0), (0, 32))]
    assert [(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in rows] == tests
    model = read_gguf(tiny_model())
    for row in rows:
        assert list(row) == list(FIELDS)
        assert all(isinstance(row[name], kind) for name, kind in FIELDS.items())
        samples = [nanoseconds(row["n_gen"], row["n_depth"], repetition) for repetition in range(5)]
        rates = [1e9 * (row["n_prompt"] + row["n_gen"]) / ns for ns in samples]
        assert (row["samples_ns"], row["avg_ns"], row["stddev_ns"]) == (samples, mean(samples), round(stdev(samples)))
        assert (row["avg_ts"], row["stddev_ts"]) == pytest.approx((mean(rates), stdev(rates)))
        assert (row["build_number"], row["build_commit"], row["backends"]) == (11364, "46ca246", "CPU")
        assert (row["model_size"], row["model_n_params"]) == (model.tensor_bytes, model.n_params)
        assert (row["cpu_info"], row["n_threads"]) == ("WebAssembly in A browser", 4)


def test_the_saved_file_is_read_by_the_library(files, tmp_path):
    """Decode at each depth and prefill at depth 0 are runs with the same rates; a longer prompt's end is none."""
    path = tmp_path / "llama-bench.json"
    found = results(planned())
    path.write_text(json.dumps(told(found, files)["data"], indent=1))
    with pytest.raises(RecordError, match="continues a prompt"):
        import_llama_bench(path)
    prefill, *decodes = import_llama_bench(path, leave_out=True)
    run = read_run(json.dumps(found))
    assert prefill.prefill_tokens_per_second == pytest.approx(run.rates((128, 0, 0))[0])
    assert [one.n_prompt for one in decodes] == [0, 256, 512, 768]
    for one in decodes:
        assert one.decode_tokens_per_second == pytest.approx(run.rates((0, 32, one.n_prompt))[0])
    assert {one.machine.llama_cpp_commit for one in (prefill, *decodes)} == {"46ca246"}


def test_a_gpu_is_named_in_the_rows(files):
    """llama-bench's words: the backend, the GPU, and layers on it."""
    plan = planned(backend="webgpu") | {"step": "measure", "check": AGREED}
    row = told(results(plan, gpu="a vendor"), files)["data"][0]
    assert (row["backends"], row["gpu_info"], row["n_gpu_layers"]) == ("WebGPU", "a vendor", -1)
    (run,) = from_rows([row])
    assert run.machine.gpus[0].backend == "WebGPU"


# --- what else may come ----------------------------------------------------------------------------------


def test_what_a_browser_says_is_text_and_never_markup(files):
    """Names that are scripts stand there letter by letter, and long ones are cut."""
    page = page_of(told(results(planned(), user_agent=HOSTILE, build=HOSTILE, date=HOSTILE), files))
    assert page.find_all(["img", "script"]) == []
    assert page.get_text().count(HOSTILE) == 3
    lacking = {**SOFTWARE, "offloaded": [0, 7], "gpu_name": HOSTILE, "lacks": [HOSTILE, "n" * 10_000]}
    refused = page_of(told({"plan": planned(backend="webgpu"), "step": "check", "check": lacking}, files))
    assert (refused.find_all(["img", "script"]), refused.get_text().count(HOSTILE)) == ([], 2)
    assert len(refused.p.get_text()) < 800
    long = page_of(told(results(planned(), user_agent="n" * 10_000), files))
    assert max(len(cell.get_text()) for cell in long.select("td")) < 400


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", "[" * 100_000, '{"plan": {}}', '{"plan": {"depths": [0]}, "step": 3}', "0" * 5000]
)
def test_what_is_no_result_is_refused_with_what_to_do(text):
    """Nothing of it is shown."""
    with pytest.raises(RecordError, match="Press Start again"):
        read_run(text)


def test_a_plan_in_results_is_held_to_the_rules_of_the_form():
    """Numbers that no form would send are refused, too."""
    with pytest.raises(InvalidSettings, match="Repetitions"):
        read_run(json.dumps(results({**planned(), "repeats": 0})))
    with pytest.raises(InvalidSettings, match="Backend"):
        BrowserPlan((0,), 1, 1, 1, 0, "cuda")


@pytest.mark.parametrize("seed", range(4))
def test_damaged_results_have_an_answer_or_a_reason(files, seed):
    """Values replaced, taken out or doubled: an answer that JSON can carry, or a refusal that is no fault."""
    random, kinds = Random(seed), {"answered": 0, "refused": 0}
    gpu = planned(backend="webgpu", repeats="2")
    check = {"plan": gpu, "step": "check", "check": {**SOFTWARE, "lacks": ["shader-f16"]}}
    measured = results(gpu | {"step": "measure", "check": check["check"]})
    for _ in range(150):
        damaged = copy.deepcopy(random.choice([check, measured, results(planned(repeats="2"))]))
        for _ in range(random.randint(0, 2)):
            damage(random, damaged)
        found = told(damaged, files)
        shown = html_of(found["view"])
        assert UNEXPECTED not in shown, (damaged, shown)
        json.dumps(found["data"], allow_nan=False)
        kinds["refused" if found["state"] == "refused" else "answered"] += 1
    assert min(kinds.values()) > 20


def damage(random: Random, value: dict | list) -> None:
    """Change something somewhere in nested dictionaries and lists."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return
    place = random.choice(places)
    if isinstance(value[place], dict | list) and random.random() < 0.7:
        damage(random, value[place])
    elif random.random() < 0.2:
        del value[place]
    else:
        odd = [None, True, -1, 0, 1, 0.5, 1e308, float("nan"), 10**400, "", HOSTILE, "\ud800", [], {}, [[]], "9" * 5000]
        value[place] = random.choice(odd)


def test_results_without_the_models_header_name_it(files):
    """The page sends it with the results; without it there are no rows."""
    with pytest.raises(InferlabError, match=r"tiny\.gguf"):
        answer({**DEFAULTS, "results": json.dumps(results(planned()))}, NO_FILES)
