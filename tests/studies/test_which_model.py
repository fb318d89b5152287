"""A model for a machine: the rules hold for every row, and each line and link says what was planned."""

import re
import shlex
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from inferlab.cli import parser
from inferlab.cli.options import settings_from
from inferlab.instruments import planner
from inferlab.instruments.dropped import DroppedFiles
from inferlab.model.catalog import known_models
from inferlab.prediction.expected import PARTIAL, expected_rates
from inferlab.results.public_rates import of_card
from studies.which_model import study

MACHINES = pytest.mark.parametrize("name", study.MACHINES)
HERE = set(study.MACHINES) - set(study.CPUS)


def chosen(name):
    """The choices of a machine."""
    return [one for one in study.choices(name).values() if one]


def test_a_candidate_is_new_and_no_model_is_there_twice():
    """Released in the last twelve months, without copies that draft or see; of equally large ones the newest first."""
    found = study.candidates()
    last = study._months(known_models().last_look)
    assert all(0 <= last - study._months(one.date) < study.MONTHS for one in found)
    assert not [one.name for one in found if one.name.endswith("-mtp") or "-vl-" in one.name]
    ranked = [(one.model.n_params, one.date) for one in found]
    assert ranked == sorted(ranked, reverse=True)
    assert len({one.name for one in found}) == len(found) > 40
    assert {one.name for one in found if one.for_code} >= {"qwen3-coder-next", "devstral-small-2-24b", "kimi-k2.7-code"}


@MACHINES
def test_every_purpose_has_a_model_that_fits_and_is_fast_enough(name):
    """Whole on the card, or with experts in RAM where that is the purpose; with the context, and fast enough."""
    found = study.choices(name)
    assert [purpose.name for purpose in found][:3] == ["chat", "long documents", "code"]
    assert all(found.values())
    least = study.LEAST_RATE * (study.CPU_TIMES if name in study.CPUS else 1)
    for purpose, one in found.items():
        assert one.fit.fits == ("no" if purpose.in_ram else "yes")
        assert bool(one.settings.n_cpu_moe) == purpose.in_ram
        assert one.settings.n_ctx == purpose.n_ctx <= one.candidate.known.n_ctx_train
        assert (one.rates.end if purpose.at_end else one.rates.start) >= least
        assert not one.candidate.for_code or purpose.code or purpose.in_ram


@MACHINES
def test_what_was_passed_over_is_too_large_or_too_slow(name):
    """No candidate before the choice for a chat would pass by its bytes and its rate; else its plan does not fit."""
    here, one = study.spot(name), study.choice(name, study.CHAT)
    general = [other for other in study.candidates() if not other.for_code]
    for other in general[: general.index(one.candidate)]:
        is_large = other.needed_bytes(study.CHAT.settings) > here.room_bytes
        if not is_large and study._rates(here, study.CHAT, study.CardWork(other.model)).pass_for(study.CHAT):
            assert here.planned(other.model, study.CHAT.settings).fits != "yes"


@pytest.mark.parametrize("name", sorted(HERE))
def test_rates_are_those_of_the_planner_and_inside_their_bands(name):
    """With experts in RAM the band is that of a model in parts."""
    for one in chosen(name):
        rates = one.rates.expected
        assert all(rate.low <= rate.rate <= rate.high for rate in (rates.start, rates.end, rates.prompt))
        assert rates.end.rate <= rates.start.rate
        assert (rates.start.basis == PARTIAL) == one.purpose.in_ram
        if not one.purpose.in_ram:
            planned = expected_rates(one.fit, one.candidate.model, one.spot.place)
            assert (rates.start, rates.end) == (planned.start, planned.end)


def test_a_cpu_has_bounds_and_no_rates():
    """RAM that is read once for each token; nothing is said about prompts."""
    for name in study.CPUS:
        for one in chosen(name):
            told, prompt = one.rates.texts
            assert told == f"at most {one.rates.start:.0f}; full: {one.rates.end:.0f}"
            assert (one.rates.expected, prompt) == (None, "–")
            read = study.token_bytes(one.candidate.model, one.purpose.cache, one.purpose.cache)
            assert one.rates.start * read == pytest.approx(study.cpu_ram().bytes_per_second)
        assert "GB/s {cite}`" in study.Lines(name).source


@MACHINES
def test_a_line_to_paste_has_the_settings_of_the_plan(name):
    """llama-server's flags, read by this library's own command."""
    for one in chosen(name):
        words = shlex.split(one.line)
        assert (words[:2], words[-2:]) == (["llama-server", "-m"], ["--port", "8080"])
        asked = settings_from(parser("plan").parse_args(["plan", *words[2:-2]]))
        layers = one.candidate.model.n_layer + 1 if one.spot.place else 0
        assert asked.n_gpu_layers == layers
        assert asked.but(n_gpu_layers=-1, flash_attn="auto") == one.settings.but(n_gpu_layers=-1, flash_attn="auto")
        assert asked.flash_attn == ("on" if one.purpose.cache == "q8_0" else "auto")
    assert all(one.line in study.Lines(name).text for one in chosen(name))


@MACHINES
def test_a_name_leads_to_the_same_question_in_the_planner(name):
    """The address of the link fills the form: the same model, memory and settings; the planner has no CPU alone."""
    for one in chosen(name):
        if one.spot.place is None:
            assert one.cells[0] == one.candidate.known.name
            continue
        link, text = re.fullmatch(r'<a href="planner\.html\?([^"]+)">([^<]+)</a>', one.cells[0]).groups()
        question = dict(parse_qsl(unescape(link)))
        assert text == one.candidate.known.name
        assert question.keys() <= planner.DEFAULTS.keys()
        asked = {**planner.DEFAULTS, **question}
        assert planner.model_of(asked, DroppedFiles({})).tensor_bytes == one.candidate.model.tensor_bytes
        place = planner.place_of(asked)
        assert place.ram == one.spot.ram
        assert place.sizes == one.spot.place.sizes
        assert planner.settings_of(asked) == one.settings.but(n_gpu_layers=-1)


def test_where_no_limit_is_known_weights_are_no_larger_than_others_had():
    """The system of a Ryzen's GPU is not known; of a Mac it is."""
    ryzen, mac = study.spot("ryzen-ai-max-395:128"), study.spot("apple-m4-max-40:128")
    assert ryzen.room_bytes == int(max(row.n_bytes for row in of_card("ryzen-ai-max-395")))
    assert mac.room_bytes == mac.place.sizes[0] - study.RESERVE_BYTES


def test_a_table_says_where_nothing_passes(monkeypatch):
    """A row for each purpose, with a reason; each of the others has a cell for each head."""
    heads, rows = study.table("rtx-4060")
    assert {len(row) for row in rows} == {len(heads)}
    monkeypatch.setattr(study, "choices", lambda name: {study.CHAT: None})
    (row,) = study.table("rtx-4060")[1]
    assert row[:2] == ("chat", "no candidate passes")
    assert len(row) == len(heads)


def test_the_page_shows_every_machine_once():
    """A table and lines for each, and numbers for its sentences."""
    text = (Path(__file__).parents[2] / "book" / "which-model.md").read_text(encoding="utf-8")
    assert re.findall(r'study\.table\("(.+?)"\)', text) == [*study.MACHINES]
    assert re.findall(r'study\.Lines\("(.+?)"\)', text) == [*study.MACHINES]
    assert set(re.findall(r"glue:text\}`(\w+)", text)) <= study.numbers().keys()
    assert study.numbers()["small_model"] == study.choice("rtx-4060", study.CHAT).candidate.known.name
