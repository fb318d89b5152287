"""The tree of errors: complete in its docstring, and every class really raised."""

import inspect
import os
import shutil
import signal
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fakes import ScriptedEngine

import inferlab as lab
from handbook import claims
from handbook.directives import diagrams
from inferlab import errors
from inferlab.atlas import contribute
from inferlab.atlas.campaign import TimeLimitedEngine
from inferlab.doctor.workshops import syllabus
from inferlab.engine import libraries, measurement_queue
from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError
from inferlab.measurement import pytorch
from inferlab.model import web
from inferlab.model.find import tiny_model
from inferlab.model.named import model_named
from inferlab.settings import Settings
from inferlab.widgets.attempts import CancellableEngine
from studies.other_engines.client import OtherEngine, Request

CLASSES = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls)}
LEAVES = {name for name, cls in CLASSES.items() if not cls.__subclasses__()}


def a_file(folder, data):
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


def a_folder_without_pictures(folder):
    (folder / "settings.json").write_text("{}")
    return folder


def a_call_without_llama_cpp(monkeypatch):
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    libraries.folder()


def a_call_that_takes_too_long():
    engine = LlamaEngine(timeout_seconds=0.5)
    engine.open(tiny_model(), Settings(n_ctx=8192))
    engine.generate([1, 2], 8000)


def a_worker_killed_while_it_generates():
    engine = LlamaEngine()
    engine.open(tiny_model(), Settings(n_ctx=8192))
    threading.Timer(0.2, os.kill, (engine.pid, signal.SIGKILL)).start()
    engine.generate([1, 2], 8000)


def a_shape_of_no_known_layout():
    lab.shape(replace(lab.known_model("mistral-7b"), architecture="mamba"))


def a_shape_on_a_full_disk(folder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    lab.make_shape("mistral-7b", path=folder / "shape.gguf")


def an_unknown_device():
    default_engine().open(tiny_model(), Settings(n_ctx=256, devices=("GPU7",)))


def a_build_without_rpc(monkeypatch):
    monkeypatch.setattr(libraries, "backends", lambda: ("cpu",))
    lab.loopback_device()


def a_measurement_after_cancel():
    cancellable = CancellableEngine(ScriptedEngine(), lambda n: None)
    cancellable.stop()
    cancellable.generate([1], 1)


def a_beginning(folder):
    path = a_file(folder, b"GGUF")
    lab.read_gguf(path, sizes={path.name: 1000})


def an_address_that_is_not_answered(folder, monkeypatch):
    monkeypatch.setattr(web, "PAUSES", ())
    model_named("http://127.0.0.1:9/model.gguf")


def an_engine_that_is_not_there():
    one = OtherEngine((sys.executable, "-c", "raise SystemExit('This engine is not installed.')"))
    try:
        one.open(Request("MLX", "float16", tiny_model(), 1, 256))
    finally:
        one.close()


def a_network_without_pytorch(monkeypatch):
    monkeypatch.setattr(pytorch, "find_spec", lambda _: None)
    pytorch.required()


def a_queue_in_a_file(folder, monkeypatch):
    monkeypatch.setenv("INFERLAB_QUEUE", str(a_file(folder, b"") / "queue"))
    with measurement_queue.turn():
        pass


RAISERS = {
    "ModelNotFound": lambda folder, _: lab.find_model(folder / "none.gguf"),
    "NotReached": an_address_that_is_not_answered,
    "NotGGUF": lambda folder, _: lab.read_gguf(a_file(folder, b"PK\x03\x04")),
    "UnsupportedGGUF": lambda folder, _: lab.read_gguf(a_file(folder, b"GGUF\x00\x00\x00\x03")),
    "DamagedGGUF": lambda folder, _: lab.read_gguf(a_file(folder, b"GGUF")),
    "HeaderIncomplete": lambda folder, _: a_beginning(folder),
    "UnsupportedArchitecture": lambda *_: a_shape_of_no_known_layout(),
    "InvalidSettings": lambda *_: lab.Settings(n_ctx=-1),
    "EngineUnavailable": lambda _, monkeypatch: a_call_without_llama_cpp(monkeypatch),
    "DeviceUnavailable": lambda _, monkeypatch: a_build_without_rpc(monkeypatch),
    "EngineRefused": lambda *_: an_unknown_device(),
    "EngineCrashed": lambda *_: a_worker_killed_while_it_generates(),
    "EngineTimeout": lambda *_: a_call_that_takes_too_long(),
    "ContributionRefused": lambda folder, _: contribute.contribute(folder, folder / "out"),
    "MeasurementCancelled": lambda *_: a_measurement_after_cancel(),
    "NotEnoughDisk": a_shape_on_a_full_disk,
    "OtherEngineFailed": lambda *_: an_engine_that_is_not_there(),
    "OutOfTime": lambda *_: TimeLimitedEngine(ScriptedEngine(), 0.0).generate([1], 1),
    "PyTorchUnavailable": lambda _, monkeypatch: a_network_without_pytorch(monkeypatch),
    "QueueUnavailable": a_queue_in_a_file,
    "RecordError": lambda folder, _: lab.load(folder / "none.json"),
    "UnknownClaim": lambda *_: claims.claim("Z99"),
    "UnknownSyllabus": lambda *_: syllabus("week"),
    "UnreadableLog": lambda *_: lab.explain("a text without a line of any program"),
    "StaleDiagram": lambda folder, _: diagrams.rendered("graph TD", a_folder_without_pictures(folder)),
}


def test_every_error_is_raised_here():
    """The table above has every class that nothing more special stands for."""
    assert LEAVES <= set(RAISERS) <= set(CLASSES)


def case(name):
    """One row of the table; three errors come from llama.cpp's worker alone."""
    needs_engine = name in ("EngineRefused", "EngineCrashed", "EngineTimeout")
    return pytest.param(name, marks=pytest.mark.engine if needs_engine else ())


@pytest.mark.parametrize("name", [case(name) for name in RAISERS])
def test_an_error_says_what_to_do(tmp_path, monkeypatch, name):
    """Each class is raised for real, is one of ours, and its first line is a sentence."""
    with pytest.raises(InferlabError) as caught:
        RAISERS[name](tmp_path, monkeypatch)
    assert type(caught.value).__name__ == name
    assert str(caught.value).splitlines()[0].endswith((".", ")"))
    assert len(str(caught.value).split()) >= 5


def test_the_docstring_draws_the_whole_tree():
    """Every class stands in the module's docstring, one level below its parent."""
    lines = {}
    for line in errors.__doc__.splitlines():
        name = next((word for word in line.split() if word in CLASSES), None)
        if name:
            lines[name] = line.index(name)
    assert set(lines) == set(CLASSES)
    for name, cls in CLASSES.items():
        parent = cls.__mro__[1].__name__
        assert lines[name] == lines.get(parent, 0) + 4


def test_settings_are_wrong_values_too():
    """Code that expects ValueError from a wrong argument gets one."""
    assert issubclass(errors.InvalidSettings, ValueError)


def test_the_engines_last_lines_are_in_its_error():
    """The log is in the message and, for programs, beside it."""
    error = errors.EngineRefused("It refused.", "line one\nline two")
    assert str(error) == "It refused.\nllama.cpp's last lines:\nline one\nline two"
    assert error.log == "line one\nline two"
    assert str(errors.EngineRefused("It refused.")) == "It refused."
