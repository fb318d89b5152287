"""Logs of programs that crashed, ran out of memory, or overcame it, written by hand: each message after its source.

Names, paths and numbers are invented. A name between brackets is the thread whose form a line has.
"""

from written_logs import (
    ALLOCATION,
    CONTEXT_FAILED,
    EXIT,
    HEALTHY,
    LOAD_FAILED,
    MODEL,
    OLLAMA_START,
    SERVER,
    START,
    card,
    context,
    ollama,
    runner,
    turn,
    weights,
)

LISTENING = "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
SERVING = SERVER + START + card() + MODEL + weights() + context() + LISTENING + turn(0, 2000, 0)
"""A server that has answered a request."""
LOADING = SERVER + START + card() + MODEL + weights()
"""A server that is loading."""
STARTED = OLLAMA_START + runner() + ollama('msg="llama-server started in 3.10 seconds"', source="llama_server.go:1350")
ANSWERED = '[GIN] 2026/01/02 - 03:04:05 | 200 |  1.2s |       127.0.0.1 | POST     "/api/chat"\n'
FAILED = ANSWERED.replace("| 200 |", "| 500 |")
TERMINATED = ollama('msg="llama runner terminated" error="exit status 2"', "ERROR", "server.go:303")
PATH = "/build/ggml/src/"


def cuda_error(words, name="CUDA", where="ggml-cuda/ggml-cuda.cu:2990", function="ggml_backend_cuda_synchronize"):
    """ggml/src/ggml-cuda/ggml-cuda.cu:105"""
    return (
        f"{PATH}ggml-cuda/ggml-cuda.cu:109: {name} error\n{name} error: {words}\n"
        f"  current device: 0, in function {function} at {PATH}{where}\n  cudaStreamSynchronize(cuda_ctx->stream())\n"
    )


BACKTRACE = """\
[New LWP 4243]
[Thread debugging using libthread_db enabled]
0x00007f0000000000 in __GI___wait4 (pid=4242) at ../sysdeps/unix/sysv/linux/wait4.c:30
#0  0x00007f0000000000 in __GI___wait4 (pid=4242) at ../sysdeps/unix/sysv/linux/wait4.c:30
#1  0x00007f0000000001 in ggml_print_backtrace () from /build/bin/libggml-base.so
#2  0x00007f0000000002 in ggml_abort () from /build/bin/libggml-base.so
Aborted (core dumped)
"""
"""ggml/src/ggml.c:158, gdb, the shell"""
LOST = "terminate called after throwing an instance of 'vk::DeviceLostError'\n"
WHAT = "  what():  {}\n"
GO_CRASH = """\
PC=0x7f0000000000 m=5 sigcode=1 addr=0x20
signal arrived during cgo execution

goroutine 29 gp=0xc000000000 m=0 mp=0x1000 [syscall]:
runtime.cgocall(0x1, 0x2)
\truntime/cgocall.go:167 +0x4b fp=0xc000000000 sp=0xc000000000 pc=0x1
"""
"""ollama#11951"""
TRACEBACK = """\
Traceback (most recent call last):
  File "app.py", line 4, in <module>
    llm = Llama(model_path="model.gguf")
  File "/site-packages/llama_cpp/llama.py", line 372, in __init__
    self._model = internals.LlamaModel(
"""
TWO_CARDS = START + card(free=11000) + card("CUDA1", 23000) + MODEL
BREAKDOWN = """\
common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |
common_memory_breakdown_print: |   - Vulkan0 (A card)   | 24000 = 23500 + (30000 =  9000 +   20000 +    1000) +      -29500 |
"""  # noqa: E501
"""common/fit.cpp:923"""
VULKAN_REFUSED = "ggml_vulkan: Device memory allocation of size 1073741824 failed.\nggml_vulkan: {}\n"
"""ggml/src/ggml-vulkan/ggml-vulkan-buffers.cpp:224"""
COMPUTE_REFUSED = (
    "ggml_gallocr_reserve_n_impl: failed to allocate {0} buffer of size 2097152000\n"
    "graph_reserve: failed to allocate compute buffers\n"
)
RETRIED = "llama_context: compute buffer allocation failed, retrying without pipeline parallelism\n"
FAILED_FIT = (
    "common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort\n"
)

LOGS_OF_FAILURES = {
    # a: no kernels for this GPU
    "no device function": (LOADING + cuda_error("invalid device function", "ROCm"), ["gpu-without-kernels"]),  # 14370
    "CUDA error 98": (
        START + f"CUDA error 98 at {PATH}ggml-cuda.cu:6246: invalid device function\n",  # llama.cpp#3320
        ["gpu-without-kernels"],
    ),
    "no device code": (  # ggml/src/ggml-cuda/common.cuh:421
        LOADING + f"{PATH}ggml-cuda/mmq.cuh:77: ERROR: CUDA kernel mul_mat_q has no device code compatible with CUDA "
        "arch 610. ggml-cuda.cu was compiled for: 750,800\n",
        ["gpu-without-kernels"],
    ),
    "no code objects": (  # llama.cpp#19949
        START + ":1:hip_fatbin.cpp           :687 : 1143 us:  No compatible code objects found for: gfx1999, value of "
        "HIP_FORCE_SPIRV_CODEOBJECT: 0\nzsh: segmentation fault  llama-server -m model.gguf\n",
        ["gpu-without-kernels"],
    ),
    "rocBLAS": (  # llama.cpp#14421
        LOADING + "\nrocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or "
        "directory for GPU arch : gfx1999\nAborted (core dumped)\n",
        ["gpu-without-kernels"],
    ),
    # b: the driver, the GPU
    "lost": (SERVING + LOST + WHAT.format("vk::Queue::submit: ErrorDeviceLost"), ["gpu-timeout"]),
    "lost, caught": (  # llama.cpp#25664, tools/server/server-context.cpp:2872
        SERVING + "3.45.098.561 E srv  update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost\n"
        "srv  update_slots: all slots are idle\n",
        ["gpu-timeout"],
    ),
    "lost, then answered": (
        SERVING + "3.45.098.561 E srv  update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost\n"
        "srv  update_slots: all slots are idle\n" + turn(1, 2000, 1900),
        ["gpu-timeout"],
    ),
    "lost at the start": (  # llama.cpp#9767
        SERVER + START + "llama_model_load: error loading model: vk::PhysicalDevice::createDevice: ErrorDeviceLost\n"
        "llama_load_model_from_file: failed to load model\n",
        ["gpu-timeout"],
    ),
    "launch timed out": (SERVING + cuda_error("the launch timed out and was terminated"), ["gpu-timeout"]),
    "SYCL, lost": (  # llama.cpp#11812
        SERVING + "Native API failed. Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)\n"
        f"Exception caught at file:{PATH}ggml-sycl/ggml-sycl.cpp, line:3384, func:operator()\n",
        ["gpu-timeout"],
    ),
    "Metal, hang": (  # llama.cpp#12277
        SERVING + "ggml_metal_synchronize: error: command buffer 0 failed with status 5\n"
        "error: Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)\n",
        ["gpu-timeout"],
    ),
    "amdgpu": (  # ollama#17870
        STARTED
        + ANSWERED
        + "kernel: amdgpu 0000:c5:00.0: ring comp_1.2.0 timeout, signaled seq=1, emitted seq=3\n"
        + "srv update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost\n"
        + FAILED,
        ["gpu-timeout"],
    ),
    "illegal access": (SERVING + cuda_error("an illegal memory access was encountered") + BACKTRACE, ["gpu-fault"]),
    "illegal access, below a router": (  # llama.cpp#27430
        "[56285] 0.54.236.075 E CUDA error: an illegal memory access was encountered\n"
        f"[56285] 0.54.236.080 E   current device: 0, in function f at {PATH}ggml-cuda/ggml-cuda.cu:768\n",
        ["gpu-fault"],
    ),
    "launch failure": (  # llama.cpp#8117
        LOADING + "CUDA error: unspecified launch failure\n  current device: 0, in function ggml_cuda_op_mul_mat at "
        f'{PATH}ggml-cuda.cu:1606\n  cudaGetLastError()\nGGML_ASSERT: {PATH}ggml-cuda.cu:100: !"CUDA error"\n',
        ["gpu-fault"],
    ),
    "launch failure, Ollama's client": (  # ollama#9247
        OLLAMA_START + "Error: an error was encountered while running the model: CUDA error: unspecified launch "
        "failure\n  current device: 0, in function f at ggml-cuda.cu:2317\n",
        ["gpu-fault"],
    ),
    "ROCm, page not present": (  # ollama#12131
        STARTED
        + "Memory access fault by GPU node-1 (Agent handle: 0x1000) on address 0x2000. Reason: Page not present "
        "or supervisor privilege.\n" + FAILED,
        ["gpu-fault"],
    ),
    "GPU fault, started again": (
        SERVING + cuda_error("an illegal memory access was encountered") + SERVING,
        ["gpu-fault"],
    ),
    "no Vulkan": (  # llama.cpp#11493
        "terminate called after throwing an instance of 'vk::IncompatibleDriverError'\n"
        + WHAT.format("vk::createInstance: ErrorIncompatibleDriver"),
        ["vulkan-not-started"],
    ),
    "SYCL, no memory size": (  # llama.cpp#28515
        SERVER + f"{PATH}ggml-sycl.cpp:5875: [ggml_backend_sycl_device_get_memory] failed to get device memory size\n",
        ["sycl-memory-query"],
    ),
    "cuBLAS": (  # llama.cpp#10080
        SERVING + cuda_error("CUBLAS_STATUS_NOT_INITIALIZED", function="cublas_handle"),
        ["gpu-error"],
    ),
    "MUSA": (LOADING + cuda_error("invalid argument", "MUSA"), ["gpu-error"]),
    "CANN": (
        LOADING + f"CANN error: EE9999\n  current device: 0, in function f at {PATH}ggml-cann.cpp:70\n",
        ["gpu-error"],
    ),
    "SYCL": (  # llama.cpp#24424, ggml/src/ggml-sycl/common.hpp:143
        LOADING + "SYCL error: CHECK_TRY_ERROR(op(ctx)): Exception caught in this line of code.\n"
        f"  in function ggml_sycl_op at {PATH}ggml-sycl.cpp:4000\n{PATH}ggml-sycl/common.hpp:145: SYCL error\n",
        ["gpu-error"],
    ),
    "OpenCL": (LOADING + f"ggml_opencl: clFinish(queue) error -36 at {PATH}ggml-opencl.cpp:3000\n", ["gpu-error"]),
    "Metal": (  # llama.cpp#12277
        SERVING + "ggml_metal_graph_compute: command buffer 1 failed with status 5\n"
        "error: Internal Error (0000000e:kIOGPUCommandBufferCallbackErrorInternal)\n"
        "llama_decode: failed to decode, ret = -3\n",
        ["gpu-failed", "decode-failed"],
    ),
    "only the last line of CUDA's": (SERVING + f"{PATH}ggml-cuda/ggml-cuda.cu:109: CUDA error\n", ["gpu-error"]),
    # c: assertions
    "assertion": (
        SERVING + f"{PATH}ggml.c:3456: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed\n" + BACKTRACE,
        ["assertion"],
    ),
    "assertion, 2024": (LOADING + "GGML_ASSERT: llama.cpp:9084: ctx->logits.capacity() == logits_cap\n", ["assertion"]),
    "assertion, Windows": (
        SERVING + r"C:\My Builds\ggml\src\ggml-cuda\fattn.cu:500: GGML_ASSERT(mask) failed" + "\n",
        ["assertion"],
    ),
    "assertion after an answer": (
        SERVING + f"the llama ate{PATH}ggml.c:77: GGML_ASSERT(x > 0) failed\n",
        ["assertion"],
    ),
    "abort": (
        SERVING + "llama.cpp:11968: The current context does not support K-shift\n",
        ["shift-impossible"],
    ),  # ollama#8492
    "abort, fatal": (
        STARTED + "//ml/backend/ggml/ggml/src/ggml-cpu/ops.cpp:965: fatal error\n" + FAILED,
        ["assertion"],
    ),
    "assert of C": (
        STARTED + "ollama: /src/llama-sampling.cpp:660: void llama_sampler_dist_apply(llama_sampler *): Assertion "
        f"`found' failed.\nSIGABRT: abort\n{GO_CRASH}" + TERMINATED + FAILED,
        ["assertion"],
    ),
    "assert of the library of C++": (  # llama.cpp#23889
        SERVING + "/usr/include/c++/14/bits/stl_vector.h:1130: reference std::vector<int>::operator[](size_type): "
        "Assertion '__n < this->size()' failed.\n",
        ["assertion"],
    ),
    "assert on a Mac": (
        SERVING + "Assertion failed: (n > 0), function decode, file llama-batch.cpp, line 96.\n",
        ["assertion"],
    ),
    "assert of MSVC": (
        SERVING + r"Assertion failed: n > 0, file C:\build\src\llama-batch.cpp, line 96" + "\n",
        ["assertion"],
    ),
    "assertion, Ollama's client": (  # ollama#9563
        "Error: llama runner process has terminated: GGML_ASSERT(tensor->op == GGML_OP_UNARY) failed\n",
        ["assertion"],
    ),
    "assertion, started again": (
        SERVING + f"{PATH}ggml.c:3456: GGML_ASSERT(a) failed\nAborted (core dumped)\n" + SERVING,
        ["assertion"],
    ),
    "assertion, Ollama started again": (
        STARTED
        + ANSWERED
        + f"{PATH}ggml.c:3456: GGML_ASSERT(a) failed\n"
        + TERMINATED
        + FAILED
        + runner()
        + ollama('msg="llama-server started in 3.10 seconds"', source="llama_server.go:1350")
        + ANSWERED,
        ["assertion"],
    ),
    "an assertion in an answer": (
        LOADING
        + context()
        + f"generate: n_ctx = 4096, n_batch = 2048\nYou see\n{PATH}ggml.c:12: GGML_ASSERT(a) failed\n"
        "when it breaks.\nllama_perf_context_print:        eval time =    2000.00 ms /   100 runs\n",
        [],
    ),
    "an assertion in a prompt": (
        SERVING + 'srv  log_server_r: request:  {"messages": [{"content": "What is ggml.c:12: GGML_ASSERT(a) failed?\\n'
        'CUDA error: out of memory\\nSegmentation fault (core dumped)"}]}\n',
        [],
    ),
    "source code": (
        SERVING + "    GGML_ASSERT(a != NULL);\n    throw vk::SystemError(error);  // terminate called\n"
        '    assert(n > 0 && "Assertion failed");\n#  define SIGSEGV 11\n',
        [],
    ),
    "a compiler": (START + "ggml.c:12:34: error: unknown type\nggml.c:12: undefined reference to `ggml_abort'\n", []),
    # d: memory of other backends
    "SYCL, memory": (  # docs/backend/SYCL.md:899
        LOADING + "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 5000000000 Bytes of memory on device\n"
        "ggml_gallocr_reserve_n: failed to allocate SYCL0 buffer of size 5000000000\n",
        ["out-of-memory"],
    ),
    "SYCL, memory while it runs": (
        SERVING + "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)\n"
        f"Exception caught at file:{PATH}ggml-sycl/ggml-sycl.cpp, line:3384, func:operator()\n",
        ["out-of-memory"],
    ),
    "cuBLAS, memory": (SERVING + cuda_error("the resource allocation failed"), ["out-of-memory"]),  # llama.cpp#25304
    "CUDA error 2": (START + f"CUDA error 2 at {PATH}ggml-cuda.cu:7233: out of memory\n", ["out-of-memory"]),
    "Vulkan, memory": (
        SERVING + VULKAN_REFUSED.format("vk::Device::allocateMemory: ErrorOutOfDeviceMemory"),
        ["out-of-memory"],
    ),
    "Vulkan, pinned memory": (  # ggml/src/ggml-vulkan/ggml-vulkan.cpp:13079
        LOADING
        + "ggml_vulkan: Failed to allocate pinned memory (vk::Device::allocateMemory: ErrorOutOfDeviceMemory)\n",
        ["pinned-memory"],
    ),
    "one buffer": (  # llama.cpp#18160
        LOADING
        + context()
        + VULKAN_REFUSED.format("Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory")
        + COMPUTE_REFUSED.format("Vulkan0")
        + CONTEXT_FAILED.format("failed to allocate compute pp buffers")
        + EXIT,
        ["one-buffer-limit"],
    ),
    "a cache above the largest tensor": (
        LOADING + context(n_ctx=131072, cache=2048.0, device="Vulkan0") + "sched_reserve: reserving ...\n"
        "/build/ggml/src/ggml-backend.cpp:941: pre-allocated tensor (cache_k_l0) in a buffer (Vulkan0) that cannot run "
        "the operation (NONE)\n" + EXIT,
        ["cache-above-a-tensor"],
    ),
    "a matrix that the device refuses": (
        SERVER
        + START
        + card()
        + MODEL
        + "done_getting_tensors: tensor 'token_embd.weight' (q4_K) (and 1 others) cannot "
        "be used with preferred buffer type CUDA_Host, using CPU instead\n"
        + weights(in_ram=400.0)
        + context()
        + LISTENING,
        ["matrix-in-ram"],
    ),
    "the embedding alone": (
        SERVER
        + START
        + card()
        + MODEL
        + "done_getting_tensors: tensor 'token_embd.weight' (q4_K) (and 0 others) cannot "
        "be used with preferred buffer type CUDA_Host, using CPU instead\n" + weights() + context() + LISTENING,
        [],
    ),
    "RAM": (  # llama.cpp#23603
        SERVER + START + MODEL + "ggml_aligned_malloc: insufficient memory (attempted to allocate 103000.00 MB)\n"
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 108000000000\n"
        "alloc_tensor_range: failed to allocate CPU_REPACK buffer of size 108000000000\n"
        "llama_model_load: error loading model: unable to allocate CPU_REPACK buffer\n" + EXIT,
        ["ram-does-not-suffice"],
    ),
    "RAM for the cache": (  # mozilla-ai/llamafile#554
        SERVER
        + START
        + MODEL
        + "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 51539607584\n"
        "llama_kv_cache_init: failed to allocate buffer for kv cache\n",
        ["cache-does-not-fit"],
    ),
    "RAM, an exception": (
        LOADING + "terminate called after throwing an instance of 'std::bad_alloc'\n" + WHAT.format("std::bad_alloc"),
        ["ram-does-not-suffice"],
    ),
    "killed in Docker": (SERVING + "llama-server-1 exited with code 137\n", ["killed"]),  # open-webui#6168
    "killed by systemd": (  # llama.cpp#20509
        SERVING + "A process of this unit has been killed by the OOM killer.\nFailed with result 'oom-kill'.\n",
        ["killed"],
    ),
    "killed, Ollama": (  # ollama#8571
        OLLAMA_START
        + runner()
        + ollama(
            'msg="error loading llama server" error="llama runner process has terminated: signal: killed"',
            "ERROR",
            "sched.go:489",
        )
        + FAILED,
        ["killed"],
    ),
    # Ollama ends a runner by this signal when it unloads the model: llm/llama_server.go:1023, 2581
    "unloaded, Ollama": (STARTED + ANSWERED + TERMINATED.replace("exit status 2", "signal: killed"), []),
    "client left a load": (
        OLLAMA_START
        + runner()
        + ollama('msg="client connection closed before llama-server finished loading, aborting load"', "WARN")
        + ollama(
            'msg="error loading llama server" error="timed out waiting for llama-server to start: context canceled"',
            "ERROR",
            "sched.go:734",
        )
        + FAILED.replace("| 500 |", "| 499 |"),
        ["client-left-load"],
    ),
    "killed on a Mac": (SERVING + "zsh: killed     ./llama-server -m model.gguf\n", ["killed"]),
    # e: nothing but a signal, an exception, an exit code
    "segmentation fault": (SERVING + "Segmentation fault (core dumped)\n", ["crashed"]),
    "segmentation fault in a script": (
        SERVING + "./serve.sh: line 3:  4242 Segmentation fault      (core dumped) llama-server -m model.gguf\n",
        ["crashed"],
    ),
    "segmentation fault on a Mac": (SERVING + "zsh: segmentation fault  ./llama-server -m model.gguf\n", ["crashed"]),
    "backtrace": (SERVING + BACKTRACE.replace("Aborted (core dumped)\n", ""), ["crashed"]),
    "exception": (
        SERVING + "terminate called after throwing an instance of 'std::runtime_error'\n" + WHAT.format("bad grammar"),
        ["crashed"],
    ),
    "exception on a Mac": (
        SERVING + "libc++abi: terminating due to uncaught exception of type std::length_error: vector\n",
        ["crashed"],
    ),
    "heap": (SERVING + "double free or corruption (out)\nAborted\n", ["crashed"]),  # llama.cpp#15256
    "Go": (STARTED + "SIGSEGV: segmentation violation\n" + GO_CRASH + TERMINATED + FAILED, ["crashed"]),
    "panic": (
        STARTED + "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\n",
        ["crashed"],
    ),
    "Windows' code": (  # ollama#10265
        STARTED
        + ANSWERED
        + ollama('msg="llama runner terminated" error="exit status 0xc0000409"', "ERROR", "server.go:449"),
        ["crashed"],
    ),
    "Windows' code, signed": (
        SERVING + "srv    operator(): instance name=x exited with status -1073741819\n",
        ["crashed"],
    ),
    "code of a container": (SERVING + "llama-server-1 exited with code 139\n", ["crashed"]),
    "runner, exit status 2": (  # ollama#11447
        OLLAMA_START
        + runner()
        + ollama(
            'msg="error loading llama server" error="llama runner process has terminated: exit status 2"',
            "ERROR",
            "sched.go:489",
        )
        + FAILED,
        ["crashed"],
    ),
    "panic of a load": (  # ollama#9260
        OLLAMA_START
        + runner()
        + START
        + MODEL
        + "llama_model_load: error loading model: the tea was cold\n"
        + "panic: unable to load model: /blobs/sha256-0000\n\ngoroutine 7 [running]:\n"
        + TERMINATED
        + FAILED,
        ["load-failed"],
    ),
    "stopped, Ollama": (  # ollama#14983
        STARTED
        + ANSWERED
        + "Error: 500 Internal Server Error: model runner has unexpectedly stopped, this may be due to "
        "resource limitations or an internal error\n",
        ["crashed"],
    ),
    "LM Studio": (  # lmstudio-bug-tracker#932
        "2026-01-02 03:04:05 [ERROR]\n The model has crashed without additional information. (Exit code: "
        "18446744072635812000). Error Data: n/a, Additional Data: n/a\n",
        ["crashed"],
    ),
    "access violation": (  # llama-cpp-python#970
        TRACEBACK + "OSError: exception: access violation reading 0x0000000000000000\n",
        ["crashed"],
    ),
    "Python": (
        HEALTHY + TRACEBACK + "RuntimeError: something of llama_cpp was not so\n",
        ["python-exception"],
    ),
    "Python, interrupted": (HEALTHY + TRACEBACK + "KeyboardInterrupt\n", []),
    "Python, too long": (
        HEALTHY + TRACEBACK + "ValueError: Requested tokens (1200) exceed context window of 512\n",
        ["request-too-long"],
    ),
    # f: the other end
    "RPC server": (
        LOADING
        + f"{PATH}ggml-rpc/ggml-rpc.cpp:615: Remote RPC server crashed or returned malformed response\n"
        + BACKTRACE,
        ["rpc-server-lost"],
    ),
    "RPC server, 2024": (LOADING + f"{PATH}ggml-rpc.cpp:764: GGML_ASSERT(status) failed\n", ["rpc-server-lost"]),
    # explained, and not
    "a known cause, then the shell": (
        LOADING + ALLOCATION.format("14095.05") + LOAD_FAILED + "Segmentation fault (core dumped)\n",
        ["weights-do-not-fit"],
    ),
    "a long request, then a crash": (
        SERVING
        + "srv    send_error: task id = 1, error: request (9000 tokens) exceeds the available context size (4096 "
        "tokens), try increasing it\n" + turn(2, 2000, 0) + "Segmentation fault (core dumped)\n",
        ["crashed", "request-too-long"],
    ),
    # memory: the piece and the whole
    "one chunk of the cache": (
        SERVER
        + START
        + BREAKDOWN
        + VULKAN_REFUSED.format("vk::Device::allocateMemory: ErrorOutOfDeviceMemory")
        + CONTEXT_FAILED.format("failed to allocate buffer for kv cache"),
        ["cache-does-not-fit"],
    ),
    "another GPU has room": (
        TWO_CARDS
        + weights(9000.0, 72.0)
        + "load_tensors:        CUDA1 model buffer size =  2000.00 MiB\n"
        + ALLOCATION.format("4096.00")
        + "alloc_tensor_range: failed to allocate CUDA0 buffer of size 4294967296\n"
        + CONTEXT_FAILED.format("failed to allocate buffer for kv cache"),
        ["cache-does-not-fit"],
    ),
    "uneven": (
        TWO_CARDS.replace("4.07 GiB", "24.00 GiB")
        + ALLOCATION.format("20480.00")
        + "alloc_tensor_range: failed to allocate CUDA0 buffer of size 21474836480\n"
        + LOAD_FAILED,
        ["weights-do-not-fit"],
    ),
    # what was overcome
    "without pipeline parallelism": (
        TWO_CARDS + weights() + ALLOCATION.format("2000.00") + COMPUTE_REFUSED.format("CUDA0") + RETRIED + context(),
        ["compute-does-not-fit"],
    ),
    "without pipeline parallelism, in vain": (
        TWO_CARDS
        + weights()
        + COMPUTE_REFUSED.format("CUDA0")
        + RETRIED
        + COMPUTE_REFUSED.format("CUDA0")
        + CONTEXT_FAILED.format("failed to allocate compute pp buffers"),
        ["compute-does-not-fit"],
    ),
    "fits all the same": (FAILED_FIT + LOADING + context() + LISTENING, ["fit-failed"]),
    "refused in the simulation": (
        SERVER
        + ALLOCATION.format("14095.05")
        + LOAD_FAILED
        + START
        + card()
        + MODEL
        + weights()
        + context()
        + LISTENING,
        ["weights-do-not-fit"],
    ),
    "Ollama, second attempt": (
        OLLAMA_START
        + runner()
        + START
        + card()
        + MODEL
        + weights()
        + ALLOCATION.format("8192.00")
        + CONTEXT_FAILED.format("failed to allocate buffer for kv cache")
        + ollama('msg="llama-server load failed; evicting all other models and retrying once"', "WARN", "sched.go:652")
        + runner()
        + HEALTHY
        + ollama('msg="llama-server started in 3.10 seconds"', source="llama_server.go:1350")
        + ANSWERED,
        ["out-of-memory"],
    ),
    "client left": (
        STARTED
        + ANSWERED
        + ollama('msg="aborting completion request due to client closing the connection"', source="server.go:1606")
        + FAILED,
        ["client-left"],
    ),
    "client left, 499": (STARTED + ANSWERED.replace("| 200 |", "| 499 |"), ["client-left"]),
    "client left, canceled": (
        STARTED
        + ollama('msg="post predict" error="Post \\"http://127.0.0.1:1/completion\\": context canceled"', "ERROR")
        + FAILED,
        ["client-left"],
    ),
    "one EOF": (
        STARTED
        + ollama('msg="post predict" error="Post \\"http://127.0.0.1:1/completion\\": EOF"', "ERROR")
        + FAILED
        + ANSWERED,
        ["error-lines"],
    ),
    "an error in a request": (
        SERVING + "srv  update_slots: Compute error. off = 0, n_batch = 2048, ret = -3\n",
        ["error-lines"],
    ),
    "LM Studio, an error": (
        "2026-01-02 03:04:05 [ERROR]\n [LM STUDIO SERVER] Error: Channel Error\n",
        ["error-lines"],
    ),
    "smaller batches": (
        SERVING
        + "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, off = 0, "
        "n_batch = 1024, ret = 1\n" + turn(1, 2000, 0),
        ["smaller-batches"],
    ),
    "Metal, working set": (
        SERVER + START + MODEL + "ggml_metal_log_allocated_size: warning: current allocated size is greater than the "
        "recommended max working set size\n" + context(device="CPU") + LISTENING,
        ["metal-limit"],
    ),
}
