"""Logs written by hand of what costs speed: devices, attention, reuse and drafts; each message after the named source.

llama.cpp's lines follow the pinned version (0c1e57098) where no other one is named. Names and numbers are invented.
"""

from written_logs import MODEL, OLLAMA_START, READY, SERVER, START, card, context, ollama, runner, weights

DENSE = MODEL + "print_info: n_embd                = 4096\nprint_info: n_vocab               = 32000\n"
"""src/llama-model.cpp:2074, src/llama-vocab.cpp:3903"""
GPU_LOAD = START + card() + DENSE + weights()


def splits(pp, tg):
    """src/llama-context.cpp:754"""
    return (
        f"sched_reserve: graph (pp bs=512, tg bs=1): nodes = 1126 / 1126, splits = {pp} / {tg}, "
        "input objects = 6 / 6, input tensors = 8 / 8\n"
    )


def splits_2025(pp, tg):
    """llama.cpp b6000, src/llama-context.cpp"""
    return f"llama_context: graph nodes  = 1126\nllama_context: graph splits = {pp} (with bs=512), {tg} (with bs=1)\n"


def vulkan(number, name, uma, driver="radv"):
    """ggml/src/ggml-vulkan/ggml-vulkan.cpp:5157"""
    return (
        f"ggml_vulkan: {number} = {name} ({driver}) | uma: {uma} | fp16: 1 | bf16: 0 | fp4: 0 | warp size: 32 | "
        "shared memory: 65536 | int dot: 0 | matrix cores: none\n"
    )


def on_vulkan(device="Vulkan0", name="AMD Radeon RX 6700", free=11000):
    place = f"{device} ({name}) (0000:03:00.0)"
    used = f"llama_prepare_model_devices: using device {place} - {free} MiB free\n"
    return used + MODEL + weights().replace("  CUDA0", device.rjust(7)) + context(device=device)


SOFTWARE = "ggml_vulkan: Found 1 Vulkan devices:\n" + vulkan(0, "llvmpipe (LLVM 20.1.2, 256 bits)", 0, "llvmpipe")
VULKAN_2024 = (
    "ggml_vulkan: Found 1 Vulkan devices:\n"
    "Vulkan0: Intel(R) HD Graphics 4444 (Intel Corporation) | uma: 1 | fp16: 1 | warp size: 32\n"
)
"""llama.cpp#9716"""
OLD_MODEL = MODEL.replace("print_info", "llm_load_print_meta")
OLD_IN_RAM = (
    "llm_load_tensors: offloading 0 repeating layers to GPU\nllm_load_tensors: offloaded 0/33 layers to GPU\n"
    "llm_load_tensors:        CPU buffer size =  4165.37 MiB\n"
)
OLD_ON_GPU = (
    "llm_load_tensors: offloaded 33/33 layers to GPU\nllm_load_tensors:        CPU buffer size =    72.00 MiB\n"
    "llm_load_tensors: Intel(R) HD Graphics 4444 buffer size =  4095.05 MiB\n"
)
IN_RAM = weights(0, 4167.0) + context(device="CPU")


def moved(device, what="Flash Attention"):
    """src/llama-context.cpp:539"""
    return (
        f"resolve_fused_ops: layer 0 is assigned to device CUDA0 but {what} is assigned to device {device} "
        "(usually due to missing support)\nresolve_fused_ops: Flash Attention not supported, set to disabled\n"
    )


OVERRIDDEN = "tensor blk.3.ffn_up.weight (48 MiB q4_K) buffer type overridden to CPU\n"
"""src/llama-model-loader.cpp:1253"""


def slot(number, task, text, name="update_slots"):
    return f"slot {name:>12}: id  {number} | task {task} | {text}\n"


def request(number, task, tokens, cached=0):
    """tools/server/server-context.cpp:1611, 3126, 3460 and the end of a request"""
    return (
        slot(number, -1, "selected slot by LRU, t_last = -1", "get_availabl")
        + slot(number, task, f"new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {tokens}")
        + slot(number, task, f"cached n_tokens = {cached}, memory_seq_rm [{cached}, end)")
        + slot(number, task, f"stop processing: n_tokens = {tokens + 50}, truncated = 0", "release")
    )


def answer(tokens, seconds):
    """tools/server/server-context.cpp:618"""
    ms = 1000 * seconds
    each = f"({ms / tokens:8.2f} ms per token, {tokens / seconds:8.2f} tokens per second)"
    return slot(0, 0, f"       eval time = {ms:10.2f} ms / {tokens:5} tokens {each}", "print_timing")


def drafted(accepted, generated, drafting=None, calls=1):
    """tools/server/server-context.cpp:647, common/speculative.cpp:2967"""
    shares = f"draft acceptance = {accepted / generated:.5f} ({accepted:5} accepted / {generated:5} generated)"
    lines = slot(0, 0, f"{shares}, mean len =  2.50", "print_timing")
    if drafting is None:
        return lines
    return lines + (
        f"statistics     draft-simple: #calls(b,g,a) = {calls:4}    143    143, #gen drafts =    143, "
        f"#acc drafts =   100, #gen tokens = {generated:6}, #acc tokens = {accepted:5}, #mean acc len = 2.50, "
        f"#acc rate/pos = (0.700), dur(b,g,a) = 0.001, {1000 * drafting:.3f}, 0.077 ms\n"
    )


def cache_state(n, size, limit, rest=""):
    """tools/server/server-task.cpp:1894"""
    limits = f"(limits: {limit:.3f} MiB, 8192 tokens, 8192 est)"
    return f"srv        update:  - cache state: {n} prompts, {size:.3f} MiB {limits}\n{rest}"


def device_info(ram_free):
    """common/common.cpp:409"""
    return f"device_info:\n  - CPU     : Example CPU (64000 MiB, {ram_free} MiB free)\n"


def checkpoint(size, most=32):
    """tools/server/server-context.cpp:2350"""
    text = f"created context checkpoint 1 of {most} (pos_min = 0, pos_max = 511, n_tokens = 512, size = {size:.3f} MiB)"
    return slot(0, 3, text, "create_check")


def found_none(*lines):
    return OLLAMA_START + "".join(lines) + ollama('msg="no compatible GPUs were discovered"', source="gpu.go:377")


def load_of(model):
    return runner().replace("sha256-0000", model)


LOGS_OF_SPEED = {
    "only a software driver": (SOFTWARE, ["software-gpu"]),
    "weights on a software driver": (
        START + SOFTWARE + on_vulkan(name="llvmpipe (LLVM 20.1.2, 256 bits)"),
        ["software-gpu"],
    ),
    "no Vulkan device": (START + "ggml_vulkan: No devices found.\n" + MODEL + IN_RAM, ["no-vulkan-device"]),
    "integrated GPU beside a card": (
        START
        + vulkan(0, "AMD Radeon 780M Graphics", 1)
        + vulkan(1, "AMD Radeon RX 6700", 0)
        + on_vulkan(name="AMD Radeon 780M Graphics"),
        ["integrated-gpu"],
    ),
    "integrated GPU alone": (START + vulkan(0, "AMD Radeon 780M Graphics", 1) + on_vulkan(free=2000), []),
    "no ROCm device": (
        START + "ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected\n" + MODEL + IN_RAM,
        ["rocm-not-started"],
    ),
    "CUDA beside a Vulkan card": (
        START
        + "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n"
        + vulkan(0, "AMD Radeon RX 6700", 0)
        + on_vulkan(),
        ["backend-without-device"],
    ),
    "2024, no layer on the GPU": (VULKAN_2024 + OLD_MODEL + OLD_IN_RAM, ["no-layer-asked"]),
    "2024, a device with blanks": (VULKAN_2024 + OLD_MODEL + OLD_ON_GPU, []),
    "Ollama, driver not started": (
        found_none(
            ollama(
                'msg="Unable to load cudart library /usr/lib/libcuda.so.1: cuda driver library init failure: 3"',
                source="gpu.go:612",
            )
        ),
        ["cuda-search-failed"],
    ),
    "Ollama after sleep": (
        found_none(
            ollama(
                'msg="unknown error initializing cuda driver library /usr/lib/libcuda.so.1: cuda driver library init failure: 999. see troubleshooting.md for more information"',  # noqa: E501
                "WARN",
                "gpu.go:605",
            )
        ),
        ["cuda-search-failed"],
    ),
    "Ollama, driver updated": (
        found_none(
            ollama(
                'msg="version mismatch between driver and cuda driver library - reboot or upgrade may be required: library /usr/lib/libcuda.so.1"',  # noqa: E501
                "WARN",
                "gpu.go:599",
            )
        ),
        ["driver-mismatch"],
    ),
    "Ollama, an AMD GPU without code": (
        found_none(
            ollama(
                'msg="amdgpu is not supported (supported types:[gfx1030 gfx1100])" gpu_type=gfx1031 gpu=0 library=/usr/lib/ollama/rocm',  # noqa: E501
                "WARN",
                "amd_linux.go:378",
            )
        ),
        ["amd-unsupported"],
    ),
    "Ollama, no access to an AMD GPU": (
        found_none(
            ollama(
                'msg="amdgpu devices detected but permission problems block access" error="permissions not set up properly.  Either run ollama as root, or add you user account to the render group. open /dev/kfd: permission denied"',  # noqa: E501
                "ERROR",
                "amd_linux.go:409",
            )
        ),
        ["amd-without-access"],
    ),
    "Ollama, an old NVIDIA GPU": (
        found_none(ollama('msg="[0] CUDA GPU is too old. Compute Capability detected: 3.5"', source="gpu.go:303")),
        ["gpu-too-old"],
    ),
    "Ollama, search not finished": (
        found_none(
            ollama(
                'msg="failure during GPU discovery" OLLAMA_LIBRARY_PATH=[/usr/lib/ollama] extra_envs=map[] error="failed to finish discovery before timeout"',  # noqa: E501
                source="runner.go:449",
            )
        ),
        ["gpu-search-failed"],
    ),
    "Ollama without its libraries": (
        found_none(ollama('msg="unable to locate gpu dependency libraries" error="not found"', "WARN", "gpu.go:733")),
        ["gpu-libraries-missing"],
    ),
    "Ollama, Vulkan off": (
        found_none(
            ollama(
                'msg="experimental Vulkan support disabled.  To enable, set OLLAMA_VULKAN=1"', source="runner.go:102"
            )
        ),
        ["ollama-found-no-gpu", "vulkan-turned-off"],
    ),
    "Ollama, integrated GPU left out": (
        found_none(
            ollama(
                'msg="dropping integrated GPU; to enable, set OLLAMA_IGPU_ENABLE=1" id=0 library=Vulkan compute=0.0 name=Vulkan0 description="Intel(R) UHD Graphics" pci_id=00:02.0',  # noqa: E501
                source="runner.go:405",
            )
        ),
        ["ollama-found-no-gpu", "gpu-left-out"],
    ),
    "Ollama, little GPU memory": (
        OLLAMA_START
        + ollama('msg="entering low vram mode" "total vram"="8.0 GiB" threshold="20.0 GiB"', source="routes.go:1569")
        + runner()
        + GPU_LOAD.replace("= llama\n", "= gptoss\n")
        + context(),
        ["low-vram-mode"],
    ),
    "attention of mixed types on the CPU": (
        GPU_LOAD + context(k="q8_0", v="f16") + splits_2025(66, 66),
        ["attention-on-cpu"],
    ),
    "an operation on the CPU": (GPU_LOAD + context() + splits(66, 66), ["attention-on-cpu"]),
    "two splits": (GPU_LOAD + context() + splits(2, 2), []),
    "splits of experts in RAM": (
        START
        + card()
        + DENSE.replace("n_expert              = 0", "n_expert              = 8")
        + weights(2000.0, 2167.0)
        + context()
        + splits(130, 66),
        ["experts-on-cpu"],
    ),
    "flash attention without a kernel": (
        GPU_LOAD + context(k="q8_0", flash="auto") + moved("CPU"),
        ["flash-attention-unsupported"],
    ),
    "flash attention and a cache in RAM": (
        GPU_LOAD + context(flash="auto").replace("     CUDA0 KV", "       CPU KV") + moved("CPU"),
        ["flash-attention-unsupported", "cache-in-ram"],
    ),
    "flash attention forced off, 2025": (
        GPU_LOAD
        + "llama_init_from_model: flash_attn requires n_embd_head_k == n_embd_head_v - forcing off\n"
        + context(flash="0"),
        ["flash-attention-unsupported"],
    ),
    "part of an APU's memory": (
        START
        + "  Device 0: AMD Radeon Graphics, gfx1150 (0x1150), VMM: no, Wave Size: 32\n"
        + on_vulkan("ROCm0", "AMD Radeon Graphics", 6000).replace("33/33", "17/33"),
        ["layers-on-cpu", "part-of-shared-memory"],
    ),
    "all weights in RAM beside a GPU": (
        START + vulkan(0, "AMD Radeon RX 6700", 0) + MODEL + IN_RAM,
        ["weights-in-ram"],
    ),
    "tensors in RAM": (
        GPU_LOAD.replace("load_tensors: offloaded", OVERRIDDEN + "load_tensors: offloaded") + context(),
        ["tensors-in-ram"],
    ),
    "Ollama with four requests at once": (
        OLLAMA_START + runner(16384, 4) + card() + DENSE + weights(2000.0, 2167.0, "17/33") + context(16384, slots=4),
        ["layers-on-cpu", "parallel-cache"],
    ),
    "an operation that is not fused": (
        GPU_LOAD + context() + "resolve_fused_ops: fused Gated Delta Net (chunked) not supported, set to disabled\n",
        ["fused-operation-off"],
    ),
    "Ollama keeps f16": (
        OLLAMA_START
        + ollama(
            'msg="quantized kv cache requested but flash attention disabled" type=q8_0', "WARN", source="server.go:228"
        ),
        ["cache-type-not-taken"],
    ),
    "more than the card has": (
        START
        + "device_info:\n  - CUDA0   : NVIDIA GeForce RTX 3060 (4096 MiB, 4000 MiB free)\n"
        + card(free=4000)
        + MODEL
        + weights()
        + context(),
        ["more-than-free"],
    ),
    "one client on two slots": (
        SERVER + "".join(request(n % 2, n, 2000 + n) for n in range(5)),
        ["prompt-read-again"],
    ),
    "idle slots fill the cache": (
        SERVER
        + request(3, 0, 2600)
        + slot(2, 90, "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 2700")
        + "srv  try_clear_id: purging slot 3 with 2650 tokens\n"
        + "srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = 1024, ret = 1\n",  # noqa: E501
        ["slots-fill-cache"],
    ),
    "two models in turn": (
        OLLAMA_START + "".join(load_of(name) for name in ("sha256-1111", "sha256-2222") * 3),
        ["models-in-turn"],
    ),
    "drafts accepted without gain": (SERVER + answer(150, 3.0) + drafted(100, 150, 2.2), ["draft-without-gain"]),
    "drafts to measure": (SERVER + answer(150, 3.0) + drafted(100, 150, 0.3), ["draft-to-measure"]),
    "drafts without times": (SERVER + answer(150, 3.0) + drafted(100, 150), ["draft-to-measure"]),
    "long drafts": (SERVER + answer(300, 3.0) + drafted(200, 900), ["draft-to-measure"]),
    "cache of prompts without a limit": (SERVER + cache_state(20, 3000, 0), ["prompt-cache-at-risk"]),
    "cache of prompts beyond RAM": (
        device_info(6000) + SERVER + cache_state(4, 1200, 8192),
        ["prompt-cache-at-risk"],
    ),
    "cache of prompts within RAM": (
        device_info(40000)
        + SERVER
        + cache_state(
            4,
            1200,
            8192,
            "srv        update:    - prompt 0x5a84ff17a710:   33152 tokens, checkpoints:  8,  1000.000 MiB\n",
        ),
        ["prompt-cache-in-ram"],
    ),
    "no memory for a cache of prompts": (
        SERVER + "srv         alloc: failed to allocate memory for prompt cache state: std::bad_alloc\n",
        ["prompt-cache-no-memory"],
    ),
    "checkpoints in RAM": (SERVER + checkpoint(150.0), ["checkpoints-in-ram"]),
    "small checkpoints": (SERVER + READY + checkpoint(10.0), []),
}
"""What is shown -> its log and the rules that find it, the most important first."""
