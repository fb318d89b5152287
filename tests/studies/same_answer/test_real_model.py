"""Answers of a trained model before and after a change: what is compared, and what its prompts are."""

import pytest

from inferlab.measurement import http_client
from inferlab.model.find import held_out_text
from studies.same_answer import real_model, study
from studies.same_answer.real_model import BY_SETTINGS, QUESTIONS, Said, beside, compared


def test_a_change_has_one_cause():
    """Settings, a field of the request or answers beside it; the first row of the table is the control."""
    every = [*BY_SETTINGS.values(), *beside(1).values(), *beside(3).values()]
    assert every[0] == real_model.Other()
    causes = [(one.settings != real_model.REFERENCE) + bool(one.more) + (one.beside > 0) for one in every]
    assert causes == [0, *[1] * (len(every) - 1)]


def test_costs_are_compared_where_tokens_are_the_same():
    """Up to the first other token; answers that are the same to their end count as the same to the limit."""
    first, second = Said((1, 2, 3), (0.5, 0.25, 0.125)), Said((1, 2, 4), (0.5, 0.2500001, 3.0))
    found = compared("x", [(first, second), (first, first)], n_gen=8)
    assert found.n_same == (2, 8)
    assert found.nats_apart == pytest.approx((0, 1e-7, 0, 0, 0), rel=1e-2)
    assert found.n_other_bits == 1


def test_an_answer_that_ends_earlier_is_another_one():
    """Although all of its tokens are the same."""
    assert compared("x", [(Said((1, 2), (0.0, 0.0)), Said((1,), (0.0,)))], n_gen=8).n_same == (1,)


def test_every_prompt_has_the_same_length(monkeypatch):
    """Head and end of the template, a question and as much of the text as leaves the length; pieces do not overlap."""

    def answer(_host, _port, path, body):
        if path == "/apply-template":
            return {"prompt": f"<u>{body['messages'][0]['content']}<a>"}
        return {"tokens": [ord(letter) for letter in body["content"]]}

    monkeypatch.setattr(http_client, "whole_answer", answer)
    prompts = ["".join(map(chr, one)) for one in real_model.chat_prompts(1, 5, 120)]
    assert {len(one) for one in prompts} == {120}
    assert prompts[0].startswith(f"<u>{QUESTIONS[0]}\n\n{held_out_text()[:8]}")
    assert prompts[4].startswith(f"<u>{QUESTIONS[0]}\n\n{held_out_text()[480:488]}")
    assert all(one.endswith("<a>") for one in prompts)


def test_the_page_counts_what_the_records_have():
    """The control repeats every answer; the embedded model stands beside the changes that it had, too."""
    heads, rows = study.real_table()
    told = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    found = study.real_numbers()
    assert [*told] == [*BY_SETTINGS, *beside(1), *beside(3), study.IN_F16]
    assert found["real_again"] == found["real_n"]
    assert told["asked again"]["other answers"].startswith("0 of")
    assert told[study.THREADS]["other answers"] == f"{found['real_n'] - found['real_threads']} of {found['real_n']}"
    assert {change for change, row in told.items() if row["embedded model"] != "–"} == {*study.EMBEDDED}


def test_one_thread_and_answers_beside_have_the_same_bits():
    """As the page says: flash attention of one token is divided among threads, and of several tokens it is not."""
    changes = [study.real()[name][1] for name in (study.THREADS, *beside(1), *beside(3))]
    assert len({(one.n_same, one.nats_apart) for one in changes}) == 1


def test_quantized_weights_change_more_answers():
    """Of both models, whose weights in F16 are the control."""
    found = study.real_numbers()
    assert found["real_threads"] < found["real_f16"] <= found["real_n"]
    assert found["tiny_q4_1"] < found["tiny_f16"] <= study.numbers()["n"]
