"""Whole layers against experts: the same bytes freed, and rates in pairs."""

import pytest
from marks import needs_rpc

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.link_rates import cited_rungs
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from studies.experts.experts import card_text, copies_text, freed_bytes, layers_or_experts, same_bytes

MIXTURE = lab.shape("qwen3-30b-a3b")
FAR = Settings(n_ctx=512, rpc_servers=("127.0.0.1:1",))
SMALL = {"n_layer": 4, "n_expert": 16, "n_expert_used": 4, "n_ff_expert": 256, "n_embd": 512, "n_head": 8,
         "n_vocab": 4096}  # fmt: skip


@pytest.mark.parametrize("n", [1, 24, 48])
def test_as_many_layers_free_as_many_bytes(n):
    """Within half a layer: one layer more or fewer would be farther away."""
    layers, experts = same_bytes(MIXTURE, FAR, n)
    assert experts.n_cpu_moe == n
    wanted = freed_bytes(MIXTURE, FAR, n_cpu_moe=n)
    gaps = [abs(freed_bytes(MIXTURE, FAR, n_gpu_layers=layers.n_gpu_layers + more) - wanted) for more in (-1, 0, 1)
            if layers.n_gpu_layers + more > 0]  # fmt: skip
    assert min(gaps) == abs(freed_bytes(MIXTURE, FAR, n_gpu_layers=layers.n_gpu_layers) - wanted)
    assert wanted == sum(t.n_bytes for t in MIXTURE.tensors if "_exps" in t.name and int(t.name.split(".")[1]) < n)


def test_a_model_without_experts_is_refused():
    """There is nothing to compare."""
    with pytest.raises(InvalidSettings, match="has no experts"):
        same_bytes(lab.shape("llama-3.1-8b"), FAR, 2)


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


@needs_rpc
@pytest.mark.engine
@pytest.mark.parametrize("control", [False, True])
def test_both_sides_run_in_pairs(tmp_path, control):
    """Each on a device of its own, started anew in each round; a control has whole layers on both sides."""
    path = make_shape("qwen3-30b-a3b", "Q4_K_M", tmp_path / "small.gguf", **SMALL)
    found = layers_or_experts(path, 2, n_threads=1, n_prompt=32, n_gen=4, rounds=2, pairs=5, control=control)
    before, after = found.before[0].settings, found.after[0].settings
    assert len(found.ratios("decode")) == 10
    assert before.n_cpu_moe == 0 < before.n_gpu_layers
    assert (after.n_cpu_moe, after.n_gpu_layers) == ((0, before.n_gpu_layers) if control else (2, -1))
    assert before.rpc_servers != after.rpc_servers
    assert not before.use_extra_bufts
    assert len({run.settings.rpc_servers for run in found.before}) == 2


def test_too_few_threads_or_pairs_are_refused(tmp_path):
    """Refused before anything starts."""
    path = make_shape("qwen3-30b-a3b", "Q4_K_M", tmp_path / "small.gguf", **SMALL)
    with pytest.raises(InvalidSettings, match="n_threads=0"):
        layers_or_experts(path, 2, n_threads=0)
    with pytest.raises(InvalidSettings, match="4 pairs have no interval"):
        layers_or_experts(path, 2, n_threads=1, rounds=2, pairs=2)
