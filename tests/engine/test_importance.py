"""llama-imatrix run over a text: the stored matrix comes out again, and what cannot work is refused."""

import os
import subprocess

import pytest

from inferlab.engine import importance
from inferlab.engine.importance import importance_matrix
from inferlab.engine.programs import built_program
from inferlab.errors import EngineRefused, EngineUnavailable, InvalidSettings
from inferlab.model.find import calibration_text, tiny_imatrix
from inferlab.model.imatrix import read_imatrix

needs_program = pytest.mark.skipif(not built_program("llama-imatrix"), reason="needs `make tools`")


@needs_program
def test_the_stored_matrix_is_what_the_program_makes_of_the_stored_text(tmp_path):
    """The first chunk again: the same sums, up to the order in which a processor adds."""
    matrix = importance_matrix("tiny", calibration_text(), tmp_path / "one.gguf", n_chunks=1)
    stored = read_imatrix(tiny_imatrix("one-chunk"))
    assert (matrix.datasets, matrix.n_chunks, matrix.tokens) == (stored.datasets, 1, stored.tokens)
    for name, columns in matrix.columns.items():
        assert columns == pytest.approx(stored.columns[name], rel=1e-3)
    assert os.listdir(tmp_path) == ["one.gguf"]


@needs_program
def test_a_text_that_is_too_short_leaves_nothing(tmp_path):
    """The program's own words say how many tokens it needs."""
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(EngineRefused, match=r"made no importance matrix from short\.txt"):
        importance_matrix("tiny", tmp_path / "short.txt", tmp_path / "one.gguf")
    assert os.listdir(tmp_path) == ["short.txt"]


def test_without_the_program_it_says_how_to_get_it(monkeypatch):
    """The library does not make a matrix itself."""
    monkeypatch.setattr(importance, "built_program", lambda name: None)
    with pytest.raises(EngineUnavailable, match=r"llama-imatrix is not compiled\. Compile it with `make tools`"):
        importance_matrix("tiny", calibration_text())


def test_a_missing_text_is_refused(tmp_path):
    """Before anything runs."""
    with pytest.raises(InvalidSettings, match=r"missing\.txt is no file\. Give a text file"):
        importance_matrix("tiny", tmp_path / "missing.txt")


def test_the_file_names_the_text_without_its_folder(monkeypatch, tmp_path):
    """llama-imatrix writes the path that it is given into the file, so it gets the name alone, in the text's folder."""
    ran = []

    def run(command, cwd, **named):
        ran.append((command, cwd))
        return subprocess.CompletedProcess(command, 1, "", "no model")

    monkeypatch.setattr(importance, "built_program", lambda name: tmp_path / name)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(EngineRefused, match="no model"):
        importance_matrix("tiny", calibration_text(), tmp_path / "one.gguf", n_chunks=7)
    command, cwd = ran[0]
    assert command[3:5] == ["-f", "calibration.txt"]
    assert cwd == calibration_text().parent
    assert command[-2:] == ["--chunks", "7"]
