"""The figure of a token's time between llama-bench and a client."""

import pytest
from fakes import BUFFERS, CARD, CPU_ONLY

from inferlab.settings import Settings
from studies.sampling_cost import figures
from studies.sampling_cost.benchmark_programs import BenchmarkPrograms

RATES = {
    "llama-bench": (1000.0,), "server: one candidate, not streamed": (800.0,), "server: one candidate": (800.0,),
    "server: default": (500.0,), "client: default": (510.0,),
}  # fmt: skip


def test_every_part_is_a_piece_of_the_bar():
    """1000 us of decode, 250 of the loop, 750 of sampling; a part below zero is noise and drawn as none."""
    shared = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "buffers": BUFFERS}
    found = BenchmarkPrograms(**shared, n_prompt=8, n_gen=4, rates=RATES)
    drawn = figures.token_split(found, ["default"])
    assert {trace.name: pytest.approx(trace.x[0]) for trace in drawn.data} == {
        "decode": 1000, "server's loop": 250, "streaming": 0, "sampling": 750, "way to the client": 0,
    }  # fmt: skip
    assert "default: decode 1e+03, server's loop 250" in drawn.layout.meta["alt"]
