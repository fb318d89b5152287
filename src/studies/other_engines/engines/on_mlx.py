"""MLX's CPU build, from a folder of safetensors: `generate_step` of mlx-lm. MLX chooses its threads by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version

from studies.other_engines.engines.protocol import Answer, Opened, Request


def opened(request: Request) -> Opened:
    import mlx.core
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, _ = load_model(request.path)

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        found, times = [], []
        began = time.perf_counter()
        for token, _ in generate_step(mlx.core.array(list(tokens)), model, max_tokens=n_gen):
            found.append(int(token))
            times.append(time.perf_counter() - began)
        return Answer(tuple(found), tuple(times))

    return Opened(generate, f"mlx-lm {version('mlx-lm')}, MLX {version('mlx')}")
