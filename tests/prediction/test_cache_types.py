"""Windows, recurrent states and both: their bytes as planned against what llama.cpp would allocate."""

from dataclasses import replace
from itertools import product

import pytest
from small_models import write_model
from speed_machine import TRUTH

import inferlab as lab
from inferlab.engine import dry_run
from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.prediction.cost import bytes_read
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.memory.cache import (
    cache_layers,
    kv_cache_bytes,
    kv_cache_bytes_per_token,
    layer_bytes,
    require_effect,
)
from inferlab.prediction.memory.compute import compute_range, outputs_reserved
from inferlab.prediction.speed import PlacedModel
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.windows_and_states import kept

PRINTED = 0.0051 * MIB  # llama.cpp prints the size of a cache to 0.01 MiB
WINDOWED = ("gemma2", "gemma3", "gpt-oss", "cohere2")
PLAIN = ("llama", "deepseek2")
HYBRID = ("qwen35", "qwen3next")
# A hybrid of a few layers, with one of attention; the state-space models keep their width, which fixes the state.
SHAPES = {
    "mamba2-130m": {"n_layer": 3},
    "granite-4.0-h-350m": {"n_layer": 3, "attention_layers": (1,)},
    "falcon-h1-0.5b": {"n_layer": 3},
    "lfm2-350m": {"n_layer": 3, "attention_layers": (2,)},
}
TYPES = (("f16", "f16"), ("q8_0", "q8_0"))
GRID = [
    {"n_seq_max": n, "kv_unified": unified, "swa_full": full, "type_k": k, "type_v": v, "n_ubatch": ub}
    for n, unified, full, (k, v), ub in product((1, 4), (False, True), (False, True), TYPES, (128, 512))
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Header-only files of a few layers."""
    folder = tmp_path_factory.mktemp("models")
    written = {name: lab.read_gguf(write_model(folder / f"{name}.gguf", name)) for name in (*PLAIN, *WINDOWED, *HYBRID)}
    return written | {name: lab.shape(name, "F16", n_vocab=512, **few) for name, few in SHAPES.items()}


@pytest.mark.engine
@pytest.mark.parametrize("name", [*PLAIN, *WINDOWED, *HYBRID, *SHAPES])
def test_a_cache_is_planned_as_llama_cpp_would_allocate_it(name, models):
    """Every combination of sequences, unified, swa_full, types and ubatch, to the 0.01 MiB of each printed line."""
    model, gaps = models[name], []
    for one in grid_of(name):
        settings = Settings(n_ctx=4096, n_batch=512, flash_attn="on", **one)
        planned = kv_cache_bytes(model, settings)
        caches = dry_run.simulate(model, settings).caches
        gap = abs(planned - sum(cache.n_bytes for cache in caches))
        assert gap <= PRINTED * len(caches), (one, planned, caches)
        gaps.append(gap)
    print(f"{name}: {len(gaps)} combinations, largest difference {max(gaps)} bytes")


def grid_of(name):
    """All combinations; each ubatch only where cells depend on it, and one type for a latent cache."""
    return [one for one in GRID if name in WINDOWED or one["n_ubatch"] == 512]


def test_a_state_does_not_grow_with_the_context(models):
    """Mamba has no cells: its bytes are those of the states, for each sequence, at any length and cache type."""
    model = models["mamba2-130m"]
    short, long = (kv_cache_bytes(model, Settings(n_ctx=n, type_k="q8_0", type_v="q8_0")) for n in (256, 65536))
    assert short == long == 3 * 4 * (3 * (1536 + 2 * 128) + 1536 * 128)
    assert kv_cache_bytes(model, Settings(n_ctx=256, n_seq_max=4)) == 4 * short


def test_a_hybrid_has_cells_in_its_attention_layers_only():
    """Granite 4.0 H: four layers grow with n_ctx; the known model and its shape say the same."""
    known, settings = lab.known_model("granite-4.0-h-350m"), Settings(n_ctx=1024)
    sizes = [layer_bytes(layer, settings) for layer in cache_layers(known)]
    cells = 2 * 1024 * 2 * 4 * 64
    assert [i for i, n_bytes in enumerate(sizes) if n_bytes == cells] == [10, 13, 17, 27]
    assert kv_cache_bytes(lab.shape(known), settings) == kv_cache_bytes(known, settings) == sum(sizes)


@pytest.mark.parametrize("without", ["ssm.state_size", "ssm.group_count"])
def test_a_state_of_unknown_size_is_refused(without):
    """A header that does not tell the size of the state is answered with the key that it lacks."""
    model = lab.shape("granite-4.0-h-350m")
    kept = {key: value for key, value in model.metadata.items() if not key.endswith(without)}
    with pytest.raises(UnsupportedArchitecture, match=f"no {without}, without which"):
        cache_layers(replace(model, metadata=kept))


def test_settings_that_change_nothing_are_refused():
    """One pool for one sequence, and windows of a model that has none; a model whose layers are not known may."""
    plain, windowed = lab.shape("llama-3.2-1b"), lab.shape("gemma-3-1b")
    with pytest.raises(InvalidSettings, match="kv_unified=True changes nothing for one sequence"):
        require_effect(Settings(kv_unified=True), windowed)
    with pytest.raises(InvalidSettings, match=r"no layer of Llama 3\.2 1B shape has a sliding window"):
        require_effect(Settings(swa_full=True), plain)
    require_effect(Settings(swa_full=True, kv_unified=True, n_seq_max=2), windowed)


def test_no_seconds_are_predicted_for_a_state():
    """A calibration times matrices and attention, not the scan of a state."""
    model = lab.shape("granite-4.0-h-350m")
    placed = PlacedModel(model, Settings(n_ctx=256), ("host",) * 33, {"host": TRUTH["host/1"]}, {})
    with pytest.raises(UnsupportedArchitecture, match="recurrent layers, whose seconds"):
        placed.decode(0)


def test_each_token_reads_the_whole_state():
    """The bound of a rate counts the state beside the cells in use, at any depth."""
    known = lab.known_model("mamba2-130m")
    model, state = lab.shape(known), sum(4 * layer.state_values for layer in cache_layers(known))
    assert token_bytes(model, depth=0) == token_bytes(model, depth=4000) == state + sum(bytes_read(model).values())


def test_what_a_server_keeps_of_a_prompt():
    """A plain cache: its cells. A hybrid: the states besides, and the same again for each checkpoint."""
    plain, hybrid, settings = lab.shape("llama-3.2-1b"), lab.shape("granite-4.0-h-350m"), Settings(n_ctx=4096)
    assert kept.checkpoint_bytes(plain, settings) == 0
    assert kept.copy_bytes(plain, settings, 100) == 100 * (kv_cache_bytes_per_token(plain) + 12)
    states = sum(4 * layer.state_values for layer in cache_layers(hybrid))
    assert kept.checkpoint_bytes(hybrid, settings) == states
    cells = 100 * (kv_cache_bytes_per_token(hybrid) + 12)
    assert kept.copy_bytes(hybrid, settings, 100, n_checkpoints=2) == cells + 3 * states
    assert kept.copies_in(10 * states, hybrid, settings, 1) == 9


def test_a_checkpoint_of_windows_has_their_cells():
    """Those inside the windows; none where the whole cache is kept, whose copies leave out the same cells."""
    gemma = lab.known_model("gemma-3-1b")
    window = Settings(n_ctx=4096, swa_full=False)
    assert kept.checkpoint_bytes(gemma, window) == 512 * (22 * 2 * 2 * 256 + 12)
    assert kept.checkpoint_bytes(gemma, window, 100) == 100 * (22 * 2 * 2 * 256 + 12)
    assert kept.checkpoint_bytes(gemma, window.but(swa_full=True)) == 0
    whole = kept.copy_bytes(gemma, window.but(swa_full=True), 3000)
    outside = 3000 * (4 * 2 * 2 * 256 + 12)
    assert kept.copy_bytes(gemma, window, 3000) == whole == outside + kept.checkpoint_bytes(gemma, window)


@pytest.mark.engine
@pytest.mark.parametrize("name", [*HYBRID, *SHAPES])
def test_a_compute_buffer_with_states_is_in_its_range(name, models):
    """For small and large batches, one sequence and several, with and without flash attention."""
    for n_ubatch, n_seq_max, flash_attn in product((64, 512), (1, 4), ("on", "off")):
        settings = Settings(n_ctx=4096, n_ubatch=n_ubatch, n_seq_max=n_seq_max, flash_attn=flash_attn)
        n_outputs = outputs_reserved(settings, per_sequence=False)
        needed = dry_run.simulate(models[name], settings).compute_bytes
        ends = compute_range(models[name], settings, n_outputs, on_device=False)
        for device, n_bytes in needed.items():
            assert ends[device][0] - PRINTED <= n_bytes <= ends[device][1] + PRINTED, (settings, needed, ends)


def test_the_planner_knows_the_compute_buffer_of_a_hybrid():
    """Without a simulation a plan for a card is exact, not an open question."""
    found = lab.fit(lab.shape("granite-4.0-h-350m"), Settings(n_ctx=8192, flash_attn="on"), vram="8GiB", simulate=False)
    assert (found.plan.method, found.fits) == ("closed form", "yes")
