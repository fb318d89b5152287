"""Training beside inference: what the record says, what a failed process is answered with, and PyTorch's own steps."""

import sys
from contextlib import nullcontext
from importlib.util import find_spec
from mmap import mmap
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import BUFFERS, BatchEngine

import inferlab as lab
from inferlab.errors import InvalidSettings, PyTorchUnavailable, UnsupportedArchitecture
from inferlab.measurement import pytorch
from inferlab.measurement.pytorch import peak_growth
from inferlab.model.numpy_llama import Llama
from inferlab.units import MIB
from studies.training import torch_steps, training_ledger
from studies.training.torch_steps import Held, held_apart

TOKENS = [5, 17, 300, 42, 7, 2000, 9, 11]
TINY = lab.tiny_model()
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def recorded():
    return lab.load("epyc-2c/training-ledger")


@pytest.fixture(scope="module")
def steps():
    return torch_steps.TorchSteps(lab.read_gguf(TINY), TOKENS, 1)


class ScriptedSteps:
    """PyTorch's steps without PyTorch: each takes as many seconds as its name has letters; NumPy computes logits."""

    torch = SimpleNamespace(inference_mode=nullcontext)

    def __init__(self, model, tokens, n_threads):
        self.network = SimpleNamespace(logits=lambda tokens: SimpleNamespace(numpy=lambda: Llama(model).logits(tokens)))

    def seconds(self, step):
        return float(len(step))


@pytest.fixture
def scripted(monkeypatch):
    """A ledger of two turns, made of a scripted engine and scripted steps."""
    monkeypatch.setattr(training_ledger, "required", lambda: SimpleNamespace(__version__="2.0"))
    monkeypatch.setattr(training_ledger, "TorchSteps", ScriptedSteps)
    monkeypatch.setattr(training_ledger, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(torch_steps, "held_apart", lambda step, *_: Held({"weights": len(step)}, None))
    return training_ledger.training_ledger("tiny", n_tokens=8, repeats=2, engine=BatchEngine(lambda n: float(n)))


def test_every_step_is_timed_in_every_turn(scripted):
    """A prefill has all tokens and a decode one; the engine's bytes are its buffers, PyTorch's those of its process."""
    assert [row.step for row in scripted.rows] == list(training_ledger.STEPS)
    assert scripted.of("engine_prefill").seconds == (8.0, 8.0)
    assert scripted.of("engine_decode").seconds == (1.0, 1.0)
    assert scripted.of("training").seconds == (8.0, 8.0)
    sizes = scripted.of("engine_decode").sizes
    assert sizes == {"weights": 12 * MIB, "kv_cache": 3 * MIB, "compute": MIB}
    assert sum(sizes.values()) == sum(buffer.n_bytes for buffer in BUFFERS)
    assert sum(scripted.of("training").sizes.values()) == len("training")
    assert (scripted.torch, scripted.logits_difference) == ("2.0", 0.0)
    assert scripted.badge.endswith("; PyTorch 2.0")


@pytest.mark.parametrize("asked", [{"n_tokens": 1}, {"repeats": 0}])
def test_nothing_to_compare_is_refused(monkeypatch, asked):
    """At least two tokens, one to read and one to predict, and one repetition."""
    monkeypatch.setattr(training_ledger, "required", lambda: None)
    with pytest.raises(InvalidSettings, match="at least"):
        training_ledger.training_ledger("tiny", engine=BatchEngine(), **asked)


def test_a_missing_pytorch_is_said_before_anything_is_loaded(monkeypatch):
    """The error says how to get PyTorch."""
    monkeypatch.setattr(pytorch, "find_spec", lambda name: None)
    with pytest.raises(PyTorchUnavailable, match="pip install torch"):
        training_ledger.training_ledger("tiny", engine=BatchEngine())


def test_a_step_that_failed_says_its_last_line():
    """A process without memory or without PyTorch does not give an empty record."""
    failed = SimpleNamespace(returncode=1, stdout="", stderr="Traceback\nMemoryError: no room\n")
    with pytest.raises(PyTorchUnavailable, match=r"'training' ended with exit status 1: MemoryError: no room"):
        held_apart("training", TINY, TOKENS, 1, start=lambda *_, **__: failed)


def test_what_a_process_printed_is_what_its_step_held():
    """Sizes by kind, and the growth, which may be unknown."""
    done = SimpleNamespace(returncode=0, stdout='{"sizes": {"weights": 3}, "grown_bytes": null}', stderr="")
    assert held_apart("decode", TINY, TOKENS, 1, start=lambda *_, **__: done) == Held({"weights": 3}, None)


def test_the_recorded_bytes_follow_from_the_weights(recorded):
    """Weights and gradients are four bytes each, Adam's two averages eight; under inference_mode nothing is saved."""
    n = recorded.model.n_params
    assert n == sum(tensor.n_elements for tensor in lab.read_gguf(TINY).tensors)
    training = recorded.of("training").sizes
    assert (training["weights"], training["gradients"], training["adam"]) == (4 * n, 4 * n, 8 * n)
    assert recorded.of("inference").sizes == {"weights": 4 * n}
    assert set(recorded.of("decode").sizes) == {"weights", "kv_cache"}
    assert recorded.of("recorded").sizes["saved"] > recorded.of("recorded").sizes["weights"]
    assert all(len(row.seconds) >= 15 for row in recorded.rows)


def test_the_recorded_network_is_the_embedded_model(recorded):
    """PyTorch's logits are NumPy's up to rounding, and its likeliest tokens llama.cpp's but for near ties."""
    assert recorded.logits_difference < 1e-5 * recorded.largest_logit
    assert recorded.same_picks >= 0.99 * recorded.n_tokens


@needs_torch
def test_the_network_in_pytorch_is_the_one_in_numpy(steps):
    """All tokens at once, and one by one over a cache."""
    expected = Llama(lab.read_gguf(TINY)).logits(TOKENS)
    caches = steps.network.caches(len(TOKENS))
    with steps.torch.inference_mode():
        at_once = steps.network.logits(TOKENS).numpy()
        one_by_one = np.concatenate([steps.network.logits([token], caches).numpy() for token in TOKENS])
    assert np.allclose(at_once, expected, atol=1e-4)
    assert np.allclose(one_by_one, expected, atol=1e-4)


@needs_torch
def test_inference_mode_saves_nothing_and_recording_does(steps):
    """The same tokens through the same weights."""
    kept = {step: torch_steps.TorchSteps(lab.read_gguf(TINY), TOKENS, 1).held(step) for step in torch_steps.STEPS}
    assert set(kept["inference"]) == {"weights"}
    assert set(kept["decode"]) == {"weights", "kv_cache"}
    assert set(kept["recorded"]) == {"weights", "saved"}
    assert set(kept["training"]) == {"weights", "gradients", "adam", "saved"}
    assert kept["training"]["adam"] == 2 * kept["training"]["weights"]


@needs_torch
def test_training_steps_learn(steps):
    """A gradient of the wrong sign would make the loss grow."""
    before = steps.network.loss(TOKENS).item()
    for _ in range(5):
        steps.training()
    assert steps.network.loss(TOKENS).item() < before


@needs_torch
def test_a_quantized_file_is_refused(tmp_path):
    """The network reads F16 and F32 only."""
    from studies.training.torch_llama import TorchLlama

    with pytest.raises(UnsupportedArchitecture):
        TorchLlama(lab.shape("llama-3.2-1b", "Q4_K_M"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux reports a process's peak")
def test_peak_growth_sees_what_was_freed_again():
    """A block of 64 MiB that is gone at the end counts, as it needed room."""
    with peak_growth() as grown, mmap(-1, 64 * MIB) as block:
        for _ in range(64):
            block.write(bytes(MIB))
    assert 60 * MIB <= grown[0] < 80 * MIB
