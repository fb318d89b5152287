"""The rooms of the library: a module imports from its own row or from rows below, and never in a circle."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import inferlab

PACKAGE = Path(inferlab.__file__).parent

ROOMS = {
    8: "cli page widgets",
    7: "checkup diagrams figures",
    6: "accuracy atlas contributions diagnosis fitting gaps reference roofs tradeoffs tuning",
    5: "calibration divergence injections llamabench plans pytorch quantization records shapes sweeps treads",
    4: "allocation coldstart depths drafting forgetting occupancy oracle prefixes probe run serving sides slots "
       "vocabulary withholding",
    3: "engine loopback pagecache residence telemetry",
    2: "anatomy architectures blocks intervals knobs memory miniature mixes models native rounding "
       "selection speed synthetic",
    1: "claims facts gguf machine settings",
    0: "errors progress units",
}
ROW = {room: row for row, rooms in ROOMS.items() for room in rooms.split()}
FRONT_DOORS = 8

ONLY_IN = {
    "anywidget": {"widgets"},
    "docutils": {"page"},
    "huggingface_hub": {"models"},
    "ipywidgets": {"widgets"},
    "llama_cpp": {"engine.worker"},
    "myst_nb": {"page"},
    "playwright": {"diagrams"},
    "plotly": {"figures"},
    "psutil": {"telemetry"},
    "pynvml": {"telemetry"},
    "rich": {"cli", "progress"},
    "socket": {"loopback"},
    "sphinx": {"page"},
    "sphinxcontrib": {"page"},
    "torch": {"pytorch"},
}
BLIND_TO_PREDICTIONS = {"engine", "telemetry", "run", "probe", "depths", "drafting", "prefixes", "serving", "slots"}
PREDICTIONS = {"memory", "speed", "plans"}


def modules(package: Path) -> dict[str, Path]:
    """Every module by its dotted name inside the package; a subpackage by its folder's name."""
    files = [path for path in package.rglob("*.py") if "data" not in path.relative_to(package).parts]
    named = {".".join(path.relative_to(package).with_suffix("").parts): path for path in files}
    named.pop("__init__")
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def imports(path: Path, name: str, package: Path) -> Iterator[str]:
    """The dotted names that a module imports anywhere in its code, relative ones made absolute."""
    inside = [package.name, *name.split(".")][: None if path.name == "__init__.py" else -1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(inside[: len(inside) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            yield from (f"{source}.{alias.name}" for alias in node.names)


def own_imports(package: Path) -> dict[str, set[str]]:
    """For each module the modules of the same package that it imports; "" stands for the package itself."""
    known = modules(package)

    def owner(dotted: str) -> str:
        parts = dotted.split(".")[1:]
        return next((".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known), "")

    return {
        name: {owner(i) for i in imports(path, name, package) if i.split(".")[0] == package.name}
        for name, path in known.items()
    }


def broken_rules(package: Path) -> list[str]:
    """Every import that breaks a rule, as a sentence."""
    found = [f"{name} has no row in tests/test_rooms.py" for name in modules(package) if room(name) not in ROW]
    for name, imported in own_imports(package).items():
        found += [f"{name} imports {other or 'the package'} from above" for other in imported if row(other) > row(name)]
        if room(name) in BLIND_TO_PREDICTIONS:
            found += [f"{name} measures and knows {other}" for other in imported if room(other) in PREDICTIONS]
    for name, path in modules(package).items():
        roots = {dotted.split(".")[0] for dotted in imports(path, name, package)}
        strangers = (root for root in roots & set(ONLY_IN) if not {name, room(name)} & ONLY_IN[root])
        found += [f"{name} imports {root}, which belongs to {', '.join(ONLY_IN[root])}" for root in strangers]
    return sorted(found + circles(package))


def circles(package: Path) -> list[str]:
    try:
        TopologicalSorter(own_imports(package)).prepare()
    except CycleError as error:
        return ["a circle: " + " - ".join(error.args[1])]
    return []


def room(name: str) -> str:
    return name.split(".")[0]


def row(name: str) -> int:
    """The row of a module; the package itself opens every room, so only the front doors may use it."""
    return ROW.get(room(name), FRONT_DOORS) if name else FRONT_DOORS


def test_the_library_keeps_to_its_rooms():
    """Every module has a row, imports downward, without circles, and only what belongs to its room."""
    assert broken_rules(PACKAGE) == []


@pytest.mark.parametrize(
    ("files", "broken"),
    [
        ({"run.py": "from lib.figures import timeline"}, "run imports figures from above"),
        ({"run.py": "def f():\n    from lib import figures"}, "run imports figures from above"),
        ({"run.py": "from . import figures"}, "run imports figures from above"),
        ({"run.py": "import lib.figures as f"}, "run imports figures from above"),
        ({"run.py": "from lib import measure"}, "run imports the package from above"),
        ({"engine/worker.py": "from ..run import x", "run.py": ""}, "engine.worker imports run from above"),
        ({"run.py": "import lib.engine", "engine.py": "import lib.run"}, "a circle: "),
        ({"gguf.py": "import lib.machine", "machine.py": "from .gguf import x"}, "a circle: "),
        ({"helpers.py": ""}, "helpers has no row in tests/test_rooms.py"),
        ({"run.py": "from lib.memory import x", "memory.py": ""}, "run measures and knows memory"),
        ({"run.py": "import plotly.graph_objects as go"}, "run imports plotly, which belongs to figures"),
        ({"widgets.py": "from plotly import io"}, "widgets imports plotly, which belongs to figures"),
        ({"engine/__init__.py": "import llama_cpp"}, "engine imports llama_cpp, which belongs to engine.worker"),
        ({"run.py": "def f():\n    import psutil"}, "run imports psutil, which belongs to telemetry"),
        ({"page.py": "import ipywidgets"}, "page imports ipywidgets, which belongs to widgets"),
    ],
)
def test_a_broken_rule_is_found(tmp_path, files, broken):
    """The rules above bite: a package that breaks one is told which."""
    package = tmp_path / "lib"
    for name, text in ({"__init__.py": "", "figures.py": ""} | files).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    assert [rule for rule in broken_rules(package) if rule.startswith(broken)]


def test_importing_the_library_costs_nothing():
    """`import inferlab as lab` loads none of the rooms and nothing heavy."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import inferlab; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert [name for name in loaded.split() if name.startswith("inferlab")] == ["inferlab"]
    assert len(loaded.split()) < 100


@pytest.mark.parametrize("name", inferlab.__all__)
def test_every_name_of_the_library_is_there(name):
    """Each name that `lab.` offers leads to something with a docstring, and never to a module."""
    value = getattr(inferlab, name)
    assert value.__doc__
    assert type(value).__name__ != "module"


def test_an_unknown_name_is_answered_with_the_known_ones():
    """A typing error lists what the library has."""
    with pytest.raises(AttributeError, match=r"no 'meassure'; it has .*measure"):
        _ = inferlab.meassure
    assert "measure" in dir(inferlab)
