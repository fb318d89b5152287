"""Whole layers against experts: the same bytes freed, what a card copies of them, and both ways in words."""

import pytest
from fakes import WITH_GPU

import inferlab as lab
from inferlab.prediction.link_rates import cited_rungs
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from studies.experts.two_ways import card_text, copied_bytes, copies_text, freed_bytes, most_prompt_rate, same_bytes

MIXTURE, DENSE = lab.shape("qwen3-30b-a3b"), lab.shape("llama-3.1-8b")
FAR = Settings(n_ctx=512, rpc_servers=("127.0.0.1:1",))
EXPERTS = sum(t.n_bytes for t in MIXTURE.tensors if "_exps" in t.name and int(t.name.split(".")[1]) < 10)


def planned(model=MIXTURE, **changes):
    return predict_memory(model, Settings(n_ctx=4096, **changes), WITH_GPU, simulate=False)


@pytest.mark.parametrize("n", [1, 24, 48])
def test_as_many_layers_free_as_many_bytes(n):
    """Within half a layer: one layer more or fewer would be farther away."""
    layers, experts = same_bytes(MIXTURE, FAR, n)
    assert experts.n_cpu_moe == n
    wanted = freed_bytes(MIXTURE, FAR, n_cpu_moe=n)
    gaps = [
        abs(freed_bytes(MIXTURE, FAR, n_gpu_layers=layers.n_gpu_layers + more) - wanted)
        for more in (-1, 0, 1)
        if layers.n_gpu_layers + more > 0
    ]
    assert min(gaps) == abs(freed_bytes(MIXTURE, FAR, n_gpu_layers=layers.n_gpu_layers) - wanted)
    assert wanted == sum(t.n_bytes for t in MIXTURE.tensors if "_exps" in t.name and int(t.name.split(".")[1]) < n)


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
    """Twice the tokens for the same copies: twice the bound. Without copies there is none."""
    small, large = (most_prompt_rate(planned(n_cpu_moe=10, n_ubatch=n), MIXTURE, 16e9) for n in (512, 1024))
    assert small == pytest.approx(512 * 16e9 / EXPERTS, rel=1e-6)
    assert large == pytest.approx(2 * small, rel=1e-6)
    assert most_prompt_rate(planned(), MIXTURE, 16e9) is None


def test_a_card_has_both_ways_in_words():
    """Each with its reading of RAM and the bound of the bus; the one that reads less is named."""
    bus = next(one for one in cited_rungs() if one.name == "PCIe 4.0, 16 lanes")
    found = lab.fit(MIXTURE, lab.Settings(n_ctx=8192), vram="8GiB", simulate=False)
    text = card_text(found, MIXTURE, bus)
    assert text.startswith("PCIe 4.0, 16 lanes: 31.5 GB/s\nwhole layers: a token reads ")
    assert text.count("the bus allows") == 2
    assert text.endswith("For a generated token, less is read from RAM with experts alone.")
    whole = card_text(lab.fit(MIXTURE, lab.Settings(n_ctx=8192), vram="24GiB", simulate=False), MIXTURE, bus)
    assert whole.count("nothing is copied") == 2


def test_copies_are_told_for_each_ubatch():
    """None below 32 tokens; then a row of MiB for both ways."""
    plans = [predict_memory(MIXTURE, way, simulate=False) for way in same_bytes(MIXTURE, FAR, 3)]
    rows = copies_text(plans, MIXTURE, (16, 512)).splitlines()
    assert rows[0] == "  16 tokens:    0 MiB with whole layers,    0 MiB with experts alone"
    assert rows[1].startswith(" 512 tokens: 1")
