"""`inferlab shape`: what was written, how fast, and that it is synthetic."""

import json
import signal
import subprocess
import sys
import time

import inferlab as lab
from inferlab import cli


def test_a_person_is_told_what_was_written(tmp_path, capsys):
    """Path, size, rate, weights, and that the text would be noise."""
    path = tmp_path / "shape.gguf"
    assert cli.main(["shape", "gemma-3-1b", "--type", "Q4_0", "--n-layer", "1", "-o", str(path)]) == 0
    told = capsys.readouterr().out
    model = lab.read_gguf(path)
    assert model.n_layer == 1
    for text in (str(path), "MiB in ", "MB/s)", "Q4_0", f"{model.n_params:,} weights", "weights are synthetic"):
        assert text in told


def test_a_program_is_told_in_json(tmp_path, capsys):
    """Bytes of tensors and file, and both labels, as fields."""
    path = tmp_path / "shape.gguf"
    assert cli.main(["shape", "mistral-7b", "--header-only", "--json", "-o", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("seconds") > 0
    assert told == {
        "path": str(path),
        "name": "Mistral 7B v0.2 shape",
        "type": "Q4_K_M",
        "synthetic": True,
        "header_only": True,
        "n_params": 7_241_732_096,
        "tensor_bytes": 4_367_704_064,
        "file_bytes": path.stat().st_size,
    }


def test_a_header_is_not_for_running(tmp_path, capsys):
    """A person is told what a header-only file is good for."""
    cli.main(["shape", "llama-2-7b", "--header-only", "-o", str(tmp_path / "shape.gguf")])
    assert "Header only: for llama.cpp's memory simulation, not for running." in capsys.readouterr().out


def test_ctrl_c_leaves_nothing(tmp_path):
    """Interrupted while the data is written: exit status 130, and no file under any name."""
    command = [sys.executable, "-m", "inferlab.cli", "shape", "llama-3.2-1b", "--type", "F16", "-o", "shape.gguf"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size > 2**22 for file in tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
