"""The domain of the closed form: random proportions, batches and contexts against llama.cpp's simulation."""

from random import Random

import pytest
from marks import needs_rpc
from small_models import write_model

from inferlab.engine import dry_run
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.compute import DENSE, compute_bytes, outputs_reserved
from inferlab.settings import Settings
from inferlab.units import MIB

pytestmark = [pytest.mark.engine, needs_rpc]

SHAPES, SETTINGS = 80, 5
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
