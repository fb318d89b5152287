"""Offloading over a link: place of the KV cache, bytes transferred, response of a full context."""

import pytest
from marks import needs_rpc

import inferlab as lab
from inferlab.engine.loopback import loopback_device
from inferlab.engine.protocol import Opening
from inferlab.measurement import offload_traffic
from inferlab.prediction import memory
from inferlab.settings import Settings

CACHE = 512 * memory.kv_cache_bytes_per_token(lab.read_gguf(lab.tiny_model()))


@pytest.fixture(scope="module")
def asked():
    with loopback_device() as device:
        yield device.settings(Settings(n_ctx=512, flash_attn="on"))


@needs_rpc
@pytest.mark.parametrize(("there", "side"), [(True, "device"), (False, "host")])
def test_the_cache_is_allocated_on_the_requested_side(engine, asked, there, side):
    """All of it on the device, or all of it on the host, where a pass has more graph splits."""
    placed, n_parts = offload_traffic.kv_cache_placement(None, asked.but(offload_kqv=there), engine)
    assert placed == {side: CACHE}
    assert (n_parts == 2) == there


@needs_rpc
def test_a_cache_on_the_host_is_transferred_once_for_every_token(engine, asked):
    """With flash attention the cells in use are transferred once, not twice; with a cache on the device, few bytes."""
    far, near = (
        offload_traffic.link_bytes_per_token(None, asked.but(offload_kqv=on_device), 64, 32, engine)
        for on_device in (False, True)
    )
    if far is None:
        pytest.skip("this system does not count what it sends to itself")
    assert CACHE / 2 < far - near < 1.3 * CACHE / 2
    assert near < CACHE / 20


@needs_rpc
def test_a_prompt_sends_its_hidden_states_and_no_weights(engine, asked):
    """With a layer on the host, a hidden state crosses for each token of the prompt, and no weights of that layer."""
    model, n_prompt = lab.read_gguf(lab.tiny_model()), 64
    n_bytes = offload_traffic.link_bytes_of_prompt(None, asked.but(n_gpu_layers=model.n_layer), n_prompt, engine)
    if n_bytes is None:
        pytest.skip("this system does not count what it sends to itself")
    layer = sum(tensor.n_bytes for tensor in model.tensors if tensor.name.startswith("blk.0."))
    assert 4 * model.n_embd * n_prompt < n_bytes < layer / 4


def test_a_full_context_refuses(engine):
    """One token more than there are cells is refused with the number of cells."""
    assert "all 256 cells" in offload_traffic.full_context_response(None, Settings(n_ctx=256), engine)


def test_a_log_without_splits_is_unknown():
    """What llama.cpp did not log is None."""
    assert offload_traffic.graph_splits(Opening((), {}, Settings(), "nothing of the kind")) is None


def test_a_system_that_counts_nothing_gives_no_number(engine, monkeypatch):
    """Unknown stays unknown."""
    monkeypatch.setattr(offload_traffic, "loopback_interface_bytes", lambda: None)
    assert offload_traffic.link_bytes_per_token(None, Settings(), 8, 2, engine) is None
    assert offload_traffic.link_bytes_of_prompt(None, Settings(), 8, engine) is None
