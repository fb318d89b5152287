"""Opens JupyterLab on the labs: `python -m handbook.lab_room`, which is `make lab`.

Its start page has every lab in the order of the book's index, with what this folder knows about it.
The settings of `jupyter/` come after the reader's own, which stay as they are.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).parent / "jupyter"
ROW = re.compile(r"^\| \[(.+?)\]\(\.\./labs/(.+?\.ipynb)\) \| (.+?) \| (\d+) \| (.+?) \|$", re.MULTILINE)
INTRODUCTION = """# Labs

Open a lab by its name, and press Shift+Enter in each cell from top to bottom.
Lab 0 comes first; the others follow the chapters, in any order that suits you.
A link to a chapter opens its source here, without results.
The page to read is built by `make book`, which says where to open it.

"""
FOOT = """
*Minutes* include reading.
*Cells run* counts what the saved notebook shows; this page is written when `make lab` starts.
"""


@dataclass(frozen=True)
class Lab:
    """One line of the book's index of labs."""

    title: str
    file: str
    question: str
    minutes: int
    needs: str


def labs(root: Path) -> list[Lab]:
    """Every lab of `book/labs.md`, in its order."""
    index = (root / "book" / "labs.md").read_text(encoding="utf-8")
    return [Lab(title, file, asked, int(minutes), needs) for title, file, asked, minutes, needs in ROW.findall(index)]


def cells_run(notebook: dict) -> tuple[int, int]:
    """Code cells of a saved notebook that were run, and all of them.

    Cells whose output the repository keeps count in neither: they look the same before and after.
    """
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    own = [cell for cell in code if "keep_output" not in cell["metadata"].get("tags", ())]
    return sum(bool(cell["execution_count"]) for cell in own), len(own)


def start_page(root: Path) -> str:
    """The start page in Markdown; seconds of computing only where a build has kept them."""
    listed = labs(root)
    seconds = {lab.file: _seconds(root, lab) for lab in listed}
    head = ["lab", "question", "minutes", "needs besides a CPU", "cells run"]
    if any(seconds.values()):
        head.append("computing, last build")
    lines = [head, ["---"] * len(head)]
    lines += [[*_row(root, lab), seconds[lab.file] or ""][: len(head)] for lab in listed]
    return INTRODUCTION + "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + FOOT


def _row(root: Path, lab: Lab) -> list[str]:
    done, n_cells = cells_run(json.loads((root / "labs" / lab.file).read_text(encoding="utf-8")))
    state = "all" if done == n_cells else f"{done} of {n_cells}" if done else "none"
    return [f"[{lab.title}]({lab.file})", lab.question, f"{lab.minutes}", lab.needs, state]


def _seconds(root: Path, lab: Lab) -> str | None:
    """How long the lab's cells took when the book was last built here."""
    kept = (root / "_build" / ".executed" / "labs" / lab.file).with_suffix(".json")
    if not kept.is_file():
        return None
    return f"{json.loads(kept.read_text(encoding='utf-8'))['result']['runtime']:.0f} s"


def open_labs(root: Path = ROOT, options: Sequence[str] = ()) -> None:
    """Write the start page and run JupyterLab until it ends."""
    from jupyterlab.labapp import LabApp

    (root / "labs" / "start.md").write_text(start_page(root), encoding="utf-8")
    paths = [os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS)]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, paths))
    styles = f"--ServerApp.tornado_settings=static_custom_path={SETTINGS / 'custom'}"
    LabApp.launch_instance([f"--ServerApp.root_dir={root}", styles, *options])


if __name__ == "__main__":
    open_labs(options=sys.argv[1:])
