"""What the planner shows: the verdict, a bar and a row for each memory, the largest settings, steps, lines to paste."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferlab.errors import InferlabError
from inferlab.instruments.views import element, paragraph, table
from inferlab.model.ggml_types import CELL_STEP, FILE_TYPES
from inferlab.model.gguf import Model
from inferlab.prediction.decode_bound import active_text, decode_bound, decode_bytes
from inferlab.prediction.fit import Answer, Fit
from inferlab.prediction.memory import LayerBytes, MemoryPlan
from inferlab.prediction.memory.plan import CLOSED_FORM, SHARED
from inferlab.prediction.memory.verified import tried_text
from inferlab.prediction.paste import SMALL, Pasted, above_trained, lines_for, nearest
from inferlab.prediction.steps import Step
from inferlab.settings import Settings
from inferlab.units import GB, GIB, bytes_text, count_text, rate_text

PROGRAMS = {
    "llama-server": "llama-server",
    "llama-cli": "llama-cli",
    "llama-cpp-python": "llama-cpp-python",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
}
"""The programs of `lines_for`, by the names that they give themselves."""
KINDS = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute buffer", "output": "output buffer"}
BAR, HEIGHT, ROOM_LINE = 1000, 24, 4
"""Width and height of a bar, and width of the line at the end of a room, in the units of the drawing."""
STEP_NAMES = {
    "n_ctx": "context",
    "n_gpu_layers": "layers on the card",
    "n_cpu_moe": "layers with experts in RAM",
    "cache_type": "cache type",
    "flash_attn": "flash attention",
    "n_seq_max": "slots",
    "n_ubatch": "ubatch",
    "type": "weights",
}
WHERE = "The bars show what you asked for; the lines to paste stand further down."
KEEP_FREE = "The system and all programs need a part of this memory, too: keep more free than one GiB."
MACOS = (
    "macOS lets the GPU use only a part of the memory; llama.cpp's log names that part recommendedMaxWorkingSetSize, "
    "to be given under another card."
)
MOST_IN_RAM = 1 / 3
"""Share of a token's bytes in RAM above which a bound by the card alone says nothing: RAM is several times slower."""
SURE = {"yes": "it fits", "no": "too much", "unsure": "it may fit"}
UNSURE = {**SURE, "yes": SURE["unsure"]}
"""What a step leads to; on a memory of which the system leaves the GPU an unknown part, nothing is sure to fit."""


def summary(found: Fit, model: str, memory: str, state: str) -> str:
    """The question and its verdict in a sentence; `model` and `memory` say what was asked about."""
    verdict = {"yes": "fits on", "no": "does not fit on", "unsure": "may fit on"}[state]
    asked = f"{model} with {found.plan.settings.n_ctx:,} tokens of context {verdict} {memory}"
    limit = ", if the system leaves so much to the GPU" if state != found.fits else ""
    return f"{asked}{_margin_text(found)}{limit}{_ram_text(found)}."


def _margin_text(found: Fit) -> str:
    margin = found.margin_bytes
    if margin is None or (found.fits == "no" and margin >= 0):
        return ""
    if margin < 0:
        return f": {bytes_text(-margin)} too much{' at worst' if found.fits == 'unsure' else ''}"
    at_least = "at least " if found.plan.compute_range else ""
    return f": {at_least}{bytes_text(margin)} to spare{' without the compute buffer' if found.fits == 'unsure' else ''}"


def _ram_text(found: Fit) -> str:
    """What the plan needs in RAM beside the card: said for layers there, and for more than a little of anything."""
    host = None if found.fits == "no" else uncompared(found)
    if host is None or (host.most < SMALL and not layers_in_ram(found)):
        return ""
    if any(most is None for _, most in host.parts.values()):
        return f", and needs {host.text} of RAM"
    return f", and needs {'' if host.least == host.most else 'up to '}{bytes_text(host.most)} of RAM"


def layers_in_ram(found: Fit) -> list[LayerBytes]:
    """The blocks of the model that lie in RAM although there is a card; none where both are one memory."""
    if SHARED in found.room_bytes:
        return []
    return [row for row in found.plan.layers if row.device == "host" and row.index is not None]


def planner_view(
    found: Fit, model: Model, bandwidth: float | None, command: str, *, asked: Settings, sure: bool = True
) -> list[Any]:
    """All of an answer.

    bandwidth  bytes per second of each card, None where unknown
    command    the same question to the command line
    asked      the settings before llama.cpp rounds them
    sure       whether the GPU may use all of the memory that is compared
    """
    return element(
        "div",
        {},
        *what_to_do(found, model, asked),
        memories(held_by(found)),
        *map(paragraph, filter(None, [active_text(model)])),
        largest(found, model, sure),
        speed(found, model, bandwidth),
        taken_steps(found, SURE if sure else UNSURE),
        *(_lines(found, model, program, title) for program, title in PROGRAMS.items()),
        reasons(found, command),
    )


def what_to_do(found: Fit, model: Model, asked: Settings) -> list[Any]:
    """What fits instead, for a plan that does not; what differs from what was asked; what no plan here can know."""
    advice = [f"{note} {WHERE}" for note in nearest(found)[1][:1]] if found.fits == "no" else []
    notes = [_without_experts_text(model), _rounded_text(found, asked), above_trained(asked, model.n_ctx_train)]
    advice += filter(None, notes)
    if SHARED in found.room_bytes:
        advice.append(f"{KEEP_FREE} {MACOS}" if found.reserve_bytes <= GIB else MACOS)
    return [paragraph(text) for text in advice]


def _without_experts_text(model: Model) -> str:
    """That MXFP4_MOE of a model without experts is Q8_0 (llama-quant.cpp:512-524); empty for any other model."""
    is_mxfp4 = model.metadata.get("general.file_type") == FILE_TYPES["MXFP4_MOE"]
    if not is_mxfp4 or any(tensor.type == "MXFP4" for tensor in model.tensors):
        return ""
    return "MXFP4_MOE is made for experts, and this model has none: llama.cpp makes all of its matrices Q8_0."


def _rounded_text(found: Fit, asked: Settings) -> str:
    """That the context was rounded up, and why; empty where it was not."""
    planned = found.plan.settings
    if planned.n_ctx == asked.n_ctx:
        return ""
    slots = f" for each of the {planned.n_seq_max} slots" if planned.n_seq_max > 1 and not planned.kv_unified else ""
    return (
        f"The context is rounded up from {asked.n_ctx:,} to {planned.n_ctx:,} tokens: llama.cpp reserves the KV cache "
        f"in multiples of {CELL_STEP} tokens{slots}."
    )


# --- bytes against the room --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """What a plan puts into one memory: least and most bytes of each kind; most is None where it is not known.

    room  bytes that the plan may use there; None where nothing is compared
    """

    title: str
    parts: dict[str, tuple[int, int | None]]
    room: int | None

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


def held_by(found: Fit) -> list[Held]:
    """Each memory that the plan is compared with, and the host's where it is compared with none."""
    rooms = [_held(found, room, found.plan.devices_in(room), n_bytes) for room, n_bytes in found.room_bytes.items()]
    host = uncompared(found)
    return [*rooms, host] if host else rooms


def uncompared(found: Fit) -> Held | None:
    """What the plan puts into RAM where it is compared with none."""
    if any("host" in found.plan.devices_in(room) for room in found.room_bytes):
        return None
    return _held(found, "host", ("host",), None)


def _held(found: Fit, room: str, devices: Sequence[str], n_bytes: int | None) -> Held:
    return Held(place(room), {kind: _ends(found.plan, devices, kind) for kind in KINDS}, n_bytes)


def _ends(plan: MemoryPlan, devices: Sequence[str], kind: str) -> tuple[int, int | None]:
    """Least and most bytes of one kind on some devices; the most is None where one of them leaves it open."""
    least, most, known = 0, 0, True
    for device in devices:
        n_bytes = plan.devices[device].parts[kind]
        ends = (n_bytes, n_bytes) if n_bytes is not None else plan.compute_range.get(device, (0, 0))
        known &= n_bytes is not None or device in plan.compute_range
        least, most = least + ends[0], most + ends[1]
    return least, most if known else None


def place(room: str) -> str:
    """A room of a plan in the reader's words."""
    named = {"host": "RAM (host)", "shared": "Shared memory"}
    return named.get(room) or f"Card ({room})"


def memories(held: list[Held]) -> list[Any]:
    """A bar and a row of bytes for each memory; all bars at one scale, with the end of their room."""
    scale = BAR / max(max(one.most, one.room or 0) for one in held)
    rows = [[one.title, *map(_part_text, one.parts.values()), one.text, _room_text(one.room)] for one in held]
    heads = ["Memory", *(text[0].upper() + text[1:] for text in KINDS.values()), "Together", "Limit"]
    bars = (_bar(one, scale) for one in held)
    return element("section", {}, *bars, _key(), table(heads, rows))


def _part_text(ends: tuple[int, int | None]) -> str:
    least, most = ends
    return "not known" if most is None else range_text(least, most)


def _room_text(room: int | None) -> str:
    return "not compared" if room is None else bytes_text(room)


def range_text(least: int, most: int) -> str:
    """Bytes, or the two ends between which they lie."""
    return bytes_text(least) if least == most else f"{bytes_text(least)} to {bytes_text(most)}"


def _bar(held: Held, scale: float) -> list[Any]:
    """The parts of one memory side by side; what may be needed, too, is pale."""
    drawn, left = [], 0.0
    for kind, (least, most) in held.parts.items():
        drawn.append(_part(kind, left, scale * least))
        drawn.append(_part(f"{kind} open", left + scale * least, scale * ((most or least) - least)))
        left += scale * (least if most is None else most)
    if held.room is not None:
        drawn.append(_part("room", min(scale * max(held.room, 0), BAR - ROOM_LINE), ROOM_LINE))
    text = f"{held.title}: {held.text}" + ("" if held.room is None else f" of {bytes_text(held.room)}")
    drawing = {"viewBox": f"0 0 {BAR} {HEIGHT}", "preserveAspectRatio": "none", "aria-hidden": "true"}
    return element("div", {"class": "instrument-bar"}, element("span", {}, text), element("svg", drawing, *drawn))


def _part(kind: str, left: float, width: float) -> list[Any]:
    return element("rect", {"class": kind, "x": round(left, 1), "y": 0, "width": round(width, 1), "height": HEIGHT})


def _key() -> list[Any]:
    """What the colours of the bars mean."""
    drawn = {**KINDS, "open": "possible extra", "room": "limit: memory minus what stays free"}
    entries = (element("li", {}, _swatch(kind), text) for kind, text in drawn.items())
    return element("ul", {"class": "instrument-key"}, *entries)


def _swatch(kind: str) -> list[Any]:
    colour = "compute open" if kind == "open" else kind
    box = element("rect", {"class": colour, "x": 0, "y": 0, "width": 10, "height": 10})
    return element("svg", {"viewBox": "0 0 10 10", "aria-hidden": "true"}, box)


# --- what would fit, and what a step costs -----------------------------------------------------------------


def largest(found: Fit, model: Model, sure: bool) -> list[Any]:
    """The longest context, the most layers, the most precise cache; where there are such, experts and known weights."""
    trained = f" The model was trained for {model.n_ctx_train:,} tokens." if model.n_ctx_train else ""
    trained = "" if found.largest_n_ctx.memory_allows_more else trained
    no_layers = "makes no difference" if SHARED in found.room_bytes else "none fits"
    rows = [
        ["Longest context (n_ctx)", *_answer(found.largest_n_ctx, " tokens", trained)],
        ["Most layers on the card (n_gpu_layers)", *_answer(found.most_layers, " layers", none=no_layers)],
        *(
            [
                [
                    "Fewest layers with experts in RAM (n_cpu_moe)",
                    *_answer(found.expert_layers, " layers", none=no_layers),
                ]
            ]
            if found.expert_layers
            else []
        ),
        ["Most precise cache type", *_answer(found.cache_type)],
    ]
    if found.weights_type:
        place_of_all = {0: "in this memory", 1: "on the card"}.get(_n_cards(found), "on the cards")
        rows.append([f"Largest weights, all {place_of_all}", *_answer(found.weights_type)])
    heads = ["Setting", "Value", "Why not more"]
    title = "The largest that fits" if sure else "The largest that may fit"
    return element("section", {}, element("h2", {}, title), table(heads, rows))


def _answer(answer: Answer, unit: str = "", more: str = "", none: str = "none fits") -> list[str]:
    value = f"{answer.value:,}{unit}" if isinstance(answer.value, int) else answer.value or none
    return [value, answer.reason + more]


def speed(found: Fit, model: Model, bandwidth: float | None) -> list[Any] | None:
    """The bound on tokens per second that the memory's bandwidth sets; nothing where it is unknown or nothing fits."""
    if not bandwidth or found.fits == "no":
        return None
    end = found.plan.settings.n_ctx - 1
    try:
        short, long = (decode_bound(found, model, bandwidth, depth) for depth in (0, end))
    except InferlabError as reason:
        return paragraph(f"There is no bound on the speed: {reason}")
    on_host = _in_ram_text(found)
    if short is None or _share_of_ram(found, model) > MOST_IN_RAM:
        return (
            paragraph(
                f"No limit on tokens per second is given: {on_host} lie in RAM, and the speed of RAM is not known here."
            )
            if on_host
            else None
        )
    limit = f"At most {rate_text(short)}"
    return paragraph(
        limit if on_host else element("strong", {}, limit),
        f" at the beginning of the context and {rate_text(long)} at its end, for one sequence. This is an upper limit, "
        "and real rates are lower: each token reads the weights that it uses and the cache, and the card's rating is "
        f"{bandwidth / GB:,.0f} GB/s.{_slower_text(on_host)}",
    )


def _share_of_ram(found: Fit, model: Model) -> float:
    """Of the bytes that a token reads at the beginning of the context, the share in RAM; 0 in shared memory."""
    if SHARED in found.room_bytes:
        return 0.0
    here, there = (decode_bytes(found.plan, model, 0, frozenset(devices)) for devices in (["host"], found.plan.devices))
    return here / there


def _in_ram_text(found: Fit) -> str:
    """What lies in RAM although there is a card: layers, or the experts of layers; empty where nothing does."""
    blocks = [row for row in found.plan.layers if row.index is not None]
    whole, n_moved = len(layers_in_ram(found)), sum("host" in row.moved_bytes for row in blocks)
    texts = [f"{whole} of {count_text(len(blocks), 'layer')}"] * bool(whole)
    texts += [f"the experts of {n_moved} of {count_text(len(blocks), 'layer')}"] * bool(n_moved)
    return " and ".join(texts)


def _slower_text(in_ram: str) -> str:
    """What the bound leaves out where something lies in RAM."""
    return f" What lies in RAM, {in_ram}, is left out of this limit and makes it slower." if in_ram else ""


def taken_steps(found: Fit, verdicts: Mapping[str, str]) -> list[Any] | None:
    """What one step each way would cost or free in the fullest memory."""
    if not found.steps:
        return None
    heads = ["Change one setting to", _where(found), "Then"]
    rows = [[_step_text(step), _difference(step), verdicts[step.fits]] for step in found.steps]
    return element("section", {}, element("h2", {}, "What one step of a setting changes"), table(heads, rows))


def _step_text(step: Step) -> str:
    value = f"{step.value:,}" if isinstance(step.value, int) else step.value
    return f"{STEP_NAMES[step.setting]} {value}"


def _where(found: Fit) -> str:
    """The memory that the steps are compared in, as the head of a column."""
    if SHARED in found.room_bytes:
        return "Shared memory"
    if found.plan.fullest_room(found.room_bytes) == "host":
        return "RAM"
    return "On the card" if _n_cards(found) == 1 else "On the fullest card"


def _n_cards(found: Fit) -> int:
    return sum(room not in ("host", SHARED) for room in found.room_bytes)


def _difference(step: Step) -> str:
    """Bytes more or less; both ends where one plan is a bound, and the difference of the upper ends where both are."""
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


def _lines(found: Fit, model: Model, program: str, title: str) -> list[Any]:
    """The plan as lines for one program, folded but for the first."""
    pasted = lines_for(found, program, n_ctx_train=model.n_ctx_train)
    opened = program == next(iter(PROGRAMS))
    return element(
        "details",
        {"id": f"for-{program}", "open": opened},
        element("summary", {}, f"Settings for {title}"),
        *_pasted(pasted),
    )


def _pasted(pasted: Pasted) -> list[Any]:
    notes = [paragraph(note) for note in pasted.notes]
    return notes + [
        element("div", {"class": "instrument-lines"}, paragraph(f"{part.where}:"), code(part.text))
        for part in pasted.parts
    ]


def code(text: str) -> list[Any]:
    """Lines to copy, with a button that does it; they break at spaces only."""
    button = element("button", {"type": "button", "class": "pst-js-only", "data-copy": True}, "Copy")
    words = (element("span", {}, word) if word.strip() else word for word in re.split(r"(\s+)", text) if word)
    return element("div", {"class": "instrument-code"}, element("pre", {}, *words), button)


def reasons(found: Fit, command: str) -> list[Any]:
    """How the numbers came about, and how to get them elsewhere."""
    saving = {"type": "button", "class": "pst-js-only", "data-save": "plan.json"}
    return element(
        "details",
        {"id": "how"},
        element("summary", {}, "How this was computed"),
        paragraph(f"Compared with {found.compared_with}. Method: {found.plan.method}."),
        *map(paragraph, [tried_text()] if found.plan.method == CLOSED_FORM else []),
        *map(paragraph, found.plan.notes),
        paragraph("The same on the command line; add --json for all numbers:"),
        code(command),
        paragraph(element("button", saving, "Save the numbers as JSON")),
    )
