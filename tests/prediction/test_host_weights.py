"""The host's weights as llama.cpp holds them: the mapped part of the file, and the copies that are rearranged."""

from dataclasses import replace
from itertools import product

import pytest
from fakes import made_run
from marks import needs_rpc

from inferlab.engine.log import Buffer
from inferlab.machine import Device, Machine
from inferlab.model.gguf import Tensor, read_gguf
from inferlab.model.quant_mixes import MIXES
from inferlab.model.repacking import AMX, ARM, AVX2, AVX512, NOT_REPACKED, ROWS, processor_kind, repacked_bytes
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction.compare import compare
from inferlab.prediction.memory.host_weights import HostWeights, host_weights
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

HOST_ONLY = Settings(n_ctx=512, n_gpu_layers=0, devices=())
NARROW = {"n_layer": 3, "n_vocab": 2048}
LAST_MATRIX_MIB = 9.0  # ffn_up of the last block: 2048 x 8192 weights in Q4_K
ZEN4 = ("AVX2", "AVX512", "AVX512_VNNI", "REPACK")


def held(model, settings=HOST_ONLY, processor=AVX2, layers=None, gpus=()):
    layers = layers or ("host",) * (model.n_layer + 1)
    return host_weights(model, layers, settings, gpus, processor, {})


def test_the_mapped_part_ends_before_a_rearranged_tensor_at_the_end_of_the_file():
    """Without repacking all tensors are mapped; with it the file's last matrix, 9.00 MiB, lies in another buffer."""
    model = shape("llama-3.2-1b", "Q4_K_M", n_layer=8, n_vocab=16384)
    whole = held(model, processor=NOT_REPACKED)[NOT_REPACKED].n_bytes
    assert whole == model.tensor_bytes
    assert (whole - held(model)[AVX2].n_bytes) / MIB == LAST_MATRIX_MIB


def test_without_mapping_every_tensor_counts_once():
    """A buffer for those in place and one for the others: together the tensors, whatever the processor."""
    model = shape("llama-3.1-8b", "Q4_0", **NARROW)
    read = HOST_ONLY.but(load_mode="none")
    found = {kind: held(model, read, kind)[kind] for kind in ROWS if kind != AMX}
    assert {one.n_bytes for one in found.values()} == {model.tensor_bytes}
    assert found[NOT_REPACKED].repacked_bytes == 0 < found[AVX2].repacked_bytes


def test_repacking_can_be_switched_off_and_a_gpu_switches_it_off():
    """use_extra_bufts=False, or a card whose backend has a host buffer; no_host brings it back, a loopback keeps it."""
    model, card = shape("llama-3.1-8b", "Q4_0", **NARROW), Device("CUDA0", "a card", "gpu", backend="CUDA")
    loopback = Device("RPC0", "a device", "gpu", backend="RPC")
    assert list(held(model, HOST_ONLY.but(use_extra_bufts=False))) == [NOT_REPACKED]
    assert list(held(model, gpus=(card,))) == [NOT_REPACKED]
    assert list(held(model, HOST_ONLY.but(no_host=True), gpus=(card,))) == [AVX2]
    assert list(held(model, gpus=(loopback,))) == [AVX2]


def test_each_file_of_a_split_model_has_a_part_of_its_own():
    """Offsets count from the start of each file, so the parts are added, not joined."""
    model = shape("llama-3.1-8b", "F16", **NARROW)
    half = len(model.tensors) // 2
    start = model.tensors[half].offset
    second = (replace(t, offset=t.offset - start, part=1) for t in model.tensors[half:])
    split = replace(model, tensors=(*model.tensors[:half], *second))
    assert held(split)[AVX2].n_bytes == held(model)[AVX2].n_bytes == model.tensor_bytes


def test_layers_of_a_device_between_two_of_the_host_are_mapped_too():
    """The part reaches from the first to the last tensor, whatever lies between."""
    model = shape("llama-3.1-8b", "F16", **NARROW)
    around = held(model, layers=("host", "gpu0", "host", "gpu0"))[AVX2]
    without_end = held(model, layers=("host", "gpu0", "gpu0", "gpu0"))[AVX2]
    assert around.n_bytes > without_end.n_bytes + sum(t.n_bytes for t in model.tensors if t.name.startswith("blk.1."))


@pytest.mark.parametrize(
    ("instruction_sets", "kind"),
    [
        (None, None),
        (("KLEIDIAI", "DOTPROD", "REPACK"), None),
        (("AVX2",), NOT_REPACKED),
        (("AVX", "REPACK"), NOT_REPACKED),
        (("AVX2", "REPACK"), AVX2),
        (ZEN4, AVX512),
        ((*ZEN4, "AMX_INT8"), AMX),
        (("NEON", "DOTPROD", "REPACK"), "Arm dot product"),
    ],
)
def test_instruction_sets_name_the_kind_of_processor(instruction_sets, kind):
    """An unknown processor has no kind; one without repacking code rearranges nothing."""
    assert processor_kind(instruction_sets) == kind


def test_only_matrices_that_are_multiplied_are_rearranged():
    """By type, number of rows and use: no table that tokens look up, no other multiple of rows, no norm."""
    matrix = Tensor("blk.0.ffn_up.weight", (2048, 8192), "Q4_K", 9 * MIB, 0)
    assert repacked_bytes(matrix, AVX2) == 9 * MIB
    for other in ({"name": "token_embd.weight"}, {"shape": (2048, 8196)}, {"type": "Q6_K"}, {"shape": (2048,)}):
        assert repacked_bytes(replace(matrix, **other), AVX2) == 0
    experts = replace(matrix, name="blk.0.ffn_up_exps.weight", shape=(2048, 512, 16))
    assert repacked_bytes(experts, AVX2) == 9 * MIB
    assert repacked_bytes(matrix, AMX) == 9 * MIB + 2048 * 8192 // 256 * 4


def test_a_plan_for_an_unknown_processor_has_every_kind_and_the_log_chooses():
    """The plan's own number is that without repacking; beside a log it is that of the kind whose copies were logged."""
    model = shape("llama-3.1-8b", "Q2_K", **NARROW)
    plan = predict_memory(model, HOST_ONLY)
    assert set(plan.host_weights) == set(ROWS)
    assert plan.devices["host"].weights_bytes == model.tensor_bytes
    for kind in (NOT_REPACKED, AVX2, AVX512):
        logged = plan.host_weights[kind]
        copies = [Buffer("CPU_REPACK", "weights", logged.repacked_bytes)] if logged.repacked_bytes else []
        run = made_run(buffers=(Buffer("CPU_Mapped", "weights", logged.in_place_bytes), *copies))
        gap = next(gap for gap in compare(plan, run) if gap.kind == "weights")
        assert (gap.difference_bytes, gap.repacked_bytes) == (0, logged.repacked_bytes)


def test_a_plan_for_a_known_processor_has_one_number():
    """A machine that tells its instruction sets decides; a note has the bytes of the second copies."""
    model = shape("llama-3.1-8b", "Q4_K_M", **NARROW)
    machine = Machine("cpu", 2, None, "Linux x86_64", "3.12", instruction_sets=ZEN4)
    plan = predict_memory(model, HOST_ONLY, machine)
    ((kind, weights),) = plan.host_weights.items()
    assert (kind, plan.devices["host"].weights_bytes) == (AVX512, weights.in_place_bytes)
    assert "repacked copy of " in plan.notes[-1]
    assert HostWeights(3, 2, True).n_bytes == 3
    assert HostWeights(3, 2, False).n_bytes == 5


@pytest.mark.parametrize(
    ("type", "kinds"),
    [
        ("MXFP4", {AVX2, AVX512, AMX, ARM}),
        ("IQ4_NL", {AVX2, AVX512, AMX, ARM}),
        ("Q2_K", {AVX512, AMX}),
        ("IQ4_XS", {AMX}),
        ("Q1_0", {ARM}),
        *((type, set()) for type in ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")),
        *((type, set()) for type in ("Q2_0", "TQ2_0", "TQ1_0")),
    ],
)
def test_few_of_the_small_types_are_rearranged(type, kinds):
    """On each kind of processor; of experts AMX itself takes none."""
    matrix = Tensor("blk.0.ffn_up.weight", (2048, 8192), type, 9 * MIB, 0)
    assert {kind for kind in ROWS if repacked_bytes(matrix, kind)} == kinds
    experts = replace(matrix, name="blk.0.ffn_up_exps.weight", shape=(2048, 512, 16))
    assert {kind for kind in ROWS if repacked_bytes(experts, kind)} == kinds - ({AMX} if type == "IQ4_XS" else set())


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_is_rearranged_as_planned(mix, tmp_path, engine):
    """In place and as copies, at the 0.01 MiB that the log prints; mixtures of experts in MXFP4 too."""
    narrow = {"n_layer": 2, "n_vocab": 512, "n_embd": 512, "n_ff": 1024, "n_head": 4}
    few = {"n_expert": 4, "n_expert_used": 2, "n_ff_expert": 512}
    for name, changes in [("llama-3.1-8b", {}), *([("qwen3-30b-a3b", few)] if mix == "MXFP4_MOE" else [])]:
        path = make_shape(name, mix, tmp_path / f"{name}.gguf", **narrow, **changes, n_head_kv=2, head_dim=128)
        plan = predict_memory(read_gguf(path), HOST_ONLY, engine.machine())
        compared = compare(plan, made_run(buffers=engine.open(path, HOST_ONLY).buffers, settings=HOST_ONLY))
        gaps = [gap.difference_bytes for gap in compared if gap.kind == "weights"]
        assert max(map(abs, gaps)) <= 2 * 0.0051 * MIB


@needs_rpc
@pytest.mark.engine
def test_plans_are_what_real_loads_map_and_copy(tmp_path, device, engine):
    """Quantized mixes on this machine: host weights and their copies, at the 0.01 MiB that the log prints."""
    ways = [
        Settings(n_ctx=512, rpc_servers=(device.endpoint,), **way)
        for way in (
            {"n_gpu_layers": 0},
            {"n_gpu_layers": 2},
            {"n_gpu_layers": -1},
            {"n_gpu_layers": 0, "load_mode": "none"},
            {"n_gpu_layers": 0, "use_extra_bufts": False},
        )
    ]
    for name, mix in product(("llama-3.1-8b", "qwen3-0.6b"), ("Q4_K_M", "Q2_K", "IQ4_NL")):
        path = make_shape(name, mix, tmp_path / f"{name}-{mix}.gguf", n_embd=1024, n_ff=2048, n_head=8, **NARROW)
        for settings in ways:
            buffers = engine.open(path, settings).buffers
            for machine in (None, engine.machine()):
                plan = predict_memory(read_gguf(path), settings, machine)
                gaps = compare(plan, made_run(buffers=buffers, settings=settings))
                assert all(abs(gap.difference_bytes) <= 2 * 0.0051 * MIB for gap in gaps if gap.kind == "weights")
