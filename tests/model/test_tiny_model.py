"""The embedded model: small, of the promised shape, loaded without complaint, and the same every time."""

import json
import re

import pytest

import inferlab as lab
from inferlab.engine.session import default_engine
from inferlab.measurement.fidelity import bits_per_byte
from inferlab.model.find import tiny_model
from inferlab.settings import Settings

COMPLAINTS = re.compile(r"warn|incorrect|mismatch|control-looking|missing|invalid|deprecated|fail|error", re.IGNORECASE)
HELD_OUT = tiny_model().with_name("held-out.txt")
EXPECTED = json.loads(tiny_model().with_name("expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model():
    return lab.read_gguf(tiny_model())


def test_it_is_small_enough_for_a_repository(model):
    """At most 16 MB, about six million parameters, all weights in F16 and all norms in F32."""
    assert model.file_bytes <= 16_000_000
    assert 5e6 < model.n_params < 7e6
    assert {(t.type, len(t.shape)) for t in model.tensors} == {("F16", 2), ("F32", 1)}


def test_two_heads_share_one_kv_head(model):
    """Grouped-query attention, as in the models that readers run."""
    assert (model.n_head, model.n_head_kv, model.n_layer, model.n_vocab) == (4, 2, 6, 4096)


def test_every_k_quant_applies(model):
    """All rows are multiples of 256 weights, the block of every k-quant."""
    assert {t.shape[0] % 256 for t in model.tensors} == {0}


@pytest.mark.engine
def test_llama_cpp_loads_it_without_a_warning():
    """Nothing in llama.cpp's log complains about the file."""
    log = default_engine().open(tiny_model(), Settings(n_ctx=1024)).log
    assert "inferlab tiny" in log
    assert [line for line in log.splitlines() if COMPLAINTS.search(line)] == []


@pytest.mark.engine
def test_the_held_out_text_survives_the_round_trip():
    """Tokens and back gives the very text, at more than three bytes a token."""
    text = HELD_OUT.read_text(encoding="utf-8")
    tokens = lab.tokenize(text, tiny_model())
    assert lab.detokenize(tokens, tiny_model()) == text
    assert len(text.encode()) / len(tokens) > 3


@pytest.mark.engine
def test_its_greedy_continuation_is_always_the_same():
    """Two passes over one prompt generate the same tokens, and they spell words."""
    engine = default_engine()
    engine.open(tiny_model(), Settings(n_ctx=256))
    prompt = engine.tokenize("The function returns")
    first, second = engine.generate(prompt, 40), engine.generate(prompt, 40)
    assert first.tokens == second.tokens
    assert len(re.findall(r"\b[a-z]{3,}\b", engine.detokenize(first.tokens))) >= 5


@pytest.mark.engine
def test_it_predicts_the_held_out_text_as_well_as_recorded(model):
    """Bits per byte, measured again, are those of expected.json within 1 %; 15 million tokens were seen."""
    assert EXPECTED["tokens_seen"] >= 15_000_000
    assert EXPECTED["tokens_seen"] == model.metadata["inferlab.tokens_seen"]
    measured = bits_per_byte(HELD_OUT.read_text(encoding="utf-8"), tiny_model())
    assert measured == pytest.approx(EXPECTED["held_out_bits_per_byte"], rel=0.01)


@pytest.mark.engine
def test_its_continuation_begins_as_recorded():
    """The first words after the recorded prompt are the recorded ones; nine of ten words are real ones."""
    text = lab.measure(tiny_model(), prompt=EXPECTED["prompt"], n_gen=12, repeats=1).text
    assert EXPECTED["continuation"].startswith(text[:20])
    assert EXPECTED["share_of_words_in_corpus"] >= 0.9
