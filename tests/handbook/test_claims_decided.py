"""Claims that a question to the pinned library decides, or a division.

Each docstring is the sentence that the register of claims quotes.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import subprocess
import sys

import gguf
import numpy as np
import psutil
import pytest
from gguf import GGMLQuantizationType
from marks import needs_rpc

import inferlab as lab
from inferlab.engine import libraries
from inferlab.errors import EngineRefused, NotGGUF
from inferlab.facts import cited_facts
from inferlab.model import architectures
from inferlab.options.names import options
from inferlab.prediction import cost, memory
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

GB = 1e9


@pytest.fixture(scope="module")
def parameters() -> dict[str, inspect.Parameter]:
    """What `llama_cpp.Llama` of the pinned version accepts, by name."""
    import llama_cpp

    return dict(inspect.signature(llama_cpp.Llama.__init__).parameters)


def bytes_of(opening, kind: str) -> int:
    return sum(buffer.n_bytes for buffer in opening.buffers if buffer.kind == kind)


def asked_of_llama(code: str) -> dict:
    """What `code` prints as JSON in a fresh process, with `Llama` and the embedded model's `path` in reach."""
    setup = f"import json; from llama_cpp import Llama; path = {str(lab.tiny_model())!r}\n"
    done = subprocess.run([sys.executable, "-c", setup + code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


# --- A: the cache ---------------------------------------------------------------------------------


def test_the_cache_has_its_full_size_before_the_first_token_and_keeps_it(engine):
    """The cache has the bytes of all its cells when the context is made; from 600 tokens to 4,000 the process grows by
    less than half of what 3,400 tokens of cache take; and one token more than there are cells is refused.
    """
    opening = engine.open(lab.tiny_model(), Settings(n_ctx=4096))
    cache = 4096 * memory.kv_cache_bytes_per_token(lab.read_gguf(lab.tiny_model()))
    assert bytes_of(opening, "kv_cache") == cache
    engine.generate(engine.random_prompt(600), 2)
    before = psutil.Process(engine.pid).memory_info().rss
    engine.generate(engine.random_prompt(4000), 2)
    assert psutil.Process(engine.pid).memory_info().rss - before < 3400 / 4096 * cache / 2
    with pytest.raises(EngineRefused):
        engine.generate(engine.random_prompt(4097), 1)


def test_the_cache_of_7000_tokens_slows_mistral_by_a_fifth_and_not_to_an_eighth():
    """Weights in Q4_K_M and the cache of 7,000 tokens are between 1.15 and 1.25 times the bytes of the weights."""
    mistral = lab.known_model("mistral-7b")
    weights = mistral.files["Q4_K_M"].value
    assert 1.15 < (weights + 7000 * memory.kv_cache_bytes_per_token(mistral)) / weights < 1.25


@pytest.mark.engine
def test_the_cache_is_offloaded_to_the_gpu_by_default(parameters):
    """`offload_kqv` is on by default, in the library and in the Python class."""
    import llama_cpp

    assert llama_cpp.llama_context_default_params().offload_kqv is True
    assert parameters["offload_kqv"].default is True


@pytest.mark.engine
def test_no_parameter_of_the_pinned_library_is_a_percentage_of_the_cache(parameters):
    """No parameter of a model, of a context or of the Python class names a percentage, an eviction or a page."""
    import llama_cpp

    structs = (llama_cpp.llama_model_params, llama_cpp.llama_context_params)
    names = {*parameters, *(name for struct in structs for name, *_ in struct._fields_)}
    assert "offload_kqv" in names
    assert [name for name in names if any(word in name for word in ("percent", "evict", "lru", "page"))] == []


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("mistral-7b", 32_000), ("llama-3.1-8b", 32_000), ("llama-2-7b", 8_000), ("qwen2.5-7b", 73_000)],
)
def test_how_many_tokens_4_2_gigabytes_hold_depends_on_the_model(model, tokens):
    """A cache of 4.2 GB holds about 32,000 tokens of Mistral 7B and Llama 3.1 8B, 8,000 of Llama 2 7B and 73,000 of
    Qwen2.5 7B.
    """
    per_token = memory.kv_cache_bytes_per_token(lab.known_model(model))
    assert 4.2 * GB / per_token == pytest.approx(tokens, rel=0.01)


def test_4_2_gigabytes_are_what_mistral_leaves_of_8_gib():
    """Of 8 GiB, the published Mistral 7B in Q4_K_M leaves 4.2 GB for the cache and everything else, Llama 2 7B in
    16 bits nothing.
    """
    mistral, llama = lab.known_model("mistral-7b"), lab.known_model("llama-2-7b")
    assert 8 * GIB - mistral.files["Q4_K_M"].value == pytest.approx(4.2 * GB, rel=0.01)
    assert memory.weights_bytes(llama, "f16") > 8 * GIB


@pytest.mark.engine
def test_flash_attention_on_the_cpu_reads_no_masked_cell():
    """A cell of another conversation that holds no number makes the logits of this one no numbers with flash attention
    off, and leaves them unchanged with it on, since the CPU's kernel skips masked cells.
    """
    told = asked_of_llama("""
import ctypes, llama_cpp, numpy as np

def step(llm, position, sequence, embedding=None):
    batch = llama_cpp.llama_batch_init(1, 0 if embedding is None else llm.n_embd(), 1)
    batch.n_tokens, batch.pos[0], batch.n_seq_id[0], batch.seq_id[0][0] = 1, position, 1, sequence
    batch.logits[0] = embedding is None
    if embedding is None:
        batch.token[0] = 20
    else:
        ctypes.memmove(batch.embd, embedding.ctypes.data, embedding.nbytes)
    assert llama_cpp.llama_decode(llm.ctx, batch) == 0

def is_spoilt(flash_attn):
    default = llama_cpp.llama_context_default_params()
    default.n_seq_max, default.kv_unified = 2, True
    llama_cpp.llama_cpp.llama_context_default_params = lambda: default
    llm = Llama(path, n_ctx=256, flash_attn=flash_attn, verbose=False)
    step(llm, 0, 1, np.full(llm.n_embd(), np.nan, np.float32))
    step(llm, 0, 0)
    logits = llama_cpp.llama_get_logits_ith(llm.ctx, 0)[: llm.n_vocab()]
    return bool(np.isnan(logits).any())

print(json.dumps({"off": is_spoilt(False), "on": is_spoilt(True)}))
""")
    assert told == {"off": True, "on": False}


@pytest.mark.parametrize(("kind", "share"), [("q8_0", 34 / 64), ("q4_0", 18 / 64)])
def test_a_quantized_cache_takes_what_its_blocks_take(engine, kind, share):
    """A cache in Q8_0 takes 34/64 of the bytes of one in F16, a cache in Q4_0 18/64."""
    full = bytes_of(engine.open(lab.tiny_model(), Settings(n_ctx=1024)), "kv_cache")
    small = engine.open(lab.tiny_model(), Settings(n_ctx=1024, type_k=kind, type_v=kind, flash_attn="on"))
    assert bytes_of(small, "kv_cache") == pytest.approx(full * share, abs=0.01 * MIB)


@pytest.mark.engine
def test_a_full_context_ends_the_answer_and_a_prompt_too_long_is_refused():
    """An answer that fills the context ends with the reason "length", and a prompt longer than the context raises an
    error that names it.
    """
    told = asked_of_llama("""
llm = Llama(path, n_ctx=256, verbose=False)
prompt = llm.tokenize(b"word " * 400, add_bos=False)
answer = llm.create_completion(prompt[:240], max_tokens=100, temperature=1.0, logit_bias={llm.token_eos(): -100.0})
try:
    llm.create_completion(prompt[:300])
except ValueError as error:
    refused = str(error)
print(json.dumps({"ended": answer["choices"][0]["finish_reason"], "usage": answer["usage"], "refused": refused}))
""")
    assert told["ended"] == "length"
    assert told["usage"]["total_tokens"] <= 257
    assert "exceed context window of 256" in told["refused"]


# --- A and B: placement, on a loopback device -----------------------------------------------------


def placed(engine, device, **changes):
    """What llama.cpp reserved, as {(device or host, kind): bytes}, and its log."""
    opening = engine.open(lab.tiny_model(), device.settings(Settings(n_ctx=1024, **changes)))
    where = [("device" if b.device.startswith("RPC") else "host", b.kind, b.n_bytes) for b in opening.buffers]
    sums = {key: sum(n for *place, n in where if tuple(place) == key) for key in {(d, k) for d, k, _ in where}}
    return sums, opening.log


def splits(log: str) -> int:
    """How many parts llama.cpp divided a pass into."""
    return int(re.findall(r"splits = (\d+)", log)[-1])


@needs_rpc
def test_each_layer_has_its_cache_where_it_lies(engine, device):
    """With three of six layers on a second device, half of the cache lies there and half in host RAM."""
    bytes_at, _ = placed(engine, device, n_gpu_layers=4)
    assert bytes_at["device", "kv_cache"] == bytes_at["host", "kv_cache"] > 0


@needs_rpc
@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_a_cache_takes_the_same_bytes_on_either_side(engine, device, kind):
    """In F16 and in Q8_0, the cache takes as many bytes in host RAM as on a second device."""
    types = {"type_k": kind, "type_v": kind, "flash_attn": "on"}
    there, _ = placed(engine, device, **types)
    here, _ = placed(engine, device, offload_kqv=False, **types)
    assert there["device", "kv_cache"] == here["host", "kv_cache"] > 0
    assert ("host", "kv_cache") not in there
    assert ("device", "kv_cache") not in here


@needs_rpc
def test_the_output_layer_is_counted_first(engine, device):
    """With one layer on a second device, the output layer lies there and no cache; with two, one layer's cache."""
    one, _ = placed(engine, device, n_gpu_layers=1)
    two, _ = placed(engine, device, n_gpu_layers=2)
    every, _ = placed(engine, device)
    assert one["device", "weights"] > 0
    assert ("device", "kv_cache") not in one
    assert two["device", "kv_cache"] == pytest.approx(every["device", "kv_cache"] / 6, abs=0.01 * MIB)


@needs_rpc
def test_the_embedding_table_stays_on_the_host(engine, device):
    """With every layer on a second device the embedding table stays in host RAM, and is there a second time because it
    is the output layer too.
    """
    model = lab.read_gguf(lab.tiny_model())
    bytes_at, _ = placed(engine, device)
    table = next(tensor.n_bytes for tensor in model.tensors if tensor.name == "token_embd.weight")
    assert bytes_at["host", "weights"] == pytest.approx(table, abs=0.01 * MIB)
    assert bytes_at["device", "weights"] == pytest.approx(model.tensor_bytes, abs=0.01 * MIB)


@needs_rpc
def test_a_cache_in_host_ram_divides_every_pass(engine, device):
    """With every layer on a second device a pass has 2 parts; with the cache in host RAM it has more than two for each
    layer.
    """
    whole, divided = placed(engine, device)[1], placed(engine, device, offload_kqv=False)[1]
    assert splits(whole) == 2
    assert splits(divided) > 2 * 6


@needs_rpc
def test_splitting_by_rows_is_refused(engine, device):
    """A model that is asked for with `split_mode` "row" is not loaded, and the log says that the device does not
    support split buffers.
    """
    with pytest.raises(EngineRefused, match="does not support split buffers"):
        placed(engine, device, split_mode="row")


@needs_rpc
def test_the_line_about_offloaded_layers_repeats_the_request(engine):
    """Without any device but the CPU, the log of a load with 99 layers says "offloaded 7/7 layers to GPU", and every
    buffer lies in host RAM.
    """
    if lab.this_machine().gpus:
        pytest.skip("this machine has a GPU")
    opening = engine.open(lab.tiny_model(), Settings(n_ctx=256, n_gpu_layers=99))
    assert "offloaded 7/7 layers to GPU" in opening.log
    assert {buffer.device.split("_")[0] for buffer in opening.buffers} == {"CPU"}


# --- B: arithmetic --------------------------------------------------------------------------------


def test_the_share_of_the_cache_in_the_bytes_of_a_token():
    """For Mistral 7B in Q4_K_M the cache is 9 to 12 % of the bytes that a token reads at 4,000 tokens, and half of
    them between 30,000 and 35,000, beyond the context it was trained for.
    """
    mistral = lab.known_model("mistral-7b")
    weights, per_token = mistral.files["Q4_K_M"].value, memory.kv_cache_bytes_per_token(mistral)
    assert 0.09 < 4000 * per_token / (weights + 4000 * per_token) < 0.12
    assert 30_000 < weights / per_token < 35_000
    assert weights / per_token > mistral.n_ctx_train


def test_three_minutes_of_cache_cannot_slow_decode_to_three_tokens_per_second():
    """If the whole cache of 3,600 tokens crossed a bus of 12 GB/s for every token, 20 tokens per second would become
    more than 10; for 3, more than 3 GB must cross each time.
    """
    cache = 3 * 60 * 20 * memory.kv_cache_bytes_per_token(lab.known_model("mistral-7b"))
    assert cache < 0.5 * GB
    assert 1 / (1 / 20 + cache / (12 * GB)) > 10
    assert (1 / 3 - 1 / 20) * 12 * GB > 3 * GB


def test_the_published_prefill_rate_is_a_hundred_teraflops_and_decode_a_few():
    """Two operations for each weight that is multiplied make 7,340 tokens of prefill per second about 100 TFLOP/s,
    and 120.6 tokens of decode less than 2.
    """
    per_token, _ = cost.operations(lab.shape("qwen2.5-7b", "Q4_K_M"), 1)
    assert 7340.2 * per_token == pytest.approx(100e12, rel=0.1)
    assert 120.6 * per_token < 2e12


def test_the_share_of_decode_follows_from_prompt_and_answer():
    """At the rates that llama.cpp's authors publish for one card, decode takes 95 % of a request whose prompt is 3.2
    times as long as its answer, 98 % where both are equal, and 60 % where the prompt is 40 times as long.
    """
    prefill, decode = (cited_facts("cards")[f"rtx-4080-{phase}"].value for phase in ("prefill", "decode"))
    shares = [1 / (1 + prompts * decode / prefill) for prompts in (3.2, 1, 40)]
    assert shares == pytest.approx([0.95, 0.98, 0.60], abs=0.005)


@pytest.mark.engine
def test_a_prompt_is_computed_in_pieces():
    """With `n_batch` 256 and `n_ubatch` 128, a prompt of 600 tokens is computed in pieces of 128, 128, 128, 128 and
    88 tokens, and a prompt of 100 in one.
    """
    told = asked_of_llama("""
import ctypes, llama_cpp
from inferlab.engine import libraries
ggml = ctypes.CDLL(str(libraries.shared_library("ggml-base")))
ggml.ggml_get_name.restype, ggml.ggml_nrows.restype = ctypes.c_char_p, ctypes.c_int64
ggml.ggml_get_name.argtypes = ggml.ggml_nrows.argtypes = [ctypes.c_void_p]
pieces = []

@llama_cpp.ggml_backend_sched_eval_callback
def note(tensor, is_question, _):
    if is_question and ggml.ggml_get_name(tensor) == b"embd":
        pieces.append(ggml.ggml_nrows(tensor))
    return not is_question

default = llama_cpp.llama_context_default_params()
default.cb_eval = note
llama_cpp.llama_cpp.llama_context_default_params = lambda: default
llm = Llama(path, n_ctx=1024, n_batch=256, n_ubatch=128, verbose=False)
found = {}
for n_tokens in (600, 100):
    llm.reset()
    pieces.clear()
    llm.eval(list(range(10, 10 + n_tokens)))
    found[n_tokens] = list(pieces)
print(json.dumps(found))
""")
    assert told == {"600": [128, 128, 128, 128, 88], "100": [100]}


def test_5_milliseconds_a_token_need_ninety_tokens():
    """From the first token at 55 ms to the last at 500 ms, 5 ms a token are 89 further tokens, so the last is the
    ninetieth; with 10 tokens in all, a token takes 49 ms.
    """
    assert 1 + (500 - 55) / 5 == 90
    assert round((500 - 55) / (10 - 1)) == 49


# --- names and defaults ---------------------------------------------------------------------------


@pytest.mark.engine
def test_defaults_of_the_python_class_are_not_those_of_the_library(parameters):
    """The Python class leaves every layer on the CPU and flash attention off, where the library puts all layers on a
    GPU and decides about flash attention itself.
    """
    import llama_cpp

    model, context = llama_cpp.llama_model_default_params(), llama_cpp.llama_context_default_params()
    python = {option.python: option.python_default for option in options().values() if option.python}
    assert {name: repr(parameters[name].default) for name in python} == python
    structs = {"model": model, "context": context}
    fields = {option.c_name: option for option in options().values() if option.struct}
    defaults = {name: getattr(structs[option.struct], name) for name, option in fields.items()}
    assert defaults == {name: option.c_default for name, option in fields.items()}
    assert (parameters["n_gpu_layers"].default, model.n_gpu_layers) == (0, -1)
    assert parameters["flash_attn"].default is False
    assert context.flash_attn_type == llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
    assert (model.load_mode, model.split_mode) == (llama_cpp.LLAMA_LOAD_MODE_AUTO, llama_cpp.LLAMA_SPLIT_MODE_LAYER)


@pytest.mark.engine
def test_an_argument_that_does_not_exist_is_swallowed():
    """The Python class loads a model without a word when it is given an argument that does not exist."""
    told = asked_of_llama("""
llm = Llama(path, n_ctx=64, verbose=False, not_a_real_option=True, tensor_override="blk.0=CPU")
print(json.dumps({"n_ctx": llm.n_ctx()}))
""")
    assert told["n_ctx"] >= 64


@pytest.mark.engine
def test_of_numa_and_affinity_the_python_class_has_numa_only(parameters):
    """The Python class has a parameter `numa`, and none for the affinity of threads."""
    assert "numa" in parameters
    assert [name for name in parameters if any(word in name for word in ("cpu_mask", "cpu_range", "affinity"))] == []


@pytest.mark.engine
def test_the_python_class_has_one_sequence():
    """The context of the Python class has room for one sequence, so its requests run one after the other."""
    told = asked_of_llama("""
import llama_cpp
llm = Llama(path, n_ctx=256, verbose=False)
print(json.dumps(llama_cpp.llama_n_seq_max(llm.ctx)))
""")
    assert told == 1


@pytest.mark.engine
def test_lazy_reading_is_automatic():
    """The library's default for lazy reading is "automatic", which is neither "on" nor "off"."""
    import llama_cpp

    modes = [getattr(llama_cpp, f"LLAMA_LAZY_MODE_{name}") for name in ("OFF", "AUTO", "ON")]
    assert len(set(modes)) == 3
    assert llama_cpp.llama_model_default_params().lazy_mode == llama_cpp.LLAMA_LAZY_MODE_AUTO


@pytest.mark.engine
def test_nothing_is_locked_by_default(parameters):
    """The Python class does not lock pages by default, and the library's default load mode is neither of the two that
    lock.
    """
    import llama_cpp

    chosen = llama_cpp.llama_model_default_params().load_mode
    assert parameters["use_mlock"].default is False
    assert chosen not in (llama_cpp.LLAMA_LOAD_MODE_MLOCK, llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK)


@pytest.mark.engine
def test_the_library_names_the_instruction_sets_that_it_uses():
    """The library's line of system information names the backend and the instruction sets of this build."""
    import llama_cpp

    told = llama_cpp.llama_print_system_info().decode()
    assert "CPU : " in told
    assert "= 1" in told


# --- C: types and formats -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ggml() -> ctypes.CDLL:
    """The pinned library of tensors."""
    library = ctypes.CDLL(str(libraries.shared_library("ggml-base")))
    library.ggml_type_name.restype = ctypes.c_char_p
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, count, count, count, pointer]
    return library


def bits_per_weight(ggml, kind: int) -> float:
    return 8 * ggml.ggml_type_size(int(kind)) / ggml.ggml_blck_size(int(kind))


def restored(ggml, weights: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """One row of weights, quantized by the library and restored."""
    n_bytes = int(weights.size * bits_per_weight(ggml, kind) / 8)
    row, coded = np.ascontiguousarray(weights, np.float32), np.zeros((1, n_bytes), np.uint8)
    ggml.ggml_quantize_chunk(int(kind), row.ctypes.data, coded.ctypes.data, 0, 1, row.size, None)
    return gguf.quants.dequantize(coded, kind)[0]


@pytest.mark.engine
def test_bits_per_weight_contain_the_scales(ggml):
    """Asked of the pinned library: F16 has 16 bits for each weight, Q8_0 8.5, Q6_K 6.5625, Q4_0 and Q4_K 4.5, Q2_K
    2.625, and Q1_0 1.125.
    """
    expected = {"f16": 16, "q8_0": 8.5, "q6_K": 6.5625, "q4_0": 4.5, "q4_K": 4.5, "q2_K": 2.625, "q1_0": 1.125}
    library = {ggml.ggml_type_name(kind).decode(): bits_per_weight(ggml, kind) for kind in (1, 8, 14, 2, 12, 10, 41)}
    assert library == expected


@pytest.mark.engine
def test_q4_k_restores_at_most_sixteen_evenly_spaced_values_in_a_block_of_32(ggml):
    """Quantized by the pinned library to Q4_K and restored, every 32 weights of a row lie on at most sixteen evenly
    spaced values, and each block of 32 has a spacing of its own.
    """
    weights = np.random.default_rng(1).normal(size=256)
    blocks = restored(ggml, weights, GGMLQuantizationType.Q4_K).reshape(8, 32)
    spacings = [np.diff(np.unique(block)).min() for block in blocks]
    for block, spacing in zip(blocks, spacings, strict=True):
        codes = (block - block.min()) / spacing
        assert np.allclose(codes, codes.round(), atol=1e-3)
        assert codes.max() < 15.5
    assert len({round(float(spacing), 4) for spacing in spacings}) > 4


@pytest.mark.engine
def test_two_weights_by_hand_and_by_ggml(ggml):
    """Divided by 0.45 and rounded, 3.14159 and 2.71828 are 7 and 6; the pinned library's Q4_0 restores 3.141 and
    2.748 from them.
    """
    weights = np.zeros(32)
    weights[:2] = 3.14159, 2.71828
    assert [round(value / 0.45) for value in weights[:2]] == [7, 6]
    assert restored(ggml, weights, GGMLQuantizationType.Q4_0)[:2] == pytest.approx([3.141, 2.748], abs=0.0005)


def test_mistral_in_q4_k_m_is_4_4_gb_and_saves_seven_tenths_of_the_bytes():
    """The published file has 4.37 GB, 69.8 % less than the weights in F16."""
    mistral = lab.known_model("mistral-7b")
    quantized, full = mistral.files["Q4_K_M"].value, memory.weights_bytes(mistral, "f16")
    assert quantized == pytest.approx(4.37 * GB, abs=0.01 * GB)
    assert 1 - quantized / full == pytest.approx(0.698, abs=0.001)


@pytest.mark.parametrize("magic", [b"ggjt", b"lmgg", b"fmgg", b"tjgg"])
def test_a_file_in_an_old_format_is_refused(tmp_path, magic):
    """A file that begins like one of the GGML formats is not taken for a model."""
    path = tmp_path / "old.bin"
    path.write_bytes(magic + bytes(1000))
    with pytest.raises(NotGGUF):
        lab.read_gguf(path)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("type_v=8, flash_attn=False", "quantized V cache requires flash_attn to be enabled"),
        ("type_k=12, flash_attn=True", "K cache type q4_K with block size 256 does not divide n_embd_head_k=64"),
    ],
)
def test_an_impossible_cache_is_refused_with_its_reason(arguments, reason):
    """A quantized V cache without flash attention and a cache type whose block does not divide a head are refused,
    and the log says which of the two it was.
    """
    code = f"from llama_cpp import Llama; Llama({str(lab.tiny_model())!r}, n_ctx=256, {arguments})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ValueError: Failed to create" in done.stderr
    assert reason in done.stdout + done.stderr


# --- D and E: models, and products of cited numbers -----------------------------------------------


@pytest.mark.parametrize(
    ("model", "width"), [("mistral-7b", 4096), ("llama-3.1-8b", 4096), ("qwen2.5-7b", 3584), ("llama-3.2-1b", 2048)]
)
def test_the_width_of_an_embedding_belongs_to_the_model(model, width):
    """An embedding has 4096 values in Mistral 7B and Llama 3.1 8B, 3584 in Qwen2.5 7B, 2048 in Llama 3.2 1B, and 256
    in the embedded model.
    """
    assert lab.known_model(model).n_embd == width
    assert lab.read_gguf(lab.tiny_model()).n_embd == 256


def test_a_header_names_its_kind_of_tokenizer():
    """The embedded model's header says that its tokenizer is byte pair encoding as GPT-2 has it."""
    assert lab.read_gguf(lab.tiny_model()).metadata["tokenizer.ggml.model"] == "gpt2"


def test_the_factor_between_footprint_and_model_size_depends_on_the_context():
    """With its cache alone, Mistral 7B in Q4_K_M takes 1.1 times its size near 3,300 tokens and twice its size near
    33,000.
    """
    mistral = lab.known_model("mistral-7b")
    weights, per_token = mistral.files["Q4_K_M"].value, memory.kv_cache_bytes_per_token(mistral)
    assert 1 + 3300 * per_token / weights == pytest.approx(1.1, abs=0.005)
    assert 1 + 33_000 * per_token / weights == pytest.approx(2, abs=0.05)


def test_without_flash_attention_the_compute_buffer_holds_the_scores(engine):
    """With flash attention off, the compute buffer grows with the context by at least four bytes for each head and
    token of the ubatch; with it on, by less than a quarter of that.
    """
    n_head = lab.read_gguf(lab.tiny_model()).n_head

    def growth(flash_attn: str) -> float:
        small, large = (
            bytes_of(engine.open(lab.tiny_model(), Settings(n_ctx=n_ctx, flash_attn=flash_attn)), "compute")
            for n_ctx in (8192, 16384)
        )
        return (large - small) / 8192

    scores = 4 * n_head * 512
    assert growth("off") >= scores
    assert growth("on") < scores / 4


def test_35_tokens_per_second_leave_less_than_3_gb_for_each():
    """A memory of 96 GB/s delivers 2.7 GB for each of 35.44 tokens per second."""
    read = 96 * GB / 35.44
    assert read == pytest.approx(2.7 * GB, rel=0.01)


def test_training_seven_billion_weights_takes_more_than_100_gb():
    """Sixteen bytes for each weight of Mistral 7B are 116 GB, half a byte to two bytes 3.6 to 14.5 GB."""
    weights = architectures.n_params(lab.known_model("mistral-7b"))
    assert [n * weights / GB for n in (16, 0.5, 2)] == pytest.approx([116, 3.6, 14.5], rel=0.01)


@pytest.mark.parametrize(
    ("giga_transfers", "lanes", "rate"), [(8, 16, 15.75), (16, 8, 15.75), (16, 16, 31.5), (32, 16, 63)]
)
def test_pcie_moves_16_gb_per_second_over_16_lanes_of_generation_3(giga_transfers, lanes, rate):
    """Sixteen lanes of generation 3, or eight of generation 4, move 15.75 GB/s in one direction, sixteen of
    generation 4 and 5 twice and four times as much.
    """
    assert giga_transfers * lanes / 8 * 128 / 130 == pytest.approx(rate, rel=0.001)


def test_two_channels_of_ddr5_6000_are_96_gb_per_second():
    """Two channels of eight bytes with six thousand million transfers a second are 96 GB/s."""
    rate = 2 * 8 * 6000e6
    assert rate == 96 * GB


def test_a_9950x_runs_two_threads_on_each_core():
    """By its maker's sheet the 9950X has 16 cores and 32 threads."""
    cores, threads = (cited_facts("cards")[f"ryzen-9950x-{name}"].value for name in ("cores", "threads"))
    assert (cores, threads / cores) == (16, 2)


def test_a_third_thread_on_two_cores_slows_decode():
    """On the recorded machine of two cores, three threads decode at less than four fifths of the rate of two."""
    recorded = lab.load("xeon-2c/tune-n_threads")
    rates = {point.changes["n_threads"]: point.run.decode_tokens_per_second for point in recorded.points}
    assert recorded.points[0].run.machine.n_cores == 2
    assert rates[3] < 0.8 * rates[2]


def test_the_5090s_bandwidth_is_28_gigabits_on_each_line_of_its_bus():
    """1,792 GB/s over a bus of 512 lines are 28 Gbit/s on each; 287 tokens per second leave at most 6.2 GB for each."""
    bus, rate = (cited_facts("cards")[f"rtx-5090-{name}"].value for name in ("bus", "bandwidth"))
    assert 8 * rate / bus == 28
    assert rate / 287 == pytest.approx(6.2, abs=0.05)


@needs_rpc
def test_the_host_is_the_cpu_and_the_device_something_else(engine, device):
    """The pinned library names the processor as a device of the kind "cpu" and a second device as "gpu"; with every
    layer on the second one, the bytes of both are reported apart.
    """
    bytes_at, _ = placed(engine, device)
    kinds = {one.name.split("0")[0]: one.kind for one in engine.machine().devices}
    assert kinds["CPU"] == "cpu"
    assert {where for where, _ in bytes_at} == {"device", "host"}


@pytest.mark.parametrize(("rate", "seconds"), [(0.5, 8.7), (7, 0.6)])
def test_what_a_disk_means_for_a_start_needs_its_rate(rate, seconds):
    """The published Mistral 7B in Q4_K_M takes 8.7 s from a disk of 500 MB/s and 0.6 s from one of 7 GB/s."""
    assert lab.known_model("mistral-7b").files["Q4_K_M"].value / (rate * GB) == pytest.approx(seconds, abs=0.05)
