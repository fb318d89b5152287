"""Time of a token against the cells that attention reads for it."""

import pytest
from fakes import made_run, scripted_pass

from inferlab.measurement import kv_steps


def a_run(n_prompt, seconds, n_gen=4):
    passes = (scripted_pass(gaps=[seconds] * (n_gen - 1), share=1.0),)
    return made_run(n_prompt=n_prompt, n_gen=n_gen, passes=passes)


def test_a_token_belongs_to_the_256_cell_step_that_is_read_for_it():
    """For the token after 256 tokens 512 cells are read, for the one after 255 tokens 256."""
    one = scripted_pass(gaps=[1.0, 2.0, 3.0], share=1.0)
    assert kv_steps.steps([one], 254) == {256: (1.0, 2.0), 512: (3.0,)}


def test_a_line_gives_the_seconds_per_cell():
    """Levels on a line give its height and its slope."""
    level = kv_steps.levels(a_run(10, 2.0), a_run(300, 3.0), a_run(600, 4.0))
    assert level == {256: 2.0, 512: 3.0, 768: 4.0}
    line = kv_steps.line(level)
    assert (line.seconds, line.seconds_per_cell) == pytest.approx((1.0, 1 / 256))
    assert line.at(1024) == pytest.approx(5.0)


def test_a_disturbance_does_not_lift_a_level():
    """Half of the tokens took three times as long, and the level is that of the others."""
    disturbed = made_run(n_prompt=10, n_gen=11, passes=(scripted_pass(gaps=[0.1, 0.3] * 5, share=1.0),))
    assert kv_steps.levels(disturbed) == {256: 0.1}
