"""Figures of the KV cache, of decode against depth, and of diagnoses."""

from collections import Counter
from dataclasses import replace

import pytest
from fakes import BUFFERS, made_run, scripted_pass

from inferlab import figures
from inferlab.engine.log import Buffer
from inferlab.measurement.telemetry.samples import Sample
from inferlab.prediction.diagnosis import Comparison
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.faults import figures as faults_figures


def a_run(n_prompt, seconds):
    one = replace(scripted_pass(gaps=[seconds] * 3, share=1.0), began=0.0)
    samples = tuple(Sample(0.4 + 0.2 * i, rss_bytes=100 * MIB + i * MIB) for i in range(5))
    cache = (*(b for b in BUFFERS if b.kind != "kv_cache"), Buffer("CPU", "kv_cache", 8 * MIB))
    return made_run(
        n_prompt=n_prompt, n_gen=4, settings=Settings(n_ctx=1024), passes=(one,), buffers=cache, samples=samples
    )


RUNS = [a_run(250, 0.2), a_run(300, 0.3), a_run(600, 0.4)]
CASES = {"case 1": Comparison(0, 1.0, 1.1, 1.2, 0.0, 0.05, None), "case 2": Comparison(MIB, 3, 1, 2, 1.25, 0.5, 0.5)}
TABLE = {"one": Counter({"one": 2}), "other": Counter({"one": 1, "other": 1})}
EVERY = {
    "cache_use": figures.cache_use(RUNS[0]),
    "token_against_cells": figures.token_against_cells({"here": RUNS, "there": RUNS[:2]}),
    "rate_against_depth": figures.rate_against_depth({0: 25, 7000: 3}, {0: 25.0, 7000: 20.6}, "computed from a shape"),
    "cache_runs": figures.cache_runs(RUNS),
    "symptoms": faults_figures.symptoms(CASES, RUNS[0].badge),
    "confusion_matrix": faults_figures.confusion_matrix(TABLE, RUNS[0].badge),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_figure_says_its_numbers_and_where_they_come_from(name):
    """A text alternative with numbers, and a badge below."""
    layout = EVERY[name].layout
    assert any(character.isdigit() for character in layout.meta["alt"])
    assert any(word in note.text for note in layout.annotations for word in ("computed", "measured"))


def test_used_cells_stay_below_those_read_and_those_below_the_reserved():
    """Three lines that never cross, and the growth of the process beside them."""
    reserved, looked_at, used, grown = (trace.y for trace in EVERY["cache_use"].data)
    assert set(reserved) == {8.0}
    assert looked_at == (2.0, 2.0, 2.0, 2.0)
    assert all(a < b <= c for a, b, c in zip(used, looked_at, reserved, strict=True))
    assert grown[0] == 0 < grown[-1]


def test_a_cache_without_telemetry_has_no_line_of_the_process():
    """What was not sampled is not drawn."""
    assert len(figures.cache_use(replace(RUNS[0], samples=())).data) == 3


def test_each_case_is_a_line_through_its_256_cell_steps():
    """Three steps lie on the line that was put in: 0.1 s for each 256 cells."""
    drawn, found = EVERY["token_against_cells"].data[:2]
    assert list(found.x) == [256, 512, 768]
    assert found.y == pytest.approx((200, 300, 400))
    assert drawn.y == pytest.approx((200, 400))


def test_bars_of_measured_caches():
    """Reserved and in use in MiB, and the time of a token in words; before the first press nothing is drawn."""
    reserved, used = EVERY["cache_runs"].data
    assert reserved.x == (8.0, 8.0, 8.0)
    assert used.x[0] == pytest.approx(8 * 254 / 1024)
    assert reserved.text[0] == "200.00 ms a token"
    assert figures.cache_runs([]).layout.meta["alt"] == "Measured caches: none yet."


def test_an_unknown_symptom_says_so():
    """What no sample measured is "unknown", never 0."""
    texts = EVERY["symptoms"].data[1].text
    assert texts[6] == "unknown"
    assert list(texts[7:]) == ["1", "3.0x", "1.0x", "2.0x", "+1.25", "50 %", "0.50x"]


def test_a_confusion_matrix_counts_and_names_its_mistakes():
    """Right diagnoses on the diagonal, mistakes in another colour; the text alternative names the mistaken ones."""
    assert EVERY["confusion_matrix"].layout.meta["alt"] == "3 of 4 diagnoses were right. Mistaken: other taken for one."
    assert list(EVERY["confusion_matrix"].data[1].text) == ["2", "", "1", "1"]
    assert [list(row) for row in EVERY["confusion_matrix"].data[0].z] == [[2, 0], [1, 2]]
    assert len({colour for _, colour in EVERY["confusion_matrix"].data[0].colorscale}) == 3
