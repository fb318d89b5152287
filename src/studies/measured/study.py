"""The records of the repository, counted, and their machines."""

from __future__ import annotations

from inferlab.atlas.entries import gpu_names, machines, record_files
from inferlab.machine import Machine


def numbers(machine: Machine) -> dict[str, int | str]:
    """The numbers of the front page: files, measurements, machines and GPUs, and what the page's `machine` is."""
    known, files = machines(), record_files()
    gpus, here = gpu_names(known), gpu_names({"here": machine})
    cpus = [f"{each.cpu.replace('(R)', '')} ({each.n_cores} cores used)" for each in known.values()]
    return {
        "n_files": len(files),
        "n_measurements": sum(file.n_measurements for file in files),
        "machines": " and ".join(cpus),
        "gpus": (
            f"The GPUs among them: {', '.join(gpus)}."
            if gpus
            else "No GPU is among them: no card has been measured yet."
        ),
        "here": f"a machine with {', '.join(here)}" if here else "a machine without a GPU",
    }
