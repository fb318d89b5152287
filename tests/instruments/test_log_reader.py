"""The log reader's answers: findings of logs as views, the example, and texts of a log that stay texts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from bs4 import BeautifulSoup
from written_logs import LOGS

from inferlab.errors import InferlabError
from inferlab.instruments import answered
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.log_reader import DEFAULTS, answer, example_log
from inferlab.instruments.views import html_of
from inferlab.log_reader import explain
from inferlab.log_reader.rules import rules

NO_FILES = DroppedFiles(Path("none"))
RUNS = Path(__file__).parents[1] / "data" / "logs"
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(RUNS.glob("*.log"))} | {
    f"written-{name}": text for name, (text, _) in LOGS.items()
}
HOSTILE = '<img src=x onerror="alert(1)"></pre><script>alert(2)</script>'
LONGEST_TEXT = 800


def shown(log: str) -> BeautifulSoup:
    """The answer to a log as a page."""
    return BeautifulSoup(html_of(answer({"log": log}, NO_FILES).view), "html.parser")


def test_the_default_answer_is_for_the_example_and_says_so():
    """An empty form is answered with a log whose layers lie half in RAM; a pasted log is no example."""
    found = answer(DEFAULTS, NO_FILES)
    assert (found.state, found.data["findings"][0]["id"]) == ("unsure", "layers-on-cpu")
    assert found.summary.startswith("Example: 3 of 7 layers")
    page = BeautifulSoup(html_of(found.view), "html.parser")
    assert page.select_one("#example pre").get_text() == example_log()
    own = answer({"log": example_log()}, NO_FILES)
    assert (own.data, own.summary) == (found.data, found.summary.removeprefix("Example: "))
    assert "example" not in html_of(own.view)


def test_the_example_is_part_of_a_real_run():
    """Its lines are lines of the log of that run, in their order, and say the same."""
    lines = iter(TEXTS["server-some-layers"].splitlines())
    assert all(line in lines for line in example_log().splitlines())
    found, whole = explain(example_log()), explain(TEXTS["server-some-layers"])
    assert (found.table, found.layers, found.prompt) == (whole.table, whole.layers, whole.prompt)


@pytest.mark.parametrize("name", TEXTS)
def test_every_log_has_its_view(name):
    """Each finding stands there with its lines, its fix and its page; each size, and what is not known."""
    report = explain(TEXTS[name].encode())
    page = shown(TEXTS[name])
    findings = page.select(".instrument-finding")
    assert len(findings) == len(report.findings)
    for finding, box in zip(report.findings, findings, strict=True):
        numbers = [int(line.partition(":")[0]) for line in box.pre.get_text().split("\n")] if box.pre else []
        assert numbers == [line.number for line in finding.lines]
        assert len(box.select("li")) == len(finding.fix)
        assert [link["href"].rpartition("#")[2] for link in box.select("a")] == [finding.anchor] * bool(finding.page)
    sizes = [row.th.get_text() for row in page.select("section:has(th:-soup-contains('Weights')) tbody tr")]
    assert sizes == [*report.table]
    unknown = [item.get_text() for item in page.select("section")[-1].select("li")]
    assert unknown[: len(report.unknown)] == [sentence.replace("`", "") for sentence in report.unknown]
    assert len(unknown) == len(report.unknown) or not page.select(".instrument-derived")


def test_the_first_line_is_marked_by_what_was_found():
    """A fault is bad news; what is slow, or not known, is neither; nothing found in a log with sizes is good news."""
    states = {name: answer({"log": TEXTS[name]}, NO_FILES) for name in ("server-slots", "server-some-layers", "server")}
    assert [found.state for found in states.values()] == ["no", "unsure", "yes"]
    little = answer({"log": TEXTS["server-default"]}, NO_FILES)
    assert (little.state, little.summary.partition(",")[0]) == ("unsure", "Nothing was found")


def facts_of(log: str) -> dict[str, str]:
    """The table of what the log says."""
    rows = shown(log).select(".instrument-facts tbody tr")
    return {row.th.get_text(): row.td.get_text() for row in rows}


def test_the_context_is_told_as_the_slots_have_it():
    """Slots share all cells, or each has its own; of a single slot nothing is repeated."""
    assert facts_of(TEXTS["server-default"])["Context"] == "1,024 cells, shared by 4 slots"
    assert facts_of(TEXTS["server"])["Context"].startswith("1,024 cells, shared by 4 slots, ")
    assert facts_of(TEXTS["server-slots"])["Context"].startswith("1,024 cells, 4 slots, 256 cells for each slot")
    assert facts_of(TEXTS["server-some-layers"])["Context"].startswith("512 cells, 1 slot, 1,024 tokens")


def test_rates_of_several_requests_are_no_average():
    """The slowest and the fastest request, and how many there were."""
    assert facts_of(TEXTS["server-default"])["Answer"] == "4.45 to 161 tokens/s, 60 tokens in 2 requests"


def test_a_draft_model_is_named():
    """Two models were loaded, and the page says which of them it is about."""
    assert "a second model" in facts_of(TEXTS["server-draft"])["Draft model"]
    assert "Draft model" not in facts_of(TEXTS["server"])


@pytest.mark.parametrize(("text", "said"), [(" \n", "is empty"), ("GGUF\x03\0\0\0", "planner")])
def test_an_empty_file_and_a_model_are_called_so(text, said):
    """Neither is answered with the example."""
    found = answered("log-reader", {"log": text}, NO_FILES)
    assert found["state"] == "refused"
    assert said in html_of(found["view"])


def test_addresses_of_pages_are_relative_to_the_log_readers_own():
    """A page beside it, and one in another folder of the book."""
    pages = {rule.page for rule in rules().values() if rule.page}
    assert {page.partition("/")[0] for page in pages} == {"book"}
    assert shown(TEXTS["server-some-layers"]).a["href"] == "./why-is-it-slow.html#slow-gpu-idle"


def test_a_log_is_text_and_never_markup():
    """Names, messages and devices that are scripts stand there letter by letter."""
    log = TEXTS["server-some-layers"].replace("inferlab tiny", HOSTILE).replace("AMX model", f"{HOSTILE} model")
    log = log.replace("offloaded 3/7 layers to GPU", f"offloaded 3/7 layers to GPU {HOSTILE}")
    page = shown(log)
    assert page.find_all(["img", "script"]) == []
    assert HOSTILE in page.get_text()


def test_long_texts_and_lists_are_cut():
    """A name of a thousand letters, a line of a megabyte and ten thousand devices make no long page."""
    devices = "".join(f"load_tensors: GPU{number} model buffer size = 1.00 MiB\n" for number in range(10_000))
    log = TEXTS["server-some-layers"].replace("inferlab tiny", "n" * 1000)
    log = log.replace("offloaded 3/7 layers to GPU", f"offloaded 3/7 layers to GPU {'x' * 10**6}") + devices
    page = shown(log)
    assert max(len(cell.get_text()) for cell in page.select("td, th, li, h2, p, pre")) < LONGEST_TEXT * 3
    assert len(page.select("tr")) < 50
    assert len(page.get_text()) < 20_000


@pytest.mark.parametrize("text", ["hello", "<!DOCTYPE html><title>No</title>", "\0\0\0", str(RUNS / "server.log")])
def test_what_is_no_log_is_refused_with_what_to_do(text):
    """Also the name of a file, which an instrument never opens."""
    found = answered("log-reader", {"log": text}, NO_FILES)
    assert found["state"] == "refused"
    assert "Give the file of a log" in html_of(found["view"])


@pytest.mark.parametrize("seed", range(4))
def test_damaged_logs_have_an_answer_or_a_reason(seed):
    """Lines cut, mixed, repeated, or with odd numbers: an answer that JSON can carry, or a refusal."""
    random, kinds = Random(seed), {"answered": 0, "refused": 0}
    for _ in range(100):
        log = damaged(random)
        try:
            found = answer({"log": log}, NO_FILES)
        except InferlabError:
            kinds["refused"] += 1
            continue
        kinds["answered"] += 1
        json.dumps(found.data, allow_nan=False)
        html_of(found.view)
    assert kinds["answered"] > 50


def damaged(random: Random) -> str:
    """A log of the fixtures with some of its lines changed."""
    lines = random.choice([*TEXTS.values()]).splitlines()
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(lines))
        line = lines[at]
        change = random.choice(["cut", "number", "swap", "again", "noise"])
        if change == "cut":
            lines[at] = line[: random.randrange(len(line) + 1)]
        elif change == "number":
            digits = random.choice(["0", "-1", "9" * 25, "9" * 400, "nan", "1e999", "٣", ""])
            lines[at] = "".join(digits if c.isdigit() and random.random() < 0.3 else c for c in line)
        elif change == "swap":
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], line
        elif change == "again":
            lines.insert(random.randrange(len(lines)), line)
        else:
            lines[at] = line + "".join(chr(random.choice([0, 27, 0x202E, 0xD800, 0x1F600, 60])) for _ in range(9))
    return "\n".join(lines)
