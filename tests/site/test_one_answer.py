"""One question has one answer: what pages say of a model on the card of 8 GB, gathered and compared.

Gathered are the facts in sentences (`handbook.key_facts`), the tables whose rows are models, the planner's first
answer, and the sentences that name a model with its bytes of cache for a token, or with a context that was computed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import product

from bs4 import BeautifulSoup, Tag
from docutils.nodes import make_id

from handbook import key_facts
from inferlab.model.catalog import known_models

NAMES = {model.name: key for key, model in known_models().items()}
SHORT = {re.sub(r" v\d.*", "", name): key for name, key in sorted(NAMES.items())}
"""A model as sentences name it, without its version -> its key; of several versions the last."""
MODEL = re.compile("|".join(map(re.escape, sorted(SHORT, key=len, reverse=True))))
COLUMN = re.compile(r"longest, (f16|q8_0)(?: cache)?|(flash attention on)$|(on, cache in q8_0)")
PER_TOKEN = re.compile(
    r"([\d.,]+ [KM]iB) (?:of (?:KV )?cache )?(?:per|a|for each) token|(?:One|A) token\b.*? takes ([\d.,]+ [KM]iB)"
)
COMPUTED = re.compile(r"\b(\d[\d,]*) tokens")
ANOTHER_QUESTION = re.compile(r"(?:take|keep|leave|reserve)\w* (?:of )?[\d.]+ [GM]iB")
"""A sentence that says how much is kept free asks another question."""
SHORTEST, CELLS, ROUND = 4096, 256, (1000, 2048)
"""A computed context is whole steps of the cache; a chosen one is a round number."""

Found = Iterator[tuple[str, str]]
"""Question and answer, such as ("longest llama-3.1-8b q8_0", "33,536")."""


def facts_of(article: Tag) -> Found:
    """The facts that the pages take from one place; `longest-llama-3-1-8b-q8-0` is the class of one."""
    for fact in article.select(f".{key_facts.FACT}"):
        yield QUESTIONS.get(fact["class"][1], fact["class"][1]), fact.get_text()


def question(model: str, cache_type: str) -> str:
    return f"longest {model} {cache_type}"


ASKED = [question(key, cache) for key in NAMES.values() for cache in ("f16", "q8_0")]
QUESTIONS = {make_id(asked): asked for asked in ASKED}
"""Class of a fact -> its question."""


def tables_of(article: Tag) -> Found:
    """The longest contexts in tables with a row for each model."""
    for table in article.select("table"):
        heads = [" ".join(head.get_text(" ").split()) for head in table.select("thead th")]
        asked = {place: cache_type(column) for place, head in enumerate(heads) if (column := COLUMN.fullmatch(head))}
        for row in table.select("tbody tr"):
            cells = [" ".join(cell.get_text(" ").split()) for cell in row.select("td, th")]
            model = MODEL.match(cells[0]) if cells else None
            for place, cache in asked.items() if model else ():
                yield question(SHORT[model[0]], cache), re.sub(r" tokens$", "", cells[place])


def cache_type(column: re.Match) -> str:
    return column[1] or ("f16" if column[2] else "q8_0")


def planned(article: Tag) -> Found:
    """The planner's answer to its first question."""
    if status := article.select_one("[data-instrument=planner] .instrument-status"):
        model = MODEL.search(status.get_text())[0]
        row = next(row for row in article.select("tr") if row.get_text().startswith("Longest context"))
        yield question(SHORT[model], "f16"), re.search(r"([\d,]+) tokens", row.get_text(" "))[1]


def sentences_of(article: Tag) -> list[str]:
    blocks = [block for block in article.select("p, li, dd") if not block.select("p, li")]
    texts = [" ".join(block.get_text(" ").split()) for block in blocks]
    return [sentence for text in texts for sentence in re.split(r"(?<=[.!?]) ", text)]


def said_of(article: Tag) -> Found:
    """Bytes of cache for a token in 16 bits, of a sentence that names one model."""
    for sentence in sentences_of(article):
        models = {SHORT[name] for name in MODEL.findall(sentence)}
        if len(models) == 1 and "q8_0" not in sentence and (size := PER_TOKEN.search(sentence)):
            yield f"bytes a token {models.pop()}", next(filter(None, size.groups()))


def computed_elsewhere(article: Tag) -> list[str]:
    """Sentences with a longest context that is none of the key facts: no round number, and for no other free memory."""
    odd = []
    for sentence in sentences_of(article):
        models = {SHORT[name] for name in MODEL.findall(sentence)}
        ways = product(models, ("f16", "q8_0"), (True, False))
        numbers = {int(text.replace(",", "")) for text in COMPUTED.findall(sentence)} if models else set()
        computed = {n for n in numbers if n > SHORTEST and n % CELLS == 0 and all(n % step for step in ROUND)}
        if computed and not ANOTHER_QUESTION.search(sentence):
            odd += [sentence] * bool(computed - {key_facts.longest_context(*way) for way in ways})
    return odd


def gathered(soups: dict[str, BeautifulSoup]) -> dict[str, dict[str, set[str]]]:
    """For each question its answers, and for each answer the pages that give it."""
    answers: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for page, soup in soups.items():
        article = soup.select_one("article.bd-article")
        for reader in (facts_of, tables_of, planned, said_of):
            for asked, answer in reader(article):
                answers[asked][answer].add(page)
    return answers


def test_no_two_pages_answer_a_question_differently(soups):
    """A model, a card of 8 GB and settings: whichever page a reader opens first, the tokens and bytes are the same."""
    answers = gathered(soups)
    assert {asked: dict(given) for asked, given in answers.items() if len(given) > 1} == {}
    on_several = [asked for asked, given in answers.items() if len(set.union(*given.values())) > 1]
    assert len(on_several) >= 5


def test_no_sentence_has_a_longest_context_of_its_own(soups):
    """A sentence takes it from the key facts, or says for which other free memory it was computed."""
    sentences = {page: computed_elsewhere(soup.select_one("article.bd-article")) for page, soup in soups.items()}
    assert {page: odd for page, odd in sentences.items() if odd} == {}


PAGE = """<article class="bd-article">
<p>It has room for <span class="fact longest-llama-3-1-8b-q8-0">{fact}</span> tokens.
A token takes 128 KiB of cache in Llama 3.1 8B. {said}</p>
<table><thead><tr><th>model</th><th>longest, q8_0</th></tr></thead>
<tbody><tr><td>Llama 3.1 8B</td><td>{cell}</td></tr></tbody></table></article>"""


def test_two_answers_are_noticed():
    """The checks above can fail: on a fact, on a table, on bytes in a sentence, and on a context of its own."""

    def pages(**changed: str) -> dict[str, BeautifulSoup]:
        usual = {"fact": "33,536", "cell": "33,536", "said": ""}
        texts = {"one": PAGE.format(**usual), "other": PAGE.format(**{**usual, **changed})}
        return {name: BeautifulSoup(text, "html.parser") for name, text in texts.items()}

    def different(**changed: str) -> list[str]:
        return [asked for asked, given in gathered(pages(**changed)).items() if len(given) > 1]

    assert different() == []
    assert different(fact="35,584") == different(cell="35,584") == ["longest llama-3.1-8b q8_0"]
    assert different(said="One token of Llama 3.1 8B takes 512 KiB.") == ["bytes a token llama-3.1-8b"]
    own = "Llama 3.1 8B has room for 36,608 tokens."
    assert computed_elsewhere(pages(said=own)["other"]) == [own]
    conditional = "If others take 2 GiB, Llama 3.1 8B has room for 19,200 tokens."
    assert computed_elsewhere(pages(said=conditional)["other"]) == []
