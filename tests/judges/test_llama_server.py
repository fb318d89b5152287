"""What llama.cpp's server does by default."""

import json
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

import inferlab as lab

pytestmark = pytest.mark.engine

ANSWER = {"n_predict": 200, "ignore_eos": True, "stream": True, "temperature": 0}


@contextmanager
def served(program, model):
    """The address of a server with default settings, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "--offline"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait_for(address, process, seconds=60):
    """Return once the address answers."""
    ends = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < ends:
        try:
            with urlopen(address, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    pytest.fail(f"{address} did not answer")


def token_times(address, prompt):
    """When the first and the last piece of a streamed answer arrived, and the slot that made it."""
    body = json.dumps({"prompt": prompt, **ANSWER}).encode()
    with urlopen(Request(f"{address}/completion", body, {"Content-Type": "application/json"}), timeout=60) as reply:
        pieces = [(time.monotonic(), json.loads(line[6:])) for line in reply if line.startswith(b"data: ")]
    return pieces[0][0], pieces[-1][0], pieces[-1][1]["id_slot"]


def test_four_slots_answer_at_once(program):
    """Started without further options, the server has four slots, and of four requests sent together each has its
    first token before any has its last.
    """
    with served(program("llama-server"), lab.tiny_model()) as address:
        with urlopen(f"{address}/props") as reply:
            assert json.load(reply)["total_slots"] == 4
        with ThreadPoolExecutor(4) as together:
            answers = list(together.map(lambda i: token_times(address, f"Function number {i}"), range(4)))
    firsts, lasts, slots = zip(*answers, strict=True)
    assert max(firsts) < min(lasts)
    assert sorted(slots) == [0, 1, 2, 3]
