"""The figure of engines on the same weights: every turn a point, the median a mark."""

import pytest
from fakes import BUFFERS, CPU_ONLY

import inferlab as lab
from inferlab.settings import Settings
from studies.other_engines import figures
from studies.other_engines.engine_comparison import EngineComparison, EngineRow

ROWS = (
    EngineRow("llama.cpp", "F16", "1", 10, (0.2, 0.4, 0.4), (0.01, 0.02, 0.02), (0.2, 0.3, 0.3), (4, 4, 4)),
    EngineRow("MLX", "float16", "2", 10, (0.8, 0.8, 0.8), (0.1, 0.1, 0.1), (0.8, 0.8, 0.8), (4, 4, 4)),
)
COMPARISON = EngineComparison(
    model=lab.read_gguf(lab.tiny_model()).card(), settings=Settings(n_ctx=256), machine=CPU_ONLY, buffers=BUFFERS,
    n_prompt=8, n_gen=4, rows=ROWS,
)  # fmt: skip


@pytest.mark.parametrize(("phase", "medians"), [("prefill", (20, 10)), ("decode", (50, 10))])
def test_medians_stand_among_the_turns(phase, medians):
    """Prefill divides the prompt by the time to the first token; the text alternative has the medians."""
    drawn = figures.engine_rates(COMPARISON, phase)
    marks = [trace for trace in drawn.data if trace.marker.symbol == "line-ns-open" and trace.x]
    assert [trace.x[0] for trace in marks] == [pytest.approx(rate) for rate in medians]
    assert f"llama.cpp, F16 {medians[0]}; MLX, float16 {medians[1]}" in drawn.layout.meta["alt"]
    assert sum(len(trace.x or ()) for trace in drawn.data) == 8
