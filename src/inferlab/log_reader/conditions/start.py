"""What keeps a program from starting, a model from arriving, or a server from its address."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from inferlab.log_reader.conditions.afterwards import answered_by_server_after, place_of, went_on
from inferlab.log_reader.conditions.found import MOST_LINES, MOST_READ, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import AFTER, Line

UNKNOWN_ARGUMENT = re.compile(
    r"(?:invalid argument:|unknown argument:|invalid parameter for argument:|unrecognized arguments:|unknown flag:"
    r"|unknown shorthand flag: '\w{1,3}' in) {0,3}(\S{1,80})"
)
UNKNOWN_ARGUMENTS = (
    "error: invalid argument: ",  # common/arg.cpp:827
    "error: unknown argument: ",  # 2024
    "error: unrecognized arguments: ",  # argparse
    "Error: unknown flag: ",  # Ollama
    "Error: unknown shorthand flag: ",
)
REPLACED = {
    "--no-mmap": "-lm none",
    "--mmap": "-lm mmap",
    "--mlock": "-lm mlock",
    "--direct-io": "-lm dio",
    "-dio": "-lm dio",
    "-cml": "--chat-template chatml",
    "--chatml": "--chat-template chatml",
    "-ins": "-cnv",
    "--instruct": "-cnv",
}
"""Arguments of earlier llama.cpp, and what the pinned version has in their place: common/arg.cpp:2691"""
SWITCHES = ("on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled")
DASHES = ("\N{EN DASH}", "\N{EM DASH}", "\N{MINUS SIGN}")


def unknown_argument(seen: Observed) -> Found | None:
    for needle in UNKNOWN_ARGUMENTS:
        line = _not_overcome(seen, (needle,))
        if line and (match := UNKNOWN_ARGUMENT.search(line.text)):
            return Found((line,), {"what": _unknown_argument(match[1])})
    return None


def _unknown_argument(name: str) -> str:
    if name.startswith(DASHES):
        return f"The argument {name} begins with a long dash, as word processors write it, and not with `-`."
    if name in REPLACED:
        return f"This version has no argument {name}; newer versions of llama.cpp have `{REPLACED[name]}` in its place."
    if name in SWITCHES:
        return (
            f"“{name}” stands alone: the argument before it takes no value in this version. "
            "`-fa` takes `on`, `off` or `auto` since August 2025, and none before."
        )
    if not name.startswith("-"):
        return f"“{name}” stands where an argument should: a value too many, or a path with a blank without quotes."
    return f"This version of the program has no argument {name}: it is misspelt, or another version has it."


BAD_ARGUMENT = re.compile(
    r'error while handling (argument|environment variable) "([^"]{1,80})": {0,3}(\S.{0,200}?)?\s*$'
)
BAD_VALUES = (
    (re.compile(r"unkn?own value for --flash-attn: '(-[^']{0,60})'"), "it took the next argument, {0}, for its value"),
    (re.compile(r"expected value for argument"), "its value is missing"),
    (re.compile(r"(?:stoi|stol|stof|stoul|stoull|stod)\b"), "its value is no number"),
    (re.compile(r"the argument has been removed\. (\S.{0,150})"), "it was removed: {0}"),
    (re.compile(r"unkn?own value for \S{1,40} '([^']{0,60})'"), "“{0}” is none of its values"),
    (re.compile(r"[Uu]nsupported cache type: (\S{1,40})"), "a cache has no type “{0}”"),
    (
        re.compile(r"invalid device: (\S{1,60})"),
        "no device has the name {0}; `--list-devices` shows those of this build",
    ),
    (re.compile(r"failed to open file '([^']{0,200})'"), "there is no file {0}, or it may not be read"),
)


def bad_argument(seen: Observed) -> Found | None:
    """An argument, or a variable that stands for one, whose value is missing or wrong: common/arg.cpp:803, 872."""
    line = _not_overcome(seen, ('error while handling argument "', 'error while handling environment variable "'))
    if not line or not (match := BAD_ARGUMENT.search(line.text)):
        return _bad_parameter(seen)
    why = (match[3] or "").removeprefix("error: ") or "its value cannot be read"
    for pattern, words in BAD_VALUES:
        if found := pattern.search(why):
            why = words.format(*found.groups())
            break
    what = f"The {match[1]} {match[2]} cannot be read: {why.rstrip('.')}."
    if match[2] in ("-fa", "--flash-attn", "LLAMA_ARG_FLASH_ATTN"):
        what += " Since August 2025 flash attention wants `on`, `off` or `auto`."
    return Found((line,), {"what": what})


def _bad_parameter(seen: Observed) -> Found | None:
    """The words of llama-bench, and of llama-server before autumn 2024."""
    line = _not_overcome(seen, ("error: invalid parameter for argument: ",))
    match = line and re.search(r"invalid parameter for argument: (\S{1,80})", line.text)
    if not line or not match:
        return None
    return Found(
        (line,), {"what": f"The argument {match[1]} cannot be read: its value is missing, or none of its values."}
    )


def _not_overcome(seen: Observed, needles: tuple[str, ...]) -> Line | None:
    """The first line with one of the strings, unless a model was loaded or answered after the last of them."""
    for needle in needles:
        line, last = seen.first(needle), seen.log.last(needle, seen.load.start)
        if line and last and not went_on(seen.log, place_of(seen.log, last.number)):
            return line
    return None


LIBRARIES = (
    ("error while loading shared libraries: ", r"shared libraries: (\S{1,200}?): (.{1,200}?)\s*$"),  # ld.so
    ("Library not loaded: ", r"Library not loaded: (\S{1,200})()"),  # dyld
    (
        "Failed to load shared library '",
        r"shared library '([^']{1,300})': (.{1,500}?)\s*$",
    ),  # llama_cpp/_ctypes_extensions.py
    ("Shared library with base name '", r"Shared library with base name '([^']{1,80})' (not found)"),
    ("DLL load failed while importing ", r"DLL load failed while importing (\S{1,80}?): (.{1,200}?)\s*$"),
    ("Could not find module '", r"Could not find module '([^']{1,300})' (\(or one of its dependencies\))"),
    (
        ": cannot open shared object file: ",
        r"(?:OSError|ImportError): (\S{1,200}?): (cannot open shared object file): ",
    ),
    ("symbol lookup error: ", r"symbol lookup error: (\S{1,200}?): (undefined symbol: \S{1,120})"),
    ("' not found (required by ", r"version `([\w.]{1,40})' (not found)"),
    (" was not found", r"because (\S{1,80}\.dll) was (not found)"),
    ("exit status 0xc0000135", r"(exit status 0xc0000135)()"),
)


def missing_library(seen: Observed) -> Found | None:
    """A library without which the program does not start; that of a backend only takes the backend away."""
    for needle, pattern in LIBRARIES:
        for line in islice(seen.lines(needle), MOST_READ):
            match = re.search(pattern, line.text)
            if match and not any(word in line.text for word in BACKEND_LINES):
                return (
                    Found((line,), {"what": _library(match[1], match[2])}) if _not_overcome(seen, (needle,)) else None
                )
    return None


def _library(name: str, why: str) -> str:
    name = re.split(r"[/\\]", name)[-1]
    if name.startswith(("GLIBC", "CXXABI")):
        return f"The program was built for a newer system: {name} is not in this one's C or C++ library."
    if name.startswith("exit status"):
        return "Windows did not find a library (DLL) that the runner needs."
    if "one of its dependencies" in why:
        return f"The library {name} was not found, or another one that it needs."
    inner = re.search(r"(lib[\w.+-]{1,60}\.so[\w.]{0,20}|[\w.+-]{1,60}\.(?:dll|dylib))", why)
    if inner and inner[1] != name:
        return f"{name} needs the library {inner[1]}, which was not found."
    return f"The library {name} was not found, or does not fit."


BACKEND_LINES = (
    "load_backend: ",
    "ggml_backend_load",
    "load_best: ",
    "cudart library",
    "nvcuda library",
    "nvml library",
)
GPU_BACKENDS = re.compile(
    r"failed to load (?:\S{0,300}[/\\])?(?:lib)?ggml-(cuda|hip|vulkan|sycl|metal|opencl|musa|cann)\b"
)
LOADED_BACKEND = re.compile(r"loaded (?!CPU|RPC|BLAS)\w{2,12} backend from ")


def backend_not_loaded(seen: Observed) -> Found | None:
    """The library of a GPU's backend could not be loaded, and no other GPU's backend was: ggml-backend-reg.cpp:224."""
    if any(LOADED_BACKEND.search(line.text) for line in islice(seen.lines(" backend from "), MOST_READ)):
        return None
    for line in islice(seen.lines(": failed to load "), MOST_READ):
        if match := GPU_BACKENDS.search(line.text):
            why = re.search(r"(?:\.so|\.dll|\.dylib)\S{0,20}: (\S.{0,150}?)\s*$", line.text)
            return Found((line,), {"name": match[1], "why": f": {why[1]}" if why else ""})
    return None


def cpu_code_not_loaded(seen: Observed) -> Found | None:
    """None of the libraries with the CPU's kernels could be loaded: ggml-backend-reg.cpp:531, ollama#9517."""
    if seen.first("loaded CPU backend from "):
        return None
    lines = [line for line in islice(seen.lines(": failed to load "), MOST_READ) if "ggml-cpu-" in line.text]
    lines = lines or _without_vectors(seen)
    return Found(tuple(lines[:MOST_LINES])) if lines else None


BASE_ONLY = re.compile(r'msg=system (?:CPU\.0\.LLAMAFILE=1 compiler=|info="CPU : LLAMAFILE = 1 \| cgo)')
"""ollama v0.11.7 ml/backend/ggml/ggml/src/ggml.go:104, v0.5 runner.go; a library of its own adds AVX or NEON"""


def _without_vectors(seen: Observed) -> list[Line]:
    """Ollama's line about the processor's code, where it names nothing but what is built into the program itself."""
    line = seen.first("msg=system CPU.") or seen.first('msg=system info="CPU : ')
    computes = seen.bytes_on("weights", host=True) > seen.bytes_on("weights", host=False)
    return [line] if line and computes and BASE_ONLY.search(line.text) else []


ENGINE = re.compile(r"backends[/\\]([\w.+-]{1,120})[/\\]")


def engine_not_loaded(seen: Observed) -> Found | None:
    """LM Studio's message, whose path may stand on its next line: lmstudio-bug-tracker#711, #1658."""
    line = seen.log.last("Failed to load LLM engine from path:")
    if line is None:
        return None
    at = place_of(seen.log, line.number)
    match = ENGINE.search(seen.log.text, at, at + 2 * AFTER)
    return Found((line,), {"name": f" {match[1]}" if match else ""})


SWAPS_STOP = (
    ("process exited but not StateStopping, current state: ", r"current state: (\w{1,20})"),
    ("upstream command exited prematurely", r"exited (prematurely)"),
    ("upstream process exited unexpectedly", r"exited (unexpectedly)"),
)
STARTING = ("starting", "prematurely")
SIGNALLED = ("cmd.Wait() returned error: signal: terminated", "cmd.Wait() returned error: signal: interrupt")


def swap_stopped(seen: Observed) -> Found | None:
    """llama-swap's words for a server that ended while it had not yet marked it as stopping: its process.go."""
    for needle, pattern in SWAPS_STOP:
        line = seen.log.last(needle)
        match = line and re.search(pattern, line.text)
        if not line or not match or seen.log.has("Health check passed on ", place_of(seen.log, line.number)):
            continue
        when = "before it had loaded its model" if match[1] in STARTING else "while it was running"
        signal = next((sent for said in SIGNALLED if (sent := seen.log.last(said)) and _of(sent) == _of(line)), None)
        if signal is None:
            return Found((line,), {"what": f"A server that llama-swap had started ended {when}."})
        what = f"A server that llama-swap had started was stopped by a signal {when}: it did not crash."
        return Found((signal, line), {"what": what})
    return None


def _of(line: Line) -> str:
    """The name of a model between angle brackets."""
    return line.text.partition("<")[2].partition(">")[0]


def _until_it_works(name: str, needles: tuple[str, ...]) -> Callable[[Observed], Found | None]:
    """A condition: the last of the messages, overcome where the program answered or pulled a model after it."""

    def condition(seen: Observed) -> Found | None:
        lines = [line for needle in needles if (line := seen.log.last(needle))]
        if not lines:
            return None
        line = max(lines, key=lambda line: line.number)
        at = place_of(seen.log, line.number)
        return Found((line,), overcome=went_on(seen.log, at) or answered_by_server_after(seen.log, at))

    condition.__name__ = name
    return condition


def ollama_cuda_library(seen: Observed) -> Found | None:
    """Ollama tries several libraries; that one fails matters only where it found no GPU: discover/gpu.go:573."""
    if seen.found_a_gpu is not False:
        return None
    for needle in ("nable to load cudart library", "nable to load nvcuda library", "nable to load cuda driver library"):
        if line := seen.log.last(needle):
            return Found((line,))
    return None


HTTP_BIND = re.compile(r"couldn't bind HTTP server socket, hostname: (\S{1,120}), port: (\d{1,6})")
ALL_OR_LOOPBACK = re.compile(r"127\.|0\.0\.0\.0|localhost$|::1?$|\[::1?\]$")
FIRST_FREE_PORT = 1024


def _bound(seen: Observed) -> tuple[Line, str, int] | None:
    """llama-server's line about its socket, which names no reason: tools/server/server-http.cpp:517."""
    line = _not_overcome(seen, ("couldn't bind HTTP server socket",))
    match = line and HTTP_BIND.search(line.text)
    return (line, match[1], int(match[2])) if line and match else None


PORT_TAKEN = (
    "bind: address already in use",
    "bind: Only one usage of each socket address",
    "error while attempting to bind on address",  # uvicorn, of llama_cpp.server
    "listen EADDRINUSE",
)


def port_taken(seen: Observed) -> Found | None:
    for needle in PORT_TAKEN:
        if line := _not_overcome(seen, (needle,)):
            return Found(
                (line,), {"what": "The port is taken: another server runs already, and clients speak to that one."}
            )
    bound = _bound(seen)
    if bound and bound[2] >= FIRST_FREE_PORT and ALL_OR_LOOPBACK.match(bound[1]):
        what = f"Most often another server has port {bound[2]}, and clients speak to that one."
        return Found((bound[0],), {"what": what})
    if not bound and (line := _not_overcome(seen, ("couldn't bind HTTP server socket",))):
        return Found((line,), {"what": "Most often another server has it."})
    return None


ADDRESS_REFUSED = (
    (
        "bind: cannot assign requested address",
        "This machine does not have the address on which the server should listen.",
    ),
    (
        "bind: can't assign requested address",
        "This machine does not have the address on which the server should listen.",
    ),
    (
        "bind: The requested address is not valid in its context",
        "This machine does not have the address on which the server should listen.",
    ),
    (
        "bind: An attempt was made to access a socket in a way forbidden",
        "Windows does not give the port away: it has reserved it, for Hyper-V or Docker, or another program holds it.",
    ),
    (
        "bind: permission denied",
        "The system does not give the port away: ports below 1024 need the right to take them.",
    ),
)


def address_refused(seen: Observed) -> Found | None:
    for needle, what in ADDRESS_REFUSED:
        if line := _not_overcome(seen, (needle,)):
            return Found((line,), {"what": what})
    bound = _bound(seen)
    if not bound or (bound[2] >= FIRST_FREE_PORT and ALL_OR_LOOPBACK.match(bound[1])):
        return None
    line, host, port = bound
    if host.endswith(".sock"):
        what = f"The socket {host} could not be made: the folder may not be written, or the file is there already."
    elif ALL_OR_LOOPBACK.match(host):
        what = f"A port below 1024, such as {port}, needs the right to take it; or another server has it."
    else:
        what = f"This machine does not have the address {host}, or port {port} is taken."
    return Found((line,), {"what": what})


REGISTRY = re.compile(
    r"(?:registry\.ollama\.ai|ollama\.com|huggingface\.co|hf\.co|r2\.cloudflarestorage\.com|https://[\w.-]{1,80})"
)
NETWORK = (
    (": no such host", "its name could not be looked up"),
    (": server misbehaving", "its name could not be looked up"),
    (": network is unreachable", "there is no network to it"),
    (": no route to host", "there is no network to it"),
    ("connect: connection refused", "the connection was refused"),
    ("TLS handshake timeout", "the encrypted connection did not come about in time"),
    (": i/o timeout", "it did not answer in time"),
    ("proxyconnect tcp: ", "the proxy could not be reached"),
    ("x509: certificate", "its certificate is not trusted here, as behind a proxy that opens connections"),
    ("server gave HTTP response to HTTPS client", "what answered does not encrypt, as a proxy may"),
    ("max retries exceeded", "the download broke off again and again"),
    ("connection reset by peer", "the connection broke off"),
    ("An existing connection was forcibly closed", "the connection broke off"),
)
OLLAMAS_REQUEST = (
    "request failed: ",
    "pull model manifest: ",
    'Error: Get "https://',
    'Error: Head "https://',
    "max retries",
)


def ollama_offline(seen: Observed) -> Found | None:
    """A pull that could not reach the registry; retries that are still under way do not count: server/images.go."""
    for needle, words in NETWORK:
        for line in islice(seen.lines(needle), MOST_READ):
            asked = any(word in line.text for word in OLLAMAS_REQUEST)
            if asked and "retrying" not in line.text and (REGISTRY.search(line.text) or "max retries" in line.text):
                host = re.search(r"https?://([\w.-]{1,80})", line.text)
                return Found((line,), {"host": host[1] if host else "the registry", "why": words})
    return None


HF_UNREACHABLE = (
    "HTTPLIB failed: ",  # common/hf-cache.cpp:201
    "cannot make GET request: ",  # llama.cpp#13202
    "(check your internet connection)",
    "curl_easy_perform() failed: ",
    "HEAD failed, status: -1",  # llama.cpp#21694
    "required file is not available in cache (offline mode)",  # common/download.cpp:457
    "download failed after ",
)
HF_STATUS = re.compile(r"GET failed \((\d{3})\)|(?:status|response) code: (\d{3})\b|status code received: (\d{3})\b")
HF_ANSWERS = (
    "GET failed (",
    "download received non-successful status code: ",
    "error from HF API",  # common/arg.cpp of 2025
    "invalid http status code received: ",
)
HF_NO_FILE = (
    "no GGUF files found in repository ",
    "' not found in repository",
    "error: model does not have ggufFile",  # common/arg.cpp of 2025
)
HF_WORDS = {
    "401": "Hugging Face wants a sign-in for it, or has no such repository.",
    "403": "Hugging Face gives it only to those whose access was granted.",
    "404": "Hugging Face has no such repository or file.",
    "429": "Hugging Face refused it, because of too many requests.",
}


FILE_WAS_READ = ("loaded meta data with", "print_info: ", "load_tensors: ", "cudaMalloc failed", "unable to allocate ")
"""Lines that no model without a file has: a download that failed was then not needed, such as that of a preset."""


def _not_downloaded(seen: Observed, needles: tuple[str, ...]) -> Line | None:
    line = _not_overcome(seen, needles)
    at = place_of(seen.log, line.number) if line else 0
    return None if any(seen.log.has(word, at) for word in FILE_WAS_READ) else line


def hf_refused(seen: Observed) -> Found | None:
    """The status with which Hugging Face refused the file that was to be downloaded."""
    for needle in HF_ANSWERS:
        line = _not_downloaded(seen, (needle,))
        match = line and HF_STATUS.search(line.text)
        status = next((group for group in match.groups() if group), "") if match else ""
        if line and status in HF_WORDS:
            return Found((line,), {"what": HF_WORDS[status]})
    if line := _not_downloaded(seen, ("error: model is private or does not exist",)):
        return Found((line,), {"what": HF_WORDS["401"]})
    if line := _not_downloaded(seen, HF_NO_FILE):
        return Found((line,), {"what": "The repository has no such file in GGUF."})
    return None


def hf_unreachable(seen: Observed) -> Found | None:
    line = _not_downloaded(seen, HF_UNREACHABLE)
    return Found((line,)) if line else None


def no_https(seen: Observed) -> Found | None:
    line = _not_overcome(
        seen, ("HTTPS is not supported. Please rebuild", "built without SSL support", "built without libcurl")
    )
    return Found((line,)) if line else None


def disk_full(seen: Observed) -> Found | None:
    line = _not_overcome(
        seen, ("no space left on device", "No space left on device", "not enough space on the disk", "ENOSPC")
    )
    return Found((line,)) if line else None


TIMED_OUT = re.compile(
    r"timed out waiting for (?:llama runner|llama-server) to start(?: - progress (\d\.\d{1,2}))?"
    r"|health check (?:timed out|failed) after (\d{1,6}s)"
)


def load_timed_out(seen: Observed) -> Found | None:
    """A load that was given up by the program around it; a client that went away is no such case (context canceled)."""
    for needle in ("timed out waiting for llama", "health check timed out after ", "health check failed after "):
        line = _not_overcome(seen, (needle,))
        match = line and TIMED_OUT.search(line.text)
        if not line or not match or "context canceled" in line.text:
            continue
        done = f" at {round(100 * float(match[1]))} % of it" if match[1] else ""
        after = f" after {match[2]}" if match[2] else ""
        return Found((line,), {"when": f"{done}{after}"})
    return None


TEMPLATE_FAILED = (
    "the supplied chat template is not supported",
    "chat template parsing error: ",
    "failed to initialize chat template",
    "custom template is not supported",
)


def template_refused(seen: Observed) -> Found | None:
    """A template with which the program did not start; older versions went on with another one."""
    line = _not_overcome(seen, TEMPLATE_FAILED)
    return Found((line,)) if line else None


CACHE_TYPE = re.compile(
    r"(?P<which>[KV]) cache type (?P<type>\w{1,12}) with block size (?P<block>\d{1,4}) "
    r"does not divide n_embd_head_[kv]=(?P<head>\d{1,5})"
)


def cache_type_refused(seen: Observed) -> Found | None:
    """src/llama-context.cpp:3855, 3866"""
    line = seen.first(" with block size ")
    match = line and CACHE_TYPE.search(line.text)
    return Found((line,), match.groupdict()) if line and match else None


CONDITIONS = (
    unknown_argument,
    bad_argument,
    missing_library,
    backend_not_loaded,
    ollama_cuda_library,
    port_taken,
    address_refused,
    ollama_offline,
    hf_refused,
    hf_unreachable,
    no_https,
    disk_full,
    load_timed_out,
    template_refused,
    cache_type_refused,
    cpu_code_not_loaded,
    engine_not_loaded,
    swap_stopped,
    _until_it_works("ollama_too_old", ("requires a newer version of Ollama",)),
    _until_it_works("model_not_found", ("pull model manifest: file does not exist", "not found, try pulling it first")),
    _until_it_works(
        "server_not_running",
        (
            "could not connect to ollama server, run 'ollama serve'",
            "could not connect to ollama app, is it running?",
            "ollama server not responding",
        ),
    ),
    _until_it_works("no_model_loaded", ("No models loaded. Please load a model",)),
    _until_it_works(
        "import_refused",
        ("Error: unsupported architecture", "Error: unsupported content type", 'msg="unsupported content type: '),
    ),
)
