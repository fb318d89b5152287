"""What stands behind a plan in closed form."""

from fakes import made_plan

from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.memory.verified import tried_text, verified_text
from inferlab.units import MIB

PLAN = made_plan()


def with_compute(**n_bytes):
    """The plan with other compute buffers."""
    return made_plan(devices={name: DeviceBytes(MIB, MIB, held, 0) for name, held in n_bytes.items()})


def test_a_simulation_that_agrees_verifies_a_plan():
    """To the 0.01 MiB that llama.cpp prints."""
    told = with_compute(host=MIB + 5000, gpu0=MIB // 2)
    assert verified_text(PLAN, told) == "Verified by llama.cpp's own dry run: it plans the same compute buffers."


def test_a_simulation_that_differs_corrects_a_plan():
    """The buffer is named with both numbers, and no other."""
    told = with_compute(host=MIB, gpu0=3 * MIB)
    assert verified_text(PLAN, told) == (
        "Corrected by llama.cpp's own dry run: the compute buffer of gpu0 takes 3.00 MiB, not 512.00 KiB."
    )


def test_without_a_simulation_the_count_of_tries_is_told():
    """How many shapes, how many tries, and how many of them were exact."""
    assert "tries" in tried_text()
    assert "shapes that had been set aside" in tried_text()
