"""Does it fit? From a model, a card and settings: bytes by part against its memory, and what one step would cost.

The numbers are those of `inferlab plan --no-simulation --json`: the same functions make them.
"""

from __future__ import annotations

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
from inferlab.instruments.planner_fields import LABELS, SETTINGS, SHARES, controls, same
from inferlab.instruments.planner_view import planner_view, summary
from inferlab.model.catalog import known_models
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import sized_card, sized_cards
from inferlab.prediction.fit import fit
from inferlab.prediction.fit_fields import plan_fields
from inferlab.prediction.memory.cache import may_have_windows, require_effect
from inferlab.settings import Settings
from inferlab.units import GB, GIB, bytes_text

OWN_FILE, OTHER_CARD = "file", "other"
DEFAULTS = {
    "model": "mistral-7b-v0.3",
    "type": "Q4_K_M",
    "file": "",
    "card": "rtx-4060",
    "n_cards": "1",
    "second": "",
    "memory": "8",
    "bandwidth": "",
    "shared": "",
    "reserve": "1",
    **{field.name: field.default for field in SETTINGS},
}
"""The question that is answered before anybody asks; the values are those of a form."""
NAMED = re.compile(rf"\b({'|'.join(LABELS)})=('\w+'|-?\d+)")
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
        planned = fit(
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
    view = planner_view(planned, model, memory.bandwidth, command, asked=settings, sure=sure)
    state = planned.fits if sure or planned.fits != "yes" else "unsure"
    return Answer(state, summary(planned, name, memory.title, state), view, plan_fields(planned))


@contextmanager
def in_words_of_the_form() -> Iterator[None]:
    """Errors about settings name the fields of the form."""
    try:
        yield
    except InvalidSettings as error:
        text = str(error).replace("override_tensor", LABELS["override_tensor"]).replace("tensor_split=", f"{SHARES}: ")
        for field in SETTINGS:
            text = text.replace(f"{field.name}=True", field.label)
        text = NAMED.sub(lambda match: f"{LABELS[match[1]]}: {match[2]}", text, count=1)
        raise InvalidSettings(NAMED.sub(lambda match: f"{LABELS[match[1]]} = {match[2]}", text)) from error


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
    several = question["n_cards"].strip() not in ("", "1")
    fields = [field for field in SETTINGS if several or not field.several]
    with in_words_of_the_form():
        return Settings(**{field.name: field.value(question) for field in fields})


def with_windows(settings: Settings, model: Model) -> Settings:
    """The settings for a model whose sliding layers, if it has any, keep their window alone unless asked otherwise."""
    if may_have_windows(model):
        return settings
    if settings.swa_full:
        raise InvalidSettings(
            f"{LABELS['swa_full']} changes nothing: no layer of {model.name} has a sliding window. Switch it off."
        )
    return settings.but(swa_full=True)


def command_of(question: Mapping[str, str], settings: Settings, memory: Memory, reserve: int) -> str:
    """The same question to the command line; only what differs from its defaults is named."""
    own = question["model"] == OWN_FILE
    words = ["inferlab", "plan", question["file"] if own else question["model"]]
    words += [] if own else ["--type", question["type"]]
    words += ["--card", question["card"]] if question["card"] in sized_cards() and memory.is_one else memory.options
    words += [word for field in SETTINGS for word in field.words(settings)]
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
            forms.field("Weights", forms.select("type", same(MIXES).items(), chosen["type"]), but="model=file"),
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
            forms.field("Number of cards", forms.select("n_cards", same("1234").items(), chosen["n_cards"])),
            forms.field(
                "Memory of the second card", forms.number("second", "", "GiB", "as the first", "any"), only="n_cards=2"
            ),
            *controls(several=True),
            forms.field("Kept free on each card", forms.number("reserve", chosen["reserve"], "GiB", step="any")),
        ),
        forms.group("Settings", *controls(several=False)),
    )


def _models() -> list[tuple[str, str]]:
    return [(OWN_FILE, "my own file …"), *((name, known.name) for name, known in known_models().items())]


def _cards() -> list[tuple[str, Any]]:
    families: dict[str, list[tuple[str, str]]] = {}
    for value, (card, size) in sized_cards().items():
        text = f"{card.title}, {size // GIB} GiB{' shared' if card.unified else ''}"
        families.setdefault(FAMILIES[card.backend], []).append((value, text))
    return [(OTHER_CARD, "another card …"), *families.items()]
