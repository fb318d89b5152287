"""What a workshop asks of a participant's machine, from data/workshops.toml, and the checks of it.

`check_workshop` adds to the findings of a check-up: the labs, their disk, the cores, the room's GPU, and one short
measurement of the embedded model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from inferlab.doctor.building import build_command, wanted_backend
from inferlab.doctor.checks import backend_of
from inferlab.doctor.findings import Finding
from inferlab.doctor.host import Host, Seen
from inferlab.doctor.remedies import build_the_book
from inferlab.errors import InferlabError, UnknownSyllabus
from inferlab.facts import tomllib
from inferlab.measurement.run import Run
from inferlab.model.find import cache_folder
from inferlab.units import GB, rate_text

ROOMS = {
    "cpu": "no GPU is needed",
    "gpu": "every participant has a GPU",
    "shared": "one GPU is shared; the labs run on the laptops",
}
"""Kinds of room, by the word of the command line."""
MOST_SPREAD = 1.5
"""Times the slowest pass: beyond it something else is running, and the labs' comparisons would show that."""
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
    found = tomllib.loads((files("inferlab") / "data" / "workshops.toml").read_text(encoding="utf-8"))
    needs = {name: LabNeeds(**lab) for name, lab in found["labs"].items()}
    return {name: Syllabus(name, {lab: needs[lab] for lab in one["labs"]}) for name, one in found["syllabi"].items()}


def syllabus(name: str) -> Syllabus:
    """The syllabus of that name. Raises UnknownSyllabus, which names those that exist."""
    try:
        return syllabi()[name]
    except KeyError:
        raise UnknownSyllabus(f"There is no workshop {name!r}. There are: {', '.join(syllabi())}.") from None


def check_workshop(asked: Syllabus, room: str, seen: Seen, run: Run | InferlabError) -> list[Finding]:
    """What the syllabus needs in such a room, subject by subject; `run` is a measurement of the embedded model."""
    found = [labs(asked, seen.host), disk(asked, seen.host), cores(asked, seen)]
    found += [gpu(seen)] if room == "gpu" else []
    found += [linux_only(asked, seen.host)]
    return [finding for finding in (*found, speed(run)) if finding is not None]


def labs(asked: Syllabus, host: Host) -> Finding:
    """The notebooks of the labs, and JupyterLab to open them."""
    subject = "labs"
    if host.root is None:
        return Finding(
            subject, "problem", "this is no clone of the book, which has them; make one, and run `make book`"
        )
    missing = [name for name in asked.labs if not host.glob(f"{host.root}/labs/{name}.ipynb")]
    if missing:
        return Finding(subject, "problem", f"missing: {', '.join(missing)}", "git checkout -- labs")
    if not host.has_package("jupyterlab"):
        return Finding(subject, "problem", "JupyterLab is not installed", build_the_book(host))
    return Finding(subject, "ok", f"all {len(asked.labs)} of this workshop, and JupyterLab to open them")


def disk(asked: Syllabus, host: Host) -> Finding:
    """Room for the files that the labs make."""
    folder, subject = cache_folder(), "disk for the labs"
    free = host.free_bytes(folder)
    needed = f"{asked.disk_bytes / GB:.1f} GB needed"
    if free is None:
        return Finding(subject, "warning", f"{needed}, free space unknown", "df -h ~/.cache")
    found = f"{needed}, {free / GB:.1f} GB free in the cache folder"
    if free >= asked.disk_bytes:
        return Finding(subject, "ok", found)
    return Finding(subject, "problem", found, "df -h ~/.cache    # free some, or set INFERLAB_CACHE to another disk")


def cores(asked: Syllabus, seen: Seen) -> Finding:
    """Enough cores for the lab that needs most."""
    subject, here = "cores for the labs", seen.machine.n_cores
    found = f"{here}, and {asked.n_cores} needed"
    if here >= asked.n_cores:
        return Finding(subject, "ok", found)
    few = [name for name, lab in asked.labs.items() if lab.n_cores > here]
    return Finding(subject, "warning", f"{found} by {', '.join(few)}; share a neighbor's machine there")


def gpu(seen: Seen) -> Finding:
    """A GPU that llama.cpp computes on."""
    subject, gpus = "GPU for the labs", seen.machine.gpus
    if gpus:
        return Finding(subject, "ok", ", ".join(f"{one.description}, {one.memory_text}" for one in gpus))
    wanted = wanted_backend(seen) or backend_of(seen)
    return Finding(subject, "problem", "llama.cpp sees none", build_command(seen, wanted))


def linux_only(asked: Syllabus, host: Host) -> Finding | None:
    """What of a lab another system than Linux cannot run."""
    parts = [f"{lab.needs_linux_for} (lab {name[:2]})" for name, lab in asked.labs.items() if lab.needs_linux_for]
    if host.system == "Linux" or not parts:
        return None
    return Finding("system", "warning", f"{', '.join(parts)} run on Linux only; share a neighbor's machine there")


def speed(run: Run | InferlabError) -> Finding:
    """The rates of the embedded model, and whether its passes agree."""
    subject = "first measurement"
    if isinstance(run, InferlabError):
        return Finding(subject, "problem", f"it failed: {run}")
    slow, fast = run.ranges["decode_tokens_per_second"]
    found = f"prefill {rate_text(run.prefill_tokens_per_second)}, decode {rate_text(run.decode_tokens_per_second)}"
    if fast <= MOST_SPREAD * slow:
        return Finding(subject, "ok", f"{found} with the embedded model")
    found += f"; the fastest pass was {fast / slow:.1f} times as fast as the slowest: close other programs, plug in"
    return Finding(subject, "warning", found)


def first_run(measure: Callable[..., Run]) -> Run | InferlabError:
    """The embedded model, measured for a second or two; or why it failed."""
    try:
        return measure(n_prompt=N_PROMPT, n_gen=N_GEN, repeats=REPEATS)
    except InferlabError as error:
        return error
