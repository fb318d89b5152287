"""How far a plan in closed form can be trusted: by one simulation of llama.cpp's, or by what was tried before."""

from __future__ import annotations

from inferlab.facts import read_table
from inferlab.prediction.memory.plan import MemoryPlan
from inferlab.units import MIB, bytes_text

PRINTED = 0.0061 * MIB  # llama.cpp prints a buffer to 0.01 MiB, and aligns it to 32 bytes


def tried_text() -> str:
    """How often the closed form was exact, of how many tries; tests/benchmarks/test_closed_form.py counts again."""
    tried = read_table("closed_form")["held_out"]
    return (
        f"The closed form was compared with llama.cpp {tried['llama_cpp']} on {tried['shapes']} shapes that had been "
        f"set aside: the compute buffers were exact, at 0.01 MiB, in {tried['exact']:,} of {tried['tries']:,} tries."
    )


def verified_text(plan: MemoryPlan, simulated: MemoryPlan) -> str:
    """That llama.cpp's simulation has the same compute buffers, or which it has."""
    differ = []
    for name, held in simulated.devices.items():
        told, planned = held.compute_bytes, plan.devices[name].compute_bytes
        if told is None or planned is None:
            return f"Not verified by llama.cpp's own dry run: the compute buffer of {name} is known only within bounds."
        if abs(told - planned) > PRINTED:
            differ.append(f"the compute buffer of {name} takes {bytes_text(told)}, not {bytes_text(planned)}")
    if not differ:
        return "Verified by llama.cpp's own dry run: it plans the same compute buffers."
    return f"Corrected by llama.cpp's own dry run: {', '.join(differ)}."
