"""Plans: each number compared with a real load, the method named, and unknown numbers refused."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import CPU_ONLY, WITH_GPU
from marks import needs_rpc
from small_models import write_model
from speed_machine import LINK, TRUTH

import inferlab as lab
from inferlab.engine import dry_run
from inferlab.engine.loopback import loopback_device
from inferlab.errors import DeviceUnavailable, EngineUnavailable, InvalidSettings, UnsupportedArchitecture
from inferlab.machine import Device
from inferlab.model import synthetic_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.free_memory import machine_for
from inferlab.prediction.memory import request
from inferlab.prediction.predict import predict_memory, predict_speed
from inferlab.prediction.validation import without_type
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

ABSENT = replace(WITH_GPU, devices=(Device("CUDA7", "a card elsewhere", "gpu", 8 * GIB, 8 * GIB, "CUDA"),))
PRINTED = 0.0051 * MIB
MISTRAL = synthetic_model.shape("mistral-7b")
CALIBRATION = lab.load("epyc-2c/calibration")


# --- against real loads -----------------------------------------------------------------------


@needs_rpc
@pytest.mark.parametrize("family", ["llama-tied", "qwen3", "gemma3", "granitemoe", "deepseek2", "lfm2"])
@pytest.mark.parametrize(
    "asked",
    [
        {"n_gpu_layers": 0},
        {"n_gpu_layers": 1, "type_k": "q8_0", "type_v": "q8_0"},
        {"n_gpu_layers": 3, "swa_full": False},
        {"n_gpu_layers": -1, "n_seq_max": 2},
        {"n_gpu_layers": -1, "offload_kqv": False, "type_k": "q4_0", "type_v": "q4_0"},
    ],
    ids=str,
)
def test_a_plan_is_what_a_real_load_allocates(family, asked, tmp_path, device, engine):
    """Every kind of bytes on host and device, at the 0.01 MiB that llama.cpp prints (whole grid: make bench)."""
    path = write_model(tmp_path / f"{family}.gguf", family, type="BF16")
    settings = Settings(n_ctx=2048, rpc_servers=(device.endpoint,), load_mode="none", **asked)
    plan = predict_memory(path, settings)
    told = measured_bytes(engine.open(path, settings).buffers, settings.rpc_servers)
    planned = {(name, kind): n for name, held in plan.devices.items() for kind, n in held.parts.items()}
    assert {place: n for place, n in planned.items() if abs(n - told.get(place, 0)) > 2 * PRINTED} == {}


def test_weights_are_the_sum_of_the_tensors():
    """To the byte, by device and by layer; the embedding stays, and an output matrix tied to it is copied."""
    plan = predict_memory("llama-3.2-1b", Settings(n_ctx=4096), WITH_GPU)
    model = synthetic_model.shape("llama-3.2-1b")
    embedding = next(t.n_bytes for t in model.tensors if t.name == "token_embd.weight")
    assert plan.devices["host"].weights_bytes == embedding
    assert plan.devices["gpu0"].weights_bytes == model.tensor_bytes
    assert plan.bytes_of("weights") == model.tensor_bytes + embedding
    assert plan.bytes_of("weights") == sum(layer.weights_bytes for layer in plan.layers)


@pytest.mark.engine
def test_the_cache_is_the_sum_of_its_rows():
    """Blocks of q8_0 are 34 bytes for 32 values; each layer has its share, and it lies with the layer."""
    plan = predict_memory("mistral-7b", Settings(n_ctx=8192, type_k="q8_0", type_v="q8_0", n_gpu_layers=9), ABSENT)
    a_layer = 8192 * 2 * 8 * 128 // 32 * 34
    assert {layer.kv_cache_bytes for layer in plan.layers if layer.index is not None} == {a_layer}
    assert plan.devices["gpu0"].kv_cache_bytes == 8 * a_layer
    assert plan.devices["host"].kv_cache_bytes == 24 * a_layer


# --- which method -----------------------------------------------------------------------------


@pytest.mark.engine
def test_published_shapes_have_a_closed_form_that_the_simulation_confirms():
    """On the host alone and, with the stand-in, on a card: compute and output within 1 MiB."""
    for name in ("mistral-7b", "llama-3.1-8b", "llama-3.2-1b", "qwen2.5-0.5b", "qwen2.5-7b"):
        model, settings = synthetic_model.shape(name), Settings(n_ctx=8192)
        plan = predict_memory(model, settings)
        assert plan.method == "closed form"
        told = dry_run.simulate(model, settings.but(devices=()))
        assert abs(plan.devices["host"].compute_bytes - told.compute_bytes["host"]) < MIB
        assert abs(plan.devices["host"].output_bytes - told.output_bytes) < PRINTED


# Compute buffers on CUDA cards at 4096 tokens and one row of logits, fully and half offloaded, in MiB:
# gpustack/gguf-parser-go, testdata/llamacpp_compute_buffer_sweep.json at 71c933de.
MEASURED_ELSEWHERE = {
    "qwen2.5-3b": (80.59, 96.68, {"n_layer": 36, "n_embd": 2048, "n_ff": 11008, "n_head": 16, "n_head_kv": 2}),
    "qwen3-4b": (79.09, 98.74, {"n_layer": 36, "n_embd": 2560, "n_ff": 9728, "n_head": 32, "n_head_kv": 8}),
}


@pytest.mark.engine
@pytest.mark.parametrize("name", MEASURED_ELSEWHERE)
def test_a_closed_form_holds_on_cards_that_others_measured(name, tmp_path):
    """Full offload within 0.1 MiB of a CUDA card's own log; half of it within the bound."""
    full, half, dimensions = MEASURED_ELSEWHERE[name]
    family = {"qwen2.5-3b": "qwen2", "qwen3-4b": "qwen3"}[name]
    path = write_model(tmp_path / "m.gguf", family, type="Q6_K", n_vocab=151936, head_dim=128, **dimensions)
    model, settings = read_gguf(path), Settings(n_ctx=4096)
    plan = predict_memory(model, settings, ABSENT, reserve="llama-server")
    assert plan.method == "closed form"
    assert plan.devices["gpu0"].compute_bytes / MIB == pytest.approx(full, abs=0.1)
    for simulate in (True, False):
        planned = predict_memory(model, settings.but(n_gpu_layers=18), ABSENT, "llama-server", simulate)
        least, most = planned.compute_range["gpu0"]
        assert least <= half * MIB <= most


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"n_gpu_layers": 9}, "work shared with the host"),
        ({"offload_kqv": False}, "work shared with the host"),
        ({"type_k": "q8_0", "type_v": "q8_0"}, "a quantized cache"),
    ],
)
def test_an_absent_card_gets_a_bound_with_its_reason(asked, why):
    """Weights and cache stay exact; compute lies between two ends, and no number in between is made up."""
    plan = predict_memory(MISTRAL, Settings(n_ctx=4096, **asked), ABSENT)
    assert plan.method == "bound"
    assert why in plan.notes[0]
    assert plan.devices["gpu0"].compute_bytes is None
    assert plan.devices["gpu0"].total_bytes is None
    assert plan.least_bytes("gpu0") < plan.most_bytes("gpu0")


def test_a_known_model_is_planned_like_its_name():
    """`known_model` gives what every plan takes: memory, speed, what fits, and the types of weights that would."""
    known, asked = lab.known_model("mistral-7b"), Settings(n_ctx=4096)
    assert predict_memory(known, asked) == predict_memory("mistral-7b", asked)
    speeds = [predict_speed(model, asked.but(n_threads=2), CALIBRATION) for model in (known, "mistral-7b")]
    assert speeds[0] == speeds[1]
    card = {"vram": "8GiB", "simulate": False, "with_steps": True}
    assert lab.fit(known, asked, **card) == lab.fit("mistral-7b", asked, **card)


@pytest.mark.engine
@needs_rpc
def test_an_absent_card_with_everything_on_it_is_stood_in_for():
    """A cache of 32-bit floats has no closed form for its compute buffer; a loopback device answers for the card."""
    plan = predict_memory("qwen3-8b", Settings(n_ctx=4096, type_k="f32", type_v="f32"), ABSENT)
    assert plan.method == "oracle"
    assert "stood in" in plan.notes[0]
    assert plan.devices["gpu0"].compute_bytes > 0


@pytest.mark.engine
def test_where_nothing_can_be_asked_nothing_is_answered(monkeypatch):
    """Without closed form, card or stand-in the answer is an error."""

    def unavailable(*_):
        raise DeviceUnavailable("no RPC here")

    monkeypatch.setattr(dry_run, "simulate_stand_in", unavailable)
    with pytest.raises(UnsupportedArchitecture, match="nothing can stand in for it"):
        predict_memory(MISTRAL, Settings(n_ctx=4096, n_gpu_layers=9, type_k="f32", type_v="f32"), ABSENT)


@pytest.mark.engine
@needs_rpc
def test_without_llama_cpp_a_bound_is_made_of_closed_forms(monkeypatch):
    """Where it is not installed a half-offloaded model gets the same bound, to 1 MiB of a simulation's."""
    settings = Settings(n_ctx=4096, n_gpu_layers=9)
    simulated = predict_memory(MISTRAL, settings, ABSENT)
    monkeypatch.setattr(request, "can_simulate", lambda: False)
    plan = predict_memory(MISTRAL, settings, ABSENT)
    assert (plan.method, plan.layers, plan.notes) == (simulated.method, simulated.layers, simulated.notes)
    for device, ends in simulated.compute_range.items():
        assert plan.compute_range[device] == pytest.approx(ends, abs=MIB)


NOT_LIKE_LLAMA = [
    ("mistral-7b", {"type_k": "q8_0", "type_v": "q8_0"}),
    ("qwen3-30b-a3b", {}),
    ("granite-3.1-1b-a400m", {}),
    ("gemma-3-4b", {"n_gpu_layers": 9}),
    ("phi-3-mini-4k", {"n_ctx": 512}),
    ("starcoder2-3b", {"n_seq_max": 4}),
]


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(("name", "asked"), NOT_LIKE_LLAMA)
def test_without_simulation_the_formulas_hold_what_the_simulation_tells(name, asked):
    """A quantized cache, experts, windows: exact, or the ends are known, no wider than twice what is needed."""
    settings = Settings(**{"n_ctx": 4096} | asked)
    simulated = predict_memory(name, settings, ABSENT)
    plan = predict_memory(name, settings, ABSENT, simulate=False)
    for device, held in simulated.devices.items():
        known = plan.devices[device].compute_bytes
        least, most = plan.compute_range[device] if known is None else (known, known)
        needed = held.compute_bytes if held.compute_bytes is not None else simulated.compute_range[device][1]
        assert least - PRINTED <= needed <= most + PRINTED
        assert device == "host" or most < 2 * needed + MIB


def test_without_llama_cpp_a_compute_buffer_without_a_formula_is_unknown(monkeypatch):
    """A cache of f32, which cards convert: weights and cache are exact, and no number is made up."""
    monkeypatch.setattr(request, "can_simulate", lambda: False)
    plan = predict_memory(MISTRAL, Settings(n_ctx=4096, type_k="f32", type_v="f32"), ABSENT)
    assert (plan.method, plan.compute_range, plan.total_bytes) == ("partial", {}, None)
    assert {held.compute_bytes for held in plan.devices.values()} == {None}
    assert "no closed form for the compute buffer of host, gpu0" in plan.notes[0]
    assert "which could tell, is not installed here" in plan.notes[0]


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(("name", "asked"), [*NOT_LIKE_LLAMA, ("mistral-7b", {}), ("mistral-7b", {"n_gpu_layers": 9})])
def test_a_plan_without_simulation_never_asks_llama_cpp(monkeypatch, name, asked):
    """Weights, cache and layers are the simulation's, also where it is installed; compute buffers are less known."""
    settings = Settings(**{"n_ctx": 4096} | asked)
    simulated = predict_memory(name, settings, ABSENT)
    monkeypatch.setattr(dry_run, "simulate", None)
    monkeypatch.setattr(dry_run, "simulate_stand_in", None)
    plan = predict_memory(name, settings, ABSENT, simulate=False)
    assert plan.layers == simulated.layers
    for device, held in plan.devices.items():
        assert replace(held, compute_bytes=0) == replace(simulated.devices[device], compute_bytes=0)
    assert not any("not installed" in note or "not on this machine" in note for note in plan.notes)


def test_without_simulation_a_cache_without_a_formula_stays_an_error(tmp_path):
    """Where not even the cache is known there is nothing to show; the error says that llama.cpp was not asked."""
    path = write_model(tmp_path / "lfm2.gguf", "llama")
    path.write_bytes(path.read_bytes().replace(b"llama", b"gptj?"))
    with pytest.raises(UnsupportedArchitecture, match=r"no closed form for its KV cache, .*was not asked"):
        predict_memory(path, Settings(n_ctx=512), ABSENT, simulate=False)


@pytest.mark.engine
def test_a_simulation_that_cannot_be_imported_is_an_engine_that_is_not_there(monkeypatch):
    """In a browser there are no processes: the planner knows, and a stand-in is refused with the reason."""
    assert request.can_simulate()
    monkeypatch.setitem(sys.modules, "inferlab.engine.dry_run", None)
    assert not request.can_simulate()
    with pytest.raises(EngineUnavailable, match=r"llama.cpp cannot run here: .*dry_run"):
        request.require_simulation()


@pytest.mark.engine
def test_a_card_of_an_unknown_kind_is_refused():
    """What was never compared with a backend's own log is not assumed of it, nor flash attention to any head."""
    vulkan = replace(ABSENT, devices=(Device("Vulkan0", "a card", "gpu", 8 * GIB, 8 * GIB, "Vulkan"),))
    with pytest.raises(UnsupportedArchitecture, match="how its backend allocates"):
        predict_memory(MISTRAL, Settings(n_ctx=4096), vulkan)
    odd = synthetic_model.shape("mistral-7b", head_dim=136, n_head=32)
    with pytest.raises(UnsupportedArchitecture, match="no kernel for the heads"):
        predict_memory(odd, Settings(n_ctx=4096, flash_attn="on"), ABSENT)
    assert predict_memory(odd, Settings(n_ctx=4096), ABSENT).settings.flash_attn == "off"
    assert predict_memory(odd, Settings(n_ctx=4096)).devices["host"].compute_bytes


def test_a_card_of_another_kind_is_planned_as_cudas_where_that_is_asked_for():
    """The plan has the bytes of a CUDA card, and a note that its compute buffer was never compared there."""
    vulkan = replace(ABSENT, devices=(Device("Vulkan0", "a card", "gpu", 8 * GIB, 8 * GIB, "Vulkan"),))
    plan = predict_memory(MISTRAL, Settings(n_ctx=4096), vulkan, as_cuda=True)
    cuda = predict_memory(MISTRAL, Settings(n_ctx=4096), ABSENT, as_cuda=True)
    assert (plan.devices, plan.layers) == (cuda.devices, cuda.layers)
    assert (cuda.notes, "another backend's" in plan.notes[-1]) == ((), True)


@needs_rpc
def test_attention_on_the_other_side_is_bounded(engine):
    """llama.cpp's simulation forgets that the host attends for layers elsewhere; a real load lies between the ends."""
    path = synthetic_model.make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=4096, progress=False)
    with loopback_device() as device:
        asked = device.settings(Settings(n_ctx=2048, flash_attn="off", offload_kqv=False))
        plan = predict_memory(path, asked)
        told = measured_bytes(engine.open(path, asked).buffers, asked.rpc_servers)
        engine.close()
        assert predict_memory(path, asked.but(flash_attn="on")).method == "oracle"
    assert (plan.method, "forgets" in plan.notes[0]) == ("bound", True)
    for name, (least, most) in plan.compute_range.items():
        assert least <= told[name, "compute"] <= most


# --- what is asked ----------------------------------------------------------------------------


def test_two_programs_reserve_different_room_for_logits():
    """llama-cpp-python a row for each token of a batch, llama-server one for each sequence."""
    model = synthetic_model.shape("llama-3.1-8b")
    binding, server = (
        predict_memory(model, Settings(n_ctx=8192), ABSENT, reserve=reserve).devices["gpu0"].compute_bytes
        for reserve in ("llama-cpp-python", "llama-server")
    )
    assert (binding / MIB, server / MIB) == pytest.approx((258.5, 116.0), abs=0.02)
    with pytest.raises(InvalidSettings, match="reserve='ollama'"):
        predict_memory(model, Settings(n_ctx=8192), reserve="ollama")


@pytest.mark.parametrize(("n_layer", "said"), [(None, "no number of"), (10**6, "1000000")])
def test_a_header_without_its_layers_is_refused(n_layer, said):
    """A damaged file, or one that is no language model, gets an error that says what its header has."""
    model = replace(MISTRAL, metadata={**MISTRAL.metadata, "llama.block_count": n_layer})
    with pytest.raises(UnsupportedArchitecture, match=f"gives {said} layers for 291 tensors. So no plan can be made"):
        predict_memory(model, Settings(n_ctx=4096))


def test_without_a_device_everything_is_on_the_host():
    """n_gpu_layers counts for nothing where there is no device: no machine, or one without a GPU."""
    settings = Settings(n_ctx=4096, n_gpu_layers=20)
    plan = predict_memory(MISTRAL, settings, CPU_ONLY)
    assert list(plan.devices) == ["host"]
    assert replace(plan, planned_for="") == replace(predict_memory(MISTRAL, settings), planned_for="")
    assert plan.devices["host"].weights_bytes == MISTRAL.tensor_bytes
    assert "AMX" in plan.notes[0]


@pytest.mark.engine
def test_several_cards_share_by_tensor_split_or_free_memory():
    """Where one does not tell its memory, the shares must be said."""
    two = replace(ABSENT, devices=(*ABSENT.devices, Device("CUDA8", "another", "gpu", 24 * GIB, 24 * GIB, "CUDA")))
    plan = predict_memory(MISTRAL, Settings(n_ctx=4096), two)
    counted = [sum(layer.device == name for layer in plan.layers) for name in ("gpu0", "gpu1")]
    assert counted == [9, 24]
    only = predict_memory(MISTRAL, Settings(n_ctx=4096, split_mode="none", main_gpu=1), two)
    assert (list(only.devices), only.method) == (["host", "gpu0"], "closed form")
    untold = replace(two, devices=(two.devices[0], Device("CUDA8", "another", "gpu", backend="CUDA")))
    with pytest.raises(InvalidSettings, match="tensor_split"):
        predict_memory(MISTRAL, Settings(n_ctx=4096), untold)
    with pytest.raises(InvalidSettings, match="split_mode='row'"):
        predict_memory(MISTRAL, Settings(n_ctx=4096, split_mode="row"), two)
    with pytest.raises(InvalidSettings, match="only 2 devices"):
        predict_memory(MISTRAL, Settings(n_ctx=4096, split_mode="none", main_gpu=2), two)


def test_a_plan_has_the_context_as_llama_cpp_rounds_it():
    """300 cells become 512, and no batch is larger than what was asked for."""
    settings = predict_memory(MISTRAL, Settings(n_ctx=300)).settings
    assert (settings.n_ctx, settings.n_batch, settings.n_ubatch) == (512, 300, 300)
    with pytest.raises(InvalidSettings, match="n_ctx=None"):
        predict_memory(MISTRAL, Settings())


def test_a_plan_is_there_before_the_file():
    """A name, a header in memory and a file lead to the same bytes."""
    tiny = lab.tiny_model()
    plans = (predict_memory(model, Settings(n_ctx=512), simulate=False) for model in (tiny, lab.read_gguf(tiny)))
    assert next(plans) == next(plans)
    assert predict_memory("mistral-7b", Settings(n_ctx=512)) == predict_memory(MISTRAL, Settings(n_ctx=512))
    assert not Path(MISTRAL.path).exists()


@pytest.fixture
def calibrated():
    """A calibration with known rates: a host, a slower loopback device, and the link between them."""
    return Calibration(CPU_ONLY, "2026-01-31", TRUTH, {"loopback/1": LINK})


def test_a_speed_plan_adds_up_what_was_calibrated(calibrated):
    """Rates, their parts and their band come from the calibration; fewer layers on the slow device are faster."""
    settings = Settings(n_ctx=1024, rpc_servers=("127.0.0.1:1",), n_threads=1)
    plans = [predict_speed("qwen2.5-0.5b", settings.but(n_gpu_layers=n), calibrated, 512, 64) for n in (0, 12, -1)]
    rates = [plan.decode.tokens_per_second for plan in plans]
    assert rates == sorted(rates, reverse=True)
    assert plans[-1].decode.bound_by == "weights on gpu0"
    least, most = plans[0].prefill.rate_range
    assert least < plans[0].prefill.tokens_per_second < most
    assert (plans[0].decode.n_tokens, plans[0].prefill.n_tokens) == (1, 512)


def test_a_speed_plan_says_which_type_it_had_to_replace(calibrated):
    """A type that was not calibrated is named in the notes."""
    few, settings = without_type(calibrated, "Q2_K"), Settings(n_ctx=512, n_gpu_layers=0)
    plan = predict_speed(shape("mistral-7b", "Q2_K", n_layer=2), settings, few)
    assert any("Q2_K has no rates of its own" in note for note in plan.notes)


def test_a_speed_plan_says_that_the_device_has_other_threads(calibrated, monkeypatch):
    """A loopback device with two threads is about twice as fast as the calibrated one with one."""
    from inferlab.engine import loopback

    settings = Settings(n_ctx=512, rpc_servers=("127.0.0.1:1",), n_threads=1)
    for n, told in ((2, ["Not calibrated for this: 2 threads on the loopback device, and 1 measured."]), (1, [])):
        monkeypatch.setattr(loopback, "loopback_at", lambda _, n=n: SimpleNamespace(n_threads=n))
        notes = predict_speed("qwen2.5-0.5b", settings, calibrated).notes
        assert [note for note in notes if "loopback" in note] == told


def test_a_speed_plan_without_a_context_makes_one(calibrated):
    """n_ctx None is taken as just enough, as for a measurement."""
    plan = predict_speed("qwen2.5-0.5b", Settings(n_gpu_layers=0), calibrated, 100, 20)
    assert plan.settings.n_ctx == 120


# --- the machine that a plan is for ---------------------------------------------------------------


@pytest.mark.engine
def test_a_file_is_planned_for_this_machine():
    """Its GPUs and its processor, which the plan names; of a known model nobody knows where it will run."""
    machine = lab.this_machine()
    plan = predict_memory(lab.tiny_model(), Settings(n_ctx=512))
    assert plan == predict_memory(lab.tiny_model(), Settings(n_ctx=512), machine)
    assert machine.cpu in plan.planned_for
    assert len(plan.devices) == 1 + len(machine.gpus)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (None, "any processor, no GPU; machine= names another place"),
        (machine_for(vram="8GiB"), "CUDA0 (a card with 8.00 GiB) beside any processor"),
        (CPU_ONLY, "any processor, no GPU"),
        (replace(CPU_ONLY, instruction_sets=("AVX2",)), f"{CPU_ONLY.cpu}, no GPU"),
    ],
)
def test_a_plan_names_what_it_is_for(machine, said):
    """Another card or processor may need other bytes."""
    plan = predict_memory(MISTRAL, Settings(n_ctx=512), machine, simulate=False)
    assert plan.planned_for == said
    assert ("planned for", said) in plan.summary[1]
