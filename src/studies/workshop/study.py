"""What a workshop's check says of a laptop, and a recorded room of students on one server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from inferlab.doctor.room_line import RoomLine
from inferlab.doctor.workshops import MOST_SLOWER, MOST_SPREAD, syllabi
from inferlab.model.synthetic_model import shape
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GB, KIB, MB

MEANING = {
    "version": "the version of the book",
    "workshop": "your workshop, and the room: `cpu` if you named none",
    "state": "the verdict, with the rows of the check that are not ok",
    "system": "operating system and processor family",
    "python": "the Python that runs the labs",
    "cores": "physical cores",
    "memory": "memory in all",
    "disk": "free space where the labs keep their files",
    "devices": "what llama.cpp was built for, and the GPUs that it sees with their memory",
    "kernels": "how the processor multiplied the embedded model's matrices",
    "rates": "tokens of the embedded model in a second: reading a prompt, and writing an answer",
}
"""Field of a participant's line -> what it says."""
SOME_CELLS = 256


def at_home_numbers() -> dict[str, float | int]:
    """The numbers of the page for participants: GB of the longest workshop, and both limits of the check."""
    return {"most_gb": _labs_gb(), "spread": MOST_SPREAD, "slower": MOST_SLOWER}


def _labs_gb() -> float:
    return syllabi()["one-day"].disk_bytes / GB


def labs_table() -> tuple[Sequence[str], Sequence[Sequence[str | int | float]]]:
    """Heads and rows: each workshop's labs by their numbers, `4a` for `04a-fill-the-kv-cache`; disk and cores."""
    rows = []
    for name, plan in syllabi().items():
        labs = [lab.partition("-")[0].removeprefix("0") or "0" for lab in plan.labs]
        rows.append((name, ", ".join(labs), plan.disk_bytes / GB, plan.n_cores))
    return ("workshop", "labs", "disk, GB", "cores"), rows


def line_table(line: RoomLine) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows: a participant's line, field by field, and what each field says."""
    return ("field", "text", "what it says"), [(name, text, MEANING[name]) for name, text in asdict(line).items()]


def sheet_numbers(room: Mapping[str, float]) -> dict[str, float | int]:
    """The numbers of the page with the sheets; `room` is the summary of a recorded room.

    KiB of a token in Mistral 7B's cache, the share of disturbed measurements in percent, seconds, MB and GB of memory.
    """
    settings = Settings(n_ctx=SOME_CELLS)
    cache_bytes = predict_memory(shape("mistral-7b-v0.3", "Q4_K_M"), settings).bytes_of("kv_cache")
    return {
        "cell_kib": cache_bytes / SOME_CELLS / KIB,
        "students": room["students"],
        "cores": room["cores"],
        "disturbed": 100 * room["disturbed"] / room["measurements_labelled"],
        "wait": room["waited_seconds_median"],
        "memory_each": room["memory_bytes"] / room["students"] / MB,
        "memory_room": 2 * room["memory_bytes"] / GB,
        "labs_gb": _labs_gb(),
    }
