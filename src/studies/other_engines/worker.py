"""The process of one engine: it opens a model, then answers each line of standard input, as JSON.

The first line asks as `Request`, and each other one for {"tokens": [...], "n_gen": 16}.
What the engine prints goes to standard error. Each engine generates with its own default loop.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from inferlab.measurement.pytorch import required
from inferlab.model.find import find_model
from studies.other_engines.client import Answer, Request

Generate = Callable[[Sequence[int], int], Answer]

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}


def with_transformers(request: Request) -> tuple[Generate, str]:
    """From a folder of safetensors: `generate` with its growing cache, under inference_mode."""
    torch = required()
    import transformers

    torch.set_num_threads(request.n_threads)
    dtype = getattr(torch, request.weights)
    model = transformers.AutoModelForCausalLM.from_pretrained(request.path, dtype=dtype).eval()

    class Stamps:
        """A streamer that notes when each token was known; the prompt, which comes first, is left out."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value) -> None:
            self.times.append(time.perf_counter())

        def end(self) -> None:
            del self.times[0]

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        stamps, prompt = Stamps(), torch.tensor([list(tokens)])
        began = time.perf_counter()
        whole = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=n_gen,
            do_sample=False,
            streamer=stamps,
            eos_token_id=None,
            pad_token_id=0,
        )
        return Answer(tuple(whole[0, len(tokens) :].tolist()), tuple(at - began for at in stamps.times))

    return generate, f"transformers {transformers.__version__}, PyTorch {torch.__version__}"


def with_openvino(request: Request) -> tuple[Generate, str]:
    """From a GGUF file. `F16 exact` computes in 32 bits with a cache of 16; other weights leave OpenVINO its choices.

    Its cache of prefixes is on by default, so a prompt that was seen before is not computed again.
    """
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

    return generate, f"OpenVINO GenAI {version('openvino-genai')}"


def with_onnxruntime(request: Request) -> tuple[Generate, str]:
    """From a folder of its own model builder; its cache has space for prompt and answer."""
    import onnxruntime_genai

    config = onnxruntime_genai.Config(str(request.path))
    threads = {"intra_op_num_threads": request.n_threads}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
    model = onnxruntime_genai.Model(config)

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        length, answer, times = len(tokens) + n_gen, [], []
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(min_length=length, max_length=length, do_sample=False)
        generator = onnxruntime_genai.Generator(model, parameters)
        began = time.perf_counter()
        generator.append_tokens(list(tokens))
        for _ in range(n_gen):
            generator.generate_next_token()
            answer.append(int(generator.get_next_tokens()[0]))
            times.append(time.perf_counter() - began)
        return Answer(tuple(answer), tuple(times))

    return generate, f"ONNX Runtime GenAI {version('onnxruntime-genai')}"


def with_mlx(request: Request) -> tuple[Generate, str]:
    """MLX's CPU build, from a folder of safetensors: `generate_step` of mlx-lm. MLX chooses its threads by itself."""
    import mlx.core
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, _ = load_model(request.path)

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        answer, times = [], []
        began = time.perf_counter()
        for token, _ in generate_step(mlx.core.array(list(tokens)), model, max_tokens=n_gen):
            answer.append(int(token))
            times.append(time.perf_counter() - began)
        return Answer(tuple(answer), tuple(times))

    return generate, f"mlx-lm {version('mlx-lm')}, MLX {version('mlx')}"


OPENED = {
    "transformers": with_transformers,
    "OpenVINO": with_openvino,
    "ONNX Runtime": with_onnxruntime,
    "MLX": with_mlx,
}
"""Engine -> what opens a model with it: how to generate tokens, and the engine's version."""


def main() -> None:
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def reply(**fields: Any) -> None:
        print(json.dumps(fields), file=replies, flush=True)

    asked = json.loads(sys.stdin.readline())
    generate, told = OPENED[asked["engine"]](Request(**{**asked, "path": Path(asked["path"])}))
    reply(version=told)
    for line in sys.stdin:
        prompt = json.loads(line)
        reply(**generate(prompt["tokens"], prompt["n_gen"])._asdict())


if __name__ == "__main__":
    main()
