"""The names of `import inferlab as lab`: few, completed by editors, documented, and loaded when they are used."""

import ast
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import inferlab

PACKAGE = Path(inferlab.__file__).parent
README = Path(__file__).parents[1] / "README.md"


def stub_imports():
    """The names that the stub imports -> the modules it takes them from."""
    statements = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body
    imports = [one for one in statements if isinstance(one, ast.ImportFrom)]
    return {alias.asname: one.module for one in imports for alias in one.names if alias.name == alias.asname}


def documented_names():
    """Every `lab.name` in the README's section on Python."""
    section = README.read_text(encoding="utf-8").split("## From Python\n")[1].split("\n## ")[0]
    return re.findall(r"`lab\.(\w+)`", section)


@pytest.mark.parametrize("name", inferlab.__all__)
def test_every_name_of_the_library_is_there(name):
    """Each name that `lab.` offers leads to something with a docstring, and never to a module."""
    value = getattr(inferlab, name)
    assert value.__doc__
    assert type(value).__name__ != "module"


def test_the_stub_has_the_same_names():
    """An editor, which reads `__init__.pyi`, completes exactly the names that `lab.` offers."""
    assert (PACKAGE / "py.typed").is_file()
    assert sorted([*stub_imports(), "__version__"]) == sorted(inferlab.__all__)


@pytest.mark.parametrize(("name", "module"), stub_imports().items())
def test_the_stub_finds_the_same_things(name, module):
    """What an editor shows for a name is what Python uses."""
    assert getattr(import_module(module), name) is getattr(inferlab, name)


def test_the_readme_lists_every_name_once():
    """The table of the README is complete, and names nothing that `lab.` lacks."""
    assert sorted(documented_names()) == sorted(inferlab.__all__)


def test_the_names_stay_few():
    """`lab.` offers at most forty names; everything else is imported from its package."""
    assert len(inferlab.__all__) <= 40


def test_an_unknown_name_is_answered_with_the_known_ones():
    """A typing error lists what the library has, and where everything else is."""
    with pytest.raises(AttributeError, match=r"no 'meassure'.* It has .*measure.*from inferlab\.measurement import"):
        _ = inferlab.meassure
    assert "measure" in dir(inferlab)


HOST_ONLY = inferlab.Settings(n_ctx=256, n_threads=2, devices=())
PREDICTIONS = {
    "predict_memory": lambda model: inferlab.predict_memory(model, HOST_ONLY, simulate=False),
    "predict_speed": lambda model: inferlab.predict_speed(
        model, HOST_ONLY, inferlab.load("epyc-2c/calibration"), 16, 4
    ),
    "fit": lambda model: inferlab.fit(model, vram="8GiB", simulate=False),
}
MODELS = {
    "a name": lambda: "qwen2.5-0.5b",
    "known_model": lambda: inferlab.known_model("qwen2.5-0.5b"),
    "a changed known_model": lambda: replace(inferlab.known_model("qwen2.5-0.5b"), n_layer=2),
    "shape": lambda: inferlab.shape("qwen2.5-0.5b", n_layer=2),
    "find_model": inferlab.find_model,
    "read_gguf": lambda: inferlab.read_gguf(inferlab.tiny_model()),
    "a path": lambda: str(inferlab.tiny_model()),
    "tiny": lambda: "tiny",
}


@pytest.mark.parametrize("named", MODELS)
@pytest.mark.parametrize("predicts", PREDICTIONS)
def test_every_prediction_takes_what_names_a_model(predicts, named):
    """A name, a path, a header, and a published model with or without changes."""
    plan = PREDICTIONS[predicts](MODELS[named]())
    assert getattr(plan, "plan", plan).model.tensor_bytes > 0
