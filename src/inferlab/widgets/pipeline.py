"""The live lab of chapter 3: sliders, a button, and each measured request in the figure."""

from __future__ import annotations

import html
import threading
from pathlib import Path

import ipywidgets as ipw

from inferlab import figures, page
from inferlab.engine import Engine, default_engine
from inferlab.run import Run, measure
from inferlab.settings import Settings

REQUESTS_ON_A_PAGE = ((64, 64), (512, 64), (512, 256))


def pipeline_lab(model: str | Path | None = None, engine: Engine | None = None) -> PipelineLab | figures.Figure:
    """Sliders for prompt length, generated tokens and GPU layers, and a button that measures them.

    On a built page, where no kernel answers, three requests measured at build in the same figure.
    """
    if page.on_page():
        requests = REQUESTS_ON_A_PAGE
        return figures.requests([measure(model, None, *request, repeats=3, engine=engine) for request in requests])
    return PipelineLab(model, engine)


class PipelineLab:
    """The live lab of chapter 3; `runs` keeps every measurement, so a cell below can go on with them."""

    def __init__(self, model: str | Path | None = None, engine: Engine | None = None) -> None:
        self.model, self.engine = model, engine or default_engine()
        self.runs: list[Run] = []
        self.thread: threading.Thread | None = None
        self.n_prompt = _slider("Prompt tokens", 256, 16, 2048, 16)
        self.n_gen = _slider("Generated tokens", 64, 8, 512, 8)
        self.n_gpu_layers = self._layers_slider()
        self.button = ipw.Button(description="Measure", button_style="primary", icon="play")
        self.button.on_click(lambda _: self.start())
        self.status = ipw.HTML("Choose a request, then press Measure.")
        self.figure = figures.live(figures.requests(self.runs))

    def _layers_slider(self) -> ipw.IntSlider | None:
        """A slider for layers on the GPU, where llama.cpp sees one."""
        if not self.engine.machine().gpus:
            return None
        from inferlab.gguf import read_gguf
        from inferlab.models import find_model

        layers = (read_gguf(find_model(self.model)).n_layer or 0) + 1
        return _slider("n_gpu_layers", layers, 0, layers, 1)

    @property
    def box(self) -> ipw.VBox:
        controls = [self.n_prompt, self.n_gen, self.n_gpu_layers, self.button, self.status]
        return ipw.VBox([*(c for c in controls if c is not None), self.figure])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)

    def start(self) -> None:
        """Measure what the sliders say, beside the notebook's own thread, so that the page stays alive."""
        self.button.disabled = True
        self.status.value = "Measuring: warm-up, then three passes …"
        self.thread = threading.Thread(target=self._measure_and_show, daemon=True)
        self.thread.start()

    def _measure_and_show(self) -> None:
        try:
            run = self.measure_request(self.n_prompt.value, self.n_gen.value)
            self.status.value = figures.summary(run)
            self._draw()
        except Exception as error:  # whatever happens, the reader sees it and can press again
            self.status.value = f"<pre>{type(error).__name__}: {html.escape(str(error))}</pre>"
        finally:
            self.button.disabled = False

    def measure_request(self, n_prompt: int, n_gen: int) -> Run:
        """Measure one request with the settings of the sliders and keep its run."""
        layers = self.n_gpu_layers.value if self.n_gpu_layers else -1
        settings = Settings(n_gpu_layers=layers)
        run = measure(self.model, settings, n_prompt, n_gen, repeats=3, engine=self.engine, progress=False)
        self.runs.append(run)
        return run

    def _draw(self) -> None:
        figures.redraw(self.figure, figures.requests(self.runs))


def _slider(label: str, value: int, low: int, high: int, step: int) -> ipw.IntSlider:
    return ipw.IntSlider(
        value=value, min=low, max=high, step=step, description=label, continuous_update=False,
        style={"description_width": "9em"}, layout={"width": "min(34em, 95%)"},
    )  # fmt: skip
