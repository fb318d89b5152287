"""ONNX Runtime GenAI on the CPU, from a folder of its own model builder; its cache has room for prompt and answer."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.metadata import version

from studies.other_engines.engines.protocol import Answer, Opened, Request


def opened(request: Request) -> Opened:
    import onnxruntime_genai

    config = onnxruntime_genai.Config(str(request.path))
    threads = {"intra_op_num_threads": request.n_threads}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
    model = onnxruntime_genai.Model(config)

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        length, found, times = len(tokens) + n_gen, [], []
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(min_length=length, max_length=length, do_sample=False)
        generator = onnxruntime_genai.Generator(model, parameters)
        began = time.perf_counter()
        generator.append_tokens(list(tokens))
        for _ in range(n_gen):
            generator.generate_next_token()
            found.append(int(generator.get_next_tokens()[0]))
            times.append(time.perf_counter() - began)
        return Answer(tuple(found), tuple(times))

    return Opened(generate, f"ONNX Runtime GenAI {version('onnxruntime-genai')}")
