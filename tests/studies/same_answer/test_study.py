"""Same answers: the numbers of the page, and the requests that were compared."""

from studies.same_answer import study
from studies.same_answer.measure import REQUESTS


def test_every_pair_repeats_its_request_or_changes_one_thing():
    """So that a difference has one cause."""
    assert all(len(one.more) + (one.beside > 0) <= 1 for one in REQUESTS.values())


def test_the_control_has_the_same_bits_and_other_threads_have_not():
    """The table counts what the record has, from the first token that can differ."""
    here, served = study.recorded()
    heads, rows = study.bits_table()
    told = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    change = here.change(study.THREADS)
    assert told["nothing"]["other bits"].startswith("0 of")
    assert told[study.THREADS]["other bits"] == f"{change.n_other_bits} of {len(change.nats_apart)}"
    assert told[study.THREADS]["from token"] == str(change.first_other)
    assert served.n_other_answers("seed 7, asked again") == 0


def test_every_second_request_with_a_seed_has_a_row():
    """And names the first place where an answer differs, or none; the greedy ones stand beside the trained model's."""
    rows = {one[0]: one[1:] for one in study.served_table()[1]}
    greedy = [f"{study.GREEDY}{name}" for name in ("asked again", "three others beside", "prompt kept in the slot")]
    assert [*rows] == [name for name in REQUESTS if name not in greedy]
    assert {name for _, name in study.EMBEDDED.values()} >= {*greedy}
    assert all((place == "–") == count.startswith("0 of") for count, place in rows.values())
