"""Sends mutated headers to the planner, as a page would send the beginnings of a reader's files."""

from __future__ import annotations

from pathlib import Path
from random import Random

from small_models import write_model

from inferlab import instruments
from inferlab.instruments import planner
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import html_of


def fuzz_headers(folder: Path, random: Random, n: int) -> int:
    """Send mutated headers and plan what is read, without a fault; the number of those that were read."""
    whole, files, n_read = write_model(folder / "whole.gguf", "llama").read_bytes()[:20_000], DroppedFiles(folder), 0
    for _ in range(n):
        data = bytearray(whole)
        for _ in range(random.randint(1, 6)):
            data[random.randrange(len(data))] = random.randrange(256)
        reply = instruments.sent(files, "m.gguf", 10**9, 0, bytes(data[: random.randint(1, len(data))]))
        if reply["kind"] == "read":
            n_read += 1
            question = {**planner.DEFAULTS, "model": "file", "file": "m.gguf"}
            shown = html_of(instruments.answered("planner", question, files)["view"])
            assert instruments.UNEXPECTED not in shown, shown
    return n_read
