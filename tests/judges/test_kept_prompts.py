"""What llama.cpp's server does with a prompt whose beginning is in a cache that cannot go back, and what it keeps."""

import pytest

import inferlab as lab
from inferlab.engine.llama_server import llama_server
from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from inferlab.units import KIB
from studies.windows_and_states.kept import checkpoint_bytes, copy_bytes
from studies.windows_and_states.measure import NO_CHECKPOINTS, keep_prompts
from studies.windows_and_states.study import EDIT, GO_ON, NEW

pytestmark = pytest.mark.engine
SMALL = {
    "n_layer": 6,
    "n_embd": 256,
    "n_ff": 512,
    "n_vocab": 512,
    "n_head": 4,
    "n_head_kv": 1,
    "head_dim": 64,
    "n_swa": 128,
}
TURNS = {"kinds": (NEW, GO_ON, EDIT, NEW), "n_first": 1200, "n_new": 40, "n_gen": 4}
WINDOWS = Settings(n_ctx=2048, swa_full=False)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    """A small shape of Gemma 3 with a window of 128 tokens."""
    return lab.make_shape("gemma-3-1b", "Q8_0", tmp_path_factory.mktemp("windowed") / "shape.gguf", **SMALL)


def test_an_edit_before_the_window_needs_the_whole_prompt(windowed, program):
    """Unless the cache is whole; going on needs nothing again in any case, and copies are as large as computed."""
    program("llama-server")
    default = keep_prompts(windowed, settings=WINDOWS, **TURNS)
    without = keep_prompts(windowed, settings=WINDOWS, options=NO_CHECKPOINTS, **TURNS)
    whole = keep_prompts(windowed, settings=WINDOWS.but(swa_full=True), **TURNS)
    for one in (default, without):
        assert (one.turns[2].forced, one.turns[2].n_cached) == (True, 0)
    assert (whole.turns[2].forced, whole.turns[2].n_cached) == (False, 1244 // 3)
    assert {one.turns[1].n_computed for one in (default, without, whole)} == {41}
    assert default.checkpoint_bytes > 0 == without.checkpoint_bytes == whole.checkpoint_bytes
    model = lab.read_gguf(windowed)
    each = checkpoint_bytes(model, default.settings)
    assert max(abs(n - each) for turn in default.turns for n in turn.checkpoints) < 2 * KIB
    grown = whole.turns[3].copies_bytes - whole.turns[2].copies_bytes
    assert grown == pytest.approx(copy_bytes(model, whole.settings, 1244 + 3), rel=0.003)


def test_a_checkpoint_of_a_hybrid_has_the_bytes_of_its_states(program, tmp_path):
    """Granite H with three layers: to the 0.001 MiB that the log prints, and a few bytes of numbers beside them."""
    program("llama-server")
    few = {"n_layer": 3, "attention_layers": (1,), "n_vocab": 512}
    path = lab.make_shape("granite-4.0-h-350m", "Q8_0", tmp_path / "hybrid.gguf", **few)
    found = keep_prompts(path, settings=WINDOWS, **TURNS)
    made = [n for turn in found.turns for n in turn.checkpoints]
    assert made
    assert max(abs(n - checkpoint_bytes(lab.read_gguf(path), found.settings)) for n in made) < 2 * KIB


def test_reuse_of_later_parts_is_refused_with_a_window(windowed, program):
    """The server would turn --cache-reuse off; with the whole cache it can shift, and keeps the option."""
    arguments = windowed, Settings(n_ctx=1024, swa_full=False), ("--cache-reuse", "64")
    with (
        pytest.raises(InvalidSettings, match="--cache-reuse is not supported by this context"),
        llama_server(*arguments, program=program("llama-server")),
    ):
        pass
    with llama_server(windowed, Settings(n_ctx=1024, swa_full=True), arguments[2], program=program("llama-server")):
        pass
