"""A drafter beside a model: its memory, and vocabularies that llama-server would refuse."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction.drafter import check_vocabularies, plan_drafter
from inferlab.prediction.memory import kv_cache_bytes_per_token

LARGE, SMALL = lab.shape("llama-3.1-8b", "Q4_K_M"), lab.shape("llama-3.2-1b", "Q4_K_M")
TINY = lab.read_gguf(lab.tiny_model())


def changed(key, value):
    return replace(TINY, metadata={**TINY.metadata, key: value})


def test_a_drafter_has_the_context_of_the_model():
    """Its cache grows with the model's n_ctx, whatever the type of the model's cache."""
    short, long = (
        plan_drafter(LARGE, SMALL, lab.Settings(n_ctx=n, type_k="q8_0", type_v="q8_0"), CPU_ONLY, simulate=False)
        for n in (4096, 8192)
    )
    cache = [sum(held.parts["kv_cache"] for held in drafter.plan.devices.values()) for drafter in (short, long)]
    assert cache[1] == 2 * cache[0] == 8192 * kv_cache_bytes_per_token(SMALL)
    assert short.most_bytes < long.most_bytes
    assert "for 4,096 tokens" in short.text
    assert short.line("llama-server") == "-md draft.gguf --spec-type draft-simple"
    assert short.line("ollama").startswith("# the drafter draft.gguf is not part")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tokenizer.ggml.model", "llama", "their tokenizers are gpt2 and llama"),
        ("tokenizer.ggml.eos_token_id", 7, "eos_token_id is"),
    ],
)
def test_another_vocabulary_is_refused(key, value, said):
    """llama-server would start without speculation; the error says what differs."""
    check_vocabularies(TINY, TINY)
    with pytest.raises(InvalidSettings, match=f"{said}.*would start without speculation"):
        check_vocabularies(TINY, changed(key, value))


def test_too_many_tokens_more_are_refused():
    """128 are allowed; headers without a list of tokens are compared by their number."""
    with pytest.raises(InvalidSettings, match="at most 128 may be missing"):
        check_vocabularies(lab.shape("llama-3.1-8b", "Q4_K_M"), lab.shape("mistral-7b", "Q4_K_M"))
