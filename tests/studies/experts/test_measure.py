"""Whole layers against experts, measured in pairs: what lab 6c calls."""

import pytest
from marks import needs_rpc

from inferlab.errors import InvalidSettings
from inferlab.model.synthetic_model import make_shape
from studies.experts.measure import layers_or_experts

EXPERTS = {"n_expert": 16, "n_expert_used": 4, "n_ff_expert": 256}
SMALL = {"n_layer": 4, "n_embd": 512, "n_head": 8, "n_vocab": 4096, **EXPERTS}


@needs_rpc
@pytest.mark.engine
@pytest.mark.parametrize("control", [False, True])
def test_both_sides_run_in_pairs(tmp_path, control):
    """Each on a device of its own, started anew in each round; a control has whole layers on both sides."""
    path = make_shape("qwen3-30b-a3b", "Q4_K_M", tmp_path / "small.gguf", **SMALL)
    found = layers_or_experts(path, 2, n_threads=1, n_prompt=32, n_gen=4, rounds=2, pairs=5, control=control)
    before, after = found.before[0].settings, found.after[0].settings
    assert len(found.compared("decode").ratios) == 10
    assert before.n_cpu_moe == 0 < before.n_gpu_layers
    assert (after.n_cpu_moe, after.n_gpu_layers) == ((0, before.n_gpu_layers) if control else (2, -1))
    assert before.rpc_servers != after.rpc_servers
    assert not before.use_extra_bufts
    assert len({run.settings.rpc_servers for run in found.before}) == 2


def test_too_few_pairs_are_refused(tmp_path):
    """Refused before anything starts."""
    path = make_shape("qwen3-30b-a3b", "Q4_K_M", tmp_path / "small.gguf", **SMALL)
    with pytest.raises(InvalidSettings, match="4 pairs have no interval"):
        layers_or_experts(path, 2, n_threads=1, rounds=2, pairs=2)
