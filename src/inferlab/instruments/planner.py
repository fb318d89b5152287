"""Does it fit? From a model, a card and settings: bytes by part against its memory, and what one step would cost.

Without a model: what of all known ones runs on the card and the RAM.
The numbers are those of `inferlab plan --no-simulation --json`: the same functions make them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from shlex import join
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.instruments import addressed, forms, telling
from inferlab.instruments.answer import Answer
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.planner_fields import (
    ASKED,
    CACHE,
    LABELS,
    MEMORY,
    PLACEMENT,
    SETTINGS,
    SHARES,
    controls,
    same,
)
from inferlab.instruments.planner_list import list_summary, list_view
from inferlab.instruments.planner_view import planner_view, summary
from inferlab.model.catalog import known_models
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import MIXES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cards import sized_card, sized_cards
from inferlab.prediction.expected import expected_fields
from inferlab.prediction.fit import RESERVE_BYTES, fit
from inferlab.prediction.fit_fields import plan_fields
from inferlab.prediction.free_memory import DEFAULT_BACKEND, PROMPT_CACHE_BYTES, SYSTEM_BYTES, HostRam
from inferlab.prediction.memory.cache import n_ctx_of, require_effect
from inferlab.prediction.place import DEFAULT_RAM_BYTES, Place, described_place, place_of_card
from inferlab.prediction.what_runs import by_size, what_runs
from inferlab.settings import Settings
from inferlab.units import GB, GIB, MIB, bytes_from_text, bytes_text

OWN_FILE, OTHER_CARD, LIST = "file", "other", "list"
DEFAULTS = {
    "model": "mistral-7b-v0.3",
    "file": "",
    addressed.NAME: "",
    "card": "rtx-4060",
    "memory": "8",
    "bandwidth": "",
    "shared": "",
    "ram": f"{DEFAULT_RAM_BYTES // GIB}",
    "type": "",
    "n_cards": "1",
    "second": "",
    "gpu": "",
    "reserve": f"{RESERVE_BYTES // GIB}",
    "system": f"{SYSTEM_BYTES // GIB}",
    "prompts": "",
    LIST: "",
    **{field.name: field.default for field in SETTINGS},
}
"""The question that is answered before anybody asks; the values are those of a form."""
RESERVE, SYSTEM, PROMPTS = "Kept free on each card", "Kept for the system", "Earlier prompts in RAM"
NAMED = re.compile(rf"\b({'|'.join(LABELS)})=('\w+'|-?\d+)")
MOST_CARDS = 4
ENDS_LIST = "model file type n_gpu_layers n_cpu_moe cpu_moe override_tensor"
"""The controls about one model: a list is of every other change, too."""
FAMILIES = {"cuda": "NVIDIA", "rocm": "AMD", "sycl": "Intel", "metal": "Apple", "vulkan": "others"}


def answer(question: Mapping[str, str], files: DroppedFiles) -> Answer:
    """The plan for a question, or the list. Raises InferlabError where there is none, naming the wrong field."""
    question = {**dict.fromkeys(DEFAULTS, ""), **question}
    place, settings = place_of(question), settings_of(question)
    reserve = round(forms.amount(question, "reserve", RESERVE) * GIB)
    if question[LIST] == "on":
        return listed(question, place, settings, reserve)
    model = model_of(question, files)
    with in_words_of_the_form():
        require_effect(settings, model)
        planned = fit(
            model,
            settings,
            reserve_bytes=reserve,
            ram=place.ram,
            simulate=False,
            with_steps=True,
            within_trained=True,
            **place.devices,
        )
    known = known_models().get(question["model"])
    name = f"{known.name} in {type_of(question)}" if known else model.name
    named = {**question, "file": model.source or question["file"]}
    command = command_of(named, settings, place, reserve)
    view = planner_view(planned, model, place, command, asked=settings)
    data = plan_fields(planned) | {"expected": expected_fields(planned, model, place)}
    return Answer(planned.fits, summary(planned, name, place.title), view, data)


def listed(question: Mapping[str, str], place: Place, settings: Settings, reserve: int) -> Answer:
    """What of all known models runs."""
    found = []
    with in_words_of_the_form():
        for runs in what_runs(place, settings, reserve):
            found.append(runs)
            telling.tell(f"Looking for what runs: {len(found)} of {len(known_models())} models …")
    ordered = by_size(found)
    command = command_of(question, settings, place, reserve)
    data = {"n_ctx": n_ctx_of(settings), "models": [runs.to_dict() for runs in ordered]}
    return Answer("yes", list_summary(ordered, place, settings), list_view(ordered, place, settings, command), data)


@contextmanager
def in_words_of_the_form() -> Iterator[None]:
    """Errors about settings name the fields of the form."""
    try:
        yield
    except InvalidSettings as error:
        text = str(error).replace("override_tensor", LABELS["override_tensor"]).replace("tensor_split=", f"{SHARES}: ")
        text = re.sub(r"reserve_bytes=\d+", RESERVE, text)
        for field in SETTINGS:
            text = text.replace(f"{field.name}=True", field.label).replace(f"{field.name}=False", f"{field.label} off")
        text = NAMED.sub(lambda match: f"{LABELS[match[1]]}: {match[2]}", text, count=1)
        raise InvalidSettings(NAMED.sub(lambda match: f"{LABELS[match[1]]} = {match[2]}", text)) from error


def model_of(question: Mapping[str, str], files: DroppedFiles) -> Model:
    """A known model with its type of weights, or the header of the reader's own file."""
    if question["model"] == OWN_FILE:
        return files.model(question["file"])
    name = forms.one_of(question, "model", "Model", known_models())
    return shape(name, type_of(question))


def type_of(question: Mapping[str, str]) -> str:
    """The type of a known model's weights: the one in the question, or else its usual one."""
    if not question["type"]:
        return known_models()[question["model"]].usual_type
    return forms.one_of(question, "type", "Weights", MIXES)


def place_of(question: Mapping[str, str]) -> Place:
    """The memory of a card in the list, or of one that the reader describes; of several such cards; and RAM."""
    n_cards = forms.whole(question, "n_cards", "Number of cards")
    if not 1 <= n_cards <= MOST_CARDS:
        raise InvalidSettings(f"Number of cards: {n_cards} is not from 1 to {MOST_CARDS}.")
    place = _described(question) if question["card"] == OTHER_CARD else _listed(question)
    if place.shared and n_cards > 1:
        raise InvalidSettings("Number of cards: a memory that the processor shares with its GPU has one. Choose 1.")
    if n_cards == 2 and question["second"].strip():
        return _with_second(place, _gib(question, "second", "Memory of the second card"))
    title = f"one {place.title}" if n_cards == 1 else f"{n_cards} cards of the kind {place.title}"
    card = None if n_cards > 1 and question["gpu"].strip() else place.card
    return place.with_cards(place.sizes * n_cards, title, card=card)


def _with_second(first: Place, size: int) -> Place:
    """A card beside another of its backend, whose bandwidth is not known."""
    if not size:
        raise InvalidSettings(
            "Memory of the second card: a card without memory holds no layer. Write its GiB, or choose one card."
        )
    title = f"one {first.title}, and one card with {bytes_text(size)}"
    return first.with_cards((*first.sizes, size), title, bandwidth=None, card=None)


def _listed(question: Mapping[str, str]) -> Place:
    name = forms.one_of(question, "card", "Card", sized_cards())
    card, size = sized_card(name)
    ram = _host_ram(question, size if card.unified else None)
    return place_of_card(name, ram.n_bytes, ram.system_bytes, ram.prompt_cache_bytes, _gpu_bytes(question))


def _described(question: Mapping[str, str]) -> Place:
    size, shared = _gib(question, "memory", "Its memory"), question["shared"] == "on"
    if not size:
        raise InvalidSettings("Its memory: a card without memory holds no model. Write its GiB, such as 8.")
    rate = forms.amount(question, "bandwidth", "Its bandwidth") * GB if question["bandwidth"].strip() else 0
    usable = min(size, _gpu_bytes(question) or size)
    return described_place([usable], shared, _host_ram(question, size if shared else None), bandwidth=rate or None)


def _host_ram(question: Mapping[str, str], shared_bytes: int | None) -> HostRam:
    """RAM beside the card, or the memory that the card shares."""
    n_bytes = _gib(question, "ram", "RAM") if shared_bytes is None else shared_bytes
    prompts = forms.whole(question, "prompts", PROMPTS, empty=-1)
    return HostRam(n_bytes, _gib(question, "system", SYSTEM), None if prompts < 0 else prompts * MIB)


def _gpu_bytes(question: Mapping[str, str]) -> int | None:
    return _gib(question, "gpu", "Memory for the GPU") if question["gpu"].strip() else None


def _gib(question: Mapping[str, str], name: str, label: str) -> int:
    return round(forms.amount(question, name, label) * GIB)


def settings_of(question: Mapping[str, str]) -> Settings:
    """The settings of a question, under llama.cpp's names."""
    several = question["n_cards"].strip() not in ("", "1")
    fields = [field for field in SETTINGS if several or not field.several]
    with in_words_of_the_form():
        return Settings(**{field.name: field.value(question) for field in fields})


def command_of(question: Mapping[str, str], settings: Settings, place: Place, reserve: int) -> str:
    """The same question to the command line; only what differs from its defaults is named."""
    if question[LIST] == "on":
        words = ["--list"]
    elif question["model"] == OWN_FILE:
        words = [question["file"]]
    else:
        words = [question["model"], "--type", type_of(question)]
    words = ["inferlab", "plan", *words]
    words += _memory_words(question, place)
    words += [word for field in SETTINGS for word in field.words(settings)]
    words += [] if reserve == RESERVE_BYTES else ["--reserve", size_option(reserve)]
    return join(words)


def _memory_words(question: Mapping[str, str], place: Place) -> list[str]:
    """The memory for the command line: the card's name, or that of several alike; else bytes."""
    own_limit, n_cards = question["gpu"].strip(), len(place.sizes)
    if place.card and (n_cards == 1 or not own_limit):
        name = question["card"] if n_cards == 1 else f"{n_cards}x{question['card']}"
        words = ["--card", name, *(["--unified", size_option(place.sizes[0])] if own_limit else [])]
    else:
        words = ["--unified" if place.shared else "--vram", ",".join(map(size_option, place.sizes))]
        words += [] if place.backend == DEFAULT_BACKEND else ["--backend", place.backend]
    return words + _ram_words(place, by_name=words[0] == "--card")


def _ram_words(place: Place, by_name: bool) -> list[str]:
    ram = place.ram
    if ram is None:
        return []
    usual = ram.n_bytes if place.shared and by_name else place.sizes[0] if place.shared else DEFAULT_RAM_BYTES
    words = [] if ram.n_bytes == usual else ["--ram", size_option(ram.n_bytes)]
    words += [] if ram.system_bytes == SYSTEM_BYTES else ["--ram-reserve", size_option(ram.system_bytes)]
    return words + ([] if ram.prompt_cache_bytes is None else ["--cache-ram", f"{ram.prompt_cache_bytes // MIB}"])


def size_option(n_bytes: int) -> str:
    """A size as the command line takes it: in GiB where a few digits say it to the byte."""
    in_gib = f"{n_bytes / GIB:.6g}GiB"
    return in_gib if bytes_from_text(in_gib) == n_bytes else f"{n_bytes}B"


def form() -> list[Any]:
    """The form, with the default question in it: four things are asked, all else is folded."""
    own = f"model={OWN_FILE}"
    return forms.form(
        forms.group(
            "Your question",
            forms.field(
                "Model",
                forms.select("model", _models(), DEFAULTS["model"]),
                help="One of the list, or “my own file” for any other.",
            ),
            addressed.controls("file", only=own),
            forms.field(
                "Card",
                forms.select("card", _cards(), DEFAULTS["card"]),
                help="The graphics card, or the machine whose processor shares its memory, as a Mac does.",
            ),
            forms.field(
                "Its memory",
                forms.number("memory", DEFAULTS["memory"], "GiB", step="any"),
                only=f"card={OTHER_CARD}",
                help="What is free on it.",
            ),
            forms.field(
                "RAM",
                forms.number("ram", DEFAULTS["ram"], "GiB", step="any"),
                but=f"card={'|'.join(_sharing())}",
                help=f"All memory of the machine beside the card; {DEFAULTS['ram']} GiB is only a guess.",
            ),
            *controls(ASKED),
            forms.hidden(LIST, "", until=ENDS_LIST),
            forms.asking("What runs on mine?", **{LIST: "on"}),
        ),
        forms.more(
            "More settings",
            forms.group(
                MEMORY,
                forms.field(
                    "Weights",
                    forms.select("type", {"": "as usual", **same(MIXES)}.items(), DEFAULTS["type"]),
                    but=own,
                    help="The type: smaller ones need less memory and are less exact. Usual is Q4_K_M, or the one that "
                    "a model was trained in.",
                ),
                *_memory_controls(),
            ),
            forms.group(PLACEMENT, *controls(PLACEMENT)),
            forms.group(CACHE, *controls(CACHE)),
        ),
    )


def _memory_controls() -> list[Any]:
    other = f"card={OTHER_CARD}"
    prompts = f"{PROMPT_CACHE_BYTES // MIB}, or what is left"
    return [
        forms.field(
            "Its bandwidth",
            forms.number("bandwidth", "", "GB/s", step="any"),
            only=other,
            help="The maker's number; without it no rate is said.",
        ),
        forms.switch(
            "shared", "The processor uses the same memory", False, only=other, help="Then RAM is not asked for."
        ),
        forms.field(
            "Number of cards",
            forms.select("n_cards", same("1234").items(), DEFAULTS["n_cards"]),
            help="Cards of this kind in one machine.",
        ),
        forms.field(
            "Memory of the second card",
            forms.number("second", "", "GiB", "as the first", "any"),
            only="n_cards=2",
            help="Where the second card is another one.",
        ),
        forms.field(
            "Memory for the GPU",
            forms.number("gpu", "", "GiB", "all, or a Mac's share", "any"),
            help="What of it the GPU may use: less beside a display, more on a Mac whose limit you raised.",
        ),
        forms.field(
            RESERVE,
            forms.number("reserve", DEFAULTS["reserve"], "GiB", step="any"),
            help="llama.cpp leaves as much when it chooses settings by itself.",
        ),
        forms.field(
            SYSTEM,
            forms.number("system", DEFAULTS["system"], "GiB", step="any"),
            help="RAM for the system and other programs; Windows 11 asks for so much.",
        ),
        forms.field(
            PROMPTS,
            forms.number("prompts", "", "MiB", prompts, "any"),
            help="What llama-server may keep of earlier prompts, in time; 0: nothing.",
        ),
    ]


def _models() -> list[tuple[str, str]]:
    return [(OWN_FILE, "my own file …"), *known_models().titles.items()]


def _cards() -> list[tuple[str, Any]]:
    families: dict[str, list[tuple[str, str]]] = {}
    for value, (card, size) in sized_cards().items():
        text = f"{card.title}, {size // GIB} GiB{' shared' if card.unified else ''}"
        families.setdefault(FAMILIES[card.backend], []).append((value, text))
    return [(OTHER_CARD, "another card …"), *families.items()]


def _sharing() -> list[str]:
    """The cards whose memory is the machine's RAM."""
    return [value for value, (card, _) in sized_cards().items() if card.unified]
