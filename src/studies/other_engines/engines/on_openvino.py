"""OpenVINO GenAI on the CPU, from a GGUF file.

`F16 exact` computes in 32 bits with a cache of 16; the other weights leave OpenVINO its own choices.
Its cache of prefixes is on by default, so a prompt that was seen before is not computed again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from inferlab.model.find import find_model
from studies.other_engines.engines.protocol import Answer, Opened, Request

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}


def opened(request: Request) -> Opened:
    import numpy as np
    import openvino
    import openvino_genai

    chosen: dict[str, Any] = EXACT if request.weights.endswith("exact") else {}
    words = openvino_genai.Tokenizer(find_model(None))  # for no text; a shape has no vocabulary that OpenVINO reads
    pipeline = openvino_genai.LLMPipeline(request.path, words, "CPU", INFERENCE_NUM_THREADS=request.n_threads, **chosen)

    class Stamps(openvino_genai.StreamerBase):
        """Notes each token and when it was known."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens: list[int] = []
            self.times: list[float] = []

        def write(self, token) -> Any:
            new = token if isinstance(token, list) else [token]
            self.tokens += new
            self.times += [time.perf_counter()] * len(new)
            return openvino_genai.StreamingStatus.RUNNING

        def end(self) -> None:
            """Called after the last token."""

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        stamps, config = Stamps(), openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = n_gen, True, False
        prompt = openvino.Tensor(np.array([tokens], dtype=np.int64))
        began = time.perf_counter()
        pipeline.generate(prompt, config, stamps)
        return Answer(tuple(stamps.tokens), tuple(at - began for at in stamps.times))

    return Opened(generate, f"OpenVINO GenAI {version('openvino-genai')}")
