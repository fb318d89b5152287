"""What `make tools` fetches, compiles and keeps, tried with commands that are only noted."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("llama_tools", ROOT / "tools" / "llama_tools.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """The script in an empty folder with a pin; its commands are noted in `calls`, and leave what it looks for."""
    module = script()
    (tmp_path / "requirements.txt").write_text("numpy==1\nllama-cpp-python==9.9 --config-settings=x\n")
    monkeypatch.chdir(tmp_path)
    module.calls = []

    def note(*command):
        words = [str(word) for word in command]
        module.calls.append(" ".join(words[1:]))
        if "-B" in words:
            (Path(words[words.index("-B") + 1]) / "bin").mkdir(parents=True)

    def unpack(archive, folder):
        (Path(folder) / Path(archive).name.removesuffix(".tar.gz")).mkdir(parents=True)

    monkeypatch.setattr(module, "run", note)
    monkeypatch.setattr(module.shutil, "unpack_archive", unpack)
    return module


def test_the_pinned_source_is_fetched_and_each_program_compiled(tools, capsys):
    """The pinned source without dependencies, the library's options without the web interface, each program's path."""
    tools.main("cuda", ["-DGGML_CUDA=on"])
    fetched = [call for call in tools.calls if "pip download" in call]
    assert len(fetched) == 1
    assert "--no-deps --no-cache-dir --no-binary llama-cpp-python" in fetched[0]
    assert fetched[0].endswith(" llama-cpp-python==9.9")
    configured = next(call for call in tools.calls if "-S" in call.split()).split()
    assert {"-DGGML_CUDA=on", "-DGGML_RPC=on", "-DLLAMA_BUILD_UI=off", "-DLLAMA_USE_PREBUILT_UI=off"} <= set(configured)
    targets = [call.rpartition("--target ")[2] for call in tools.calls if "--build" in call]
    assert targets == list(tools.PROGRAMS)
    printed = capsys.readouterr().out
    assert "llama-cpp-python 9.9, GPU=cuda" in printed
    assert all(f".tools/bin/{program}" in printed for program in tools.PROGRAMS)


def test_the_second_call_compiles_nothing(tools):
    """The same pin and backend need no command at all; source, CMake and object files are gone by then."""
    tools.main("none", [])
    assert [place.name for place in Path(".tools").iterdir()] == ["bin"]
    tools.calls.clear()
    tools.main("none", [])
    assert tools.calls == []


@pytest.mark.parametrize(("pin", "backend"), [("9.10", "none"), ("9.9", "vulkan")])
def test_another_pin_or_backend_compiles_again(tools, pin, backend):
    """The programs judge the library that is installed now."""
    tools.main("none", [])
    tools.calls.clear()
    Path("requirements.txt").write_text(f"llama-cpp-python=={pin}\n")
    tools.main(backend, [])
    assert any("--build" in call for call in tools.calls)


def test_a_command_that_fails_ends_the_build():
    """The command is named."""
    with pytest.raises(SystemExit, match="This command failed: false"):
        script().run("false")


def test_the_pin_is_found_or_missed(tools, monkeypatch):
    """requirements.txt pins the version that pyproject.toml asks for; a file without a pin is named."""
    Path("requirements.txt").write_text("numpy==1\n")
    with pytest.raises(SystemExit, match=r"requirements\.txt pins no llama-cpp-python"):
        tools.main("none", [])
    monkeypatch.chdir(ROOT)
    assert f'"llama-cpp-python=={tools.pin()}"' in (ROOT / "pyproject.toml").read_text()
