"""What a server keeps of a prompt: growth by copies, the numbers of the page, its tables."""

from dataclasses import replace

from fakes import CARD, CPU_ONLY

import inferlab as lab
from inferlab.settings import Settings
from studies.windows_and_states import study
from studies.windows_and_states.kept import copy_bytes
from studies.windows_and_states.measure import A_CHAT
from studies.windows_and_states.study import AGAIN, GO_ON, KeptPrompts, KeptTurn, growth

TURN = KeptTurn("new", 100, 0, 0.5, 0.4, False, False, (), 1, 5000, 10_000)
LATER = replace(TURN, copies=3, copies_bytes=9000, rss_bytes=15_000)


def test_growth_is_from_the_first_to_the_last_prompt():
    """Copies times the bytes of one with its answer, all tokens but the last of which are in the cache."""
    run = KeptPrompts(
        model=CARD, settings=Settings(n_ctx=512), machine=CPU_ONLY, options=(), n_gen=4, turns=(TURN, LATER)
    )
    model = lab.known_model("llama-3.2-1b")
    found = growth(run, model)
    assert (found.n_copies, found.n_tokens, found.logged_bytes, found.rss_bytes) == (2, 103, 4000, 5000)
    assert found.computed_bytes == 2 * copy_bytes(model, Settings(n_ctx=512), 103)


def test_chats_are_the_turns_of_the_recipe():
    """The same turns for each cache, which is what the server was started with; the first has nothing in the cache."""
    for name, chat in study.chats().items():
        assert tuple(turn.kind for turn in chat.turns) == A_CHAT
        assert chat.turns[0].n_cached == 0
        assert all(turn.n_computed == chat.turns[1].n_computed for turn in chat.turns if turn.kind == GO_ON)
        assert ("-ctxcp" in chat.options) == ("-ctxcp" in name)
        assert chat.settings.swa_full == ("--swa-full" in name)


def test_an_edit_costs_the_whole_prompt_without_a_way_back():
    """With windows or states; the whole cache and the plain one compute from the edit on, in text and table."""
    found = study.numbers()
    assert found["edit_hybrid"] == found["edit_windowed"] == found["edit_prompt"]
    assert found["edit_whole"] == found["edit_plain"] < found["edit_prompt"]
    assert found["again_hybrid"] < found["again_off"] == study.chats()["hybrid"].first(AGAIN).n_prompt
    heads, rows = study.chat_table()
    edits = {row[0]: row[heads.index("edit")].split()[0] for row in rows}
    assert edits["hybrid"] == f"{found['edit_hybrid']:,d}"
    assert edits["windows, `--swa-full`"] == f"{found['edit_whole']:,d}"


def test_computed_bytes_are_near_the_log():
    """Within a percent; the process grows by about as much, and hardly without copies."""
    found = study.numbers()
    assert found["worst"] < 1
    assert 80 < found["least_rss"] <= found["most_rss"] < 120
    assert found["off_mib"] < min(growth.rss_bytes for growth in study.grown().values()) / 2**20
    assert [row[0] for row in study.copies_table()[1]] == [*study.grown()]


def test_cells_and_states_grow_differently():
    """Of a hybrid only the cells grow with the context; a pure state-space model has none."""
    found = study.numbers()
    assert 1 < found["long_factor"] < 4
    assert found["gemma_factor"] > 1
    heads, rows = study.bytes_table()
    cells = {row[0]: row[heads.index("cells")] for row in rows}
    states = {row[0]: row[heads.index("states")] for row in rows}
    assert float(cells["Mamba 2 130M"]) == float(states["Llama 3.2 1B"]) == 0 < float(states["Mamba 2 130M"])


def test_a_verdict_of_the_depths_needs_an_interval_beside_zero():
    """The sentence names a depth exactly where the table's interval of the whole cache leaves zero out."""
    verdict = study.numbers()["depth_verdict"]
    for depth, ratio, *_ in study.depth_table()[1]:
        low, high = (float(word) for word in ratio.partition("(")[2].rstrip(")").split(" to "))
        assert (f"with {depth} tokens" in verdict) == (low > 0 or high < 0)
