"""What changes the fingerprint of the things that a page's results depend on."""

import os
from dataclasses import replace

import pytest

from handbook.execution import fingerprints
from inferlab.machine import Device, Machine

MACHINE = Machine(
    "Some CPU", 4, 8 << 30, "Linux x86_64", "3.12.1", devices=(Device("CUDA0", "A card", "gpu", 4 << 30),)
)


@pytest.mark.engine
def test_every_part_is_there_and_stays_the_same():
    """Asked twice, this machine gives the same text for each part that a page can depend on."""
    parts = fingerprints.context()
    assert set(parts) == {"library", "llama.cpp", "packages", "Python", "machine", "settings", "own files"}
    assert all(parts.values())
    assert fingerprints.context() == parts


def test_every_file_of_the_library_counts(tmp_path, monkeypatch):
    """Code and data count by name and content; dates, compiled code and hidden files do not."""
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "some_package_of_mine"
    (package / "data").mkdir(parents=True)
    for name in ("__init__.py", "data/record.json"):
        (package / name).write_text("# first")
    seen = [fingerprints.library_digest([package.name])]
    for name, text in [("__init__.py", "# edit"), ("data/record.json", "edit"), ("data/new.json", ""), ("new.py", "")]:
        (package / name).write_text(text)
        seen.append(fingerprints.library_digest([package.name]))
    assert len(set(seen)) == 5
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "x.pyc").touch()
    (package / ".new.py.swp").touch()
    os.utime(package / "new.py", (1, 1))
    assert fingerprints.library_digest([package.name]) == seen[-1]


def test_the_library_is_both_packages():
    """The extension's own code counts like the library's."""
    digests = {fingerprints.library_digest(*packages) for packages in ((), (["inferlab"],), (["handbook"],))}
    assert len(digests) == 3


def test_another_build_of_llama_cpp_counts(tmp_path):
    """A shared library of another size, date or name is another build."""
    file = tmp_path / "libllama.so"
    seen = set()
    for size, date in ((1, 1), (2, 1), (2, 5)):
        file.write_bytes(b"x" * size)
        os.utime(file, (date, date))
        seen.add(fingerprints.sizes_digest([file]))
    seen.add(fingerprints.sizes_digest([file.rename(tmp_path / "libggml.so")]))
    assert len(seen) == 4


def test_installed_packages_count_by_name_and_version():
    """An upgrade, a new package and a missing one differ; the order in which they are found does not."""
    first = [("numpy", "1.0"), ("scipy", "1.0")]
    others = [[("numpy", "1.1"), ("scipy", "1.0")], [*first, ("new", "1")], first[:1]]
    assert fingerprints.packages_digest(first[::-1]) == fingerprints.packages_digest(first)
    assert len({fingerprints.packages_digest(packages) for packages in [first, *others]}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": "Another CPU"},
        {"n_cores": 8},
        {"ram_bytes": 16 << 30},
        {"system": "Linux aarch64"},
        {"llama_cpp_commit": "abc"},
        {"devices": ()},
        {"devices": (replace(MACHINE.devices[0], memory_bytes=8 << 30),)},
        {"devices": (replace(MACHINE.devices[0], description="Another card"),)},
    ],
)
def test_another_machine_counts(change):
    """Processor, cores, memory and GPUs make a machine another one."""
    assert fingerprints.machine_digest(replace(MACHINE, **change)) != fingerprints.machine_digest(MACHINE)


def test_free_memory_does_not_make_another_machine():
    """What happens to be free on a card differs at each look."""
    busy = replace(MACHINE, devices=(replace(MACHINE.devices[0], free_bytes=1),))
    assert fingerprints.machine_digest(busy) == fingerprints.machine_digest(MACHINE)


@pytest.mark.parametrize("name", ["INFERLAB_MODEL", "INFERLAB_SHAPE", "INFERLAB_ANYTHING", "CUDA_VISIBLE_DEVICES"])
def test_settings_count(name):
    """Each setting of the library, and those that llama.cpp reads, counts with its value."""
    seen = {fingerprints.environment_digest(environment) for environment in ({}, {name: "a"}, {name: "b"})}
    assert len(seen) == 3
    assert fingerprints.environment_digest({"EDITOR": "vi"}) == fingerprints.environment_digest({})


def test_what_llama_cpp_sets_itself_does_not_count():
    """Whether a build was started by a process that had loaded it changes no result; another value does."""
    same, other = ({"KMP_BLOCKTIME": value} for value in ("200", "0"))
    assert fingerprints.environment_digest(same) == fingerprints.environment_digest({})
    assert fingerprints.environment_digest(other) != fingerprints.environment_digest({})


def test_the_readers_own_files_count(tmp_path, monkeypatch):
    """The model of INFERLAB_MODEL and the machine's calibration are data that pages read; a missing model is told."""
    model, cache = tmp_path / "mine.gguf", tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("INFERLAB_CACHE", str(cache))
    seen = [fingerprints.own_files_digest()]
    monkeypatch.setenv("INFERLAB_MODEL", str(model))
    seen.append(fingerprints.own_files_digest())
    for text in ("one", "three"):
        model.write_text(text)
        seen.append(fingerprints.own_files_digest())
    (cache / "calibration.json").write_text("{}")
    seen.append(fingerprints.own_files_digest())
    assert len(set(seen)) == 5


@pytest.mark.engine
def test_libraries_that_the_binding_prefers_count(tmp_path):
    """LLAMA_CPP_LIB_PATH names a folder of another build; its files are part of what results depend on."""
    (tmp_path / "libllama.so").write_bytes(b"another build")
    assert tmp_path / "libllama.so" in fingerprints.llama_cpp_files({"LLAMA_CPP_LIB_PATH": str(tmp_path)})
    absent = {"LLAMA_CPP_LIB_PATH": str(tmp_path / "none")}
    assert fingerprints.llama_cpp_files(absent) == fingerprints.llama_cpp_files({})
