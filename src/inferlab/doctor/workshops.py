"""What a workshop asks of a participant's machine, from data/workshops.toml, and the checks of it.

`check_workshop` adds to the findings of a check-up: the labs, their disk, the cores, the room's GPU, and one short
measurement of the embedded model. What no command fixes has the page for participants as its remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from inferlab.doctor.building import build_command, wanted_backend
from inferlab.doctor.checks import backend_of, reason
from inferlab.doctor.findings import Finding
from inferlab.doctor.host import Host, Seen
from inferlab.doctor.remedies import build_the_book, list_busy
from inferlab.errors import InferlabError, UnknownSyllabus
from inferlab.facts import tomllib
from inferlab.measurement.run import Run
from inferlab.model.find import cache_folder
from inferlab.records import load
from inferlab.units import GB, rate_text

ROOMS = {
    "cpu": "no GPU is needed",
    "gpu": "every participant has a GPU",
    "shared": "one GPU is shared; the labs run on the laptops",
}
"""Kinds of room, by the word of the command line."""
PAGE = "book/teaching/guide.md"
"""What to do about each verdict, for participants."""
SHARE = f"# sit with a neighbor for that: {PAGE}"
MOST_SPREAD = 1.5
"""Times the slowest pass: beyond it something else is running, and the labs' comparisons would show that."""
MOST_SLOWER = 2
"""Times the recorded seconds of a token: what the minutes of the plans allow for."""
RECORDED = "epyc-2c/tiny-type-rates"
N_PROMPT, N_GEN, REPEATS = 64, 32, 5


@dataclass(frozen=True)
class LabNeeds:
    """What a lab needs beside the installation.

    disk_bytes       left in the cache folder, or used for a while
    needs_linux_for  what runs on Linux alone; "" for nothing
    """

    disk_bytes: int = 0
    n_cores: int = 1
    needs_linux_for: str = ""


@dataclass(frozen=True)
class Syllabus:
    """The labs of a workshop, in their order."""

    name: str
    labs: dict[str, LabNeeds]

    @property
    def disk_bytes(self) -> int:
        """Bytes that all labs together leave or use."""
        return sum(lab.disk_bytes for lab in self.labs.values())

    @property
    def n_cores(self) -> int:
        return max(lab.n_cores for lab in self.labs.values())


@cache
def syllabi() -> dict[str, Syllabus]:
    """Every syllabus by its name, the shortest first."""
    table = tomllib.loads((files("inferlab") / "data" / "workshops.toml").read_text(encoding="utf-8"))
    needs = {name: LabNeeds(**lab) for name, lab in table["labs"].items()}
    return {
        name: Syllabus(name, {lab: needs[lab] for lab in entry["labs"]}) for name, entry in table["syllabi"].items()
    }


def syllabus(name: str) -> Syllabus:
    """The syllabus of that name. Raises UnknownSyllabus, which names those that exist."""
    try:
        return syllabi()[name]
    except KeyError:
        raise UnknownSyllabus(f"There is no workshop {name!r}. There are: {', '.join(syllabi())}.") from None


def check_workshop(asked: Syllabus, room: str, seen: Seen, run: Run | InferlabError) -> list[Finding]:
    """What the syllabus needs in such a room, subject by subject; `run` is a measurement of the embedded model."""
    findings = [labs(asked, seen.host), disk(asked, seen.host), cores(asked, seen)]
    findings += [gpu(seen)] if room == "gpu" else []
    findings += [shared_gpu(asked)] if room == "shared" else []
    linux = linux_only(asked, seen.host)
    return [*findings, *([linux] if linux else []), speed(run, seen)]


def labs(asked: Syllabus, host: Host) -> Finding:
    """The notebooks of the labs, and JupyterLab to open them."""
    subject = "labs"
    if host.root is None:
        make = f"git clone ADDRESS handbook && cd handbook && make lab    # ADDRESS: from your teacher; {PAGE}"
        return Finding(subject, "problem", "this is no clone of the book, which has them", make)
    missing = [name for name in asked.labs if not host.glob(f"{host.root}/labs/{name}.ipynb")]
    if missing:
        return Finding(subject, "problem", f"missing: {', '.join(missing)}", "git checkout -- labs")
    if not host.has_package("jupyterlab"):
        return Finding(subject, "problem", "JupyterLab is not installed", build_the_book(host))
    return Finding(subject, "ok", f"all {len(asked.labs)} of this workshop, and JupyterLab to open them")


def disk(asked: Syllabus, host: Host) -> Finding:
    """Space for the files that the labs make."""
    subject, free = "disk for the labs", host.free_bytes(cache_folder())
    needed = f"{asked.disk_bytes / GB:.1f} GB needed"
    look = "Get-PSDrive -PSProvider FileSystem" if host.system == "Windows" else "df -h ~/.cache"
    if free is None:
        return Finding(subject, "warning", f"{needed}, free space unknown", look)
    found = f"{needed}, {free / GB:.1f} GB free in the cache folder"
    if free >= asked.disk_bytes:
        return Finding(subject, "ok", found)
    remedy = f"{look}    # free some, or set INFERLAB_CACHE to a folder on another disk"
    return Finding(subject, "problem", found, remedy)


def cores(asked: Syllabus, seen: Seen) -> Finding:
    """Enough cores for the lab that needs most; an unknown number is no reason to stay at home."""
    subject, here = "cores for the labs", seen.machine.n_cores
    found = f"{'an unknown number' if here is None else here}, and {asked.n_cores} needed"
    if here is None or here >= asked.n_cores:
        return Finding(subject, "ok", found)
    few = [_number(name) for name, lab in asked.labs.items() if lab.n_cores > here]
    return Finding(subject, "warning", f"{found} by lab {', '.join(few)}", SHARE)


def gpu(seen: Seen) -> Finding:
    """A GPU that llama.cpp computes on."""
    subject, gpus = "GPU for the labs", seen.machine.gpus
    if gpus:
        return Finding(subject, "ok", ", ".join(f"{device.description}, {device.memory_text}" for device in gpus))
    wanted = wanted_backend(seen) or backend_of(seen)
    if wanted == "none":
        return Finding(subject, "problem", "none in this machine", SHARE)
    return Finding(subject, "problem", "llama.cpp sees none", build_command(seen, wanted))


def shared_gpu(asked: Syllabus) -> Finding:
    """Where the GPU of the room is checked: not here."""
    there = f"inferlab doctor --workshop {asked.name} --room gpu"
    return Finding("shared GPU", "ok", f"not checked here; your teacher runs `{there}` on its server")


def linux_only(asked: Syllabus, host: Host) -> Finding | None:
    """What of a lab another system than Linux cannot run."""
    parts = [f"{lab.needs_linux_for} (lab {_number(name)})" for name, lab in asked.labs.items() if lab.needs_linux_for]
    if host.system == "Linux" or not parts:
        return None
    return Finding("system", "warning", f"{', '.join(parts)} run on Linux only", SHARE)


def _number(name: str) -> str:
    """The number of a lab as readers know it: `4a` for `04a-fill-the-kv-cache`."""
    return name.partition("-")[0].removeprefix("0") or "0"


def speed(run: Run | InferlabError, seen: Seen) -> Finding:
    """The rates of the embedded model, whether its passes agree, and whether the plans' minutes will do."""
    subject = "first measurement"
    if isinstance(run, InferlabError):
        return Finding(subject, "problem", f"it failed: {reason(run)}", build_command(seen, backend_of(seen)))
    found = f"prefill {rate_text(run.prefill_tokens_per_second)}, decode {rate_text(run.decode_tokens_per_second)}"
    doubts = [doubt for doubt in (_spread(run), _slowness(run)) if doubt]
    if not doubts:
        return Finding(subject, "ok", f"{found} with the embedded model")
    return Finding(subject, "warning", "; ".join([found, *doubts]), list_busy(seen.host))


def _spread(run: Run) -> str | None:
    slow, fast = run.ranges["decode_tokens_per_second"]
    return f"its fastest pass {fast / slow:.1f} times as fast as its slowest" if fast > MOST_SPREAD * slow else None


def _slowness(run: Run) -> str | None:
    """Against the recorded rate, where the same kernels multiplied; rates of other kernels say nothing here."""
    recorded = load(RECORDED)
    if run.kernel_shares(1) != recorded.type_rate("F16").decode_kernels:
        return None
    rate, usual = run.decode_tokens_per_second, recorded.rate("F16", "decode")
    if rate is None or MOST_SLOWER * rate >= usual:
        return None
    return f"decode slower than half of the {rate_text(usual)} recorded on {recorded.machine.cpu}"


def first_run(measure: Callable[..., Run]) -> Run | InferlabError:
    """The embedded model, measured for a second or two; or why it failed."""
    try:
        return measure(n_prompt=N_PROMPT, n_gen=N_GEN, repeats=REPEATS)
    except InferlabError as error:
        return error
