"""Words that all parts of "Your numbers" use. Texts of a file are cut to lengths that a page can hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from inferlab.instruments.log_view import LONGEST_NAME, cut
from inferlab.instruments.views import element, paragraph
from inferlab.results.result import Result
from inferlab.units import count_text

LONG, MOST_ROWS, MOST_LISTED = 300, 100, 20
"""Characters of a sentence, rows of a table and entries of a list that are shown."""
PRODUCT = r" \w{1,40}/[\w.+-]{1,40}(?: \(KHTML, like Gecko\))?"
USER_AGENT = re.compile(rf"Mozilla/5\.0 \(([^()]{{0,200}})\)(?:{PRODUCT}){{0,8}}")
"""What a browser calls itself, with its system in brackets."""
BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "HeadlessChrome": "Chrome",
    "Chrome": "Chrome",
    "Version": "Safari",
}
"""Word before a version -> browser, in the order of what tells: most say Safari and Chrome, too."""
SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "iOS",
    "iPad": "iPadOS",
    "Mac OS X": "macOS",
    "Linux": "Linux",
}


def machine_text(name: str) -> str:
    """A machine's name at a length that a page can hold: `WebAssembly in Chrome 156 on Linux`."""
    return cut_inside(USER_AGENT.sub(_browser, name))


def _browser(user_agent: re.Match[str]) -> str:
    """Browser, version and system of what a browser calls itself; all of it where they are not known."""
    versions = dict(re.findall(r"(\w+)/(\d+)", user_agent[0]))
    browser = next((f"{name} {versions[word]}" for word, name in BROWSERS.items() if word in versions), None)
    system = next((name for word, name in SYSTEMS.items() if word in user_agent[1]), None)
    return " on ".join(filter(None, (browser, system))) if browser else user_agent[0]


def cut_inside(text: str) -> str:
    """A text without its middle if it is too long: long names differ at their ends."""
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[:half]} … {text[-half:]}"


def model_text(result: Result) -> str:
    """The model as its file describes it; for a size that llama.cpp does not know, `?B`, the number of its weights."""
    n = result.n_params
    size = f"{n / 1e9:.3g}B" if n and n >= 1e9 else f"{n / 1e6:.3g}M" if n else "?B"
    return cut(result.model.replace("?B", size))


def where(result: Result, settings: Sequence[str] = (), with_machine: bool = True) -> str:
    """The file and the workload of a test, its machine, the threads of a processor, and settings by their names."""
    threads = result.settings.get("n_threads") if result.on_processor and "n_threads" not in settings else None
    machine = [machine_text(result.machine)] * with_machine
    counted = [f"{cut(threads)} thread{'s' if threads != '1' else ''}"] if threads else []
    return ", ".join([cut(result.source), result.test, *machine, *counted, *named(result, settings)])


def varying(results: Iterable[Result]) -> list[str]:
    """The settings in which the tests differ."""
    results = list(results)
    names = dict.fromkeys(name for result in results for name in result.settings)
    return [name for name in names if len({result.settings.get(name, "") for result in results}) > 1]


def named(result: Result, settings: Sequence[str]) -> list[str]:
    """Settings of a test with their values, those that it has."""
    return [f"{name} {cut(result.settings[name])}" for name in settings if name in result.settings]


def value_text(text: str) -> str:
    """A value of a file, or that the file has none."""
    return machine_text(text) or "not named"


def more(n: int, what: str) -> list[Any] | None:
    """How many are not shown; None if all are."""
    return paragraph(f"And {count_text(n, f'more {what}')}.") if n > 0 else None


def listing(title: str, sentences: Sequence[str]) -> list[Any] | None:
    """Sentences below a title; None without one."""
    if not sentences:
        return None
    rest = [f"And {len(sentences) - MOST_LISTED:,} more."] if len(sentences) > MOST_LISTED else []
    entries = (element("li", {}, cut(sentence, LONG)) for sentence in [*sentences[:MOST_LISTED], *rest])
    return element("section", {"class": "instrument-list"}, element("h2", {}, title), element("ul", {}, *entries))


def folded(name: str, title: str, *parts: Any) -> list[Any]:
    """Parts that a reader unfolds; it stays as it was when the next answer comes."""
    return element("details", {"id": name}, element("summary", {}, title), *parts)
