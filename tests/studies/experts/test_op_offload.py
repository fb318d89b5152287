"""Bytes that a card copies for a batch, and the bound on a prompt that follows."""

import pytest
from fakes import WITH_GPU

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from studies.experts.op_offload import copied_bytes, most_prompt_rate

MIXTURE, DENSE = lab.shape("qwen3-30b-a3b"), lab.shape("llama-3.1-8b")
EXPERTS = sum(t.n_bytes for t in MIXTURE.tensors if "_exps" in t.name and int(t.name.split(".")[1]) < 10)


def planned(model=MIXTURE, **changes):
    return predict_memory(model, Settings(n_ctx=4096, **changes), WITH_GPU, simulate=False)


def test_a_long_ubatch_copies_all_experts_of_the_host_and_a_token_none():
    """Of 128 experts each token draws 8: a batch of 512 draws all, one of 32 fewer, and below 32 nothing goes."""
    plan = planned(n_cpu_moe=10)
    assert copied_bytes(plan, MIXTURE, 512) == pytest.approx(EXPERTS, rel=1e-6)
    assert copied_bytes(plan, MIXTURE, 32) == pytest.approx(EXPERTS * (1 - (120 / 128) ** 32))
    assert copied_bytes(plan, MIXTURE, 31) == copied_bytes(planned(), MIXTURE, 512) == 0
    assert copied_bytes(planned(n_cpu_moe=10, op_offload=False), MIXTURE, 512) == 0


def test_whole_layers_on_the_host_are_copied_whole():
    """Of a dense model every matrix but the embedding, of which rows are looked up."""
    plan = planned(DENSE, n_gpu_layers=0)
    looked_up = next(t.n_bytes for t in DENSE.tensors if t.name == "token_embd.weight")
    norms = sum(t.n_bytes for t in DENSE.tensors if len(t.shape) == 1)
    assert copied_bytes(plan, DENSE, 64) == DENSE.tensor_bytes - looked_up - norms


def test_a_larger_ubatch_shares_the_copies():
    """Twice the tokens for the same copies: twice the bound. Without copies there is none, and a bus needs a rate."""
    small, large = (most_prompt_rate(planned(n_cpu_moe=10, n_ubatch=n), MIXTURE, 16e9) for n in (512, 1024))
    assert small == pytest.approx(512 * 16e9 / EXPERTS, rel=1e-6)
    assert large == pytest.approx(2 * small, rel=1e-6)
    assert most_prompt_rate(planned(), MIXTURE, 16e9) is None
    with pytest.raises(InvalidSettings, match="bus_bytes_per_second=0"):
        most_prompt_rate(planned(), MIXTURE, 0)
