"""Tuning: who wins, who is tried, how a budget ends it, and when no difference is a difference found."""

from random import Random

import pytest
from fakes import CPU_ONLY, WITH_GPU, ScriptedEngine, scripted_pass

from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.measurement.tune import candidates, tune
from inferlab.settings import Settings

SEARCHED = 3.9  # seconds of scripted time after which a search over two candidates of about one second is over


class Clock:
    """A clock that moves only when a scripted engine works."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class TunableEngine(ScriptedEngine):
    """An engine whose request lasts as long as `seconds_of` says for the open settings."""

    def __init__(self, seconds_of, clock, load_seconds=0.0, **scripted):
        super().__init__(**scripted)
        self.seconds_of, self.clock, self.load_seconds = seconds_of, clock, load_seconds

    def open(self, model, settings):
        self.clock.now += self.load_seconds
        return super().open(model, settings)

    def generate(self, prompt, n_gen):
        seconds = self.seconds_of(self.opened[-1])
        self.clock.now += seconds
        return scripted_pass(ttft=seconds / 2, gaps=(seconds / 4, seconds / 4))


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("inferlab.measurement.tune.time", clock)
    return clock


def tuned(clock, seconds_of, **changes):
    engine = TunableEngine(
        seconds_of, clock, changes.pop("load_seconds", 0.0), machine=changes.pop("machine", CPU_ONLY)
    )
    request = {"n_prompt": 256, "n_gen": 3, "budget_seconds": 1000, "progress": False}
    found = tune("tiny", engine=engine, **(request | changes))
    return found, engine


def test_the_fastest_candidate_wins(clock):
    """Of all combinations the one whose requests end soonest is found, and named by what it changes."""
    found, _ = tuned(clock, lambda s: 1.0 + (s.n_threads != 2) + 0.5 * (s.flash_attn != "off"))
    assert found.changes == {"n_threads": 2, "flash_attn": "off"}
    assert found.best == found.after
    assert found.compared.ratio == pytest.approx(2.5)
    assert found.better
    assert found.verdict.startswith("Faster: with n_threads=2, flash_attn='off', 2.50 times as fast in 10 pairs")


def test_the_settings_as_they_were_may_win(clock):
    """Where nothing is faster the answer is that nothing better was found, without any pair."""
    found, _ = tuned(clock, lambda s: 1.0 + (s.n_threads != 4) + (s.n_ubatch != 512) + (s.flash_attn != "auto"))
    assert found.changes == {}
    assert found.pairs == ()
    assert found.best == found.settings
    assert found.verdict.startswith("Nothing better found: of all candidates")


def test_noise_is_not_a_difference(clock):
    """Where every setting takes equally long but for noise, the lucky winner of the search is not called faster."""
    noise = Random(7)
    found, _ = tuned(clock, lambda s: 1.0 + 0.1 * noise.random())
    assert found.changes
    low, high = found.compared.interval
    assert low < 1 < high
    assert found.best == found.settings
    assert "No difference found" in str(found)


def test_a_winner_that_loses_its_pairs_is_slower(clock):
    """Nine of ten pairs below 1 are a difference, as nine of ten above 1 are; the settings to use stay the old ones."""

    def seconds_of(settings):
        if settings.n_threads != 2:
            return 1.0
        return 0.9 if clock.now < SEARCHED else 1.1

    found, _ = tuned(clock, seconds_of, over={"n_threads": (2,)})
    assert found.changes == {"n_threads": 2}
    assert found.compared.verdict == "slower"
    assert found.best == found.settings
    assert found.verdict.startswith("Slower: with n_threads=2, 0.91 times as fast in 10 pairs")
    assert "interval 0.91 to 0.91" in found.verdict


def test_too_few_pairs_judge_nothing(clock):
    """Below six pairs not even a winner of all of them is called better, since two-sided five of five are 93.8 %."""
    found, _ = tuned(clock, lambda s: 1.0 + (s.n_threads == 4), over={"n_threads": (2,)}, budget_seconds=30)
    assert 0 < len(found.pairs) < 6
    assert not found.better
    pairs = f"pairs {len(found.pairs)} of the 6 that are needed"
    assert found.verdict == f"Not judged: with n_threads=2, 2.00 times as fast, {pairs}."


def test_each_round_halves_and_measures_longer(clock):
    """Every round keeps the better half of the one before, and doubles what is known of each."""
    found, _ = tuned(clock, lambda s: 1.0 + s.n_threads, over={"n_threads": (1, 2, 3, 5, 6, 7, 8)})
    assert [len(one) for one in found.rounds] == [8, 4, 2]
    assert [len(one[0].seconds) for one in found.rounds] == [1, 2, 4]
    assert [one.changes.get("n_threads", 4) for one in found.rounds[1]] == [1, 2, 3, 4]


def test_pairs_change_their_order(clock):
    """The winner is measured after and before the old settings in turn, so that no order favours it."""
    _, engine = tuned(clock, lambda s: 1.0 + (s.n_threads == 4), over={"n_threads": (2,)})
    paired = [settings.n_threads for settings in engine.opened[-20:]]
    assert paired[:8] == [4, 2, 2, 4, 4, 2, 2, 4]


def test_what_is_drifting_is_not_taken_for_better(clock):
    """On a machine that becomes slower and slower, equal settings do not differ."""
    found, _ = tuned(clock, lambda s: 1.0 + clock.now / 100 - 0.001 * (s.n_threads == 2), over={"n_threads": (2,)})
    assert not found.better


def test_a_budget_ends_the_search_and_leaves_time_to_compare(clock):
    """The search stops at its share of the budget, the pairs at the whole of it, and the result says so."""
    found, _ = tuned(clock, lambda s: 1.0 + (s.n_threads == 4), over={"n_threads": range(1, 40)}, budget_seconds=60)
    assert clock.now <= 60
    assert not found.in_time
    assert len(found.rounds) == 1
    assert len(found.pairs) >= 3
    assert "ended this early" in str(found)


def test_without_time_to_compare_nothing_is_judged(clock):
    """A winner of the search alone is not called better."""
    found, _ = tuned(clock, lambda s: 5.0 + (s.n_threads == 4), over={"n_threads": (2,)}, budget_seconds=42)
    assert found.pairs == ()
    assert not found.better
    assert found.verdict.startswith("Not judged: n_threads=2")


def test_a_candidate_that_fails_keeps_its_reason(clock):
    """What the engine refuses comes last, with the engine's words, and the others go on."""

    def seconds_of(settings):
        if settings.n_ubatch == 64:
            raise EngineRefused("out of memory")
        return 1.0

    found, _ = tuned(clock, seconds_of, over={"n_ubatch": (64, 128)})
    failed = found.rounds[0][-1]
    assert failed.changes == {"n_ubatch": 64}
    assert failed.error == "EngineRefused: out of memory"


def test_settings_that_do_not_run_cannot_be_tuned(clock):
    """When the settings one starts from are refused, so is the tuning."""

    def refuse(settings):
        raise EngineRefused("no context")

    with pytest.raises(EngineRefused, match="no context"):
        tuned(clock, refuse)


def test_only_a_device_brings_its_layers_into_the_grid(clock):
    """Layers on the device are tried where there is one; otherwise they are left alone."""
    assert tuned(clock, lambda s: 1.0)[0].names == ("n_threads", "n_ubatch", "flash_attn")
    assert "n_gpu_layers" in tuned(clock, lambda s: 1.0, machine=WITH_GPU)[0].names


def test_what_changes_the_text_is_tried_only_on_request(clock):
    """The types of the cache are left alone unless lossy=True."""
    with pytest.raises(InvalidSettings, match="type_k changes what the model says"):
        tuned(clock, lambda s: 1.0, over={"type_k": ("q8_0",)})
    found, _ = tuned(clock, lambda s: 1.0 + (s.type_k == "f16"), lossy=True, over={"type_k": ("q8_0",)})
    assert found.changes == {"type_k": "q8_0"}
    assert {"type_k", "type_v"} <= set(tuned(clock, lambda s: 1.0, lossy=True)[0].names)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"over": {"temperature": (0, 1)}}, "no option 'temperature'"),
        ({"over": {"n_threads": ()}}, "at least one"),
        ({"over": {"flash_attn": "off"}}, "a list of values"),
        ({"budget_seconds": 0}, "more than 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(clock, request_, message):
    """Before anything is measured."""
    with pytest.raises(InvalidSettings, match=message):
        tuned(clock, lambda s: 1.0, **request_)


def test_the_settings_as_they_were_come_first():
    """The first candidate changes nothing, whatever the order of the values."""
    made = candidates({"n_ubatch": (128, 512), "flash_attn": ("off", "auto")}, Settings())
    assert [one.changes for one in made] == [
        {},
        {"n_ubatch": 128},
        {"flash_attn": "off"},
        {"n_ubatch": 128, "flash_attn": "off"},
    ]


def test_the_result_is_written_for_three_programs(clock):
    """Of the options that were tried, each program gets those that differ from its own defaults."""
    found, _ = tuned(clock, lambda s: 1.0 + (s.n_threads != 2))
    assert found.lines["llama-server"] == "llama-server -m tiny.gguf -t 2 --port 8080"
    assert found.lines["llama-cpp-python"].splitlines()[2:] == [
        "llm = Llama(",
        "    model_path='tiny.gguf',",
        "    n_threads=2,",
        "    flash_attn=True,",
        ")",
    ]
    assert found.lines["ollama"].splitlines()[:3] == [
        "FROM ./tiny.gguf",
        "PARAMETER num_thread 2",
        "PARAMETER num_batch 512",
    ]
    assert found.compared.interval == pytest.approx((2.0, 2.0))
    assert found.badge.startswith("measured: Example CPU")
