"""Steps of a model in PyTorch: what each computes, its time, and the bytes of the tensors that it keeps.

    decode      one token after n_tokens - 1 cached ones, under inference_mode
    inference   n_tokens at once, under inference_mode; logits after the last
    recorded    the same with gradients recorded, as PyTorch does unless a program says otherwise
    training    loss of n_tokens, its gradients, and one step of AdamW

Run as a module, this makes one step in a process of its own and prints its `Held` as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inferlab.measurement.pytorch import peak_growth, required
from inferlab.model.gguf import Model, read_gguf
from inferlab.units import KIB
from studies.training.torch_llama import TorchLlama

STEPS = ("decode", "inference", "recorded", "training")
LEARNING_RATE = 1e-5
WARM_UP_TOKENS = 8
RETURN_FREED = {"MALLOC_MMAP_THRESHOLD_": str(128 * KIB)}
"""glibc's malloc then returns freed blocks of 128 KiB or more to the system, so that a second step takes them anew."""


@dataclass(frozen=True)
class Held:
    """Bytes of the tensors that a step keeps, by kind, and the peak growth of a process that made only this step.

    sizes        weights, gradients, adam, saved, kv_cache; a kind without tensors is left out
    grown_bytes  from before the weights were read; None if the system does not report it
    """

    sizes: dict[str, int]
    grown_bytes: int | None


class TorchSteps:
    """The steps of one model on one list of tokens; `n_threads` is PyTorch's for the whole process."""

    def __init__(self, model: Model, tokens: Sequence[int], n_threads: int) -> None:
        self.torch = required()
        self.torch.set_num_threads(n_threads)
        self.network, self.tokens = TorchLlama(model), list(tokens)
        self.weights = list(self.network.weights.values())
        self.optimizer: Any = None
        self.caches: list[Any] = []
        self.saved: dict[int, int] = {}

    def seconds(self, step: str) -> float:
        """Make a step; its wall time."""
        if step == "decode":
            self.fill_caches()
        began = time.perf_counter()
        getattr(self, step)()
        return time.perf_counter() - began

    def fill_caches(self) -> None:
        """Have all tokens but the last in the caches."""
        if not self.caches:
            self.caches = self.network.caches(len(self.tokens))
            with self.torch.inference_mode():
                self.network.logits(self.tokens[:-1], self.caches)
        for cache in self.caches:
            cache.n_used = len(self.tokens) - 1

    def decode(self) -> Any:
        with self.torch.inference_mode():
            return self.network.logits(self.tokens[-1:], self.caches)

    def inference(self) -> Any:
        with self.torch.inference_mode():
            return self.network.logits(self.tokens, last_only=True)

    def recorded(self) -> Any:
        return self.network.logits(self.tokens, last_only=True)

    def training(self) -> None:
        optimizer = self.optimizer = self.optimizer or self.torch.optim.AdamW(self.weights, LEARNING_RATE)
        optimizer.zero_grad()
        self.network.loss(self.tokens).backward()
        optimizer.step()

    def held(self, step: str) -> dict[str, int]:
        """Make a step twice; bytes by kind of the tensors that the second kept, with what autograd saved for backward.

        The second training step is the first that has Adam's states from its beginning.
        Saved are the storages that torch.autograd.graph.saved_tensors_hooks names, each once, weights left out.
        """
        self.seconds(step)
        with self.torch.autograd.graph.saved_tensors_hooks(self._note_saved, lambda tensor: tensor):
            self.seconds(step)
        states = self.optimizer.state.values() if self.optimizer else ()
        sizes = {
            "weights": n_bytes(self.weights),
            "gradients": n_bytes(weight.grad for weight in self.weights if weight.grad is not None),
            "adam": n_bytes(state[name] for state in states for name in ("exp_avg", "exp_avg_sq")),
            "saved": sum(self.saved.values()),
            "kv_cache": n_bytes(rows for cache in self.caches for rows in (cache.keys, cache.values)),
        }
        return {kind: size for kind, size in sizes.items() if size}

    def _note_saved(self, tensor: Any) -> Any:
        """Count a tensor's storage; returning the tensor keeps it alive, so no address is used twice."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in {weight.untyped_storage().data_ptr() for weight in self.weights}:
            self.saved[storage.data_ptr()] = storage.nbytes()
        return tensor


def n_bytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def held_apart(step: str, model: Path, tokens: Sequence[int], n_threads: int) -> Held:
    """Make one step in a fresh process: what it kept, and by how much the process grew."""
    asked = json.dumps({"step": step, "model": str(model), "tokens": list(tokens), "n_threads": n_threads})
    command, environment = [sys.executable, "-m", __name__], {**os.environ, **RETURN_FREED}
    told = subprocess.run(
        command, input=asked, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment, check=True
    )
    return Held(**json.loads(told.stdout))


def main() -> None:
    """Read the request, make the step on a few tokens so that all code is loaded, then on all; print what it held."""
    asked = json.load(sys.stdin)
    model, tokens, n_threads = read_gguf(asked["model"]), asked["tokens"], asked["n_threads"]
    TorchSteps(model, tokens[:WARM_UP_TOKENS], n_threads).held(asked["step"])
    gc.collect()
    with peak_growth() as grown:
        sizes = TorchSteps(model, tokens, n_threads).held(asked["step"])
    print(json.dumps(asdict(Held(sizes, grown[0]))))


if __name__ == "__main__":
    main()
