"""The operating system as the checks see it: names left out of findings, and a real host."""

import sys
import tempfile
from pathlib import Path

import pytest
from fakes_host import MadeUpHost

from inferlab.doctor import Host
from inferlab.model.find import tiny_model


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/models/a.gguf is empty", "~/models/a.gguf is empty"),
        ("/home/adam/a.gguf", "/home/adam/a.gguf"),
        ("/scratch/ada/a.gguf and /mnt/lovelace", "/scratch/<user>/a.gguf and /mnt/<host>"),
        ("ada is also a language", "ada is also a language"),
    ],
    ids=["home", "another's home", "user and host", "a word"],
)
def test_no_home_user_or_host_is_named(text, shown):
    """A check-up can be sent to a stranger; names are taken out of paths, and words stay words."""
    assert MadeUpHost().without_names(text) == shown


def test_a_home_that_is_the_root_folder_changes_nothing():
    """Some containers have /; not every slash is then a home."""
    assert MadeUpHost(home=Path("/")).without_names("/opt/a") == "/opt/a"


def test_a_real_host_answers_or_says_none(tmp_path):
    """Commands and files that are not there are None, not an exception."""
    host = Host()
    assert host.run("no-such-command-anywhere") is None
    assert host.run(sys.executable, "-c", "print(input())", text="here") == (0, "here")
    assert host.read(str(tmp_path / "none")) is None
    assert host.free_bytes(tmp_path / "not" / "made") > 0
    assert host.has_package("inferlab")
    assert not host.has_package("no_such_package")


def test_a_real_host_is_examined_where_it_works(tmp_path, monkeypatch):
    """Disk space is that of the current folder and of the system's temporary one; the model is the library's own."""
    monkeypatch.chdir(tmp_path)
    host = Host()
    assert (host.working_folder, host.temporary_folder) == (tmp_path, Path(tempfile.gettempdir()))
    assert host.embedded_model == tiny_model()
