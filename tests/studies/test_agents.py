"""The session of a coding agent and its replays: lengths, what the log says of a request, the numbers of the page."""

import pytest
from fakes import CARD, CPU_ONLY

from inferlab.measurement.http_client import Event, Stream
from inferlab.settings import Settings
from studies.agents import figures, replay, study
from studies.agents.session import N_BEGINNING, N_TURNS, Part, session
from studies.agents.study import DEFAULT, ONE, ONE_BARE, SHIFT, SMALL, SPLIT, Asked, Replay

LOG = """load_model: prompt cache is enabled
slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = 5
srv  prompt_save:  - saving prompt with length 100, total state size = 2.000 MiB (draft: 0.000 MiB)
srv        update:  - cache state: 1 prompts, 2.000 MiB (limits: 8192.000 MiB, 32768 tokens, 900000 est)
srv  get_availabl: prompt cache update took 1.50 ms
slot create_check: id  1 | task 7 | created context checkpoint 1 of 32 (pos_min = 0, n_tokens = 9, size = 0.500 MiB)
slot update_slots: id  1 | task 7 | restored context checkpoint (pos_min = 0, pos_max = 9, n_tokens = 9)"""


def test_the_session_has_realistic_sizes():
    """A stable beginning of 12,000 tokens, 20 turns that fit in 32,768 tokens, six side requests; a tenth in 8,192."""
    whole, tenth = session(), session(10)
    main = [request for request in whole if request.kind == "main"]
    assert (len(main), len(whole)) == (N_TURNS, 26)
    assert all(request.parts[0] == Part("beginning", N_BEGINNING) for request in main)
    assert max(request.n_prompt + request.n_gen for request in whole) < study.N_CTX
    assert max(request.n_prompt + request.n_gen for request in tenth) < study.N_CTX_SMALL
    assert [request.kind for request in session(n_turns=1)] == ["main", "title"]


def test_a_template_drops_reasoning_once_the_user_writes_again():
    """Until then the whole answers stay, and a prompt goes on from the one before."""
    at = {request.turn: request.parts for request in session() if request.kind == "main"}
    assert not any(part.skip for part in at[6])
    assert at[6][: len(at[5])] == at[5]
    assert {part.name for part in at[7] if part.skip} == {"answer 1", "answer 2", "answer 4"}


def test_new_tokens_are_those_of_parts_that_no_request_had():
    """The beginning and the user's text first; of a later turn its message; of a side request what it repeats too."""
    planned = session(n_turns=4)
    new = dict(zip([(request.turn, request.kind) for request in planned], replay._new_tokens(planned), strict=True))
    assert new[1, "main"] == planned[0].n_prompt
    assert new[2, "main"] == planned[2].parts[-1].n_tokens
    assert new[4, "classification"] == planned[-1].n_prompt


def test_the_log_is_cut_by_requests():
    """Each begins with the choice of its slot; copies, checkpoints and what was restored are read from its part."""
    first, second = replay._segments(LOG)
    answer = Stream(1.0, 1.1, [Event(1.5, 9, {"stop": False, "tokens": [3]}), Event(2.0, 9, last())], 2.0)
    one = replay._asked(session(n_turns=1)[0], None, 12_220, first)
    other = replay._asked(session(n_turns=1)[1], answer, 400, second)
    assert (one.refused, one.n_again, one.copies, one.said) == (True, 0, None, ())
    assert (other.n_read, other.n_kept, other.slot, other.ttft_seconds) == (401, 7, 1, 0.5)
    assert (other.copies, other.copies_bytes, other.copied_tokens) == (1, 2 * 2**20, 100)
    assert (other.checkpoints, other.update_ms, other.said) == ((2**19,), 1.5, ("restored",))
    assert other.n_again == 1


def last():
    return {"stop": True, "id_slot": 1, "timings": {"prompt_n": 401, "cache_n": 7, "prompt_ms": 250.0}}


def a_replay(setting, *n_read):
    asked = tuple(Asked(turn, "main", 100, 10, 4, n, ttft_seconds=n and 0.5) for turn, n in enumerate(n_read, 1))
    facts = {"model": CARD, "settings": Settings(n_ctx=512), "machine": CPU_ONLY, "options": ("-np", "1")}
    return Replay(**facts, setting=setting, scale=1, metric_read=9, metric_kept=9, requests=asked)


def test_the_figure_has_a_row_of_each_setting():
    """New tokens and those read again are stacked, a refused request has no bar, and the alternative text says both."""
    shape = {"one": a_replay("one", 100, 60), "four": a_replay("four", None, None)}
    figure = figures.read_again(shape, {name: (one,) for name, one in shape.items()})
    bars = [bar for bar in figure.data if bar.name == figures.AGAIN]
    assert [list(bar.y) for bar in bars] == [[90, 50], []]
    assert "one: at most 90 in a turn, 0 requests refused" in figure.layout.meta["alt"]
    assert "four: at most 0 in a turn, 2 requests refused, no answer" in figure.layout.meta["alt"]


@pytest.mark.parametrize("record", ["shape", "smollm2"])
def test_a_record_is_the_session_in_six_settings(record):
    """Each with the session's requests, but for tokens that a stream leaves out; metrics agree with the answers."""
    replays = study.recorded(record)
    assert [*replays] == [ONE_BARE, ONE, DEFAULT, SPLIT, SMALL, SHIFT]
    for one in replays.values():
        planned = session(one.scale)
        assert [(asked.turn, asked.kind) for asked in one.requests] == [(plan.turn, plan.kind) for plan in planned]
        assert all(abs(a.n_prompt - plan.n_prompt) < 5 for a, plan in zip(one.requests, planned, strict=True))
        assert sum(asked.n_kept or 0 for asked in one.requests) == one.metric_kept


def test_a_hybrid_shifts_what_its_state_has_read():
    """The server does not refuse --cache-reuse there, and says of a request that it shifted a chunk."""
    plain, shifted = study.recorded("hybrid").values()
    assert any("shifted" in asked.said for asked in shifted.requests)
    assert not any("shifted" in asked.said for asked in plain.requests)


def test_numbers_agree_with_the_tables():
    """Side requests cost the conversation in one slot without RAM, and where the limit is below one prompt."""
    found = study.numbers()
    assert found["again_default"] < found["again_small"]
    assert found["again_one"] < found["again_one_bare"]
    assert found["again_shift"] < found["again_default"]
    assert found["again_windows"] < found["again_windows_bare"]
    assert found["refused_split"] > 0 == study.recorded("shape")[DEFAULT].n_refused
    heads, rows = study.settings_table()
    assert dict(zip(heads, rows[0], strict=True))["of them again"] == f"{found['again_one_bare']:,d}"
    assert [row[0] for row in study.trained_table()[1]] == [row[0] for row in rows[:6]]
