"""Your numbers: files read or refused one by one, rates beside bound and atlas, two compared, a record to share."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from statistics import median

import pytest
from bench_rows import RECORDS, as_bytes, fuzz_results, on_card, rows, timed
from bs4 import BeautifulSoup

from inferlab import instruments
from inferlab.atlas.contribute import problems
from inferlab.atlas.entries import entries
from inferlab.instruments import your_numbers
from inferlab.instruments.browser_run import BrowserPlan, BrowserRun, llama_bench_rows
from inferlab.instruments.dropped import LARGEST_WHOLE, DroppedFiles
from inferlab.instruments.numbers_text import machine_text
from inferlab.instruments.views import html_of
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.records import from_record, load
from inferlab.units import GB, factor_text, number_text

NO_FILES = DroppedFiles(Path("none"))
HOSTILE = '<img src=x onerror="alert(1)"></td><script>alert(2)</script>'


def dropped(folder: Path, **contents: bytes) -> tuple[DroppedFiles, str]:
    """Files that a front end sent, by their names without .json, and the question's list of them."""
    files = DroppedFiles(folder)
    for name, data in contents.items():
        assert instruments.sent(files, f"{name}.json", len(data), 0, data, True)["kind"] == "read"
    return files, json.dumps([f"{name}.json" for name in contents])


def answered(folder: Path, changed: dict[str, str] | None = None, **contents: bytes) -> dict:
    """The answer about some files."""
    files, names = dropped(folder, **contents)
    question = {**your_numbers.DEFAULTS, "files": names, **(changed or {})}
    return instruments.answered("your-numbers", question, files)


def page_of(answer: dict) -> BeautifulSoup:
    return BeautifulSoup(html_of(answer["view"]), "html.parser")


def test_the_default_answer_is_a_record_of_the_book():
    """Its rates are those of the runs with one, two and three threads, and the second is compared with the first."""
    answer = instruments.answered("your-numbers", your_numbers.DEFAULTS, NO_FILES)
    recorded = load(your_numbers.EXAMPLE).runs
    rates = [one["rate"] for one in answer["data"]["read"]["results"] if not one["n_prompt"]]
    assert rates == pytest.approx([run.decode_tokens_per_second for run in recorded])
    assert [run.settings.n_threads for run in recorded] == [1, 2, 3]
    assert {run.machine.n_cores for run in recorded} == {2}
    assert answer["summary"].startswith("Example: 6 tests of 1 file")
    assert answer["data"]["read"]["comparison"]["decode"]["n_pairs"] == 1
    assert answer["data"]["contribution"] is None


def test_two_machines_are_compared_and_bounded(tmp_path):
    """A card that a file names has its bound; half the time is twice the rate, with an interval around it."""
    slow, fast = as_bytes(on_card(slower=16)), as_bytes(on_card(slower=8), "jsonl")
    answer = answered(tmp_path, slow=slow, fast=fast)
    read = answer["data"]["read"]
    assert answer["state"] == "yes"
    decode = read["comparison"]["decode"]
    assert (decode["n_pairs"], decode["n_faster"]) == (1, 1)
    assert decode["median_ratio"] == pytest.approx(2, rel=0.02)
    assert all(low < 2 < high for low, high in (pair["interval"] for pair in read["comparison"]["pairs"]))
    assert read["bounds"][0] == read["bounds"][1]
    assert max(one["rate"] for one in read["results"] if not one["n_prompt"]) < read["bounds"][0] < 1008 * GB / 4e9
    assert "GeForce RTX 4090: 1,008 GB/s" in page_of(answer).get_text()


@pytest.mark.parametrize(("first", "second", "faster"), [(8, 28, 1), (28, 8, 2)])
def test_the_faster_one_is_named(tmp_path, first, second, faster):
    """Whichever comes first: its factor and both ends of the interval are above 1."""
    answer = answered(tmp_path, a=as_bytes(on_card(slower=first)), b=as_bytes(on_card(slower=second)))
    names = ["number 1 (a.json)", "number 2 (b.json)"]
    told = f"{names[faster - 1]} decodes 3.5 times as fast as {names[2 - faster]}."
    assert told in answer["summary"].replace("Number", "number")
    for row in page_of(answer).select(".instrument-comparison > table tbody tr"):
        cells = {cell["data-label"]: cell.get_text() for cell in row.select("td")}
        name, _, times = cells["Result"].removesuffix(" times as fast").partition(", ")
        direction, _, ends = cells["95\u00a0% interval"].partition(" at ")
        low, high = map(float, ends.removesuffix(f" times number {3 - faster}").split(" to "))
        assert name == direction == f"Number {faster}"
        assert 1 < low <= float(times) <= high
        assert cells["What differs"] == "none"


def test_no_difference_is_left_out(tmp_path):
    """Long values push names of settings to the end of the cell, and none of them out of it."""
    long = {"cpu_info": "c" * 500, "gpu_info": "g" * 500, "backends": "b" * 500, "n_batch": 7, "n_ubatch": 8}
    answer = answered(tmp_path, a=as_bytes(rows()), b=as_bytes([{**row, **long} for row in rows()]))
    told = page_of(answer).select_one("[data-label='What differs']").get_text()
    assert told.startswith("processor: Intel(R) Xeon(R) Processor and ccc")
    assert told.endswith("; also n_batch, n_ubatch")


def test_equal_rates_have_no_faster_one(tmp_path):
    """An interval that contains 1 names no winner, neither in a sentence nor in the table."""
    same, nearly = as_bytes(on_card(slower=8)), as_bytes(on_card(slower=8.05))
    answer = answered(tmp_path, a=same, b=nearly)
    (low, high) = answer["data"]["read"]["comparison"]["pairs"][1]["interval"]
    assert low < 1 < high
    told = f"Decode: open; number 2 (b.json) at {low:.3g} to {high:.3g} times the rate of number 1 (a.json)."
    assert answer["summary"].endswith(told)
    page = page_of(answer)
    assert told in page.get_text()
    assert [cell.get_text() for cell in page.select("[data-label=Result]")] == ["open", "open"]
    assert "as fast" not in page.select_one(".instrument-comparison table:last-of-type").get_text()


def test_few_repetitions_have_a_factor_without_an_interval(tmp_path):
    """The ratio of the rates with its direction, and the reason why nothing more is said."""
    few = [as_bytes([timed(row, n_samples=3) for row in on_card(slower=by)]) for by in (16, 8)]
    answer = answered(tmp_path, a=few[0], b=few[1])
    told = "Decode: number 2 (b.json) at 2 times the rate of number 1 (a.json), without an interval."
    assert answer["summary"].endswith(told)
    (cell, _) = page_of(answer).select("[data-label^='95']")
    assert cell.get_text() == "too few repetitions for a 95\u00a0% interval"


@pytest.mark.parametrize(("n", "is_tested"), [(2, False), (6, True)])
def test_a_sign_test_of_few_is_not_told(tmp_path, n, is_tested):
    """Two of two say nothing by their signs; of six the confidence is shown, with how many are open."""
    files = {
        name: as_bytes([row for k in range(1, n + 1) for row in on_card(slower=by, n_gen=k)[1:]])
        for name, by in (("a", 16), ("b", 8))
    }
    told = page_of(answered(tmp_path, **files)).select_one(".instrument-comparison").get_text()
    assert f"Of {n} matched tests: number 2 (b.json) is faster in {n}." in told
    assert ("By the sign test" in told) is is_tested


def test_a_model_of_no_known_size_has_its_weights_counted(tmp_path):
    """llama.cpp's own `?B` is shown nowhere, and is left as it is in what is saved."""
    answer = answered(tmp_path, a=as_bytes(rows()), b=as_bytes(rows()))
    text = page_of(answer).get_text()
    assert "llama 5.77M F16" in text
    assert "?B" not in text
    assert {one["model"] for one in answer["data"]["read"]["results"]} == {"llama ?B F16"}


@pytest.mark.parametrize(
    ("ratio", "text"), [(1, "1"), (1.0004, "1.0004"), (0.9996, "0.9996"), (1.8249, "1.82"), (1234.5, "1,234")]
)
def test_a_factor_reads_as_1_only_where_it_is(ratio, text):
    """Else an interval that excludes 1 would seem to contain it."""
    assert factor_text(ratio) == text


def test_results_are_named_by_what_tells_them_apart(tmp_path):
    """Files by their names, and what all share is said once; runs of one file by their settings."""
    titles = "fieldset tbody th"
    page = page_of(answered(tmp_path, a=as_bytes(rows()), b=as_bytes(rows())))
    assert [title.get_text() for title in page.select(titles)] == ["1: a.json (2 tests)", "2: b.json (2 tests)"]
    assert "The same in all: Intel(R) Xeon(R) Processor; CPU; build 0c1e570." in page.get_text()
    several = as_bytes([*rows(), *({**row, "n_threads": 4} for row in rows())])
    page = page_of(answered(tmp_path, both=several))
    assert [title.get_text() for title in page.select(titles)] == [
        "1: n_threads 2 (2 tests)",
        "2: n_threads 4 (2 tests)",
    ]


def test_a_sentence_names_two_by_the_least_that_suffices(tmp_path):
    """By their files if each has one of its own, however much else differs."""
    other = as_bytes(on_card(slower=16, cpu_info="Z80", n_batch=7, build_commit="abc"))
    summary = answered(tmp_path, a=as_bytes(on_card()), b=other)["summary"]
    assert summary.endswith("Number 1 (a.json) decodes 2 times as fast as number 2 (b.json).")


def test_the_two_are_chosen_in_the_answer(tmp_path):
    """Buttons beside each name say which is compared as what; a number that is not there is the first two."""
    files = {name: as_bytes(on_card(slower=by)) for name, by in (("a", 8), ("b", 16), ("c", 24))}
    chosen = "fieldset input[checked]"
    page = page_of(answered(tmp_path, {"first": "3", "second": "1"}, **files))
    assert [(one["name"], one["value"]) for one in page.select(chosen)] == [("second", "1"), ("first", "3")]
    page = page_of(answered(tmp_path, {"first": "4", "second": "1"}, **files))
    assert [(one["name"], one["value"]) for one in page.select(chosen)] == [("first", "1"), ("second", "2")]
    page = page_of(answered(tmp_path, {"first": "3", "second": "3"}, **files))
    assert "Number 3 is chosen as first and as second" in page.get_text()


@pytest.mark.parametrize(("model", "title"), [("llama 8B Q4_K - Medium", "Decode"), (None, "Decode beside the atlas")])
def test_the_atlas_is_named_where_it_has_the_model(tmp_path, model, title):
    """A model that no record has stands alone: no title and no colour speaks of the atlas."""
    one = as_bytes(on_card()) if model else (RECORDS / "llama-3.2-1b-Q4_K_M.json").read_bytes()
    section = page_of(answered(tmp_path, one=one)).select_one(".instrument-rates")
    assert section.h2.get_text() == title
    assert bool(section.select("svg .known")) is (model is None)
    assert ("The atlas has no decode rate of this model" in section.get_text()) is (model is not None)


def test_bars_have_numbers_a_unit_and_a_named_bound(tmp_path):
    """The axis says tokens/s; the bound's line has its name, and stands right of its bar by their ratio."""
    answer = answered(tmp_path, one=as_bytes(on_card()))
    section, (bound,) = page_of(answer).select_one(".instrument-rates"), answer["data"]["read"]["bounds"]
    axis = [text.get_text() for text in section.select(".instrument-axis text")]
    assert axis[-1] == "tokens/s"
    assert float(axis[-2]) > bound > float(axis[-3]) > float(axis[0]) == 0
    assert section.select_one(".instrument-bar text").get_text() == "bound"
    place, width = section.select_one("line.bound")["x1"], section.select_one(".instrument-bar rect.own")["width"]
    rate = answer["data"]["read"]["results"][1]["rate"]
    assert float(place.rstrip("%")) / float(width.rstrip("%")) == pytest.approx(bound / rate, rel=1e-3)


def test_bars_name_a_machine_where_they_are_of_several(tmp_path):
    """Of one machine its name stands beside the model, of two beside each bar."""
    card, other = as_bytes(on_card("NVIDIA GeForce RTX 4090")), as_bytes(on_card("NVIDIA GeForce RTX 4060"))
    one, two = (page_of(answered(tmp_path, **files)) for files in ({"a": card, "b": card}, {"a": card, "b": other}))
    assert ["RTX 4090" in bar.get_text() for bar in one.select(".instrument-bar")] == [False, False]
    assert "Q4_K - Medium on NVIDIA GeForce RTX 4090; Intel" in one.select_one(".instrument-rates p").get_text()
    assert ["RTX 4090" in bar.get_text() for bar in two.select(".instrument-bar")] == [True, False]


def test_bars_of_one_file_are_told_apart(tmp_path):
    """By the settings in which they differ."""
    both = as_bytes([*on_card(), *on_card(n_batch=7)])
    bars = [bar.get_text() for bar in page_of(answered(tmp_path, a=both)).select(".instrument-bar span")]
    assert ["n_batch 768:" in bars[0], "n_batch 7:" in bars[1]] == [True, True]


def test_detail_is_folded(tmp_path):
    """All tests, the bounds and how ratios are computed; pairs only where they are many, so that a phone shows it."""
    few = page_of(answered(tmp_path, a=as_bytes(rows()), b=as_bytes(rows())))
    folds = [fold["id"] for fold in few.select("details:not([open])")]
    assert folds == ["residuals", "ratios", "tests"]
    many = as_bytes([timed({**row, "n_prompt": n}) for n in range(1, 6) for row in rows()[:1]])
    assert "Each of 5 pairs" in page_of(answered(tmp_path, a=many, b=many)).select_one("#pairs summary").get_text()


def test_a_column_without_a_text_is_left_out(tmp_path):
    """Without a prediction no column speaks of one, and a sentence says so; with some there are both columns."""
    heads = "#residuals th[scope=col]"
    page = page_of(answered(tmp_path, one=as_bytes(on_card("NVIDIA GeForce RTX 4090", model_type="a 8B Q4_0"))))
    assert [head.get_text() for head in page.select(heads)] == ["Test", "Measured", "Bound", "Of the bound"]
    assert "The atlas has no prediction for any of these tests." in page.get_text()
    page = page_of(instruments.answered("your-numbers", your_numbers.DEFAULTS, NO_FILES))
    assert [head.get_text() for head in page.select(heads)][-2:] == ["Predicted", "Measured against it"]


def test_the_first_line_names_what_was_not_read(tmp_path):
    """A file that was refused is no part of another: files and parts are counted each by themselves."""
    half = [{**rows()[0], "n_prompt": "many"}, rows()[1]]
    table = b"| model | t/s |"
    summary = answered(tmp_path, good=as_bytes(rows()), half=as_bytes(half), table=table)["summary"]
    assert summary.startswith("3 tests of 2 files: decode")
    assert summary.endswith("Not read: table.json; 1 part of half.json.")
    pasted = answered(tmp_path, {"pasted": as_bytes(rows()).decode()}, good=as_bytes(rows()))["summary"]
    assert pasted.startswith("4 tests of 1 file and pasted text")
    assert "Not read" not in pasted
    many = {f"t{n}": table for n in range(6)}
    assert answered(tmp_path, good=as_bytes(rows()), **many)["summary"].endswith("t3.json; and 2 more.")


def test_a_rate_above_its_bound_has_likely_reasons(tmp_path):
    """It is no error, and the answer says which it is and what it may mean."""
    answer = answered(tmp_path, impossible=as_bytes(on_card(slower=1)))
    assert "The rate of tg127 @ d512 of impossible.json lies above its bound: likely reasons" in answer["summary"]
    two = answered(tmp_path, a=as_bytes(on_card(slower=1)), b=as_bytes(on_card(slower=1)), c=as_bytes(on_card()))
    assert "2 rates lie above their bounds, the first that of tg127 @ d512 of a.json:" in two["summary"]
    assert answer["state"] == "unsure"
    assert "Why a rate may lie above its bound" in page_of(answer).get_text()


@pytest.mark.parametrize(
    ("n_gpu_layers", "remark"),
    [(16, " (16 of 33 layers on the GPU)"), (32, " (32 of 33 layers on the GPU)"), (33, ""), (-1, "")],
)
def test_a_model_in_part_on_the_gpu_has_a_remark(tmp_path, n_gpu_layers, remark):
    """Beside its share of the bound, because the card alone does not bound such a run."""
    page = page_of(answered(tmp_path, one=as_bytes(on_card(n_gpu_layers=n_gpu_layers))))
    share, _, told = page.select_one("[data-label='Of the bound']").get_text().partition("\u00a0%")
    assert 0 < int(share) < 100
    assert told == remark
    assert ("the bound of the card alone lies too high" in page.get_text()) is bool(remark)


def test_bounds_are_told_once_with_their_tests(tmp_path):
    """Tests whose tokens need as many bytes share a line, with others beside it."""
    one, other = on_card(), on_card(n_depth=4096, slower=9)[1:]
    page = page_of(answered(tmp_path, a=as_bytes(one), b=as_bytes(one + other)))
    told = [text for part in page.select("#residuals p") if "GB/s over" in (text := part.get_text())]
    assert len(told) == 2
    assert told[0].endswith("It is the bound of tg127 @ d512 of a.json, tg127 @ d512 of b.json.")
    assert told[1].endswith("It is the bound of tg127 @ d4096 of b.json.")


def test_a_test_stands_beside_public_results(tmp_path):
    """The first decode and the first prompt at the top, every test in the table, and the rows with their addresses."""
    answer = answered(tmp_path, one=as_bytes(on_card(n_depth=0)), two=as_bytes(on_card(n_depth=0, slower=9)))
    page, (prompt, decode, *others) = page_of(answer), answer["data"]["read"]["public"]
    first, second = (part.get_text() for part in page.select(".instrument-numbers > p"))
    percent = round(100 * (answer["data"]["read"]["results"][1]["rate"] / decode["median"] - 1))
    told = (
        f"{abs(percent)}\u00a0% below the median of {decode['n_rows']} public results on this card with this model in"
    )
    assert first.startswith("tg127 of one.json: 109 tokens/s, ")
    assert told in first
    assert f"Expected is about {number_text(decode['expected']['rate'])} tokens/s, between " in first
    assert second.startswith("pp512 of one.json: ")
    assert len(page.select("#residuals tbody tr")) == 2 + len(others) == 4
    heads = [head.get_text() for head in page.select("#residuals th[scope=col]")]
    assert heads[-2:] == ["Public median", "Expected"]
    links = [link["href"] for link in page.select("#public a")]
    assert len(links) == decode["n_rows"] + prompt["n_rows"]
    assert all(link.startswith("https://github.com/") for link in links)


@pytest.mark.parametrize(
    ("rows_of", "told"),
    [
        ({"name": "NVIDIA GeForce RTX 3060 Ti", "backends": "Vulkan"}, "none of the public results is such a test"),
        ({"n_gpu_layers": 16}, "nearest: 2 with another part in RAM, "),
        ({"model_type": "llama 8B Q8_0", "model_size": 8532934656, "backends": "Vulkan"}, "another backend"),
    ],
)
def test_without_a_public_result_the_nearest_are_named(tmp_path, rows_of, told):
    """With what differs in them; none is called what it is not."""
    first = page_of(answered(tmp_path, one=as_bytes(on_card(n_depth=0, **rows_of)))).select_one(
        ".instrument-numbers > p"
    )
    assert told in first.get_text()


@pytest.mark.parametrize(
    ("of_band", "title"),
    [
        (lambda band, bound: 0.9 * band["low"], "What to look at below the expected rate"),
        (lambda band, bound: band["rate"], ""),
        (lambda band, bound: (band["high"] + bound) / 2, "Why a rate may lie above the expected one"),
        (lambda band, bound: 1.1 * bound, "Why a rate may lie above its bound"),
    ],
)
def test_what_to_look_at_is_named_outside_the_band(tmp_path, of_band, title):
    """Below it what explains a gap, above it what that may mean, and inside neither."""
    measured = on_card("AMD Radeon RX 7900 XTX", backends="Vulkan", n_depth=0)[1:]
    read = answered(tmp_path, one=as_bytes(measured))["data"]["read"]
    slower = read["results"][0]["rate"] / of_band(read["public"][0]["expected"], read["bounds"][0])
    page = page_of(answered(tmp_path, one=as_bytes([timed(row, slower) for row in measured])))
    assert [head.get_text() for head in page.select(".instrument-residuals h2")] == [title] * bool(title)
    reasons = " ".join(part.get_text() for part in page.select(".instrument-residuals > section li"))
    assert ("is an old one" in reasons) is title.startswith("What")
    assert "RAM" not in reasons


def test_public_rows_are_saved_without_names(tmp_path):
    """One for each test that has a card and a known model; without such a test there is no button."""
    named = {"model_filename": "/home/me/secret/Meta-Llama-3.1-8B-Instruct.gguf", "cpu_info": "my-host"}
    answer = answered(tmp_path, one=as_bytes(on_card(**named)))
    rows_saved = answer["data"]["public_rows"]
    assert [(row["model"], row["phase"]) for row in rows_saved] == [
        ("llama-3.1-8b", "prompt"),
        ("llama-3.1-8b", "decode"),
    ]
    assert not re.search("home|secret|host|gguf|Instruct", json.dumps(rows_saved))
    saving = "[data-part=public_rows]"
    assert page_of(answer).select_one(saving)["data-save"] == "public-rows.json"
    answer = answered(tmp_path, one=as_bytes(rows()))
    assert answer["data"]["public_rows"] is None
    assert not page_of(answer).select(saving)


@pytest.mark.parametrize(("card", "bounded"), [("named", True), ("none", False), ("rtx-4060", True)])
def test_the_card_of_the_bound_can_be_chosen(tmp_path, card, bounded):
    """As the file names it, none, or any of the list."""
    bound = answered(tmp_path, {"card": card}, one=as_bytes(on_card()))["data"]["read"]["bounds"][0]
    assert (bound is not None) is bounded


def test_each_file_is_read_or_refused_by_itself(tmp_path):
    """A table for people, a wrong row and a file that is gone are named with their reasons, and cost no other file."""
    wrong = [{**rows()[0], "n_prompt": "many"}, rows()[1]]
    files, names = dropped(tmp_path, good=as_bytes(rows()), half=as_bytes(wrong), table=b"| test | t/s |\n|--|--|\n")
    names = json.dumps([*json.loads(names), "gone.json"])
    answer = instruments.answered("your-numbers", {**your_numbers.DEFAULTS, "files": names}, files)
    assert len(answer["data"]["read"]["results"]) == 3
    told = " ".join(answer["data"]["read"]["not_read"])
    assert "table.json holds no test below line 1" in told
    assert "llama-bench -o json > results.json" in told
    assert "half.json: Test 1: n_prompt is 'many', no whole number" in told
    assert "'gone.json' is not here" in told


def test_what_does_not_match_is_not_put_together(tmp_path):
    """Another model has no partner, and is listed with the reason."""
    other = as_bytes([{**row, "model_type": "llama 1B F16"} for row in rows()])
    comparison = answered(tmp_path, one=as_bytes(rows()), other=other)["data"]["read"]["comparison"]
    assert comparison["pairs"] == []
    assert len(comparison["alone"]) == 4


def test_settings_of_one_file_are_compared(tmp_path):
    """Rows with other threads are runs of their own; by files there is but one."""
    several = as_bytes([*rows(), *({**row, "n_threads": 4} for row in rows())])
    assert len(answered(tmp_path, both=several)["data"]["read"]["comparison"]["pairs"]) == 2
    one = answered(tmp_path, {"by": "file"}, both=several)
    assert one["data"]["read"]["comparison"] is None
    assert "There is one so far" in page_of(one).get_text()


def test_a_contribution_is_a_record_without_paths(tmp_path):
    """It fits the schema, is read as runs, and holds what llama-bench timed."""
    record = answered(tmp_path, one=as_bytes(on_card()))["data"]["contribution"]
    assert problems(record) == []
    assert "/home" not in json.dumps(record)
    (run,) = from_record(record)
    assert run.made_with == "llama-bench"
    expected = median(1e9 * 127 / ns for ns in on_card()[1]["samples_ns"])
    assert run.decode_tokens_per_second == pytest.approx(expected)
    path = tmp_path / "atlas" / "rtx-4090" / "llama-bench.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    (entry,) = entries(path.parents[1])
    assert entry.rates["decode"][0] == pytest.approx(expected)


def test_a_record_is_of_one_machine(tmp_path):
    """Results of two machines are not saved as one record, and the page says what to remove; of one they are."""
    cards = [on_card(f"NVIDIA GeForce RTX {name}") for name in (4090, 4060)]
    answer = answered(tmp_path, a=as_bytes(cards[0]), b=as_bytes(cards[1]))
    assert answer["data"]["contribution"] is None
    page = page_of(answer)
    assert page.select("[data-part=contribution]") == []
    assert "The tests are of 2 machines: NVIDIA GeForce RTX 4090; Intel" in page.get_text()
    assert "Keep the files of one" in page.get_text()
    assert answered(tmp_path, a=as_bytes(cards[0]), b=as_bytes(cards[0]))["data"]["contribution"]


def test_what_is_not_in_a_record_is_named_by_its_file(tmp_path):
    """And by its place there; means alone are to be measured again with -o json."""
    mixed = as_bytes([*on_card(), on_card(n_gen=7, n_prompt=5)[1]])
    page = page_of(answered(tmp_path, good=mixed, means=as_bytes(on_card(), "csv")))
    told = [entry.get_text() for entry in page.select(".instrument-list li")][-3:]
    assert told[0].startswith("good.json, test 3: pp5+tg7 is one time for both phases")
    assert told[1] == "means.json, test 1: it lacks samples_ns. Measure with llama-bench -o json."


def test_a_record_of_the_book_is_read(tmp_path):
    """A run saved by this library has the rates that it shows elsewhere."""
    run = load("xeon-2c/llama-3.2-1b-Q4_K_M")
    read = answered(tmp_path, mine=(RECORDS / "llama-3.2-1b-Q4_K_M.json").read_bytes())["data"]["read"]
    expected = [run.prefill_tokens_per_second, run.decode_tokens_per_second]
    assert [one["rate"] for one in read["results"]] == pytest.approx(expected)


CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.0.0 Safari/537.36"


def of_browser(agent: str, backend: str = "cpu", gpu: str = "") -> bytes:
    """The file that the browser benchmark saves after a run with made-up times."""
    plan = BrowserPlan((0, 256), n_prompt=64, n_gen=16, repeats=5, n_threads=2, backend=backend)
    samples = {test: tuple(range(10**8, 10**8 + 5 * 10**6, 10**6)) for test in plan.tests}
    run = BrowserRun(
        plan,
        "measure",
        None,
        build="b11364-46ca246",
        n_threads=2,
        n_batch=1024,
        n_ubatch=512,
        user_agent=agent,
        gpu=gpu,
        model="tiny.gguf",
        date="2026-11-23T09:00:00Z",
        samples=samples,
    )
    return as_bytes(llama_bench_rows(run, read_gguf(tiny_model())))


def test_a_run_in_a_browser_is_read_as_one(tmp_path):
    """Every test of the file that the browser benchmark saves, with its rates, named as a browser's all the way."""
    agent = CHROME.format(150)
    answer = answered(tmp_path, browser=of_browser(agent))
    results, page = answer["data"]["read"]["results"], page_of(answer)
    assert [one["test"] for one in results] == ["pp64", "tg16", "pp64 @ d256", "tg16 @ d256"]
    assert [one["rate"] for one in results[:2]] == pytest.approx([64 / 0.102, 16 / 0.102])
    assert {one["cpu"] for one in results} == {f"WebAssembly in {agent}"}
    places = [page.select_one(".instrument-rates p"), *page.select("#tests [data-label^=Machine]")]
    assert len(places) == 1 + 4
    assert all("WebAssembly in Chrome 150 on Linux" in place.get_text() for place in places)
    record = answer["data"]["contribution"]
    assert problems(record) == []
    assert {run["machine"]["cpu"] for run in record["sequence"]} == {f"WebAssembly in {agent}"}


def test_a_gpu_in_a_browser_is_a_browsers(tmp_path):
    """With WebGPU both the GPU and the browser are named."""
    page = page_of(answered(tmp_path, browser=of_browser(CHROME.format(150), "webgpu", "nvidia ampere")))
    (machine,) = {cell.get_text() for cell in page.select("#tests [data-label^=Machine]")}
    assert machine == "nvidia ampere; WebAssembly in Chrome 150 on Linux, WebGPU"


def test_two_browsers_are_told_apart(tmp_path):
    """By their versions."""
    page = page_of(answered(tmp_path, **{f"b{n}": of_browser(CHROME.format(n)) for n in (149, 150)}))
    titles = [title.get_text() for title in page.select("fieldset tbody th")]
    assert ["Chrome 149 on Linux" in titles[0], "Chrome 150 on Linux" in titles[1]] == [True, True]


WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140 on Windows"),
        (f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) {WEBKIT} Version/18.1 Safari/605.1.15", "Safari 18 on macOS"),
        (f"{CHROME.format(150)} Edg/150.0.0.0", "Edge 150 on Linux"),
        ("Mozilla/5.0 (a system) Something/1.0", "Mozilla/5.0 (a system) Something/1.0"),
        ("A browser", "A browser"),
    ],
)
def test_a_browser_has_its_short_name(agent, shown):
    """One that is not known keeps what it says, and what stands around it stays."""
    assert machine_text(f"a GPU; WebAssembly in {agent}") == f"a GPU; WebAssembly in {shown}"


def test_each_file_can_be_removed(tmp_path):
    """Those that were not read, too; the example has no file, and a pasted text is none."""
    files, names = dropped(tmp_path, good=as_bytes(on_card()), bad=b"nothing")
    question = {**your_numbers.DEFAULTS, "files": names, "pasted": as_bytes(on_card()).decode()}
    page = page_of(instruments.answered("your-numbers", question, files))
    assert [entry.get_text() for entry in page.select(".instrument-files li")] == [
        "good.json: llama-bench, 2 tests Remove",
        "bad.json: not read Remove",
    ]
    assert [button["data-drop"] for button in page.select(".instrument-files button")] == ["good.json", "bad.json"]
    example = page_of(instruments.answered("your-numbers", your_numbers.DEFAULTS, NO_FILES))
    assert example.select(".instrument-files") == []


@pytest.mark.parametrize(
    ("by", "also"),
    [
        ("settings", "They differ in GPU and build, too."),
        ("machine", "They differ in build and n_ubatch, too."),
        ("build", "They differ in GPU and n_ubatch, too."),
        ("run", ""),
    ],
)
def test_what_else_may_be_the_cause_is_named(tmp_path, by, also):
    """Where two differ in more than what is compared, the first line says in what."""
    changed = {"gpu_info": "another card", "build_commit": "abcdef0", "n_ubatch": 64}
    one, two = as_bytes(on_card()), as_bytes([{**row, **changed} for row in on_card(slower=8)])
    answer = answered(tmp_path, {"by": by}, one=one, two=two)
    assert ("They differ" in answer["summary"]) is bool(also)
    assert also in answer["summary"]
    assert also in page_of(answer).select_one(".instrument-comparison").get_text()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"card": "rtx-4061"}, "Card: 'rtx-4061' is not in the list"),
        ({"by": "mood"}, "Compare: 'mood'"),
        ({"first": "one"}, "First: 'one' is no whole number"),
        ({"files": "{"}, "Files: this is no list of names"),
        ({"files": json.dumps([*map(str, range(21))])}, "Files: 21 are more than 20"),
        ({"pasted": "hello"}, "Its first line is 'hello'"),
        ({"pasted": '{"a": 1}'}, "its fields are 'a', not those of a test"),
        ({"pasted": '{"record": "calibration", "schema": 2}'}, "a record of the kind 'calibration'"),
        ({"pasted": "[" * 100_000}, "more than 100 levels"),
    ],
)
def test_what_cannot_be_answered_has_a_reason(changed, told):
    """With what was found and what can be read."""
    answer = instruments.answered("your-numbers", {**your_numbers.DEFAULTS, **changed}, NO_FILES)
    assert answer["state"] == "refused"
    assert told in answer["view"][2]


def test_a_large_file_is_refused_and_not_kept(tmp_path):
    """Before a byte of it is written."""
    reply = instruments.sent(DroppedFiles(tmp_path), "big.json", LARGEST_WHOLE + 1, 0, b"[", True)
    assert reply["kind"] == "refused"
    assert "up to 4.00 MiB" in reply["text"]
    assert [*tmp_path.iterdir()] == []


def test_texts_of_a_file_stay_texts(tmp_path):
    """A model, a machine and a build that are markup stand there letter by letter."""
    named = dict.fromkeys(("model_type", "cpu_info", "backends", "build_commit"), HOSTILE)
    page = page_of(answered(tmp_path, one=as_bytes([{**row, **named} for row in rows()])))
    assert page.select("img, script") == []
    assert HOSTILE in page.get_text()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_of_windows_are_read(tmp_path, encoding):
    """With the mark and the line ends that PowerShell's redirection writes, and messages before the results."""
    text = "ggml_cuda_init: found 1 device\r\n" + as_bytes(rows()).decode().replace("\n", "\r\n")
    assert len(answered(tmp_path, one=text.encode(encoding))["data"]["read"]["results"]) == 2


def test_damaged_files_are_read_or_refused(tmp_path):
    """A few hundred here; tests/benchmarks/test_instruments_fuzz.py has many more."""
    assert 50 < fuzz_results(tmp_path, Random(5), 400) < 400


def test_what_a_form_lacks_is_told(tmp_path):
    """A table has no interval in a comparison, and its page says so; JSON lacks nothing."""
    table = b"| model | test | t/s |\n|--|--|--|\n| llama 8B Q4_0 | tg128 | %s \xc2\xb1 0.10 |\n"
    page = page_of(answered(tmp_path, a=table % b"50.00", b=table % b"60.00"))
    assert "a.json: A table has no single repetitions" in page.get_text()
    assert "b.json: A table" not in page.get_text()
    assert "1.2 times the rate of number 1 (a.json), without an interval" in page.get_text()
    assert "What these forms lack" not in page_of(answered(tmp_path, a=as_bytes(rows()))).get_text()
