"""Flags of llama-server for speculation, and what it would ignore or end at."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.options.speculation import SIZES, Speculative, speculation_types


def test_defaults_are_left_out():
    """A line has only what llama-server would not do by itself."""
    assert Speculative(("ngram-simple",)).line == "--spec-type ngram-simple"
    drafted = Speculative(("draft-simple", "ngram-mod"), "a draft.gguf", n_max=5, p_min=0.6, size_n=8)
    assert drafted.line == (
        "-md 'a draft.gguf' --spec-type draft-simple,ngram-mod --spec-draft-n-max 5 --spec-draft-p-min 0.6 "
        "--spec-ngram-mod-n-match 8"
    )
    sized = Speculative(("ngram-map-k4v",), size_n=8, size_m=8)
    assert sized.flags[2:] == ("--spec-ngram-map-k4v-size-n", "8", "--spec-ngram-map-k4v-size-m", "8")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"types": ("lookup",)}, "no type 'lookup'.*would not start.*ngram-simple"),
        ({"types": ()}, "No type of speculation"),
        ({"types": ("ngram-simple", "none")}, "drop the other types"),
        ({"types": ("draft-simple", "ngram-simple")}, "start without any speculation, n-gram types included"),
        ({"types": ("draft-eagle3",)}, "leave this type out without a word"),
        ({"types": ("ngram-simple",), "draft_model": "d.gguf"}, "load it, free it, and draft nothing"),
        ({"types": ("draft-simple",), "draft_model": "d", "n_max": 0}, r"ends at the first answer"),
        ({"types": ("draft-simple",), "draft_model": "d", "n_min": 4}, "throw it away"),
        ({"types": ("draft-simple",), "draft_model": "d", "p_min": 2}, "from 0 to below 1"),
        ({"types": ("ngram-simple",), "n_max": 64}, "does not use n_max.*Set size_m"),
        ({"types": ("ngram-simple",), "size_n": 0}, "sizes from 1 to 1024"),
        ({"types": ("ngram-simple",), "size_m": 4}, "size_m=4 below size_n=12 never drafts"),
    ],
)
def test_what_the_server_would_ignore_or_end_at_is_refused(asked, said):
    """The error says what llama-server would have done without a word, and what to do."""
    with pytest.raises(InvalidSettings, match=said):
        Speculative(**asked)


def test_multi_token_prediction_needs_no_second_file():
    """Its layers may be the model's own."""
    assert Speculative(("draft-mtp",)).flags == ("--spec-type", "draft-mtp")


def test_every_type_says_what_it_is_and_where_that_was_read():
    """And the sizes of the look-ups are those of the table's text."""
    for name, type in speculation_types().items():
        assert all((type.needs, type.proposes, type.excludes, type.defaults, type.at, type.source, type.date)), name
    for name, (size_n, size_m) in SIZES.items():
        assert f"{size_n} looked up" in speculation_types()[name].defaults
        assert f"{size_m} drafted" in speculation_types()[name].defaults
