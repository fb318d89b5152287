"""Lines and intervals: what points lie on, how sure a median is, and when nobody can say."""

import numpy as np
import pytest
from fakes import made_run, scripted_pass
from scipy.stats import binom, linregress

from inferlab.measurement.run import QUANTITIES
from inferlab.statistics import compared, least_squares, median_interval, sign_confidence, verdict, which_of_two


@pytest.mark.parametrize(("n", "left_out"), [(6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (15, 3), (20, 5), (2000, 955)])
def test_the_interval_is_that_of_the_binomial_distribution(n, left_out):
    """As many of the least and of the greatest are left out as the median lies beyond with at most 5 %."""
    assert median_interval(list(range(n, 0, -1))) == (left_out + 1, n - left_out)
    assert 2 * binom.cdf(left_out, n, 0.5) <= 0.05 < 2 * binom.cdf(left_out + 1, n, 0.5)


def test_five_points_have_no_interval():
    """Even the range of five holds the median with less than 95 %."""
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([]) is None
    assert verdict(None) == "no difference found"


@pytest.mark.parametrize("n", range(1, 25))
def test_a_verdict_is_that_of_the_sign_test(n):
    """Faster and slower where the exact two-sided test reaches 95 %, whatever the number of pairs that agree."""
    for faster in range(n + 1):
        ratios = [1.1] * faster + [0.9] * (n - faster)
        sure = sign_confidence([ratio - 1 for ratio in ratios]) >= 0.95
        said = ("faster" if 2 * faster > n else "slower") if sure else "no difference found"
        assert verdict(median_interval(ratios)) == said


def test_equal_settings_are_called_different_in_at_most_one_of_twenty():
    """Of 2000 comparisons of 15 pairs that differ by noise alone, with rare long disturbances, 1 to 5 % are decided."""
    generator = np.random.default_rng(3)
    noise = generator.normal(1, 0.02, (2000, 15, 2)) * np.where(generator.random((2000, 15, 2)) < 0.1, 0.5, 1)
    said = [verdict(median_interval([float(a / b) for a, b in pairs])) for pairs in noise]
    assert 0.01 <= 1 - said.count("no difference found") / len(said) <= 0.05


def test_one_wild_pass_does_not_widen_it():
    """An outlier changes the range, and hardly the interval of the median; where all are equal it is that value."""
    calm = [10 + 0.01 * i for i in range(20)]
    low, high = median_interval([*calm[:-1], 1000.0])
    assert low < np.median(calm) < high < low + 0.2
    assert median_interval([2.0] * 10) == (2.0, 2.0)


@pytest.mark.parametrize("draw", ["normal", "lognormal", "exponential"])
def test_it_holds_the_truth_at_least_19_times_in_20(draw):
    """On 2000 samples of 12 points from known distributions the true median lies inside in 95 to 98 of 100."""
    generator = np.random.default_rng(2)
    truth = {"normal": 0.0, "lognormal": 1.0, "exponential": np.log(2)}[draw]
    intervals = [median_interval(getattr(generator, draw)(size=12)) for _ in range(2000)]
    assert 0.95 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.98


def test_a_run_keeps_every_point():
    """Points come in the order of measuring, ranges hold their ends, and two passes have no interval."""
    run = made_run(passes=(scripted_pass(0.7), scripted_pass(0.5)))
    assert run.points("ttft_seconds") == (0.7, 0.5)
    assert run.ranges["ttft_seconds"] == (0.5, 0.7)
    assert set(run.ranges) == set(QUANTITIES)
    assert run.interval("ttft_seconds") is None


def test_a_run_of_ten_passes_tells_its_intervals():
    """Every quantity has an interval around its median."""
    steps = [0.01 * i for i in range(10)]
    run = made_run(passes=tuple(scripted_pass(0.5 + step, (0.1 + step, 0.1), 0.4 + step) for step in steps))
    for of in QUANTITIES:
        low, high = run.interval(of)
        assert low <= getattr(run, of) <= high
        assert run.ranges[of][0] <= low <= high <= run.ranges[of][1]


@pytest.mark.parametrize(
    ("positive", "negative", "confidence"),
    [
        (5, 0, 1 - 2 / 32),
        (6, 0, 1 - 2 / 64),
        (9, 1, 1 - 22 / 1024),
        (1, 9, 1 - 22 / 1024),
        (5, 5, 0),
        (0, 4, 1 - 2 / 16),
    ],
)
def test_the_confidence_of_signs_is_that_of_a_fair_coin(positive, negative, confidence):
    """1 minus twice the share of all throws of a fair coin with at least so many heads, whichever sign is in excess."""
    assert sign_confidence([1.0] * positive + [-0.5] * negative) == pytest.approx(confidence)


def test_two_sides_are_compared_pair_by_pair():
    """The second over the first: median, interval and verdict; fewer than six pairs have no interval."""
    found = compared([100.0] * 10, [110.0 + n for n in range(10)])
    assert found.ratio == pytest.approx(1.145)
    assert (found.interval, found.ends, found.verdict) == (found.ends, pytest.approx((1.11, 1.18)), "faster")
    assert found.text == "1.15 (1.11 to 1.18), faster"
    few = compared([2.0], [1.0])
    assert (few.interval, few.ends, few.range_text) == (None, (0.5, 0.5), "0.5")
    with pytest.raises(ValueError, match="longer"):
        compared([1.0], [1.0, 2.0])


def test_no_difference_at_all_gives_no_confidence():
    """Zeros are no signs, and nothing follows from nothing."""
    assert sign_confidence([0.0, 0.0]) is None
    assert sign_confidence([0.0, 1.0]) == 0


def test_a_line_through_scattered_points_is_that_of_scipy():
    """Slope, intercept and the square of the correlation, for points that lie on no line."""
    generator = np.random.default_rng(7)
    x, y = list(map(float, range(9))), list(map(float, generator.normal(5, 2, 9)))
    ours, theirs = least_squares(x, y), linregress(x, y)
    assert (ours.slope, ours.intercept) == pytest.approx((theirs.slope, theirs.intercept), rel=1e-12)
    assert ours.r_squared == pytest.approx(theirs.rvalue**2, rel=1e-12)
    assert ours.at(3) == pytest.approx(theirs.intercept + 3 * theirs.slope)


def test_too_few_points_say_nothing_about_how_well_a_line_fits():
    """Two points always lie on a line; points of one height have no spread to explain; one x has no slope."""
    assert least_squares([256, 512], [1.0, 3.0]).r_squared is None
    assert least_squares([1, 2, 3], [2.0, 2.0, 2.0]).r_squared is None
    assert least_squares([1, 2, 3], [2.0, 4.0, 6.0]).r_squared == pytest.approx(1)
    assert least_squares([1, 2, 3, 4], [1.0, 1.0, 1.0, 9.0]).r_squared < 0.7
    with pytest.raises(ValueError, match="constant"):
        least_squares([4, 4, 4], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("points", "name"), [((20, 21, 22), "sum"), ((29, 30, 31), "mean"), ((5, 6, 7), None), ((15, 21, 26), None)]
)
def test_two_values_are_told_apart_only_by_points_near_one_of_them(points, name):
    """Far off both, or scattered as widely as the two differ, the points support neither."""
    assert which_of_two(points, {"mean": 30.0, "sum": 20.0}) == name
