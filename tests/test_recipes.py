"""CONTRIBUTING's recipes, followed: what a recipe adds is added to a copy, and is there without anything else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FACTS, FIGURES = "inferlab/data/facts", "inferlab/figures"


class Copy:
    """The repository's src/ in a folder, as links; what a recipe changes is a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.src = folder / "src"
        self.src.mkdir()
        for package in ("inferlab", "studies"):
            (self.src / package).symlink_to(ROOT / "src" / package)

    def write(self, name: str, text: str) -> None:
        """Write one file; the folders on its way become folders of links."""
        for folder in [*reversed(Path(name).parents)][1:]:
            place = self.src / folder
            if place.is_symlink():
                original = place.resolve()
                place.unlink()
                place.mkdir()
                for path in original.iterdir():
                    (place / path.name).symlink_to(path)
            place.mkdir(exist_ok=True)
        (self.src / name).unlink(missing_ok=True)
        (self.src / name).write_text(text, encoding="utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        """Write a file with `new` in place of `old`, which it must have."""
        text = (ROOT / "src" / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new, 1))

    def append(self, name: str, text: str) -> None:
        """Write a file with a text behind its own."""
        self.write(name, (ROOT / "src" / name).read_text(encoding="utf-8") + text)

    def python(self, *arguments: str) -> str:
        """What Python prints with this copy of the packages. Raises for a program that fails."""
        path = os.pathsep.join(map(str, (self.src, ROOT / "tests")))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.src, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


FINDING = """
[full-moon]
severity = "note"
any = ["the moon is full"]
what = "The moon is full."
fix = ["Wait for two weeks, or lower <n_ctx>."]
source = ["src/llama-context.cpp:328"]
"""


def test_a_finding_is_one_entry(copy):
    """A log with its message has the finding, with the setting under a program's name; no other log has it."""
    copy.append("inferlab/data/log_findings/request.toml", FINDING)
    printed = copy.python(
        "-c",
        "from inferlab.instruments.log_reader import example_log\n"
        "from inferlab.log_reader import explain\n"
        "for log in (example_log(), example_log() + 'the moon is full\\n'):\n"
        "    print([finding.fix for finding in explain(log.encode()).findings if finding.what == 'The moon is full.'])",
    )
    without, with_message = printed.splitlines()
    assert without == "[]"
    assert "or lower *" in with_message or "or lower `" in with_message


FIGURE = '''
from inferlab.figures.style import TEAL, blank, line, y_from_zero


def tides(heights, badge):
    """Metres of water against the hours."""
    figure = blank(badge, f"The tide rises to {max(heights)} m.", x="hours", y="m")
    line(figure, list(enumerate(heights)), "tide", TEAL)
    y_from_zero(figure)
    return figure
'''


def test_a_figure_is_a_function_and_its_name(copy):
    """It is drawn by its name, and on a page has a text alternative, a tick above its values, and its badge below."""
    copy.write(f"{FIGURES}/water.py", FIGURE)
    copy.change(f"{FIGURES}/__init__.py", "_NAMES_OF = {\n", '_NAMES_OF = {\n    "water": ("tides",),\n')
    alt, top, page = copy.python(
        "-c",
        "from inferlab import figures\n"
        "figure = figures.tides([1, 4, 2], 'measured: a gauge')\n"
        "print(figure.layout.meta['alt'], figure.layout.yaxis.range[1], figures.page_html(figure), sep='\\n')",
    ).splitlines()
    assert alt == "The tide rises to 4 m."
    assert float(top) > 4
    assert page.endswith('<p class="provenance">measured: a gauge</p>')


STUDY = {
    "README.md": "# How high is the tide?\n\nA gauge, and its answer: four metres.\n",
    "__init__.py": '"""How high is the tide?"""\n\nRECORDS = {"tide": "study:Tide"}\n',
    "study.py": '''"""The tide by the hour."""

from dataclasses import dataclass

from inferlab.measurement.base import Measurement
from inferlab.records import load


@dataclass(frozen=True, kw_only=True)
class Tide(Measurement):
    """Metres of water at each hour."""

    metres: tuple[float, ...]


def numbers():
    return {"highest": max(load("gauge/spring", Tide).metres)}
''',
    "measure.py": '''"""Reads the gauge."""

from functools import partial

from fakes import CARD, CPU_ONLY
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import NotRepeatable
from studies.tides.study import Tide


def gauge(*metres):
    return Tide(model=CARD, settings=Settings(), machine=CPU_ONLY, metres=metres)


RECIPES = {"spring": partial(gauge, 1.0, 4.0), "flood": NotRepeatable("the dam is built.")}

if __name__ == "__main__":
    recipes.main(RECIPES)
''',
}


def test_a_study_is_a_folder_with_its_recipes(copy):
    """Its module lists and writes its records, which load by their names, and says how each was made."""
    for name, text in STUDY.items():
        copy.write(f"studies/tides/{name}", text)
    listed = copy.python("-m", "studies.tides.measure")
    assert listed == "spring: gauge(1.0, 4.0)\nflood: not repeatable, because the dam is built.\n"
    copy.python("-m", "studies.tides.measure", "spring", "--to", f"{copy.src}/studies/tides/records/gauge")
    printed = copy.python(
        "-c",
        "from inferlab.records import load, studies\n"
        "from studies import recipes\n"
        "from studies.tides.study import numbers\n"
        "print('tides' in [folder.name for folder in studies()], type(load('gauge/spring')).__name__, numbers())\n"
        "print(recipes.how_to_repeat('gauge/spring'))",
    )
    assert printed.splitlines() == [
        "True Tide {'highest': 4.0}",
        "python -m studies.tides.measure spring",
    ]


ARCHITECTURE = """
[tidal]
cache = "full"
"""
LAYOUT = """
[tidal]
source = "tidal.cpp:12"
outside = ["+ends", "+rope"]
all = ["+norms", "+attention", "+qkv-bias", "+ffn"]
"""
MODEL = """
[tidal-1b]
title = "Tidal 1B"
source = "llama32-config"
date = "2026-12"
architecture = "tidal"
n_layer = 16
n_embd = 2048
n_ff = 8192
n_vocab = 128256
n_head = 32
n_head_kv = 8
head_dim = 64
n_ctx_train = 131072
tied_embeddings = true
"""
PLAN = """
from dataclasses import replace
from fakes import WITH_GPU
from inferlab.errors import UnsupportedArchitecture
from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings

llama = known_models()["llama-3.2-1b"]
try:
    for known in (llama, replace(llama, architecture="tidal")):
        plan = predict_memory(shape(known, "F16"), Settings(n_ctx=512, flash_attn="on"), WITH_GPU, simulate=False)
        print(plan.method, plan.devices["gpu0"].kv_cache_bytes, plan.devices["gpu0"].weights_bytes)
except UnsupportedArchitecture as refusal:
    print(type(refusal).__name__)
"""


def test_an_architecture_is_one_entry_and_a_layout(copy):
    """A model of it is planned by the tables: llama's cache, and the biases of its layout more; else it is refused."""
    assert copy.python("-c", PLAN).split()[-1] == "UnsupportedArchitecture"
    copy.append(f"{FACTS}/architectures.toml", ARCHITECTURE)
    copy.append(f"{FACTS}/layouts.toml", LAYOUT)
    llama, tidal = (line.rsplit(maxsplit=2) for line in copy.python("-c", PLAN).splitlines())
    assert tidal[1] == llama[1]
    assert int(tidal[2]) > int(llama[2])


def test_a_model_is_one_entry(copy):
    """The command line plans it by its name, in any case, and writes a file of its shape."""
    copy.append(f"{FACTS}/models.toml", MODEL)
    copy.append(f"{FACTS}/layouts.toml", LAYOUT)
    copy.append(f"{FACTS}/architectures.toml", ARCHITECTURE)
    plan = ["plan", "Tidal-1B", "--vram", "8GiB", "--no-simulation", "--type", "Q8_0"]
    assert "Tidal 1B" in copy.python("-m", "inferlab.cli", *plan)
    shape = ["shape", "tidal-1b", "--type", "Q8_0", "--header-only", "-o", f"{copy.src}/tidal.gguf"]
    assert "1,235,863,552 weights" in copy.python("-m", "inferlab.cli", *shape)


SETTING = """
[high_water]
what = "the model above the tide"
cli = "--high-water"
cli_default = "off"
env = "LLAMA_ARG_HIGH_WATER"
inferlab = "--high-water"
inferlab_help = "keep the model above the tide"
struct = "model"
c_default = false
"""
PROGRAMS = ("python", "ollama", "lmstudio", "vllm")


def test_a_switch_is_one_entry_and_a_field(copy):
    """The command line takes it, and the lines to paste name it, as the program does, where it is not the default."""
    empty = "".join(f'{program} = ""\n{program}_default = ""\n' for program in PROGRAMS)
    copy.append(f"{FACTS}/options.toml", SETTING + empty)
    copy.change(
        "inferlab/settings.py",
        "    no_host: bool = False\n",
        "    no_host: bool = False\n    high_water: bool = False\n",
    )
    plan = ["-m", "inferlab.cli", "plan", "mistral-7b-v0.3", "--vram", "8GiB", "--no-simulation", "--for", "llama-cli"]
    assert "--high-water" not in copy.python(*plan)
    assert "--high-water" in copy.python(*plan, "--high-water")
