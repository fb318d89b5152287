"""What looks like a failure and is none: quotations, ends on purpose, and failures before a load that worked."""

import time

import pytest
from written_failures import ANSWERED, LISTENING
from written_logs import HEALTHY, LOGS, OLLAMA_START, READY, SERVER, TIMINGS, ollama, runner, turn

import inferlab as lab

SERVING = SERVER + HEALTHY.replace(TIMINGS, "") + READY + turn(1, 100, 0)
OF_OLLAMA = OLLAMA_START + runner() + HEALTHY + ANSWERED
REQUEST = 'srv  log_server_r: request:  {{"messages":[{{"role":"user","content":"{}{}"}}]}}\n'
"""tools/server/server-http.cpp, level 4"""


def bad(log):
    return [finding.id for finding in lab.explain(log).findings if finding.severity != "note"]


def seconds(log):
    start = time.perf_counter()
    lab.explain(log)
    return time.perf_counter() - start


QUOTED = (
    "CUDA error: out of memory",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    "Segmentation fault (core dumped)",
    "gguf_init_from_file: failed to open GGUF file",
    "Traceback (most recent call last):",
)


@pytest.mark.parametrize("words", QUOTED)
@pytest.mark.parametrize("before", ["Why this? ", "A long question. " * 60])
def test_words_of_a_request_are_not_the_programs(words, before):
    """Also where they stand far from the beginning of the line."""
    assert bad(SERVING + REQUEST.format(before, words) + turn(2, 100, 0)) == []
    said = ollama(f'msg="completion request" images=0 prompt="{before}{words}"', "DEBUG", "runner.go:1471")
    assert bad(OF_OLLAMA + said + ANSWERED) == []


def test_a_line_beside_a_quotation_is_read():
    """Only the line that quotes is left out, not the one before it."""
    assert bad(SERVING + REQUEST.format("", "Hello") + "Segmentation fault (core dumped)\n") == ["crashed"]
    assert bad(SERVING + "Segmentation fault (core dumped)\n" + REQUEST.format("", "Hello")) == ["crashed"]


def test_a_failure_before_a_load_that_worked_is_no_fault():
    """A second try with the right path follows in the same terminal."""
    assert bad(LOGS["no file"][0]) != []
    assert bad(LOGS["no file"][0] + HEALTHY) == []


STOPPED = (
    "srv    operator(): operator(): cleaning up before exit...\nserver-1 exited with code 137\n",
    "Gracefully stopping... (press Ctrl+C again to force)\nserver-1 exited with code 137\n",
    "Process finished with exit code -1073741510 (0xC000013A: interrupted by Ctrl+C)\n",
    "exited with code 3221225786\n",
)


@pytest.mark.parametrize("end", STOPPED)
def test_a_program_that_was_stopped_did_not_crash(end):
    assert bad(SERVING + end) == []


def test_a_program_that_ends_so_by_itself_did():
    assert bad(SERVING + "server-1 exited with code 137\n") == ["killed"]
    assert bad(SERVING + STOPPED[0] + SERVING + "server-1 exited with code 137\n") == ["killed"]
    assert bad(SERVING + "Process finished with exit code -1073741819 (0xC0000005)\n") == ["crashed"]


@pytest.mark.parametrize("signal", ["terminated", "interrupt"])
def test_a_signal_that_asks_ollamas_runner_to_end_is_no_crash(signal):
    end = ollama(f'msg="llama-server terminated" error="signal: {signal}"', "ERROR", "llama_server.go:469")
    assert bad(OF_OLLAMA + end) == []
    assert bad(OF_OLLAMA + end.replace(signal, "segmentation fault")) == ["crashed"]


EXITED = "srv    operator(): instance name=wren exited with status 1\n"


@pytest.mark.parametrize(
    "stop",
    [
        "srv        unload: stopping model instance name=wren\n",
        "srv    operator(): force-killing model instance name=wren after timeout\n",
        "srv    operator(): force-killing model instance name=wren after 10 seconds timeout\n",
    ],
)
def test_a_model_that_the_router_stopped_did_not_crash(stop):
    """One of another name did, and one that was started again after it."""
    assert bad(SERVING + stop + EXITED) == []
    assert bad(SERVING + stop.replace("wren", "wren-2") + EXITED) == ["crashed"]
    spawned = "srv          load: spawning server instance with name=wren on port 40001\n"
    assert bad(SERVING + stop + spawned + EXITED) == ["crashed"]


DONE = "srv  log_server_r: done request: POST {} 127.0.0.1 200\n"


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embedding", "/v1/rerank", "/reranking"])
def test_nothing_can_be_reused_for_embeddings_and_ranks(path):
    """Where the same server also answers, the prompts are judged."""
    requests = "".join(turn(i, 900 + i, 0) + DONE.format(path) for i in range(6))
    assert bad(SERVER + READY + requests) == []
    assert bad(SERVER + READY + requests.replace("done request", "request")) == []
    assert bad(SERVER + READY + requests + DONE.format("/v1/chat/completions")) == ["prompt-read-again"]


def test_the_end_of_another_container_is_not_the_programs():
    """Docker compose names each container before its lines, in version 1 without the project."""
    lines = "".join(f"llama-1  | {line}\n" for line in SERVING.splitlines()) + "web-1    | GET / 200\n"
    assert bad(lines + "web-1 exited with code 139\n") == []
    assert bad(lines + "llama-1 exited with code 139\n") == ["crashed"]
    assert bad(lines.replace("llama-1", "llama_1") + "demo_llama_1 exited with code 139\n") == ["crashed"]
    assert bad(SERVING + "llama-1 exited with code 139\n") == ["crashed"]


def test_an_answer_that_shows_a_crash_is_none():
    """A fence before the log is of the page that shows it, and one that is closed holds nothing more."""
    crash = "Segmentation fault (core dumped)\n"
    assert bad(f"{HEALTHY}You will see:\n```\n{crash}```\n") == []
    assert bad(f"{HEALTHY}You will see:\n```\nls\n```\n{crash}") == ["crashed"]
    assert bad(f"```\n{HEALTHY}\n```\nand then\n```\n{crash}```\n") == ["crashed"]


def test_many_loads_of_several_models_are_read_in_time():
    """Hundreds of loads, and thousands of devices, cost no more than their lines."""
    turns = "".join(runner().replace("0000 ", f"000{i % 3} ") + HEALTHY + ANSWERED for i in range(500))
    assert seconds(OLLAMA_START + turns) < 2
    layers = "".join(f"load_tensors: layer {i} assigned to device D{i}\n" for i in range(8000))
    assert seconds(SERVER + HEALTHY.replace(TIMINGS, "") + layers + LISTENING) < 2
