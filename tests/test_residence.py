"""What lies in RAM: read from what Linux tells about a process."""

import sys

import pytest

import inferlab as lab
from inferlab.engine import LlamaEngine
from inferlab.residence import Residence, huge_page_policy, read_residence, resident
from inferlab.settings import Settings

SMAPS = """\
7f00-7f10 r--s 00000000 fe:00 1234                       {file}
Size:               1024 kB
Rss:                 600 kB
Pss:                 300 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
FilePmdMapped:         0 kB
Locked:               64 kB
VmFlags: rd sh
7f20-7f30 rw-p 00000000 00:00 0
Rss:                4096 kB
Pss:                4096 kB
Anonymous:          4096 kB
AnonHugePages:      2048 kB
Locked:                0 kB
7f40-7f50 r--s 00000000 fe:00 99                         /other file.so
Rss:                 100 kB
Pss:                  10 kB
Anonymous:             8 kB
"""


def test_a_process_is_told_apart_by_what_its_pages_are(tmp_path):
    """Pages of the file count once whole and once shared out; memory of its own and locked pages add up over all."""
    file = tmp_path / "a model.gguf"
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "smaps").write_text(SMAPS.format(file=file))
    assert read_residence(42, file, tmp_path) == Residence(
        600 * 1024, 300 * 1024, 4104 * 1024, 2048 * 1024, 0, 64 * 1024
    )


def test_where_the_system_tells_nothing_the_answer_is_none(tmp_path):
    """No process, no Linux: unknown, not 0."""
    assert read_residence(42, "x", tmp_path) is None
    assert huge_page_policy(tmp_path / "missing") is None


def test_the_policy_for_huge_pages_is_the_word_in_brackets(tmp_path):
    """The kernel lists all policies and brackets the one in force."""
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    assert huge_page_policy(tmp_path / "enabled") == "madvise"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="smaps is Linux's")
def test_a_mapped_model_is_in_ram_before_the_first_token():
    """Nearly all of the file's weights are resident right after loading; without mapping none of its pages are."""
    engine = LlamaEngine()
    try:
        weights = lab.read_gguf(lab.tiny_model()).tensor_bytes
        mapped = resident("tiny", Settings(n_ctx=256, load_mode="mmap"), engine)
        read = resident("tiny", Settings(n_ctx=256, load_mode="none"), engine)
        assert mapped.file_bytes > 0.9 * weights
        assert read.file_bytes == 0
        assert mapped.locked_bytes == 0
    finally:
        engine.close()
