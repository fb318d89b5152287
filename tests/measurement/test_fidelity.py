"""How well a text is predicted and how far a model is from its reference: llama-perplexity's numbers, from ours."""

import json
import math
import os
import re
import sys
from dataclasses import replace

import numpy as np
import psutil
import pytest
from fakes import made_fidelity

import inferlab as lab
from inferlab.engine import logits, worker_scoring
from inferlab.engine.client import LlamaEngine
from inferlab.engine.quantize import quantize
from inferlab.errors import EngineCrashed, EngineRefused, InvalidSettings
from inferlab.measurement.fidelity import CHUNK, bits_per_byte, fidelities, fidelity, perplexity, token_nats
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from inferlab.units import GB, KIB

TEXT = "The function returns a new list of the same length. If the argument is not a string, an error is raised. " * 30
KEPT = json.loads(tiny_model().with_name("perplexity.json").read_text(encoding="utf-8"))
FLOOR = 1e-5  # what 16-bit storage leaves of the tool's mean divergence on this model, with room


@pytest.fixture(scope="module")
def quantized(engine, tmp_path_factory):
    """The embedded model in any type, each made once."""
    folder, made = tmp_path_factory.mktemp("quantized"), {}

    def one(type):
        if type not in made:
            made[type] = quantize(tiny_model(), type, folder / f"{type}.gguf", engine=engine)
        return made[type]

    return one


# --- beside llama.cpp's own tool --------------------------------------------------------------


def said(run, label):
    """The numbers that llama-perplexity printed after `label`."""
    line = next(line for line in KEPT["runs"][run]["output"] if line.startswith(label))
    return [float(number) for number in re.findall(r"-?\d+\.\d+", line.removeprefix(label))]


@pytest.fixture(scope="module", params=["Q4_K_M", "Q2_K", "KV cache q4_0"])
def beside(request, engine, quantized):
    """(our measurement, the name of the tool's run) on the same chunks."""
    n_chunks, run = KEPT["n_chunks"], request.param
    if run in ("Q4_K_M", "Q2_K"):
        return fidelity(quantized(run), tiny_model(), n_chunks=n_chunks, engine=engine), run
    cache = Settings(type_k="q4_0", type_v="q4_0")
    return fidelity(tiny_model(), settings=cache, n_chunks=n_chunks, engine=engine), run


def test_perplexity_is_the_tools(engine):
    """Within 0.1 % of llama-perplexity on the same chunks, its uncertainty too, chunk by chunk and in all."""
    ours = perplexity(model=tiny_model(), n_chunks=KEPT["n_chunks"], engine=engine)
    assert list(ours) == pytest.approx(said("F16", "Final estimate: PPL ="), rel=1e-3)
    running = dict(re.findall(r"\[(\d+)\]([\d.]+)", KEPT["runs"]["F16"]["output"][0]))
    for n_chunks in (1, 5):
        ours = perplexity(model=tiny_model(), n_chunks=n_chunks, engine=engine)
        assert ours.value == pytest.approx(float(running[str(n_chunks)]), rel=1e-3)


def test_both_perplexities_and_their_ratio_are_the_tools(beside):
    """The model's, the reference's, the logarithm of their ratio, each with its standard error."""
    ours, run = beside
    assert list(ours.perplexity) == pytest.approx(said(run, "Mean PPL(Q)  "), rel=1e-3)
    assert list(ours.reference_perplexity) == pytest.approx(said(run, "Mean PPL(base)  "), rel=1e-3)
    ratio, error = said(run, "Mean ln(PPL(Q)/PPL(base))")
    assert ours.log_perplexity_ratio.value == pytest.approx(ratio, abs=5e-4)
    assert ours.log_perplexity_ratio.standard_error == pytest.approx(error, rel=0.02)


def test_the_divergence_is_the_tools(beside):
    """Mean with standard error, every percentile it prints and the maximum, within its 16 bits and other kernels'."""
    ours, run = beside
    mean, error = said(run, "Mean    KLD:")
    assert ours.kl_divergence.value == pytest.approx(mean, rel=0.01, abs=FLOOR)
    assert ours.kl_divergence.standard_error == pytest.approx(error, rel=0.02, abs=FLOOR)
    for share, value in ours.kl_percentiles.items():
        (told,) = said(run, "Median  KLD:" if share == 0.5 else f"{100 * share:4.1f}%   KLD:")
        assert value == pytest.approx(told, rel=0.05 if share < 0.99 else 0.25, abs=6e-5), share
    assert ours.max_kl_divergence == pytest.approx(*said(run, "Maximum KLD:"), rel=0.25)


def test_the_shares_are_the_tools(beside):
    """RMS change of a token's probability and the share of equal first choices, each with its standard error."""
    ours, run = beside
    changes = [100 * number for number in ours.rms_probability_change]
    assert changes == pytest.approx(said(run, "RMS Δp    :"), rel=0.02, abs=0.01)
    same = [100 * number for number in ours.same_top_share]
    assert same == pytest.approx(said(run, "Same top p:"), rel=0.03, abs=0.1)


def test_the_reference_is_no_distance_from_itself(engine):
    """No floor: what the tool's 16 bits leave per token is not here at all."""
    own = fidelity(tiny_model(), n_chunks=2, engine=engine)
    assert abs(own.kl_divergence.value) < 1e-6
    assert own.max_kl_divergence < 1e-6
    assert (own.same_top_share.value, own.rms_probability_change.value) == (1, 0)
    assert own.perplexity == own.reference_perplexity
    assert max(said("F16 against itself", "Maximum KLD:")) > 1e-5


# --- what it says -----------------------------------------------------------------------------


def test_fewer_bits_are_farther_away(engine, quantized):
    """The divergence orders the types as their bits do, from Q8_0 to Q2_K."""
    types = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
    found = [fidelity(quantized(type), tiny_model(), n_chunks=3, engine=engine) for type in types]
    assert [one.model.tensor_bytes for one in found] == sorted((o.model.tensor_bytes for o in found), reverse=True)
    means = [one.kl_divergence.value for one in found]
    assert means == sorted(means)
    assert 0 < means[0] < means[-1] / 100


def test_fewer_bits_of_cache_are_farther_away(engine):
    """So do the types of the KV cache; the weights stay the same."""
    caches = [Settings(type_k=kind, type_v=kind) for kind in ("q8_0", "q5_0", "q4_0")]
    found = [fidelity(tiny_model(), settings=cache, n_chunks=2, engine=engine) for cache in caches]
    means = [one.kl_divergence.value for one in found]
    assert 0 < means[0] < means[1] < means[2]
    assert [one.settings.type_v for one in found] == ["q8_0", "q5_0", "q4_0"]


def test_several_files_have_the_losses_that_each_has_alone(engine, quantized):
    """A reference that reads the text once for all of them changes nothing."""
    cases = [(quantized(kind), None) for kind in ("Q8_0", "Q2_K")]
    alone = [fidelity(file, tiny_model(), n_chunks=2, engine=engine).kl_nats for file, _ in cases]
    assert [one.kl_nats for one in fidelities(cases, tiny_model(), n_chunks=2, engine=engine)] == alone


def test_a_reference_reads_a_text_once_while_there_is_room(monkeypatch):
    """What does not fit is not kept, and the text is read again."""
    read = []

    def rows(loaded, tokens, first):
        read.append(list(tokens))
        yield np.array([2, 1]), np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], "f4")

    monkeypatch.setattr(worker_scoring, "rows", rows)
    for room, n_read in ((24, 3), (23, 4)):
        monkeypatch.setattr(worker_scoring, "MOST_KEPT_BYTES", room)
        scoring, read[:] = worker_scoring.Scoring(), []
        scoring.reference = object()
        first, second = (scoring.compare(object(), [0, 2, 1], 1) for _ in range(2))
        assert (len(read), first) == (n_read, second)


def test_the_reference_is_forgotten_and_the_model_stays_open(engine, quantized):
    """After a comparison the engine works on with the model; comparing again asks for a reference again."""
    fidelity(quantized("Q8_0"), tiny_model(), n_chunks=1, engine=engine)
    assert engine.has_open(quantized("Q8_0"))
    assert len(engine.generate(engine.random_prompt(8), 4).tokens) == 4
    with pytest.raises(EngineRefused, match="No reference is set aside"):
        engine.compare([1, 2, 3])


def test_the_statistics_fit_in_a_record(beside):
    """Everything but the single tokens becomes JSON and says what it is of."""
    ours, _ = beside
    told = json.loads(json.dumps(ours.to_dict()))
    assert (told["n_ctx"], told["n_chunks"], told["n_tokens"]) == (512, KEPT["n_chunks"], 255 * KEPT["n_chunks"])
    assert told["kl_divergence"] == list(ours.kl_divergence)
    assert told["kl_percentiles"]["0.999"] <= told["max_kl_divergence"]
    assert (told["reference"]["file"], told["type_k"]) == ("tiny.gguf", ours.settings.type_k)


def test_other_chunks_can_be_asked_for(engine, tmp_path):
    """Any text or file of one, any length of chunk; the second half of each is scored."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    short = fidelity(tiny_model(), text=tmp_path / "text.txt", n_ctx=100, engine=engine)
    assert (short.n_ctx, short.n_tokens) == (100, 49 * short.n_chunks)
    assert short.n_chunks == len(lab.tokenize(TEXT, tiny_model())) // 100
    assert short.nats == fidelity(tiny_model(), text=TEXT, n_ctx=100, engine=engine).nats


# --- what it refuses --------------------------------------------------------------------------


def test_synthetic_weights_are_not_judged(monkeypatch):
    """A made-up model has a speed and a size, and nothing to say."""
    made_up = read_gguf(tiny_model())
    made_up.metadata["inferlab.synthetic"] = True
    monkeypatch.setattr("inferlab.measurement.fidelity.read_gguf", lambda path: made_up)
    for judge in (bits_per_byte, token_nats, lab.perplexity, lambda text: lab.fidelity("tiny", text=text)):
        with pytest.raises(InvalidSettings, match="synthetic weights"):
            judge(TEXT)


def test_another_vocabulary_is_no_reference(monkeypatch, tmp_path):
    """Distributions over different tokens are not compared, whether their number differs or their spelling."""
    own = read_gguf(tiny_model())
    other = replace(own, path=tmp_path / "other.gguf")
    monkeypatch.setattr(type(own), "array", lambda model, key: [key, model.path.name])
    monkeypatch.setattr("inferlab.measurement.fidelity.find_model", lambda name: name)
    monkeypatch.setattr("inferlab.measurement.fidelity.read_gguf", lambda path: path)
    with pytest.raises(InvalidSettings, match=r"tiny.gguf \(4096 tokens\) and other.gguf .*same vocabulary"):
        fidelity(own, other)


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"text": "Too short."}, r"has \d+ tokens; a chunk needs n_ctx=512"), ({"n_ctx": 4}, "leaves nothing to score")],
)
def test_a_text_must_fill_a_chunk(asked, why, engine):
    """Less than one chunk, or a chunk of next to nothing, is an error and not a number."""
    with pytest.raises(InvalidSettings, match=why):
        fidelity(tiny_model(), engine=engine, **asked)


def test_what_does_not_fit_the_context_is_refused(engine):
    """A score needs all tokens in one context, and at least two of them."""
    engine.open(tiny_model(), Settings(n_ctx=CHUNK, n_batch=CHUNK))
    for tokens in ([1], [1] * (CHUNK + 1)):
        with pytest.raises(EngineRefused, match="cannot be scored"):
            engine.score(tokens)


def test_a_crash_leaves_a_usable_engine(monkeypatch, quantized):
    """The worker dies between two chunks: an error, and the next comparison works."""
    engine = LlamaEngine()

    def shot(tokens, first):
        psutil.Process(engine.pid).kill()
        return LlamaEngine.compare(engine, tokens, first)

    monkeypatch.setattr(engine, "compare", shot)
    with pytest.raises(EngineCrashed):
        fidelity(quantized("Q8_0"), tiny_model(), n_chunks=1, engine=engine)
    assert engine.pid is None
    monkeypatch.undo()
    assert fidelity(quantized("Q8_0"), tiny_model(), n_chunks=1, engine=engine).n_chunks == 1
    engine.close()


# --- what it costs ----------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_large_vocabulary_stays_below_a_gigabyte(monkeypatch, tmp_path):
    """Two models of 151 936 tokens, side by side, their logits compared: the worker's peak stays under 1 GB."""
    small = {"n_layer": 1, "n_embd": 256, "n_ff": 256, "n_head": 4, "n_head_kv": 2, "head_dim": 64, "n_vocab": 151_936}
    paths = [make_shape("llama-3.2-1b", mix, tmp_path / f"{mix}.gguf", **small) for mix in ("F16", "Q8_0")]
    monkeypatch.setattr("inferlab.measurement.fidelity._require_trained", lambda *headers: None)
    engine = LlamaEngine()
    found = fidelity(paths[1], paths[0], text=TEXT, n_chunks=1, engine=engine)
    with open(f"/proc/{engine.pid}/status", encoding="ascii") as status:
        peak = int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) * KIB
    engine.close()
    assert (found.n_tokens, os.path.getsize(paths[0]) > 75e6) == (255, True)
    assert peak < GB


# --- the arithmetic ---------------------------------------------------------------------------


def test_a_divergence_by_hand():
    """Three even odds against three uneven ones: the sum written out."""
    full, own = np.log([[1 / 3, 1 / 3, 1 / 3]]), np.log([[0.5, 0.25, 0.25]])
    found = logits.compared(own.astype(np.float32) + 7, full.astype(np.float32) - 3, np.array([1]))
    by_hand = (math.log((1 / 3) / 0.5) + 2 * math.log((1 / 3) / 0.25)) / 3
    assert found.kl_nats == pytest.approx([by_hand], abs=1e-6)
    assert (found.nats, found.reference_nats) == (pytest.approx([math.log(4)]), pytest.approx([math.log(3)]))
    assert found.same_top == [True]


def test_a_token_that_cannot_come_counts_nothing():
    """A logit of minus infinity in the reference is no divergence; in the model alone it is an infinite one."""
    never = np.array([[0.0, 0.0, -np.inf]], np.float32)
    even = np.zeros((1, 3), np.float32)
    assert logits.compared(even, never, np.array([0])).kl_nats == pytest.approx([math.log(1.5)])
    assert logits.compared(never, never, np.array([0])).kl_nats == [0]
    assert logits.compared(never, even, np.array([0])).kl_nats == [math.inf]


def test_rows_are_the_same_in_any_slices(monkeypatch):
    """Working through the rows a few at a time changes nothing."""
    generator = np.random.default_rng(0)
    own, full = (generator.normal(0, 3, (7, 50)).astype(np.float32) for _ in range(2))
    tokens = generator.integers(0, 50, 7)
    whole = logits.compared(own, full, tokens)
    monkeypatch.setattr(logits, "SLICE_LOGITS", 120)
    assert logits.compared(own, full, tokens) == whole
    assert logits.nats_of(own, tokens) == whole.nats


def test_estimates_by_hand():
    """Means, standard errors and shares of four tokens, as perplexity.cpp computes them."""
    tops, reference = (True, False, True, True), (1.0, 1.0, 3.0, 2.0)
    four = made_fidelity((1.0, 2.0, 3.0, 2.0), (0.0, 0.4, 0.0, 0.0), tops, reference_nats=reference)
    assert four.perplexity == (pytest.approx(math.exp(2)), pytest.approx(math.exp(2) * math.sqrt(0.5 / 3)))
    assert four.kl_divergence == (pytest.approx(0.1), pytest.approx(math.sqrt(0.03 / 3)))
    assert four.log_perplexity_ratio.value == pytest.approx(0.25)
    assert four.same_top_share == (0.75, pytest.approx(math.sqrt(0.75 * 0.25 / 3)))
    change = math.exp(-1) - math.exp(-2)
    assert four.rms_probability_change.value == pytest.approx(change / 2)
    assert (four.max_kl_divergence, four.kl_percentiles[0.5]) == (0.4, 0)


# --- bits and nats ----------------------------------------------------------------------------


@pytest.mark.engine
def test_a_uniform_guess_is_the_worst_that_a_trained_model_may_do():
    """Real text costs far fewer bits than the logarithm of the vocabulary's size."""
    assert 0.05 < bits_per_byte(TEXT) < math.log2(4096) / 3
    assert 1 < perplexity(TEXT).value < 4096 / 10


def test_a_coarser_cache_moves_the_scores(engine):
    """With keys and values in four bits every token's cost shifts a little, and more than in eight."""
    plain, eight, four = (
        token_nats(TEXT[:1000], settings=Settings(type_k=kind, type_v=kind), engine=engine)
        for kind in ("f16", "q8_0", "q4_0")
    )
    shifts = [sum(abs(a - b) for a, b in zip(plain, other, strict=True)) for other in (eight, four)]
    assert 0 < shifts[0] < shifts[1]


def test_scores_follow_the_chosen_tokens(engine):
    """The greedy continuation is the likeliest: no other last token costs less."""
    engine.open(tiny_model(), Settings(n_ctx=CHUNK, n_batch=CHUNK))
    prompt = engine.tokenize("The function returns")
    (best,) = engine.generate(prompt, 1).tokens
    costs = {token: engine.score([*prompt, token])[-1] for token in (best, 300, 400, 500)}
    assert min(costs, key=costs.get) == best


def test_a_chunk_is_scored_the_same_in_small_batches(engine):
    """How many tokens go into one llama_decode changes the sums' order, and hardly the score."""
    scores = []
    for n_batch in (512, 64):
        engine.open(tiny_model(), Settings(n_ctx=CHUNK, n_batch=n_batch))
        scores.append(engine.score(engine.chunks(TEXT, 300)[0][0], 151))
    assert len(scores[0]) == 149
    assert scores[0] == pytest.approx(scores[1], abs=0.02)
