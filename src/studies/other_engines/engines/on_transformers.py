"""Transformers on PyTorch, from a folder of safetensors: `generate` with its growing cache, under inference_mode."""

from __future__ import annotations

import time
from collections.abc import Sequence

from inferlab.measurement.pytorch import required
from studies.other_engines.engines.protocol import Answer, Opened, Request


class Stamps:
    """A streamer that notes when each token was known; the prompt, which comes first, is left out."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.prompt_seen = False

    def put(self, value) -> None:
        if self.prompt_seen:
            self.times.append(time.perf_counter())
        self.prompt_seen = True

    def end(self) -> None:
        """Called after the last token."""


def opened(request: Request) -> Opened:
    torch = required()
    import transformers

    torch.set_num_threads(request.n_threads)
    dtype = getattr(torch, request.weights)
    model = transformers.AutoModelForCausalLM.from_pretrained(request.path, dtype=dtype).eval()

    def generate(tokens: Sequence[int], n_gen: int) -> Answer:
        stamps, prompt = Stamps(), torch.tensor([list(tokens)])
        began = time.perf_counter()
        whole = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n_gen, do_sample=False, streamer=stamps,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        found = whole[0, len(tokens) :].tolist()
        return Answer(tuple(found), tuple(at - began for at in stamps.times))

    return Opened(generate, f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
