"""The planner in a browser: the numbers of the command line, headers of a reader's own files, and every button."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from bs4 import BeautifulSoup
from instrument_page import STARTING_MS, asked_elsewhere, told, watched_page
from playwright.sync_api import Page, expect
from small_models import FAMILIES, write_model
from split_files import write_split

from inferlab import cli
from inferlab.errors import UnsupportedArchitecture
from inferlab.instruments.planner import DEFAULTS
from inferlab.model.catalog import known_models
from inferlab.model.gguf import header_bytes, read_gguf
from inferlab.model.named import model_named
from inferlab.model.quant_mixes import MIXES
from inferlab.prediction.cards import sized_cards
from inferlab.prediction.expected import expected_fields
from inferlab.prediction.fit import fit
from inferlab.prediction.fit_fields import plan_fields
from inferlab.prediction.place import DEFAULT_RAM_BYTES, place_of_card
from inferlab.settings import KV_TYPES, Settings

PAGE = "book/planner.html"
COMBINATIONS = 100
ANSWER_MS = 20_000
ASK = """async (values) => {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer in time")), 60000));
  const el = document.querySelector(".instrument"), form = el.querySelector("form");
  const answered = new Promise((resolve) => {
    el.addEventListener("answered", ({ detail }) => resolve(detail), { once: true });
  });
  for (const [name, value] of Object.entries(values)) {
    if (form.elements[name].type === "checkbox") form.elements[name].checked = value === "on";
    else form.elements[name].value = value;
  }
  form.requestSubmit();
  return Promise.race([answered, late]);
}"""
HOSTILE = '<img src=x onerror="window.ran = true"><script>window.ran = true</script>'
WHOLE_FILE = 40 * 2**30


@pytest.fixture(scope="module")
def window(browser, site) -> Iterator[Page]:
    """One window in which the planner has started; it notes every address that is asked for, and every error."""
    with watched_page(browser, site + PAGE, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.evaluate(ASK, {"n_ctx": "4096"})
        yield page


@pytest.fixture
def page(window) -> Iterator[Page]:
    """The same window with the default question in its form; nothing else is asked for elsewhere, and nothing fails."""
    window.errors.clear()
    window.evaluate(ASK, DEFAULTS)
    yield window
    assert asked_elsewhere(window) == []
    assert window.errors == []


def combination(random: Random) -> dict[str, str]:
    """Values of the form that a reader could choose, most of them possible together."""
    chosen = {
        "model": random.choice([*known_models()]),
        "type": random.choice(["", *MIXES]),
        "card": random.choice([*sized_cards(), "other"]),
        "memory": random.choice(["4", "7.5", "16"]),
        "shared": random.choice(["", "on"]),
        "reserve": random.choice(["0", "0.5", "1", "2"]),
        "ram": random.choice(["8", "16", "32", "64"]),
        "system": random.choice(["2", "4", "4"]),
        "prompts": random.choice(["", "", "0", "2048"]),
        "gpu": random.choice(["", "", "", "6"]),
        "n_ctx": str(random.choice([512, 4096, 8192, 20_000, 131_072])),
        "n_gpu_layers": random.choice(["", "", "", "0", "10", "24"]),
        "n_cpu_moe": random.choice([*12 * [""], "7"]),
        "cpu_moe": random.choice([*12 * [""], "on"]),
        "override_tensor": random.choice(["", "", "", "ffn_down=CPU", "blk.1.attn=CPU, ffn_up=CPU"]),
        "type_k": random.choice([*KV_TYPES, "f16", "q8_0"]),
        "type_v": random.choice([*KV_TYPES, "f16", "q8_0"]),
        "flash_attn": random.choice(["auto", "auto", "auto", "auto", "on", "on", "off"]),
        "n_seq_max": random.choice(["1", "1", "4"]),
        "n_ubatch": random.choice(["512", "512", "128", "2048"]),
        "offload_kqv": random.choice(["on", "on", "on", ""]),
    }
    chosen["type_v"] = random.choice([chosen["type_k"], chosen["type_v"]])
    pooled, windowed = chosen["n_seq_max"] == "4", "gemma" in chosen["model"]
    chosen["kv_unified"] = random.choice(["", "on"] if pooled else [*20 * [""], "on"])
    chosen["swa_full"] = random.choice(["", "on"] if windowed else [*20 * [""], "on"])
    shared = chosen["shared"] if chosen["card"] == "other" else sized_cards()[chosen["card"]][0].unified
    one_or_two = {"n_cards": "1" if shared else random.choice(["1", "1", "2"])}
    alike = {"second": "", "tensor_split": "", "split_mode": "layer"}
    sharing = random.choice([{}, {}, {"second": "6", "tensor_split": "3,1"}, {"split_mode": "tensor"}])
    return chosen | one_or_two | alike | sharing


def printed(command: str) -> dict | None:
    """What the command line prints as JSON; None where it refuses."""
    output = StringIO()
    with redirect_stdout(output):
        status = cli.main([*shlex.split(command)[1:], "--json", "--no-simulation"])
    return json.loads(output.getvalue()) if status == 0 else None


def test_the_page_and_the_command_line_agree(page):
    """A hundred questions: each number, answer and step is that of the command which the page names."""
    random, kinds = Random(20261124), {"answered": 0, "refused": 0}
    for _ in range(COMBINATIONS):
        asked = combination(random)
        answer = page.evaluate(ASK, asked)
        if answer["state"] == "refused":
            kinds["refused"] += 1
            continue
        kinds["answered"] += 1
        command = page.locator("#how pre").text_content()
        assert answer["data"] == printed(command), command
    assert kinds["answered"] > COMBINATIONS * 0.6
    assert kinds["refused"] > 0


def test_the_default_answer_needs_no_script(open_page, built_book, page):
    """Without JavaScript the answer to the default question stands in the page, and no control that does nothing."""
    plain = open_page(PAGE, java_script_enabled=False)
    shown = first_part(plain)
    assert plain.locator(".instrument :is(form, button):visible").count() == 0
    soup = BeautifulSoup((built_book / PAGE).read_text(encoding="utf-8"), "html.parser")
    assert soup.select_one(".instrument-status").get_text() == page.locator(".instrument-status").inner_text()
    assert shown == first_part(page)


def first_part(page: Page) -> list[str]:
    """The words of an answer before what is folded."""
    return page.locator(".instrument-answer").inner_text().split("Settings for llama-server")[0].split()


def test_a_link_holds_the_whole_question(browser, page, site):
    """The address follows each answer; whoever opens it gets the same form and the same answer."""
    asked = {"model": "llama-3.2-1b", "card": "other", "memory": "3", "shared": "on", "offload_kqv": "", "n_ctx": "999"}
    answer = page.evaluate(ASK, asked)
    other = browser.new_page()
    other.set_default_timeout(STARTING_MS)
    other.goto(page.url)
    expect(other.locator(".instrument-status")).to_have_text(answer["summary"], timeout=STARTING_MS)
    for name, value in asked.items():
        control = other.locator(f"[name={name}]")
        shown = control.is_checked() if name in ("shared", "offload_kqv") else control.input_value()
        assert shown == (value == "on" if isinstance(shown, bool) else value)
    other.close()


def test_a_short_link_is_answered_with_what_the_form_shows(browser, site):
    """What a link leaves out is as in the form; a switch that is empty in it is off."""
    link = f"{site}book/planner.html?model=llama-3.2-1b&n_ctx=4096&offload_kqv=on&cpu_moe="
    with watched_page(browser, link) as other:
        status = other.locator(".instrument-status")
        expect(status).to_contain_text("Llama 3.2 1B in Q4_K_M with 4,096 tokens of context fits", timeout=STARTING_MS)
        assert other.locator("[name=type]").input_value() == ""
        assert not other.locator("[name=cpu_moe]").is_checked()


@pytest.fixture(scope="module")
def headers(tmp_path_factory) -> dict[str, Path]:
    """A small file of each architecture that the library knows."""
    folder = tmp_path_factory.mktemp("headers")
    return {family: write_model(folder / f"{family}.gguf", family) for family in FAMILIES}


def dropped(page: Page, files: list[Path]) -> dict:
    """What the page answers about files that were chosen."""
    return told(page, lambda: page.locator("[type=file]").set_input_files(files))


def test_a_header_of_each_architecture_is_planned(page, headers):
    """A dropped file gives the numbers of the library for the same file, or the library's reason why there are none."""
    page.evaluate(ASK, {"n_ctx": "2048", "model": "file", "file": "none.gguf"})
    for family, path in headers.items():
        answer = dropped(page, [path])
        data, refusal = planned(path, Settings(n_ctx=2048))
        assert (answer["data"], answer["state"] == "refused") == (data, bool(refusal)), family
        assert page.locator(".instrument-error").all_text_contents() == refusal


def planned(path: Path, settings: Settings) -> tuple[dict, list[str]]:
    """The library's numbers for a file, and its refusal if there is one."""
    try:
        place = {"vram": "8GiB", "ram": DEFAULT_RAM_BYTES}
        answer = fit(path, settings, simulate=False, with_steps=True, within_trained=True, **place)
        expected = {"expected": expected_fields(answer, model_named(path), place_of_card("rtx-4060"))}
        return json.loads(json.dumps(plan_fields(answer) | expected)), []
    except UnsupportedArchitecture as reason:
        return {}, [str(reason)]


def test_only_the_header_of_a_large_file_is_read(page, tmp_path, headers):
    """A file of 40 GiB is answered at once: the page has read the beginning of it, and knows the whole size."""
    large = tmp_path / "large.gguf"
    large.write_bytes(headers["llama"].read_bytes())
    os.truncate(large, WHOLE_FILE)
    page.evaluate("""() => {
      window.read = 0;
      const slice = Blob.prototype.slice;
      Blob.prototype.slice = function (start, end) { window.read += end - start; return slice.call(this, start, end); };
    }""")
    answer = dropped(page, [large])
    assert answer["data"]["model"]["name"] == "llama"
    assert 0 < page.evaluate("window.read") <= 2**21


def test_a_split_model_needs_all_its_parts(page, tmp_path):
    """One part alone is refused with the name of the next; together they are one model."""
    parts = split_model(tmp_path)
    page.evaluate(ASK, {"model": "file", "file": "none.gguf", "n_ctx": "2048"})
    assert dropped(page, parts[:1])["state"] == "refused"
    assert f"{parts[1].name} is not beside it" in page.locator(".instrument-error").text_content()
    answer = dropped(page, parts[::-1])
    expected = plan_fields(fit(parts[0], Settings(n_ctx=2048), vram="8GiB", simulate=False))
    assert answer["data"]["model"] == expected["model"]
    assert answer["data"]["devices"] == expected["devices"]


def split_model(folder: Path) -> list[Path]:
    """A small model in two files, the tensors of its second half in the second."""
    return write_split(folder, "model", write_model(folder / "whole.gguf", "llama"), 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><title>Not found</title>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 40, "cannot fit"),
        (b"GGUF\x03\0\0\0" + b"\0" * 40, "has no general.architecture"),
    ],
)
def test_a_file_that_is_no_model_is_named(page, tmp_path, content, said):
    """What was found and what to do stands beside the verdict of what is shown, and the page goes on."""
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    page.locator("[name=model]").select_option("file")
    page.locator("[type=file]").set_input_files([path])
    expect(page.locator(".instrument-said")).to_contain_text(said, timeout=ANSWER_MS)
    assert page.evaluate(ASK, DEFAULTS)["state"] == "yes"


def test_names_are_text_and_never_markup(page, tmp_path):
    """A file whose names are scripts is planned, and its name stands there letter by letter."""
    model = read_gguf(write_model(tmp_path / "small.gguf", "llama"))
    plain = {key: value for key, value in model.metadata.items() if isinstance(value, int | float | str | bool)}
    tensors = tuple(replace(tensor, offset=tensor.offset - model.tensors[0].offset) for tensor in model.tensors)
    path = tmp_path / "a<b onload=x>.gguf"
    header = header_bytes({**plain, "general.name": HOSTILE}, tensors)
    path.write_bytes(header)
    os.truncate(path, len(header) + model.tensors[-1].offset + model.tensors[-1].n_bytes)
    page.locator("[name=model]").select_option("file")
    answer = dropped(page, [path])
    assert page.locator(".instrument-status").inner_text().startswith(HOSTILE)
    assert answer["data"]["model"]["name"] == HOSTILE
    assert page.locator(".instrument-answer :is(img, script)").count() == 0
    assert page.evaluate("window.ran === undefined")


def test_a_wrong_value_names_its_field_and_the_next_answer_comes(page):
    """An error is announced, says what to write, and nothing is lost."""
    page.locator("[name=n_ctx]").fill("0")
    expect(page.locator(".instrument-error[role=alert]")).to_contain_text("Context: 0 must be", timeout=ANSWER_MS)
    page.locator("[name=n_ctx]").fill("2048")
    expect(page.locator(".instrument-status")).to_contain_text("2,048 tokens", timeout=ANSWER_MS)
    assert page.locator("[role=alert]").count() == 0


def test_every_button_does_what_it_says(page):
    """Copy puts the lines into the clipboard, Save gives the numbers as a file, and folds stay as they were opened."""
    page.locator("#for-ollama summary").click()
    box = page.locator("#for-ollama .instrument-code").first
    box.get_by_role("button", name="Copy").click()
    expect(box.get_by_role("button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == box.locator("pre").text_content()
    page.locator("#how summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the numbers").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert saved == page.evaluate(ASK, DEFAULTS)["data"]
    assert page.locator("#for-ollama").get_attribute("open") is not None


def test_controls_show_what_a_choice_needs(page):
    """The fields of another card and of an own file are there only for those choices."""
    expect(page.locator("[name=memory]")).to_be_hidden()
    page.locator("[name=card]").select_option("other")
    expect(page.locator("[name=memory]")).to_be_visible()
    expect(page.locator("[type=file]")).to_be_hidden()
    page.locator("[name=model]").select_option("file")
    expect(page.locator("[type=file]")).to_be_visible()
    expect(page.locator("[name=type]")).to_be_hidden()


def test_the_keyboard_is_enough(page):
    """Tab reaches each control in its order, an arrow changes a choice, and the answer follows."""
    page.locator("[name=model]").focus()
    seen = []
    for _ in range(4):
        seen.append(page.evaluate("document.activeElement.name"))
        page.keyboard.press("Tab")
    assert seen == ["model", "card", "ram", "n_ctx"]
    assert page.evaluate("document.activeElement.textContent") == "What runs on mine?"
    unfold(page)
    page.locator("[name=type]").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".instrument-status")).to_contain_text(f" in {next(iter(MIXES))} ", timeout=ANSWER_MS)


def unfold(page: Page) -> None:
    """Open the further settings."""
    if page.locator(".instrument-more[open]").count() == 0:
        page.locator(".instrument-more > summary").click()


def test_what_runs_is_listed_and_sorted(page):
    """A press lists every model that fits; a head sorts them, a name plans one, and the form stays usable meanwhile."""
    answer = told(page, lambda: page.get_by_role("button", name="What runs on mine?").click())
    assert [runs["name"] for runs in answer["data"]["models"]] != []
    rows = page.locator(".instrument-list tbody tr")
    assert rows.count() == sum(bool(runs["whole"] or runs["in_ram"]) for runs in answer["data"]["models"])
    page.locator(".instrument-list thead button").nth(2).click()
    longest = [
        int(value)
        for value in rows.locator("td:nth-child(3)").evaluate_all("all => all.map((one) => one.dataset.value)")
    ]
    assert longest == sorted(longest, reverse=True)
    names = page.locator(".instrument-list tbody th")
    page.locator(".instrument-list thead button").first.click()
    first, *_, last = names.all_inner_texts()
    assert first < last
    planned = told(page, lambda: rows.first.get_by_role("button").first.click())
    assert planned["data"]["fits"] == "yes"
    assert page.locator(".instrument-list").count() == 0


def test_larger_weights_are_planned_with_their_part_in_ram(page):
    """They have a button of their own beside a model that fits whole; a plan finds no shorter context."""
    answer = told(page, lambda: page.get_by_role("button", name="What runs on mine?").click())
    both = next(runs for runs in answer["data"]["models"] if runs["whole"] and runs["in_ram"])
    planned = told(page, lambda: page.locator(".instrument-list tbody td button").first.click())
    assert planned["data"]["fits"] == "yes"
    assert f" in {both['in_ram']['type']} with " in planned["summary"]
    assert planned["data"]["answers"]["largest_n_ctx"]["value"] >= both["in_ram"]["longest_n_ctx"]


def test_back_has_the_list_again(page):
    """A name of the list is a step of its own, and its verdict is in sight and has the focus."""
    told(page, lambda: page.get_by_role("button", name="What runs on mine?").click())
    told(page, lambda: page.locator(".instrument-list tbody button").last.click())
    status = page.locator(".instrument-status")
    expect(status).to_be_focused()
    expect(status).to_be_in_viewport()
    listed = told(page, lambda: page.go_back())
    assert page.locator("[name=list]").input_value() == "on"
    assert status.inner_text() == listed["summary"]
    assert told(page, lambda: page.go_forward())["data"]["fits"] == "yes"


def test_a_list_stays_one_until_a_model_is_chosen(page):
    """Other memory or context is asked of the list; a model, or its file, ends it."""
    told(page, lambda: page.get_by_role("button", name="What runs on mine?").click())
    assert "models" in told(page, lambda: page.locator("[name=ram]").fill("64"))["data"]
    assert "models" in told(page, lambda: page.locator("[name=card]").select_option("rtx-4090"))["data"]
    assert "fits" in told(page, lambda: page.locator("[name=model]").select_option("llama-3.2-1b"))["data"]


def test_the_order_of_a_list_is_chosen_on_a_phone_too(page):
    """The heads of other tables are hidden there; those of the list are buttons above it."""
    told(page, lambda: page.get_by_role("button", name="What runs on mine?").click())
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".instrument-list thead button").first.click()
    expect(page.locator(".instrument-list thead th").first).to_have_attribute("aria-sort", "ascending")
    page.set_viewport_size(wide)


def test_a_start_ahead_of_a_question_is_silent(open_page, site):
    """Whoever unfolds the further settings still reads the verdict alone."""
    page = open_page(site + PAGE)
    page.wait_for_selector(".instrument fieldset:not([disabled])")
    said = page.locator(".instrument-status").inner_text()
    with page.expect_worker():
        unfold(page)
    page.wait_for_timeout(1000)
    assert page.locator(".instrument-status").inner_text() == said
    assert page.locator(".instrument[aria-busy]").count() == 0


def test_a_link_with_a_further_setting_unfolds_them(browser, site):
    """Whoever opens it sees what is not as usual."""
    with watched_page(browser, f"{site}{PAGE}?n_seq_max=2") as other:
        expect(other.locator("[name=n_seq_max]")).to_be_visible()
    with watched_page(browser, f"{site}{PAGE}?n_ctx=4096&offload_kqv=on&flash_attn=auto") as other:
        expect(other.locator("[name=n_seq_max]")).to_be_hidden()


def test_a_start_can_be_cancelled(open_page, site):
    """Cancel ends the worker and keeps the answer before, with its verdict; the next question starts it again."""
    page = open_page(site + PAGE)
    page.locator("[name=n_ctx]").fill("2048")
    page.get_by_role("button", name="Cancel").click(timeout=STARTING_MS)
    status = page.locator(".instrument-status")
    expect(status).to_have_text(re.compile(r" to spare\. Cancelled\. Nothing below has changed\.$"))
    expect(page.locator(".instrument-answer")).to_contain_text("-c 8192")
    page.locator("[name=n_ctx]").fill("1024")
    expect(status).to_contain_text("1,024 tokens", timeout=STARTING_MS)
