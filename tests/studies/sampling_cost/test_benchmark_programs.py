"""Programs of llama.cpp beside this library; small scripts print in their place."""

import sys

import pytest

import inferlab as lab
from inferlab.errors import EngineRefused, EngineUnavailable, InvalidSettings
from studies.sampling_cost import benchmark_programs
from studies.sampling_cost.benchmark_programs import compare_programs

SCRIPTS = {
    "llama-bench": """
print('loading')
for _ in range(2 - sys.argv.count('-d')):
    print('{"avg_ts": 10.0}')
""",
    "llama-batched-bench": """
for size in sys.argv[sys.argv.index('-npl') + 1].split(','):
    print('{"pl": %s, "speed_pp": 50.0, "speed_tg": 9.0}' % size)
""",
}


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Scripts that print a row for each test that they are asked for."""

    def made(name):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport sys{SCRIPTS[name]}")
        path.chmod(0o755)
        return path

    monkeypatch.setattr(benchmark_programs, "built_program", made)


@pytest.mark.engine
def test_each_program_times_the_same_work(programs):
    """Prefill and decode by all three, each turn once."""
    found = compare_programs("tiny", n_prompt=16, n_gen=4, turns=2, progress=False)
    assert {name.partition(":")[0] for name in found.rates} == {"this book", "llama-bench", "llama-batched-bench"}
    assert {len(rates) for rates in found.rates.values()} == {2}
    assert found.rate("llama-batched-bench: decode, 4 at once") == 9.0
    assert found.rate("llama-bench: decode from an empty cache") == 10.0
    assert found.rate("this book: prefill") > 0


def test_without_programs_the_error_says_how_to_get_them(monkeypatch):
    """They are compiled, not installed."""
    monkeypatch.setattr(benchmark_programs, "built_program", lambda name: None)
    with pytest.raises(EngineUnavailable, match="make tools"):
        benchmark_programs.run_program("llama-bench", [])


def test_a_program_that_fails_is_reported(monkeypatch):
    """With its status."""
    monkeypatch.setattr(benchmark_programs, "built_program", lambda name: "false")
    with pytest.raises(EngineRefused, match="status 1"):
        benchmark_programs.run_program("llama-bench", [])


@pytest.mark.parametrize("asked", [{"n_prompt": 0}, {"n_gen": 0}, {"turns": 0}])
def test_nothing_to_time_is_refused(asked):
    """Each count is at least 1."""
    with pytest.raises(InvalidSettings, match="at least 1"):
        compare_programs("tiny", **asked)


def test_the_recorded_programs_agree_about_the_same_work():
    """Decode at the same depth and prefill, within a tenth of each other."""
    found = lab.load("epyc-2c/benchmark-programs")
    for work in ("prefill", "decode, 1 at once"):
        rates = [found.rate(name) for name in found.rates if name.endswith(f": {work}")]
        assert len(rates) == 3
        assert max(rates) < 1.1 * min(rates)
