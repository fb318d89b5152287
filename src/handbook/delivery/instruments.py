"""What an instrument on a page loads when a reader opens it: Pyodide, the library's modules, and a worker for both.

The browser benchmark loads llama.cpp, too, as wllama has it in WebAssembly, and the embedded model. All of it lies in
the site's `_static/instruments/`, and no page asks for it before.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import inferlab
from inferlab.errors import EngineUnavailable
from inferlab.model.find import tiny_model
from inferlab.results import atlas

FOLDER, LIBRARY = "instruments", "inferlab.zip"
OWN_FILES = (Path(__file__).parents[1] / "data" / "instruments", Path(inferlab.__file__).parent / "instruments")
"""Folders of the scripts and the sheet: of a page and its worker, and of the instruments themselves."""
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
"""The files of the npm package that a worker starts from."""
LLAMA_WORKER, LLAMA = "llama.js", "wllama"
"""The script that runs llama.cpp, and the folder of what it loads."""
WLLAMA = {
    "@wllama/wllama": {
        "esm/index.min.js": "index.min.js",
        "esm/wasm/wllama.wasm": "wllama.wasm",
        "LICENCE": "LICENSE",
    },
    "@wllama/wllama-compat": {
        "wasm/wllama.js": "compat/wllama.js",
        "wasm/wllama.wasm": "compat/wllama.wasm",
        "package.json": "compat/package.json",
    },
}
"""npm package -> its files, by their names in that folder; the second is for browsers that cannot run the first."""
NOTICES = ("licenses", "vendor", "llama.cpp")
"""Where llama-cpp-python's metadata has the licences of llama.cpp and of what it contains, which wllama lacks."""
LOCK, ABOUT = "pyodide-lock.json", "package.json"
"""Pyodide asks for the first, here without the packages that it lists; the second names its licence and source."""
ENTRIES = ("inferlab.instruments",)
"""The modules that a worker imports; all that they import comes with them."""
DATA = ("data/facts/*.toml", "data/log_findings/*.toml", "data/logs/*.log", "data/public_rates/*")
"""The library's files that these modules read. Of the records, a page has the table of the atlas in their place."""
SOURCE = Path(inferlab.__file__).parents[1]
NOT_IN_WEBASSEMBLY = frozenset({"ctypes", "fcntl", "multiprocessing", "resource", "ssl", "subprocess"})
"""Parts of Python's own library that a page lacks."""
SAME_DATE, SAME_SYSTEM = (1980, 1, 1, 0, 0, 0), 3


def setup(app) -> None:
    """Put the files into the site when a build starts."""
    app.connect("builder-inited", _write_files)


def _write_files(app) -> None:
    from handbook.delivery.assets import npm_folder  # brings the theme, which a server of the built site does not need

    if app.builder.name == "html":
        root, folder = Path(app.srcdir), Path(app.outdir) / "_static" / FOLDER
        write(npm_folder(root, "pyodide"), folder)
        write_llama({package: npm_folder(root, package) for package in WLLAMA}, folder)


def write(pyodide: Path, folder: Path) -> None:
    """Write the worker, Pyodide from its npm package, and the library into a folder of the site."""
    (folder / "pyodide").mkdir(parents=True, exist_ok=True)
    for name in (*PYODIDE, ABOUT):
        shutil.copy2(pyodide / name, folder / "pyodide" / name)
    lock = json.loads((pyodide / LOCK).read_text(encoding="utf-8"))
    (folder / "pyodide" / LOCK).write_text(json.dumps({**lock, "packages": {}}), encoding="utf-8")
    for path in [path for own in OWN_FILES for path in own.iterdir() if path.suffix in (".js", ".css")]:
        shutil.copyfile(path, folder / path.name)
    write_library(folder / LIBRARY)


def write_llama(packages: Mapping[str, Path], folder: Path) -> None:
    """Copy llama.cpp from its npm packages, its notices, and the embedded model, into a folder of the site."""
    for package, files in WLLAMA.items():
        for name, kept in files.items():
            target = folder / LLAMA / kept
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(packages[package] / name, target)
    (folder / LLAMA / "wllama.wasm.LICENSE.txt").write_text(llama_notices(), encoding="utf-8")
    shutil.copy2(tiny_model(), folder / tiny_model().name)


def llama_notices() -> str:
    """The licences of llama.cpp and of what it contains, one after the other.

    Raises EngineUnavailable where llama-cpp-python was installed without them.
    """
    files = distribution("llama-cpp-python").files or ()
    notices = [file for file in files if file.parts[1:4] == NOTICES]
    if not notices:
        raise EngineUnavailable(
            "The site must carry llama.cpp's licence, but llama-cpp-python was installed without it. "
            "Install it again: rm .venv/.installed-*, then make book."
        )
    return "\n".join(f"{'/'.join(file.parts[3:])}\n\n{file.read_text(encoding='utf-8')}" for file in notices)


def llama_bytes(root: Path) -> tuple[int, int]:
    """Bytes that a run of llama.cpp asks for, in most browsers and in one that needs the compatibility build.

    root  folder with node_modules
    """
    from handbook.delivery.assets import npm_folder

    usual, compatible = (
        {kept: (npm_folder(root, package) / name).stat().st_size for name, kept in files.items()}
        for package, files in WLLAMA.items()
    )
    common = usual["index.min.js"] + tiny_model().stat().st_size
    return common + usual["wllama.wasm"], common + compatible["compat/wllama.js"] + compatible["compat/wllama.wasm"]


def write_library(target: Path) -> None:
    """Write the modules and data that instruments need as a zip: the same bytes wherever the same files are."""
    data = [path for pattern in DATA for path in (SOURCE / "inferlab").glob(pattern)]
    paths = [*map(_path, modules(ENTRIES)), *data]
    content = {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in paths}
    content[f"inferlab/{atlas.TABLE}"] = json.dumps(_atlas_table()).encode()
    with ZipFile(target, "w") as archive:
        for name in sorted(content):
            entry = ZipInfo(name, SAME_DATE)
            entry.create_system = SAME_SYSTEM
            archive.writestr(entry, content[name], ZIP_DEFLATED, 9)


@cache
def _atlas_table() -> list[dict[str, Any]]:
    return atlas.table()


# --- which modules --------------------------------------------------------------------------------------


def modules(entries: Iterable[str]) -> list[str]:
    """The library's modules that these import, at their head or in a function, as far as a page can run them.

    What needs NumPy, llama.cpp or a process imports it in the function that uses it, by the rule of the house: such
    a module is left out. Raises ImportError where an entry itself needs one of them.
    """
    trees = {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in _sources()}
    runnable = _runnable({name: {*_packages(name), *_imports(tree.body)} for name, tree in trees.items()})
    waiting, needed = list(entries), set[str]()
    if broken := sorted(set(waiting) - runnable):
        raise ImportError(f"A page cannot import {', '.join(broken)}: it has only Python's own library, and not all.")
    while waiting:
        name = waiting.pop()
        if name in runnable - needed:
            needed.add(name)
            waiting += [*_packages(name), *_imports(ast.walk(trees[name]))]
    return sorted(needed)


def _runnable(needs: dict[str, set[str]]) -> set[str]:
    """The modules that a page can import, from what each imports at its head, outside branches and functions."""
    there = {"inferlab", *sys.stdlib_module_names} - NOT_IN_WEBASSEMBLY
    broken = {name for name, needed in needs.items() if any(module.partition(".")[0] not in there for module in needed)}
    while more := {name for name, needed in needs.items() if needed & broken} - broken:
        broken |= more
    return set(needs) - broken


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The dotted names of import statements; the last part of one may be a name within a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def _packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _sources() -> Iterator[Path]:
    return (path for path in (SOURCE / "inferlab").rglob("*.py") if path.parent.parent.name != "data")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _path(name: str) -> Path:
    place = SOURCE.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
