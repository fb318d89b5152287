"""Logs of Ollama that load several models, and logs of runs that went on, written by hand after their sources.

Names, paths and numbers are invented.
"""

from written_logs import (
    MODEL,
    OLLAMA_START,
    SERVER,
    START,
    SYSTEM,
    TIMINGS,
    card,
    context,
    ollama,
    runner,
    turn,
    weights,
)

ONE_CARD = ollama(
    'msg="inference compute" id=GPU-0 filter_id="" library=CUDA compute=8.6 name=CUDA0 description="NVIDIA GeForce '
    'RTX 3060" libdirs=ollama driver=12.8 pci_id=0000:01:00.0 type=discrete total="12.0 GiB" available="11.0 GiB"',
    source="types.go:42",
)
NO_CARD = ollama(
    'msg="inference compute" id=0 library=cpu variant="" compute="" driver=0.0 name="" total="31.2 GiB"',
    source="types.go:130",
)
DEFAULT = ollama(
    'msg="vram-based default context" total_vram="24.0 GiB" default_num_ctx=32768', source="routes.go:2058"
)


def at(minute, lines, hour=3):
    return lines.replace("T03:04:05", f"T{hour:02}:{minute:02}:05")


def asked(n_ctx):
    """ollama llm/server.go:469 of v0.13"""
    return ollama(
        f'msg=load request="{{Operation:commit Parallel:1 KvSize:{n_ctx} KvCacheType:}}"', source="runner.go:895"
    )


def started(name, n_ctx=4096):
    """A runner of 0.11 to 0.29, whose command has no context."""
    command = f"ollama runner --model /models/blobs/{name} --port 40000"
    return ollama(f'msg="starting runner" cmd="{command}"', source="server.go:432") + asked(n_ctx)


def loaded(name, title, model=None, layers="33/33", n_ctx=4096, cache=512.0):
    """One load with all buffers, up to its first answer."""
    header = (model or MODEL).replace("from model.gguf", f"from /models/blobs/{name}").replace("Example 7B", title)
    buffers = card() + header + weights(layers=layers) + context(n_ctx, cache)
    return (
        started(name, n_ctx) + buffers + ollama('msg="llama runner started in 2.10 seconds"', source="server.go:1390")
    )


def answer(status=200, seconds="1.2s", path="/api/chat"):
    return f'[GIN] 2026/01/02 - 03:04:05 | {status} | {seconds:>12} |       127.0.0.1 | POST     "{path}"\n'


PARTLY = loaded("sha256-11", "Large 32B", layers="20/33", n_ctx=32768, cache=4096.0)
UNKNOWN_ARCHITECTURE = (
    ollama('msg="starting runner" cmd="ollama runner --ollama-engine --port 40001"')
    + MODEL.replace("from model.gguf", "from /models/blobs/sha256-22").split("print_info")[0]
    + "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'newest'\n"
    + "llama_model_load_from_file_impl: failed to load model\n"
    + ollama('msg="NewLlamaServer failed" model=/models/blobs/sha256-22', source="sched.go:473")
    + answer(500)
)
OLD_LOAD = (
    ollama('msg="Initializing llama server"', source="dyn_ext_server.go:147")
    + MODEL.replace("print_info", "llm_load_print_meta")
    + "llm_load_tensors: offloaded 33/33 layers to GPU\n"
)
OLD_CHANGE = ollama('msg="changing loaded model"', source="routes.go:79")


def old(name):
    return OLD_LOAD.replace("from model.gguf", f"from /models/blobs/{name}")


RETRIED = ollama(
    'msg="llama-server load failed; reducing automatic context and retrying once" model=blobs/sha256-0000 '
    "old_num_ctx=32768 new_num_ctx=16384",
    "WARN",
    "sched.go:652",
)
MIXTURE = MODEL.replace("4.07 GiB (4.83 BPW)", "9.40 GiB (4.83 BPW)").replace(
    "n_expert              = 0", "n_expert = 8"
)
BENCH = """\
ggml_cuda_init: found 1 ROCm devices:
  Device 0: Radeon 8060S Graphics, gfx1151 (0x1151), VMM: no, Wave Size: 32
rocBLAS error: No hipBLASLt solution found
This message will be only be displayed once, unless the ROCBLAS_VERBOSE_HIPBLASLT_ERROR environment variable is set.

rocBLAS warning: hipBlasLT failed, falling back to tensile.
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| llama 7B Q4_K - Medium         |   4.07 GiB |     7.25 B | ROCm       |  99 |           pp512 |        900.00 ± 1.00 |
| llama 7B Q4_K - Medium         |   4.07 GiB |     7.25 B | ROCm       |  99 |           tg128 |         40.00 ± 0.10 |
"""
SYCL_POOL = """\
level_zero backend failed with error: 4 (UR_RESULT_ERROR_INVALID_VALUE)
Exception caught at file:/build/ggml/src/ggml-sycl/ggml-sycl.cpp, line:1742, func:operator()
SYCL error: CHECK_TRY_ERROR(phys.emplace(dev, ctx, reserve_size)): Exception caught in this line of code.
  in function alloc at /build/ggml/src/ggml-sycl/ggml-sycl.cpp:1742
/build/ggml/src/ggml-sycl/common.hpp:155: SYCL error
"""
CUT_ASSERTION = (
    "[Context Shifting: Erased 50 tokens at position 2]ggml/src/ggml-vulkan/ggml-vulkan.cpp:5932: "
    "GGML_ASSERT(wg0 <= ctx->device->properties.limits.maxComputeWorkGroup\n"
)
TOO_LARGE = ollama(
    'msg="model request too large for system" requested="120.5 GiB" available="60.2', "WARN", "server.go:1044"
)
FIT = "llama_params_fit_impl: projected to use 9216 MiB of device memory vs. 8192 MiB of free device memory\n"
GAVE_UP = (
    "llama_params_fit: failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort\n"
)
NO_ROOM = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory\n"
    "alloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592\n"
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
)
LOCAL_AI = (
    'Jan 02 03:04:05 ERROR Failed to load model modelID="example" error=failed to load model with internal loader: '
    'backend not found: llama-cpp backend="llama-cpp"\n'
)
EMBEDDED = "".join(answer(200, f"{n}.5s", "/api/embeddings") for n in range(1, 6))

RELEASED = (
    '{{"function":"update_slots","level":"INFO","line":1627,"msg":"slot released","n_cache_tokens":1700,"n_ctx":2048,'
    '"slot_id":0,"task_id":9,"tid":"1","timestamp":1700000000,"truncated":{}}}\n'
)
OFFLOAD = 'msg="offload to cuda" layers.requested={} layers.model=33 layers.offload={} layers.split=""'

STARTED_WITH_LAYERS = (
    'msg="starting llama-server" cmd="/lib/ollama/llama-server --model /models/blobs/sha256-15 --port 40000 -c 4096 '
    '-ngl 5 --no-webui"'
)
REMOVED = "srv         alloc:  - making room for prompt cache entry, removing oldest entry (size = 300.000 MiB)\n"
READ_AGAIN = (
    "slot print_timing: id  0 | task {} | prompt eval time =    6000.00 ms /  {} tokens (    0.70 ms per token, "
    " 1400.00 tokens per second)\n"
)
PERF = (
    "llama_perf_context_print:        eval time = {}000.00 ms /    90 runs   (  666.00 ms per token,     {} tokens per "
    "second)\n"
)
TABLE = (
    "llama_memory_breakdown_print: | memory breakdown [MiB] | total    free    self   model   context   compute    "
    "unaccounted |\n"
    "llama_memory_breakdown_print: |   - Vulkan0 (Example GPU)  | 16000 = 12000 + (2400 =  1100 +    1200 +     100) +"
    "        1600 |\n"
    "llama_memory_breakdown_print: |   - Host                   |                  340 =   300 +       0 +      40"
    "                |\n"
)

LOGS_OF_LOADS = {
    "the context of 2024 was full": (
        OLLAMA_START + ONE_CARD + loaded("sha256-12", "Small 3B") + RELEASED.format("false") + RELEASED.format("true"),
        ["context-dropped"],
    ),
    "one thread": (
        OLLAMA_START
        + at(1, started("sha256-14").replace("KvCacheType:", "KvCacheType: NumThreads:1 GPULayers:[]"))
        + MODEL
        + weights(0, 4167.0, "0/33")
        + context(device="CPU"),
        ["one-thread"],
    ),
    "a processor without vectors": (
        OLLAMA_START
        + started("sha256-14")
        + ollama("msg=system CPU.0.LLAMAFILE=1 compiler=cgo(gcc)", source="ggml.go:104")
        + MODEL
        + weights(0, 4167.0, "0/33")
        + context(device="CPU"),
        ["cpu-code-not-loaded"],
    ),
    "prompts thrown out": (
        (REMOVED + READ_AGAIN.format(7, 9000)) * 2,
        ["prompts-thrown-out"],
    ),
    "short prompts beside those thrown out": ((REMOVED + READ_AGAIN.format(7, 90)) * 2, []),
    "hardly an answer": (PERF.format(900, 0.1), ["very-slow"]),
    "a table after a slow answer": (
        "[LM STUDIO SERVER] Client disconnected. Stopping generation...\n"
        + "Generate: n_ctx = 16384, n_batch = 512, n_predict = 100, n_keep = 5\n"
        + PERF.format(60, 1.5)
        + TABLE,
        ["very-slow", "client-left"],
    ),
    "the context of 2024 was long enough": (
        OLLAMA_START + ONE_CARD + loaded("sha256-12", "Small 3B") + RELEASED.format("false"),
        [],
    ),
    "fewer layers were asked for": (
        OLLAMA_START + ONE_CARD + ollama(OFFLOAD.format(2, 2)) + loaded("sha256-12", "Small 3B", layers="2/33"),
        ["few-layers-asked"],
    ),
    "fewer layers were asked for, 0.30": (
        OLLAMA_START
        + ONE_CARD
        + ollama(STARTED_WITH_LAYERS, source="llama_server.go:433")
        + card()
        + MODEL
        + weights(layers="5/33")
        + context(),
        ["few-layers-asked"],
    ),
    "fewer layers were there than asked for": (
        OLLAMA_START + ONE_CARD + ollama(OFFLOAD.format(20, 2)) + loaded("sha256-12", "Small 3B", layers="2/33"),
        ["layers-on-cpu"],
    ),
    "the log ends where another load begins": (
        OLLAMA_START
        + ONE_CARD
        + loaded("sha256-12", "Small 3B", layers="20/33")
        + answer()
        + started("sha256-13")
        + MODEL.split("print_info")[0],
        ["layers-on-cpu"],
    ),
    "another model in part on the GPU": (
        OLLAMA_START + ONE_CARD + PARTLY + answer() + loaded("sha256-12", "Small 3B") + answer(),
        ["layers-on-cpu"],
    ),
    "another model with a long default": (
        OLLAMA_START + ONE_CARD + DEFAULT + PARTLY + answer() + loaded("sha256-12", "Small 3B") + answer(),
        ["long-default-context", "layers-on-cpu"],
    ),
    "another model failed": (
        OLLAMA_START + ONE_CARD + UNKNOWN_ARCHITECTURE + loaded("sha256-12", "Small 3B") + answer(),
        ["unknown-architecture"],
    ),
    "another model failed before a new start": (
        OLLAMA_START + ONE_CARD + UNKNOWN_ARCHITECTURE + OLLAMA_START + ONE_CARD + loaded("sha256-12", "Small 3B"),
        [],
    ),
    "a long default context": (OLLAMA_START + ONE_CARD + DEFAULT + PARTLY, ["long-default-context", "layers-on-cpu"]),
    "a default context of which nothing is short": (
        OLLAMA_START + ONE_CARD + DEFAULT + loaded("sha256-12", "Small 3B", n_ctx=32768, cache=2048.0),
        [],
    ),
    "loaded after it was idle": (
        OLLAMA_START + "".join(at(minute, started("sha256-1")) for minute in (5, 20, 50)),
        ["loaded-after-idle"],
    ),
    "loaded after it was idle, without a context": (
        OLLAMA_START + "".join(at(minute, started("sha256-1").split("\n")[0] + "\n") for minute in (5, 20, 50)),
        ["loaded-after-idle"],
    ),
    "loaded again with one context": (
        OLLAMA_START + "".join(at(minute, started("sha256-1")) for minute in (5, 6, 50)),
        ["loaded-again-alike"],
    ),
    "loaded again with other contexts": (
        OLLAMA_START + at(5, started("sha256-1")) + at(20, started("sha256-1", 8192)),
        ["loaded-again"],
    ),
    "other contexts beside another model": (
        OLLAMA_START
        + "".join(
            at(minute, started(name, n_ctx))
            for minute, (name, n_ctx) in enumerate(
                [("sha256-1", 4096), ("sha256-2", 4096), ("sha256-1", 8192), ("sha256-2", 2048), ("sha256-1", 4096)]
            )
        ),
        ["loaded-again"],
    ),
    "another model between two loads": (
        OLLAMA_START
        + at(5, started("sha256-1"))
        + at(6, started("sha256-2"))
        + at(7, started("sha256-1"))
        + at(40, started("sha256-1")),
        [],
    ),
    "loaded again for fewer requests at once": (
        OLLAMA_START + at(5, runner(8192, 4)) + at(20, runner(2048, 1)),
        [],
    ),
    "loaded again by Ollama itself": (OLLAMA_START + runner(32768) + RETRIED + runner(16384), []),
    "loaded once by each of three servers": ((OLLAMA_START + started("sha256-1")) * 3, []),
    "two models in turn, 0.1.30": (
        OLLAMA_START.replace("0.33.0", "0.1.30")
        + OLD_CHANGE.join(old(name) for name in ("sha256-1", "sha256-2", "sha256-1", "sha256-2")),
        ["models-in-turn"],
    ),
    "a slow load": (
        OLLAMA_START + loaded("sha256-1", "Example 7B").replace("2.10 seconds", "71.70 seconds"),
        ["slow-load"],
    ),
    "an option that Ollama does not know": (
        OLLAMA_START
        + loaded("sha256-1", "Example 7B")
        + ollama('msg="invalid option provided" option=penalize_newline', "WARN", "types.go:991"),
        ["option-unknown"],
    ),
    "an earlier context that was capped": (
        OLLAMA_START
        + ollama(
            'msg="requested context size too large for model" num_ctx=32768 n_ctx_train=8192', "WARN", "server.go:169"
        )
        + loaded("sha256-1", "Short 7B")
        + loaded("sha256-2", "Example 7B"),
        ["context-capped"],
    ),
    "a GPU in some starts": (
        OLLAMA_START + ONE_CARD + OLLAMA_START + NO_CARD + OLLAMA_START + ONE_CARD,
        ["gpu-not-always-found"],
    ),
    "embeddings by a language model": (
        OLLAMA_START + ONE_CARD + loaded("sha256-1", "Example 7B") + EMBEDDED,
        ["embeddings-by-a-language-model"],
    ),
    "embeddings by a model for them": (
        OLLAMA_START + ONE_CARD + loaded("sha256-1", "Example Embed 7B") + EMBEDDED,
        [],
    ),
    "embeddings beside answers": (
        OLLAMA_START + ONE_CARD + loaded("sha256-1", "Example 7B") + EMBEDDED + answer(),
        [],
    ),
    "a benchmark with rocBLAS": (BENCH, ["hipblaslt-fallback"]),
    "memory pool of SYCL": (SERVER + START + SYCL_POOL, ["sycl-memory-pool"]),
    "an assertion that is cut": (CUT_ASSERTION, ["assertion"]),
    "an illegal instruction of the GPU": (
        SERVER + START + card() + MODEL + "CUDA error: an illegal instruction was encountered\n",
        ["gpu-fault"],
    ),
    "an illegal instruction of the processor, zsh": (
        SERVER + START + "zsh: illegal hardware instruction  ./llama-server\n",
        ["illegal-instruction"],
    ),
    "too large, cut by a pager": (OLLAMA_START + TOO_LARGE, ["too-little-ram"]),
    "too large, and another load after it": (
        OLLAMA_START + ONE_CARD + TOO_LARGE + loaded("sha256-12", "Small 3B") + answer(),
        ["too-little-ram"],
    ),
    "two models, each of a server of its own": (
        (OLLAMA_START + started("sha256-1") + started("sha256-2")) * 3,
        [],
    ),
    "no fit, and it did not fit": (
        SERVER + START + FIT + GAVE_UP + MODEL + NO_ROOM,
        ["weights-do-not-fit"],
    ),
    "a backend of LocalAI": (LOCAL_AI, ["backend-not-installed"]),
    "a template's method": (
        "Value is not callable: null at row 3, column 7:\n{{ text.split('x') }}\n      ^\n",
        ["template-error"],
    ),
    "experts in RAM although all fit": (
        START + SYSTEM + card(free=20000) + MIXTURE + weights(5000.0, 4600.0) + context() + TIMINGS,
        ["experts-on-cpu"],
    ),
    "an answer that fills all of the training": (
        SERVER
        + START
        + MODEL.replace("n_ctx_train           = 32768", "n_ctx_train           = 8192")
        + turn(7, 200, 0)
        + "slot      release: id  0 | task 7 | stop processing: n_tokens = 8191, truncated = 1\n"
        + "srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'false'\n",
        ["answer-cut"],
    ),
}
