"""PyTorch's steps, where it is installed: the same network as in NumPy, and what each step keeps."""

import sys
from importlib.util import find_spec
from mmap import mmap

import numpy as np
import pytest

from inferlab.errors import UnsupportedArchitecture
from inferlab.measurement.pytorch import peak_growth
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.numpy_llama import Llama
from inferlab.model.synthetic_model import shape
from inferlab.units import MIB
from studies.training.torch_llama import TorchLlama
from studies.training.torch_steps import STEPS, TorchSteps

TOKENS = [5, 17, 300, 42, 7, 2000, 9, 11]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def steps():
    return TorchSteps(read_gguf(tiny_model()), TOKENS, 1)


@needs_torch
def test_the_network_in_pytorch_is_the_one_in_numpy(steps):
    """All tokens at once, and one by one over a cache."""
    expected = Llama(read_gguf(tiny_model())).logits(TOKENS)
    caches = steps.network.caches(len(TOKENS))
    with steps.torch.inference_mode():
        at_once = steps.network.logits(TOKENS).numpy()
        one_by_one = np.concatenate([steps.network.logits([token], caches).numpy() for token in TOKENS])
    assert np.allclose(at_once, expected, atol=1e-4)
    assert np.allclose(one_by_one, expected, atol=1e-4)


@needs_torch
def test_inference_mode_saves_nothing_and_recording_does():
    """The same tokens through the same weights."""
    kept = {step: TorchSteps(read_gguf(tiny_model()), TOKENS, 1).held(step) for step in STEPS}
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
def test_a_quantized_file_is_refused():
    """The network reads F16 and F32 only."""
    with pytest.raises(UnsupportedArchitecture):
        TorchLlama(shape("llama-3.2-1b", "Q4_K_M"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux reports a process's peak")
def test_peak_growth_sees_what_was_freed_again():
    """A block of 64 MiB that is gone at the end counts, as it needed room."""
    with peak_growth() as grown, mmap(-1, 64 * MIB) as block:
        for _ in range(64):
            block.write(bytes(MIB))
    assert 60 * MIB <= grown[0] < 80 * MIB
