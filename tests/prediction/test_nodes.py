"""Whether a graph has more tensors than llama.cpp has room for, compared with its simulation, which aborts then."""

import pytest

from inferlab.engine import dry_run
from inferlab.errors import EngineCrashed
from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory.nodes import tensors_needed
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings

ON_HOST = Settings(n_ctx=1024, devices=(), n_gpu_layers=0)
QUANTIZED = {"type_k": "q8_0", "type_v": "q8_0"}
OFF = {"flash_attn": "off", "type_k": "q8_0"}
SLOTS = {"n_seq_max": 4}
POOL = {**SLOTS, "kv_unified": True}
NEAR = 0.8  # of the room
CHANGES = [
    {},
    SLOTS,
    OFF,
    {**OFF, **SLOTS},
    {"type_k": "q4_0"},
    QUANTIZED,
    {**QUANTIZED, **SLOTS},
    {**QUANTIZED, **POOL},
]


def aborts(model, settings) -> bool:
    """Whether llama.cpp's simulation ends its process."""
    try:
        dry_run.simulate(model, settings)
    except EngineCrashed:
        return True
    return False


@pytest.fixture(scope="module")
def catalogue():
    """Each known model as its usual file, with what its graph needs of the room with a quantized cache and slots."""
    shapes = {name: shape(name, known.usual_type) for name, known in known_models().items()}
    needs = {name: tensors_needed(model, ON_HOST.but(**QUANTIZED, **SLOTS)) for name, model in shapes.items()}
    return {name: (shapes[name], need / room) for name, (need, room) in needs.items()}


def test_three_known_models_have_too_many(catalogue):
    """With a quantized cache and slots of their own; all others are far from it."""
    too_many = {name for name, (_, share) in catalogue.items() if share > 1}
    assert too_many == {"granite-3.1-1b-a400m", "phi-4-14b", "phi-4-reasoning-14b"}
    assert sorted(share for _, share in catalogue.values())[-4] < 0.85


@pytest.mark.engine
@pytest.mark.parametrize("changes", CHANGES)
def test_a_known_model_aborts_where_it_is_said(catalogue, changes):
    """Every known model near the limit, with each kind of cache, flash attention or not, slots and one pool."""
    settings = ON_HOST.but(**changes)
    near = [model for model, share in catalogue.values() if share > NEAR]
    assert len(near) > 3
    for model in near:
        need, room = tensors_needed(model, settings)
        assert aborts(model, settings) == (need > room), f"{model.name}: {need:,} of {room:,}"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "n_layer", "changes"),
    [
        ("phi-4-14b", 80, SLOTS),
        ("phi-4-14b", 81, SLOTS),
        ("phi-4-14b", 83, {}),
        ("phi-4-14b", 84, {}),
        ("granite-3.1-1b-a400m", 12, {}),
        ("granite-3.1-1b-a400m", 48, {}),
        ("granite-3.1-1b-a400m", 49, {}),
    ],
)
def test_the_count_is_exact_to_the_tensor(name, n_layer, changes):
    """With other numbers of layers the last that fits leaves no place, or one."""
    model, settings = shape(name, n_layer=n_layer), ON_HOST.but(**QUANTIZED, **changes)
    need, room = tensors_needed(model, settings)
    assert aborts(model, settings) == (need > room)
    assert abs(need - room) < 100


def note(name: str, **changes: object) -> str:
    """What a plan on the host says of it."""
    plan = predict_memory(name, ON_HOST.but(**changes), simulate=False)
    return " ".join(said for said in plan.notes if "aborts this load" in said)


def test_a_plan_says_what_happens_and_what_to_do():
    """The limit and the need, at which version, and a cache or a pool with which it loads; else nothing."""
    assert note("granite-3.1-1b-a400m") == ""
    assert note("phi-4-14b", **QUANTIZED) == note("phi-4-14b", **QUANTIZED, **POOL) == ""
    said = note("granite-3.1-1b-a400m", **QUANTIZED)
    assert said.startswith(
        "llama.cpp 0c1e57098 aborts this load (ggml-impl.h: fatal error), however much memory is free"
    )
    assert said.endswith("2,059. Take a cache of type f16 (type_k and type_v).")
    assert "room for 2,053 tensors" in said
    assert note("phi-4-14b", **QUANTIZED, **SLOTS).endswith(
        "Take a cache of type f16 (type_k and type_v), or one pool of cells for all slots (kv_unified)."
    )


@pytest.mark.engine
def test_what_aborts_is_not_simulated(monkeypatch):
    """No process of llama.cpp is ended for a plan."""
    monkeypatch.setattr(dry_run, "simulate", lambda *_: pytest.fail("llama.cpp was asked"))
    monkeypatch.setattr(dry_run, "simulate_stand_in", lambda *_: pytest.fail("llama.cpp was asked"))
    settings = Settings(n_ctx=1024, n_gpu_layers=8, rpc_servers=("127.0.0.1:1",), **QUANTIZED)
    assert predict_memory("granite-3.1-1b-a400m", settings).method == "bound"
