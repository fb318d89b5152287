"""The live lab of chapter 4: bytes and decode time of a KV cache by context size, tokens in it and cache type."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import ipywidgets as ipw

from inferlab import figures
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.run import Run, measure
from inferlab.settings import KV_TYPES, Settings
from inferlab.units import bytes_text, seconds_text
from inferlab.widgets.live_lab import OneButtonLab, labelled, slider

N_GEN = 32
PAGE_EXAMPLES = ((512, 200, "f16"), (2048, 200, "f16"), (2048, 1000, "f16"), (2048, 1000, "q8_0"))


def cache_lab(model: str | Path | None = None, engine: Engine | None = None) -> CacheLab | figures.Figure:
    """Sliders for the context and the tokens in it, a choice for the type, and a button that fills and measures.

    On a built page, where no kernel answers, four caches measured at build in the same figure.
    """
    if figures.on_page():
        return figures.cache_runs([measure_filled(model, *asked, engine=engine) for asked in PAGE_EXAMPLES])
    return CacheLab(model, engine)


def measure_filled(model: str | Path | None, n_ctx: int, n_tokens: int, kind: str, engine: Engine | None = None) -> Run:
    """Measure a prompt of `n_tokens` and 32 decoded tokens in a context of `n_ctx` cells.

    Raises InvalidSettings where the tokens do not fit, and what `measure` raises.
    """
    settings = Settings(n_ctx=n_ctx, type_k=kind, type_v=kind)
    if n_tokens + N_GEN > n_ctx:
        raise InvalidSettings(
            f"{n_tokens} tokens and {N_GEN} more do not fit into n_ctx={n_ctx} cells, and nothing would make room. "
            "Move one of the two sliders."
        )
    return measure(model, settings, n_tokens, N_GEN, repeats=2, engine=engine, progress=False)


class CacheLab(OneButtonLab):
    """The live lab of chapter 4; `runs` keeps every measurement, so a cell below can go on with them."""

    label = "Fill"
    idle_text = "Choose a cache, say which bar will move, then press Fill."
    busy_text = "Filling, and decoding after it …"

    def __init__(self, model: str | Path | None = None, engine: Engine | None = None) -> None:
        self.model, self.engine = model, engine or default_engine()
        self.runs: list[Run] = []
        self.n_ctx = slider("n_ctx", 1024, 256, 8192, 256)
        self.n_tokens = slider("Tokens in it", 256, 16, 8160, 16)
        self.kind = labelled(ipw.Dropdown, "Keys, values", options=KV_TYPES, value="f16")
        super().__init__()

    @property
    def controls(self) -> list[ipw.Widget]:
        return [self.n_ctx, self.n_tokens, self.kind]

    def work(self) -> str:
        run = measure_filled(self.model, self.n_ctx.value, self.n_tokens.value, self.kind.value, self.engine)
        self.runs.append(run)
        a_token = seconds_text(1 / median(run.points("decode_tokens_per_second")))
        return f"reserved {bytes_text(run.bytes_on('kv_cache'))} · {a_token} a token"

    def draw(self) -> figures.Figure:
        return figures.cache_runs(self.runs)
