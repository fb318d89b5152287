"""Does it fit? From a model, a card and settings: bytes by part against the room, and what one step would cost.

The numbers are those of `inferlab plan --no-simulation --json`: the same functions make them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import join
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.instruments import forms
from inferlab.instruments.answer import Answer
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.planner_view import planner_view, summary
from inferlab.model.catalog import known_models
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import sized_card, sized_cards
from inferlab.prediction.fit import fit
from inferlab.prediction.fit_fields import plan_fields
from inferlab.prediction.memory.cache import may_have_windows, require_effect
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings
from inferlab.units import GB, GIB, bytes_text

OWN_FILE, OTHER_CARD = "file", "other"
DEFAULTS = {
    "model": "mistral-7b-v0.3",
    "type": "Q4_K_M",
    "file": "",
    "card": "rtx-4060",
    "n_cards": "1",
    "second": "",
    "split_mode": "layer",
    "tensor_split": "",
    "memory": "8",
    "bandwidth": "",
    "shared": "",
    "reserve": "1",
    "n_ctx": "8192",
    "n_gpu_layers": "",
    "n_cpu_moe": "",
    "cpu_moe": "",
    "override_tensor": "",
    "type_k": "f16",
    "type_v": "f16",
    "flash_attn": "on",
    "n_seq_max": "1",
    "n_ubatch": "512",
    "kv_unified": "",
    "swa_full": "",
    "offload_kqv": "on",
}
"""The question that is answered before anybody asks; the values are those of a form."""
FIELDS = {
    "n_ctx": "Context",
    "split_mode": "Cards share",
    "n_gpu_layers": "Layers on card",
    "n_cpu_moe": "Layers with experts in RAM",
    "cpu_moe": "All experts in RAM",
    "override_tensor": "Tensors by name",
    "flash_attn": "Flash attention",
    "type_k": "Cache, keys",
    "type_v": "Cache, values",
    "n_seq_max": "Slots",
    "n_ubatch": "Ubatch",
    "kv_unified": "One pool for all slots",
    "swa_full": "Sliding layers keep all tokens",
}
"""The fields of the settings, as the form names them."""
SHARES = "Shares of the cards"
SHARED_OUT = {"layer": "whole layers", "tensor": "every matrix"}
NAMED = re.compile(rf"\b({'|'.join(FIELDS)})=('\w+'|-?\d+)")
MOST_CARDS = 4
FAMILIES = {"cuda": "NVIDIA", "rocm": "AMD", "sycl": "Intel", "metal": "Apple", "vulkan": "others"}


@dataclass(frozen=True)
class Memory:
    """The memory to plan for.

    sizes      bytes of each card; one size for a memory that host and GPU share
    bandwidth  bytes per second of each card, None where it is not known
    title      the card in words
    """

    sizes: tuple[int, ...]
    shared: bool
    backend: str
    bandwidth: float | None
    title: str

    @property
    def is_one(self) -> bool:
        """Whether there is one card."""
        return len(self.sizes) == 1

    @property
    def arguments(self) -> dict[str, Any]:
        """As `fit` takes it."""
        place = {"unified": self.sizes[0]} if self.shared else {"vram": self.sizes}
        return {**place, "backend": self.backend}

    @property
    def options(self) -> list[str]:
        """As the command line takes it."""
        option = "--unified" if self.shared else "--vram"
        backend = [] if self.backend == "cuda" else ["--backend", self.backend]
        return [option, ",".join(map(size_option, self.sizes)), *backend]


def answer(question: Mapping[str, str], files: DroppedFiles) -> Answer:
    """The plan for a question. Raises InferlabError where there is none, naming the field that is wrong."""
    question = {**dict.fromkeys(DEFAULTS, ""), **question}
    model, memory = model_of(question, files), memory_of(question)
    settings = with_windows(settings_of(question), model)
    reserve = round(forms.amount(question, "reserve", "Kept free on each card") * GIB)
    with in_words_of_the_form():
        require_effect(settings, model)
        found = fit(
            model,
            settings,
            reserve_bytes=reserve,
            simulate=False,
            with_steps=True,
            within_trained=True,
            **memory.arguments,
        )
    known = known_models().get(question["model"])
    name = f"{known.name} in {question['type']}" if known else model.name
    command, sure = command_of(question, settings, memory, reserve), memory.backend != "metal"
    view = planner_view(found, model, memory.bandwidth, command, asked=settings, sure=sure)
    state = found.fits if sure or found.fits != "yes" else "unsure"
    return Answer(state, summary(found, name, memory.title, state), view, plan_fields(found))


@contextmanager
def in_words_of_the_form() -> Iterator[None]:
    """Errors about settings name the fields of the form."""
    try:
        yield
    except InvalidSettings as error:
        plain = str(error).replace("cpu_moe=True", FIELDS["cpu_moe"])
        plain = plain.replace("override_tensor", FIELDS["override_tensor"]).replace("tensor_split=", f"{SHARES}: ")
        plain = plain.replace("kv_unified=True", FIELDS["kv_unified"])
        text = NAMED.sub(lambda found: f"{FIELDS[found[1]]}: {found[2]}", plain, count=1)
        raise InvalidSettings(NAMED.sub(lambda found: f"{FIELDS[found[1]]} = {found[2]}", text)) from error


def model_of(question: Mapping[str, str], files: DroppedFiles) -> Model:
    """The known model of a type, or the header of the reader's own file."""
    if question["model"] == OWN_FILE:
        return files.model(question["file"])
    name = forms.one_of(question, "model", "Model", known_models())
    return shape(name, forms.one_of(question, "type", "Weights", MIXES))


def memory_of(question: Mapping[str, str]) -> Memory:
    """The memory of a card in the list, or of one that the reader describes; of several such cards."""
    n_cards = forms.whole(question, "n_cards", "Number of cards")
    if not 1 <= n_cards <= MOST_CARDS:
        raise InvalidSettings(f"Number of cards: {n_cards} is not from 1 to {MOST_CARDS}.")
    memory = _described(question) if question["card"] == OTHER_CARD else _listed(question)
    if memory.shared and n_cards > 1:
        raise InvalidSettings("Number of cards: a memory that the processor shares with its GPU has one. Choose 1.")
    if n_cards == 2 and question["second"].strip():
        return _with_second(memory, round(forms.amount(question, "second", "Memory of the second card") * GIB))
    title = f"one {memory.title}" if n_cards == 1 else f"{n_cards} cards of the kind {memory.title}"
    return Memory(memory.sizes * n_cards, memory.shared, memory.backend, memory.bandwidth, title)


def _with_second(first: Memory, size: int) -> Memory:
    """A card beside another of its backend, whose bandwidth is not known."""
    if not size:
        raise InvalidSettings(
            "Memory of the second card: a card without memory holds no layer. Write its GiB, or choose one card."
        )
    title = f"one {first.title}, and one card with {bytes_text(size)}"
    return Memory((*first.sizes, size), first.shared, first.backend, None, title)


def _listed(question: Mapping[str, str]) -> Memory:
    card, size = sized_card(forms.one_of(question, "card", "Card", sized_cards()))
    rate = card.bandwidth_bytes_per_second
    return Memory((size,), card.unified, card.backend, rate, f"{card.title}, {size // GIB} GiB")


def _described(question: Mapping[str, str]) -> Memory:
    size = round(forms.amount(question, "memory", "Its memory") * GIB)
    if not size:
        raise InvalidSettings("Its memory: a card without memory holds no model. Write its GiB, such as 8.")
    rate = forms.amount(question, "bandwidth", "Its bandwidth") * GB if question["bandwidth"].strip() else 0
    return Memory((size,), question["shared"] == "on", "cuda", rate or None, f"card with {bytes_text(size)}")


def settings_of(question: Mapping[str, str]) -> Settings:
    """The settings of a question, under llama.cpp's names."""
    with in_words_of_the_form():
        return Settings(
            n_ctx=forms.whole(question, "n_ctx", FIELDS["n_ctx"]),
            n_gpu_layers=forms.whole(question, "n_gpu_layers", FIELDS["n_gpu_layers"], empty=-1),
            n_cpu_moe=forms.whole(question, "n_cpu_moe", FIELDS["n_cpu_moe"], empty=0),
            cpu_moe=question["cpu_moe"] == "on",
            override_tensor=overrides_of(question),
            type_k=forms.one_of(question, "type_k", FIELDS["type_k"], KV_TYPES),
            type_v=forms.one_of(question, "type_v", FIELDS["type_v"], KV_TYPES),
            flash_attn=forms.one_of(question, "flash_attn", FIELDS["flash_attn"], FLASH_ATTN),
            n_seq_max=forms.whole(question, "n_seq_max", FIELDS["n_seq_max"]),
            n_ubatch=forms.whole(question, "n_ubatch", FIELDS["n_ubatch"]),
            kv_unified=question["kv_unified"] == "on",
            swa_full=question["swa_full"] == "on",
            offload_kqv=question["offload_kqv"] == "on",
            **_sharing_of(question),
        )


def with_windows(settings: Settings, model: Model) -> Settings:
    """The settings for a model whose sliding layers, if it has any, keep their window alone unless asked otherwise."""
    if may_have_windows(model):
        return settings
    if settings.swa_full:
        raise InvalidSettings(
            f"{FIELDS['swa_full']} changes nothing: no layer of {model.name} has a sliding window. Switch it off."
        )
    return settings.but(swa_full=True)


def _sharing_of(question: Mapping[str, str]) -> dict[str, Any]:
    """How several cards share a model; nothing for one card, whose form does not show these fields."""
    if question["n_cards"].strip() in ("", "1"):
        return {}
    asked = {**question, "split_mode": question["split_mode"] or "layer"}
    mode = forms.one_of(asked, "split_mode", FIELDS["split_mode"], SHARED_OUT)
    text = question["tensor_split"].strip()
    try:
        shares = tuple(float(one) for one in text.split(",")) if text else None
    except ValueError as error:
        raise InvalidSettings(f"{SHARES}: {text[:40]!r} has no number for each card, such as 3,1.") from error
    if shares and not all(map(math.isfinite, shares)):
        raise InvalidSettings(f"{SHARES}: {text[:40]!r} has no number for each card, such as 3,1.")
    return {"split_mode": mode, "tensor_split": shares}


def overrides_of(question: Mapping[str, str]) -> tuple[str, ...]:
    """The overrides of a question, written as -ot takes them: with commas between them."""
    return tuple(filter(None, (text.strip() for text in question["override_tensor"].split(","))))


def command_of(question: Mapping[str, str], settings: Settings, memory: Memory, reserve: int) -> str:
    """The same question to the command line; only what differs from its defaults is named."""
    own = question["model"] == OWN_FILE
    words = ["inferlab", "plan", question["file"] if own else question["model"]]
    words += [] if own else ["--type", question["type"]]
    words += ["--card", question["card"]] if question["card"] in sized_cards() and memory.is_one else memory.options
    usual = Settings()
    for name in ("n_ctx", "n_gpu_layers", "n_cpu_moe", "type_k", "type_v", "flash_attn", "n_seq_max", "n_ubatch"):
        if getattr(settings, name) != getattr(usual, name):
            words += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    words += ["--split-mode", settings.split_mode] if settings.split_mode != usual.split_mode else []
    words += ["--tensor-split", ",".join(f"{n:g}" for n in settings.tensor_split)] if settings.tensor_split else []
    words += ["--cpu-moe"] if settings.cpu_moe else []
    words += ["--override-tensor", ",".join(settings.override_tensor)] if settings.override_tensor else []
    words += ["--kv-unified"] if settings.kv_unified else []
    words += [] if settings.swa_full else ["--no-swa-full"]
    words += [] if settings.offload_kqv else ["--no-offload-kqv"]
    words += [] if reserve == GIB else ["--reserve", size_option(reserve)]
    return join(words)


def size_option(n_bytes: int) -> str:
    """A size as the command line takes it: in GiB where that is exact."""
    return f"{n_bytes // GIB}GiB" if n_bytes % GIB == 0 else f"{n_bytes}B"


def form() -> list[Any]:
    """The form, with the default question in it."""
    chosen = DEFAULTS
    return forms.form(
        forms.group(
            "Model",
            forms.field("Model", forms.select("model", _models(), chosen["model"])),
            forms.field("Weights", forms.select("type", _same(MIXES), chosen["type"]), but="model=file"),
            forms.file_field("A .gguf file, or all parts of a split one", "file", only="model=file"),
        ),
        forms.group(
            "Memory",
            forms.field("Card", forms.select("card", _cards(), chosen["card"])),
            forms.field("Its memory", forms.number("memory", chosen["memory"], "GiB", step="any"), only="card=other"),
            forms.field(
                "Its bandwidth, if you know it", forms.number("bandwidth", "", "GB/s", step="any"), only="card=other"
            ),
            forms.switch("shared", "The processor uses the same memory", False, only="card=other"),
            forms.field("Number of cards", forms.select("n_cards", _same("1234"), chosen["n_cards"])),
            forms.field(
                "Memory of the second card", forms.number("second", "", "GiB", "as the first", "any"), only="n_cards=2"
            ),
            forms.field(
                FIELDS["split_mode"],
                forms.select("split_mode", SHARED_OUT.items(), chosen["split_mode"]),
                but="n_cards=1",
            ),
            forms.field(SHARES, forms.line("tensor_split", "", placeholder="such as 3,1"), but="n_cards=1"),
            forms.field("Kept free on each card", forms.number("reserve", chosen["reserve"], "GiB", step="any")),
        ),
        forms.group(
            "Settings",
            forms.field("Context, tokens", forms.number("n_ctx", chosen["n_ctx"], step="256")),
            forms.field("Layers on card", forms.number("n_gpu_layers", "", placeholder="all")),
            forms.field("Layers with experts in RAM", forms.number("n_cpu_moe", "", placeholder="none")),
            forms.field("Flash attention", forms.select("flash_attn", _same(FLASH_ATTN), chosen["flash_attn"])),
            forms.field("Cache, keys", forms.select("type_k", _same(KV_TYPES), chosen["type_k"])),
            forms.field("Cache, values", forms.select("type_v", _same(KV_TYPES), chosen["type_v"])),
            forms.field("Slots", forms.number("n_seq_max", chosen["n_seq_max"])),
            forms.field("Ubatch, tokens", forms.number("n_ubatch", chosen["n_ubatch"])),
            forms.field(FIELDS["override_tensor"], forms.line("override_tensor", "", placeholder="ffn_up_exps=CPU")),
            forms.switch("cpu_moe", FIELDS["cpu_moe"], False),
            forms.switch("offload_kqv", "Cache on card", True),
            forms.switch("kv_unified", FIELDS["kv_unified"], False),
            forms.switch("swa_full", FIELDS["swa_full"], False),
        ),
    )


def _models() -> list[tuple[str, str]]:
    return [(OWN_FILE, "my own file …"), *((name, known.name) for name, known in known_models().items())]


def _cards() -> list[tuple[str, Any]]:
    families: dict[str, list[tuple[str, str]]] = {}
    for value, (card, size) in sized_cards().items():
        text = f"{card.title}, {size // GIB} GiB{' shared' if card.unified else ''}"
        families.setdefault(FAMILIES[card.backend], []).append((value, text))
    return [(OTHER_CARD, "another card …"), *families.items()]


def _same(values: Any) -> list[tuple[str, str]]:
    return [(value, value) for value in values]
