"""Plans with tensors moved by name: experts in host memory, single tensors on either side."""

from itertools import product

import pytest
from fakes import WITH_GPU
from marks import needs_rpc
from small_models import write_model

import inferlab as lab
from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory.bound import bound as bound_of
from inferlab.prediction.memory.placement import moved_tensors
from inferlab.prediction.memory.request import request_for
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0051 * MIB
SMALL = {
    "n_layer": 4,
    "n_expert": 16,
    "n_expert_used": 4,
    "n_ff_expert": 256,
    "n_embd": 512,
    "n_head": 8,
    "n_vocab": 4096,
}
EXPERTS_MOVED = (
    {"n_cpu_moe": 1},
    {"n_cpu_moe": 3},
    {"cpu_moe": True},
    {"n_cpu_moe": 3, "n_gpu_layers": 3},
    {"cpu_moe": True, "n_gpu_layers": 4},
    {"n_cpu_moe": 2, "offload_kqv": False},
    {"cpu_moe": True, "type_k": "q8_0", "type_v": "q8_0", "n_seq_max": 2},
    {"override_tensor": (r"ffn_down_exps=CPU",)},
    {"override_tensor": (r"blk\.[01]\.ffn_(up|gate)_exps=CPU", r"blk\.3\.attn_[qk]\.=CPU"), "n_cpu_moe": 1},
    {"override_tensor": (r"blk\.0\.ffn_up_exps=RPC0",), "cpu_moe": True},
)
ANY_MODEL = (
    {"override_tensor": (r"^output\.weight=CPU",)},
    {"override_tensor": (r"blk\.1\.attn=CPU", r"blk\.2\.ffn=CPU")},
    {"override_tensor": (r"blk\.1\.attn=RPC0",), "n_gpu_layers": 2},
)
WAYS = ({"load_mode": "mmap"}, {"load_mode": "none"}, {"use_extra_bufts": False})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A quantized shape with experts, an unquantized model with experts, and a dense one."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "quantized": make_shape("qwen3-30b-a3b", "Q4_K_M", folder / "quantized.gguf", **SMALL),
        "unquantized": write_model(folder / "unquantized.gguf", "llama-moe", type="BF16"),
        "dense": make_shape(
            "llama-3.1-8b",
            "Q4_K_M",
            folder / "dense.gguf",
            n_layer=3,
            n_embd=512,
            n_ff=1024,
            n_head=8,
            n_head_kv=2,
            n_vocab=4096,
        ),
    }


ASKED = [
    *product(("quantized", "unquantized"), EXPERTS_MOVED + ANY_MODEL, WAYS[:2]),
    *product(("quantized",), EXPERTS_MOVED, WAYS[2:]),
    *product(("dense",), ANY_MODEL, WAYS),
]


@needs_rpc
@pytest.mark.engine
@pytest.mark.parametrize(("name", "moved", "way"), ASKED, ids=str)
def test_a_plan_with_overrides_is_what_a_real_load_allocates(name, moved, way, files, device, engine):
    """Every kind of bytes on host and device, against the log of a load, at the 0.01 MiB that llama.cpp prints."""
    settings = Settings(n_ctx=1024, rpc_servers=(device.endpoint,), **moved, **way)
    plan = predict_memory(files[name], settings, engine.machine() if way != WAYS[1] else None)
    told = measured_bytes(engine.open(files[name], settings).buffers, settings.rpc_servers)
    planned = {(place, kind): n for place, held in plan.devices.items() for kind, n in held.parts.items()}
    assert plan.moved
    assert {place: n for place, n in planned.items() if abs(n - told.get(place, 0)) > 2 * PRINTED} == {}


@needs_rpc
@pytest.mark.engine
@pytest.mark.parametrize("name", ["quantized", "unquantized", "dense"])
@pytest.mark.parametrize("patterns", [(r"blk\.1\.",), (r"blk\.0\.attn",), (r"blk\.1\.ffn", r"blk\.2\.attn")], ids=str)
def test_stages_that_follow_each_other_are_bounded(name, patterns, files, device, engine):
    """The simulation miscounts them; weights stay exact, and the load's compute buffers lie inside the bound."""
    moved = tuple(f"{pattern}=CPU" for pattern in patterns)
    settings = Settings(n_ctx=1024, rpc_servers=(device.endpoint,), override_tensor=moved)
    plan = predict_memory(files[name], settings, engine.machine())
    told = measured_bytes(engine.open(files[name], settings).buffers, settings.rpc_servers)
    assert plan.method == "bound"
    for place, held in plan.devices.items():
        assert abs(held.weights_bytes - told[place, "weights"]) <= 2 * PRINTED
        least, most = plan.compute_range[place]
        assert least - PRINTED <= told[place, "compute"] <= most + PRINTED


@needs_rpc
@pytest.mark.engine
@pytest.mark.parametrize("name", ["quantized", "unquantized"])
@pytest.mark.parametrize("moved", EXPERTS_MOVED, ids=str)
def test_the_bound_for_a_card_elsewhere_holds_with_moved_experts(name, moved, files, device, engine):
    """Where nothing can be simulated, the load's compute buffers lie inside the bound."""
    settings = Settings(n_ctx=1024, rpc_servers=(device.endpoint,), **moved)
    model = read_gguf(files[name])
    bound = bound_of(request_for(model, settings, None))
    told = measured_bytes(engine.open(files[name], settings).buffers, settings.rpc_servers)
    for place, (least, most) in bound.compute_range.items():
        assert least - PRINTED <= told[place, "compute"] <= most + PRINTED


def test_there_are_enough_combinations():
    """The promise is at least forty."""
    assert len(ASKED) >= 40


def test_a_moved_tensor_counts_where_it_is_and_stays_with_its_layer():
    """Bytes leave the card and arrive in RAM; the layer keeps its cache, and its rows add up to the same sum."""
    asked = Settings(n_ctx=4096)
    whole = predict_memory("qwen3-30b-a3b", asked, WITH_GPU, simulate=False)
    moved = predict_memory("qwen3-30b-a3b", asked.but(n_cpu_moe=2), WITH_GPU, simulate=False)
    freed = whole.devices["gpu0"].weights_bytes - moved.devices["gpu0"].weights_bytes
    assert freed == sum(row.moved_bytes["host"] for row in moved.layers[1:3]) > 0
    assert moved.devices["gpu0"].kv_cache_bytes == whole.devices["gpu0"].kv_cache_bytes
    assert sum(row.weights_on(place) for row in moved.layers for place in ("host", "gpu0")) == whole.bytes_of("weights")
    assert set(moved.moved.values()) == {"host"}


def test_the_first_pattern_counts():
    """As llama.cpp tries them: the given ones in their order, then n_cpu_moe."""
    model = lab.shape("qwen3-30b-a3b", n_layer=2)
    asked = Settings(override_tensor=(r"blk\.0\.ffn_up_exps=CUDA0", "ffn_up=CPU"), n_cpu_moe=1)
    overrides = [(pattern, "host" if buffer == "CPU" else "gpu0") for pattern, buffer in asked.tensor_overrides]
    moved = moved_tensors(model, ("gpu0",) * 3, overrides)
    assert sorted(moved) == ["blk.0.ffn_down_exps.weight", "blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"n_cpu_moe": 2, "cpu_moe": True}, "cpu_moe=True has the experts of all layers, so n_cpu_moe=2"),
        ({"n_cpu_moe": -1}, "n_cpu_moe=-1 must be a whole number from 0"),
        ({"override_tensor": "ffn=CPU"}, "must be a tuple of texts"),
        ({"override_tensor": ("ffn",)}, "'ffn' is not of the form 'pattern=CPU'"),
        ({"override_tensor": ("ffn{1,2}=CPU",)}, "would divide 'ffn{1,2}=CPU' at the comma"),
        ({"override_tensor": ("(ffn=CPU",)}, "'(ffn' is no regular expression"),
    ],
)
def test_overrides_that_mean_something_else_are_refused(asked, message):
    """Before a model is known: what llama.cpp would divide, ignore or stop at."""
    with pytest.raises(InvalidSettings) as refused:
        Settings(**asked)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("llama-3.1-8b", {"n_cpu_moe": 2}, "has no experts, and llama.cpp would ignore it"),
        ("qwen3-30b-a3b", {"n_cpu_moe": 49}, "has 48 layers, and llama.cpp would take all of them"),
        ("qwen3-30b-a3b", {"n_cpu_moe": 3, "n_gpu_layers": 20}, "the first 29 layers"),
        ("qwen3-30b-a3b", {"cpu_moe": True, "n_gpu_layers": 1}, "cpu_moe=True changes nothing"),
        ("qwen3-30b-a3b", {"override_tensor": ("ffn_exp=CPU",)}, "found in no tensor's name"),
    ],
)
def test_overrides_without_effect_on_a_model_are_refused(name, asked, message):
    """What llama.cpp would silently do is in the message."""
    with pytest.raises(InvalidSettings) as refused:
        Settings(**asked).require_model(lab.shape(name))
    assert message in str(refused.value)


@pytest.mark.parametrize("pattern", ["token_embd", "rope_freqs"])
def test_a_tensor_of_several_copies_cannot_be_moved_in_a_plan(pattern):
    """A tied embedding, and factors that every device copies."""
    with pytest.raises(InvalidSettings, match="is in several places"):
        predict_memory("llama-3.2-1b", Settings(n_ctx=512, override_tensor=(f"{pattern}=CPU",)), WITH_GPU)


@needs_rpc
@pytest.mark.engine
def test_a_model_of_unlike_layers_is_bounded(tmp_path, device, engine):
    """With one number of heads for each layer, and for a card that is elsewhere, the bound has what a load needs."""
    path, moved = write_model(tmp_path / "lfm2.gguf", "lfm2", type="BF16"), {"override_tensor": ("blk.2.ffn=CPU",)}
    plan = predict_memory(path, Settings(n_ctx=512, **moved), WITH_GPU)
    settings = Settings(n_ctx=512, rpc_servers=(device.endpoint,), **moved)
    told = measured_bytes(engine.open(path, settings).buffers, settings.rpc_servers)
    assert plan.method == "bound"
    assert abs(plan.devices["gpu0"].weights_bytes - told["gpu0", "weights"]) <= 2 * PRINTED
    for place, (least, most) in plan.compute_range.items():
        assert least - PRINTED <= told[place, "compute"] <= most + PRINTED


@pytest.mark.engine
def test_a_buffer_that_is_not_there_is_refused(files, engine):
    """In a plan and by the engine, with the buffers that there are."""
    settings = Settings(n_ctx=512, override_tensor=("ffn_up=CUDA7",))
    with pytest.raises(InvalidSettings, match=r"'CUDA7', which is no memory of this request. There are: CPU"):
        predict_memory(files["dense"], settings)
    with pytest.raises(EngineRefused, match="There are: CPU"):
        engine.open(read_gguf(files["dense"]).path, settings)
