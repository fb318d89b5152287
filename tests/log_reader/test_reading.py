"""Logs as people have them: coloured, prefixed, cut, repeated, huge, damaged."""

import json
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_logs import GO_ENGINE, HEALTHY, LOGS, MODEL, OLLAMA_START, START, card, context, runner, weights

import inferlab as lab
from inferlab.errors import UnreadableLog
from inferlab.units import GIB, MIB

RUNS = sorted((Path(__file__).parents[1] / "data" / "logs").glob("*.log"))
SERVER = next(path for path in RUNS if path.stem == "server").read_text()
SLOTS = next(path for path in RUNS if path.stem == "server-slots").read_text()
SEEDS = [*(path.read_text() for path in RUNS), *(log for log, _ in LOGS.values())]


def facts(report):
    """Everything of a report but the lines of its findings."""
    return {name: value for name, value in report.to_dict().items() if name not in ("findings", "n_lines")}


def ids(report):
    return [finding.id for finding in report.findings]


def prefixed(prefix):
    return lambda log: "".join(f"{prefix}{line}\n" for line in log.split("\n"))


FORMS = {
    "Windows line ends": lambda log: log.replace("\n", "\r\n"),
    "colours": lambda log: log.replace(" I ", " \x1b[32mI \x1b[0m").replace("\n", "\x1b[0m\n"),
    "docker": prefixed("llm-1  | "),
    "journalctl": prefixed("Jan 02 03:04:05 host llama-server[1234]: "),
    "timestamps": prefixed("2026-01-02T03:04:05.678901234Z "),
    "Kubernetes": prefixed("2026-01-02T03:04:05.678901234+02:00 stderr F "),
    "journalctl in French": prefixed("mai 17 11:51:53 host server[1900]: "),
    "journalctl without times": prefixed("server[1900]: "),
    "Docker Desktop": prefixed("2026-05-14 22:14:13.296 | "),
    "a router": prefixed("[52477] "),
    "a quoted block of docker compose": prefixed("> llm-1  | "),
    "JSON lines of docker": lambda log: "".join(json.dumps({"log": f"{line}\n"}) + "\n" for line in log.split("\n")),
}
PROGRAMS = {
    "3:04PM DBG GRPC(model(1)-127.0.0.1:36827): stderr ": "LocalAI",
    "Jan 02 03:04:05 host local-ai[99]: 3:04PM DBG GRPC(model(1)-127.0.0.1:36827): stdout ": "LocalAI",
    "[2026-01-02][03:04:05][a::commands][INFO] [llamacpp] ": "Jan",
    "[03:04:05] INFO [llamacpp-router stdout] [52477] ": "Jan",
    "INFO [llamacpp-router stderr] [52477] ": "Jan",
    "[llamacpp-router stdout] [52477] ": "Jan",
}
"""What programs write before each line of the server that they start: LocalAI#1729, jan#6628, #8236, #8273"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("log", [SLOTS, LOGS["pushed off"][0]], ids=["llama-server", "Ollama"])
def test_the_form_of_a_log_does_not_matter(form, log):
    """Prefixes, colours and line ends change neither facts nor findings."""
    plain, other = lab.explain(log), lab.explain(FORMS[form](log))
    assert ids(other) == ids(plain)
    assert facts(other) == facts(plain)


@pytest.mark.parametrize("prefix", PROGRAMS)
def test_a_program_is_known_by_what_it_writes_before_a_line(prefix):
    """Nothing but the program, and what is said of it, changes."""
    plain, other = lab.explain(SLOTS), lab.explain(prefixed(prefix)(SLOTS))
    assert other.program.name == PROGRAMS[prefix]
    assert ids(other) == ids(plain)
    own = {"program": None, "unknown": None}
    assert facts(other) | own == facts(plain) | own


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_of_power_shell_is_read(tmp_path, encoding):
    """A file is read in UTF-8 and in UTF-16, by its path and by its name."""
    path = tmp_path / "server.log"
    path.write_bytes(SLOTS.encode(encoding))
    assert lab.explain(path).to_dict() == lab.explain(str(path)).to_dict() == lab.explain(SLOTS).to_dict()
    assert lab.explain(path.read_bytes()).to_dict() == lab.explain(SLOTS).to_dict()


def test_a_healthy_log_says_what_was_allocated_where():
    """Buffers, layers, settings and rates of a run of llama-server, from its lines."""
    report = lab.explain(SERVER)
    assert report.program.name == "llama-server"
    assert report.program.build == "1 (0c1e570)"
    assert (report.model.architecture, report.model.n_ctx_train, report.model.n_layer) == ("llama", 1024, 6)
    assert report.model.weights_bytes == round(11.01 * MIB)
    assert report.table["CPU"]["kv_cache"] == 3 * MIB
    assert (report.context.n_ctx, report.context.n_slots, report.context.n_ctx_slot) == (1024, 4, 1024)
    assert (report.context.type_k, report.context.flash_attn, report.context.n_threads) == ("f16", "on", 2)
    assert report.context.kv_unified is True
    assert report.prompt.n_requests == report.answer.n_requests == 2
    assert report.answer.n_tokens == 80


@pytest.mark.parametrize("name", ["server", "server-2024", "server-2025"])
def test_three_versions_say_the_same(name):
    """llama-server of 2024, of 2025 and of the pinned version spell the same facts in other words."""
    report = lab.explain(next(path for path in RUNS if path.stem == name))
    assert (report.program.name, report.model.architecture, report.model.n_layer) == ("llama-server", "llama", 6)
    assert (report.model.file_type, report.model.n_ctx_train, report.model.name) == ("F16", 1024, "inferlab tiny")
    assert report.model.weights_bytes == round(11.01 * MIB)
    assert report.table["CPU"]["kv_cache"] == 3 * MIB
    assert report.layers.by_device == {"CPU": 7}
    context = report.context
    assert (context.n_ctx, context.n_ctx_slot, context.n_threads, context.n_processors) == (1024, 1024, 2, 2)
    assert (context.type_k, context.type_v, context.n_batch, context.n_ubatch) == ("f16", "f16", 1024, 512)
    assert (report.answer.n_requests, report.answer.n_tokens) == (2, 80)
    assert report.n_loads == 1


def test_a_log_of_a_gpu_says_what_was_allocated_where():
    """Weights, cache and compute of a card, and its free memory."""
    report = lab.explain(HEALTHY)
    assert report.table["CUDA0"] == {"weights": round(4095.05 * MIB), "kv_cache": 512 * MIB, "compute": 104 * MIB}
    assert report.devices[0].free_bytes == 11_000 * MIB
    assert report.program.backends == ("CUDA", "CPU")
    assert (report.answer.slowest, report.answer.text) == (50, "50 tokens/s")
    assert "which processor computes attention" in " ".join(report.unknown)


def test_rates_are_those_that_the_log_prints():
    """Several requests have a slowest and a fastest rate, as their lines print them, and no average."""
    report = lab.explain(next(path for path in RUNS if path.stem == "server-default"))
    assert (report.answer.n_requests, report.answer.n_tokens) == (2, 60)
    assert (report.answer.slowest, report.answer.fastest) == (4.45, 161.12)
    assert report.answer.text == "4.45 to 161 tokens/s"
    assert "answer: 4.45 to 161 tokens/s" in repr(report)


def test_a_request_without_a_rate_has_none():
    """A line that is cut off before its rate is divided; a request of no measurable time has no rate."""
    cut = "llama_perf_context_print: prompt eval time =     500.00 ms /   100 tokens\n"
    assert lab.explain(cut).prompt.text == "200 tokens/s"
    line = "llama_perf_context_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf "
    answer = lab.explain(f"{line}tokens per second)\n").answer
    assert (answer.n_requests, answer.text) == (1, "unknown")


@pytest.mark.parametrize("name", ["server", "server-2024", "server-2025", "python"])
def test_the_lines_of_the_requests_are_enough(name):
    """The timings of a log, pasted alone, are lines of a known program."""
    whole = next(path for path in RUNS if path.stem == name).read_text()
    report = lab.explain("".join(f"{line}\n" for line in whole.split("\n") if "eval time =" in line))
    assert report.program.name != "unknown"
    assert (report.prompt, report.answer) == (lab.explain(whole).prompt, lab.explain(whole).answer)


def test_the_share_of_the_weights_on_a_gpu():
    """It compares the buffers with the file, and is None where one of them is missing."""
    assert lab.explain(LOGS["pushed off"][0]).share_on_devices == pytest.approx(2000 / (4.07 * 1024))
    assert lab.explain(SERVER).share_on_devices == 0
    assert lab.explain(START + MODEL).share_on_devices is None


def test_what_the_log_does_not_say_is_none():
    """The default verbosity of llama-server names no buffer and no type, and the report says how to get them."""
    report = lab.explain(next(path for path in RUNS if path.stem == "server-default"))
    assert report.buffers == ()
    assert (report.layers, report.context.n_batch, report.context.type_k, report.model.architecture) == (None,) * 4
    assert "Start llama-server with `-lv 4`." in report.unknown[0]


def test_layers_come_from_the_lines_of_the_layers():
    """Debug lines name each layer's device, whatever `offloaded` says."""
    places = [(layer, "CUDA0" if layer > 9 else "CPU") for layer in range(33)]
    lines = [f"load_tensors: layer {layer:3} assigned to device {device}, is_swa = 0\n" for layer, device in places]
    report = lab.explain(START + card() + MODEL + "".join(lines) + weights() + context())
    assert report.layers.by_device == {"CPU": 10, "CUDA0": 23}
    assert ids(report) == ["layers-on-cpu"]


def test_layers_are_those_that_llama_cpp_counts():
    """Without debug lines, the layers of an only device are those that `offloaded` counts."""
    report = lab.explain(next(path for path in RUNS if path.stem == "server-some-layers"))
    assert {name.partition("[")[0]: n for name, n in report.layers.by_device.items()} == {"RPC0": 3, "CPU": 4}
    assert lab.explain(LOGS["cache in RAM"][0]).layers.by_device == {"CUDA0": 33}


def test_layers_follow_from_the_cache():
    """Without a line that counts them, each device's part of the cache tells its layers, unless parts are odd."""
    uncounted = HEALTHY.replace("load_tensors: offloaded 33/33 layers to GPU\n", "")
    assert lab.explain(uncounted).layers.by_device == {"CUDA0": 32}
    uneven = uncounted.replace("CUDA0 KV buffer", "CUDA0 KV buffer size =   500.00 MiB\nllama_kv_cache: CPU KV buffer")
    assert lab.explain(uneven.replace("CPU KV buffer size =   512.00", "CPU KV buffer size = 9.00")).layers is None


def test_the_context_of_ollama_comes_from_its_command():
    """Ollama's line says which context and how many slots it asked for."""
    report = lab.explain(OLLAMA_START + runner(16384, parallel=2))
    assert (report.program.name, report.program.version) == ("Ollama", "0.33.0")
    assert (report.context.n_ctx, report.context.n_slots) == (16384, 2)


def test_the_buffers_of_ollamas_own_engine_are_read():
    """Ollama's own engine writes sizes in other words."""
    table = lab.explain(OLLAMA_START + GO_ENGINE).table
    assert table["CUDA0"]["weights"] == round(11.9 * GIB)
    assert table["CUDA0"]["kv_cache"] == 640 * MIB


def test_older_spellings_are_read():
    """Before 2025 the loader's lines began with llm_load_ and had other names."""
    log = HEALTHY.replace("print_info:", "llm_load_print_meta:").replace("load_tensors:", "llm_load_tensors:")
    log = log.replace("model buffer size", "buffer size")
    new, old = "llama_context: flash_attn            = enabled", "llama_new_context_with_model: flash_attn = 0"
    log = log.replace(new, old)
    report = lab.explain(log)
    assert report.table["CUDA0"]["weights"] == round(4095.05 * MIB)
    assert report.model.architecture == "llama"
    assert report.context.flash_attn == "off"


@pytest.mark.parametrize("before", [HEALTHY, SLOTS, LOGS["cache"][0], SERVER + SLOTS])
def test_the_last_load_counts(before):
    """A fault of an earlier run is not told about the last one, and the number of loads is said."""
    report = lab.explain(before + SERVER)
    assert ids(report) == []
    assert facts(report) | {"n_loads": 1} == facts(lab.explain(SERVER))
    assert report.n_loads == lab.explain(before).n_loads + 1


def test_a_draft_model_is_not_the_last_load():
    """The buffers of a draft model are not those of the model."""
    draft = next(path for path in RUNS if path.stem == "server-draft").read_text()
    assert draft.count("loaded meta data") == 2
    report = lab.explain(draft)
    assert (report.n_loads, report.has_draft) == (1, True)
    assert report.table["CPU"]["kv_cache"] == 3 * MIB
    assert not lab.explain(SERVER).has_draft


def unknown(log):
    return " ".join(lab.explain(log).unknown)


def test_the_beginning_of_a_load_may_be_missing():
    """Lines of a load without its first one are no log without a load, and Ollama's engine has a first line too."""
    load = SERVER.split("\n")
    first = next(n for n, line in enumerate(load) if "loaded meta data" in line)
    assert "The beginning of the load is missing." in unknown("\n".join(load[first + 1 :]))
    assert "The beginning of the load is missing." in unknown("main: exiting due to model loading error\n")
    requests = "\n".join(line for line in load if "print_timing" in line)
    assert "no line of a load" in unknown(requests)
    for log in (SERVER, OLLAMA_START + GO_ENGINE, LOGS["Ollama, RAM"][0]):
        assert "beginning of the load" not in unknown(log)
        assert "line of a load" not in unknown(log)


def test_a_gpu_whose_error_is_quoted_is_known():
    """An error of CUDA comes from a machine with a GPU."""
    assert "names no GPU" not in unknown("CUDA error: out of memory\n")
    assert "names no GPU" in unknown(SERVER)


def test_what_offloaded_says_is_said_where_it_stands():
    """With weights on devices it counts their layers; else llama.cpp's line repeats what was asked for."""
    cut = HEALTHY.replace(" model buffer size", " cut").replace(" cells,  32 layers", " cells")
    assert "`offloaded` repeats" in unknown(cut)
    for log in (OLLAMA_START + GO_ENGINE, HEALTHY):
        assert "counts the layers on devices" in unknown(log)
        assert "`offloaded` repeats" not in unknown(log)
    uncounted = START + card() + MODEL + context().replace(" cells,  32 layers", " cells")
    assert "each layer's device" in unknown(uncounted)


@pytest.mark.parametrize("keep", [slice(60, None), slice(None, 90)], ids=["its beginning", "its end"])
def test_a_log_that_lacks(keep):
    """Facts of the lines that are missing are None; the others stay."""
    report = lab.explain("\n".join(SERVER.split("\n")[keep]))
    assert ids(report) == []
    assert report.answer is None or report.model.architecture is None


@pytest.mark.parametrize("log", ["", " \n\t\n", "\x1b[0m\r\n", b"".decode(), "no line of any program\nat all"])
def test_nothing_to_read_is_said(log):
    """An empty text, and a text of something else, is answered with what to do."""
    with pytest.raises(UnreadableLog, match="There is nothing to read"):
        lab.explain(log)


@pytest.mark.parametrize("start", [b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03"])
def test_a_model_is_no_log(tmp_path, start):
    """A file that begins as a GGUF is called a model, by its path, as bytes, and as the text of a page's field."""
    path = tmp_path / "model.gguf"
    path.write_bytes(start + bytes(range(256)) * 8)
    for log in (path, path.read_bytes(), path.read_bytes().decode("utf-8", "replace")):
        with pytest.raises(UnreadableLog, match=r"model in GGUF, not a log.*planner"):
            lab.explain(log)


def test_a_name_of_no_file_is_said(tmp_path):
    """A typing error in a file's name is shown; a folder, or a file without the right to read it, is no log."""
    with pytest.raises(UnreadableLog, match=r"which begin with 'sever\.log'"):
        lab.explain("sever.log")
    with pytest.raises(UnreadableLog, match="cannot be read"):
        lab.explain(tmp_path)


HOSTILE = {
    "request lines": lambda n: (
        HEALTHY + "slot print_timing: id  0 | task 0 | prompt eval time = 1.00 ms / 5 tokens\n" * n
    ),
    "one line": lambda n: "load_tensors: CUDA0 model buffer size = " + "1" * 70 * n,
    "spaces": lambda n: "llama_context: n_ctx" + " " * 70 * n + "= 1",
    "words": lambda n: HEALTHY + "a " * 35 * n,
    "escapes": lambda n: HEALTHY + "\x1b[" * 35 * n,
    "loads": lambda n: "llama_model_loader: loaded meta data with 1 key-value pairs and 2 tensors\n" * n,
    "empty lines": lambda n: HEALTHY + "\n" * 70 * n,
    "layers": lambda n: HEALTHY + "load_tensors: layer   1 assigned to device CPU, is_swa = 0        \n" * n,
    "prefixes": lambda n: HEALTHY + "2026-01-02T03:04:05.678Z host llama[1]: \n" * 2 * n,
    "a prefix without an end": lambda n: HEALTHY + "Jan 02 03:04:05 " + "a[1] " * 14 * n,
    "devices": lambda n: HEALTHY + "ggml_vulkan: 0 = a (b) (c) (d) (e) | uma: 0 | fp16: 1 | warp size: 32 |\n" * n,
    "a name without an end": lambda n: HEALTHY + "ggml_vulkan: 0 = " + "a (" * 23 * n + " | uma: 0",
    "a buffer's name": lambda n: HEALTHY + "llama_kv_cache: " + "a " * 35 * n + " KV buffer size = 1.00 MiB",
    "buffers without a name": lambda n: HEALTHY + ("load_tensors: " + " " * 52 + "model buffer size\n") * n,
    "buffers": lambda n: HEALTHY + "llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB             \n" * n,
    "Ollama's plan": lambda n: 'level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="4.0 GiB"\n' * n,
    "prompts": lambda n: (
        HEALTHY + "task 0 | new prompt, n_ctx_slot = 4, task.n_tokens = 900 cached n_tokens = 0,\n" * n
    ),
}


def processor_seconds(log):
    start = time.process_time()
    lab.explain(log)
    return time.process_time() - start


@pytest.mark.parametrize("kind", HOSTILE)
def test_time_is_in_proportion_to_the_log(kind):
    """Two megabytes of anything take less than 30 times the processor time of a tenth of it; squared, it were 100."""
    short, long = map(HOSTILE[kind], (3_000, 30_000))
    assert len(long) > 1_900_000
    processor_seconds(short)  # the first log also loads the reader
    assert any(processor_seconds(long) < 30 * processor_seconds(short) for _ in range(3))


def mutated(log, seed):
    """A log with pieces cut, swapped, repeated, and with random characters and numbers in it."""
    chance = random.Random(seed)
    odd = "\0\t\n\r\x1b%<{[\udc80\u2028\U0001f600"
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(log) + 1)
        to = at + chance.choice((1, 20, 2000))
        number = chance.choice(("", "-", "99999999999999999999", "1.2.3"))
        log = chance.choice(
            (
                log[:at] + log[to:],
                log[:at] + log[at:to] * chance.randint(2, 9) + log[to:],
                log[to:] + log[:at] + log[at:to],
                log[:at] + "".join(chance.choices(odd, k=9)) + log[at:],
                log.replace(chance.choice("0123456789"), number),
                log[:at] + chance.choice(SEEDS)[:3000] + log[to:],
            )
        )
    return log


@settings(max_examples=300, deadline=2000)
@given(st.sampled_from(SEEDS), st.integers(0, 2**32))
def test_a_damaged_log_never_fails(log, seed):
    """Whatever was done to a log, it is explained, as JSON too, or there is nothing to read."""
    try:
        report = lab.explain(mutated(log, seed))
    except UnreadableLog:
        return
    assert json.loads(json.dumps(report.to_dict()))
    assert repr(report)


@settings(max_examples=100, deadline=2000)
@given(st.text())
def test_any_text_is_answered(text):
    """A text that is no log is refused with the one error, or what it lacks is named."""
    with suppress(UnreadableLog):
        assert lab.explain(text).unknown
