"""Starts one student's server within its limits: `start_student.py command …`, called by the hub's spawner.

The hub says in the environment who it is and what is allowed: JUPYTERHUB_USER, HOME (the student's folder), HUB_PYTHON,
HUB_MEMORY_BYTES, HUB_CORES (numbers, with commas) and HUB_GROUPS (a folder of cgroup v2, or empty).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import student_folder
from student_limits import Limits, limit_this_process


def main(command: list[str]) -> None:
    """Fill the folder, limit this process, and become the command."""
    env = os.environ
    folder = Path(env["HOME"])
    student_folder.fill(folder)
    student_folder.write_start_page(folder, Path(env["HUB_PYTHON"]))
    cores = tuple(int(core) for core in env["HUB_CORES"].split(",") if core)
    limits = Limits(int(env["HUB_MEMORY_BYTES"]) or None, cores)
    limit_this_process(limits, env["JUPYTERHUB_USER"], Path(env["HUB_GROUPS"]) if env["HUB_GROUPS"] else None)
    os.chdir(folder)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
