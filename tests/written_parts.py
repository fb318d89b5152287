"""Parts of logs, as people paste them, written by hand: each message after its source; names and numbers are invented.

Most begin after the load, or end before it does, and have what a service manager writes before each line.
"""

from written_logs import HEALTHY, OLLAMA_START, ON_CPU, SERVER, ollama, runner

STAMP = "Jan  2 03:04:05 host ollama[4242]: "
"""journalctl"""
OVERFLOW = "GGML_ASSERT(type >= 0 && type < GGML_TYPE_COUNT) failed"
ANSWER = '[GIN] 2026/01/02 - 03:04:09 | 200 |  1.2s |       127.0.0.1 | POST     "/api/chat"\n'
FAILED = ANSWER.replace("| 200 |", "| 500 |")
HALF_IN_RAM = """\
load_tensors: offloaded 41/41 layers to GPU
load_tensors:        SYCL0 model buffer size = 12000.00 MiB
load_tensors:    SYCL_Host model buffer size = 10000.00 MiB
"""
"""src/llama-model.cpp:1924"""
NO_OFFLOAD = """\
load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors:   CPU_Mapped model buffer size =  4096.00 MiB
llama_context: n_ctx         = 8192
llama_kv_cache:        CPU KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
llama_context:        CPU compute buffer size =   300.00 MiB
"""
"""A build without a backend for GPUs, llama.cpp#15946"""
PINNED = """\
llm_load_tensors: offloaded 0/33 layers to GPU
llm_load_tensors:        CPU buffer size =  4096.00 MiB
llama_kv_cache_init: Vulkan_Host KV buffer size =   512.00 MiB
Load Text Model OK: True
"""
"""koboldcpp#666"""
IN_2023 = """\
ggml_init_cublas: found 1 ROCm devices:
  Device 0: AMD Radeon RX 6800, compute capability 10.3
llm_load_tensors: using ROCm for GPU acceleration
llm_load_tensors: mem required  =   88.00 MB
llm_load_tensors: offloaded 35/35 layers to GPU
llm_load_tensors: VRAM used: 3800.00 MB
llama_new_context_with_model: n_ctx      = 4096
llama_kv_cache_init: VRAM kv self = 2048.00 MB
llama_new_context_with_model: kv self size  = 2048.00 MB
llama_new_context_with_model: compute buffer total size = 301.60 MB
llama_new_context_with_model: VRAM scratch buffer: 300.00 MB
"""
"""llama.cpp of November 2023"""
SWAP = (
    "[DEBUG] <kestrel> Health check error on http://localhost:5800/health, status code: 503 (normal during startup)\n"
)
SWAP_EXIT = "[INFO] <kestrel> process exited but not StateStopping, current state: starting\n"
"""llama-swap proxy/process.go"""
ENGINE = (
    "Failed to load LLM engine from path:\n"
    "C:\\Users\\x\\.lmstudio\\extensions\\backends\\llama.cpp-win-x86_64-vulkan-avx2-9.9.9\\llm_engine_vulkan.node\n"
    "The specified module could not be found.\n"
)
LIBRARY = "ggml_backend_load_best: failed to load C:\\Ollama\\lib\\ollama\\ggml-cpu-{}.dll\n"
NO_VALUES = "llama_init_from_model: V cache quantization requires flash_attn\n"
NO_SHIFT = (
    '/go/src/github.com/ollama/ollama/llm/llama.cpp/src/llama.cpp:15000: false && "Deepseek2 does not support K-shift"'
)
SLOW_PROMPT = """\
llama_print_timings: prompt eval time = 90000.00 ms /   900 tokens (  100.00 ms per token)
llama_print_timings:        eval time =  8000.00 ms /    40 runs   (  200.00 ms per token)
"""
"""llama.cpp of 2023"""
TEXTGEN = "01:02:03-456789 ERROR    Error loading the model with llama.cpp: Server process\n"
"""textgen modules/llama_cpp_server.py; Python writes a signal as a number below 0"""
ENDED = TEXTGEN + "                         terminated unexpectedly with exit code: {}\n"
MIN_P = "clip_model_load: failed to seek for tensor v.blk.7.attn_q.bias\n"
"""tools/mtmd/clip.cpp:3656"""
NO_GPU_CODE = 'msg="Dynamic LLM libraries [cpu_avx cpu]"'
POOL_FULL = (
    "CUDA error: out of memory\n"
    "  current device: 0, in function alloc at C:\\a\\ggml\\src\\ggml-cuda\\ggml-cuda.cu:400\n"
)
UNMAPPED = "load_tensors: loading model tensors, this can take a while... (mmap = false)\n"

NO_LAYER = ollama('msg="insufficient VRAM to load any model layers"', "DEBUG", "memory.go:351")
STREAMED = "[2026-01-02 03:04:05][INFO] Finished streaming response\n"
CLIENT_GONE = "[2026-01-02 03:04:05][INFO][LM STUDIO SERVER] Client disconnected. Stopping generation...\n"

LOGS_OF_PARTS = {
    # llama.cpp 74d73dc, examples/server/server.cpp, and 2023's form
    "no cell for one token": (
        SERVER + "srv  update_slots: failed to decode the batch: KV cache is full - try increasing it via the context "
        "size, i = 0, n_batch = 1, ret = 1\n",
        ["cells-used-up"],
    ),
    "no cell for one token, 2023": (
        "update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 1\n"
        "update_slots : failed to decode the batch, n_batch = 1, ret = 1\n",
        ["cells-used-up"],
    ),
    # ollama v0.9.6 llm/memory.go; a plan may fail before another model is unloaded
    "no layer fits": (OLLAMA_START + NO_LAYER, ["no-layer-fits"]),
    "no layer fitted at first": (OLLAMA_START + NO_LAYER + runner() + HEALTHY, []),
    "a client of LM Studio leaves": (CLIENT_GONE, ["client-left"]),
    "a client of LM Studio leaves with its answer": (STREAMED + CLIENT_GONE, []),
    # koboldcpp#1711: what it writes of a prompt has no line end
    "progress before an error": (f"Processing Prompt [BLAS] (256 / 9000 tokens){POOL_FULL}", ["out-of-memory"]),
    "dots before an error": (f".............{POOL_FULL}", ["out-of-memory"]),
    # textgen#7188
    "signal 4": (ENDED.format(-4), ["illegal-instruction"]),
    "signal 9": (ENDED.format(-9), ["killed"]),
    "signal 11": (ENDED.format(-11), ["crashed"]),
    "a code of Windows": ("The model has crashed. (Exit code: 3221225501)\n", ["illegal-instruction"]),
    "no signal": (ENDED.format(1), ["load-failed"]),
    # llama.cpp#18473, #18198
    "read into a GPU": (
        UNMAPPED + "llama_model_load: error loading model: read error: Bad address\n",
        ["direct-io-failed"],
    ),
    "read from a disk": (
        UNMAPPED + "llama_model_load: error loading model: read error: Input/output error\n",
        ["read-failed"],
    ),
    "projector cut off": (
        MIN_P + "gpttype_load_model: error: failed to load mmproj model!\n",
        ["projector-not-loaded"],
    ),
    "a model of koboldcpp": (
        "gpttype_load_model: error: the file is of an unknown kind\nLoad Text Model OK: False\n",
        ["load-failed"],
    ),
    "a GGUF and an old program": (
        "error loading model: unknown (magic, version) combination: 46554747, 00000003; is this really a GGML file?\n",
        ["program-before-gguf"],
    ),
    "an old file": (
        "error loading model: unknown (magic, version) combination: 67676a74, 00000004; is this really a GGML file?\n",
        ["ggml-file"],
    ),
    # lmstudio-bug-tracker#1202
    "LM Studio's guardrail": (
        "Error: Model loading was stopped due to insufficient system resources. Under the current settings, this "
        "model requires approximately 99.50 GB of memory, and continuing to load it would likely overload it.\n",
        ["guardrail"],
    ),
    # ollama v0.12.3 llm/server.go:1537, cmd/cmd.go:680
    "Ollama's command, and no runner": (
        "Error: an error was encountered while running the model: unexpected EOF\n",
        ["runner-gone"],
    ),
    "ollama ps": (
        "NAME        ID    SIZE     PROCESSOR         UNTIL\nkestrel:7b  a1b2  9.9 GB   31%/69% CPU/GPU   4 minutes\n",
        ["ollama-ps-in-ram"],
    ),
    # Jan's tauri-plugin-llamacpp, src/commands.rs
    "Jan's server ended": (
        "[2026-01-02][03:04:05][tauri_plugin_llamacpp::commands][ERROR] "
        "llama.cpp exited early with code ExitStatus(ExitStatus(3221225781))\n",
        ["crashed"],
    ),
    # lmstudio-bug-tracker#1925
    "no runtime": ("Failed to load model\nNo LM Runtime found for model format 'gguf'!\n", ["no-runtime"]),
    # LocalAI#2120, #950
    "LocalAI lost a backend": (
        '1:02PM ERR Server error error="rpc error: code = Unavailable desc = error reading from server: EOF" '
        "latency=9.9s method=POST status=500 url=/v1/chat/completions\n",
        ["localai-backend-ended"],
    ),
    "LocalAI lost a backend, and why": (
        "1:02PM DBG GRPC(model-127.0.0.1:4242): stderr CUDA error: out of memory\n"
        '1:02PM ERR Server error error="rpc error: code = Unavailable desc = error reading from server: EOF"\n',
        ["out-of-memory"],
    ),
    "no backend of LocalAI": (
        '1:02PM ERR Server error error="could not load model - all backends returned error: [llama-cpp]: "\n',
        ["load-failed"],
    ),
    # llama-cpp-python of 2023
    "no model in Python": (
        'Traceback (most recent call last):\n  File "/x/llama_cpp/llama.py", line 9, in __init__\n'
        "    assert self.model is not None\nAssertionError\n",
        ["python-model-missing"],
    ),
    # NixOS/nixpkgs#291217, ollama#8532
    "Ollama without code for GPUs": (
        OLLAMA_START + ollama(NO_GPU_CODE) + ollama('msg="no GPU detected"', source="routes.go:1044"),
        ["ollama-without-gpu-code"],
    ),
    "Ollama without code for GPUs, 0.5": (
        OLLAMA_START + ollama('msg="Dynamic LLM libraries" runners=[cpu]'),
        ["ollama-without-gpu-code"],
    ),
    "Ollama with code for GPUs": (
        OLLAMA_START + ollama('msg="Dynamic LLM libraries" runners="[cpu cuda_v12 rocm]"'),
        [],
    ),
    "no GPU in 2024": (
        "2024/01/02 03:04:05 routes.go:930: Listening on [::]:11434 (version 0.1.20)\n"
        "2024/01/02 03:04:05 shim_ext_server.go:142: Dynamic LLM variants [cuda]\n"
        "2024/01/02 03:04:05 routes.go:953: no GPU detected\n",
        ["ollama-found-no-gpu"],
    ),
    "no layer for a GPU": (
        "load_tensors: offloading 0 repeating layers to GPU\nload_tensors: offloaded 0/33 layers to GPU\n"
        "load_tensors:   CPU_Mapped model buffer size =  4096.00 MiB\n",
        ["no-layer-offloaded"],
    ),
    # tools/server/server-context.cpp:1174, 3215
    "parts are not reused": (
        "slot update_slots: id  0 | task 7 | cache reuse is not supported - ignoring n_cache_reuse = 64\n",
        ["part-reuse-ignored"],
    ),
    "a prompt read slowly": (SLOW_PROMPT, ["slow-requests"]),
    "a prompt read in time": (SLOW_PROMPT.replace("90000.00", " 9000.00"), []),
    # llama_cpp/_ctypes_extensions.py
    "library in a traceback": (
        "    raise RuntimeError(f\"Failed to load shared library '{_lib_path}': {e}\")\n"
        "RuntimeError: Failed to load shared library 'C:\\x\\llama.dll': Could not find module 'C:\\x\\llama.dll' "
        "(or one of its dependencies). Try using the full path with constructor syntax.\n",
        ["missing-library"],
    ),
    # ollama#13325, rknn-llm#191
    "type that the library lacks": (
        f"ggml.c:1500: {OVERFLOW}\n"
        + ollama(f'msg="error loading llama server" error="llama runner process has terminated: {OVERFLOW}"', "ERROR"),
        ["type-not-in-library"],
    ),
    "type that the library lacks, 2024": (
        "GGML_ASSERT: 0 <= info->type && info->type < GGML_TYPE_COUNT\n",
        ["type-not-in-library"],
    ),
    # ollama#6139, llama.cpp#10380; src/llama-kv-cache.cpp:859
    "cache that cannot be shifted": (f"GGML_ASSERT: {NO_SHIFT}\n", ["shift-impossible"]),
    "cache that cannot be shifted, 2025": (
        "/build/src/llama-kv-cache.cpp:859: The current KV cache / model configuration does not support K-shift\n",
        ["shift-impossible"],
    ),
    # lmstudio-bug-tracker#1074, #2190
    "LM Studio's crash": (
        "[2026-01-02 03:04:05][DEBUG] PromptProcessing: 17.5\n"
        "[2026-01-02 03:04:05][DEBUG] llama.cpp abort:1800: GGML_ASSERT(n_tokens > 0) failed\n",
        ["assertion"],
    ),
    "LM Studio's crash, other words": (
        "[2026-01-02 03:04:05][DEBUG] llama.cpp abort:77: the tensor was lost\n",
        ["assertion"],
    ),
    "LM Studio's server": (
        "Failed to load the model\nEngine protocol runtime llama-server for xYz exited before becoming healthy. "
        "exitCode=1, signal=null\n",
        ["load-failed"],
    ),
    # lmstudio-bug-tracker#711, #1658
    "runtime of LM Studio": (ENGINE, ["engine-not-loaded"]),
    # llama-swap#789
    "llama-swap stopped it": (
        SWAP + "[DEBUG] <kestrel> cmd.Wait() returned error: signal: terminated\n" + SWAP_EXIT,
        ["swap-stopped"],
    ),
    "llama-swap, exited": (
        "[WARN] <kestrel> upstream process exited unexpectedly\n",
        ["swap-stopped"],
    ),
    "llama-swap, loaded after it": (
        SWAP_EXIT + "[INFO] <kestrel> Health check passed on http://localhost:5800/health\n",
        [],
    ),
    # ggml/src/ggml-backend-reg.cpp:531, ollama#9517
    "no code for the processor": (
        ollama('msg="starting go runner"') + LIBRARY.format("haswell") + LIBRARY.format("alderlake"),
        ["cpu-code-not-loaded"],
    ),
    "one code for the processor": (
        LIBRARY.format("icelake")
        + "load_backend: loaded CPU backend from C:\\Ollama\\lib\\ollama\\ggml-cpu-haswell.dll\n",
        [],
    ),
    # ollama server/routes.go:2058
    "no memory of a GPU": (
        ollama('msg="vram-based default context" total_vram="0 B" default_num_ctx=4096', source="routes.go:2058"),
        ["ollama-found-no-gpu"],
    ),
    "memory of a GPU": (
        ollama('msg="vram-based default context" total_vram="31.0 GiB" default_num_ctx=32768', source="routes.go:2058"),
        [],
    ),
    # ollama v0.9.6 discover/gpu_info_nvcuda.c:226, server/sched.go:687, llm/server.go:464
    "memory that does not come back": (
        "cuda driver library failed to get device context 2\n"
        + ollama('msg="llama runner terminated" error="signal: killed"', "ERROR", "server.go:464")
        + ollama('msg="gpu VRAM usage didn\'t recover within timeout" seconds=5.2', "WARN", "sched.go:687"),
        ["gpu-memory-not-read", "vram-not-recovered"],
    ),
    # ollama v0.9.6 llm/server.go:464
    "runner killed at work": (
        OLLAMA_START
        + ollama('msg="llama runner terminated" error="signal: killed"', "ERROR", "server.go:464")
        + FAILED,
        ["runner-killed"],
    ),
    "runner unloaded": (
        OLLAMA_START
        + ANSWER
        + ollama('msg="llama runner terminated" error="signal: killed"', "ERROR", "server.go:464"),
        [],
    ),
    "half of the weights in RAM": (HALF_IN_RAM, ["experts-on-cpu"]),
    "build without GPUs": (NO_OFFLOAD, ["no-gpu-offered"]),
    "no layer on a GPU that is there": (PINNED, ["no-layer-asked"]),
    # ollama#15043
    "flash attention refused": (
        f"{STAMP}llama_init_from_model: flash_attn is not compatible with Kestrel - forcing off\n{STAMP}{NO_VALUES}",
        ["quantized-values"],
    ),
    "model pulled after all": (
        OLLAMA_START
        + ollama("msg=\"model 'kestrel' not found, try pulling it first\"", "ERROR", "routes.go:2100")
        + ANSWER,
        ["model-not-found"],
    ),
    "model loaded after all": (
        "[LM STUDIO SERVER] (404): No models loaded. Please load a model in the developer page\n"
        "[LM STUDIO SERVER] Finished streaming response\n",
        ["no-model-loaded"],
    ),
    "32-bit build": (
        "main: built with cc (GCC) 14.1.0 for i686-w64-mingw32\n"
        "llama_model_load: error loading model: tensor 'x.weight' data is not within the file bounds, model is "
        "corrupted or incomplete\n",
        ["incomplete-file"],
    ),
    "template of Ollama": (
        "common_chat_templates_init: failed to parse chat template (defaulting to chatml): Failed to parse number\n"
        "{{- if .System }}{{ .System }}{{ end }}\n",
        ["template-fallback"],
    ),
    "RAM for the computation": (
        "ggml_gallocr_reserve_n: failed to allocate CPU buffer of size 99000000000\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n",
        ["compute-does-not-fit"],
    ),
    "mapping refused": (
        "llama_model_load: error loading model: mmap failed: Cannot allocate memory\n",
        ["ram-does-not-suffice"],
    ),
    "2023": (IN_2023, []),
    "processor only": (ON_CPU, []),
}
"""A part of a log -> the rules that find something in it."""
