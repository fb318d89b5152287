"""What Ollama asks of llama-server, what is left of a long prompt, and what the page shows of it."""

import re
from pathlib import Path

import pytest

import inferlab as lab
from handbook.key_facts import longest_context
from inferlab.options.names import options
from inferlab.prediction.budget import cache_bytes
from inferlab.units import GIB
from studies.ollama import figures, study

PAGE = Path(__file__).parents[3] / "book" / "program" / "ollama.md"


@pytest.mark.parametrize(("gib", "tokens"), [(8, 4096), (22.9, 4096), (23, 32768), (46.9, 32768), (47, 262144)])
def test_the_default_context_follows_the_memory_of_the_gpus(gib, tokens):
    """The thresholds are 1 GiB below the documented ones, so that a card of 24 GB counts as one."""
    assert study.default_context(gib * GIB) == tokens


def test_the_defaults_are_those_of_the_table_of_options():
    """The two files of facts name the same three contexts and the same three batches."""
    contexts = [f"{study.default(f'context-{tier}'):.0f}" for tier in ("small", "medium", "large")]
    batches = [f"{study.default(f'batch-{tier}'):.0f}" for tier in ("small", "medium", "large")]
    assert [number for number in re.findall(r"\d{4,}", options()["n_ctx"].ollama_default)] == contexts
    assert [number for number in re.findall(r"\b(?:512|1024|2048)\b", options()["n_batch"].ollama_default)] == batches


def test_parallel_multiplies_the_cache_and_training_limits_it():
    """Four requests need four caches; a context above the trained one is not reserved."""
    model = lab.shape("mistral-7b-v0.3", "Q4_K_M")
    one, four = (study.launched(model, 8 * GIB, parallel=n) for n in (1, 4))
    assert lab.predict_memory(model, four).bytes_of("kv_cache") == 4 * cache_bytes(model, one.n_ctx)
    assert study.launched(model, 80 * GIB).n_ctx == model.n_ctx_train < study.default("context-large")


@pytest.mark.parametrize(
    ("n_cells", "gib", "size"),
    [(4096, 80, 512), (8192, 80, 1024), (65536, 80, 2048), (65536, 20, 1024), (65536, 8, 512)],
)
def test_the_batch_grows_with_the_context_where_there_is_room(n_cells, gib, size):
    """A long context takes a larger batch only beside enough free memory."""
    assert study.batch(lab.shape("llama-3.1-8b", "Q4_K_M"), n_cells, gib * GIB) == size


@pytest.mark.parametrize(
    ("n_prompt", "num_ctx", "keep", "kept"),
    [(4095, 4096, None, 4095), (4096, 4096, None, 2051), (90000, 4096, None, 2051), (10, 4, 9, 3), (9, 8, 0, 4)],
)
def test_a_prompt_as_long_as_the_context_is_cut_to_about_half(n_prompt, num_ctx, keep, kept):
    """One token less passes whole; what must be kept can leave space for one token only."""
    assert study.kept_of_prompt(n_prompt, num_ctx, keep) == kept


def test_the_page_names_only_variables_that_were_read():
    """A misspelt variable has no effect and no error, so each one is compared with the table of options."""
    known = {option.env.split("=")[0] for option in options().values() if option.env}
    known |= {option.ollama for option in options().values()}
    found = set(re.findall(r"\b(?:LLAMA_ARG|OLLAMA)_[A-Z_]+\b", PAGE.read_text(encoding="utf-8")))
    assert found - known <= {"OLLAMA_CONTEXT_LENGTH", "OLLAMA_GPU_OVERHEAD", "OLLAMA_DEBUG"}


@pytest.fixture(scope="module")
def shares():
    return study.layer_shares()


def test_the_table_has_the_layers_of_the_figure(shares):
    """A number of layers is the percent at that context, and "all" is 100 %."""
    small, medium, _ = study.default_contexts()
    for name, *layers, _, f16, q8_0 in study.layers_table(longest_context)[1]:
        for n_ctx, text in zip((small, medium), layers, strict=True):
            n, _, every = text.partition(" of ")
            assert dict(shares[name])[n_ctx] == pytest.approx(100 * int(n) / int(every) if every else 100)
        assert int(f16.replace(",", "")) <= int(q8_0.replace(",", ""))


def test_a_longer_context_never_keeps_more_layers(shares):
    """Each line falls, and ends at the trained context at the latest."""
    for key, points in zip(study.NAMES, shares.values(), strict=True):
        percents = [percent for _, percent in points]
        assert percents == sorted(percents, reverse=True)
        assert points[-1][0] == min(lab.shape(key, "Q4_K_M").n_ctx_train, study.default_contexts()[-1])


def test_the_page_counts_what_the_rules_give():
    """A quantized cache keeps more layers than the default one; the cache is its bytes a token times the context."""
    found, model = study.numbers(), lab.shape("llama-3.1-8b", "Q4_K_M")
    kept = int(found["layers_medium"].partition(" of ")[0])
    assert found["llama_q8"] == "all" or int(found["llama_q8"].partition(" of ")[0]) > kept
    assert found["kept"] == study.kept_of_prompt(10_000, found["ctx_small"])
    assert found["llama_kib"] * 1024 * found["ctx_small"] == cache_bytes(model, found["ctx_small"])
    assert found["less_gib"] + 1 == found["card"]


def test_the_figure_says_where_each_line_begins_and_ends():
    """The text alternative has both ends of a line, and each marked context has its own vertical line."""
    figure = figures.layers_against_context({"one": [(4096, 100.0), (32768, 25.0)]}, [4096, 65536])
    assert "one 100 % at 4,096 and 25 % at 32,768" in figure.layout.meta["alt"]
    assert [shape.x0 for shape in figure.layout.shapes] == [4096, 65536]
    assert [round(10**note.x) for note in figure.layout.annotations if note.text == "64k"] == [2**16]
    assert tuple(figure.data[0].y) == (100.0, 25.0)
    assert set(figure.layout.xaxis.tickvals) <= {4096, 8192, 16384, 32768, 65536}
