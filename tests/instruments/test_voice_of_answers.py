"""The words of the instruments' answers and forms: short sentences, and no word of a private language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from bench_rows import as_bytes, on_card, rows
from browser_results import AGREED, ASKED, NO_FILES, WRITTEN, planned, results, with_header
from voice import LONGEST_SENTENCE, UNWANTED, split
from written_logs import LOGS

from inferlab.instruments import INSTRUMENTS, answered

LINE = ("em", "strong", "a", "code", "span")
"""Elements that are a part of the text around them; any other begins a text of its own."""
NOT_PROSE = ("pre",)
GPU = planned(backend="webgpu")
RUNS = {
    "a run": results(planned()),
    "one repetition": results(planned(repeats="1")),
    "one depth": results(planned(depths="0"), isolated=False, n_threads=1),
    "the compatibility build": results(planned(), compat=True),
    "a GPU": results(GPU | {"step": "measure", "check": AGREED}, gpu="a vendor"),
    "a GPU that agrees": {"plan": GPU, "step": "check", "check": AGREED},
    "another text": {"plan": GPU, "step": "check", "check": {**AGREED, "gpu": WRITTEN[:2]}},
    "other odds": {"plan": GPU, "step": "check", "check": {**AGREED, "gpu": [[17, -9.25], *WRITTEN[1:]]}},
    "no layer": {"plan": GPU, "step": "check", "check": {**AGREED, "offloaded": [0, 0]}},
}
OTHER_PLANS = (
    {"n_ctx": "131072"},
    {"n_ctx": "4k"},
    {"n_ctx": "1000000000"},
    {"n_ctx": "20000", "n_seq_max": "3"},
    {"card": "apple-m4:16", "model": "llama-3.1-8b", "n_ctx": "131072"},
    {"card": "rtx-4090", "n_cards": "2", "model": "qwen3-30b-a3b", "type": "F16", "n_gpu_layers": "8"},
    {"n_gpu_layers": "28"},
    {"type": "MXFP4_MOE"},
    {"card": "other", "memory": "16", "shared": "on"},
    {"card": "other", "memory": "1"},
    {"n_cards": "2", "type_k": "q8_0", "type_v": "q8_0", "n_seq_max": "4", "offload_kqv": ""},
    {"n_gpu_layers": "5", "model": "file"},
)


def answers(instrument: str, folder: Any) -> Iterator[dict[str, Any]]:
    """Answers of every kind that an instrument has."""
    yield answered(instrument, INSTRUMENTS[instrument].DEFAULTS, NO_FILES)
    if instrument == "browser-bench":
        yield answered(instrument, {**ASKED, "backend": "webgpu"}, NO_FILES)
        yield answered(instrument, {**ASKED, "depths": "9999"}, NO_FILES)
        for found in RUNS.values():
            yield answered(instrument, {**ASKED, "repeats": "7", "results": json.dumps(found)}, with_header(folder))
    elif instrument == "planner":
        for changed in OTHER_PLANS:
            yield answered(instrument, {**INSTRUMENTS[instrument].DEFAULTS, **changed}, NO_FILES)
    elif instrument == "log-reader":
        for text in ("no log", *(text for text, _ in LOGS.values())):
            yield answered(instrument, {"log": text}, NO_FILES)
    else:
        for pasted in (as_bytes(rows()), as_bytes(on_card()), as_bytes(on_card(slower=0.01)), b"none"):
            yield answered(instrument, {"pasted": pasted.decode()}, NO_FILES)


def texts(view: Any) -> list[str]:
    """The texts of a view, one for each block; what stands in a line belongs to the text around it."""
    found = [""]

    def read(part: Any) -> None:
        if isinstance(part, str):
            found[-1] += part
        elif part[0] not in NOT_PROSE:
            inline = part[0] in LINE
            found.append("") if not inline else None
            for child in part[2:]:
                read(child)
            found.append("") if not inline else None

    read(view)
    return [text for text in found if text.strip()]


def wrong(view: Any, summary: str = "") -> list[str]:
    """Sentences that are too long, and words that no reader knows."""
    sentences = [one for text in [summary, *texts(view)] for one in split(text)]
    odd = [hit[0] for one in sentences for hit in UNWANTED.finditer(one)]
    return [one for one in sentences if len(one.split()) > LONGEST_SENTENCE] + odd


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_an_answer_is_held_to_the_words_of_a_page(instrument, tmp_path):
    """All that an answer adds to a page, and the form: no sentence above the longest of a page, no unwanted word."""
    assert wrong(INSTRUMENTS[instrument].form()) == []
    found = {fault for one in answers(instrument, tmp_path) for fault in wrong(one["view"], one["summary"])}
    assert found == set()


def test_a_long_sentence_and_an_odd_word_are_noticed():
    """In the summary and in every block; lines of code are no prose."""
    view = [
        "div",
        {},
        ["p", {}, "The ", ["em", {}, "desk"], " is here."],
        ["p", {}, "long " * 40],
        ["pre", {}, "a crowd"],
    ]
    assert wrong(view, "A knob.") == ["long " * 39 + "long", "knob", "desk"]
