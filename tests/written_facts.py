"""Logs written by hand for what the reader reads: each message after the source that its entry names.

Names and numbers are invented, and consistent. Versions of Ollama are those of its tags.
"""

from written_logs import MODEL, START, TIMINGS, card, context, ollama, weights

SEARCHED = ollama(
    'msg="inference compute" id=GPU-0 filter_id="" library=CUDA compute=8.6 name=CUDA0 '
    'description="NVIDIA GeForce RTX 3060" libdirs=ollama,cuda_v13 driver=13.0 pci_id=0000:01:00.0 type=discrete '
    'total="12.0 GiB" available="11.2 GiB"',
    source="types.go:42",
)
"""v0.13 discover/types.go:42"""
STARTED = ollama('msg="starting runner" cmd="ollama runner --model blobs/sha256-0000 --port 40000"')
ASKED = ollama(
    'msg=load request="{Operation:commit LoraPath:[] Parallel:2 BatchSize:512 FlashAttention:Enabled KvSize:8192 '
    "KvCacheType:q8_0 NumThreads:6 GPULayers:33[ID:GPU-0 Layers:33(0..32)] MultiUserCache:false ProjectorPath: "
    'MainGPU:0 UseMmap:true}"',
    source="runner.go:895",
)
"""v0.13 llm/server.go:469, runner/llamarunner/runner.go:895"""


def plan(device, weights_gib=4.0):
    """v0.13 ml/device.go:240-272"""
    sizes = (("model weights", f"{weights_gib} GiB"), ("kv cache", "512.0 MiB"), ("compute graph", "110.0 MiB"))
    return "".join(
        ollama(f'msg="{what}" device={device} size="{size}"', source="device.go:240") for what, size in sizes
    )


PLANNED = SEARCHED + STARTED + plan("CUDA0") + card() + MODEL + weights() + context(8192) + TIMINGS
"""The plan of Ollama stands before the buffers of llama.cpp, v0.12 to v0.24."""
ON_A_MAC = (
    STARTED
    + plan("Metal")
    + "llama_model_load_from_file_impl: using device Metal (Apple M9) (unknown id) - 12123 MiB free\n"
    + MODEL
    + weights().replace("CUDA0 model", "Metal_Mapped model")
    + context(device="Metal").replace("Metal_Host", "CPU")
    + TIMINGS
)
"""ggml/src/ggml-metal/ggml-metal.cpp:458, before 2026 without a number; src/llama-model.cpp:1930"""
OWN_ENGINE = "".join(
    ollama(f'msg="{what}" {where}', source="ggml.go:365")
    for what, where in (
        ("", 'architecture=gemma3 file_type=Q8_0 name="" description="" num_tensors=585 num_key_values=43'),
        ("offloading 30 repeating layers to GPU", ""),
        ("offloading output layer to CPU", ""),
        ("offloaded 30/41 layers to GPU", ""),
        ("model weights", 'buffer=CUDA0 size="17.5 GiB"'),
        ("model weights", 'buffer=CPU size="6.6 GiB"'),
        ("compute graph", 'backend=CUDA0 buffer_type=CUDA0 size="300.0 MiB"'),
        ("compute graph", 'backend=CPU buffer_type=CUDA_Host size="10.0 MiB"'),
    )
)
"""v0.9 ml/backend/ggml/ggml.go:92, 359-377, 666"""
READ_AGAIN = MODEL + "print_info: vocab_only            = 1\nllama_model_load: vocab only - skipping tensors\n"
"""src/llama.cpp:365; Ollama 0.5 reads the vocabulary once more after a load"""

OLD_VULKAN = """\
ggml_vulkan: Found 1 Vulkan devices:
Vulkan0: Intel(R) Xe Graphics (ADL GT2) (Intel open-source Mesa driver) | uma: 1 | fp16: 1 | warp size: 32
llama_model_loader: loaded meta data with 26 key-value pairs and 291 tensors from model.gguf (version GGUF V3 (latest))
llm_load_print_meta: arch             = qwen2
llm_load_print_meta: n_layer          = 28
llm_load_print_meta: model size       = 7.00 GiB (8.50 BPW)
llm_load_tensors: offloading 28 repeating layers to GPU
llm_load_tensors: offloaded 29/29 layers to GPU
llm_load_tensors:        CPU buffer size =   552.23 MiB
llm_load_tensors: Intel(R) Xe Graphics (ADL GT2) buffer size =  6615.77 MiB
llama_new_context_with_model: n_ctx      = 4096
llama_kv_cache_init: Intel(R) Xe Graphics (ADL GT2) KV buffer size =   224.00 MiB
llama_new_context_with_model: Vulkan_Host  output buffer size =     0.58 MiB
llama_new_context_with_model: Intel(R) Xe Graphics (ADL GT2) compute buffer size =   304.00 MiB
llama_new_context_with_model: Vulkan_Host compute buffer size =    15.01 MiB
"""
"""llama.cpp of 2024: buffers have the GPU's description for a name (llama.cpp#7872)"""

HYBRID = MODEL.replace("n_layer               = 32", "n_layer               = 40")
RECURRENT = "llama_memory_recurrent: {} RS buffer size = {:8.2f} MiB\n"
"""src/llama-memory-recurrent.cpp:124"""
CACHED_TENTH = context().replace(" 32 layers", " 10 layers")
HYBRID_ON_ONE = START + card() + HYBRID + weights(layers="41/41") + RECURRENT.format("CUDA0", 62.5) + CACHED_TENTH
TWO_CARDS = CACHED_TENTH.replace(
    "llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB\n",
    "llama_kv_cache:      CUDA0 KV buffer size =   358.40 MiB\n"
    "llama_kv_cache:      CUDA1 KV buffer size =   153.60 MiB\n",
)
SECOND_CARD = "load_tensors:        CUDA1 model buffer size =  1000.00 MiB\n"
HYBRID_ON_TWO = START + card() + card("CUDA1") + HYBRID + weights(layers="41/41") + SECOND_CARD + TWO_CARDS

PROJECTOR = """\
clip_ctx: CLIP using CUDA0 backend
reserve_compute_meta:      CUDA0 compute buffer size =   240.00 MiB
reserve_compute_meta:        CPU compute buffer size =    16.00 MiB
"""
"""tools/mtmd/clip.cpp:202, 3815"""
LISTED = """\
0.00.050.000 I cmn  common_param: device_info:
0.00.050.100 I cmn  common_param:   - CUDA0   : NVIDIA GeForce RTX 3060 (12036 MiB, 11000 MiB free)
0.00.050.200 I cmn  common_param:   - Vulkan0 : AMD Radeon Graphics (RADV X) (16384 MiB, 15000 MiB free)
0.00.050.300 I cmn  common_param:   - CPU     : A processor (32000 MiB, 32000 MiB free)
"""
"""common/common.cpp:409"""
TABLE = """\
common_memory_breakdown_print: | memory breakdown [MiB]  | total    free    self   model   context   compute    unaccounted |
common_memory_breakdown_print: |   - CUDA0 (RTX 3060)    | 12036 = 5000 + ( 6236 =  4095 +    2037 +     104) +         800 |
common_memory_breakdown_print: |   - Host                |                    96 =    72 +       0 +      24                |
"""  # noqa: E501
"""common/fit.cpp:920"""

DEVICES = {
    # name: (lines, the devices: name, description, GiB in all, used, software, part of RAM)
    "used, name with blanks": (
        card("Vulkan0").replace("NVIDIA GeForce RTX 3060", "Intel(R) Xe Graphics (ADL GT2)"),
        [("Vulkan0", "Intel(R) Xe Graphics (ADL GT2)", None, True, False, False)],
    ),
    "used, 2024": (
        "llama_load_model_from_file: using device CUDA0 (NVIDIA GeForce RTX 3060) - 11000 MiB free\n",
        [("CUDA0", "NVIDIA GeForce RTX 3060", None, True, False, False)],
    ),
    "listed": (
        LISTED,
        [
            ("CUDA0", "NVIDIA GeForce RTX 3060", 12036 / 1024, False, False, False),
            ("Vulkan0", "AMD Radeon Graphics (RADV X)", 16, False, False, False),
        ],
    ),
    # common/arg.cpp:1153
    "--list-devices": (
        "Available devices:\n  ROCm0: AMD Radeon RX 7800 XT (16368 MiB, 16000 MiB free)\n",
        [("ROCm0", "AMD Radeon RX 7800 XT", 16368 / 1024, False, False, False)],
    ),
    # ggml/src/ggml-cuda/ggml-cuda.cu:267, 345
    "CUDA": (
        "ggml_cuda_init: found 1 CUDA devices (Total VRAM: 12036 MiB):\n"
        "  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes, VRAM: 12288 MiB\n",
        [("CUDA0", "NVIDIA GeForce RTX 3060", 12, False, False, False)],
    ),
    "CUDA, 2024": (
        "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: Tesla P40, compute capability 6.1, VMM: yes\n"
        "  Device 1: Tesla P40, compute capability 6.1, VMM: yes\n",
        [(f"CUDA{n}", "Tesla P40", None, False, False, False) for n in (0, 1)],
    ),
    # ggml/src/ggml-cuda/ggml-cuda.cu:331
    "ROCm": (
        "ggml_cuda_init: found 1 ROCm devices (Total VRAM: 16368 MiB):\n"
        "  Device 0: AMD Radeon RX 7800 XT, gfx1101 (0x1101), VMM: no, Wave Size: 32, VRAM: 16384 MiB\n",
        [("ROCm0", "AMD Radeon RX 7800 XT", 16, False, False, False)],
    ),
    # ggml/src/ggml-vulkan/ggml-vulkan.cpp:5157
    "Vulkan": (
        "ggml_vulkan: 0 = AMD Radeon 780M (RADV PHOENIX) (radv) | uma: 1 | fp16: 1 | bf16: 0 | warp size: 64 | \n"
        "ggml_vulkan: 1 = llvmpipe (LLVM 20.1.2, 256 bits) (llvmpipe) | uma: 0 | fp16: 1 | warp size: 8 | \n",
        [
            ("Vulkan0", "AMD Radeon 780M (RADV PHOENIX)", None, False, False, True),
            ("Vulkan1", "llvmpipe (LLVM 20.1.2, 256 bits)", None, False, True, False),
        ],
    ),
    # ggml/src/ggml-sycl/ggml-sycl.cpp:242
    "SYCL": (
        "Found 2 SYCL devices:\n"
        "| 0| [level_zero:gpu:0]|       Intel Arc A770 Graphics|  12.55|    512|    1024|   32| 16225M|  1.6.3|\n"
        "| 1|     [opencl:cpu:0]|                   A processor|    3.0|      8|    8192|   64| 32000M|    2.1|\n",
        [("SYCL0", "Intel Arc A770 Graphics", 16225e6 / 1024**3, False, False, False)],
    ),
    # llama.cpp#5513
    "SYCL, 2024": (
        "found 2 SYCL devices:\n  Device 0: Intel(R) Arc(TM) A770 Graphics,\tcompute capability 1.3,\n"
        "  Device 1: A 12-core Processor,\tcompute capability 3.0,\n",
        [("SYCL0", "Intel(R) Arc(TM) A770 Graphics", None, False, False, False)],
    ),
    # ggml/src/ggml-opencl/ggml-opencl.cpp:6459, 6508
    "OpenCL": (
        "ggml_opencl: selected platform: 'QUALCOMM Snapdragon(TM)'\n"
        "ggml_opencl: device: 'QUALCOMM Adreno(TM) 830 (OpenCL 3.0 Adreno(TM) 830)'\n"
        "ggml_opencl: OpenCL device: QUALCOMM Adreno(TM) 830\n"
        "ggml_opencl: device FP16 support: true\n",
        [("GPUOpenCL", "QUALCOMM Adreno(TM) 830", None, False, False, False)],
    ),
    # ggml/src/ggml-metal/ggml-metal-device.m:1323, 1364, ggml-metal-context.m:105
    "Metal": (
        "ggml_metal_device_init: GPU name:   MTL0 (Apple M9)\n"
        "ggml_metal_device_init: recommendedMaxWorkingSetSize  = 12713.12 MB\n"
        "ggml_metal_init: picking default device: Apple M9\n",
        [("MTL0", "Apple M9", 12713.12e6 / 1024**3, False, False, True)],
    ),
    "Metal, 2024": (
        "ggml_metal_init: found device: Apple M9\nggml_metal_init: GPU name:   Apple M9\n",
        [("Metal", "Apple M9", None, False, False, True)],
    ),
    "the table of memory": (TABLE, [("CUDA0", "RTX 3060", 12036 / 1024, True, False, False)]),
    # common/fit.cpp:345
    "-fit": (
        "common_params_fit_impl:   - CUDA0 (NVIDIA GeForce RTX 3060):  12288 total,   9000 used,   2000 free vs. "
        "target of   1024\n",
        [("CUDA0", "NVIDIA GeForce RTX 3060", 12, True, False, False)],
    ),
    "Ollama": (SEARCHED, [("CUDA0", "NVIDIA GeForce RTX 3060", 12, False, False, False)]),
    # v0.6 discover/types.go:130
    "Ollama, 2025": (
        ollama(
            'msg="inference compute" id=GPU-0 library=rocm variant="" compute=gfx1101 driver=6.3 name=1002:747e '
            'total="16.0 GiB" available="15.5 GiB"'
        ),
        [("ROCm0", "1002:747e", 16, False, False, False)],
    ),
    "no GPU": ("0.00.050.100 I   - CPU     : A processor (32000 MiB, 32000 MiB free)\n", []),
}

FRAGMENTS = {
    # program: lines of which each alone is one of it
    "Ollama": (
        ollama('msg="looking for compatible GPUs"', source="gpu.go:217"),
        ollama(
            'msg="old CUDA driver detected - please upgrade to a newer driver" version=0.0', "WARN", "cuda_common.go:65"
        ),
        ollama('msg="amdgpu is supported" gpu=0 gpu_type=gfx1101', source="amd_linux.go:386"),
        ollama('msg="downloading 0000 in 16 100 MB part(s)"', source="download.go:177"),
        "2023/12/01 10:00:00 images.go:737: total blobs: 5\n",
        "Error: listen tcp 192.0.2.1:11434: bind: cannot assign requested address\n",
        '[GIN] 2026/01/02 - 03:04:05 | 200 |      30.1µs |       127.0.0.1 | GET      "/api/tags"\n',
    ),
    # lmstudio-bug-tracker#297, #874, #1658
    "LM Studio": (
        "Error loading model.\n(Exit code: 1). Unknown error. Try a different model and/or config.\n",
        "2026-01-02 03:04:05 [DEBUG]\n [LM Studio] GPU Configuration:\n  Strategy: evenly\n",
        "Failed to load LLM engine from path: /extensions/backends/llm_engine.node\n",
    ),
    # llama_cpp/_internals.py:54, llama_cpp/_ctypes_extensions.py
    "llama-cpp-python": (
        '  File "/venv/lib/python3.12/site-packages/llama_cpp/llama.py", line 374, in __init__\n',
        "ValueError: Model path does not exist: model.gguf\n",
    ),
    # tools/server/server-common.h:26-37
    "llama-server": (
        "srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200\n",
        "slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = -1\n",
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n",
        "./llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file\n",
    ),
    "llama.cpp": (
        "0.53.840.862 I cmn          init: llama threadpool init, n_threads = 2\n",
        "ggml_vulkan: No devices found.\n",
        "ggml_opencl: device FP16 support: true\n",
        "ggml_metal_init: allocating\n",
        "ggml-hex: Hexagon Arch version v79\n",
        "clip_model_loader: n_tensors:    334\n",
        "mtmd_init_from_file: error: mismatch between text model (n_embd = 5120) and mmproj (n_embd = 2048)\n",
        "common_chat_templates_init: failed to parse chat template (defaulting to chatml)\n",
        "error: invalid argument: --flashattn\n",
        "main: error: unable to load model\n",
        "load: special tokens cache size = 22\n",
        "decode: failed to find a memory slot for batch of size 2048\n",
        "llama-cli: error while loading shared libraries: libcublas.so.12: cannot open shared object file\n",
        "/src/ggml/src/ggml-cuda/ggml-cuda.cu:100: CUDA error\n",
    ),
    "koboldcpp": ("Welcome to KoboldCpp - Version 1.108\n",),  # koboldcpp#2003
    "Jan": (  # jan#6628
        "[2026-01-02][03:04:05][tauri_plugin_llamacpp::commands][INFO] Load model command called\n",
    ),
    "LocalAI": ("3:44PM DBG GRPC Service for model will be running at: '127.0.0.1:36827'\n",),  # LocalAI#1729
    "llama-swap": ("!!! Health check error: status code: 503\n",),  # llama-swap#75
}

LOGS_OF_FACTS = {
    # name: (log, the rules that find something, the most important first)
    "Ollama's plan beside llama.cpp's buffers": (PLANNED, []),
    "Ollama's plan on a Mac": (ON_A_MAC, []),
    "Ollama's own engine, cut": (OWN_ENGINE, ["layers-on-cpu"]),
    "Ollama reads the vocabulary again": (STARTED + card() + MODEL + weights() + context() + READ_AGAIN, []),
    "hybrid model on one card": (HYBRID_ON_ONE, []),
}
