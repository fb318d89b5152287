"""A load planned again from its log: the same numbers, why others differ, what is missing, and what would fit."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from marks import needs_rpc
from small_models import write_model

from inferlab.instruments import answered
from inferlab.instruments.dropped import DroppedFiles
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import read
from inferlab.results.log_memory import derive_memory, tried_text
from inferlab.results.log_memory.derived import AGREES, DIFFERS, IN_RANGE, MOVED, NOT_LOGGED, OTHER_BUILD, UNKNOWN
from inferlab.results.log_memory.logged import Logged
from inferlab.settings import Settings
from inferlab.units import MIB

RUNS = Path(__file__).parents[1] / "data" / "logs"
HEADER = """\
srv    load_model: loading model 'heron.gguf'
common_params_print_info: build 1 (0c1e570) with GNU 12.2.0 for Linux x86_64
llama_model_loader: loaded meta data with 30 key-value pairs and 40 tensors from heron.gguf (version GGUF V3 (latest))
llama_model_loader: - kv   0:                       general.architecture str              = llama
llama_model_loader: - kv   3:                          general.file_type u32              = 15
llama_model_loader: - type  f32:   10 tensors
llama_model_loader: - type q4_K:   25 tensors
llama_model_loader: - type q6_K:    5 tensors
print_info: file type   = Q4_K - Medium
print_info: file size   = 7.85 MiB (5.03 BPW)
llama_prepare_model_devices: using device CUDA0 (A card) (0000:01:00.0) - 8000 MiB free
print_info: arch                  = llama
print_info: n_ctx_train           = 131072
print_info: n_embd                = 512
print_info: n_layer               = 4
print_info: n_layer_all           = 4
print_info: n_head                = 8
print_info: n_head_kv             = 2
print_info: n_swa                 = 0
print_info: n_embd_head_k         = 64
print_info: n_embd_head_v         = 64
print_info: n_ff                  = 1024
print_info: n_expert              = 0
print_info: n_vocab               = 4096
load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
load_tensors: offloaded 5/5 layers to GPU
load_tensors:   CPU_Mapped model buffer size =     1.12 MiB
load_tensors:        CUDA0 model buffer size =     6.73 MiB
"""
CONTEXT = """\
llama_context: constructing llama_context
llama_context: n_seq_max             = 1
llama_context: n_ctx                 = 8192
llama_context: n_ctx_seq             = 8192
llama_context: n_batch               = 2048
llama_context: n_ubatch              = 512
llama_context: flash_attn            = enabled
llama_context: kv_unified            = false
llama_context: n_rs_seq              = 0
llama_context: n_outputs_max         = 1
llama_context:  CUDA_Host  output buffer size =     0.02 MiB
"""
CACHE = """\
llama_kv_cache:      CUDA0 KV buffer size =    16.00 MiB
llama_kv_cache: size =   16.00 MiB (  8192 cells,   4 layers,  1/1 seqs), K (f16):    8.00 MiB, V (f16):    8.00 MiB
"""
COMPUTE = """\
sched_reserve:      CUDA0 compute buffer size =    17.01 MiB
sched_reserve:  CUDA_Host compute buffer size =    10.01 MiB
"""
LOG = HEADER + CONTEXT + CACHE + COMPUTE
DEVICE = "llama_prepare_model_devices: using device {} (A card) (0000:01:00.0) - {} MiB free\n"
FAILED = (
    "alloc: failed to allocate CUDA0 buffer of size 16777216\nllama_init_from_model: failed to initialize the context: "
)
HYBRID = """\
build: 8586 (00aa11bb2) with GNU 12.2.0 for Linux x86_64
llama_model_loader: loaded meta data with 2 key-value pairs and 851 tensors from stork.gguf (version GGUF V3 (latest))
llama_model_loader: - kv   0:                       general.architecture str              = qwen35
llama_model_loader: - kv   1:                            qwen35.block_count u32              = 64
print_info: file type   = Q4_K - Small
print_info: file size   = 14.49 GiB (4.60 BPW)
llama_prepare_model_devices: using device CUDA0 (A card) (0000:01:00.0) - 10372 MiB free
print_info: arch                  = qwen35
print_info: n_embd                = 5120
print_info: n_layer               = 64
print_info: n_head                = 24
print_info: n_head_kv             = 4
print_info: n_embd_head_k         = 256
print_info: n_embd_head_v         = 256
print_info: n_ff                  = 17408
print_info: ssm_d_conv            = 4
print_info: ssm_d_inner           = 6144
print_info: ssm_d_state           = 128
print_info: ssm_dt_rank           = 48
print_info: ssm_n_group           = 16
print_info: n_vocab               = 248320
load_tensors: offloaded 26/65 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  8740.26 MiB
load_tensors:        CUDA0 model buffer size =  6096.65 MiB
llama_context: n_seq_max             = 1
llama_context: n_ctx                 = 131072
llama_context: n_batch               = 2048
llama_context: n_ubatch              = 1024
llama_context: flash_attn            = enabled
llama_kv_cache:        CPU KV buffer size =  4608.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =  3584.00 MiB
llama_kv_cache: size = 8192.00 MiB (131072 cells,  16 layers,  1/1 seqs), K (f16): 4096.00 MiB, V (f16): 4096.00 MiB
llama_memory_recurrent:        CPU RS buffer size =    93.52 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =    56.11 MiB
sched_reserve:      CUDA0 compute buffer size =  1401.75 MiB
"""
"""The sizes are those of a public log of a 27B model."""
PRINTED_SUM = 0.0151
SLOTS = LOG.replace("n_seq_max             = 1", "n_seq_max             = 4").replace(
    "n_ctx_seq             = 8192", "n_ctx_seq             = 2048"
)
SLOTS = SLOTS.replace("n_outputs_max         = 1", "n_outputs_max         = 4").replace("0.02", "0.06")
SLOTS = SLOTS.replace("17.01", "11.01").replace("10.01", "4.01")
"""Four slots of 2,048 cells each."""
ON_THE_HOST = LOG.replace(DEVICE.format("CUDA0", 8000), "").replace("offloaded 5/5", "offloaded 0/5")
ON_THE_HOST = (
    ON_THE_HOST.replace("mmap", "none").replace("CUDA0 model", "CPU_REPACK model").replace("CPU_Mapped", "CPU")
)
ON_THE_HOST = ON_THE_HOST.replace("CUDA0 KV", "CPU KV").replace("CUDA_Host", "CPU").replace(COMPUTE.splitlines()[0], "")
ON_THE_HOST = ON_THE_HOST.replace("10.01", "17.01").replace("1.12", "3.71").replace("6.73", "4.15")
DRAFT = (
    "common_speculative_init_result: loading draft model 'wren.gguf'\n"
    + DEVICE.format("CUDA0", 20)
    + DEVICE.format("CUDA1", 20)
    + "llama_model_loader: loaded meta data with 30 key-value pairs and 40 tensors from wren.gguf (version GGUF V3)\n"
    + "load_tensors:        CUDA0 model buffer size =     3.00 MiB\n"
)


def rows(derived):
    return {(row.device, row.kind): row for row in derived.rows}


def test_a_plan_has_the_numbers_of_the_log():
    """Weights, cache, compute and output of host and card, and a sentence that counts them."""
    derived = derive_memory(LOG)
    assert {row.state for row in derived.rows} == {AGREES}
    assert len(derived.rows) == 6
    assert derived.sentences == ("Of 6 buffers 6 agree to 0.01 MiB.",)


@pytest.mark.parametrize("kind", ["model", "KV", "compute", "output"])
def test_no_byte_of_the_log_is_in_the_plan(kind):
    """Another number in a line of a buffer changes the log's side alone, and is shown as a difference."""
    changed = re.sub(rf"({kind} buffer size = +)[\d.]+", r"\g<1>77.00", LOG)
    before, after = rows(derive_memory(LOG)), rows(derive_memory(changed))
    for where, row in after.items():
        if row.state != IN_RANGE:
            assert (row.least_bytes, row.most_bytes) == (before[where].least_bytes, before[where].most_bytes)
    assert any(row.log_bytes == 77 * MIB and row.state != AGREES for row in after.values())


def test_a_hybrid_has_its_cells_and_states_on_each_side():
    """Layers, some with cells and the others with a state, lie where `offloaded` says; the log has no types."""
    derived = derive_memory(HYBRID)
    states = {where: row.state for where, row in rows(derived).items() if row.log_bytes is not None}
    assert states == dict.fromkeys(
        [("host", "kv_cache"), ("host", "states"), ("CUDA0", "kv_cache"), ("CUDA0", "states")], AGREES
    )
    assert any("does not have the file's type" in note for note in derived.notes)


def test_the_term_without_room_is_named_with_what_fits():
    """The compute buffer is computed last; half of n_ubatch makes it small enough."""
    derived = derive_memory(LOG.replace("8000 MiB free", "32 MiB free"))
    assert derived.too_much.kind == "compute"
    assert derived.sentences[0] == (
        "The compute buffer of 17.01 MiB was 8 MiB more than was free on CUDA0, which had 32 MiB; "
        "with `-ub 256` it is 8.50."
    )
    assert [change.setting for change in derived.too_much.changes] == ["n_ubatch", "n_gpu_layers", "n_ctx"]


def test_without_a_formula_for_compute_its_logged_bytes_stay():
    """A shorter context cannot make them more, so that change is sure; n_ubatch is not named."""
    (change,) = derive_memory(HYBRID).too_much.changes
    assert (change.setting, change.value, change.text) == ("n_ctx", 102912, "`-c 102912`")
    assert change.before_bytes - change.after_bytes >= 766.52 * MIB


@pytest.mark.parametrize("program", ["llama_cpp/llama.py", "[LM STUDIO SERVER]", "[GIN] "])
def test_a_change_has_the_words_of_its_program(program):
    """llama-cpp-python, LM Studio and Ollama have names of their own."""
    words = {"llama_cpp/llama.py": "`n_ubatch=256`", "[LM STUDIO SERVER]": "` at 256", "[GIN] ": "`num_batch=256`"}
    log = LOG.replace("srv    load_model: loading", f"{program}\nload_model: loading").replace("8000 MiB", "32 MiB")
    assert words[program] in derive_memory(log).too_much.changes[0].text


def test_a_cache_that_failed_is_the_one_asked_for():
    """The failed allocation stands in the log's column; where nothing is known of compute, q8_0 leaves it some room."""
    failed = HYBRID.split("llama_kv_cache:        CPU")[0] + (
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 3758096384\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
    derived = derive_memory(failed.replace("10372 MiB free", "9000 MiB free"))
    assert rows(derived)["CUDA0", "kv_cache"].state == AGREES
    assert (derived.too_much.kind, derived.too_much.failed) == ("kv_cache", True)
    (change,) = derived.too_much.changes
    assert (change.text, change.after_bytes) == ("`-ctk q8_0 -ctv q8_0`", 1904 * MIB)
    assert "left for a compute buffer of unknown size" in change.sentence
    assert "f16, the default" in derived.notes[0]


def test_a_cache_alone_is_said_to_fit_only_where_the_load_failed_at_it():
    """A load that did not fail has a compute buffer, which is then known to have no room."""
    whole = LOG.replace("6.73", "5.09").replace("1.12", "2.77").replace("offloaded 5/5", "offloaded 4/5")
    line = "load_tensors: offloading 4 repeating layers to GPU\n"
    whole = whole.replace("load_tensors: offloaded", line + "load_tensors: offloaded").replace("8000 MiB", "14 MiB")
    failed = whole.split(CACHE)[0] + FAILED + "failed to allocate buffer for kv cache\n"
    (change,) = derive_memory(failed).too_much.changes
    assert (change.text, change.left_bytes is None) == ("`-ctk q8_0 -ctv q8_0`", False)
    assert derive_memory(whole).too_much.changes == ()


def test_an_allocation_that_failed_beside_enough_memory_is_not_explained():
    """Something else took the memory in between, so no setting is blamed."""
    failed = "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 17835008\n" + (
        "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n"
    )
    derived = derive_memory(HEADER + CONTEXT + CACHE + failed)
    assert derived.too_much is None
    assert rows(derived)["CUDA0", "compute"].state == AGREES


@pytest.mark.parametrize(
    "more",
    [
        FAILED.replace("16777216", "9000000000") + "failed to allocate compute pp buffers\n",
        "alloc: failed to allocate CUDA0 buffer of size 900\ngraph_reserve: failed to allocate compute buffers\n",
        CONTEXT + FAILED + "failed to allocate buffer for kv cache\n",
        CONTEXT + CACHE + FAILED + "failed to allocate compute pp buffers\n",
    ],
)
def test_a_failure_after_the_load_is_not_the_loads(more):
    """At run time, or in another context: the load that is planned had all its buffers."""
    derived = derive_memory((LOG + more).replace("8000 MiB", "36 MiB"))
    assert (derived.summary, derived.too_much.failed) == (derive_memory(LOG).summary, False)


def test_an_allocation_that_was_retried_is_no_failure():
    """Without pipeline parallelism the compute buffer is smaller, and has room."""
    retried = (
        "alloc: failed to allocate CUDA0 buffer of size 67108864\ngraph_reserve: failed to allocate compute buffers\n"
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
    )
    assert derive_memory(HEADER + CONTEXT + CACHE + retried + COMPUTE).summary == derive_memory(LOG).summary


def test_of_several_attempts_the_last_one_failed():
    """The bytes are those of the allocation before the error, not of the one that was retried."""
    twice = "alloc: failed to allocate CUDA0 buffer of size 67108864\n" + FAILED.replace("16777216", "17835008")
    derived = derive_memory(HEADER + CONTEXT + CACHE + twice + "failed to allocate compute pp buffers\n")
    assert rows(derived)["CUDA0", "compute"].state == AGREES


def test_a_load_that_failed_says_too_much_and_another_one_more_than_was_free():
    """Only an allocation that failed is a cause; a driver may hold more than it calls free."""
    failed = derive_memory(
        (HEADER + CONTEXT + FAILED + "failed to allocate buffer for kv cache\n").replace("8000 MiB", "20 MiB")
    )
    assert "3 MiB too much for CUDA0, which had 20 MiB free" in failed.sentences[0]
    assert "3 MiB more than was free on CUDA0" in derive_memory(LOG.replace("8000 MiB", "20 MiB")).sentences[0]


def test_weights_that_failed_are_not_planned():
    """Such a load ends before its offloaded layers and its context are printed."""
    failed = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 7055872\nunable to allocate CUDA0 buffer\n"
    derived = derive_memory(HEADER.split("load_tensors: offloaded")[0] + failed)
    assert (derived.rows, derived.too_much) == ((), None)


def test_a_gpu_that_shares_ram_is_not_said_to_overflow():
    """It may hold more than it calls free."""
    uma = "ggml_vulkan: 0 = A GPU (A driver) | uma: 1 | fp16: 1 | warp size: 64\n"
    shared = uma + LOG.replace("CUDA_Host", "Vulkan_Host").replace("CUDA0", "Vulkan0").replace("8000 MiB", "20 MiB")
    assert derive_memory(shared).too_much is None
    assert derive_memory(shared.replace("uma: 1", "uma: 0")).too_much.kind == "kv_cache"


def test_what_is_free_to_a_draft_model_is_not_what_its_model_had():
    """The draft's devices, too, are its own: the model's load agrees as without it."""
    derived = derive_memory(LOG + DRAFT)
    assert (derived.too_much, derived.summary) == (None, derive_memory(LOG).summary)


@pytest.mark.parametrize(
    "more",
    [
        DRAFT,
        CONTEXT + CACHE + COMPUTE,
        "clip_ctx: CLIP using CUDA0 backend\n",
        "alloc_compute_meta:      CUDA0 compute buffer size =   128.00 MiB\n",
        "llama_adapter_lora_init_impl:      CUDA0 LoRA buffer size =    9.00 MiB\n",
    ],
)
def test_beside_another_model_no_change_is_said_to_fit(more):
    """What a draft, a projector, an adapter or a second context takes is in no term."""
    found = derive_memory(LOG.replace("8000 MiB", "32 MiB") + more).too_much
    assert (found.kind, found.changes) == ("compute", ())


def test_with_two_devices_no_change_is_said_to_fit():
    """A change for one of them may fill the other, even where debug lines name each layer's device."""
    lines = "".join(f"load_tensors: layer {i:3d} assigned to device CUDA{i // 3}, is_swa = 0\n" for i in range(5))
    two = LOG.replace("print_info: arch ", DEVICE.format("CUDA1", 30) + lines + "print_info: arch ")
    two = two.replace(CACHE.splitlines()[0], CACHE.splitlines()[0].replace("16.00", "12.00")).replace("8000", "30")
    found = derive_memory(two).too_much
    assert (found.device, found.kind, found.changes) == ("CUDA0", "compute", ())


@pytest.mark.parametrize(
    ("program", "texts"),
    [
        ("srv   ", ["`-ub 128`", "`-np 1 -c 2048`", "`-ngl 2`", "`-c 4096`"]),
        ("[GIN] \n", ["`num_batch=128`", "`OLLAMA_NUM_PARALLEL=1`", "`num_gpu=2`", "`num_ctx=1024`"]),
    ],
)
def test_slots_and_context_in_the_words_of_a_program(program, texts):
    """llama-server's context is that of all slots together; Ollama's that of one, by which it multiplies."""
    log = SLOTS.replace("srv    load_model", f"{program}load_model").replace("8000 MiB", "26 MiB")
    assert [change.text for change in derive_memory(log).too_much.changes] == texts


def test_slots_that_share_all_cells_keep_the_context():
    """One slot alone then needs no other context; Ollama's before 2025-07 shared them."""
    shared = LOG.replace("n_seq_max             = 1", "n_seq_max             = 4").replace("8000 MiB", "30 MiB")
    shared = re.sub("llama_context: (kv_unified|n_rs_seq|n_outputs_max) .*\n", "", shared)
    shared = shared.replace("n_ctx_seq", "n_ctx_per_seq").replace("0c1e570", "1234abc").replace("0.02", "0.06")
    for program, text in (("srv   ", "`-c 4864`"), ("[GIN] \n", "`num_ctx=1024`")):
        found = derive_memory(shared.replace("srv    load_model", f"{program}load_model"))
        assert text in [change.text for change in found.too_much.changes]


def test_moved_weights_are_told_and_compute_is_left_out():
    """Fewer weights on the card than whole layers have: the log does not print which tensors were moved."""
    derived = derive_memory(LOG.replace("6.73 MiB", "4.00 MiB"))
    assert rows(derived)["CUDA0", "weights"].reason == MOVED
    assert not [row for row in derived.rows if row.kind == "compute"]
    assert any("follow the weights" in note for note in derived.notes)


@pytest.mark.parametrize(
    "log",
    [
        LOG.replace("6.73 MiB", "4.00 MiB").replace("CPU_Mapped", "CPU").replace("mmap", "none"),
        LOG.replace("6.73 MiB", "4.00 MiB").replace("1.12 MiB", "0.50 MiB"),
        LOG.replace("CPU_Mapped", "CPU").replace("mmap", "none").replace("1.12 MiB", "3.00 MiB"),
    ],
)
def test_tensors_are_moved_only_from_a_device_to_ram(log):
    """Where the card has less and RAM not more, or RAM more and the card not less, something else is different."""
    reasons = {row.reason for row in derive_memory(log).rows if row.state == DIFFERS}
    assert reasons
    assert MOVED not in reasons


def test_a_build_that_repacks_more_moves_nothing():
    """Without a device all weights are in RAM; where the processor is not known they are not compared."""
    host = ON_THE_HOST.replace("3.71", "2.00").replace("4.15", "5.86")
    found = rows(derive_memory("system_info: n_threads = 8 | CPU : AVX2 = 1 | REPACK = 1 |\n" + host))
    assert {found["host", kind].reason for kind in ("weights", "repacked")} == {UNKNOWN}
    unknown = derive_memory(host)
    assert ("host", "weights") not in rows(unknown)
    assert "does not name the processor" in unknown.notes[0]


def test_moved_tensors_that_are_printed_are_planned():
    """Debug lines name each tensor that an override moved."""
    lines = "".join(
        f"tensor blk.{i}.ffn_{part}.weight (0 MiB q4_K) buffer type overridden to CPU\n"
        for i in range(4)
        for part in ("gate", "up")
    )
    found = rows(derive_memory(LOG.replace("load_tensors: offloaded", f"{lines}load_tensors: offloaded")))
    assert found["CUDA0", "weights"].least_bytes < 6 * MIB
    assert found["CUDA0", "kv_cache"].state == AGREES


def test_an_older_build_leaves_the_output_layer_in_ram():
    """As many blocks as offloaded layers: all caches lie on the card, and the output's weights do not."""
    now = LOG.replace("offloaded 5/5", "offloaded 4/5")
    line = "load_tensors: offloading {} repeating layers to GPU\nload_tensors: offloaded"
    newer, older = (rows(derive_memory(now.replace("load_tensors: offloaded", line.format(n)))) for n in (3, 4))
    whole = rows(derive_memory(LOG))
    assert older["CUDA0", "kv_cache"].least_bytes == whole["CUDA0", "kv_cache"].least_bytes
    assert newer["CUDA0", "kv_cache"].least_bytes < older["CUDA0", "kv_cache"].least_bytes
    assert older["CUDA0", "weights"].least_bytes < whole["CUDA0", "weights"].least_bytes


def test_a_device_may_pad_its_tensors():
    """A few bytes more for each tensor are no weights of another place."""
    row = rows(derive_memory(LOG.replace("6.73 MiB", "6.75 MiB")))["CUDA0", "weights"]
    assert (row.state, "pad" in row.reason) == (IN_RANGE, True)


def test_moved_tensors_without_a_layout_leave_compute_out():
    """The cache stays exact; what the card copies in is not known."""
    moved = "tensor blk.0.ffn_up_exps.weight (66 MiB q4_K) buffer type overridden to CPU\n"
    found = rows(derive_memory(HYBRID.replace("load_tensors: offloaded", f"{moved}load_tensors: offloaded")))
    assert {row.state for row in found.values() if row.log_bytes is not None} == {AGREES}
    assert ("CUDA0", "compute") not in found


def test_another_build_is_the_reason_only_where_a_term_differs():
    """A build of another version agrees where its numbers do, and is named where they do not."""
    other = LOG.replace("0c1e570", "1234abc")
    assert derive_memory(other).summary == derive_memory(LOG).summary
    differs = rows(derive_memory(other.replace("17.01 MiB", "19.00 MiB")))["CUDA0", "compute"]
    assert (differs.state, differs.reason) == (DIFFERS, OTHER_BUILD)
    assert differs.difference_text == "+1.99"


@pytest.mark.parametrize(
    "name", ["server-2024", "server-2024-slots", "server-2025", "server-2025-slots", "server-draft"]
)
def test_recorded_loads_of_older_builds_have_the_same_caches(name):
    """llama-server of 2024 and 2025: weights, cache and output agree, and a compute buffer differs by its build.

    The recorded logs lack some lines of the header, which are put back.
    """
    text = (RUNS / f"{name}.log").read_text(encoding="utf-8")
    lines = r"\1n_head_kv\2= 2\n\1n_embd_head_k = 64\n\1n_embd_head_v = 64"
    found = derive_memory(re.sub(r"^(.*(?:print_info|print_meta): )n_head_kv( +)= 2$", lines, text, flags=re.MULTILINE))
    states = {kind: row.state for (_, kind), row in rows(found).items()}
    assert states["kv_cache"] == states["output"] == states["repacked"] == AGREES
    assert {row.reason for row in found.rows if row.state == DIFFERS} <= {OTHER_BUILD}


def test_old_builds_round_the_context_to_32_cells_without_flash_attention():
    """Until 2025-11 a cache of 2,100 tokens had 2,112 cells, with flash attention 2,304."""
    old = LOG.replace("n_ctx_seq  ", "n_ctx_per_seq").replace("= 8192", "= 2100").replace("16.00", "4.12")
    off = rows(derive_memory(old.replace("flash_attn            = enabled", "flash_attn            = 0")))
    assert off["CUDA0", "kv_cache"].state == AGREES
    on = rows(derive_memory(old.replace("4.12", "4.50")))
    assert on["CUDA0", "kv_cache"].state == AGREES


def test_lines_of_the_oldest_builds():
    """`llm_load_print_meta` and `llama_new_context_with_model` say the same as their later names."""
    renamed = LOG.replace("print_info: file size", "llm_load_print_meta: model size")
    renamed = renamed.replace("print_info:", "llm_load_print_meta:").replace("load_tensors:", "llm_load_tensors:")
    renamed = renamed.replace("llama_context:", "llama_new_context_with_model:").replace("constructing", "")
    assert derive_memory(renamed).summary == derive_memory(LOG).summary


def test_weights_without_a_word_for_what_they_are():
    """Before 2024-11 a line said `CPU buffer size`, mapped or not; so the host's lie in a range, the card's agree."""
    old = (
        LOG.replace("load_tensors:", "llm_load_tensors:")
        .replace("CPU_Mapped model", "CPU")
        .replace("CUDA0 model", "CUDA0")
    )
    found = rows(derive_memory(old.replace("1.12 MiB", "5.00 MiB").replace(" (load_mode = mmap)", "")))
    assert (found["host", "weights"].state, found["CUDA0", "weights"].state) == (IN_RANGE, AGREES)


def test_rpc_devices_that_only_their_endpoints_tell_apart_are_two():
    """Older builds number no RPC device."""
    names = [f"RPC[192.0.2.{i}:50052]" for i in (1, 2)]
    two = LOG.replace(DEVICE.format("CUDA0", 8000), "".join(DEVICE.format(name, 40) for name in names))
    parts = "".join(f"llama_kv_cache: {name} KV buffer size = 8.00 MiB\n" for name in names)
    two = two.replace(CACHE.splitlines()[0] + "\n", parts).replace("CUDA0", names[0])
    derived = derive_memory(two)
    assert rows(derived)["all devices", "kv_cache"].state == AGREES
    assert derived.too_much is None


def test_several_devices_are_compared_as_a_sum():
    """Their shares are not in the log: the cache of both together is."""
    second = "llama_prepare_model_devices: using device CUDA1 (A card) (0000:02:00.0) - 8000 MiB free\n"
    parts = "".join(f"llama_kv_cache:      CUDA{i} KV buffer size = {n}.00 MiB\n" for i, n in enumerate((12, 4)))
    two = LOG.replace("print_info: arch", f"{second}print_info: arch")
    two = two.replace("llama_kv_cache:      CUDA0 KV buffer size =    16.00 MiB\n", parts)
    derived = derive_memory(two)
    assert rows(derived)["all devices", "kv_cache"].state == AGREES
    assert {kind for _, kind in rows(derived)} == {"kv_cache", "output"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("= llama\n", "= heronet\n", "no closed form for the architecture `heronet`"),
        ("print_info: n_embd_head_k         = 64\n", "", "header's `n_embd_head_k`"),
        ("print_info: n_swa                 = 0\n", "", "of 6 buffers"),
        ("n_head                = 8", "n_head                = 99999999999999", "are no model's: `n_head`"),
        ("n_ff                  = 1024", "n_ff                  = [1, 4294967295]", "are no model's: `n_ff`"),
        ("        CUDA0 model", "   CUDA_Split model", "split mode `row`"),
        ("llama_context: n_ubatch              = 512\n", "", "does not say `n_ubatch`"),
        ("load_tensors: offloaded 5/5 layers to GPU\n", "", "how many layers were offloaded"),
        ("40 tensors from", "39 tensors from", "weights were not derived"),
        ("n_layer               = 4", "n_layer               = 999999999", "are no model's"),
        ("n_head_kv             = 2", "n_head_kv             = [2, 2, -1, 2]", "header's `n_head_kv`"),
        ("n_seq_max             = 1", "n_seq_max             = 999", "cannot be planned"),
    ],
)
def test_what_is_missing_is_said(old, new, said):
    """One sentence names the part that keeps a term, or the whole load, from being planned; no false difference."""
    derived = derive_memory(LOG.replace(old, new))
    assert said.casefold() in " ".join(derived.sentences).casefold()
    assert not any(row.state == DIFFERS for row in derived.rows)


def test_a_line_that_is_missing_makes_no_difference():
    """Without any one line a term agrees, or is not planned: of an incomplete header nothing is inferred."""
    lines = SLOTS.splitlines(keepends=True)
    for n, line in enumerate(lines):
        derived = derive_memory("".join(lines[:n] + lines[n + 1 :]))
        assert {row.state for row in derived.rows} <= {AGREES, NOT_LOGGED}, line


def test_a_key_that_the_whole_metadata_lacks_has_llama_cpps_default():
    """With every entry in the log a missing one is not in the file: heads are as wide as n_embd divides."""
    whole = LOG.replace("with 30 key-value", "with 2 key-value")
    assert derive_memory(whole.replace("print_info: n_embd_head_k         = 64\n", "")).summary.startswith("Of 6")


def test_an_array_that_the_log_cuts_is_not_guessed():
    """Of a pattern of windows only the beginning is printed: the cache of such layers stays unplanned."""
    entry = (
        "llama_model_loader: - kv   9: gemma3.attention.sliding_window_pattern arr[bool,26] = [true, true, true, ...\n"
    )
    gemma = LOG.replace("= llama\n", "= gemma3\n").replace("llama_model_loader: - type  f32", f"{entry}- type  f32")
    gemma = gemma.replace("with 30 key-value", "with 3 key-value")
    gemma = gemma.replace("n_swa                 = 0", "n_swa                 = 512")
    assert "has only the beginning of `gemma3.attention.sliding_window_pattern`" in derive_memory(gemma).notes[0]


def test_heads_that_differ_from_layer_to_layer_have_their_own_cells():
    """The log lists them; a layer without any, as deci has them, has no cells, and a head 2 MiB."""
    uneven = LOG.replace("= llama", "= deci").replace(
        "n_head_kv             = 2", "n_head_kv             = [2, 1, 0, 4]"
    )
    uneven = uneven.replace("n_head                = 8", "n_head                = [8, 8, 0, 8]")
    cache = rows(derive_memory(uneven.replace("    16.00 MiB", "    14.00 MiB")))["CUDA0", "kv_cache"]
    assert (cache.state, cache.least_bytes, cache.most_bytes) == (AGREES, 14 * MIB, 14 * MIB)


def test_a_projector_and_a_second_context_are_not_counted():
    """Compute buffers of images, and of a context that follows, belong to none of the planned terms."""
    more = "alloc_compute_meta:      CUDA0 compute buffer size =   128.00 MiB\n" + CONTEXT + CACHE + COMPUTE
    assert derive_memory(LOG + more).summary == derive_memory(LOG).summary


def test_a_load_without_lines_says_so_and_has_no_rows():
    """Nothing is derived from a log that names no header."""
    derived = derive_memory(CACHE + COMPUTE)
    assert not derived.rows
    assert "no lines of the model's header" in derived.notes[0]


def test_any_numbers_are_survived():
    """Whatever a log holds, the answer is a derivation or a sentence."""
    random, numbers = Random(1), [*re.finditer(r"\d+", LOG)]
    for _ in range(150):
        match = random.choice(numbers)
        text = LOG[: match.start()] + random.choice(["0", "1", "7", "300", "4294967295", ""]) + LOG[match.end() :]
        derived = derive_memory(text)
        json.dumps(derived.to_dict())
        assert repr(derived) or not derived.rows


def test_the_page_shows_log_and_plan_side_by_side():
    """The log reader's answer has the table, its sentences, and the same in its data."""
    answer = answered("log-reader", {"log": LOG.replace("8000 MiB", "32 MiB")}, DroppedFiles(__file__))
    shown = json.dumps(answer["view"])
    assert "The same load, planned again" in shown
    assert "8 MiB more than was free on CUDA0" in shown
    assert answer["data"]["derived"]["too_much"]["changes"][0]["value"] == 256


def test_weights_of_a_file_in_another_order_lie_in_a_range():
    """Mapped weights span the file from the first to the last tensor in RAM, whose order no log has."""
    part = LOG.replace("offloaded 5/5", "offloaded 2/5").replace("6.73 MiB", "2.99 MiB").replace("1.12 MiB", "6.50 MiB")
    row = rows(derive_memory(part))["host", "weights"]
    assert (row.state, row.least_bytes < row.log_bytes < row.most_bytes) == (IN_RANGE, True)
    assert "order" in row.reason


def test_metal_maps_its_weights_and_is_not_said_to_overflow():
    """Buffers of a mapped file keep the device's name; its compute buffers were never compared."""
    metal = LOG.replace("CUDA_Host", "CPU").replace("CUDA0 model", "MTL0_Mapped model").replace("CUDA0", "MTL0")
    derived = derive_memory(metal.replace("8000 MiB free", "20 MiB free"))
    assert rows(derived)["MTL0", "weights"].state == AGREES
    assert rows(derived)["MTL0", "kv_cache"].state == AGREES
    assert derived.too_much is None
    assert any("never compared" in note for note in derived.notes)


def test_the_count_of_tries_is_published():
    """The page says on how many loads it was tried, from the table that a benchmark counts again."""
    assert re.search(
        r"On \d+ loads of llama.cpp .*, \d+ architectures, all \d+ caches and states were exact", tried_text()
    )


def test_only_the_lines_of_a_load_are_read():
    """The values of a header and a context, by their names."""
    logged = Logged(Observed(read(LOG)))
    assert logged.header["n_embd"] == "512"
    assert logged.context["n_ubatch"] == "512"
    assert logged.types == {"F32": 10, "Q4_K": 25, "Q6_K": 5}


# --- real loads ----------------------------------------------------------------------------------------------

FAMILIES = ("llama", "llama-tied", "gemma3", "qwen3moe", "qwen35", "lfm2", "deepseek2", "gpt-oss")
GRID = {
    "host": {"n_ctx": 2048, "n_gpu_layers": 0},
    "host, 4 sequences": {"n_ctx": 4096, "n_seq_max": 4, "n_ubatch": 256, "n_gpu_layers": 0, "swa_full": False},
    "host, no flash attention": {"n_ctx": 1024, "n_gpu_layers": 0, "flash_attn": "off"},
    "device": {"n_ctx": 2048, "swa_full": False},
    "part of the layers": {"n_ctx": 3000, "n_gpu_layers": 3},
    "q8_0": {"n_ctx": 2048, "type_k": "q8_0", "type_v": "q8_0", "n_ubatch": 128},
    "shared cells": {"n_ctx": 4096, "n_seq_max": 3, "kv_unified": True, "flash_attn": "on", "swa_full": False},
    "cache on the host": {"n_ctx": 2048, "offload_kqv": False},
    "no mapping": {"n_ctx": 2048, "n_gpu_layers": 2, "load_mode": "none"},
}


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize("family", FAMILIES)
def test_every_term_of_a_real_load_is_derived(family, tmp_path, device, engine):
    """Cache, states, output and weights to 0.01 MiB; compute to 0.01 MiB or in its range; nothing differs."""
    path = write_model(tmp_path / f"{family}.gguf", family)
    for name, values in GRID.items():
        if (family, name) == ("deepseek2", "host, no flash attention"):
            continue  # refused by llama.cpp
        servers = () if values.get("n_gpu_layers") == 0 else (device.endpoint,)
        found = derive_memory(engine.open(path, Settings(**values, rpc_servers=servers)).log)
        states = {(row.device, row.kind): row.state for row in found.rows}
        assert states, (name, found)
        assert DIFFERS not in states.values(), (name, found)
        assert NOT_LOGGED not in states.values(), (name, found)
        assert {state for (_, kind), state in states.items() if kind in ("kv_cache", "states", "output")} == {AGREES}


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(("family", "short"), [("llama", 1), ("llama", 12), ("qwen3moe", 3), ("lfm2", 2)])
def test_a_change_that_fits_does_fit(family, short, tmp_path, device, engine):
    """Loads with each change that is named for a device without room take no more than was free."""
    path = write_model(tmp_path / f"{family}.gguf", family, n_vocab=4096)
    settings = Settings(n_ctx=16384, rpc_servers=(device.endpoint,), flash_attn="on", n_seq_max=2)
    log = engine.open(path, settings).log
    free = int(on_device(log) / MIB) - short
    found = derive_memory(re.sub(r"\d+ MiB free", f"{free} MiB free", log)).too_much
    assert found is not None
    for change in found.changes:
        smaller = settings.but(**of_text(change.text))
        assert on_device(engine.open(path, smaller).log) <= (free + PRINTED_SUM) * MIB, change
    assert found.changes


FLAGS = {
    "-ub": "n_ubatch",
    "-np": "n_seq_max",
    "-ngl": "n_gpu_layers",
    "-c": "n_ctx",
    "-ctk": "type_k",
    "-ctv": "type_v",
}


def of_text(text):
    """The settings that one writes as `-np 1 -c 8192`."""
    words = text.strip("`").split()
    return {
        FLAGS[flag]: int(value) if value.isdigit() else value
        for flag, value in zip(words[::2], words[1::2], strict=True)
    }


def on_device(log):
    """Bytes of all buffers of the loopback device."""
    return sum(printed.n_bytes for printed in Logged(Observed(read(log))).buffers["RPC0"].values())
