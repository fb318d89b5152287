"""Hand-made results of the browser benchmark, as the page's script returns them, for the tests of its answers."""

from __future__ import annotations

import json
from pathlib import Path

from inferlab.instruments import answered
from inferlab.instruments.browser_bench import DEFAULTS
from inferlab.instruments.dropped import DroppedFiles
from inferlab.model.find import tiny_model

WRITTEN = [[17, -0.25], [4, -1.5], [900, -0.01]]
AGREED = {"cpu": WRITTEN, "gpu": WRITTEN, "offloaded": [7, 7]}
ASKED = {**DEFAULTS, "depths": "0, 256, 512, 768", "n_prompt": "128", "n_gen": "32"}
NO_FILES = DroppedFiles(Path("none"))


def with_header(folder: Path) -> DroppedFiles:
    """The header of the embedded model, as the page sends it."""
    found = DroppedFiles(folder)
    model = tiny_model()
    assert found.add(model.name, model.stat().st_size, 0, model.read_bytes()[: 2**20]) is None
    return found


def planned(**changes: str) -> dict:
    """The plan for a question with some changes."""
    return json.loads(json.dumps(answered("browser-bench", {**ASKED, **changes}, NO_FILES)))["data"]["plan"]


def nanoseconds(n_gen: int, depth: int, repetition: int) -> int:
    """A hand-made sample: 100 ms for a prefill, 200 ms for a decode, more with depth, and each another one."""
    return (200 if n_gen else 100) * 10**6 + 10**5 * depth + 10**6 * (repetition * repetition % 5)


def results(plan: dict, **changes: object) -> dict:
    """What the page's script returns about a plan."""
    samples = [
        {"n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth, "ns": nanoseconds(n_gen, depth, repetition)}
        for repetition in range(plan["repeats"])
        for depth in plan["depths"]
        for n_prompt, n_gen in ((plan["n_prompt"], 0), (0, plan["n_gen"]))
    ]
    return {
        "plan": plan,
        "step": "measure",
        "build": "b11364-46ca246",
        "compat": False,
        "isolated": True,
        "mmap": False,
        "n_processors": 8,
        "n_threads": 4,
        "n_batch": 1024,
        "n_ubatch": 512,
        "user_agent": "A browser",
        "gpu": "",
        "model": "tiny.gguf",
        "date": "2026-11-23T09:00:00Z",
        "samples": samples,
    } | changes
