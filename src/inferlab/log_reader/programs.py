"""Which program wrote a log, from any of its lines, its version, and the backends that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from inferlab.log_reader.text import LogText

PROGRAMS = (
    # lmstudio-bug-tracker#297, #874, #914, #1454, #1658
    (
        "lmstudio",
        "LM Studio",
        (
            "[LMSInternal]",
            "[LM STUDIO SERVER]",
            "[LM Studio]",
            "[DEBUG]\n ",  # its date, a line end, then a line of llama.cpp
            "LlamaV4::",
            "No LM Runtime found for model format",
            "Model loading was stopped due to insufficient system resources",
            "Unknown error. Try a different model and/or config",
            "The model has crashed without additional information",
            "Failed to load LLM engine from path",
            "llama.cpp abort:",  # lmstudio-bug-tracker#1074
            "Engine protocol runtime ",  # lmstudio-bug-tracker#2190
            "[DEBUG] PromptProcessing: ",
            "llmworker.js",
            "Failed to load the model\n\n",
        ),
    ),
    # LocalAI#1729; a runner of Ollama writes no such line
    (
        "cli",
        "LocalAI",
        (
            " GRPC Service for ",
            "[llama-cpp] attempting to load",
            "[llama-cpp] Attempting to load",
            "[llama-cpp] Fails: ",
            "could not load model: rpc error",
            ' ERR Server error error="',
            "GRPC Service NOT ready",
            "failed starting/connecting to the gRPC service",
            "all backends returned error",
            " model with internal loader: ",
        ),
    ),
    # textgen modules/llama_cpp_server.py, textgen#7188; before 2025 it loaded llama-cpp-python
    (
        "cli",
        "text-generation-webui",
        (
            "llama-server command-line flags:",
            'INFO     Loading "',
            "Error loading the model with llama.cpp:",
            "Output generated in ",
            "INFO     llama.cpp weights detected",
            "text-generation-webui/installer_files",
            "text-generation-webui\\installer_files",
        ),
    ),
    # ollama#10368
    (
        "ollama",
        "Ollama",
        (
            "source=server.go",
            "source=llama_server.go",
            "source=sched.go",
            "source=routes.go",
            "source=runner.go",
            "source=types.go",
            "source=gpu.go",
            "source=ggml.go",
            "source=device.go",
            "source=memory.go",
            "source=images.go",
            "ollama runner",
            "llama runner process",
            "llama-server process has terminated",
            'msg="starting llama-server"',
            "[GIN] ",
            "Error: listen tcp ",
            "could not connect to ollama",
            "ollama app not responding",
            "ollama serve",
            "pull model manifest: ",
            "model requires more system memory (",
            "github.com/ollama/ollama/",
            "panic: unable to load model: ",
            "panic: unable to create llama context",
            "Error: POST predict: Post ",
            "an error was encountered while running the model",
            "Error: unable to load model: ",
            "check ollama server logs for details",
            "\nprompt eval rate: ",
            "% CPU/GPU  ",
        ),
    ),
    # llama_cpp/llama.py:500, 550, 942, 1346; llama_cpp/_internals.py:54, 266; llama_cpp/_ctypes_extensions.py
    (
        "python",
        "llama-cpp-python",
        (
            "Llama.generate: ",
            "llama-cpp-python",  # the path of a source file in a wheel's build
            "LlamaCpp(",  # LangChain's class, in a traceback
            "llama_cpp_cuda",
            "llama_cpp/lib",
            "llama_cpp/llama",
            "llama_cpp/_",
            "llama_cpp\\llama",
            "llama_cpp\\_",
            "import llama_cpp",
            "from llama_cpp ",
            "Model metadata: {",
            "Available chat formats from metadata: ",
            "Using gguf chat template: ",
            "Using fallback chat format: ",
            "Guessed chat format: ",
            "exceed context window of",
            "Model path does not exist: ",
            "Failed to load shared library",
            "ValueError: Failed to create llama_context",
            "ValueError: Failed to load model from file: ",
        ),
    ),
    # koboldcpp#1590, #2003
    (
        "cli",
        "koboldcpp",
        (
            "KoboldCpp",
            "koboldcpp.py",
            "koboldcpp_",
            "koboldcpp/ggml",
            "koboldcpp\\ggml",
            "gpttype_load_model: ",
            "Could not load text model: ",
            "Processing Prompt (",
            "Processing Prompt [",
            "CtxLimit:",
            "ContextLimit: ",
            "Load Text Model OK: ",
            "Load Model OK: ",
            "Load Embeddings Model OK: ",
            "Embedded Kobold Lite loaded",
            "Starting Kobold API on port",
            "Automatic RoPE Scaling: Using ",
            "Autofit Reserve Space: ",
            "[Context Shifting: Erased ",
            "KV Save State ",
        ),
    ),
    ("cli", "Jan", ("tauri_plugin_llamacpp", "[llamacpp-router std")),  # jan#6628, #8236
    # llama-swap#75, #92, #402, its process.go
    (
        "cli",
        "llama-swap",
        (
            "llama-swap",
            "!!! Health check error: ",
            "swapState() State",
            "Health check error on http",
            "Health check passed on http",
            "process exited but not StateStopping",
            "Process can not ProxyRequest, state is ",
            "upstream process exited unexpectedly",
            "upstream command exited prematurely",
        ),
    ),
    # llamafile/cuda.c, llamafile/log.c
    ("cli", "llamafile", ("llamafile_log_command", "import_cuda_impl: ", "link_cuda_dso: ", "get_rocm_bin_path: ")),
    # ik_llama.cpp#1551
    (
        "cli",
        "ik_llama.cpp",
        (
            "ik_llama",
            "llm_prepare_mla",
            ": mla_attn ",
            ": fused_moe ",
            "======== Prompt cache: cache size",  # its examples/server
            "batch_pending_prompt",
            "ggml/src/iqk/",
        ),
    ),
    # tools/server/server-common.h:26-37, tools/server/server-queue.cpp
    (
        "cli",
        "llama-server",
        (
            "load_model: loading model '",
            "llama_server: ",
            "update_slots",
            "launch_slot_",
            "slot print_timing",
            "slot      release",
            "slot   load_model",
            "slot get_availabl",
            "srv  ",
            "que  ",
            '| tid="',
            "server is listening on http",
            "HTTP server is listening",
            "couldn't bind HTTP server socket",
            "exiting due to model loading error",
            "exiting due to HTTP server error",
            "llama-server: error while loading shared libraries",
        ),
    ),
    (
        "cli",
        "llama.cpp",
        (
            "llama_model_loader: ",
            "llama_context: ",
            "print_info: ",
            "llama_perf_context_print: ",
            "llama_model_load: ",
            "llm_load_print_meta: ",
            "load_tensors: ",
            "ggml_cuda_init: ",
            "gguf_init_from_",
            "ggml_backend_",
            "CUDA error: ",
            "ROCm error: ",
            "GGML_ASSERT(",
            "no usable GPU found",
            "load_backend: ",
            "llama_print_timings: ",
            " ms per token, ",
            "device_info:",
            "Available devices:",
            " MiB free)",
            ", compute capability ",
            " | uma: ",
            "system_info: n_threads",
            " SYCL devices:",
            "error: invalid argument: ",
            "error while handling argument ",
            "libllama.",
            "libggml",
            "libmtmd.",
        ),
    ),
)
"""Key, name, and strings that only that program writes; the most particular program first."""
UNKNOWN_PROGRAM = "unknown"
EMBEDDING = {
    "LocalAI": ": `gpu_layers` is `-ngl`, `context_size` is `-c`",
    "koboldcpp": (
        ": `--gpulayers` is `-ngl`, `--contextsize` is `-c`, `--blasbatchsize` is `-ub`, `--quantkv` sets the types of "
        "the cache, and `--embeddingsmaxctx` is the context of a model for embeddings"
    ),
    "Jan": "",
    "text-generation-webui": (
        ": `--gpu-layers` is `-ngl`, `--ctx-size` is `-c`, and `--cache-type` sets the types of the cache"
    ),
}
"""Programs that set llama.cpp's options under names of their own, with those that fixes need most."""
OF_OLLAMA = re.compile(
    r"level=[A-Z]{4,5} source=\w{1,40}\.go:\d|^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \w{1,40}\.go:\d{1,5}: ", re.MULTILINE
)
"""Any line of Ollama's own log; the second form is of 2023."""
OF_LLAMA = re.compile(
    r"^ {0,8}(?:\d{1,6}\.\d\d\.\d{3}\.\d{3} [IWED] |(?:[IWED] )?"
    r"(?:(?:srv|slot|cmn|que) {1,14}[\w()]{1,20}: "
    r"|(?:ggml|llama|llm|clip|mtmd|common|gguf|kv_cache|graph|sched|llava|set|load|alloc|init|create|reserve)_\w{1,60}:"
    r"|main: (?:error|build|built|load|seed|chat|interactive|server|init|http|binding|model|num|quant|n_kv|ggml)"
    r"|(?:load|decode|encode): (?:control|special|token|printing|setting|unused|failed|cannot|n_ubatch)"
    r"|ggml-hex: |CANN error: |sampler (?:seed|params|chain)|(?:build|version): \d{1,6} \([0-9a-f]{7,12}\)"
    r"|/\S{1,200}/ggml[\w./-]{0,120}:\d{1,6}: |\S{0,200}llama\S{0,60}: error while loading shared libraries: ))",
    re.MULTILINE,
)
"""Lines that begin with llama.cpp's time and level (common/log.cpp), with one of its functions, or with one of its
server's (common/common.h:33, tools/server/server-common.h:26)."""
SHARED_LIBRARY = re.compile(
    r"error while loading shared libraries: "
    r"lib(?:cudart|cublas|cuda|nccl|rocblas|hipblas|amdhip64|vulkan|sycl|mkl|ggml|llama|mtmd)"
)
VERSIONS = {
    "Ollama": ("(version ", re.compile(r"\(version (\d[\w.+-]{0,30})\)")),
    "LM Studio": ("LM Studio ", re.compile(r"LM Studio v?(\d[\w.+-]{0,20})")),
    "koboldcpp": ("KoboldCpp - Version ", re.compile(r"KoboldCpp - Version (\d[\w.+-]{0,20})")),
}
BUILDS = (
    ("build", re.compile(r"build:? (?:= )?(\d{1,8} \([0-9a-f]{6,12}\))(?: with|\s*$)")),
    (
        "version: ",
        re.compile(r"version: (\S{1,20} \(build \d{1,8}, commit [0-9a-f]{6,12}\)|\d{1,8} \([0-9a-f]{6,12}\))"),
    ),
)
"""common/common.cpp:402, before it `build: 4205 (c6bc7395) with` (llama.cpp#11819) and `build = 1610 (23b5e12)`"""
BACKENDS = {
    "CUDA": (
        "CUDA : ",
        "CUDA.0.",
        "loaded CUDA backend",
        "CUDA devices",
        "using device CUDA",
    ),  # ggml-backend-reg.cpp:259
    "ROCm": ("ROCm : ", "ROCm.0.", "loaded ROCm backend", "using device ROCm", "loaded HIP backend", "ROCm devices"),
    "MUSA": ("MUSA : ", "loaded MUSA backend", "using device MUSA", "MUSA devices"),
    "Vulkan": ("loaded Vulkan backend", "ggml_vulkan: ", "using device Vulkan"),
    "Metal": ("Metal : ", "Metal.0.", "ggml_metal_", "loaded Metal backend", "using device Metal", "using device MTL"),
    "SYCL": ("loaded SYCL backend", "using device SYCL", "SYCL devices"),
    "OpenCL": ("loaded OpenCL backend", "ggml_opencl: ", "using device GPUOpenCL"),
    "CANN": ("loaded CANN backend", "using device CANN", "CANN error: "),
    "Hexagon": ("loaded HTP backend", "using device HTP", "ggml-hex: "),
    "WebGPU": ("loaded WebGPU backend", "using device WebGPU", "ggml_webgpu: "),
    "RPC": ("using device RPC", "loaded RPC backend"),
    "CPU": ("CPU : ", "CPU.0.", "loaded CPU backend", "system_info: ", "CPU_Mapped", "CPU_REPACK"),
}
PREFIXES = {"Metal": ("Metal", "MTL"), "OpenCL": ("OpenCL", "GPUOpenCL"), "Hexagon": ("HTP",)}
"""Beginnings of a backend's devices, where its name is none."""


def program_of(log: LogText) -> tuple[str, str]:
    """The key of a program in the table of options, and its name; (cli, unknown) where no line is one's."""
    for key, name, words in PROGRAMS:
        if any(log.has(word) for word in words):
            return key, name
        if name == log.service or (name == "Ollama" and OF_OLLAMA.search(log.text)):
            return key, name
    known = OF_LLAMA.search(log.text) or SHARED_LIBRARY.search(log.text)
    return "cli", "llama.cpp" if known else UNKNOWN_PROGRAM


def version_of(log: LogText, name: str) -> str | None:
    """The version that the program says of itself, the last time that it does."""
    if name not in VERSIONS:
        return None
    needle, pattern = VERSIONS[name]
    said = [match[1] for line in log.lines_with(needle) if (match := pattern.search(line.text))]
    return said[-1] if said else None


def build_of(log: LogText, start: int) -> str | None:
    """llama.cpp's build, near one place."""
    for needle, pattern in BUILDS:
        for line in log.lines_with(needle, start, start + 200_000):
            if match := pattern.search(line.text):
                return match[1]
    return None


def backends_of(log: LogText, start: int, devices: Iterable[str]) -> tuple[str, ...]:
    """Backends that a line from one place on names, and those whose names the devices have."""
    names = tuple(devices)
    return tuple(
        backend
        for backend, words in BACKENDS.items()
        if any(log.has(word, start) for word in words)
        or any(name.startswith(PREFIXES.get(backend, backend)) for name in names)
    )
