"""`lab.perplexity` and `lab.fidelity` beside the program whose method they follow."""

import re
import subprocess

import pytest

import inferlab as lab

pytestmark = pytest.mark.engine

N_CHUNKS = 4


def printed(command, label):
    """The first number after `label` in what the program prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    found = re.search(rf"{re.escape(label)}\D*?(-?\d+\.\d+)", done.stdout + done.stderr)
    assert found, f"{label!r} is not printed"
    return float(found[1])


def test_perplexity_and_divergence_are_those_of_the_program(program, engine, tmp_path):
    """On the same chunks the library's perplexity agrees with llama-perplexity's to 0.1 %, and its KL divergence to
    0.00002, which is what storing the reference in 16 bits leaves.
    """
    tool, tiny = program("llama-perplexity"), lab.tiny_model()
    quantized, base = tmp_path / "q4.gguf", tmp_path / "base.bin"
    lab.quantize(tiny, "Q4_K_M", quantized, engine=engine)
    common = [tool, "-c", 512, "--chunks", N_CHUNKS, "--kl-divergence-base", base]
    perplexity = printed([*common, "-m", tiny, "-f", tiny.with_name("held-out.txt")], "Final estimate: PPL =")
    divergence = printed([*common, "-m", quantized, "--kl-divergence"], "Mean    KLD:")
    ours = lab.fidelity(quantized, tiny, n_chunks=N_CHUNKS, engine=engine)
    assert ours.reference_perplexity.value == pytest.approx(perplexity, rel=1e-3)
    assert ours.kl_divergence.value == pytest.approx(divergence, abs=2e-5)
