"""The measurements of chapter 8 with the real programs: llama-server, Prometheus, llama-bench, llama-batched-bench."""

import shutil

import pytest

import inferlab as lab
from studies.same_answer.measure import GREEDY, REQUESTS, Asked, served_answers
from studies.sampling_cost import measure as sampling_cost
from studies.serving.measure import scrape_pairs, watch_server
from studies.serving.study import QUERIES, HttpRequest

pytestmark = pytest.mark.engine
SETTINGS = lab.Settings(n_seq_max=2, n_ctx=4096, n_threads=1)


def test_prometheus_scrapes_a_server_that_answers(program):
    """Every query has a series, and the counter has the tokens of the answers in the end."""
    program("llama-server")
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not installed")
    requests = [HttpRequest(16, 300, seed=seed) for seed in range(3)] + [HttpRequest(16, 1, 6.0)]
    found = watch_server(requests, SETTINGS, 0.5, lab.tiny_model())
    assert [one.query for one in found.series] == list(QUERIES.values())
    assert max(found.series_of("answers").values) > 0
    assert found.prometheus


def test_a_reader_of_the_metrics_leaves_answers_whole(program):
    """Pairs come in the order without, with."""
    program("llama-server")
    found = scrape_pairs(SETTINGS, every_seconds=0.02, n_pairs=2, n_gen=20, model=lab.tiny_model())
    assert [one.replies[0].n_tokens for one in found] == [20] * 4


def test_a_server_alone_repeats_its_answer(program):
    """Greedy and with a seed."""
    program("llama-server")
    asked = {name: one for name, one in REQUESTS.items() if name.endswith("asked again")}
    found = served_answers(asked, n_prompts=2, n_prompt=16, n_gen=8)
    assert {one.n_same for one in found.compared} == {(8, 8)}


def test_the_programs_of_llama_cpp_print_what_is_read(program):
    """Prefill and decode of each."""
    program("llama-bench"), program("llama-batched-bench")
    found = sampling_cost.programs(None, n_prompt=32, n_gen=8, turns=1)
    assert len(found.rates) == 9
    assert all(found.rate(name) > 0 for name in found.rates)


def test_the_server_is_timed_beside_the_bench(program):
    """Every request has a rate of the server, and what streams one of the client; words change a greedy answer."""
    program("llama-bench"), program("llama-server")
    names = "one candidate, not streamed", "default", "grammar of words"
    asked = {name: sampling_cost.REQUESTS[name] for name in names}
    found = sampling_cost.beside_server(None, n_prompt=16, n_gen=8, turns=1, requests=asked)
    assert set(found.rates) == {
        "llama-bench",
        "this book",
        *(f"{of}: {name}" for of in ("server", "prefill") for name in asked),
        "client: default",
        "client: grammar of words",
    }
    assert found.changed["grammar of words"] > 0


def test_greedy_sampling_in_the_backend_picks_the_same_tokens(program):
    """The vocabulary's likeliest token is the same wherever it is looked for."""
    program("llama-server")
    asked = {"backend": Asked(GREEDY, {"backend_sampling": True})}
    found = served_answers(asked, n_prompts=2, n_prompt=16, n_gen=8)
    assert found.compared[0].n_same == (8, 8)
