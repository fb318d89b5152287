"""The house: a module imports from its own room or from those before it, a study from no other, and no circle."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import handbook
import inferlab
import studies

PACKAGES = (Path(inferlab.__file__).parent, Path(studies.__file__).parent, Path(handbook.__file__).parent)

ORDER = """
    errors units progress shown
    records_v1 records
    statistics
    facts machine
    model
    settings
    options
    engine
    measurement
    doctor | prediction
    log_reader
    atlas
    results
    instruments
    figures
    widgets
    studies
    cli | handbook
"""
"""Each line may import from itself and from the lines above it; a bar parts rooms that do not know each other."""

ROW = {room: row for row, line in enumerate(ORDER.split("\n")) for room in line.replace("|", " ").split()}
STUDIES = "studies"
PARTED = [{frozenset(side.split()) for side in line.split("|")} for line in ORDER.split("\n") if "|" in line]

ONLY_IN = {
    "anywidget": {"widgets"},
    "docutils": {"handbook"},
    "filelock": {"engine.measurement_queue", "handbook", "model.smollm2"},
    "gguf": {"nowhere"},
    "huggingface_hub": {"model.find"},
    "ipywidgets": {"widgets", "studies.*.widget"},
    "jinja2": {"engine.chat", "handbook"},
    "llama_cpp": {"engine.worker"},
    "mlx": {"studies.other_engines.worker"},
    "mlx_lm": {"studies.other_engines.worker"},
    "myst_nb": {"handbook"},
    "onnxruntime_genai": {"studies.other_engines.worker"},
    "openvino": {"studies.other_engines.worker"},
    "openvino_genai": {"studies.other_engines.worker"},
    "playwright": {"handbook.chromium"},
    "plotly": {"figures", "studies.*.figures"},
    "psutil": {"engine.cpu_time", "measurement.telemetry.host"},
    "pynvml": {"measurement.telemetry.nvml"},
    "rich": {"cli", "progress"},
    "socket": {"engine.loopback", "studies.fit_params.reported_memory", "studies.several_cards.watched"},
    "sphinx": {"handbook"},
    "sphinxcontrib": {"handbook"},
    "tokenizers": {"studies.other_engines.measure"},
    "torch": {"measurement.pytorch"},
    "transformers": {"studies.other_engines.measure", "studies.other_engines.worker"},
}
"""A library outside -> the only rooms or modules that may import it."""


def modules(packages: tuple[Path, ...]) -> dict[str, Path]:
    """Every module by its dotted name inside the first package, or with its package's name in the others."""
    named = {}
    for package in packages:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package).with_suffix("").parts
            if "data" not in parts:
                name = ".".join(parts if package == packages[0] else (package.name, *parts))
                named[name.removesuffix("__init__").removesuffix(".")] = path
    named.pop("", None)
    return named


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a module imports anywhere in its code; relative imports are not used in this house."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def own_imports(packages: tuple[Path, ...]) -> dict[str, set[str]]:
    """For each module the modules of the house that it imports; "" stands for the library's front, `lab`."""
    known = modules(packages)
    library, others = packages[0].name, {package.name for package in packages[1:]}

    def owner(dotted: str) -> str | None:
        first, _, rest = dotted.partition(".")
        if first not in {library, *others}:
            return None
        parts = (rest if first == library else dotted).split(".")
        return next((".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known), "")

    found = {name: {owner(dotted) for dotted in imports(path)} for name, path in known.items()}
    return {name: {one for one in owners if one is not None} - {name} for name, owners in found.items()}


def broken_rules(packages: tuple[Path, ...]) -> list[str]:
    """Every import that breaks a rule, as a sentence."""
    found = [f"{name} has no place in ORDER" for name in modules(packages) if room(name) not in ROW]
    for name, imported in own_imports(packages).items():
        found += [f"{name} imports {other or 'the library'} from above" for other in imported if row(other) > row(name)]
        found += [f"{name} imports {other} from next door" for other in imported if parted(room(name), room(other))]
        others = (other for other in imported if {"", study(name)}.isdisjoint({study(other)}) and study(name))
        found += [f"{name} imports {other} of another study" for other in others]
    for name, path in modules(packages).items():
        outside = list(imports(path))
        found += [f"{name} imports {dotted.lstrip('.')} by a relative name" for dotted in outside if dotted[0] == "."]
        roots = {dotted.split(".")[0] for dotted in outside}
        strangers = (root for root in roots & set(ONLY_IN) if not belongs(name, root))
        found += [f"{name} imports {root}, which belongs to {', '.join(ONLY_IN[root])}" for root in strangers]
    return sorted(found + circles(packages))


def circles(packages: tuple[Path, ...]) -> list[str]:
    try:
        TopologicalSorter(own_imports(packages)).prepare()
    except CycleError as error:
        return ["a circle: " + " - ".join(error.args[1])]
    return []


def room(name: str) -> str:
    return name.split(".")[0]


def row(name: str) -> int:
    """The row of a module; the library's front opens every room, so only the last row may use it."""
    return ROW.get(room(name), len(ROW)) if name else max(ROW.values())


def study(name: str) -> str:
    """The study of a module; "" for modules outside, and for those that all studies share."""
    parts = name.split(".")
    return parts[1] if parts[0] == STUDIES and len(parts) > 2 else ""


def parted(one: str, other: str) -> bool:
    """Whether two rooms of one row do not know each other."""
    sides = [side for line in PARTED for side in line if {one, other} & side]
    return one != other and row(one) == row(other) and len(set(sides)) == 2


def belongs(name: str, root: str) -> bool:
    return any(fnmatch(name, home) or fnmatch(name, f"{home}.*") for home in ONLY_IN[root])


def test_the_house_keeps_its_order():
    """Every module has a place, imports only from its room or those before it, without circles."""
    assert broken_rules(PACKAGES) == []


@pytest.mark.parametrize(
    ("files", "broken"),
    [
        ({"measurement/run.py": "from lib.figures import timeline"}, "measurement.run imports figures from above"),
        ({"measurement/run.py": "def f():\n    from lib import figures"}, "measurement.run imports figures from above"),
        ({"measurement/run.py": "import lib.figures as f"}, "measurement.run imports figures from above"),
        ({"measurement/run.py": "from lib import measure"}, "measurement.run imports the library from above"),
        ({"measurement/run.py": "from lib.prediction import fit"}, "measurement.run imports prediction.fit from above"),
        ({"measurement/run.py": "from . import depth"}, "measurement.run imports depth by a relative name"),
        ({"doctor/host.py": "import lib.prediction.fit"}, "doctor.host imports prediction.fit from next door"),
        ({"../studies/x/study.py": "import studies.y.study"}, "studies.x.study imports studies.y.study of another"),
        ({"measurement/run.py": "import studies.x.study"}, "measurement.run imports studies.x.study from above"),
        ({"cli/plan.py": "import book.trials"}, "cli.plan imports book.trials from next door"),
        ({"model/gguf.py": "import lib.model.find", "model/find.py": "import lib.model.gguf"}, "a circle: "),
        ({"helpers.py": ""}, "helpers has no place in ORDER"),
        ({"measurement/run.py": "import plotly.graph_objects"}, "measurement.run imports plotly, which belongs to"),
        ({"engine/client.py": "import llama_cpp"}, "engine.client imports llama_cpp, which belongs to engine.worker"),
        ({"measurement/run.py": "def f():\n    import psutil"}, "measurement.run imports psutil, which belongs to"),
    ],
)
def test_a_broken_rule_is_found(tmp_path, files, broken, monkeypatch):
    """The rules above bite: a house that breaks one is told which."""
    monkeypatch.setitem(ROW, "book", ROW["handbook"])
    monkeypatch.setattr(sys.modules[__name__], "PARTED", [*PARTED, {frozenset(["cli"]), frozenset(["book"])}])
    library, *others = packages = [tmp_path / name for name in ("lib", STUDIES, "book")]
    rest = {"figures.py": "", "prediction/fit.py": "", "measurement/depth.py": "", "../book/trials.py": ""}
    starts = {f"../{other.name}/__init__.py": "" for other in others}
    rest |= {f"../{STUDIES}/{name}/{file}.py": "" for name in "xy" for file in ("__init__", "study")}
    for name, text in ({"__init__.py": ""} | starts | rest | files).items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text)
    assert [rule for rule in broken_rules(tuple(packages)) if rule.startswith(broken)]


def test_importing_the_library_costs_nothing():
    """`import inferlab as lab` loads none of the rooms and nothing heavy."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGES[0].parent)!r}); import inferlab; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert [name for name in loaded.split() if name.startswith("inferlab")] == ["inferlab"]
    assert len(loaded.split()) < 100
