"""The engine: llama.cpp in its own process, on the embedded model, for real."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from inferlab.engine.client import LlamaEngine
from inferlab.engine.log import Buffer, buffers_in
from inferlab.engine.process import exit_reason
from inferlab.engine.protocol import Entry, entries_of
from inferlab.errors import DamagedGGUF, EngineCrashed, EngineRefused, EngineUnavailable
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.kernels import KERNEL_OF_BUFFER
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from inferlab.units import MIB

SMALL = Settings(n_ctx=256)


def opened(engine, settings=SMALL):
    return engine.open(tiny_model(), settings)


def bytes_of(opening, kind):
    return sum(b.n_bytes for b in opening.buffers if b.kind == kind)


# --- what it reports --------------------------------------------------------------------------


def test_the_machine_has_the_devices_that_llama_cpp_registers(engine):
    """There is always a CPU, with its memory, and the build names itself."""
    machine = engine.machine()
    cpu = next(d for d in machine.devices if d.kind == "cpu")
    assert cpu.memory_bytes == machine.ram_bytes
    assert machine.llama_cpp


def test_the_kv_cache_is_as_large_as_its_shape(engine):
    """Two tensors of cells x KV heads x head size x layers, two bytes each at f16, as llama.cpp logged them."""
    model = read_gguf(tiny_model())
    cells = 2 * model.n_layer * model.n_head_kv * model.head_dim_k * 2
    assert bytes_of(opened(engine), "kv_cache") == 256 * cells
    assert bytes_of(opened(engine, Settings(n_ctx=1024)), "kv_cache") == 1024 * cells


def test_rearranged_tensors_are_those_of_their_buffer(engine, tmp_path):
    """Each has the buffer that llama.cpp logged, and without extra buffers there is none; layers are on the CPU."""
    path = make_shape("llama-3.2-1b", "Q4_0", tmp_path / "shape.gguf", progress=False, n_layer=1, n_vocab=512)
    asked = SMALL.but(devices=())
    default, plain = (engine.open(path, asked.but(use_extra_bufts=on)) for on in (True, False))
    logged = {b.device for b in default.buffers if b.kind == "weights"} & set(KERNEL_OF_BUFFER)
    assert set(default.tensors.rearranged.values()) == logged
    assert not plain.tensors.rearranged
    assert default.tensors.layers == plain.tensors.layers == {0: "CPU", 1: "CPU"}
    assert not {b.device for b in plain.buffers} & set(KERNEL_OF_BUFFER)


def test_a_quantized_cache_is_smaller(engine):
    """q8_0 keeps 32 values in 34 bytes instead of 64."""
    full = bytes_of(opened(engine), "kv_cache")
    quantized = bytes_of(opened(engine, Settings(n_ctx=256, type_k="q8_0", type_v="q8_0")), "kv_cache")
    assert quantized == pytest.approx(full * 34 / 64, abs=0.01 * MIB)


@pytest.mark.engine
@pytest.mark.parametrize(("disable", "rotated"), [("0", "1"), ("1", "0")])
def test_an_engine_has_an_environment_of_its_own(disable, rotated):
    """What llama.cpp reads from its environment can be set for one engine: here, whether it turns a cache's rows."""
    engine = LlamaEngine(environment={"LLAMA_ATTN_ROT_DISABLE": disable})
    opening = opened(engine, SMALL.but(type_k="q8_0", type_v="q8_0"))
    engine.close()
    assert f"attn_rot_k = {rotated}" in opening.log


def test_every_kind_of_buffer_is_found(engine):
    """Weights take at least the tensors' bytes; compute and output buffers are not forgotten."""
    opening = opened(engine)
    assert {b.kind for b in opening.buffers} == {"weights", "kv_cache", "compute", "output"}
    assert bytes_of(opening, "weights") >= read_gguf(tiny_model()).tensor_bytes - 0.01 * MIB


def test_the_engine_says_what_it_chose(engine):
    """Where the request left a choice, the opening has a value; what was asked stays."""
    chosen = opened(engine, Settings(n_ctx=200, n_threads=1)).settings
    assert chosen.n_ctx == 256
    assert (chosen.n_threads, chosen.n_threads_batch) == (1, 1)


def test_the_phases_of_loading_fill_its_time(engine):
    """Every phase has a positive duration, and together they are no longer than the call."""
    began = time.perf_counter()
    phases = opened(engine, Settings(n_ctx=512)).phases
    assert min(phases.values()) >= 0
    assert 0 < sum(phases.values()) <= time.perf_counter() - began


def test_an_open_model_is_not_loaded_again(engine):
    """The same file and settings give the same opening; other settings load anew."""
    assert opened(engine) is opened(engine)
    assert opened(engine, Settings(n_ctx=512)) is not opened(engine)


def test_a_relative_path_means_the_callers_folder(engine, monkeypatch, tmp_path):
    """The worker finds the file even if the notebook has moved since it started."""
    opened(engine)
    (tmp_path / "linked.gguf").symlink_to(tiny_model())
    monkeypatch.chdir(tmp_path)
    assert engine.open((tmp_path / "linked.gguf").relative_to(tmp_path), SMALL).buffers


# --- what it does -----------------------------------------------------------------------------


def test_a_pass_is_in_order(engine):
    """Prefill, first token, each later token: times only grow, and the engine's share fits between them."""
    opened(engine)
    timed = engine.generate(engine.random_prompt(64), 10)
    times = timed.token_seconds
    assert (len(timed.tokens), len(times), len(timed.decode_seconds)) == (10, 10, 9)
    assert list(times) == sorted(times)
    assert 0 < timed.prefill_seconds < times[0]
    assert 0 < sum(timed.decode_seconds) < times[-1] - times[0]


def test_a_long_prompt_is_decoded_in_batches(engine):
    """More prompt tokens than n_batch give the same answer as all at once."""
    opened(engine, Settings(n_ctx=512, flash_attn="off"))
    prompt = engine.tokenize("The function returns a list of all the values " * 8)
    whole = engine.generate(prompt, 5).tokens
    opened(engine, Settings(n_ctx=512, n_batch=32, n_ubatch=32, flash_attn="off"))
    assert engine.generate(prompt, 5).tokens == whole


def test_random_prompts_are_always_the_same(engine):
    """Two measurements of one length prefill the same tokens, all of them in the vocabulary."""
    opened(engine)
    prompt = engine.random_prompt(500)
    assert prompt == engine.random_prompt(500)
    assert (min(prompt) >= 0, max(prompt) < 4096, len(set(prompt)) > 400) == (True, True, True)


# --- what it refuses --------------------------------------------------------------------------


def test_a_full_context_is_refused(engine):
    """The message names the size of the cache; the engine goes on."""
    opened(engine)
    with pytest.raises(EngineRefused, match="all 256 cells of the KV cache are in use"):
        engine.generate(engine.random_prompt(250), 20)
    assert len(engine.generate(engine.random_prompt(8), 2).tokens) == 2


def test_an_unknown_device_is_answered_with_the_known_ones(engine):
    """The message lists what llama.cpp sees; afterwards no model is open, which the next request says."""
    with pytest.raises(EngineRefused, match=r"no device 'GPU7'\. llama\.cpp sees: .*CPU"):
        opened(engine, Settings(n_ctx=256, devices=("GPU7",)))
    with pytest.raises(EngineRefused, match="No model is open for 'generate'"):
        engine.generate([1, 2], 2)
    assert opened(engine).buffers


@pytest.mark.engine
def test_a_worker_that_died_between_two_requests_is_told():
    """What it had open is gone, so the next request for it is a crash, and a model can be opened again."""
    fresh = LlamaEngine()
    opened(fresh)
    pid = fresh.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(EngineCrashed, match="SIGKILL"):
        fresh.generate([1, 2], 2)
    assert opened(fresh).buffers
    fresh.close()


def test_a_damaged_file_never_reaches_llama_cpp(tmp_path):
    """The header is refused before any worker is started."""
    (tmp_path / "cut.gguf").write_bytes(tiny_model().read_bytes()[:5000])
    fresh = LlamaEngine()
    with pytest.raises(DamagedGGUF):
        fresh.open(tmp_path / "cut.gguf", SMALL)
    assert fresh.pid is None


def test_without_llama_cpp_the_engine_is_unavailable(monkeypatch):
    """The message has the command that installs it, and no worker is started in vain."""
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(EngineUnavailable, match="make book"):
        LlamaEngine().machine()


# --- what it survives -------------------------------------------------------------------------


def test_a_killed_worker_is_an_error_and_the_next_call_works(engine):
    """SIGKILL during a generation gives EngineCrashed with llama.cpp's last lines, and nothing else is lost."""
    opened(engine, Settings(n_ctx=8192))
    threading.Timer(0.3, os.kill, (engine.pid, signal.SIGKILL)).start()
    with pytest.raises(EngineCrashed, match=r"'generate'.*next call starts a fresh engine") as crash:
        engine.generate([1] * 8, 8000)
    assert "SIGKILL" in str(crash.value)
    assert "sched_reserve" in crash.value.log
    opened(engine)
    assert len(engine.generate([1, 2, 3], 4).tokens) == 4


def test_a_worker_that_dies_while_it_is_written_to_is_an_error(engine, monkeypatch):
    """A pipe that breaks in the middle of a request is a crash like any other."""
    opened(engine)
    os.kill(engine.pid, signal.SIGKILL)
    engine._worker.child.wait()
    monkeypatch.setattr(engine._worker.child, "poll", lambda: None)
    with pytest.raises(EngineCrashed):
        engine.tokenize("x" * 200_000)
    assert opened(engine).buffers


def test_half_a_reply_is_a_crash(engine):
    """A worker that dies while it answers has not answered."""
    opened(engine)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed):
        engine._reply("tokenize", '{"tok', engine._worker)


def test_closing_from_another_thread_ends_what_is_waited_for(engine):
    """A button can stop a measurement: the call that waits raises, and the next one starts a fresh engine."""
    opened(engine, Settings(n_ctx=8192))
    threading.Timer(0.3, engine.close).start()
    with pytest.raises(EngineCrashed, match="was closed during 'generate'"):
        engine.generate([1] * 8, 8000)
    assert engine.pid is None
    assert opened(engine).buffers


def test_closing_twice_is_closing(engine):
    """After close there is no worker and no log file, and the next request starts anew."""
    opened(engine)
    pid, log = engine.pid, engine._worker.log
    engine.close()
    engine.close()
    assert (engine.pid, log.exists(), psutil.pid_exists(pid)) == (None, False, False)
    assert engine.machine().devices


OWNER = """
from inferlab.engine.session import default_engine
from inferlab.model.find import tiny_model
from inferlab.settings import Settings
engine = default_engine()
engine.open(tiny_model(), Settings(n_ctx=32768))
print(engine.pid, engine._worker.log, flush=True)
engine.generate([1] * 8, 32000)
"""


@pytest.mark.engine
def test_no_worker_outlives_its_owner():
    """After the owner is killed in the middle of a long generation, its worker and log are gone before that ends."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        pid, log = owner.stdout.readline().split(maxsplit=1)
        worker = psutil.Process(int(pid))
        time.sleep(0.3)
        owner.kill()
    ended = time.monotonic() + 20
    while _runs(worker) and time.monotonic() < ended:
        time.sleep(0.05)
    assert not _runs(worker)
    assert not os.path.exists(log.strip())


def _runs(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- reading llama.cpp's log ------------------------------------------------------------------

LOG = """\
load_tensors:   CPU_Mapped model buffer size =    10.00 MiB
load_tensors:        CUDA0 model buffer size =    20.50 MiB
load_tensors:        CUDA0 model buffer size =     0.50 MiB
llama_kv_cache:      CUDA0 KV buffer size =     3.00 MiB
llama_context:  CUDA_Host  output buffer size =     0.25 MiB
sched_reserve:      CUDA0 compute buffer size =     8.00 MiB
"""


def test_buffers_are_read_from_the_log():
    """One entry for each device and kind; what is allocated in pieces is added up."""
    assert buffers_in(LOG) == (
        Buffer("CPU_Mapped", "weights", 10 * MIB),
        Buffer("CUDA0", "weights", 21 * MIB),
        Buffer("CUDA0", "kv_cache", 3 * MIB),
        Buffer("CUDA_Host", "output", MIB // 4),
        Buffer("CUDA0", "compute", 8 * MIB),
    )


@pytest.mark.parametrize(
    ("code", "text"), [(3, "exit status 3"), (-9, "SIGKILL: most often"), (-6, "SIGABRT: llama"), (-250, "signal 250")]
)
def test_an_exit_code_is_given_in_words(code, text):
    """The signal's name and what it usually means, where that is known."""
    assert exit_reason(code).startswith(text)


# --- several sequences ------------------------------------------------------------------------

TWO = Settings(n_ctx=512, n_seq_max=2, flash_attn="on")


def continued(engine, first, position, sequence, n_gen=6):
    """The next tokens of a sequence, one step each."""
    tokens = [first]
    for at in range(position, position + n_gen):
        tokens += engine.step([Entry(tokens[-1], at, sequence, True)]).picks
    return tokens


@pytest.mark.parametrize("unified", [False, True])
def test_a_shared_beginning_is_continued_like_an_own_one(engine, unified):
    """A sequence that shares another's cells, or has a copy of them, writes what the other writes."""
    opened(engine, TWO.but(kv_unified=unified))
    engine.keep(0)
    prompt = engine.random_prompt(24)
    first = engine.step(entries_of(prompt)).picks[-1]
    engine.share(0, 1)
    alone = continued(engine, first, 24, 0)
    assert continued(engine, first, 24, 1) == alone
    assert engine.generate(prompt, 7).tokens == tuple(alone)


def test_a_step_answers_each_entry_that_wants_it(engine):
    """Picks come in the order of the entries, however many calls of n_batch tokens a step takes."""
    opened(engine, TWO.but(n_batch=32, n_ubatch=32))
    engine.keep(0)
    prompt = engine.random_prompt(50)
    step = engine.step([*entries_of(prompt), *entries_of(prompt[:40], sequence=1)])
    assert step.seconds > 0
    assert len(step.picks) == 2
    assert step.picks[0] == engine.generate(prompt, 1).tokens[0]


def test_what_is_dropped_makes_room_again(engine):
    """A context that is full refuses the next token, and takes it after some were dropped."""
    opened(engine, Settings(n_ctx=256))
    engine.keep(0)
    engine.step(entries_of(engine.random_prompt(256)))
    with pytest.raises(EngineRefused, match="context is full"):
        engine.step([Entry(5, 256, 0, True)])
    engine.keep(100)
    assert len(engine.step([Entry(5, 100, 0, True)]).picks) == 1


def test_a_sequence_may_lie_in_any_cells(engine):
    """What another sequence leaves between two is filled: the cells of a sequence need not be neighbours."""
    opened(engine, Settings(n_ctx=512, n_seq_max=3, kv_unified=True, flash_attn="on"))
    engine.keep(0)
    tokens = engine.random_prompt(300)
    for position, token in enumerate(tokens[:200]):
        engine.step([Entry(token, position, sequence) for sequence in (0, 1)])
    with pytest.raises(EngineRefused, match="context is full"):
        engine.step(entries_of(tokens, sequence=2))
    engine.keep(0, 2)
    engine.keep(0, 1)
    scattered = engine.step(entries_of(tokens, sequence=2)).picks
    engine.keep(0)
    assert engine.step(entries_of(tokens)).picks == scattered


def test_a_sequence_that_does_not_exist_is_refused(engine):
    """Before llama.cpp would stop the process."""
    opened(engine, TWO)
    for ask in (lambda: engine.step([Entry(5, 0, 2)]), lambda: engine.share(0, 2), lambda: engine.keep(0, 5)):
        with pytest.raises(EngineRefused, match="n_seq_max=2 allows 0 to 1"):
            ask()
