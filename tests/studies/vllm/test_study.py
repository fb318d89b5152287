"""vLLM: the numbers and tables of the page, and the figure of shares of cards."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.facts import cited_facts
from inferlab.model.catalog import known_model
from inferlab.prediction.decode_bound import most_token_bytes
from inferlab.units import GB, GIB
from studies.vllm import figures, study
from studies.vllm.block_pool import MemoryShare, default
from studies.vllm.weight_formats import weight_formats

SHARES = {"8 GB": MemoryShare(8 * GIB, 14 * GIB), "24 GB": MemoryShare(24 * GIB, 14 * GIB)}
FIGURE = figures.card_shares(SHARES, 2**17)


@pytest.fixture(scope="module")
def found():
    return study.numbers()


def test_a_published_log_of_vllm_has_the_computed_number_of_tokens(found):
    """The tokens in vLLM's log of Qwen3 1.7B lie within what the logged GiB, rounded to two decimals, can hold."""
    assert found["logged_least"] <= found["logged_tokens"] <= found["logged_most"]
    assert found["logged_most"] / found["logged_least"] < 1.001


def test_a_known_size_of_an_awq_file_is_computed(found):
    """Mistral 7B in groups of 128 has the published size of its file, within a hundredth."""
    assert found["awq_gb"] == pytest.approx(found["awq_published"], rel=0.01)


def test_a_card_either_starts_or_fails(found):
    """The two lists have every card once; what starts has space for its weights in 16 bits."""
    starts, fails = (found[name].split(" and ") for name in ("starts", "fails"))
    assert sorted(map(int, starts + fails)) == sorted(study.CARDS)
    assert all(float(n) * default("memory-share") > found["whole_gib"] for n in starts)


def test_a_factor_is_no_constant(found):
    """Memory over weights grows with the context, and vLLM's falls with the size of the model."""
    assert 1 < found["factor_short"] < 1.1 < found["factor_long"]
    assert found["share_factor_whole"] < found["share_factor_awq"] < found["share_factor_small"]


def test_bytes_times_rate_are_the_bandwidth(found):
    """GB of a token times tokens per second are GB per second."""
    assert found["cpu_gb"] * study.CPU_RATE == pytest.approx(found["ddr5"])
    assert found["gpu_gb"] * study.GPU_RATE == pytest.approx(found["card"])
    assert found["rtx_most"] * found["rtx_rate"] == pytest.approx(cited_facts("cards")["rtx-4080-bandwidth"].value)
    with pytest.raises(InvalidSettings, match="is no rate"):
        most_token_bytes(GB, 0)


def test_every_format_has_a_row():
    """Fewer bits are fewer GB, from 16 bits down to AWQ; llama.cpp's own stand below."""
    heads, rows = study.format_table()
    assert [row[0] for row in rows] == ["16 bits", *(one.title for one in weight_formats().values()), "Q8_0", "Q4_K_M"]
    bits, sizes = ([float(row[i]) for row in rows] for i in (2, 3))
    assert all(len(row) == len(heads) for row in rows)
    assert sizes[0] == max(sizes)
    assert bits[0] == 16


def test_a_rate_is_possible_where_the_bytes_fit(found):
    """Each verdict follows from the GB beside it."""
    most = found["cpu_gb"], found["gpu_gb"]
    for name, needed, *verdicts in study.rate_table()[1]:
        assert name in {known_model(key).name for key in study.READ_MODELS}
        assert verdicts == ["possible" if float(needed) <= n else "too large" for n in most]


def test_the_figure_says_its_numbers_and_that_they_are_computed():
    """Beside each bar stands what fits or that it does not start; the parts of a card add up to its memory."""
    layout, (stops, fits) = FIGURE.layout, FIGURE.data[-1].text
    assert f"8 GB: weights 14.00 GiB, {stops}; 24 GB: weights 14.00 GiB, {fits}" in layout.meta["alt"]
    assert any("computed" in note.text and "nothing was" in note.text for note in layout.annotations)
    assert (stops, fits.endswith(" tokens")) == ("does not start", True)
    assert sum(trace.x[1] for trace in FIGURE.data) == pytest.approx(24)
    assert [line.x0 for line in layout.shapes] == [8]
