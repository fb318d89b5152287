"""Crashes: in which words they are told, what counts as one, what explains it, and what follows it."""

import json

import pytest
from written_failures import (
    ANSWERED,
    BACKTRACE,
    BREAKDOWN,
    COMPUTE_REFUSED,
    FAILED,
    LISTENING,
    LOADING,
    LOGS_OF_FAILURES,
    PATH,
    SERVING,
    STARTED,
    TERMINATED,
    TRACEBACK,
    TWO_CARDS,
    cuda_error,
)
from written_loads import LOGS_OF_LOADS
from written_logs import (
    ALLOCATION,
    CONTEXT_FAILED,
    EXIT,
    HEALTHY,
    LOAD_FAILED,
    MODEL,
    NOT_LOADED,
    SERVER,
    START,
    card,
    context,
    ollama,
    runner,
    turn,
    weights,
)
from written_parts import LOGS_OF_PARTS

import inferlab as lab
from inferlab.log_reader.conditions.crashes import _compiled
from inferlab.log_reader.rules import rules

LINES = {
    "out-of-memory": (
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8.00 MiB on device 0: hipMalloc failed: out of memory",
        "ggml_backend_cann_buffer_type_alloc_buffer: allocating 8.00 MiB on device 0: aclrtMalloc failed: EL0004",
        "  what():  vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "ggml_metal_buffer_init: failed to allocate Metal buffer of 4294967296 bytes (out of memory)",
        "ggml_metal_buffer_init: error: failed to allocate buffer, size =  2048.00 MiB",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "panic: insufficient memory - required allocations: {InputWeights:1048576A}",
        'time=2026-01-02T03:04:05.678Z level=WARN source=server.go:810 msg="memory layout cannot be allocated"',
        "ggml_backend_opencl_buffer_type_alloc_buffer: failed to allocate 300.00 MiB (err=-61). Consider reducing "
        "-ngl, lowering -c / -ub, or using quantized KV cache.",
    ),
    "killed": (
        "Killed",
        "Killed: 9",
        "[1]+  Killed                  ./llama-server -m model.gguf",
        "Jan  2 03:04:05 host kernel: Out of memory: Killed process 4242 (llama-server) total-vm:1kB",
        "    Reason:       OOMKilled",
        "      Exit Code:    137",
        "command terminated with exit code 137",
        "llama.service: Main process exited, code=killed, status=9/KILL",
        "fish: Job 1, './llama-server -m model.gguf' terminated by signal SIGKILL (Forced quit)",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.batch. Some of your processes may be gone.",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=42.0.",
        "srun: error: node7: task 0: Out Of Memory",
    ),
    "gpu-without-kernels": (
        '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
        "CUDA error: named symbol not found",
        "CUDA error: shared object initialization failed",
    ),
    "gpu-timeout": (
        "ggml_vulkan: device lost on Vulkan0, likely caused by previous submission (nodes 12 to 40):",
        "radv/amdgpu: The CS has been cancelled because the context is lost. This context is innocent.",
        "HW Exception by GPU node-1 (Agent handle: 0x1000) reason :GPU Hang",
        "error: Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)",
        "error: Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
        "error: Ignored (for causing prior/excessive GPU errors) (00000004:kIOAccelCommandBufferCallbackError"
        "SubmissionsIgnored)",
        "kernel: amdgpu 0000:c5:00.0: ring comp_1.2.0 timeout, signaled seq=608714, emitted seq=608716",
    ),
    "gpu-fault": (
        "CUDA error: misaligned address",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: hardware stack error",
        "CUDA error: invalid program counter",
        "kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=4242, name=llama-server, GPU has fallen off the bus.",
        f"CUDA error 700 at {PATH}ggml-cuda.cu:7233: an illegal memory access was encountered",
        "Memory critical error by agent node-0 (Agent handle: 0x1000) on address 0x2000. Reason: Memory in use.",
    ),
    "vulkan-not-started": (
        "ggml_vulkan: Error: Vulkan 1.2 required.",
        "ggml_vulkan: device Vulkan0 does not support 16-bit storage.",
        "llama_model_load: error loading model: vk::createInstance: ErrorInitializationFailed",
        "  what():  vk::PhysicalDevice::createDevice: ErrorFeatureNotPresent",
        "  what():  vk::PhysicalDevice::createDevice: ErrorExtensionNotPresent",
    ),
    "sycl-memory-query": (f"{PATH}ggml-sycl.cpp:6054: [ggml_backend_sycl_device_get_memory] no device memory info",),
    "gpu-error": (
        "ROCm error: an operation was not valid",
        f"cuBLAS error 13 at {PATH}ggml-cuda.cu:7233",
        "rocBLAS error: Could not initialize Tensile host: No devices found",
        f"Native API failed. Native API returns: 2147483646Exception caught at file:{PATH}ggml-sycl.cpp, line:1000",
        f"Unsupported feature\nException caught at file:{PATH}ggml-sycl.cpp, line:1000, func:operator()",
        f"No kernel namedException caught at file:{PATH}ggml-sycl.cpp, line:1000",
        "level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
        "  what():  vk::Device::createComputePipeline: ErrorUnknown",
        f'GGML_ASSERT: {PATH}ggml-cuda.cu:101: !"CUDA error"',
        ":0:rocdevice.cpp            :3020: 424242424242d us:  Callback: Queue 0x7f0000000000 aborting with error : "
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Code: 0x1008",
        ":0:rocdevice.cpp            :2303: 424242424242 us: Device::callbackQueue aborting with status: 0x100f",
    ),
    "gpu-failed": (
        "error: Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)",
        "error: Discarded (victim of GPU error/recovery) (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
        "srv  update_slots: decode() failed: vk::Queue::submit: ErrorUnknown",
        f"ggml_vulkan: error ErrorUnknown at {PATH}ggml-vulkan.cpp:367",
        "ggml_vulkan: Compute pipeline creation failed for matmul_f16",
        "ggml_metal_library_init: error: the source does not compile",
        "ggml_metal_graph_compute: backend is in error state from a previous command buffer failure - recreate it",
    ),
    "assertion": (
        f"{PATH}ggml-cuda/fattn-common.cuh:99: GGML_ASSERT(K->ne[1] > 0) failed",
        f"{PATH}ggml-impl.hpp:12: no room in the buffer",
        "ggml_new_object: not enough space in the context's memory pool (needed 28728784, available 10485760)",
        f"{PATH}ggml-metal.m:2001: MUL MAT-MAT not implemented",
        f"{PATH}ggml-metal.mm:2001: GGML_ASSERT(false) failed",
        f"{PATH}ggml-impl.h:20: GGML_ASSERT(x) failed",
        f"{PATH}ggml.c:20: GGML_ASSERT(x) failed",
    ),
    "crashed": (
        "terminate called without an active exception",
        "Unhandled exception at 0x00007FF6 in llama-server.exe: 0xC0000005: Access violation reading location 0x0",
        "Unhandled Exception: System.AccessViolationException",
        "fatal error: unexpected signal during runtime execution",
        "Fatal Python error: Segmentation fault",
        "Windows fatal exception: access violation",
        "OSError: [WinError -529697949] Windows Error 0xe06d7363",
        "Abort trap: 6",
        "zsh: abort      ./llama-server -m model.gguf",
        "zsh: bus error  ./llama-server -m model.gguf",
        "zsh: trace trap  ./llama-server -m model.gguf",
        "Bus error (core dumped)",
        "Floating point exception (core dumped)",
        "Trace/breakpoint trap",
        "Speicherzugriffsfehler (Speicherabzug geschrieben)",
        "SIGABRT: abort",
        "SIGBUS: bus error",
        "SIGFPE: floating-point exception",
        "SIGTRAP: trace trap",
        "error: Uncaught SIGABRT (SI_0) on host pid 21086 tid 262146",
        "free(): invalid pointer",
        "malloc(): corrupted top size",
        'Thread 1 "llama-server" received signal SIGSEGV, Segmentation fault.',
        "Program terminated with signal SIGABRT, Aborted.",
        "llama-server[4242]: segfault at 20 ip 00007f0000000000 sp 00007ffd00000000 error 4 in libggml-cuda.so",
        "systemd-coredump[42]: Process 4242 (llama-server) of user 1000 dumped core.",
        "Exception Type:        EXC_BAD_ACCESS (SIGSEGV)",
        "Exception code: 0xc0000005",
        "upstream exited: signal: segmentation fault (core dumped)",
        "malloc_consolidate(): unaligned fastbin chunk detected",
        "munmap_chunk(): invalid pointer",
        "corrupted double-linked list",
        "*** stack smashing detected ***: terminated",
        "llama.service: Main process exited, code=dumped, status=11/SEGV",
        "llama.service: Main process exited, code=killed, status=6/ABRT",
        "llama-server process has terminated: exit status 0xe06d7363: NTSTATUS 0xe06d7363",
        "llama runner process no longer running: 3221225477",
        "fish: Job 1, './llama-server -m model.gguf' terminated by signal SIGSEGV (Address boundary error)",
        "/build/bin/libggml-base.so(ggml_abort+0x152)[0x7f0000000000]",
        "/build/bin/libggml-base.so(ggml_print_backtrace+0x1f)[0x7f0000000000]",
        "#9  0x00007f0000000000 in ggml_uncaught_exception () from libggml-base.so",
        '{"error":{"message":"The model has crashed without additional information. (Exit code: 6)"}}',
        "Error code: 400 - {'error': 'The model has crashed without additional information. (Exit code: null)'}",
        "      Exit Code:    139",
        "2026-01-02 03:04:05,678 INFO exited: llama (terminated by SIGSEGV (core dumped); not expected)",
        "srun: error: node7: task 0: Segmentation fault (core dumped)",
        "subprocess.CalledProcessError: Command '['llama-server', '-v']' died with <Signals.SIGABRT: 6>.",
        "[2026-01-02 03:04:05 +0000] [1] [ERROR] Worker (pid:42) was sent SIGSEGV!",
        "[2026-01-02 03:04:05 -0700] [1] [WARNING] Worker with pid 42 was terminated due to signal 11",
        "Abgebrochen (Speicherabzug geschrieben)",
        "Erreur de segmentation (core dumped)",
        "\u6bb5\u9519\u8bef (core dumped)",
        "thread 'main' panicked at src/main.rs:42:7:",
        "#  SIGSEGV (0xb) at pc=0x00007f0000000000, pid=42, tid=43",
        "#  EXCEPTION_ACCESS_VIOLATION (0xc0000005) at pc=0x00007ff000000000, pid=42, tid=43",
        "==42==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000010 at pc 0x7f0000000000",
    ),
}
"""Lines of the sources that the rules name, one rule each; most are the last of a log."""
WITH_LINES = [(rule, line) for rule, lines in LINES.items() for line in lines]


def ids(report):
    return [finding.id for finding in report.findings]


def first(log):
    return lab.explain(log).findings[0]


@pytest.mark.parametrize(("rule", "line"), WITH_LINES)
def test_a_line_of_a_crash_is_a_fault(rule, line):
    """Whatever a program or its system writes when it ends, the log of a healthy server that ends so shows a fault."""
    finding = first(SERVING + line + "\n")
    assert (finding.id, finding.severity) == (rule, "fault")


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-02 03:04:05,678 INFO exited: nginx (terminated by SIGSEGV; not expected)",
        "2026-01-02 03:04:05,678 INFO exited: llama (terminated by SIGTERM; expected)",
        "[2026-01-02 03:04:05 +0000] [1] [ERROR] Worker (pid:42) was sent SIGKILL! Perhaps out of memory?",
        "subprocess.CalledProcessError: Command '['make', 'tea']' died with <Signals.SIGABRT: 6>.",
        "thread 'tokio-runtime-worker' panicked at src/main.rs:42:7:",
        "Abgebrochen",
    ],
)
def test_the_end_of_another_program_is_no_crash(line):
    """Supervisors tell of other programs, too, and end some themselves."""
    assert ids(lab.explain(SERVING + line + "\n")) == []


def test_every_form_is_shown():
    """No form of a crash, and no string that leads to it, is there without a line that has it."""
    written = LOGS_OF_FAILURES | LOGS_OF_PARTS | LOGS_OF_LOADS
    logs = [*(log for log, _ in written.values()), *(line for _, line in WITH_LINES)]
    lines = {line.strip() for log in logs for line in log.split("\n")}
    for rule in rules().values():
        for form in rule.forms:
            assert any(_compiled(form).search(line) for line in lines), form
        for needle in rule.any if rule.forms else ():
            assert any(needle in line for line in lines), needle


@pytest.mark.parametrize(("rule", "line"), WITH_LINES)
def test_a_quoted_crash_is_none(rule, line):
    """The same line in a request, in an answer as the server's log has it, or in a sentence, is no crash."""
    request = "srv  log_server_r: request:  " + json.dumps({"messages": [{"content": f"Why?\n{line}\nThanks."}]})
    prompt = ollama('msg="completion request" prompt=' + json.dumps(f"Why?\n{line}\nThanks."), "DEBUG")
    for text in (request, prompt, "What does “{}” mean, and who writes it?".format(line.replace("\n", " "))):
        assert ids(lab.explain(SERVING + text + "\n")) == []


@pytest.mark.parametrize("rule", [rule.id for rule in rules().values() if rule.ends])
def test_no_program_goes_on_after_a_crash(rule):
    """A line of a crash after which requests are answered, and nothing was started again, is an answer's text."""
    for line in LINES.get(rule, ()):
        findings = lab.explain(SERVING + line + "\n" + turn(1, 2000, 1900)).findings
        assert not any(finding.severity == "fault" for finding in findings)


def test_a_crash_after_answers_is_a_fault_until_it_is_started_again():
    """What a server did before does not help it; a new start that works makes a note of the crash."""
    crashed = SERVING + f"{PATH}ggml.c:12: GGML_ASSERT(a > 0) failed\n" + BACKTRACE
    assert first(crashed).severity == "fault"
    assert first(crashed + LOADING).severity == "fault"
    again = first(crashed + SERVING)
    assert (again.id, again.severity) == ("assertion", "note")
    assert "started again" in again.what


def test_a_crash_has_its_words_and_its_place():
    """The file and line, and what the program says, also where another line has them."""
    finding = first(SERVING + cuda_error("misaligned address", where="ggml-cuda/mmq.cu:77"))
    assert "`misaligned address` (mmq.cu:77)" in finding.what
    assert len(finding.lines) == 2
    thrown = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no such slot\n"
    assert "`std::runtime_error: no such slot`" in first(SERVING + thrown).what
    windows = r"D:\my models\ggml-cuda\mmq.cu:77: GGML_ASSERT(a) failed"
    assert "(mmq.cu:77)" in first(SERVING + windows + "\n").what


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("0xc0000005", "memory that is not its own"),
        ("3221226505", "ended itself"),
        ("-1073740791", "ended itself"),
        ("0xc00000fd", "its stack overflowed"),
    ],
)
def test_an_exit_code_is_told_in_words(code, meaning):
    """Windows writes its codes in three ways."""
    line = ollama(f'msg="llama runner terminated" error="exit status {code}"', "ERROR")
    assert meaning in first(STARTED + line).what


def test_advice_is_for_the_gpu_of_the_log():
    """AMD's variables are named beside AMD's GPUs only, and Vulkan's pieces beside Vulkan."""
    lost = "terminate called after throwing an instance of 'vk::DeviceLostError'\n  what():  vk::q: ErrorDeviceLost\n"
    assert "amdgpu" not in " ".join(first(SERVING + lost).fix)
    assert "amdgpu" in " ".join(first(SERVING.replace("NVIDIA GeForce RTX 3060", "AMD Radeon RX 6600") + lost).fix)
    assert "Vulkan" not in " ".join(first(SERVING + cuda_error("the launch timed out and was terminated")).fix)


def test_a_known_cause_explains_its_crash_and_no_other():
    """The cause is told once; after a request that worked, a crash is one of its own."""
    refused = ALLOCATION.format("9000.00") + LOAD_FAILED + EXIT
    assert ids(lab.explain(SERVER + START + card() + MODEL + refused + BACKTRACE)) == ["weights-do-not-fit"]
    once = CONTEXT_FAILED.format("failed to allocate buffer for kv cache")
    report = lab.explain(SERVER + once + LOADING + context() + LISTENING + turn(0, 2000, 0) + BACKTRACE)
    assert ids(report) == ["crashed"]


def test_no_speed_is_advised_beside_a_crash():
    """Layers on the CPU are no matter while the program ends itself."""
    half = SERVER + START + card() + MODEL + weights(2000.0, 2167.0, "17/33") + context()
    assert ids(lab.explain(half)) == ["layers-on-cpu"]
    assert ids(lab.explain(half + "Segmentation fault (core dumped)\n")) == ["crashed"]


def test_the_first_cause_of_a_failed_load_is_quoted():
    """Not the lines that repeat that it failed."""
    cause = "llama_model_load: error loading model: the tea was cold"
    failed = (
        f"{cause}\nllama_model_load_from_file_impl: failed to load model\n"
        "common_init_from_params: failed to load model '/models/x.gguf'\n" + EXIT
    )
    finding = first(SERVER + START + MODEL + failed)
    assert (finding.id, finding.lines[0].text) == ("load-failed", cause)
    assert "failed to load model" in first(SERVER + NOT_LOADED).lines[0].text


def test_a_piece_is_no_whole():
    """The piece that was refused is called one; the whole is llama.cpp's own table, or what had been taken before."""
    refused = CONTEXT_FAILED.format("failed to allocate buffer for kv cache")
    piece = "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1073741824\n"
    what = first(SERVER + START + BREAKDOWN + piece + refused).what
    assert "a piece of 1.00 GiB was refused" in what
    assert "Vulkan0 needs 29.30 GiB (8.79 GiB of weights, 19.53 GiB of cache" in what
    held = SERVER + START + card() + MODEL + weights() + piece.replace("Vulkan0", "CUDA0") + refused
    assert "CUDA0 had 10.74 GiB free, and weights and cache had taken 4.00 GiB of it" in first(held).what


def test_another_gpu_is_named_where_it_has_room():
    """`-ts` is advised where another device could take the piece, and nowhere else."""
    refused = COMPUTE_REFUSED.format("CUDA0") + CONTEXT_FAILED.format("failed to allocate compute pp buffers")
    two = first(TWO_CARDS + weights() + refused)
    assert "CUDA1 had 22.46 GiB left" in two.what
    assert any("`-ts`" in sentence for sentence in two.fix)
    one = first(START + card() + MODEL + weights() + refused)
    assert not any("`-ts`" in sentence for sentence in one.fix)


def test_an_uneven_split_is_named():
    """More than a device's part of the free memory is a matter of the split; an equal part is not."""
    uneven = first(LOGS_OF_FAILURES["uneven"][0])
    assert "share of the weights" in uneven.what
    assert uneven.fix[0].startswith("Give the other GPUs more (`-ts`)")
    even = first(LOGS_OF_FAILURES["uneven"][0].replace("21474836480", "4294967296").replace("20480.00", "4096.00"))
    assert "share" not in even.what
    assert not any("`-ts`" in sentence for sentence in even.fix)


def test_ram_is_not_the_gpus_memory():
    """Buffers of the host are RAM: no flash attention and no fewer layers on the GPU help them."""
    finding = first(LOGS_OF_FAILURES["RAM"][0])
    assert "not the GPU's memory" in finding.what
    assert any("--no-repack" in sentence for sentence in finding.fix)
    other = first(LOGS_OF_FAILURES["RAM for the cache"][0])
    assert not any("--no-repack" in sentence for sentence in other.fix)
    mapped = "llama_model_load: error loading model: mmap failed: Cannot allocate memory\n"
    assert "ram-does-not-suffice" in ids(lab.explain(SERVER + mapped + EXIT))


@pytest.mark.parametrize(
    "words",
    ["concurrent.futures.process.BrokenProcessPool: a process", "StopIteration", "queue.Empty", "struct.error: 4"],
)
def test_an_exception_has_any_name(words):
    """Not every class of exceptions is called an error."""
    finding = first(HEALTHY + TRACEBACK + words + "\n")
    assert (finding.id, words in finding.what) == ("python-exception", True)


def test_a_group_of_exceptions_is_read_after_its_bar():
    """Python draws a line before the frames of a group, and of what it holds."""
    group = '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 4, in f\n'
    group += "  | ExceptionGroup: two of them (2 sub-exceptions)\n"
    inner = '    | Traceback (most recent call last):\n    |   File "b.py", line 2, in g\n    | ValueError: tea\n'
    assert "`ExceptionGroup: two of them" in first(HEALTHY + group).what
    assert "`ValueError: tea`" in first(HEALTHY + group + "  +-+---------------- 1 ----------------\n" + inner).what


@pytest.mark.parametrize("line", ["SystemExit: 0", "GeneratorExit", "INFO:     Shutting down", "Killed by tea"])
def test_what_is_no_exception_ends_no_call(line):
    """A program that was told to end, and a line of another kind below the frames."""
    assert ids(lab.explain(HEALTHY + TRACEBACK + line + "\n")) == []


def test_what_python_ignores_at_its_end_is_none():
    """A destructor that fails when the interpreter ends, as llama-cpp-python's did, harms nothing."""
    ignored = "Exception ignored in: <function Llama.__del__ at 0x1000>\n" + TRACEBACK + "AttributeError: no ctx\n"
    assert ids(lab.explain(HEALTHY + ignored)) == []
    failed = TRACEBACK + "RuntimeError: something of llama_cpp was not so\n"
    assert "RuntimeError" in first(HEALTHY + failed + ignored).what


@pytest.mark.parametrize(
    "name", ["without pipeline parallelism", "fits all the same", "refused in the simulation", "Ollama, second attempt"]
)
def test_what_was_overcome_is_a_note(name):
    """It worked in the end, and nothing has failed."""
    report = lab.explain(LOGS_OF_FAILURES[name][0])
    assert {finding.severity for finding in report.findings} == {"note"}


def test_what_was_tried_again_in_vain_is_a_fault():
    """A retry without pipeline parallelism that fails too."""
    assert first(LOGS_OF_FAILURES["without pipeline parallelism, in vain"][0]).severity == "fault"


def test_errors_that_repeat_are_a_fault():
    """One request that failed between others is worth a note, several are a fault."""
    error = ollama('msg="llama-server completion error" error="EOF"', "ERROR")
    assert first(STARTED + error + FAILED + ANSWERED).severity == "note"
    assert first(STARTED + ANSWERED + error + FAILED).severity == "fault"
    assert first(STARTED + (error + FAILED) * 3 + ANSWERED).severity == "fault"


def test_an_earlier_failure_of_ollama_is_a_note():
    """A load that failed, and a later one of another model that worked."""
    failed = ollama('msg="Load failed" model=/blobs/sha256-0001 error="something"')
    report = lab.explain(STARTED + failed + runner() + HEALTHY + STARTED.split("\n", 1)[1])
    assert not any(finding.severity == "fault" for finding in report.findings)


def test_ollamas_runner_that_ended_and_came_back_is_a_note():
    """The answer of the request that was lost has its error; the next ones are fine."""
    log = STARTED + ANSWERED + "SIGSEGV: segmentation violation\n" + TERMINATED + FAILED + STARTED + ANSWERED
    assert [(finding.id, finding.severity) for finding in lab.explain(log).findings] == [("crashed", "note")]
