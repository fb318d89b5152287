"""A Mac: every figure of the page comes from a row that can be opened, and the readings hold for made-up rows."""

import re
from pathlib import Path

import pytest

from inferlab.prediction.cards import known_card
from inferlab.units import GIB, MIB
from studies.mac import study

PAGE = (Path(__file__).parents[2] / "book" / "machine" / "mac.md").read_text(encoding="utf-8")
BIBLIOGRAPHY = (Path(__file__).parents[2] / "book" / "references.bib").read_text(encoding="utf-8")


def test_the_page_glues_what_the_study_computes():
    """No name without a number, no number that no sentence uses, and every table."""
    assert set(re.findall(r"glue:text\}`(\w+)", PAGE)) == study.numbers().keys()
    for table in ("share_table", "chip_table", "mlx_table"):
        assert f"study.{table}()" in PAGE


def test_every_source_of_the_page_is_in_the_bibliography():
    """Of its sentences and of the table of limits."""
    cells = [str(cell) for line in study.share_table()[1] for cell in line]
    cited = re.findall(r"\{cite\}`([^`]+)`", PAGE + "\n".join(cells))
    keys = {key for group in cited for key in group.split(",")}
    assert keys <= set(re.findall(r"^@\w+\{([^,]+),", BIBLIOGRAPHY, re.MULTILINE))


@pytest.mark.parametrize("table", [study.share_table, study.chip_table, study.mlx_table])
def test_a_row_has_a_cell_for_each_head(table):
    """And there are some."""
    heads, rows = table()
    assert {len(line) for line in rows} == {len(heads)}


def test_every_figure_can_be_opened():
    """A file at a commit and a line, or a thread; the card is one of the list."""
    for row in study.reported():
        assert re.fullmatch(r"[0-9a-f]{40}", row.commit) if row.commit else not row.line
        assert bool(row.line) == bool(row.commit)
        assert known_card(row.card).backend == "metal"
        assert re.fullmatch(r"\[.+, .*20\d\d.*\]\(https://github\.com/\S+\)", row.link)


def test_limits_grow_with_the_memory_and_leave_more():
    """The reader's larger Mac has more for the GPU, and more beside it; a raised limit stays below all."""
    shares = [study.share(gib) for gib in study._logged_sizes()]
    assert all(share.logged for share in shares)
    assert shares == sorted(shares, key=lambda share: share.gpu_bytes)
    assert shares == sorted(shares, key=study.left_bytes)
    assert study.share(study.LARGE).gpu_bytes < study.RAISED * GIB < study.LARGE * GIB
    found = study.numbers()
    assert found["gain"] + found["share_large"] == pytest.approx(found["raised"])
    assert f"iogpu.wired_limit_mb={study.RAISED * GIB // MIB}\n" in PAGE
    assert f'--card "m4 max {study.LARGE}" --unified {study.RAISED}GiB' in PAGE


def test_a_chip_is_one_source_and_no_faster_than_its_memory():
    """Prompt and decode of one publisher; the share of the bound is a share."""
    for chip in study.chips():
        assert 0.2 < chip.share < 1
        assert chip.prompt > chip.decode
    links = [chip.link for chip in study.chips()]
    assert all(link.startswith("[") for link in links)
    bandwidths = [chip.bandwidth for chip in study.chips()]
    assert bandwidths == sorted(bandwidths)
    mixture = [chip.share for chip in study.chips() if chip.model == "gpt-oss-20b"]
    assert min(mixture) == mixture[-1]


def test_a_chip_without_rows_is_named_once():
    """By its kind, whatever the cores; none of the table's larger chips is among them."""
    found = study.without_rows()
    assert len(set(found)) == len(found) > 0
    assert not {chip.title for chip in study.chips()} & set(found)


def test_mlx_is_compared_in_one_report():
    """Both engines by the same person on the same machine; with as many bits they are closer than with more."""
    for case in study.PAIRS:
        for mlx, llama in study.pair(*case).values():
            assert (mlx.engine, llama.engine) == (study.MLX, study.LLAMA)
            assert (mlx.who, mlx.card, mlx.n_tokens) == (llama.who, llama.card, llama.n_tokens)
    found = study.numbers()
    assert 1 < found["mlx_alike"] < found["mlx_larger"]
    assert found["mlx_bits"] == 4.5
