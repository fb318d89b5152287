"""The live lab of chapter 4: a context, a number of tokens in it, a type, and what they take and cost."""

from __future__ import annotations

import html
import threading
from pathlib import Path

import ipywidgets as ipw

from inferlab import figures, page
from inferlab.engine import Engine, default_engine
from inferlab.errors import InvalidSettings
from inferlab.run import Run, measure
from inferlab.settings import KV_TYPES, Settings
from inferlab.units import bytes_text, seconds_text

N_GEN = 32
ON_A_PAGE = ((512, 200, "f16"), (4096, 200, "f16"), (4096, 3900, "f16"), (4096, 3900, "q8_0"))


def cache_lab(model: str | Path | None = None, engine: Engine | None = None) -> CacheLab | figures.Figure:
    """Sliders for the context and the tokens in it, a choice for the type, and a button that fills and measures.

    On a built page, where no kernel answers, four caches measured at build in the same figure.
    """
    if page.on_page():
        return figures.cache_runs([filled(model, *asked, engine=engine) for asked in ON_A_PAGE])
    return CacheLab(model, engine)


def filled(
    model: str | Path | None, n_ctx: int, n_tokens: int, kind: str, engine: Engine | None = None
) -> Run:
    """A context of `n_ctx` cells with a prompt of `n_tokens`, and 32 tokens decoded after it; what `measure` raises."""
    settings = Settings(n_ctx=n_ctx, type_k=kind, type_v=kind)
    if n_tokens + N_GEN > n_ctx:
        raise InvalidSettings(
            f"{n_tokens} tokens and {N_GEN} more do not fit into n_ctx={n_ctx} cells, and nothing would make room. "
            "Move one of the two sliders."
        )
    return measure(model, settings, n_tokens, N_GEN, repeats=2, engine=engine, progress=False)


class CacheLab:
    """The live lab of chapter 4; `runs` keeps every measurement, so a cell below can go on with them."""

    def __init__(self, model: str | Path | None = None, engine: Engine | None = None) -> None:
        self.model, self.engine = model, engine or default_engine()
        self.runs: list[Run] = []
        self.thread: threading.Thread | None = None
        self.n_ctx = _slider("n_ctx", 1024, 256, 8192, 256)
        self.n_tokens = _slider("Tokens in it", 256, 16, 8160, 16)
        self.kind = ipw.Dropdown(
            description="Keys, values", options=KV_TYPES, value="f16", style={"description_width": "9em"}
        )
        self.button = ipw.Button(description="Fill", button_style="primary", icon="play")
        self.button.on_click(lambda _: self.start())
        self.status = ipw.HTML("Choose a cache, say which bar will move, then press Fill.")
        self.figure = figures.live(figures.cache_runs(self.runs))

    @property
    def box(self) -> ipw.VBox:
        return ipw.VBox([self.n_ctx, self.n_tokens, self.kind, self.button, self.status, self.figure])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)

    def start(self) -> None:
        """Fill and measure beside the notebook's own thread, so that the page stays alive."""
        self.button.disabled = True
        self.status.value = "Filling, and decoding after it …"
        self.thread = threading.Thread(target=self._fill_and_show, daemon=True)
        self.thread.start()

    def _fill_and_show(self) -> None:
        try:
            run = filled(self.model, self.n_ctx.value, self.n_tokens.value, self.kind.value, self.engine)
            self.runs.append(run)
            self.status.value = (
                f"reserved {bytes_text(run.bytes_on('kv_cache'))} · {seconds_text(1 / run.decode_tokens_per_second)} "
                "a token"
            )
            figures.redraw(self.figure, figures.cache_runs(self.runs))
        except Exception as error:  # whatever happens, the reader sees it and can press again
            self.status.value = f"<pre>{type(error).__name__}: {html.escape(str(error))}</pre>"
        finally:
            self.button.disabled = False


def _slider(label: str, value: int, low: int, high: int, step: int) -> ipw.IntSlider:
    return ipw.IntSlider(
        value=value, min=low, max=high, step=step, description=label, continuous_update=False,
        style={"description_width": "9em"}, layout={"width": "min(34em, 95%)"},
    )  # fmt: skip
