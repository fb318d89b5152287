"""llama.cpp's own simulation: read from its log, asked of a header alone, equal to a real load."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from marks import needs_rpc
from small_models import write_model
from split_files import write_split

from inferlab.engine import client, dry_run, worker
from inferlab.engine.client import LlamaEngine
from inferlab.engine.log import Buffer, buffers_in
from inferlab.engine.process import WorkerProcess
from inferlab.errors import EngineRefused
from inferlab.model import synthetic_model
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.prediction.fit import fit
from inferlab.settings import KV_TYPES, Settings
from inferlab.units import MIB

HOST_ONLY = Settings(n_ctx=2048, devices=())
LOG = """load_tensors: layer   0 assigned to device CPU, is_swa = 0
load_tensors: layer   1 assigned to device RPC1, is_swa = 0
load_tensors: layer   2 assigned to device RPC0, is_swa = 0
llama_context:        CPU  output buffer size =     0.50 MiB
llama_kv_cache: layer   0: dev = CPU
llama_kv_cache: layer   1: dev = RPC1
llama_kv_cache: size =    2.00 MiB (  2048 cells,   2 layers,  1/1 seqs), K (f16):    1.00 MiB, V (f16):    1.00 MiB
llama_memory_recurrent, layer   0: dev = CPU
llama_memory_recurrent: size =    0.25 MiB (     1 cells,   2 layers,  1 seqs  0 rs_seq), R (f32):    0.25 MiB
sched_reserve: RPC0[127.0.0.1:1] compute buffer size =     3.00 MiB
sched_reserve: RPC0[127.0.0.1:2] compute buffer size =     4.00 MiB
sched_reserve:  CUDA_Host compute buffer size =     5.00 MiB
"""


STATES = """llama_kv_cache: size =    0.05 MiB (   256 cells,   1 layers,  1/1 seqs), K (f16):    0.05 MiB
llama_dsv4_comp_state: layer   2: dev = CPU
llama_dsv4_comp_state:        CPU DSV4 csa state buffer size =     0.03 MiB
llama_dsv4_comp_state: csa ratio = 4, state = 8 x 128, streams = 1, rs_seq = 0, layers = 1, size =    0.03 MiB
"""


class FreedModel:
    """A loaded model that notes whether it was freed."""

    is_free = False

    def free(self):
        self.is_free = True


def test_a_simulation_is_read_from_the_log():
    """Buffers by device, each cache with its layers, and two servers that bear one name found apart."""
    simulation = dry_run.read_log(LOG, ("127.0.0.1:1", "127.0.0.1:2"))
    assert simulation.compute_bytes == {"gpu0": 3 * MIB, "gpu1": 4 * MIB, "host": 5 * MIB}
    assert simulation.layers == ("host", "gpu1", "gpu0")
    assert simulation.output_bytes == MIB // 2
    assert [(cache.devices, cache.n_bytes) for cache in simulation.caches] == [
        ({0: "host", 1: "gpu1"}, 2 * MIB),
        ({0: "host"}, MIB // 4),
    ]


@pytest.mark.engine
def test_a_simulation_agrees_with_a_real_load():
    """Compute and output buffers of the embedded model, at the 0.01 MiB that llama.cpp prints."""
    simulation = dry_run.simulate(read_gguf(tiny_model()), HOST_ONLY)
    engine = LlamaEngine()
    real = {b.kind: b.n_bytes for b in engine.open(tiny_model(), HOST_ONLY).buffers}
    engine.close()
    assert (simulation.compute_bytes["host"], simulation.output_bytes) == (real["compute"], real["output"])
    assert simulation.caches[0].n_bytes == real["kv_cache"]


@pytest.mark.engine
def test_a_model_without_a_file_is_simulated_from_its_header():
    """A 40 GB shape needs a few kilobytes of disk, and the same answer comes as from its file's header."""
    model = synthetic_model.shape("llama-3.1-8b", "F16", n_layer=100)
    path = dry_run.header_file(model)
    assert path.stat().st_size > 40e9
    assert path.stat().st_blocks * 512 < 2**20
    assert dry_run.header_file(model) == path
    assert dry_run.simulate(model, HOST_ONLY).caches[0].n_bytes == 100 * 2048 * 2 * 8 * 128 * 2


def test_a_file_is_asked_itself():
    """No copy is made of a model that is there."""
    model = read_gguf(tiny_model())
    assert dry_run.header_file(model) == Path(model.path)
    assert dry_run.header_file(replace(model, path=Path("elsewhere.gguf"))) != Path(model.path)


@pytest.mark.engine
def test_a_model_in_parts_is_simulated_as_the_whole_file(tmp_path):
    """Its tensors lie in several files, each with offsets of its own."""
    whole = write_model(tmp_path / "whole.gguf", "llama", n_layer=3)
    parts = write_split(tmp_path, "part", whole, 3)
    assert dry_run.simulate(read_gguf(parts[0]), HOST_ONLY) == dry_run.simulate(read_gguf(whole), HOST_ONLY)


@pytest.mark.engine
def test_fewer_rows_of_logits_need_less():
    """llama-server's reservation against one row for each token of the batch."""
    model = synthetic_model.shape("llama-3.2-1b", n_layer=2)
    each_token, each_sequence = (dry_run.simulate(model, HOST_ONLY, n).compute_bytes["host"] for n in (0, 1))
    assert each_token - each_sequence > 100 * MIB


@pytest.mark.engine
@needs_rpc
def test_a_stand_in_takes_the_place_of_a_card():
    """A loopback device is asked as if it were the card, and everything is placed on it."""
    simulation = dry_run.simulate_stand_in(
        synthetic_model.shape("qwen2.5-0.5b"), Settings(n_ctx=2048, devices=("CUDA0",))
    )
    assert set(simulation.layers) == {"gpu0"}
    assert set(simulation.compute_bytes) == {"host", "gpu0"}


@pytest.mark.engine
def test_what_llama_cpp_refuses_is_refused(tmp_path):
    """Tensors of the wrong shape are no model, simulated or not; the next question is answered."""
    path = write_model(tmp_path / "wrong.gguf", "llama", n_layer=2)
    model = read_gguf(path)
    wrong = replace(model, path=Path("wrong"), metadata={**model.metadata, "llama.feed_forward_length": 333})
    with pytest.raises(EngineRefused, match="did not load"):
        dry_run.simulate(wrong, HOST_ONLY)
    assert dry_run.simulate(model, HOST_ONLY).layers == ("host",) * 3


@needs_rpc
@pytest.mark.engine
@pytest.mark.parametrize("name", KV_TYPES)
def test_every_type_of_the_cache_reaches_llama_cpp(name):
    """Each type that `Settings` takes is one that the engine can ask for."""
    simulation = dry_run.simulate(read_gguf(tiny_model()), HOST_ONLY.but(type_k=name, type_v=name), 0)
    assert sum(cache.n_bytes for cache in simulation.caches) > 0


def test_the_same_question_is_asked_once(monkeypatch):
    """Unless several devices share the layers by memory that is free now; only some answers are kept."""
    asked = []
    monkeypatch.setattr(dry_run, "_SIMULATIONS", {})
    monkeypatch.setattr(dry_run, "MOST_SIMULATIONS", 2)
    monkeypatch.setattr(LlamaEngine, "simulate", lambda self, *question: asked.append(question) or LOG)
    model = read_gguf(tiny_model())
    for n_ctx in (512, 1024, 512):
        dry_run.simulate(model, HOST_ONLY.but(n_ctx=n_ctx))
    assert len(asked) == 2
    for _ in range(2):
        dry_run.simulate(model, HOST_ONLY.but(devices=None))
    assert len(asked) == 4
    dry_run.simulate(model, HOST_ONLY.but(n_ctx=512))
    assert len(asked) == 5


def test_a_model_is_loaded_once_for_each_placement(monkeypatch):
    """Not for each context; of more placements than are kept, the first is freed."""
    loads = []
    monkeypatch.setattr(worker, "LoadedModel", lambda *_, **__: loads.append(FreedModel()) or loads[-1])
    simulating = object.__new__(worker.Worker)
    fields = SimpleNamespace(_fields_=[("n_gpu_layers", None)])
    simulating.api, simulating.devices = SimpleNamespace(llama_model_params=fields), None
    simulating.log, simulating.without_weights = [], {}

    def load(**changes):
        simulating._without_weights(str(tiny_model()), HOST_ONLY.but(**changes).to_dict(), {})

    for n_ctx in (512, 1024, 2048):
        load(n_ctx=n_ctx)
    assert len(loads) == 1
    for n_gpu_layers in range(worker.MOST_WITHOUT_WEIGHTS):
        load(n_gpu_layers=n_gpu_layers)
    assert (len(loads), [loaded.is_free for loaded in loads].count(True)) == (worker.MOST_WITHOUT_WEIGHTS + 1, 1)


@pytest.mark.engine
@needs_rpc
def test_a_plan_for_a_card_starts_one_worker(monkeypatch):
    """The whole search asks one process, and no question twice, also where it needs card and host."""
    started, asked = [], []
    real = LlamaEngine.simulate
    monkeypatch.setattr(dry_run, "_ENGINES", {})
    monkeypatch.setattr(client, "WorkerProcess", lambda *how: started.append(how) or WorkerProcess(*how))
    monkeypatch.setattr(LlamaEngine, "simulate", lambda self, *what: asked.append(what) or real(self, *what))
    monkeypatch.setattr(dry_run, "_LOOPBACK", [])
    monkeypatch.setattr(dry_run, "_SIMULATIONS", {})
    fit("kimi-linear-48b-a3b", Settings(n_ctx=8192), vram="24GiB", reserve_bytes=0)
    for engine in dry_run._ENGINES.values():
        engine.close()
    assert len(started) == 1
    assert len(asked) == len({question[:3] for question in asked})


@pytest.mark.engine
def test_a_simulation_leaves_an_open_model_open():
    """What was opened goes on generating; the vocabulary is not loaded for a simulation, and its size is the same."""
    engine = LlamaEngine()
    engine.open(tiny_model(), HOST_ONLY)
    before = engine.generate([1, 2, 3], 4).tokens
    engine.simulate(tiny_model(), HOST_ONLY.but(n_ctx=4096))
    assert engine.generate([1, 2, 3], 4).tokens == before
    engine.close()


def test_the_states_of_a_compressor_are_a_cache():
    """DeepSeek 4 prints them in lines of their own, with the compressor's name in the buffer's."""
    (cache,) = dry_run.read_log(STATES).caches
    assert (cache.devices, cache.n_bytes) == ({2: "host"}, round(0.03 * MIB))
    assert buffers_in(STATES) == (Buffer("CPU", "kv_cache", round(0.03 * MIB)),)
