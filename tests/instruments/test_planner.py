"""The planner's questions: answered or refused with the field's name, whatever a link or a file holds."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_headers import fuzz_headers
from small_models import write_model

from inferlab import instruments
from inferlab.errors import InferlabError, ModelNotFound
from inferlab.instruments import addressed, planner, telling
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import html_of
from inferlab.model.catalog import known_models
from inferlab.model.find import tiny_model
from inferlab.model.gguf import header_bytes, read_gguf
from inferlab.prediction.cards import known_cards, sized_cards
from inferlab.prediction.memory.verified import tried_text
from inferlab.prediction.what_runs import Placed, Runs
from inferlab.units import GB, GIB

ROOT = Path(__file__).parents[2]
NOWHERE = DroppedFiles(Path("nowhere"))


def answered(**changed: str) -> dict:
    """The answer to the default question with some values changed."""
    return instruments.answered("planner", {**planner.DEFAULTS, **changed}, NOWHERE)


def test_the_default_question_has_the_known_answer():
    """Mistral 7B in Q4_K_M with 8,192 tokens: its gibibyte of cache, and the tokens that the front page promises."""
    answer = answered()
    assert answer["state"] == "yes"
    assert answer["data"]["devices"]["gpu0"]["kv_cache_bytes"] == GIB
    assert f"{answer['data']['answers']['largest_n_ctx']['value']:,} tokens" in html_of(answer["view"])
    json.dumps(answer)


def test_a_page_says_how_often_a_closed_form_was_exact():
    """A page cannot ask llama.cpp to verify it; a bound makes no such claim."""
    assert tried_text() in html_of(answered()["view"])
    assert tried_text() not in html_of(answered(type_k="q8_0")["view"])


def test_a_load_that_llama_cpp_aborts_is_said_above_the_numbers():
    """Whatever memory is free, with a cache with which it loads; with that nothing is said."""
    asked = {"model": "granite-3.1-1b-a400m", "type_v": "q8_0"}
    shown = html_of(answered(**asked, type_k="q8_0")["view"])
    assert shown.index("aborts this load") < shown.index("Together")
    assert "Take a cache of type f16" in shown
    assert "aborts this load" not in html_of(answered(**asked, type_k="f16")["view"])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"n_ctx": "4k"}, "Context: '4k' is no whole number"),
        ({"n_ctx": "99999999999999"}, "Context: "),
        ({"n_ctx": "²"}, "Context: '²' is no whole number"),
        ({"reserve": "-1"}, "Kept free on each card: '-1' is no number of at least 0"),
        ({"card": "rtx-4061"}, "Card: 'rtx-4061' is not in the list. Did you mean rtx-406"),
        ({"card": "other", "memory": "0"}, "Its memory: a card without memory holds no model."),
        ({"card": "other", "memory": " "}, "Its memory: nothing is there. Write a number"),
        ({"n_cpu_moe": "3"}, "Layers with experts in RAM: 3: Mistral 7B v0.3 shape has no experts"),
        ({"cpu_moe": "on"}, "All experts in RAM: Mistral 7B v0.3 shape has no experts"),
        ({"override_tensor": "ffn_down"}, "Tensors by name: 'ffn_down' is not of the form"),
        ({"override_tensor": "ffn_down=CUDA3"}, "Tensors by name puts 'ffn_down' into 'CUDA3'"),
        ({"n_seq_max": "0"}, "Slots: 0 must be a whole number from 1"),
        ({"n_ctx": "9", "n_seq_max": "10"}, "Context: 9 leaves no cell for each of Slots = 10"),
        ({"kv_unified": "on"}, "One pool for all slots changes nothing for one sequence (Slots: 1): it has"),
        ({"swa_full": "on"}, "Sliding layers keep all tokens changes nothing: no layer of Mistral"),
        ({"card": "other", "memory": "nan"}, "Its memory: 'nan'"),
        ({"card": "dgx-spark", "n_cards": "2"}, "Number of cards: "),
        ({"n_cards": "9"}, "Number of cards: 9 is not from 1 to 4"),
        ({"n_cards": "2", "second": "0"}, "Memory of the second card: a card without memory"),
        ({"n_cards": "2", "split_mode": "row"}, "Cards share: 'row' is not in the list"),
        ({"n_cards": "2", "tensor_split": "3;1"}, "Shares of the cards: '3;1' has no number for each card"),
        ({"n_cards": "2", "tensor_split": "nan,1"}, "Shares of the cards: 'nan,1' has no number for each card"),
        ({"n_cards": "2", "tensor_split": "3,1,1"}, "Shares of the cards: (3.0, 1.0, 1.0) has 3 shares"),
        ({"n_cards": "2", "split_mode": "tensor", "flash_attn": "off"}, "needs flash attention"),
        ({"flash_attn": "off", "type_v": "q8_0"}, "needs flash attention"),
        ({"type_k": "q8"}, "Cache, keys: 'q8' is not in the list"),
        ({"model": "file", "file": "x.gguf"}, "'x.gguf' is not here, because a page keeps no file"),
    ],
)
def test_a_question_that_cannot_be_answered_names_the_field(changed, told):
    """The reason stands in place of the answer, with what was found and what to write."""
    answer = answered(**changed)
    assert (answer["state"], answer["data"]) == ("refused", {})
    assert told in answer["view"][2]


def test_a_bound_on_the_speed_needs_a_bandwidth():
    """A card of the list has its maker's; another card has the one that the reader gives, or no bound."""
    rated = known_cards()["rtx-4060"].bandwidth_bytes_per_second / GB
    assert f"the card's rating is {rated:,.0f} GB/s" in html_of(answered()["view"])
    assert "GB/s" not in html_of(answered(card="other")["view"])
    assert "the card's rating is 300 GB/s" in html_of(answered(card="other", bandwidth="300")["view"])


def test_two_unlike_cards_share_a_model_as_they_are_told():
    """A second card of another size: layers by its memory or by shares, or a part of each matrix."""

    def layers_on_second(**changed):
        asked = {"model": "qwen3-32b", "card": "rtx-4090", "n_cards": "2", "second": "8", "n_ctx": "16384", **changed}
        return answered(**asked)["data"]["devices"]["gpu1"]["weights_bytes"]

    by_memory, by_shares = layers_on_second(), layers_on_second(tensor_split="7,2")
    assert 0 < by_shares < by_memory < layers_on_second(split_mode="tensor")
    assert layers_on_second(second="") > by_memory
    asked = command(card="rtx-4090", n_cards="2", second="8", split_mode="tensor", tensor_split="3,1")
    assert "--vram 24GiB,8GiB" in asked
    assert "--split-mode tensor --tensor-split 3,1" in asked


def test_one_card_passes_over_what_its_form_does_not_show():
    """Values of hidden fields stay in a link; they change no answer for one card."""
    assert answered(split_mode="tensor", tensor_split="3,1", second="8")["data"] == answered()["data"]


def test_the_command_asks_the_same():
    """The card's name where there is one of it, else bytes; and only what is not the command's own default."""
    assert command() == "inferlab plan mistral-7b-v0.3 --type Q4_K_M --card rtx-4060 --n-ctx 8192"
    two = command(n_cards="2", reserve="0.5", n_gpu_layers="7", offload_kqv="")
    assert "--card 2xrtx-4060" in two
    assert two.endswith("--n-gpu-layers 7 --no-offload-kqv --reserve 0.5GiB")
    assert command(n_seq_max="4", kv_unified="on").endswith("--n-seq-max 4 --kv-unified")
    assert command(model="gemma-3-4b").endswith("--n-ctx 8192")
    assert command(model="gemma-3-4b", swa_full="on").endswith("--swa-full")
    assert "--unified 7.5GiB" in command(card="other", memory="7.5", shared="on")
    assert "--card rtx-4060 --ram 64GiB --ram-reserve 6GiB --cache-ram 0" in command(ram="64", system="6", prompts="0")
    assert "--card apple-m4:16 --unified 12GiB" in command(card="apple-m4:16", gpu="12")
    assert "--card rtx-4060 --unified 7GiB" in command(gpu="7")
    assert "--vram 7GiB,7GiB" in command(gpu="7", n_cards="2")
    assert command(list="on").startswith("inferlab plan --list --card rtx-4060")


def command(**changed: str) -> str:
    question = {**planner.DEFAULTS, **changed}
    reserve = round(float(question["reserve"]) * GIB)
    return planner.command_of(question, planner.settings_of(question), planner.place_of(question), reserve)


def shown(**changed: str) -> tuple[str, str]:
    """The headline, and all that stands below it."""
    answer = answered(**changed)
    return answer["summary"], html_of(answer["view"])


IN_RAM = {"model": "qwen3-30b-a3b", "type": "F16", "card": "rtx-4090", "n_gpu_layers": "8", "ram": "96"}


def test_a_headline_says_what_is_needed_in_ram():
    """Wherever layers lie there; a plan whose layers are all on the card says nothing of the little that RAM holds."""
    assert " of RAM" not in shown()[0]
    assert re.search(r" to spare, and needs up to 4\d\.\d\d GiB of RAM\.$", shown(**IN_RAM)[0])
    assert re.search(r", and needs up to .* of RAM\.$", shown(n_gpu_layers="32")[0])
    assert " of RAM" not in shown(type="F32", n_gpu_layers="32")[0]
    assert " of RAM" not in shown(card="apple-m4:16", n_gpu_layers="5")[0]


OTHER = {"card": "other", "memory": "24", "bandwidth": "1008"}
"""A card that is not in the list, so that no public result is of it."""


def test_no_rate_is_promised_for_a_model_in_ram():
    """Nothing stands out where layers are left out of the limit, and with most of them left out there is none."""
    assert "<strong>At most" in shown(**OTHER)[1]
    few = shown(**OTHER, n_gpu_layers="28")[1]
    assert "At most" in few
    assert "<strong>At most" not in few
    most = shown(**IN_RAM | OTHER)[1]
    assert "At most" not in most
    assert re.search(r"No limit on tokens per second is given: \d+ of 48 layers lie in RAM", most)


def test_a_rate_is_expected_of_a_card_of_the_list():
    """With its band, at both ends of the context, for a prompt, and from what; the results stand behind a fold."""
    told = shown(card="rtx-4090")[1]
    assert re.search(
        r"<strong>About [\d.]+ tokens/s</strong> at the beginning of the context, between [\d.]+ and", told
    )
    assert re.search(r"; at its end about [\d.]+ tokens/s, between", told)
    assert re.search(r"A prompt of 512 tokens: about [\d,]+ tokens/s, between", told)
    assert re.search(r"From \d+ public CUDA results of this card and \d+ of cards of its generation\.", told)
    assert re.search(r"<summary[^>]*>12 public results near this", told)
    assert 'href="https://github.com/' in told
    assert "At most " in told
    assert "of this card there is none with the whole model on it" in shown(card="rtx-4060")[1]
    assert "of its own there is none" in shown(card="gtx-970", model="qwen3-1.7b")[1]
    assert "Cards of one kind work one after another" in shown(card="rtx-4090", n_cards="2")[1]
    assert "How fast?" not in shown(card="rtx-4060", model="llama-3.3-70b")[1]


def test_a_part_in_ram_makes_the_band_wide():
    """The rate is told for layers and experts there, too, and why it is less sure."""
    for asked in ({"n_gpu_layers": "20"}, {"model": "qwen3-30b-a3b", "cpu_moe": "on"}):
        told = shown(**asked)[1]
        assert "A part lies in RAM, whose rate differs from machine to machine, so the band is wide" in told
        low, high = map(float, re.search(r"beginning of the context, between ([\d.]+) and ([\d.]+)", told).groups())
        assert high > 2 * low


def test_a_cache_in_ram_has_no_rate():
    """No published result has one, so a bound is all that is told."""
    told = shown(card="rtx-4090", offload_kqv="")[1]
    assert "How fast?" not in told
    assert "At most" in told


def test_the_rates_of_the_page_are_those_of_the_command():
    """Both have the same fields; a card that is not in the list has none."""
    expected = answered(card="rtx-4090")["data"]["expected"]
    assert (
        expected["decode_at_start"]["low"] < expected["decode_at_start"]["rate"] < expected["decode_at_start"]["high"]
    )
    assert expected["decode_at_end"]["rate"] < expected["decode_at_start"]["rate"] < expected["prompt"]["rate"]
    assert answered(**OTHER)["data"]["expected"] is None


def test_experts_may_lie_in_ram():
    """The fewest layers are named and pasted; a plan with them fits, has its command, and says what the limit lacks."""
    asked = {"model": "qwen3-30b-a3b", "card": "rtx-4060"}
    below = shown(**asked)[1]
    layers = re.search(r"Fewest layers with experts in RAM \(n_cpu_moe\)</th><td[^>]*>(\d+) layers", below)[1]
    assert "One token uses 8 of 128 experts in each layer" in below
    assert f"LLAMA_ARG_N_CPU_MOE={layers}" in below
    assert shown(**asked)[0].endswith(f" GiB too much. It fits with the experts of {layers} layers in RAM.")
    headline, fitting = shown(**asked, n_cpu_moe=layers)
    assert re.search(r" fits on .*, and needs up to 1\d\.\d\d GiB of RAM\.$", headline)
    assert "A part lies in RAM" in fitting
    assert f"layers with experts in RAM {int(layers) - 1}" in fitting
    assert command(**asked, n_cpu_moe=layers).endswith(f"--n-cpu-moe {layers}")
    assert "--cpu-moe" in command(**asked, cpu_moe="on")
    assert "--override-tensor 'ffn_up_exps=CPU,blk\\.0\\.attn=CPU'" in command(
        **asked, override_tensor="ffn_up_exps=CPU, blk\\.0\\.attn=CPU"
    )
    few = shown(**asked | OTHER | {"memory": "16"}, n_cpu_moe="12")[1]
    assert "the experts of 12 of 48 layers, is left out of this limit" in few
    assert "At most" not in shown(**asked | {"card": "rtx-4060-ti-16gb"}, n_cpu_moe="12")[1]
    assert "Fewest layers" not in shown()[1]


def test_experts_in_ram_are_not_proposed_for_nothing():
    """Where as many layers fit on the card with their experts, that alone is proposed."""
    headline, told = shown(model="glm-4.5-air", card="other", memory="4", ram="256", n_ctx="131072")
    assert headline.endswith("It fits with 2 layers on the card.")
    assert "This would fit too" not in told


def test_a_mac_gets_the_share_of_its_system():
    """With where the number comes from, and another one where the reader gives it; other machines have all but RAM."""
    share = known_cards()["apple-m4"].gpu_bytes(16 * GIB)
    answer = answered(card="apple-m4:16")
    assert answer["data"]["rooms"]["shared"]["free_bytes"] == share < 16 * GIB
    assert re.search(r"The GPU may use [\d.]+ GiB of 16\.00 GiB: so much does macOS", html_of(answer["view"]))
    raised = answered(card="apple-m4:16", gpu="13")
    assert raised["data"]["rooms"]["shared"]["room_bytes"] == 12 * GIB
    assert "The GPU may use 13.00 GiB of 16.00 GiB. " in html_of(raised["view"])
    spark = answered(card="dgx-spark")["data"]
    assert spark["rooms"]["shared"]["room_bytes"] == spark["ram"]["bytes"] - 4 * GIB


def test_ram_decides_too():
    """A model whose experts are more than RAM does not fit, whatever the card; the memory that is short is named."""
    headline = shown(model="qwen3-235b-a22b", cpu_moe="on")[0]
    assert re.search(r" does not fit on .*: [\d.]+ GiB too much in RAM\.$", headline)
    assert "It fits with" not in shown(model="qwen3-235b-a22b")[0]
    assert " fits on " in shown(model="qwen3-235b-a22b", cpu_moe="on", ram="256", card="rtx-4090")[0]
    assert answered(model="qwen3-235b-a22b")["data"]["answers"]["expert_layers"]["value"] is None
    assert answered(ram="4")["state"] == "refused"


def test_what_the_server_keeps_of_prompts_is_counted():
    """Its own limit where RAM has room; less in its lines where it has not; strictly what the reader sets aside."""
    asked = {"model": "qwen3-30b-a3b", "n_cpu_moe": "40"}
    assert "in time up to 8.00 GiB, for which there is room" in shown(**asked, ram="64")[1]
    assert "-cram" not in shown(**asked, ram="64")[1]
    assert re.search(r">-cram<.*> *<span>\d+<", shown(**asked, ram="24")[1])
    assert answered(**asked, ram="24")["state"] == "yes"
    assert answered(**asked, ram="24", prompts="8192")["state"] == "no"
    assert answered(**asked, ram="24", prompts="0")["data"]["ram"]["prompt_cache_bytes"] == 0


def test_what_runs_is_a_table_to_sort(monkeypatch):
    """Every model that fits, with a button that plans it as listed; how far it is, is told."""
    heard = []
    monkeypatch.setattr(telling, "hears", heard.append)
    answer = answered(list="on", n_ctx="16384")
    told = html_of(answer["view"])
    assert len(heard) == len(known_models()) == len(answer["data"]["models"])
    assert "data-sort" in told
    listed = next(runs for runs in answer["data"]["models"] if runs["name"] == "mistral-7b-v0.3")
    planned = answered(type=listed["whole"]["type"], n_ctx="16384")["data"]
    assert planned["fits"] == "yes"
    assert planned["answers"]["largest_n_ctx"]["value"] == listed["whole"]["longest_n_ctx"]
    button = "list=&amp;model=mistral-7b-v0.3&amp;type="
    assert button in told


def test_a_list_says_how_it_counts_what_was_trained_for_less():
    """In its sentence and in the row; a model whose largest weights fit whole needs no RAM, and no "no" is said."""
    answer = answered(list="on", card="rtx-4090")
    rows = {row.th.get_text(): row.get_text("|") for row in BeautifulSoup(html_of(answer["view"]), "html.parser")("tr")}
    assert "4,096, as trained" in rows["Llama 2 7B"]
    less = [
        runs
        for runs in answer["data"]["models"]
        if (runs["whole"] or runs["in_ram"] or {}).get("longest_n_ctx", 8192) < 8192
    ]
    assert f" {len(less)} of them were trained for less" in answer["summary"]
    assert rows["TinyLlama 1.1B"].endswith("|not needed|–|–|–")
    assert "trained for less" not in answered(list="on", n_ctx="2048")["summary"]


def test_weights_are_the_usual_ones():
    """Without a type those of the model, named in the headline, the command and the numbers; with one that."""
    native = answered(model="gpt-oss-20b", card="rtx-4090")
    assert native["data"] == answered(model="gpt-oss-20b", card="rtx-4090", type="MXFP4_MOE")["data"]
    assert " in MXFP4_MOE with " in native["summary"]
    assert command(model="gpt-oss-20b").startswith("inferlab plan gpt-oss-20b --type MXFP4_MOE ")
    assert " in Q4_K_M with " in answered(model="gpt-oss-20b", card="rtx-4090", type="Q4_K_M")["summary"]
    assert answered()["data"] == answered(type="Q4_K_M")["data"]
    assert "Weights: 'Q4' is not in the list" in answered(type="Q4")["view"][2]


def test_what_makes_a_model_fit_is_told_at_once():
    """Smaller weights where no setting does; a context is not called another one for being rounded up."""
    small = answered(model="qwen3-30b-a3b-2507", card="apple-m4-pro:24")
    assert small["summary"].endswith(" It fits in Q3_K_M.")
    assert answered(model="qwen3-30b-a3b-2507", card="apple-m4-pro:24", type="Q3_K_M")["data"]["fits"] == "yes"
    rounded = answered(model="gemma-2-9b", card="gtx-970", n_ctx="5000")["summary"]
    assert " with 5,120 tokens of context does not fit " in rounded
    assert re.search(r"It fits with \d+ layers on the card\.$", rounded)


def test_what_does_not_fit_is_told_apart_from_what_is_not_known(monkeypatch):
    """One sentence each, with the number and the names; weights with a part in RAM have a bound, and the reason."""
    placed = Placed("Q4_K_M", 4 * GIB, -1, 0, 33, 8192, True)
    why = "Not even Q2_K fits."
    neither = [Runs(name, name.upper(), 1, None, None, why, is_known=name != "c") for name in "abc"]
    found = [Runs("d", "D", 1, placed, None), *neither]
    monkeypatch.setattr(planner, "what_runs", lambda *_: iter(found))
    told = html_of(answered(list="on")["view"])
    assert "Not even Q2_K fits of 2 models: A, B." in told
    assert "These settings cannot be planned for 1 model: C." in told
    assert "Q8_0 at most" in told
    assert "Q8_0 at most" not in html_of(answered(list="on", card="apple-m4:16")["view"])
    monkeypatch.setattr(planner, "what_runs", lambda *_: iter(found[:1]))
    assert " model: " not in html_of(answered(list="on")["view"])


def test_a_list_refuses_in_words_of_the_form():
    """What it cannot take is named as its field is."""
    assert "Cards share: 'tensor': the list is of" in answered(list="on", n_cards="2", split_mode="tensor")["view"][2]
    assert "Cache on the card off: the list is of" in answered(list="on", offload_kqv="")["view"][2]


def test_every_field_has_a_sentence_of_help():
    """Which a screen reader reads with the field; four fields are asked, all others are folded."""
    soup = BeautifulSoup(html_of(planner.form()), "html.parser")
    named = [control for control in soup.select("[name]") if control.get("type") != "hidden"]
    without = {control["name"] for control in named if not soup.find(id=control.get("aria-describedby") or "no")}
    assert without <= {addressed.NAME}
    folded = {control["name"] for control in soup.select(".instrument-more [name]")}
    open_to_all = [control["name"] for control in named if control["name"] not in folded]
    conditional = {control["name"] for control in soup.select("[data-only] [name]")}
    assert [name for name in open_to_all if name not in conditional] == ["model", "card", "ram", "n_ctx"]


def test_words_are_those_of_the_form():
    """No option of the command line, no name of a device, and no lines where there are none."""
    told = shown(model="qwen3-235b-a22b")[1].partition("Settings for")[0]
    assert not re.search(r"--[a-z]|gpu0|host would|n_ctx=", told)
    assert "so there are no lines to paste" in told
    assert "further down" not in told
    assert "Kept free on each card: 30.00 GiB kept free of 8.00 GiB" in answered(reserve="30")["view"][2]


def test_layers_in_a_shared_memory_make_no_difference():
    """Which is not the same as no layer at all."""
    below = shown(card="apple-m4:16", n_ctx="131072")[1]
    assert ">makes no difference<" in below
    assert ">none<" not in below


def test_the_largest_weights_stand_beside_the_other_answers():
    """For a model of the list: the type that fits whole, which is the answer to "which quantization"."""
    answer = answered(type="Q8_0")
    value = answer["data"]["answers"]["weights_type"]["value"]
    assert value == "Q6_K"
    assert re.search(rf"Largest weights, all on the card</\w+><td[^>]*>{value}<", html_of(answer["view"]))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, r"context 16,384</\w+><td[^>]*>[\d.]+ GiB more<"),
        ({}, r"cache type q8_0</\w+><td[^>]*>[\d.]+ MiB to [\d.]+ MiB less<"),
        ({"type_k": "q8_0", "type_v": "q8_0"}, r"context 16,384</\w+><td[^>]*>[\d.]+ MiB more at worst<"),
    ],
)
def test_a_step_shows_both_ends_of_a_bound(changed, told):
    """Exact where both plans are, a range where one is a bound, and the upper ends compared where both are."""
    assert re.search(told, shown(**changed)[1])


def test_the_column_of_steps_names_its_memory():
    """The card, the fullest of several, or the memory that processor and GPU share."""
    for changed, head in (
        ({}, "On the card"),
        ({"n_cards": "2"}, "On the fullest card"),
        ({"card": "apple-m4:16"}, "Shared memory"),
    ):
        assert f">{head}<" in shown(**changed)[1].partition("Change one setting to")[2]


def test_what_is_rounded_is_said():
    """With the multiple and the reason; what stays as it was asked for needs no sentence."""
    below = shown(n_ctx="6000")[1]
    assert "rounded up from 6,000 to 6,144 tokens: llama.cpp reserves the KV cache in multiples of 256 tokens." in below
    assert "from 8,192 to 8,448 tokens" in shown(n_seq_max="3")[1]
    assert "in multiples of 256 tokens for each of the 3 slots." in shown(n_seq_max="3")[1]
    assert "rounded" not in shown()[1]


def test_mxfp4_of_a_model_without_experts_is_said_to_be_q8_0():
    """The bytes are those of Q8_0, and a sentence says why; experts need none."""
    said = "this model has none: llama.cpp makes all of its matrices Q8_0."
    assert said in shown(type="MXFP4_MOE", card="rtx-4090")[1]
    weights = [answered(type=mix)["data"]["devices"]["gpu0"]["weights_bytes"] for mix in ("MXFP4_MOE", "Q8_0")]
    assert weights[0] == weights[1]
    assert said not in shown(model="qwen3-30b-a3b", type="MXFP4_MOE", card="rtx-4090")[1]
    assert said not in shown(type="Q8_0", card="rtx-4090")[1]


def test_a_context_beyond_training_is_said_above_the_lines():
    """And the longest context is never above it."""
    said = "The model was trained for 4,096 tokens; more are of little use."
    below = shown(model="llama-2-7b", card="rtx-4090")[1]
    assert said in below.partition("<details")[0]
    assert "4,096 tokens" in below
    assert "memory would allow more" in below
    assert said not in shown(model="llama-2-7b", n_ctx="4096")[1]
    lines = shown(model="llama-2-7b", card="apple-m4:16", n_ctx="99999")[1]
    assert "These lines have a context of 4,096 tokens (n_ctx), the longest that the model was trained for." in lines
    assert "The model was trained for 32,768 tokens; more" in shown(n_ctx="1000000000")[1].partition("<details")[0]


texts = st.text(max_size=12) | st.sampled_from([*sized_cards(), "file", "other", "on", "", "0", "-1", "8192", "1e9"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*planner.DEFAULTS.keys() - {planner.LIST}]), texts), st.booleans())
def test_any_link_has_an_answer(changed, whole):
    """Whatever stands in a link, something is shown: a plan or a reason, and never an error that nobody catches."""
    answer = instruments.answered("planner", {**planner.DEFAULTS, **changed} if whole else changed, NOWHERE)
    assert answer["state"] in ("yes", "no", "unsure", "refused")
    assert instruments.UNEXPECTED not in html_of(answer["view"])


def test_a_fault_is_shown_and_not_lost(monkeypatch):
    """What nobody expected stands in the answer, with a request to report it."""
    monkeypatch.setattr(planner, "fit", None)
    shown = html_of(answered()["view"])
    assert "This should not happen. Please report it" in shown
    assert "TypeError" in shown


# --- files --------------------------------------------------------------------------------------------------


def sent(files: DroppedFiles, path: Path) -> list[dict]:
    """The replies to a file that a front end sends as it is told to, the first mebibyte first."""
    size = path.stat().st_size
    replies, start, end = [], 0, min(size, 2**20)
    with path.open("rb") as file:
        while True:
            replies.append(instruments.sent(files, path.name, size, start, file.read(end - start)))
            if replies[-1]["kind"] != "more":
                return replies
            start, end = replies[-1]["start"], replies[-1]["end"]


def test_a_header_is_sent_until_it_is_whole(tmp_path):
    """The embedded model's vocabulary fits into one slice; a longer header takes more, each at most 4 MiB."""
    assert sent(DroppedFiles(tmp_path), tiny_model()) == [{"kind": "read", "name": tiny_model().name}]
    long, files = with_long_header(tmp_path / "long.gguf", 10 * 2**20), DroppedFiles(tmp_path / "received")
    files.folder.mkdir()
    replies = sent(files, long)
    assert [reply["kind"] for reply in replies] == ["more"] * (len(replies) - 1) + ["read"]
    assert len(replies) > 3
    assert all(reply["end"] - reply["start"] <= 2**22 for reply in replies[:-1])
    assert files.model("long.gguf").tensors == read_gguf(long).tensors


def with_long_header(path: Path, n_bytes: int) -> Path:
    """A small model with a description of so many bytes in its header."""
    model = read_gguf(write_model(path, "llama"))
    plain = {key: value for key, value in model.metadata.items() if isinstance(value, int | float | str)}
    tensors = tuple(replace(tensor, offset=tensor.offset - model.tensors[0].offset) for tensor in model.tensors)
    header = header_bytes({**plain, "general.description": "x" * n_bytes}, tensors)
    path.write_bytes(header)
    os.truncate(path, len(header) + model.tensor_bytes + 2**20)
    return path


def test_a_refusal_names_the_file_and_no_path(tmp_path):
    """What is no model is named as it was dropped, with its first letters, and with what to do on a page."""
    path = tmp_path / "server-default.log"
    path.write_bytes(b"0.00.035 I log")
    (reply,) = sent(DroppedFiles(tmp_path), path)
    assert reply["text"] == "server-default.log starts with '0.00', not 'GGUF'. Choose a .gguf file."


def test_a_part_that_is_missing_is_named_without_a_path(tmp_path):
    """A page cannot look beside a file: all parts are to be dropped together."""
    model = read_gguf(write_model(tmp_path / "whole.gguf", "llama"))
    plain = {key: value for key, value in model.metadata.items() if isinstance(value, int | float | str)}
    part, files = tmp_path / "m-00001-of-00002.gguf", DroppedFiles(tmp_path / "received")
    files.folder.mkdir()
    part.write_bytes(header_bytes({**plain, "split.no": 0, "split.count": 2}, ()))
    sent(files, part)
    with pytest.raises(ModelNotFound) as refused:
        files.model(part.name)
    assert str(refused.value) == (
        f"{part.name} needs 2 files; m-00002-of-00002.gguf is not beside it. Choose or drop all parts together."
    )


def test_a_file_chosen_again_replaces_the_older_one(tmp_path):
    """The same name with another content is the new file."""
    folder = tmp_path / "chosen"
    folder.mkdir()
    files = DroppedFiles(tmp_path)
    for n_layer in (4, 5):
        sent(files, write_model(folder / "m.gguf", "llama", n_layer=n_layer))
        assert files.model("m.gguf").n_layer == n_layer


@pytest.mark.parametrize("name", ["../../etc/passwd", "..\\..\\x", "/abs/x", ".hidden", "..", ""])
def test_a_name_leads_nowhere_else(tmp_path, name):
    """A file lies in the folder of dropped files, whatever its name says."""
    path = DroppedFiles(tmp_path).path(name)
    assert path.parent == tmp_path
    assert path.name not in ("", ".", "..")


def test_mutated_headers_are_read_or_refused(tmp_path):
    """A few hundred here; tests/benchmarks/test_instruments_fuzz.py has many more."""
    fuzz_headers(tmp_path, Random(1), 300)


def test_a_missing_file_is_an_error_of_the_library(tmp_path):
    """It can be caught like any other."""
    with pytest.raises(ModelNotFound) as found:
        DroppedFiles(tmp_path).model("m.gguf")
    assert isinstance(found.value, InferlabError)


def test_a_model_with_windows_is_planned_as_llama_server_starts_it():
    """Unless `--swa-full` is asked for, sliding layers keep their window, and the lines say nothing of it."""
    summary, told = shown(model="gemma-3-4b", n_ctx="32768")
    assert "fits" in summary
    assert "--swa-full" not in told
    assert answered(model="gemma-3-4b", n_ctx="32768")["data"]["answers"]["largest_n_ctx"]["value"] == 131_072
    assert "--swa-full" in shown(model="gemma-3-4b", swa_full="on")[1]


def test_one_screen_names_one_need_of_ram():
    """The RAM beside the lines is that of the plan, not of larger weights with the same settings."""
    asked = {"model": "qwen3-30b-a3b", "n_ctx": "32768", "type_k": "q8_0", "type_v": "q8_0", "cpu_moe": "on"}
    summary, told = shown(**asked)
    needs = set(re.findall(r"needs? up to ([\d.]+ GiB)", summary + told))
    assert len(needs) == 1
