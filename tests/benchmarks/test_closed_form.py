"""The domain of the closed form: random proportions, batches and contexts against llama.cpp's simulation."""

from random import Random

import pytest
from marks import needs_rpc
from small_models import write_model

from inferlab.engine import dry_run
from inferlab.errors import EngineError
from inferlab.machine import Device
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.compute import DENSE, compute_bytes, most_compute_bytes, outputs_reserved
from inferlab.prediction.memory.planner import MemoryPlanner
from inferlab.settings import Settings
from inferlab.units import MIB

pytestmark = [pytest.mark.engine, needs_rpc]

SHAPES, SETTINGS = 80, 5
BOUNDED = (
    "llama", "llama-tied", "llama-moe", "qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "granite",
    "granitemoe", "phi3", "starcoder2", "olmo2",
)  # fmt: skip
SQUARE = ("llama-moe", "phi3", "starcoder2", "olmo2")  # n_head * head_dim = n_embd
PRINTED = 0.0061 * MIB  # llama.cpp prints 0.01 MiB, and aligns each buffer to 32 bytes


def random_shape(random):
    """Proportions around those of published models: half of them inside the domain, some just outside."""
    head_dim = random.choice([64, 96, 128, 256])
    n_head = random.randint(4, 48)
    d = head_dim * n_head if random.random() < 0.6 else 64 * random.randint(8, 96)
    return {
        "n_layer": 3, "n_embd": d, "n_head": n_head, "head_dim": head_dim,
        "n_head_kv": random.choice([h for h in range(1, n_head + 1) if n_head % h == 0]),
        "n_ff": 64 * round(d * random.choice([2, 2.6, 2.7, 3, 3.5, 4, 5.4, 6]) / 64),
        "n_vocab": random.choice([1000, 4096, 32000, 49155, 128256, 151936, 256000]),
    }  # fmt: skip


def random_settings(random):
    return Settings(
        n_ctx=random.choice([256, 300, 1024, 2048, 8192, 32768, 131072]),
        n_ubatch=random.choice([1, 32, 128, 512, 1024, 2048]),
        n_seq_max=random.choice([1, 1, 1, 2, 3, 4]),
        kv_unified=random.random() < 0.3,
        flash_attn=random.choice(["on", "on", "off"]),
    )


def test_wherever_the_closed_form_answers_it_is_right(tmp_path):
    """To the 0.01 MiB that llama.cpp prints, on the host alone and on a device, for every shape that is not refused."""
    random, answered, refused, worst = Random(20260131), 0, 0, 0.0
    for _ in range(SHAPES):
        family = random.choice(sorted(DENSE - {"qwen2"}))
        model = read_gguf(write_model(tmp_path / "random.gguf", family, **random_shape(random)))
        for on_device in (False, True):
            for _ in range(SETTINGS):
                settings, per_sequence = random_settings(random), random.random() < 0.5
                n_outputs = outputs_reserved(settings, per_sequence)
                closed = compute_bytes(model, settings, n_outputs, on_device)
                if closed is None:
                    refused += 1
                    continue
                ask = dry_run.simulate_stand_in if on_device else dry_run.simulate
                here = settings if on_device else settings.but(devices=())
                told = ask(model, here, settings.n_seq_max if per_sequence else 0).compute_bytes
                answered += 1
                difference = max(abs(closed[name] - told[name]) for name in told)
                worst = max(worst, difference)
                assert difference <= PRINTED, (family, model.metadata, settings, closed, told)
    print(f"closed form answers {answered} of {answered + refused} random cases, at most {worst / MIB:.3f} MiB off")
    assert answered > 100


def bounded_shape(random, family):
    """Proportions of any of the bounded architectures, also with a narrow feed-forward stage, experts and windows."""
    shape = random_shape(random)
    if random.random() < 0.5:
        shape["n_ff"] = 64 * max(1, round(shape["n_embd"] * random.choice([1, 1.5, 2.3]) / 64))
    if family in SQUARE:
        shape["n_embd"] = shape["n_head"] * shape["head_dim"]
    if family.endswith("moe"):
        used = random.choice([2, 4, 8])
        shape |= {"n_expert": random.choice([8, 32, 128]), "n_expert_used": used}
        shape["n_ff_exp"] = shape["n_ff"] if family != "qwen3moe" else 64 * random.choice([4, 12, 24, 48])
    return shape | {"n_layer": 7, "n_swa": random.choice([256, 1024, 4096])}


def test_wherever_a_bound_answers_it_suffices(tmp_path):
    """No random shape, with any type of cache, needs more than `most_compute_bytes`, of 14 families of models."""
    random, answered, shares = Random(20260201), 0, []
    for number in range(SHAPES):
        family = BOUNDED[number % len(BOUNDED)]
        model = read_gguf(write_model(tmp_path / "random.gguf", family, **bounded_shape(random, family)))
        for on_device in (False, True):
            for _ in range(SETTINGS):
                settings, per_sequence = random_settings(random), random.random() < 0.5
                type_k = random.choice(["f16", "q8_0", "q4_0", "q5_1"])
                type_v = type_k if settings.flash_attn == "on" else "f16"
                settings = settings.but(type_k=type_k, type_v=type_v, swa_full=random.random() < 0.5)
                most = most_compute_bytes(model, settings, outputs_reserved(settings, per_sequence), on_device)
                ask = dry_run.simulate_stand_in if on_device else dry_run.simulate
                here = settings if on_device else settings.but(devices=())
                try:
                    told = ask(model, here, settings.n_seq_max if per_sequence else 0).compute_bytes
                except EngineError:  # llama.cpp refuses some of these shapes
                    continue
                answered += 1
                shares += [told[name] / most[name] for name in told]
                assert all(told[name] <= most[name] + PRINTED for name in told), (family, model.metadata, settings)
    print(f"the bound answers {answered} random cases; half of them need {sorted(shares)[len(shares) // 2]:.0%} of it")
    assert answered > 400


def test_a_bound_holds_for_models_that_are_partly_on_a_device(tmp_path):
    """With any number of layers there, and the cache on either side: what is needed lies between the two ends."""
    random, answered = Random(20260202), 0
    there = (Device("RPC0", "127.0.0.1:1", "gpu", backend="RPC"),)
    for number in range(SHAPES):
        family = BOUNDED[number % len(BOUNDED)]
        model = read_gguf(write_model(tmp_path / "random.gguf", family, **bounded_shape(random, family)))
        for _ in range(SETTINGS):
            settings = random_settings(random).but(
                n_gpu_layers=random.randint(0, 8), offload_kqv=random.random() < 0.6, swa_full=random.random() < 0.5
            )
            planner = MemoryPlanner(model, settings, there, per_sequence=False, simulate=False)
            if planner.host_attends_for_devices:
                continue
            try:
                told = dry_run.simulate_stand_in(model, settings, 0).compute_bytes
            except EngineError:  # llama.cpp refuses some of these shapes
                continue
            answered += 1
            for name, (least, most) in planner.bound().compute_range.items():
                assert least - PRINTED <= told.get(name, 0) <= most + PRINTED, (name, family, model.metadata, settings)
    assert answered > 200
