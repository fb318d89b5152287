"""What the browser benchmark shows: what a run would measure, then rates over depth as a figure and as a table.

All texts that a browser says about itself are cut to lengths that a page can hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from inferlab.instruments.axis import axis_ticks
from inferlab.instruments.browser_depths import (
    PHASES,
    against_least,
    compared_text,
    depths_summary,
    how_compared,
    tests_in,
)
from inferlab.instruments.browser_run import BACKENDS, N_CHECKED, N_CTX, NEAR, BrowserPlan, BrowserRun, GpuCheck
from inferlab.instruments.views import element, paragraph, table
from inferlab.model.gguf import Model
from inferlab.units import count_text, number_text, rate_text

LONGEST = 300
"""Characters of a text of the browser that are shown."""
LEFT, RIGHT, TOP, BOTTOM = 12, 95, 6, 84
"""Edges of the area of a figure, in percent of its width and height."""
BAR = 2.5
"""Half the width of a median's bar, in percent."""
OWN = (
    "This is your browser's llama.cpp, not your machine's: WebAssembly knows only some of a processor's instructions. "
    "What a program for your machine reaches, inferlab measure says."
)
DURATION = "How long a run takes depends on your browser. After the first round the page says how much time is left."
KEY = "Dots are samples, bars their medians."


def summary(run: BrowserRun, model: Model) -> str:
    """The rates at the least depth in a sentence, with the size of the model, and what depth changes in another."""
    first = run.plan.depths[0]
    prefill, decode = (rate_text(run.rates(test)[0]) for test in tests_of(run.plan, first))
    rates = (
        f"In this browser llama.cpp processes {prefill} in prefill and generates {decode} in decode at depth "
        f"{first}, with a model of {model.n_params / 1e6:.3g} million parameters and {how(run)}."
    )
    return f"{rates} {depths_summary(run)}".rstrip()


def how(run: BrowserRun) -> str:
    """Backend and threads in words."""
    threads = count_text(run.n_threads, "thread")
    return f"{_backend(run)} and {threads}" if _on_gpu(run) else threads


def _backend(run: BrowserRun) -> str:
    return f"{BACKENDS[run.plan.backend]}{' in software, without a GPU,' * run.in_software}"


def kind_of(check: GpuCheck) -> str:
    """What a self-test compared with the CPU: software on the CPU is never called a GPU."""
    return "software adapter" if check.software else "GPU"


def tests_of(plan: BrowserPlan, depth: int) -> list[tuple[int, int, int]]:
    """The prefill and the decode at one depth."""
    return [test for test in plan.tests if test[2] == depth]


def plan_view(plan: BrowserPlan) -> list[Any]:
    """What a run would measure."""
    sizes = [count_text(n_tokens, "token") for n_tokens in (plan.n_prompt, plan.n_gen)]
    rows = [[count_text(depth, "token"), *sizes] for depth in plan.depths]
    n_samples = plan.repeats * len(plan.tests)
    threads = count_text(plan.n_threads, "thread") if plan.n_threads else "a thread for every two processors"
    first = (
        f"Before it, CPU and GPU write {N_CHECKED} tokens to the same prompt. The GPU is measured only if they agree."
        if plan.backend == "webgpu"
        else None
    )
    return element(
        "div",
        {},
        paragraph(
            f"A run takes {count_text(n_samples, 'sample')} on the {BACKENDS[plan.backend]} with {threads}: each "
            f"line below {count_text(plan.repeats, 'time', 'times')}, after one round that does not count."
        ),
        element("section", {"class": "instrument-depths"}, table(["Depth", *PHASES], rows)),
        paragraph(first) if first else None,
        paragraph(DURATION),
        paragraph(OWN),
    )


def differing_view(check: GpuCheck) -> list[Any]:
    """Why a GPU is not measured."""
    return element(
        "div",
        {},
        paragraph(_difference(check)),
        paragraph("Choose CPU as the backend, or another browser.")
        if not check.on_gpu
        else paragraph(
            f"A {kind_of(check)} that computes something else has no rate that means anything. The fault may lie in "
            "its driver, in the browser or in llama.cpp's WebGPU. Choose CPU as the backend, or another browser."
        ),
    )


def _difference(check: GpuCheck) -> str:
    if not check.on_gpu:
        on_gpu, layers = check.offloaded
        taken = f"{on_gpu} of {count_text(layers, 'layer')}" if layers else "no layer"
        named = f"a {kind_of(check)}{f', {_cut(check.gpu_name)},' * bool(check.gpu_name)}"
        return (
            f"The browser names {named} but llama.cpp's log has {taken} on it, so the CPU computed the rest. "
            f"{_needs(check)}"
        )
    if check.n_equal < min(len(check.cpu), len(check.gpu)) or len(check.cpu) != len(check.gpu):
        gpu = kind_of(check)
        return f"Of {len(check.cpu)} tokens that the CPU wrote, the {gpu} wrote the first {check.n_equal} as well."
    return (
        f"Both wrote the same {len(check.cpu)} tokens, but the logarithms of their probabilities lie up to "
        f"{check.apart:.2g} apart; {NEAR} is allowed."
    )


def _needs(check: GpuCheck) -> str:
    """What llama.cpp's WebGPU misses, where the page could ask: 16-bit numbers in shaders, or something unknown."""
    if not check.lacks:
        return "llama.cpp's WebGPU needs abilities that not every GPU and driver have."
    return f"llama.cpp's WebGPU needs {_cut(', '.join(check.lacks))}, which this {kind_of(check)} does not offer here."


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


# --- a run -----------------------------------------------------------------------------------------------


def run_view(run: BrowserRun, asked: BrowserPlan, model: Model) -> list[Any]:
    """All of a run of a model; `asked` is the plan that the form asks for now."""
    saving = {"type": "button", "class": "pst-js-only", "data-save": "browser-llama-bench.json"}
    return element(
        "div",
        {},
        paragraph("The form asks for another run by now: Start measures it.") if asked != run.plan else None,
        element("div", {"class": "instrument-charts"}, *(chart(run, place) for place in range(len(PHASES)))),
        paragraph(KEY),
        rates_table(run),
        paragraph(how_compared(run)) if len(run.plan.depths) > 1 else None,
        paragraph(OWN),
        facts(run, model),
        paragraph(element("button", saving, "Save as JSON of llama-bench")),
    )


def rates_table(run: BrowserRun) -> list[Any]:
    """Median and range of both rates at each depth, and each depth against the least one."""
    parts = ["median", "lowest to highest", f"against depth {run.plan.depths[0]:,}"][: 2 + (len(run.plan.depths) > 1)]
    heads = ["Depth", *(f"{phase}, {part}" for phase in PHASES for part in parts)]
    columns = [_rate_cells(run, place) for place in range(len(PHASES))]
    rows = [
        [count_text(depth, "token"), *(cell for cells in columns for cell in cells[at][: len(parts)])]
        for at, depth in enumerate(run.plan.depths)
    ]
    return element("section", {"class": "instrument-rates instrument-depths"}, table(heads, rows))


def _rate_cells(run: BrowserRun, place: int) -> list[list[str]]:
    """The cells of one phase at each depth."""
    factors = {run.plan.depths[0]: (1.0, None), **against_least(run, place)}
    rows = []
    for test in tests_in(run, place):
        middle, low, high = run.rates(test)
        spread = f"{number_text(low)} to {number_text(high)}" if run.plan.repeats > 1 else "one sample"
        rows.append([rate_text(middle), spread, compared_text(factors[test[2]])])
    return rows


def chart(run: BrowserRun, place: int) -> list[Any]:
    """One phase over depth: a dot for each sample and a bar for each median; the table says the same."""
    tests = tests_in(run, place)
    ticks = axis_ticks(max(run.rates(test)[2] for test in tests))
    last = max(run.plan.depths) or 1
    at = [(LEFT + BAR + (RIGHT - LEFT - 2 * BAR) * test[2] / last, test) for test in tests]
    samples = [(x, _height(1e9 * (test[0] + test[1]) / ns, ticks)) for x, test in at for ns in run.samples[test]]
    told = ", ".join(f"{rate_text(run.rates(test)[0])} at depth {test[2]}" for test in tests)
    label = f"{PHASES[place]} over depth, medians: {told}."
    bars = [_bar(x, _height(run.rates(test)[0], ticks)) for x, test in at]
    drawing = {"role": "img", "aria-label": label, "class": "instrument-chart"}
    drawn = element("svg", drawing, *_grid(ticks), *_labels(at), *bars, *(_dot(*point) for point in samples))
    n_tokens = count_text(tests[0][0] + tests[0][1], "token")
    return element("div", {}, element("h2", {}, f"{PHASES[place]} of {n_tokens}: tokens/s over depth"), drawn)


def _height(rate: float, ticks: Sequence[float]) -> float:
    return BOTTOM - (BOTTOM - TOP) * rate / ticks[-1]


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _grid(ticks: Sequence[float]) -> list[Any]:
    """A line at each tick of the axis, with its number."""
    drawn = []
    for rate in ticks:
        y = _percent(_height(rate, ticks))
        drawn.append(element("line", {"class": "grid", "x1": _percent(LEFT), "x2": _percent(RIGHT), "y1": y, "y2": y}))
        drawn.append(element("text", {"class": "rate", "x": _percent(LEFT - 1), "y": y}, f"{rate:,.6g}"))
    return drawn


def _labels(at: Sequence[tuple[float, tuple[int, int, int]]]) -> list[Any]:
    return [element("text", {"class": "depth", "x": _percent(x), "y": "97%"}, f"{test[2]:,}") for x, test in at]


def _bar(x: float, y: float) -> list[Any]:
    ends = {"x1": _percent(x - BAR), "x2": _percent(x + BAR), "y1": _percent(y), "y2": _percent(y)}
    return element("line", {"class": "median", **ends})


def _dot(x: float, y: float) -> list[Any]:
    return element("circle", {"class": "sample", "cx": _percent(x), "cy": _percent(y), "r": 3})


def facts(run: BrowserRun, model: Model) -> list[Any]:
    """What ran where."""
    said = {
        "Model": model_text(model),
        "llama.cpp": f"build {run.build}, in wllama's build for {'older browsers' if run.compat else 'this browser'}",
        "Browser": run.user_agent,
        "Backend": f"{_backend(run).rstrip(',')}{f': {run.gpu}' if _on_gpu(run) and run.gpu else ''}",
        "Threads": _threads(run),
        "Self-test": _self_test(run),
        "Cache": f"{N_CTX:,} cells, keys and values in f16; batch {run.n_batch:,}, ubatch {run.n_ubatch:,}",
        "Tests": _tests(run.plan),
        "Measured": f"{date_text(run.date)}, {count_text(run.plan.repeats, 'repetition')}",
    }
    rows = [[name, _cut(text)] for name, text in said.items()]
    shown = table(["Fact", "Of this run"], rows)
    return element("section", {"class": "instrument-facts"}, element("h2", {}, "What ran where"), shown)


def model_text(model: Model) -> str:
    """Name, file, parameters and types of a model, as its file has them."""
    n_bytes: Counter[str] = Counter()
    for tensor in model.tensors:
        n_bytes[tensor.type] += tensor.n_bytes
    types = " and ".join(name for name, _ in n_bytes.most_common())
    file = f"file {model.path.name} of {model.file_bytes:,} bytes"
    return f"{model.name}, architecture {model.architecture}, {model.n_params:,} parameters in {types}; {file}"


def date_text(date: str) -> str:
    """A date of JSON for people, in its zone: `23 November 2026, 09:00 UTC`; what is none stays as it is."""
    try:
        measured = datetime.strptime(date, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return date
    return f"{measured.day} {measured:%B %Y, %H:%M} UTC"


def _tests(plan: BrowserPlan) -> str:
    depths = ", ".join(f"{depth:,}" for depth in plan.depths)
    sizes = f"prefill of {count_text(plan.n_prompt, 'token')} and decode of {count_text(plan.n_gen, 'token')}"
    return f"{sizes} at {'depth' if len(plan.depths) == 1 else 'depths'} {depths}"


def _threads(run: BrowserRun) -> str:
    used = f"{run.n_threads} of {count_text(run.n_processors, 'processor')} that this browser names"
    if run.isolated:
        return used
    return f"{used}: this site is not isolated from others, and browsers give only isolated sites threads"


def _self_test(run: BrowserRun) -> str:
    if run.check is None:
        return "did not take place: it compares a GPU with the CPU, and this run used the CPU alone"
    return (
        f"passed: {len(run.check.cpu)} of {len(run.check.cpu)} tokens are the CPU's, the logarithms of their "
        f"probabilities at most {run.check.apart:.2g} apart"
    )


def _on_gpu(run: BrowserRun) -> bool:
    return run.plan.backend == "webgpu"
