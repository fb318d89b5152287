"""A relay that counts: what a client allocates on a device, and the bytes of tensors that cross the link."""

import re

import pytest
from marks import needs_rpc
from small_models import write_model

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.errors import InferlabError
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.several_cards.watched import ALLOC_BUFFER, BUFFER_CLEAR, FREE_BUFFER, GET_TENSOR, Watched, watching

SETTINGS = Settings(n_ctx=512, n_ubatch=32, n_batch=32, flash_attn="on")


def numbers(*values):
    return b"".join(value.to_bytes(8, "little") for value in values)


def test_a_buffer_counts_until_it_is_freed():
    """A cleared buffer is a cache; the number of a freed one may be given again, to a buffer of another kind."""
    seen = Watched("127.0.0.1:1")
    seen.answered(ALLOC_BUFFER, numbers(7, 100))
    seen.sent(BUFFER_CLEAR, numbers(7))
    assert seen.bytes_by_kind() == {"weights": 0, "kv_cache": 100, "compute": 0}
    seen.sent(FREE_BUFFER, numbers(7))
    seen.answered(ALLOC_BUFFER, numbers(7, 30))
    seen.answered(GET_TENSOR, numbers(7, 500))
    assert seen.bytes_by_kind() == {"weights": 0, "kv_cache": 0, "compute": 30}
    assert seen.total_bytes == 30


@pytest.mark.engine
@needs_rpc
def test_the_bytes_on_a_device_are_those_of_the_log(tmp_path):
    """Weights, cache and compute, which the log has to 0.01 MiB; each token brings its logits back."""
    path = write_model(tmp_path / "m.gguf", "llama")
    with loopback_device(n_threads=1) as device, watching(device) as seen:
        engine = LlamaEngine()
        log = engine.open(path, SETTINGS.but(rpc_servers=(seen.endpoint,))).log
        held = seen.bytes_by_kind()
        before = seen.moved["from device"]
        engine.generate([1, 2, 3], 5)
        read = seen.moved["from device"] - before
        engine.close()
    for kind, n_bytes in held.items():
        word = {"weights": "model", "kv_cache": "KV", "compute": "compute"}[kind]
        logged = float(re.search(rf"RPC0\[\S+ +{word} buffer size = +([\d.]+)", log)[1])
        assert n_bytes / MIB == pytest.approx(logged, abs=0.0051)
    assert read == 5 * 512 * 4


@pytest.mark.engine
@needs_rpc
def test_a_client_of_a_device_that_ended_does_not_wait(tmp_path):
    """The relay closes the client's connection with the device's."""
    path = write_model(tmp_path / "m.gguf", "llama")
    with loopback_device(n_threads=1) as device, watching(device) as seen:
        engine = LlamaEngine()
        engine.open(path, SETTINGS.but(rpc_servers=(seen.endpoint,)))
        device._child.kill()
        with pytest.raises(InferlabError):
            engine.generate([1, 2, 3], 2)
        engine.close()
