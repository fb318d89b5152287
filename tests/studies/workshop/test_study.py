"""A workshop's laptops and rooms: the numbers and tables of the pages for participants and helpers."""

from dataclasses import fields

import pytest

from handbook import room_load
from inferlab.doctor.room_line import RoomLine
from inferlab.doctor.workshops import syllabi
from studies.workshop import study


def test_every_field_of_a_line_is_explained():
    """In the order of the line, with its own text."""
    names = [one.name for one in fields(RoomLine)]
    assert [*study.MEANING] == names
    heads, rows = study.line_table(RoomLine(**{name: f"text of {name}" for name in names}))
    assert [row[:2] for row in rows] == [(name, f"text of {name}") for name in names]
    assert len(heads) == 3


def test_labs_are_named_as_readers_know_them():
    """Numbers without leading zeros, as many as the workshop has labs; the longest workshop needs most disk."""
    rows = {row[0]: row[1:] for row in study.labs_table()[1]}
    assert {name: len(labs.split(", ")) for name, (labs, _, _) in rows.items()} == {
        name: len(one.labs) for name, one in syllabi().items()
    }
    assert all(not lab.startswith("0") or lab == "0" for labs, _, _ in rows.values() for lab in labs.split(", "))
    assert max(disk for _, disk, _ in rows.values()) == study.at_home_numbers()["most_gb"]


def test_the_sheet_says_what_the_room_did():
    """Memory for each student times the students is the room's; a token of Mistral 7B's cache has 128 KiB."""
    room = room_load.summary()
    found = study.sheet_numbers(room)
    assert found["cell_kib"] == 128
    assert 1e6 * found["memory_each"] * found["students"] == pytest.approx(room["memory_bytes"])
    assert found["memory_room"] == pytest.approx(2e-9 * room["memory_bytes"])
    assert 0 < found["disturbed"] <= 100
