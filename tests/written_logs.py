"""Logs that no processor alone can provoke, written by hand: each message after the source that its entry names.

llama.cpp's lines follow the format strings of the pinned version (0c1e57098). Numbers are invented, and consistent.
"""

MODEL = """\
llama_model_loader: loaded meta data with 30 key-value pairs and 291 tensors from model.gguf (version GGUF V3 (latest))
print_info: file format = GGUF V3 (latest)
print_info: file type   = Q4_K - Medium
print_info: file size   = 4.07 GiB (4.83 BPW)
print_info: arch                  = llama
print_info: n_ctx_train           = 32768
print_info: n_layer               = 32
print_info: n_expert              = 0
print_info: model type            = 7B
print_info: model params          = 7.25 B
print_info: general.name          = Example 7B
"""
"""src/llama-model.cpp:2067, src/llama-model-loader.cpp:722, 1804"""

EXPERTS = MODEL.replace("n_expert              = 0", "n_expert              = 8")

START = "build: 9999 (0c1e57098) with GNU 12.2.0 for Linux x86_64\n"
SYSTEM = "system_info: n_threads = 8 (n_threads_batch = 8) / 16 | CUDA : ARCHS = 860 | CPU : SSE3 = 1 | AVX2 = 1 |\n"


def card(name="CUDA0", free=11000):
    """src/llama.cpp:306"""
    place = f"{name} (NVIDIA GeForce RTX 3060) (0000:01:00.0)"
    return f"llama_prepare_model_devices: using device {place} - {free} MiB free\n"


def weights(on_gpu=4095.05, in_ram=72.0, layers="33/33"):
    """src/llama-model.cpp:1916-1930"""
    gpu = f"load_tensors:        CUDA0 model buffer size = {on_gpu:8.2f} MiB\n" if on_gpu else ""
    return f"""\
load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
load_tensors: offloaded {layers} layers to GPU
load_tensors:   CPU_Mapped model buffer size = {in_ram:8.2f} MiB
{gpu}"""


def context(n_ctx=4096, cache=512.0, k="f16", v="f16", device="CUDA0", slots=1, flash="enabled"):
    """src/llama-context.cpp:308-328, 381, 740, src/llama-kv-cache.cpp:291, 301"""
    return f"""\
llama_context: constructing llama_context
llama_context: n_seq_max             = {slots}
llama_context: n_ctx                 = {n_ctx}
llama_context: n_ctx_seq             = {n_ctx // slots}
llama_context: n_batch               = 2048
llama_context: n_ubatch              = 512
llama_context: flash_attn            = {flash}
llama_context: kv_unified            = false
llama_context:  {device}_Host  output buffer size =     0.12 MiB
llama_kv_cache: {device:>10} KV buffer size = {cache:8.2f} MiB
llama_kv_cache: size = {cache:7.2f} MiB ({n_ctx:6} cells,  32 layers,  {slots}/{slots} seqs), K ({k}): {cache / 2:7.2f} MiB, V ({v}): {cache / 2:7.2f} MiB
sched_reserve: {device:>10} compute buffer size =   104.00 MiB
"""  # noqa: E501


TIMINGS = """\
llama_perf_context_print: prompt eval time =     500.00 ms /   500 tokens (    1.00 ms per token,  1000.00 tokens per second)
llama_perf_context_print:        eval time =    2000.00 ms /   100 runs   (   20.00 ms per token,    50.00 tokens per second)
"""  # noqa: E501
"""src/llama-context.cpp:4434"""

HEALTHY = START + SYSTEM + card() + MODEL + weights() + context() + TIMINGS

ON_CPU = START + SYSTEM + MODEL + weights(0, 4167.0, "0/33") + context(device="CPU")

SERVER = "srv    load_model: loading model 'model.gguf'\n"
READY = """\
srv    load_model: initializing, n_slots = 1, n_ctx_slot = 4096, kv_unified = 'false'
srv  update_slots: all slots are idle
"""
"""tools/server/server-context.cpp:1023, 1231"""


def turn(task, tokens, cached):
    """One request of llama-server, tools/server/server-context.cpp:3126, 613."""
    slot = f"slot %s: id  0 | task {task} | "
    lines = (
        ("  operator()", f"new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {tokens}"),
        ("  operator()", f"cached n_tokens = {cached}, memory_seq_rm [{cached}, end)"),
        (
            "print_timing",
            f"prompt eval time = {tokens - cached:10.2f} ms / {tokens - cached:5} tokens "
            "(    1.00 ms per token,  1000.00 tokens per second)",
        ),
        (
            "print_timing",
            "       eval time =     200.00 ms /    10 tokens (   20.00 ms per token,    50.00 tokens per second)",
        ),
    )
    return "".join(f"{slot % name}{text}\n" for name, text in lines)


def ollama(message, level="INFO", source="server.go:405"):
    """A line of Ollama's own log, in the form of ollama#10368."""
    return f"time=2026-01-02T03:04:05.678Z level={level} source={source} {message}\n"


OLLAMA_START = ollama('msg="Listening on 127.0.0.1:11434 (version 0.33.0)"', source="routes.go:1950")


def runner(n_ctx=4096, parallel=1):
    """ollama llm/llama_server.go, startLlamaServer"""
    command = f"llama-server --model blobs/sha256-0000 --port 40000 --host 127.0.0.1 -c {n_ctx} -np {parallel}"
    return ollama(f'msg="starting llama-server" cmd="{command}"', source="llama_server.go:410")


GO_ENGINE = (
    ollama('msg="starting runner" cmd="ollama runner --ollama-engine --model blobs/sha256-0000 --port 40000"')
    + ollama('msg="offloaded 41/41 layers to GPU"', source="ggml.go:487")
    + ollama('msg="model weights" device=CUDA0 size="11.9 GiB"', source="device.go:240")
    + ollama('msg="model weights" device=CPU size="680.0 MiB"', source="device.go:245")
    + ollama('msg="kv cache" device=CUDA0 size="640.0 MiB"', source="device.go:251")
    + ollama('msg="compute graph" device=CUDA0 size="426.7 MiB"', source="device.go:262")
)
"""ollama#11090, #10417"""

NO_GPU = ollama(
    'msg="inference compute" id=cpu library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" '
    'pci_id="" type="" total="31.3 GiB" available="27.2 GiB"',
    source="types.go:50",
)
ONE_GPU = ollama(
    'msg="inference compute" id=0 filter_id=0 library=ROCm compute=gfx1151 name=ROCm0 description="Radeon 8060S '
    'Graphics" libdirs=ollama,rocm_v7_2 driver=0.0 pci_id=0000:c3:00.0 type=iGPU total="113.5 GiB" '
    'available="2.0 GiB"',
    source="types.go:32",
)
"""ollama discover/types.go:32, 50; ollama#16462"""

ALLOCATION = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {} MiB on device 0: cudaMalloc failed: out of memory\n"
)
"""ggml/src/ggml-cuda/ggml-cuda.cu:888"""
LOAD_FAILED = "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
CONTEXT_FAILED = "llama_init_from_model: failed to initialize the context: {}\n"
"""src/llama-model.cpp:1886, src/llama-context.cpp:3899"""
EXIT = "main: exiting due to model loading error\n"
NOT_LOADED = (
    "llama_model_load: error loading model: llama_model_loader: failed to load model from /models/x.gguf\n"
    "llama_model_load_from_file_impl: failed to load model\n"
    "srv    load_model: failed to load model, '/models/x.gguf'\n" + EXIT
)
"""src/llama-model.cpp:1886, tools/server/server.cpp; llama-swap#204"""

LOGS = {
    # name: (log, the rules that find something, the most important first)
    "llama.cpp, healthy": (HEALTHY, []),
    "Ollama, healthy": (OLLAMA_START + runner() + HEALTHY, []),
    "Ollama's own engine, healthy": (OLLAMA_START + GO_ENGINE, []),
    "LM Studio, healthy": ("[2026-01-02 03:04:05.678] [info] [LMSInternal] load\n" + HEALTHY, []),  # bug-tracker#1492
    # 2: common/arg.cpp:2800
    "no usable GPU": (
        "warning: no usable GPU found, --gpu-layers option will be ignored\n" + START + MODEL + context(device="CPU"),
        ["no-usable-gpu"],
    ),
    # 2, before 2025: ollama#788
    "not compiled": (
        "Not compiled with GPU offload support, --n-gpu-layers option will be ignored.\n"
        + START
        + MODEL
        + context(device="CPU"),
        ["no-usable-gpu"],
    ),
    # ollama v0.12.3 discover/gpu.go:396, types.go:131, server/routes.go:1569
    "Ollama without a GPU": (
        OLLAMA_START
        + ollama('msg="no compatible GPUs were discovered"', source="gpu.go:396")
        + NO_GPU
        + ollama('msg="entering low vram mode" "total vram"="0 B" threshold="20.0 GiB"', source="routes.go:1569")
        + GO_ENGINE.replace("CUDA0", "CPU").replace("41/41", "0/41"),
        ["ollama-found-no-gpu"],
    ),
    # ollama discover/types.go:50
    "Ollama 0.33 without a GPU": (OLLAMA_START + NO_GPU + runner() + ON_CPU, ["ollama-found-no-gpu"]),
    "Ollama with a GPU": (OLLAMA_START + ONE_GPU + GO_ENGINE, []),
    # 2: the router's parent has no devices, its child has (#22748)
    "router": ("warning: no usable GPU found, --gpu-layers option will be ignored\n" + HEALTHY, []),
    "no layer": (START + card() + MODEL + weights(0, 4167.0, "0/33") + context(device="CPU"), ["no-layer-asked"]),
    # 3
    "weights": (START + card() + MODEL + ALLOCATION.format("14095.05") + LOAD_FAILED, ["weights-do-not-fit"]),
    "cache": (
        HEALTHY + ALLOCATION.format("8192.00") + CONTEXT_FAILED.format("failed to allocate buffer for kv cache"),
        ["cache-does-not-fit"],
    ),
    "compute": (
        HEALTHY
        + ALLOCATION.format("2144.00")
        + "graph_reserve: failed to allocate compute buffers\n"
        + CONTEXT_FAILED.format("failed to allocate compute pp buffers"),
        ["compute-does-not-fit"],
    ),
    "while it runs": (HEALTHY + "CUDA error: out of memory\n", ["out-of-memory"]),  # ggml-cuda.cu:105
    # 4: nothing says so but the sizes
    "more than free": (START + card(free=3000) + MODEL + weights() + context(), ["more-than-free"]),
    # 5: ollama#9221
    "truncated": (
        OLLAMA_START
        + runner(2048)
        + HEALTHY
        + ollama('msg="truncating input prompt" limit=2048 prompt=3963 keep=5 new=2048', "WARN", "runner.go:131"),
        ["prompt-truncated"],
    ),
    # 6: ollama#10417, and the loader's own lines
    "pushed off": (
        OLLAMA_START
        + runner(65536)
        + START
        + card()
        + MODEL
        + weights(2000.0, 2167.0, "17/33")
        + context(65536, 8192.0, device="CUDA0"),
        ["layers-on-cpu", "cache-larger-than-weights"],
    ),
    "Ollama's plan": (
        OLLAMA_START + ollama("msg=offload library=cuda layers.requested=-1 layers.model=33 layers.offload=20"),
        ["layers-on-cpu"],
    ),
    # 7: ollama#7773
    "loaded again": (OLLAMA_START + runner(4096) + HEALTHY + runner(8192) + HEALTHY, ["loaded-again"]),
    # 11: #28455; ggml/src/ggml-cuda/fattn.cu:505
    "mixed cache": (
        START + card() + MODEL + weights() + context(k="q8_0", v="q4_0"),
        ["cache-types-on-cuda"],
    ),
    "no kernel for the cache": (
        START + card() + MODEL + weights() + context(k="q5_1", v="q5_1") + "ggml_cuda_flash_attn_ext_vec: no "
        "FlashAttention vector kernel compiled for K/V types q5_1-q5_1, converting K and V to f16 instead (slow). Add "
        '"q5_1-q5_1" to GGML_CUDA_FA_QUANTS to compile it.\n',
        ["cache-types-without-kernel"],
    ),
    "same cache types": (START + card() + MODEL + weights() + context(k="q8_0", v="q8_0"), []),
    "no flash attention": (
        HEALTHY + "resolve_fused_ops: Flash Attention not supported, set to disabled\n",
        ["flash-attention-unsupported"],
    ),
    # 12: tools/server/server-context.cpp:3361
    "sliding window": (
        SERVER
        + HEALTHY
        + READY
        + turn(0, 2000, 0)
        + turn(1, 2100, 0)
        + turn(2, 2200, 0)
        + turn(3, 2300, 0)
        + "slot   operator(): id  0 | task 3 | forcing full prompt re-processing due to lack of cache data (likely due "
        "to SWA or hybrid/recurrent memory, see https://github.com/ggml-org/llama.cpp/pull/13194)\n",
        ["full-reprocessing"],
    ),
    # 13: ollama#14918
    "changing beginning": (
        SERVER + HEALTHY + READY + "".join(turn(i, 2000 + i, 3) for i in range(5)),
        ["prompt-read-again"],
    ),
    "kept beginning": (
        SERVER + HEALTHY + READY + "".join(turn(i, 2000 + 50 * i, 1950 + 50 * i) for i in range(5)),
        [],
    ),
    # 14: tools/server/server-task.cpp:1894, #25740
    "prompt cache": (
        SERVER + HEALTHY + READY + "srv        update:  - cache state: 21 prompts, 6144.250 MiB (limits: 8192.000 MiB, "
        "4096 tokens, 9000 est)\n",
        ["prompt-cache-in-ram"],
    ),
    # tools/server/server-task.cpp:1731
    "prompt not kept": (
        SERVER + HEALTHY + READY + "srv         alloc:  - prompt state size 2304.125 MiB exceeds cache size limit "
        "2048.000 MiB, skipping\n",
        ["prompt-not-kept"],
    ),
    # 15: common/fit.cpp:464, 895
    "fit": (
        "common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort\n"
        + HEALTHY,
        ["fit-failed"],
    ),
    # 16: #25859
    "experts": (START + card() + EXPERTS + weights(900.0, 3267.0) + context(), ["experts-on-cpu"]),
    # 17: tools/server/server-context.cpp:647, #24508
    "draft": (
        SERVER + HEALTHY + READY + "slot print_timing: id  0 | task 0 | draft acceptance = 0.21000 (   63 accepted /   "
        "300 generated), mean len =  1.60\n",
        ["draft-rejected"],
    ),
    "good draft": (
        SERVER
        + HEALTHY
        + READY
        + "slot print_timing: id  0 | task 0 | draft acceptance rate = 0.81000 (  243 accepted /   300 generated)\n",
        ["draft-to-measure"],
    ),
    "draft of another vocabulary": (
        SERVER + HEALTHY + "srv    load_model: failed to initialize speculative decoding context: draft model vocab "
        "type must match target model to use speculation\n" + READY,
        ["draft-refused"],
    ),
    "draft without a type": (
        SERVER + HEALTHY + "common_speculative_init_result: loading draft model 'draft.gguf'\n"
        "spec common_specu: no implementations specified for speculative decoding\n" + READY,
        ["draft-unused"],
    ),
    "no draft at all": (
        SERVER + HEALTHY + "spec common_specu: no implementations specified for speculative decoding\n" + READY,
        [],
    ),
    # 18: #3120; ggml/src/ggml-cuda/ggml-cuda.cu:1194
    "two cards": (
        START
        + card()
        + card("CUDA1")
        + MODEL
        + weights(2047.0)
        + "load_tensors:        CUDA1 model buffer size =  2048.05 MiB\n"
        + context()
        + "NCCL not compiled in; falling back to internal AllReduce.  Recompile with -DGGML_CUDA_NCCL=ON for best "
        "multi-GPU performance.\n",
        ["two-devices-for-one", "no-nccl"],
    ),
    # 19: common/common.cpp:423
    "threads": (HEALTHY.replace("n_threads = 8 (", "n_threads = 32 ("), ["more-threads-than-processors"]),
    # 21: microsoft/WSL#4197; the shell's word
    "WSL": (HEALTHY.replace("from model.gguf", "from /mnt/c/models/model.gguf"), ["windows-folder"]),
    "killed": (START + card() + MODEL + "Killed\n", ["killed"]),
    "killed in a script": (
        START + MODEL + "./serve.sh: line 3:  4242 Killed                  llama-server -m x\n",
        ["killed"],
    ),
    "a story": (START + MODEL + "slot print_timing: id  0 | task 0 | and then he was Killed\n", []),
    # 22: #8734
    "instruction": (START + "Illegal instruction (core dumped)\n", ["illegal-instruction"]),
    # 23: ggml/src/ggml-cuda/ggml-cuda.cu:105, 226; ollama#12408, #7666
    "no kernel": (
        HEALTHY + "CUDA error: no kernel image is available for execution on the device\n"
        "  current device: 0, in function ggml_cuda_compute_forward at ggml-cuda.cu:2353\n",
        ["no-kernel-image"],
    ),
    "driver": (
        "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\n"
        + START
        + MODEL,
        ["driver-too-old"],
    ),
    "no device": (
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n" + START + MODEL,
        ["cuda-not-started"],
    ),
    # 24: #1243; tools/server/server-context.cpp:1448
    "template": (
        SERVER + HEALTHY + "srv          init: init: chat template parsing error: expected end\n",
        ["chat-template"],
    ),
    # 25: ollama#14658, #6163
    "GPU lost": (OLLAMA_START + runner() + HEALTHY + "Failed to initialize NVML: Unknown Error\n", ["gpu-lost"]),
    "power": (HEALTHY + "        SW Power Cap                      : Active\n", ["throttled"]),
    # not among the twenty-five
    "beyond training": (
        HEALTHY + "llama_context: n_ctx_seq (65536) > n_ctx_train (32768) -- possible training context overflow\n",
        ["beyond-training"],
    ),
    "embedding": (
        SERVER + HEALTHY + "srv    send_error: task id = 1, error: input (900 tokens) is too large to process. "
        "increase the physical batch size (current batch size: 512)\n",
        ["batch-too-small"],
    ),
    "shift": (
        SERVER + HEALTHY + "slot update_slots: id  0 | task 0 | slot context shift, n_keep = 0, n_left = 4095, "
        "n_discard = 2047\n",
        ["context-shift"],
    ),
    "port": (
        SERVER + "srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080\n",
        ["port-taken"],
    ),
    "not a GGUF": ("gguf_init_from_reader: invalid magic characters: 'PK', expected 'GGUF'\n", ["not-gguf"]),
    # older spellings: MiniCPM#250, llama-cpp-python#755, llama.cpp#3492
    "pointer, 2024": ("gguf_init_from_file: invalid magic characters 'vers'\n", ["lfs-pointer"]),
    "pointer, 2023": ("gguf_init_from_file: invalid magic number 73726576\n", ["lfs-pointer"]),
    "GGML": ("gguf_init_from_file: invalid magic number 67676a74\n", ["not-gguf"]),
    # lmstudio-bug-tracker#1454
    "cache in RAM": (
        "2026-01-02 03:04:05 [DEBUG]\n " + START + card() + MODEL + weights() + context(device="CPU"),
        ["cache-in-ram"],
    ),
    # ggml 0.25.3, gguf.cpp, with the errno of llama.cpp#18884; src/llama-model.cpp:1886
    "no file": (
        "gguf_init_from_file: failed to open GGUF file '/models/x.gguf' (No such file or directory)\n" + NOT_LOADED,
        ["missing-file"],
    ),
    # llama-swap#204
    "no file, 2025": (
        "gguf_init_from_file: failed to open GGUF file '/models/x.gguf'\n" + NOT_LOADED,
        ["missing-file"],
    ),
    # llama.cpp#9656, src/llama-mmap.cpp
    "no file, 2024": (
        "llama_model_load: error loading model: failed to open /models/x.gguf: No such file or directory\n",
        ["missing-file"],
    ),
    # llama_cpp/_internals.py:54
    "no file, Python": ("ValueError: Model path does not exist: /models/x.gguf\n", ["missing-file"]),
    # src/llama-model-loader.cpp; llama.cpp#23437
    "not loaded": (SERVER + NOT_LOADED, ["load-failed"]),
    "last line only": (EXIT, ["load-failed"]),
    "no server": ("main: exiting due to HTTP server error\n", ["load-failed"]),  # tools/server/server.cpp
    "not loaded, Python": ("ValueError: Failed to load model from file: /models/x.gguf\n", ["load-failed"]),
    # llama.cpp's lines in koboldcpp#1371, #9701; src/llama-context.cpp
    "not decoded": (HEALTHY + "llama_decode: failed to decode, ret = -3\n", ["decode-failed"]),
    "Metal": (
        HEALTHY + "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"
        "llama_decode: failed to decode, ret = -3\n",
        ["out-of-memory"],
    ),
    # ollama v0.12.3 server/sched.go:438, llm/server.go:957
    "Ollama, RAM": (
        OLLAMA_START
        + ollama(
            'msg="Load failed" model=/blobs/sha256-0000 error="model requires more system memory '
            '(41.2 GiB) than is available (25.0 GiB)"',
            source="sched.go:438",
        ),
        ["too-little-ram"],
    ),
    # ollama#5432
    "Ollama, ended": (
        OLLAMA_START
        + ollama(
            'msg="error loading llama server" error="llama runner process no longer running: -1 "',
            "ERROR",
            "sched.go:388",
        ),
        ["load-failed"],
    ),
    # ollama llm/llama_server.go:1640
    "Ollama, error": (
        OLLAMA_START + runner() + HEALTHY + ollama('msg="llama-server completion error" error="EOF"', "ERROR"),
        ["error-lines"],
    ),
    # ollama#6225, #8983
    "Ollama, status": (
        OLLAMA_START + '[GIN] 2026/01/02 - 03:04:05 | 500 |  1.2s |       127.0.0.1 | POST     "/api/generate"\n',
        ["request-refused"],
    ),
    # lmstudio-bug-tracker#417
    "LM Studio, not loaded": (
        "[2026-01-02 03:04:05.678] [error] [LMSInternal][Client=LM Studio][Endpoint=loadModel] Error in channel "
        "handler: Error: Error loading model.\n",
        ["load-failed"],
    ),
    # ollama llm/llama_server.go, completionPromptForRequest
    "Ollama refuses": (
        OLLAMA_START + runner() + HEALTHY + "the prompt is longer than the context length currently available to "
        "the model; shorten the prompt, adjust the context length in settings, or use a model with a longer context "
        "length\n",
        ["request-too-long"],
    ),
    # src/llama-vocab.cpp:2428
    "unknown pre-tokenizer": (
        START + "llama_model_load: error loading model: error loading model vocabulary: unknown pre-tokenizer type: "
        "'kestrel'\nllama_model_load_from_file_impl: failed to load model\n",
        ["unknown-pre-tokenizer"],
    ),
    # ggml/src/ggml-rpc/ggml-rpc.cpp:357
    "RPC server of another version": ("RPC server version mismatch: 99.0.0\n", ["rpc-version"]),
    # src/llama-context.cpp:1841
    "no free cells": (HEALTHY + "decode: failed to find a memory slot for batch of size 44\n", ["no-free-cells"]),
}
