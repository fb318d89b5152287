"""The live lab of chapter 3: prefill and decode of requests of any length."""

from __future__ import annotations

from pathlib import Path

import ipywidgets as ipw

from inferlab import figures
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.measurement.run import Run, measure
from inferlab.settings import Settings
from inferlab.widgets.live_lab import OneButtonLab, slider

PAGE_EXAMPLES = ((64, 64), (512, 64), (512, 256))


def pipeline_lab(model: str | Path | None = None, engine: Engine | None = None) -> PipelineLab | figures.Figure:
    """Sliders for prompt length, generated tokens and GPU layers, and a button that measures them.

    On a built page, where no kernel answers, three requests measured at build in the same figure.
    """
    if figures.on_page():
        requests = PAGE_EXAMPLES
        return figures.requests([measure(model, None, *request, repeats=3, engine=engine) for request in requests])
    return PipelineLab(model, engine)


class PipelineLab(OneButtonLab):
    """The live lab of chapter 3; `runs` keeps every measurement, so a cell below can go on with them."""

    label = "Measure"
    idle_text = "Choose a request, then press Measure."
    busy_text = "Measuring: warm-up, then three passes …"

    def __init__(self, model: str | Path | None = None, engine: Engine | None = None) -> None:
        self.model, self.engine = model, engine or default_engine()
        self.runs: list[Run] = []
        self.n_prompt = slider("Prompt tokens", 256, 16, 2048, 16)
        self.n_gen = slider("Generated tokens", 64, 8, 512, 8)
        self.n_gpu_layers = self._layers_slider()
        super().__init__()

    def _layers_slider(self) -> ipw.IntSlider | None:
        """A slider for layers on the GPU, where llama.cpp sees one."""
        if not self.engine.machine().gpus:
            return None
        from inferlab.model.find import find_model
        from inferlab.model.gguf import read_gguf

        layers = (read_gguf(find_model(self.model)).n_layer) + 1
        return slider("n_gpu_layers", layers, 0, layers, 1)

    @property
    def controls(self) -> list[ipw.Widget]:
        return [slider for slider in (self.n_prompt, self.n_gen, self.n_gpu_layers) if slider is not None]

    def work(self) -> str:
        return figures.summary(self.measure_request(self.n_prompt.value, self.n_gen.value))

    def measure_request(self, n_prompt: int, n_gen: int) -> Run:
        """Measure one request with the settings of the sliders and keep its run."""
        layers = self.n_gpu_layers.value if self.n_gpu_layers else -1
        settings = Settings(n_gpu_layers=layers)
        run = measure(self.model, settings, n_prompt, n_gen, repeats=3, engine=self.engine, progress=False)
        self.runs.append(run)
        return run

    def draw(self) -> figures.Figure:
        return figures.requests(self.runs)
