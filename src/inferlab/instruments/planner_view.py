"""What the planner shows: the verdict, a bar and a row for each memory, the largest settings, steps, lines to paste."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inferlab.instruments.planner_speed import layers_in_ram, speed
from inferlab.instruments.views import element, paragraph, table
from inferlab.machine import HOST_DEVICE
from inferlab.model.ggml_types import CELL_STEP, FILE_TYPES
from inferlab.model.gguf import Model
from inferlab.prediction.decode_bound import active_text
from inferlab.prediction.fit import Fit
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.memory.plan import CLOSED_FORM, SHARED
from inferlab.prediction.memory.verified import tried_text
from inferlab.prediction.paste import SMALL, Pasted, above_trained, lines_for, nearest, prompt_cache_text
from inferlab.prediction.place import Place
from inferlab.prediction.search import SettingThatFits
from inferlab.prediction.steps import SettingStep
from inferlab.settings import Settings
from inferlab.units import bytes_text, count_text

PROGRAMS = {
    "llama-server": "llama-server",
    "llama-cli": "llama-cli",
    "llama-cpp-python": "llama-cpp-python",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
}
"""The programs of `lines_for`, by the names that they give themselves."""
KINDS = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute buffer", "output": "output buffer"}
BAR, HEIGHT, LIMIT_LINE = 1000, 24, 4
"""Width and height of a bar, and width of the line at a limit, in the units of the drawing."""
STEP_NAMES = {
    "n_ctx": "context",
    "n_gpu_layers": "layers on the card",
    "n_cpu_moe": "layers with experts in RAM",
    "cache_type": "cache type",
    "flash_attn": "flash attention",
    "n_seq_max": "slots",
    "n_ubatch": "tokens computed together",
    "type": "weights",
}
WHERE = "The bars show what you asked for; the lines to paste stand further down."
RAM = "RAM"
OTHER_LIMIT = "“Memory for the GPU” takes another limit."
SURE = {"yes": "it fits", "no": "too much", "unsure": "it may fit"}
"""What a step leads to."""
IN_WORDS = (
    (re.compile(r"(?<!\()\bn_ctx=([\d,]+)"), r"a context of \1 tokens"),
    (re.compile(r"(?<!\()\bn_gpu_layers=(\d+)"), r"\1 layers on the card"),
    (re.compile(r"(?<!\()\bn_cpu_moe=(\d+)"), r"the experts of \1 layers in RAM"),
    (re.compile(r"\bhost would\b"), "RAM would"),
    (re.compile(r"\bshared would\b"), "the shared memory would"),
)
"""Names of settings and memories in the library's sentences, and what the form calls them."""
CARD = re.compile(r"\bgpu(\d)(?= would\b)")


def in_words(text: str, n_cards: int = 1) -> str:
    """A sentence of the library's in words of the form."""
    told = text
    for name, words in IN_WORDS:
        told = name.sub(words, told)
    told = CARD.sub(lambda match: f"card {int(match[1]) + 1}" if n_cards > 1 else "the card", told)
    return told if told[:1] == text[:1] else told[:1].upper() + told[1:]


def summary(fit: Fit, model: str, memory: str) -> str:
    """The question and its verdict in a sentence; `model` and `memory` say what was asked about."""
    verdict = {"yes": "fits on", "no": "does not fit on", "unsure": "may fit on"}[fit.fits]
    asked = f"{model} with {fit.plan.settings.n_ctx:,} tokens of context {verdict} {memory}"
    return f"{asked}{_margin_text(fit)}{_ram_text(fit)}.{_would_fit_text(fit)}"


def _would_fit_text(fit: Fit) -> str:
    """What makes a plan fit that does not, as its lines have it, in a sentence; empty where nothing does."""
    found = nearest(fit) if fit.fits == "no" else None
    if found is None or found.settings is None:
        smaller = fit.weights_type.value if found and fit.weights_type else None
        return f" It fits in {smaller}." if smaller else ""
    near = found.plan.settings
    asked, words = fit.plan.settings, []
    if (near.cpu_moe, near.n_cpu_moe) != (asked.cpu_moe, asked.n_cpu_moe):
        of = "all layers" if near.cpu_moe else count_text(near.n_cpu_moe, "layer")
        words.append(f"the experts of {of} in RAM" if near.cpu_moe or near.n_cpu_moe else "no experts in RAM")
    if near.n_gpu_layers != asked.n_gpu_layers:
        layers = {-1: "all layers", 0: "no layer"}.get(near.n_gpu_layers, count_text(near.n_gpu_layers, "layer"))
        words.append(f"{layers} on the card")
    if near.n_ctx != asked.n_ctx:
        words.append(f"{n_ctx_of(near):,} tokens of context")
    if near.type_k != asked.type_k or near.type_v != asked.type_v:
        words.append(f"a KV cache of type {near.type_k}")
    return f" It fits with {' and '.join(words)}."


def _margin_text(fit: Fit) -> str:
    margin = fit.margin_bytes
    if margin is None or (fit.fits == "no" and margin >= 0):
        return ""
    where = " in RAM" if fit.fullest_memory == HOST_DEVICE and len(fit.usable_bytes) > 1 else ""
    if margin < 0:
        return f": {bytes_text(-margin)} too much{where}{' at worst' if fit.fits == 'unsure' else ''}"
    at_least = "at least " if fit.plan.compute_range else ""
    rest = " without the compute buffer" if fit.fits == "unsure" else ""
    return f": {at_least}{bytes_text(margin)} to spare{where}{rest}"


def _ram_text(fit: Fit) -> str:
    """The RAM that the plan needs beside the card; empty if no layer lies there and it needs little."""
    host = None if fit.fits == "no" else ram_beside(fit)
    if host is None or (host.most < SMALL and not layers_in_ram(fit)):
        return ""
    if any(most is None for _, most in host.parts.values()):
        return f", and needs {host.text} of RAM"
    return f", and needs {'' if host.least == host.most else 'up to '}{bytes_text(host.most)} of RAM"


def planner_view(fit: Fit, model: Model, place: Place, command: str, *, asked: Settings) -> list[Any]:
    """All of an answer.

    command  the same question to the command line
    asked    the settings before llama.cpp rounds them
    """
    return element(
        "div",
        {},
        *what_to_do(fit, model, asked, place),
        memories(held_by(fit)),
        *map(paragraph, filter(None, [active_text(model)])),
        largest(fit, model),
        speed(fit, model, place),
        taken_steps(fit),
        *(_lines(fit, model, program, title) for program, title in PROGRAMS.items()),
        reasons(fit, command),
    )


def what_to_do(fit: Fit, model: Model, asked: Settings, place: Place) -> list[Any]:
    """Other settings with which the model fits, or loads at all, what was changed, and what else needs memory."""
    near = nearest(fit)
    advice = [in_words(note, _n_cards(fit)) for note in near.notes[:1]] if fit.fits == "no" else []
    advice = [f"{note} {WHERE}" for note in advice] if near.settings else advice
    advice += fit.plan.notes[: int(fit.plan.aborts)]
    notes = [_without_experts_text(model), _rounded_text(fit, asked), above_trained(asked, model.n_ctx_train)]
    limit = f"{place.limit} {OTHER_LIMIT}" if place.limit else ""
    advice += filter(None, [*notes, limit, prompt_cache_text(fit, near.plan) if near.settings else ""])
    return [paragraph(text) for text in advice]


def _without_experts_text(model: Model) -> str:
    """A note on MXFP4_MOE of a model without experts, which is Q8_0 (llama-quant.cpp:512-524); else empty."""
    is_mxfp4 = model.metadata.get("general.file_type") == FILE_TYPES["MXFP4_MOE"]
    if not is_mxfp4 or any(tensor.type == "MXFP4" for tensor in model.tensors):
        return ""
    return "MXFP4_MOE is made for experts, and this model has none: llama.cpp makes all of its matrices Q8_0."


def _rounded_text(fit: Fit, asked: Settings) -> str:
    """A note on a context that was rounded up, with the reason; empty if it was not."""
    planned = fit.plan.settings
    if planned.n_ctx == asked.n_ctx:
        return ""
    slots = f" for each of the {planned.n_seq_max} slots" if planned.n_seq_max > 1 and not planned.kv_unified else ""
    return (
        f"The context is rounded up from {asked.n_ctx:,} to {planned.n_ctx:,} tokens: llama.cpp reserves the KV cache "
        f"in multiples of {CELL_STEP} tokens{slots}."
    )


# --- bytes in each memory ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryUse:
    """What a plan puts into one memory: least and most bytes of each kind; most is None where it is not known.

    limit  bytes that the plan may use there; None where nothing is compared
    """

    title: str
    parts: dict[str, tuple[int, int | None]]
    limit: int | None

    @property
    def least(self) -> int:
        """Bytes that are needed in any case."""
        return sum(least for least, _ in self.parts.values())

    @property
    def most(self) -> int:
        """Bytes that suffice, without a part whose most is not known."""
        return sum(least if most is None else most for least, most in self.parts.values())

    @property
    def text(self) -> str:
        """All of it in words."""
        if any(most is None for _, most in self.parts.values()):
            return f"more than {bytes_text(self.least)}"
        return range_text(self.least, self.most)


def held_by(fit: Fit) -> list[MemoryUse]:
    """Each memory with which the plan is compared, and RAM if it is not among them."""
    compared = [_held(fit, name, fit.plan.devices_in(name), limit) for name, limit in fit.usable_bytes.items()]
    host = None if HOST_DEVICE in fit.usable_bytes else ram_beside(fit)
    return [*compared, host] if host else compared


def ram_beside(fit: Fit) -> MemoryUse | None:
    """What the plan puts into RAM; None where RAM is a part of the memory that the GPU shares."""
    if SHARED in fit.usable_bytes:
        return None
    return _held(fit, HOST_DEVICE, (HOST_DEVICE,), fit.usable_bytes.get(HOST_DEVICE))


def _held(fit: Fit, memory: str, devices: Sequence[str], limit: int | None) -> MemoryUse:
    """Without what the system may drop of a mapped file from RAM."""
    parts = {kind: _ends(fit.plan, devices, kind) for kind in KINDS}
    if HOST_DEVICE in devices:
        dropped, (least, most) = fit.plan.never_read_bytes, parts["weights"]
        parts["weights"] = least - dropped, None if most is None else most - dropped
    return MemoryUse(memory_text(memory, _n_cards(fit)), parts, limit)


def _ends(plan: MemoryPlan, devices: Sequence[str], kind: str) -> tuple[int, int | None]:
    """Least and most bytes of one kind on some devices; the most is None where one of them leaves it open."""
    least, most, known = 0, 0, True
    for device in devices:
        n_bytes = plan.devices[device].parts[kind]
        ends = (n_bytes, n_bytes) if n_bytes is not None else plan.compute_range.get(device, (0, 0))
        known &= n_bytes is not None or device in plan.compute_range
        least, most = least + ends[0], most + ends[1]
    return least, most if known else None


def memory_text(memory: str, n_cards: int) -> str:
    """A memory of a plan in the reader's words."""
    card = f"Card {int(memory.removeprefix('gpu')) + 1}" if n_cards > 1 and memory.startswith("gpu") else "Card"
    return {HOST_DEVICE: RAM, SHARED: "Shared memory"}.get(memory, card)


def memories(held: list[MemoryUse]) -> list[Any]:
    """A bar and a row of bytes for each memory; all bars at one scale, with a line at its limit.

    RAM that holds next to nothing has no bar, because its limit would make all others short.
    """
    drawn = [memory for memory in held if memory.title != RAM or memory.most >= SMALL] or held
    scale = BAR / max(max(memory.most, memory.limit or 0) for memory in drawn)
    rows = [[m.title, *map(_part_text, m.parts.values()), m.text, _limit_text(m.limit)] for m in held]
    heads = ["Memory", *(text[0].upper() + text[1:] for text in KINDS.values()), "Together", "Limit"]
    bars = (_bar(memory, scale) for memory in drawn)
    return element("section", {}, *bars, _key(), table(heads, rows))


def _part_text(ends: tuple[int, int | None]) -> str:
    least, most = ends
    return "not known" if most is None else range_text(least, most)


def _limit_text(limit: int | None) -> str:
    return "not compared" if limit is None else bytes_text(limit)


def range_text(least: int, most: int) -> str:
    """Bytes, or the two ends between which they lie."""
    ends = dict.fromkeys((bytes_text(least), bytes_text(most)))
    return " to ".join(ends)


def _bar(held: MemoryUse, scale: float) -> list[Any]:
    """The parts of one memory side by side; what may be needed in addition is pale."""
    drawn, left = [], 0.0
    for kind, (least, most) in held.parts.items():
        drawn.append(_part(kind, left, scale * least))
        drawn.append(_part(f"{kind} open", left + scale * least, scale * ((most or least) - least)))
        left += scale * (least if most is None else most)
    if held.limit is not None:
        drawn.append(_part("room", min(scale * max(held.limit, 0), BAR - LIMIT_LINE), LIMIT_LINE))
    text = f"{held.title}: {held.text}" + ("" if held.limit is None else f" of {bytes_text(held.limit)}")
    drawing = {"viewBox": f"0 0 {BAR} {HEIGHT}", "preserveAspectRatio": "none", "aria-hidden": "true"}
    return element("div", {"class": "instrument-bar"}, element("span", {}, text), element("svg", drawing, *drawn))


def _part(kind: str, left: float, width: float) -> list[Any]:
    return element("rect", {"class": kind, "x": round(left, 1), "y": 0, "width": round(width, 1), "height": HEIGHT})


def _key() -> list[Any]:
    """What the colours of the bars mean."""
    drawn = {**KINDS, "open": "possible extra", "room": "limit: what of the memory is for the model"}
    entries = (element("li", {}, _swatch(kind), text) for kind, text in drawn.items())
    return element("ul", {"class": "instrument-key"}, *entries)


def _swatch(kind: str) -> list[Any]:
    colour = "compute open" if kind == "open" else kind
    box = element("rect", {"class": colour, "x": 0, "y": 0, "width": 10, "height": 10})
    return element("svg", {"viewBox": "0 0 10 10", "aria-hidden": "true"}, box)


# --- what would fit, and what a step costs -----------------------------------------------------------------


def largest(fit: Fit, model: Model) -> list[Any]:
    """A table of the largest values that fit: context, layers, experts if the model has any, cache and weights."""
    trained = f" The model was trained for {model.n_ctx_train:,} tokens." if model.n_ctx_train else ""
    trained = "" if fit.largest_n_ctx.memory_allows_more else trained
    no_layers = "makes no difference" if SHARED in fit.usable_bytes else "none fits"
    rows = [
        ["Longest context (n_ctx)", *_answer(fit, fit.largest_n_ctx, " tokens", trained)],
        ["Most layers on the card (n_gpu_layers)", *_answer(fit, fit.most_layers, " layers", none=no_layers)],
        *(
            [
                [
                    "Fewest layers with experts in RAM (n_cpu_moe)",
                    *_answer(fit, fit.expert_layers, " layers", none=no_layers),
                ]
            ]
            if fit.expert_layers
            else []
        ),
        ["Most precise cache type", *_answer(fit, fit.cache_type)],
    ]
    if fit.weights_type:
        place_of_all = {0: "in this memory", 1: "on the card"}.get(_n_cards(fit), "on the cards")
        asked = fit.plan.settings
        besides = " but these experts" if asked.n_cpu_moe or asked.cpu_moe else ""
        rows.append([f"Largest weights, all {place_of_all}{besides}", *_answer(fit, fit.weights_type)])
    heads = ["Setting", "Value", "Why not more"]
    return element("section", {}, element("h2", {}, "The largest that fits"), table(heads, rows))


def _answer(fit: Fit, answer: SettingThatFits, unit: str = "", more: str = "", none: str = "none fits") -> list[str]:
    value = f"{answer.value:,}{unit}" if isinstance(answer.value, int) else answer.value or none
    return [value, in_words(answer.reason, _n_cards(fit)) + more]


def taken_steps(fit: Fit) -> list[Any] | None:
    """A table of single changes: what each costs or frees in the fullest memory, and whether the model then fits."""
    if not fit.steps:
        return None
    heads = ["Change one setting to", _where(fit), "Then"]
    rows = [[_step_text(step), _difference(step), SURE[step.fits]] for step in fit.steps]
    return element("section", {}, element("h2", {}, "What one step of a setting changes"), table(heads, rows))


def _step_text(step: SettingStep) -> str:
    value = f"{step.value:,}" if isinstance(step.value, int) else step.value
    return f"{STEP_NAMES[step.setting]} {value}"


def _where(fit: Fit) -> str:
    """The memory in which the steps are compared, as the head of a column."""
    if SHARED in fit.usable_bytes:
        return "Shared memory"
    if fit.fullest_memory == HOST_DEVICE:
        return "RAM"
    return "On the card" if _n_cards(fit) == 1 else "On the fullest card"


def _n_cards(fit: Fit) -> int:
    return sum(memory not in (HOST_DEVICE, SHARED) for memory in fit.usable_bytes)


def _difference(step: SettingStep) -> str:
    """Bytes more or less. If one plan is a bound, both ends; if both are, the difference of their upper ends."""
    least, most = step.least_bytes, step.most_bytes
    if least == most:
        return _change(most)
    if least < step.difference_bytes < most:
        return f"{_change(step.difference_bytes)} at worst"
    if least < 0 < most:
        return f"{_change(least)} to {_change(most)}"
    near, far = sorted((least, most), key=abs)
    return f"{bytes_text(abs(near))} to {_change(far)}"


def _change(n_bytes: int) -> str:
    return f"{bytes_text(abs(n_bytes))} {'more' if n_bytes > 0 else 'less'}"


# --- to take away ------------------------------------------------------------------------------------------


def _lines(fit: Fit, model: Model, program: str, title: str) -> list[Any]:
    """The plan as lines for one program; only the first program's are unfolded."""
    path = model.source or (model.file and model.file.name)  # of a dropped file a page knows no folder
    pasted = lines_for(fit, program, path, model.n_ctx_train)
    opened = program == next(iter(PROGRAMS))
    return element(
        "details",
        {"id": f"for-{program}", "open": opened},
        element("summary", {}, f"Settings for {title}"),
        *_pasted(pasted, _n_cards(fit)),
    )


def _pasted(pasted: Pasted, n_cards: int) -> list[Any]:
    notes = [paragraph(in_words(note, n_cards)) for note in pasted.notes]
    return notes + [
        element("div", {"class": "instrument-lines"}, paragraph(f"{part.where}:"), code(part.text))
        for part in pasted.parts
    ]


def code(text: str) -> list[Any]:
    """Lines to copy, with a button that does it; they break at spaces only."""
    button = element("button", {"type": "button", "class": "pst-js-only", "data-copy": True}, "Copy")
    words = (element("span", {}, word) if word.strip() else word for word in re.split(r"(\s+)", text) if word)
    return element("div", {"class": "instrument-code"}, element("pre", {}, *words), button)


def reasons(fit: Fit, command: str) -> list[Any]:
    """The method, its notes, and the same question on the command line."""
    saving = {"type": "button", "class": "pst-js-only", "data-save": "plan.json"}
    return element(
        "details",
        {"id": "how"},
        element("summary", {}, "How this was computed"),
        paragraph(f"Compared with {fit.compared_with}. Method: {fit.plan.method}."),
        *map(paragraph, [tried_text()] if fit.plan.method == CLOSED_FORM else []),
        *map(paragraph, fit.plan.notes),
        paragraph("The same on the command line; add --json for all numbers:"),
        code(command),
        paragraph(element("button", saving, "Save the numbers as JSON")),
    )
