"""Starting llama-server and reading its log, with small programs in its place."""

import os
import stat
import sys
import time

import pytest

from inferlab.engine.llama_server import (
    Launch,
    ServerLine,
    arguments,
    chosen_settings,
    launches_in,
    llama_server,
    refuse_ignored,
    require_program,
    server_line,
)
from inferlab.engine.programs import built_program
from inferlab.errors import EngineRefused, EngineTimeout, EngineUnavailable, InvalidSettings
from inferlab.settings import Settings

SERVES = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Health(BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Health.asked += 1
        self.send_response(503 if Health.asked == 1 else 200)
        self.end_headers()
    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), Health)
def say(text):
    print(text, file=sys.stderr, flush=True)
say("no stamp here")
say("0.00.000.500 I llama_context: n_ctx                 = 512")
say("0.00.000.600 I load_tensors:          CPU model buffer size =     2.00 MiB")
say(f"0.00.001.000 I srv  llama_server: listening on http://127.0.0.1:{server.server_address[1]}")
say(f"0.00.002.000 I cores {sorted(os.sched_getaffinity(0))}")
server.serve_forever()
"""


@pytest.fixture
def a_program(tmp_path):
    """A program from the text of a Python script."""

    def made(text):
        path = tmp_path / "llama-server"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return made


def test_a_server_is_ready_when_it_is_healthy_and_gone_afterwards(a_program):
    """503 is not ready; the port, the allocations and the chosen numbers come from the log."""
    with llama_server("m.gguf", Settings(), program=a_program(SERVES)) as server:
        assert server.port > 0
        assert [(buffer.device, buffer.n_bytes) for buffer in server.buffers] == [("CPU", 2 * 2**20)]
        assert server.settings.n_ctx == 512
        assert "no stamp" in server.log
        child = server._child
    assert child.poll() is not None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux binds a process to cores")
def test_a_server_can_be_bound_to_a_core(a_program):
    """And this process keeps all of its own."""
    before = os.sched_getaffinity(0)
    core = min(before)
    with llama_server("m.gguf", Settings(), cores=(core,), program=a_program(SERVES)) as server:
        ends = time.monotonic() + 60
        while "cores" not in server.log and time.monotonic() < ends:
            time.sleep(0.01)
        assert f"cores [{core}]" in server.log
    assert os.sched_getaffinity(0) == before


def test_a_server_that_ends_is_an_error_with_its_last_lines(a_program):
    """The reason that it printed is in the message."""
    program = a_program("import sys; print('0.00.000.001 E srv  no such model', file=sys.stderr)")
    with pytest.raises(EngineRefused, match="no such model"), llama_server("m.gguf", Settings(), program=program):
        pass


def test_a_server_that_never_listens_is_stopped(a_program):
    """After the allowed time."""
    program = a_program("import time; time.sleep(60)")
    with pytest.raises(EngineTimeout, match="not ready"), llama_server("m", Settings(), program=program, seconds=0.3):
        pass


def test_without_the_program_the_error_says_how_to_make_it(tmp_path):
    """By name and by path."""
    with pytest.raises(EngineUnavailable, match="make tools"):
        require_program(tmp_path / "llama-server")
    assert built_program("llama-server", tmp_path) is None
    (tmp_path / "llama-server").touch()
    assert built_program("llama-server", tmp_path) == tmp_path / "llama-server"


def test_settings_become_flags():
    """Slots are always said; what nobody chose and what is the default is left out; it stays on this computer."""
    words = arguments("my model.gguf", Settings(n_seq_max=4, n_ctx=8192, n_batch=128, n_threads=2))
    assert words[:6] == ["-m", "my model.gguf", "--host", "127.0.0.1", "--port", "0"]
    assert "--offline" in words
    for name, value in (("-np", "4"), ("-c", "8192"), ("-b", "128"), ("-t", "2")):
        assert words[words.index(name) + 1] == value
    assert not {"-ub", "-tb", "-ts", "--rpc"} & set(words)


def test_a_stamp_is_minutes_seconds_and_microseconds():
    """As common/log.cpp writes it; a line without one is none."""
    assert server_line("2.03.004.005 I srv  x: y", 7.0) == ServerLine(123.004005, 7.0, "srv  x: y")
    assert server_line("llama_context: n_ctx = 3", 7.0) is None


def test_launches_are_on_the_clients_clock():
    """The offset comes from the line that was read soonest; a line that was read late does not move a launch."""
    text = "slot launch_slot_: id  3 | task 12 | processing task, is_child = 0"
    lines = [ServerLine(1.0, 101.5, "srv"), ServerLine(2.0, 102.1, "srv"), ServerLine(3.0, 109.0, text)]
    assert launches_in(lines) == (Launch(pytest.approx(103.1), 3),)
    assert launches_in([]) == ()


def test_numbers_that_the_server_chose_are_recorded():
    """Threads, context, slots and their pool; without their lines the settings stay."""
    log = (
        "system_info: n_threads = 2 (n_threads_batch = 3) / 4\nllama_context: n_ctx                 = 8192\n"
        "srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'"
    )
    chosen = chosen_settings(Settings(), log)
    assert (chosen.n_threads, chosen.n_threads_batch, chosen.n_ctx) == (2, 3, 8192)
    assert (chosen.n_seq_max, chosen.kv_unified) == (4, True)
    assert chosen_settings(Settings(), "") == Settings()


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--cache-reuse", "srv load_model: cache_reuse is not supported by this context, it will be disabled"),
        ("--swa-full", "srv load_model: swa_full is not supported by this model, it will be disabled"),
        ("--context-shift", "srv load_model: ctx_shift is not supported by multimodal, it will be disabled"),
    ],
)
def test_an_option_that_the_server_turns_off_is_refused(option, line):
    """The server warns and goes on without it; without the option there is nothing to refuse."""
    with pytest.raises(InvalidSettings, match=f"{option} is not supported by .*llama-server would go on without it"):
        refuse_ignored((option, "1"), line)
    refuse_ignored((), line)
    refuse_ignored((option,), "srv load_model: ready")
