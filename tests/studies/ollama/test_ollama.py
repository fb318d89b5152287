"""What Ollama asks of llama-server, and what is left of a long prompt."""

import re
from pathlib import Path

import pytest

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.options.names import options
from inferlab.prediction.budget import cache_bytes
from inferlab.units import GIB
from studies.ollama import ollama

PAGE = Path(__file__).parents[3] / "book" / "program" / "ollama.md"


@pytest.mark.parametrize(("gib", "tokens"), [(8, 4096), (22.9, 4096), (23, 32768), (46.9, 32768), (47, 262144)])
def test_the_default_context_follows_the_memory_of_the_gpus(gib, tokens):
    """The thresholds are 1 GiB below the documented ones, so that a card of 24 GB counts as one."""
    assert ollama.default_context(gib * GIB) == tokens


def test_the_defaults_are_those_of_the_table_of_options():
    """The two files of facts name the same three contexts and the same three batches."""
    contexts = [f"{ollama.default(f'context-{tier}'):.0f}" for tier in ("small", "medium", "large")]
    batches = [f"{ollama.default(f'batch-{tier}'):.0f}" for tier in ("small", "medium", "large")]
    assert [number for number in re.findall(r"\d{4,}", options()["n_ctx"].ollama_default)] == contexts
    assert [number for number in re.findall(r"\b(?:512|1024|2048)\b", options()["n_batch"].ollama_default)] == batches


def test_parallel_multiplies_the_cache_and_training_limits_it():
    """Four requests need four caches; a context above the trained one is not reserved."""
    model = lab.shape("mistral-7b-v0.3", "Q4_K_M")
    one, four = (ollama.launched(model, 8 * GIB, parallel=n) for n in (1, 4))
    assert lab.predict_memory(model, four).bytes_of("kv_cache") == 4 * cache_bytes(model, one.n_ctx)
    assert ollama.launched(model, 80 * GIB).n_ctx == model.n_ctx_train < ollama.default("context-large")
    with pytest.raises(InvalidSettings, match="serves no request"):
        ollama.launched(model, 8 * GIB, parallel=0)


@pytest.mark.parametrize(
    ("n_cells", "gib", "size"),
    [(4096, 80, 512), (8192, 80, 1024), (65536, 80, 2048), (65536, 20, 1024), (65536, 8, 512)],
)
def test_the_batch_grows_with_the_context_where_there_is_room(n_cells, gib, size):
    """A long context takes a larger batch only beside enough free memory."""
    assert ollama.batch(lab.shape("llama-3.1-8b", "Q4_K_M"), n_cells, gib * GIB) == size


@pytest.mark.parametrize(
    ("n_prompt", "num_ctx", "keep", "kept"),
    [(4095, 4096, None, 4095), (4096, 4096, None, 2051), (90000, 4096, None, 2051), (10, 4, 9, 3), (9, 8, 0, 4)],
)
def test_a_prompt_as_long_as_the_context_is_cut_to_about_half(n_prompt, num_ctx, keep, kept):
    """One token less passes whole; what must be kept can leave room for one token only."""
    assert ollama.kept_of_prompt(n_prompt, num_ctx, keep) == kept


def test_a_context_without_room_for_an_answer_is_refused():
    """The error says what to give."""
    with pytest.raises(InvalidSettings, match="Give 2 or more"):
        ollama.kept_of_prompt(5, 1)


def test_the_page_names_only_variables_that_were_read():
    """A misspelt variable has no effect and no error, so each one is compared with the table of options."""
    known = {option.env.split("=")[0] for option in options().values() if option.env}
    known |= {option.ollama for option in options().values()}
    found = set(re.findall(r"\b(?:LLAMA_ARG|OLLAMA)_[A-Z_]+\b", PAGE.read_text(encoding="utf-8")))
    assert found - known <= {"OLLAMA_CONTEXT_LENGTH", "OLLAMA_GPU_OVERHEAD", "OLLAMA_DEBUG"}
