"""What the harness costs: the engine's own rates over those of a bare ctypes loop on the same library, in turn."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import sleep

import pytest

from inferlab.engine.client import LlamaEngine
from inferlab.measurement.run import inter_token_seconds, warm_up
from inferlab.model.find import tiny_model
from inferlab.settings import Settings
from inferlab.statistics import median_interval

N_PROMPT, N_GEN = 512, 128
N_PROCESSES, N_PAIRS = 5, 20
DECODE_WITHIN, PREFILL_WITHIN = 0.02, 0.03
REST_SECONDS = 0.05

pytestmark = pytest.mark.engine


class BareLoop:
    """bare_loop.py in its process, asked for one pass at a time."""

    def __init__(self, job):
        command = [sys.executable, str(Path(__file__).with_name("bare_loop.py")), json.dumps(job)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def one_pass(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def pairs():
    """(engine's pass, bare pass) of the same work, from several pairs of processes: where memory lands differs."""
    return [pair for _ in range(N_PROCESSES) for pair in pairs_of_two_processes()]


def pairs_of_two_processes():
    """Neighbouring passes of one engine and one bare loop, in alternating order, both warm."""
    engine = LlamaEngine()
    opening = engine.open(tiny_model(), Settings(n_ctx=N_PROMPT + N_GEN))
    prompt = engine.random_prompt(N_PROMPT)
    answer = warm_up(engine, prompt, N_GEN)[0][-1].tokens
    settings = opening.settings.to_dict()
    bare = BareLoop({"model": str(tiny_model()), "settings": settings, "prompt": prompt, "answer": answer})
    for _ in range(3):
        bare.one_pass()
    ways = (lambda: engine.generate(prompt, N_GEN)), bare.one_pass
    for index in range(N_PAIRS):
        done = {way: rested(ways[way]) for way in ((0, 1) if index % 2 else (1, 0))}
        yield done[0], done[1]
    bare.close()
    engine.close()


def rested(work):
    """Do it once the other process's threads have stopped spinning."""
    sleep(REST_SECONDS)
    return work()


def told(what, ratios):
    """Print the median ratio with its interval, and return the interval."""
    low, high = median_interval(ratios)
    print(f"\n{what}, engine / bare loop: {median(ratios):.4f} [{low:.4f}, {high:.4f}] over {len(ratios)} pairs")
    return low, high


def test_the_decode_rate_is_within_2_percent_of_a_bare_loop(pairs):
    """The 95 % interval of the median ratio of neighbouring passes lies within 0.98 to 1.02."""
    low, high = told("decode rate", [bare["decode_seconds"] / sum(ours.decode_seconds) for ours, bare in pairs])
    assert 1 - DECODE_WITHIN <= low <= high <= 1 + DECODE_WITHIN


def test_the_prefill_rate_is_within_3_percent_of_a_bare_loop(pairs):
    """The 95 % interval of the median ratio of neighbouring passes lies within 0.97 to 1.03."""
    low, high = told("prefill rate", [bare["prefill_seconds"] / ours.prefill_seconds for ours, bare in pairs])
    assert 1 - PREFILL_WITHIN <= low <= high <= 1 + PREFILL_WITHIN


def test_what_a_token_costs_beside_the_engine(pairs):
    """Sampling and bookkeeping between two tokens, on top of a bare loop's token, take less than 0.2 ms."""
    bare_token = [bare["decode_seconds"] / (N_GEN - 1) for _, bare in pairs]
    extra = [1e6 * (inter_token_seconds(ours) - token) for (ours, _), token in zip(pairs, bare_token, strict=True)]
    low, high = median_interval(extra)
    print(
        f"\nbetween two tokens, engine - bare loop: {median(extra):.1f} µs [{low:.1f}, {high:.1f}]"
        f" beside {1e6 * median(bare_token):.0f} µs of a bare token"
    )
    assert high < 200
