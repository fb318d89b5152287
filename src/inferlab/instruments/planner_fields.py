"""The settings of the planner's form, one row each: how a setting is shown, read, and named to the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.instruments import forms
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings

SHARES = "Shares of the cards"
ASKED, MEMORY, PLACEMENT, CACHE = "asked", "Memory", "What lies where", "Cache and batches"
"""Groups of the form: what is asked of everybody, and the titles of those that are folded."""


@dataclass(frozen=True)
class Field:
    """One setting: a choice, a switch, a line of text that `parse` reads, or else a whole number.

    name     llama.cpp's, as in `Settings`
    label    its name in the form and in errors; in the form `unit` follows
    default  what the form has at first
    hint     what the empty field shows; `empty` is the value that it then has, None if it must not be empty
    help     a sentence on it in plain words
    group    where it stands in the form: "asked", or the title of a group of further settings
    several  whether it is for several cards, shown with them and read for them alone
    """

    name: str
    label: str
    default: str = ""
    unit: str = ""
    choices: Mapping[str, str] | None = None
    switch: bool = False
    parse: Callable[[str], Any] | None = None
    hint: str = ""
    empty: Any = None
    step: str = "1"
    help: str = ""
    group: str = PLACEMENT
    several: bool = False

    @property
    def control(self) -> list[Any]:
        """Its control in the form."""
        if self.switch:
            return forms.switch(self.name, self.label, self.default == "on", help=self.help)
        if self.choices:
            entry = forms.select(self.name, self.choices.items(), self.default)
        elif self.parse:
            entry = forms.line(self.name, self.default, placeholder=self.hint)
        else:
            entry = forms.number(self.name, self.default, placeholder=self.hint, step=self.step)
        label = f"{self.label}, {self.unit}" if self.unit else self.label
        return forms.field(label, entry, but="n_cards=1" if self.several else None, help=self.help)

    def value(self, question: Mapping[str, str]) -> Any:
        """Its value in a question. Raises InvalidSettings, which names the field."""
        if self.switch:
            return question[self.name] == "on"
        if self.parse:
            return self.parse(question[self.name])
        if self.choices:
            asked = {self.name: question[self.name] or self.empty or ""}
            return forms.one_of(asked, self.name, self.label, self.choices)
        return forms.whole(question, self.name, self.label, empty=self.empty)

    def words(self, settings: Settings) -> list[str]:
        """Its words for the command line; none for the default of `Settings`."""
        value, option = getattr(settings, self.name), self.name.replace("_", "-")
        if value == getattr(Settings(), self.name):
            return []
        if isinstance(value, bool):
            return [f"--{option}" if value else f"--no-{option}"]
        if isinstance(value, tuple):
            return [f"--{option}", ",".join(f"{part:g}" if isinstance(part, float) else part for part in value)]
        return [f"--{option}", f"{value}"]


def shares(text: str) -> tuple[float, ...] | None:
    """The shares of the cards, such as `3,1`; None without any. Raises InvalidSettings."""
    try:
        parts = tuple(float(part) for part in text.split(",")) if text.strip() else None
    except ValueError:
        parts = (math.nan,)
    if parts and not all(map(math.isfinite, parts)):
        raise InvalidSettings(f"{SHARES}: {text.strip()[:40]!r} has no number for each card, such as 3,1.")
    return parts


def overrides(text: str) -> tuple[str, ...]:
    """Overrides as -ot takes them: with commas between them."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def same(values: Any) -> dict[str, str]:
    """Choices whose texts are their values."""
    return {value: value for value in values}


SETTINGS = (
    Field(
        "n_ctx",
        "Context",
        "8192",
        unit="tokens",
        step="256",
        group=ASKED,
        help="How much text the model sees at once: the conversation, what you paste, and its answer.",
    ),
    Field(
        "n_gpu_layers",
        "Layers on the card",
        hint="all",
        empty=-1,
        help="Empty: all of them. The others lie in RAM, where they are computed much more slowly.",
    ),
    Field(
        "n_cpu_moe",
        "Layers with experts in RAM",
        hint="none",
        empty=0,
        help="For a mixture of experts: of so many layers the experts lie in RAM, and all else on the card.",
    ),
    Field(
        "type_k",
        "Cache, keys",
        "f16",
        choices=same(KV_TYPES),
        group=CACHE,
        help="A smaller type makes the cache smaller and a little less exact: q8_0 is about half of f16.",
    ),
    Field("type_v", "Cache, values", "f16", choices=same(KV_TYPES), group=CACHE, help="As for the keys."),
    Field(
        "flash_attn",
        "Flash attention",
        "auto",
        choices=same(FLASH_ATTN),
        group=CACHE,
        help="A way to compute attention that needs less memory; a smaller type of values needs it.",
    ),
    Field("n_seq_max", "Slots", "1", group=CACHE, help="Conversations at the same time, which share the context."),
    Field(
        "n_ubatch",
        "Tokens computed together",
        "512",
        group=CACHE,
        help="More read a long prompt faster and need a larger compute buffer.",
    ),
    Field(
        "split_mode",
        "Cards share",
        "layer",
        choices={"layer": "whole layers", "tensor": "every matrix"},
        empty="layer",
        several=True,
        help="Each card has some of the layers, or a part of every layer.",
    ),
    Field(
        "tensor_split",
        SHARES,
        parse=shares,
        hint="such as 3,1",
        several=True,
        help="How much each card gets. Empty: as its memory allows.",
    ),
    Field(
        "cpu_moe",
        "All experts in RAM",
        switch=True,
        help="For a mixture of experts: the card has only what every token uses.",
    ),
    Field(
        "override_tensor",
        "Tensors by name",
        parse=overrides,
        hint="ffn_up_exps=CPU",
        help="Puts single tensors into RAM, by a pattern that is found in their names.",
    ),
    Field(
        "kv_unified",
        "One pool for all slots",
        switch=True,
        group=CACHE,
        help="Any slot may use the whole context, in place of an equal part.",
    ),
    Field(
        "swa_full",
        "Sliding layers keep all tokens",
        switch=True,
        group=CACHE,
        help="Off, as in llama-server: layers with a sliding window keep their window alone.",
    ),
    Field(
        "offload_kqv",
        "Cache on the card",
        "on",
        switch=True,
        help="Off: the cache lies in RAM, and every token reads it from there.",
    ),
)
"""In the order of the command line. A new setting is one row, where its switch there has the setting's name."""
LABELS = {field.name: field.label for field in SETTINGS}


def controls(group: str) -> list[Any]:
    """The controls of one group."""
    return [field.control for field in SETTINGS if field.group == group]
