"""Files by strangers: what the library's reader refuses, and what it never executes."""

from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from studies.trusted_files import study


def test_every_claim_of_too_much_is_refused(tmp_path):
    """Each header differs from the others, and an intact file is not refused."""
    files = study.damaged()
    assert len(set(files)) == 5
    assert all(study.refused(tmp_path / "a.gguf", data) for data in files)
    assert not study.refused(tmp_path / "a.gguf", tiny_model().read_bytes())


def test_one_bit_changes_the_name_and_the_sum(tmp_path):
    """One letter of the name, and most of the digits."""
    name, digits = study.one_bit_changed(tmp_path / "a.gguf")
    was = read_gguf(tiny_model()).name
    assert sum(a != b for a, b in zip(name, was, strict=True)) == 1
    assert 32 < digits <= 64


def test_text_is_never_called(tmp_path, capsys):
    """While the same line, executed, prints what is counted."""
    assert study.text_calls(tmp_path / "a.gguf") == 0
    exec(study.LINE)
    assert study.CALLED in capsys.readouterr().out
    assert study.numbers()["n_refused"] == study.numbers()["n_damaged"] == 5
