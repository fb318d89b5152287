"""The live lab of chapter 5: bytes and losses by the types of weights, keys and values, and the importance matrix."""

from __future__ import annotations

import html
from datetime import date
from pathlib import Path

import ipywidgets as ipw

from inferlab import figures
from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.model.find import find_model, tiny_imatrix, tiny_model
from inferlab.settings import KV_TYPES
from inferlab.units import bytes_text
from inferlab.widgets.live_lab import OneButtonLab
from studies.quantization import figures as quantization_figures
from studies.quantization.quant_tradeoffs import AS_IT_IS, TYPES, Choice, choose
from studies.quantization.study import MATRICES

TABLE_TYPES = ("IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_XS", "IQ2_XXS", "IQ1_M")
WITHOUT = "none"
PAGE_EXAMPLES = (
    (AS_IT_IS, "q8_0", "q8_0"),
    ("Q8_0", "f16", "f16"),
    ("Q4_K_M", "f16", "f16"),
    ("Q4_K_M", "q8_0", "q8_0"),
)


def quantization_lab(
    model: str | Path | None = None, engine: LlamaEngine | None = None
) -> QuantizationLab | figures.Figure:
    """Choices of types and importance matrix, and a button that quantizes and compares.

    On a built page, where no kernel answers, four choices measured at build in the same figure.
    """
    if figures.on_page():
        made = [choose(model, *choice, engine=engine) for choice in PAGE_EXAMPLES]
        badge = (engine or default_engine()).machine().badge(date.today().isoformat())
        return quantization_figures.type_choices(made, badge)
    return QuantizationLab(model, engine)


class QuantizationLab(OneButtonLab):
    """The live lab of chapter 5; `choices` keeps every comparison, so a cell below can go on with them."""

    label = "Compare"
    idle_text = "Choose the types, say where the point will land, then press Compare."
    busy_text = "Quantizing, then reading the text with both models …"

    def __init__(self, model: str | Path | None = None, engine: LlamaEngine | None = None) -> None:
        self.model, self.engine = model, engine or default_engine()
        self.choices: list[Choice] = []
        self.type = _dropdown("Weights", (AS_IT_IS, *TYPES, *TABLE_TYPES), "Q4_K_M")
        self.matrix = _dropdown("Matrix", self._matrices, WITHOUT)
        self.type_k = _dropdown("Keys", KV_TYPES, "f16")
        self.type_v = _dropdown("Values", KV_TYPES, "f16")
        super().__init__()

    @property
    def controls(self) -> list[ipw.Widget]:
        return [self.type, self.matrix, self.type_k, self.type_v]

    @property
    def _matrices(self) -> tuple[str, ...]:
        """The importance matrices by their texts; only the embedded model has any here."""
        return (WITHOUT, *MATRICES) if find_model(self.model) == tiny_model() else (WITHOUT,)

    def work(self) -> str:
        made = self.compare()
        return _choice_text(len(self.choices), made)

    def compare(self) -> Choice:
        """Compare the chosen types with the original model, and keep the choice."""
        types = self.type.value, self.type_k.value, self.type_v.value
        imatrix = None if self.matrix.value == WITHOUT else tiny_imatrix(self.matrix.value)
        self.choices.append(choose(self.model, *types, imatrix=imatrix, engine=self.engine))
        return self.choices[-1]

    def draw(self) -> figures.Figure:
        badge = self.engine.machine().badge(date.today().isoformat()) if self.choices else None
        return quantization_figures.type_choices(self.choices, badge)


def _choice_text(number: int, made: Choice) -> str:
    loss, error = made.fidelity.kl_divergence
    top = 100 * made.fidelity.same_top_share.value
    return (
        f"{number}: {html.escape(made.name)}: {bytes_text(made.n_bytes)}, "
        f"KLD {loss:.2g} ± {error:.1g}, same top token {top:.1f} %"
    )


def _dropdown(label: str, options: tuple[str, ...], value: str) -> ipw.Dropdown:
    style, layout = {"description_width": "6em"}, {"width": "min(22em, 95%)"}
    return ipw.Dropdown(options=options, value=value, description=label, style=style, layout=layout)
