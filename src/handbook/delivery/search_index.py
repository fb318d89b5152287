"""Writes what the search dialog searches: the texts of all pages, and the spellings of a word that count as one.

It is a script, because a page opened from disk may load scripts and may not fetch its neighbours. It is small, and says
every word of the pages but for sections that only point to others: a common word is one character, and an anchor that
follows from its heading is not written.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from handbook.delivery import page_texts
from handbook.delivery.page_texts import PageTexts, Section
from inferlab.model.catalog import known_models
from inferlab.prediction.cards import known_cards

SPELLINGS = {
    "analyse": "analyze",
    "behaviour": "behavior",
    "centre": "center",
    "colour": "color",
    "licence": "license",
    "programme": "program",
}
"""British word -> the word of the book; `-ise` for `-ize` is a rule of search.js."""

POINTERS = ("References", "What\u2019s next", "What's next")
"""Headings of sections that only link to pages, which a search finds themselves."""

ALSO = {
    "book/planner": ("VRAM calculator", "memory calculator", "which model", "GPU"),
    "book/which-model": ("best model", "recommended model", "12 GB", "16 GB", "24 GB", "Mac"),
    "book/why-is-it-slow": ("slow", "tokens per second", "speed"),
    "book/log-reader": ("crash", "error", "log", "error message"),
    "book/it-does-not-fit": ("out of memory", "OOM", "context too long", "n_ctx too large"),
    "book/your-numbers": ("llama-bench", "benchmark", "browser benchmark"),
    "book/machine/eight-gb-card": ("8 GB", "8 GB VRAM", "RTX 4060"),
    "book/machine/cpu-alone": ("CPU", "no GPU", "without a GPU"),
    "book/machine/several-cards": ("multi-GPU", "two GPUs"),
    "book/program/ollama": ("num_ctx", "LM Studio"),
    "book/optimization/one-request": ("Docker", "container", "systemd", "llama-server"),
    "book/optimization/experts-in-ram": ("MoE", "mixture of experts"),
    "book/optimization/sampling-cost": ("temperature", "top-p", "top-k"),
    "book/optimization/flash-attention": ("KV cache quantization", "cache type"),
    "book/optimization/speculation": ("speculative decoding", "draft model"),
}
"""Page -> what readers call its subject, beside its own words."""

PLANNED = "book/planner"
"""The page that is found by the name of each card and model that it knows."""

SIGNS = [chr(code) for code in range(0xA1, 0xC00)]
"""The characters that may stand for a word, the commonest with two bytes each; search.js has the same range."""

WORD = re.compile(r" [\w-]{2,}")
"""A word that a sign may stand for, with the space before it."""


def setup(app) -> None:
    """Give each page the search, and write the index when a build ends; it is loaded when somebody searches."""
    app.add_js_file("search.js", loading_method="defer")
    app.connect("build-finished", _write)


def index(pages: dict[str, PageTexts]) -> dict:
    """The index: for each page its address, its title, its sections as heading, text and, if need be, anchor, and what
    else its subject is called."""
    listed = [[f"{name}.html", texts.title, _entries(texts.sections), *_also(name)] for name, texts in pages.items()]
    return {"spellings": SPELLINGS, "pages": listed}


def _also(name: str) -> list[list[str]]:
    """The other names of a page's subject, if it has any."""
    planned = [*known_models().titles.values()] + [card.title for card in known_cards().values()]
    others = [*ALSO.get(name, ()), *(planned if name == PLANNED else ())]
    return [others] if others else []


def _entries(sections: Iterable[Section]) -> list[list[str]]:
    return [_entry(part) for part in sections if part.heading not in POINTERS]


def packed(text: str) -> dict[str, str | list[str]]:
    """A text with one sign for each of its commonest words, and what each sign stands for: a word, or itself.

    A server then sends less: gzip finds a repetition only in the 32 KiB before it, which now hold more of the text.
    """
    counts, used = Counter(WORD.findall(text)), set(text)
    common = iter(sorted(counts, key=lambda word: -counts[word] * len(word)))
    words = [sign if sign in used else next(common, sign) for sign in SIGNS]
    signs = dict(zip(words, SIGNS, strict=True))
    return {"words": words, "text": WORD.sub(lambda word: signs.get(word[0], word[0]), text)}


def script(pages: dict[str, PageTexts]) -> str:
    """The script that search.js loads."""
    return as_script("handbookSearchIndex", packed(_as_json(index(pages))))


def as_script(name: str, value: object) -> str:
    """A script that gives a value a name in the page that loads it."""
    return f"window.{name} = {_as_json(value)};\n"


def _entry(part: Section) -> list[str]:
    """A section as search.js reads it, which makes an anchor of the heading's words where none is written."""
    follows = part.anchor == "-".join(re.findall("[a-z0-9]+", part.heading.lower()))
    return [part.heading, part.text, *([] if follows else [part.anchor])]


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _write(app, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        text = script(page_texts.kept(app))
        (Path(app.outdir) / "_static" / "search-index.js").write_text(text, encoding="utf-8")
