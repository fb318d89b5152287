"""Real runs with everything on the device, held against the same runs on the processor."""

import math

import pytest

from inferlab.measurement.run import measure
from inferlab.model.find import tiny_model
from inferlab.settings import Settings

TEXT = "The following function returns the number of items in a list, and raises an error where"
N_GEN = 96
NEAR = 0.1
"""Nats by which two probabilities of a token may differ: sums in another order, and F16 where the CPU has F32."""
PLACES = {"all layers": {}, "cache in RAM": {"offload_kqv": False}, "two layers": {"n_gpu_layers": 3}}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_is_measured_where_it_was_placed(place, gpu, engine, record_property):
    """The weights lie on the device as the settings say, and every token has its time."""
    settings = Settings(n_ctx=512, **PLACES[place])
    run = measure(tiny_model(), settings, n_prompt=64, n_gen=32, repeats=2, engine=engine, progress=False)
    there = {buffer.kind for buffer in run.buffers if buffer.device == gpu.name and buffer.n_bytes}
    assert there == {"weights", "compute", "kv_cache"} - ({"kv_cache"} if not settings.offload_kqv else set())
    assert {len(one.token_seconds) for one in run.passes} == {32}
    rates = f"{run.prefill_tokens_per_second:.0f} and {run.decode_tokens_per_second:.0f} tokens/s"
    record_property("found", f"{place} on {gpu.title}: {rates}")


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_the_answer_is_the_processors_as_far_as_precision_allows(flash_attn, gpu, engine, record_property):
    """Greedy tokens are equal up to one where the processor finds both likely: never by more than NEAR."""
    asked = Settings(n_ctx=256, flash_attn=flash_attn)
    engine.open(tiny_model(), asked.but(devices=()))
    prompt = engine.tokenize(TEXT)
    cpu = engine.generate(prompt, N_GEN).tokens
    engine.open(tiny_model(), asked)
    found = engine.generate(prompt, N_GEN).tokens
    first = next((i for i, pair in enumerate(zip(cpu, found, strict=True)) if pair[0] != pair[1]), None)
    record_property("found", f"flash_attn={flash_attn}: first other token {first} of {N_GEN}")
    if first is None:
        return
    engine.open(tiny_model(), asked.but(devices=()))
    before = [*prompt, *cpu[:first]]
    nats = [engine.score([*before, token], len(before))[0] for token in (cpu[first], found[first])]
    record_property("found", f"the processor's cost of the two: {nats[0]:.4f} and {nats[1]:.4f} nats")
    assert math.isclose(*nats, abs_tol=NEAR)


@pytest.mark.parametrize("type_k", ["f16", "q8_0"])
def test_a_text_costs_the_same_on_both(type_k, gpu, engine, record_property):
    """The cost of each token of a text, with its whole context: a kernel that computes something else is found out."""
    asked = Settings(n_ctx=512, type_k=type_k, type_v=type_k, flash_attn="on")
    costs = []
    for settings in (asked.but(devices=()), asked):
        engine.open(tiny_model(), settings)
        tokens = engine.tokenize(TEXT * 4)
        costs.append(engine.score(tokens))
    apart = max(abs(one - other) for one, other in zip(*costs, strict=True))
    record_property("found", f"{type_k}: {len(costs[0])} tokens, at most {apart:.4f} nats apart")
    assert apart < NEAR
