"""What a measurement survives: each fault is really caused, and the next call must work."""

import os
import resource
import shutil
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.errors import EngineCrashed, EngineRefused, EngineTimeout, RecordError

TINY = lab.tiny_model()
SMALL = lab.Settings(n_ctx=512)

pytestmark = pytest.mark.engine


@pytest.fixture
def engine():
    engine = LlamaEngine()
    yield engine
    engine.close()


def works(engine):
    """Whether the engine decodes three tokens."""
    engine.open(TINY, SMALL)
    return len(engine.generate([0, 5, 6], 3).tokens) == 3


def test_an_abort_inside_llama_cpp_becomes_an_error_with_its_last_words(engine):
    """Sampling without logits fails a check in llama.cpp, which aborts; the caller gets EngineCrashed."""
    engine.open(TINY, SMALL)
    with pytest.raises(EngineCrashed, match="SIGABRT") as caught:
        engine.generate([], 1)
    assert "GGML_ASSERT" in caught.value.log
    assert works(engine)


def test_a_request_that_takes_too_long_is_ended(engine):
    """EngineTimeout names the request and the limit, and the next call starts afresh."""
    engine.open(TINY, SMALL.but(n_ctx=16384))
    engine.timeout_seconds = 0.5
    with pytest.raises(EngineTimeout, match=r"'generate' within 0\.5 s"):
        engine.generate([5] * 16000, 1)
    engine.timeout_seconds = 60
    assert works(engine)


def test_a_context_beyond_the_machines_memory_is_refused(engine):
    """The error says how many tokens were asked for and what to ask for instead."""
    bytes_per_token = 2 * 6 * 128 * 2
    n_ctx = 4 * lab.this_machine().ram_bytes // bytes_per_token // 256 * 256
    with pytest.raises(EngineRefused, match=rf"context of {n_ctx} tokens.*a smaller n_ctx"):
        engine.open(TINY, lab.Settings(n_ctx=n_ctx))
    assert works(engine)


@pytest.mark.skipif(sys.platform != "linux", reason="SIGBUS on a shortened mapping is Linux's way")
def test_a_file_that_shrinks_while_it_is_mapped_ends_the_worker_only(engine, tmp_path):
    """The error names SIGBUS and the shortened file; the next call works."""
    copy = Path(shutil.copy(TINY, tmp_path / "shrinking.gguf"))
    engine.open(copy, SMALL)
    os.truncate(copy, 4096)
    with pytest.raises(EngineCrashed, match=r"SIGBUS.*shorter"):
        engine.generate(list(range(2, 400)), 3)
    assert works(engine)


def test_a_file_that_was_replaced_is_loaded_again(engine, tmp_path):
    """The same path with another file behind it is not taken for the open one."""
    copy = Path(shutil.copy(TINY, tmp_path / "model.gguf"))
    first = engine.open(copy, SMALL)
    assert engine.open(copy, SMALL) is first
    other = Path(shutil.copy(TINY, tmp_path / "other.gguf"))
    os.replace(other, copy)
    assert engine.open(copy, SMALL) is not first


def test_a_full_disk_loses_no_record_that_was_there(tmp_path):
    """RecordError says so, the old file is whole, and nothing half-written stays behind."""
    kept = tmp_path / "run.json"
    kept.write_text("{}")
    run = lab.measure(settings=SMALL, n_prompt=8, n_gen=4, repeats=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(RecordError, match="Nothing was overwritten"):
            lab.save(run, kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert kept.read_text() == "{}"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells])


def test_an_interrupt_in_a_notebook_leaves_the_kernel_and_the_next_cell_working():
    """Jupyter's stop button ends the measurement with KeyboardInterrupt; the next cell measures again."""
    book = notebook(
        """
        import os, signal, threading
        import inferlab as lab
        kept = lab.measure(n_prompt=8, n_gen=4, repeats=1)
        threading.Timer(2, os.killpg, (os.getpgid(0), signal.SIGINT)).start()
        try:
            lab.measure(n_prompt=512, n_gen=256, repeats=2000)
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        """,
        "print(kept.n_gen, lab.measure(n_prompt=8, n_gen=4, repeats=1).n_gen)",
    )
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    assert "interrupted\n" in [o.get("text") for o in book.cells[0].outputs]
    assert "4 4\n" in [o.get("text") for o in book.cells[1].outputs]
