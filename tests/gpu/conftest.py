"""The device that `make test-gpu` tests: a card where there is one, else a driver that computes on the processor."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.engine.client import LlamaEngine
from inferlab.machine import Device, Machine

SOFTWARE_TOO = "GGML_VK_VISIBLE_DEVICES"
"""Devices of Vulkan by number: without it llama.cpp leaves out those of the kind CPU (ggml-vulkan.cpp:5390)."""


def pytest_configure() -> None:
    """Offer the software driver to every process of the tests, where llama.cpp finds no GPU without it."""
    with_gpu = LlamaEngine()
    if not with_gpu.machine().gpus:
        os.environ[SOFTWARE_TOO] = "0"
    with_gpu.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """All of them need llama.cpp."""
    item.add_marker("engine")


@pytest.fixture(scope="session")
def machine() -> Machine:
    """This machine as llama.cpp sees it. Fails without a GPU: nothing here proves anything on the CPU."""
    engine = LlamaEngine()
    found = engine.machine()
    engine.close()
    assert found.gpus, (
        "llama.cpp sees no GPU and no driver in software. Run `make test-gpu`; where there is no card, Vulkan's driver "
        "in software is Mesa's (Debian, Ubuntu: apt-get install mesa-vulkan-drivers)."
    )
    return found


@pytest.fixture(scope="session")
def gpu(machine) -> Device:
    """The device under test: the first one."""
    return machine.gpus[0]


@pytest.fixture
def engine() -> Iterator[LlamaEngine]:
    """An engine of its own for each test: some end its worker, or limit its memory."""
    engine = LlamaEngine()
    yield engine
    engine.close()


def pytest_terminal_summary(terminalreporter) -> None:
    """What was measured, after the tests: pytest shows no output of tests that pass."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "found":
                terminalreporter.write_line(f"{Path(report.nodeid).name}: {text}")


def pytest_addoption(parser) -> None:
    """Where test_plans.py writes what it counted."""
    parser.addoption("--record", type=Path, help="a file for the counts of plans against loads")
