"""How fast is this browser? A plan out, which the page's llama.cpp carries out, and its samples in: rates over depth.

A question without results is answered with the plan. With `webgpu`, the first step lets GPU and CPU write the same
text; only where they agree does the answer to its results hold the second step, the measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.instruments import forms
from inferlab.instruments.answer import Answer
from inferlab.instruments.browser_bench_view import differing_view, kind_of, plan_view, run_view, summary
from inferlab.instruments.browser_run import BACKENDS, BrowserPlan, BrowserRun, GpuCheck, llama_bench_rows, read_run
from inferlab.instruments.dropped import DroppedFiles

DEFAULTS = {
    "depths": "0, 256, 512",
    "repeats": "5",
    "n_prompt": "64",
    "n_gen": "16",
    "backend": "cpu",
    "n_threads": "",
    "results": "",
}
"""The question that is answered before anybody asks; the page puts the results of a run into the last one."""
MODEL = "tiny.gguf"
NOT_YET = "Nothing is measured yet. Start runs llama.cpp in this browser."


def answer(question: Mapping[str, str], files: DroppedFiles) -> Answer:
    """The plan, or the rates of a run. Raises InferlabError for settings or results that cannot be read."""
    question = {**DEFAULTS, **question}
    asked = plan_of(question)
    if not question["results"]:
        first = "check" if asked.backend == "webgpu" else "measure"
        return Answer("unsure", NOT_YET, plan_view(asked), {"plan": asked.fields(first)})
    run = read_run(question["results"])
    if run.step == "check" and run.check:
        return _checked(run.plan, run.check)
    return _measured(run, asked, files)


def _checked(plan: BrowserPlan, check: GpuCheck) -> Answer:
    """The next step after a self-test, or why there is none."""
    gpu = kind_of(check)
    if check.agrees:
        passed = f"CPU and {gpu} wrote the same text. The measurement on the {gpu} follows."
        return Answer("unsure", passed, plan_view(plan), {"plan": plan.fields("measure", asdict(check))})
    reason = "it computed something else than the CPU" if check.on_gpu else "llama.cpp could not use it"
    return Answer("no", f"The {gpu} is not measured: {reason}.", differing_view(check))


def _measured(run: BrowserRun, asked: BrowserPlan, files: DroppedFiles) -> Answer:
    model = files.model(MODEL)
    return Answer("yes", summary(run, model), run_view(run, asked, model), llama_bench_rows(run, model))


def plan_of(question: Mapping[str, str]) -> BrowserPlan:
    """The plan that a form asks for. Raises InvalidSettings, which names the field."""
    return BrowserPlan(
        depths=_depths(question["depths"]),
        n_prompt=_whole(question, "n_prompt", "Prefill"),
        n_gen=_whole(question, "n_gen", "Decode"),
        repeats=_whole(question, "repeats", "Repetitions"),
        n_threads=forms.whole(question, "n_threads", "Threads", empty=0, such_as="4"),
        backend=forms.one_of(question, "backend", "Backend", BACKENDS),
    )


def _whole(question: Mapping[str, str], name: str, label: str) -> int:
    return forms.whole(question, name, label, such_as=DEFAULTS[name])


def _depths(text: str) -> tuple[int, ...]:
    parts = text.replace(",", " ").split()
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InvalidSettings(f"Depths: {text!r} is no list of whole numbers. Write one such as {DEFAULTS['depths']}.")
    return tuple(sorted(map(int, parts)))


def form() -> list[Any]:
    """The form, with the default question in it."""
    chosen = DEFAULTS
    return forms.form(
        forms.group(
            "Tests",
            forms.field("Depths: tokens in the cache before", forms.line("depths", chosen["depths"])),
            forms.field("Prefill", forms.number("n_prompt", chosen["n_prompt"], "tokens")),
            forms.field("Decode", forms.number("n_gen", chosen["n_gen"], "tokens")),
        ),
        forms.group(
            "Processor",
            forms.field("Backend", forms.select("backend", BACKENDS.items(), chosen["backend"])),
            forms.field("Threads", forms.number("n_threads", "", placeholder="automatic")),
        ),
        forms.group(
            "Run",
            forms.field("Repetitions of each test", forms.number("repeats", chosen["repeats"])),
            forms.measured("results", "Start"),
        ),
    )
