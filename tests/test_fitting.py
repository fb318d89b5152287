"""Does it fit: verdicts against a room, searches for what would, and the register's figures."""

from dataclasses import replace

import pytest
from fakes import CPU_ONLY, WITH_GPU, made_plan

import inferlab as lab
from inferlab import fitting
from inferlab.errors import InvalidSettings, ModelNotFound
from inferlab.fitting import machine_for, verdict
from inferlab.memory import DeviceBytes
from inferlab.units import GIB, MIB

SCENARIO = {"vram": "8GiB", "reserve_bytes": 650 * MIB}
"""The 8 GB card of the scenario, with what its desktop and the CUDA context were found to take."""
BOUND = made_plan(
    method="bound",
    devices={"host": DeviceBytes(MIB, 0, MIB, 0), "gpu0": DeviceBytes(10 * MIB, 0, None, 0)},
    compute_range={"gpu0": (2 * MIB, 5 * MIB)},
)


@pytest.mark.parametrize(("room", "fits"), [(15, "yes"), (14, "unsure"), (12, "unsure"), (11, "no")])
def test_a_bound_that_straddles_the_room_leaves_it_open(room, fits):
    """Yes from the safe end upwards, no below the least, unsure between: never a guess."""
    assert verdict(BOUND, {"gpu0": room * MIB}) == fits


def test_every_device_must_fit():
    """One room that is too small is enough for no, whatever the others have."""
    assert verdict(made_plan(), {"gpu0": GIB, "host": 5 * MIB}) == "no"
    assert verdict(made_plan(), {"gpu0": GIB, "host": 6 * MIB}) == "yes"


def test_what_is_not_told_is_not_assumed():
    """A device that does not tell its memory, or a part without a range, makes a yes impossible; a no stays a no."""
    part_open = made_plan(devices={"gpu0": DeviceBytes(10 * MIB, 0, None, 0)})
    assert verdict(made_plan(), {"gpu0": None}) == "unsure"
    assert verdict(part_open, {"gpu0": GIB}) == "unsure"
    assert verdict(part_open, {"gpu0": MIB}) == "no"


def test_a_device_that_holds_nothing_fits():
    """A card that a plan leaves empty needs no room."""
    assert verdict(made_plan(devices={"host": DeviceBytes(MIB)}), {"gpu0": MIB}) == "yes"


def test_a_card_of_the_readers_choice_stands_in_for_the_machine():
    """`vram` as a text or in bytes makes one CUDA card, and says nothing about RAM."""
    assert machine_for(WITH_GPU, "8GiB").gpus[0].free_bytes == machine_for(None, 8 * GIB).gpus[0].free_bytes == 8 * GIB
    assert fitting.free_bytes(machine_for(WITH_GPU, "8GiB")) == {"gpu0": 8 * GIB}
    with pytest.raises(InvalidSettings, match="vram=0 leaves no card"):
        machine_for(CPU_ONLY, 0)


def test_a_machine_is_compared_by_what_is_free_on_it():
    """Devices by their free memory, by all of it where free is not told; the host by its RAM."""
    busy = replace(WITH_GPU.gpus[0], free_bytes=GIB)
    assert fitting.free_bytes(replace(WITH_GPU, devices=(busy,))) == {"gpu0": GIB, "host": 8 * GIB}
    assert fitting.free_bytes(CPU_ONLY) == {"host": 8 * GIB}
    assert fitting.free_bytes(replace(CPU_ONLY, devices=(), ram_bytes=None)) == {"host": None}


def test_a_model_is_a_file_or_a_known_name():
    """A known name has a shape in any type; a file has its own types, and an unknown name is no file."""
    assert fitting.model_named("mistral-7b").tensor_bytes == 4_367_704_064
    assert fitting.model_named("tiny").path == lab.tiny_model()
    with pytest.raises(InvalidSettings, match="a file, which has its types"):
        fitting.model_named("tiny", "Q8_0")
    with pytest.raises(ModelNotFound):
        fitting.model_named("mistral-9b")


@pytest.mark.parametrize("last", [0, 1, 2, 3, 100, 127, 128])
def test_the_last_that_fits_is_found(last):
    """Doubling and halving end at the last one, at the ends of the range too, without trying them all."""
    tried = []
    assert fitting.last(lambda n: tried.append(n) or n <= last, 128) == last
    assert len(tried) <= 16
