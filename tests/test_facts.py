"""Cited numbers: each has a source that the bibliography knows."""

import re
from pathlib import Path

import pytest

import inferlab as lab
from inferlab.errors import ModelNotFound
from inferlab.facts import cited_facts, published_tables, read_table
from inferlab.model.catalog import known_models, known_vocabularies
from inferlab.options.names import programs
from inferlab.options.speculation import speculation_types
from inferlab.prediction.link_rates import cited_rungs
from studies.other_engines.engine_choice import known_engines
from studies.vllm.weight_formats import weight_formats

BIBLIOGRAPHY = Path(__file__).parent.parent / "book" / "references.bib"


def test_every_cited_number_has_its_source_in_the_bibliography():
    """A key that no reader could look up fails here."""
    keys = set(re.findall(r"^@\w+\{([^,\s]+),", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE))
    cited = {model.source for model in known_models().values()}
    sizes = [fact for model in known_models().values() for fact in (*model.files.values(), *model.companions.values())]
    cited |= {fact.source for fact in sizes}
    cited |= {told["source"] for entry in read_table("models").values() for told in logged(entry)}
    cited |= {table.source for table in published_tables().values()}
    tables = ("estimates", "ollama", "cards", "vllm", "training", "sampling", "experts", "several_cards")
    tables += ("reported_drafts",)
    cited |= {fact.source for table in tables for fact in cited_facts(table).values()}
    cited |= {vocabulary.source for vocabulary in known_vocabularies().values()}
    cited |= {program.source for program in programs().values()}
    cited |= {known.source for known in weight_formats().values()}
    cited |= {rung.source for rung in cited_rungs()}
    cited |= {engine.source for engine in known_engines().values()}
    cited |= {one.source for one in speculation_types().values()}
    assert cited <= keys


def logged(entry) -> list[dict]:
    """The sizes of a model that public logs print."""
    return [*entry.get("logged", {}).values()] if isinstance(entry, dict) else []


def test_a_size_names_its_file():
    """Whoever follows a size finds the repository and the file, or the folder of its parts, that has these bytes."""
    models = [entry for entry in read_table("models").values() if isinstance(entry, dict)]
    sizes = [one for entry in models for part in ("files", "companions") for one in entry.get(part, {}).values()]
    assert all(re.fullmatch(r"[\w.-]+(/[\w.-]+)+", one["file"]) for one in sizes)


def test_a_known_model_speaks_the_words_of_a_file():
    """The same names as in a GGUF's header, without a file."""
    model = lab.known_model("mistral-7b")
    assert (model.n_layer, model.n_head, model.n_head_kv, model.head_dim_k) == (32, 32, 8, 128)


def test_a_single_number_has_its_unit_and_its_date():
    """What is cited outside a table says of what it is, and since when."""
    fact = cited_facts("estimates")["gguf-parser-partial"]
    assert (fact.value, fact.unit, fact.date) == (-70.1, "%", "2026-08-24")


def test_an_id_means_something_else_in_every_vocabulary():
    """The same two words have other ids, and the same two ids other pieces, in each published vocabulary."""
    known = known_vocabularies().values()
    assert len({vocabulary.hello_world for vocabulary in known}) == len(known)
    assert all(len({vocabulary.pieces[token] for vocabulary in known}) == len(known) for token in (15496, 1917))


def test_two_versions_of_a_model_are_two_models():
    """v0.3 of Mistral 7B has a larger vocabulary than v0.2, and so more weights."""
    old, new = lab.known_model("mistral-7b"), lab.known_model("mistral-7b-v0.3")
    assert (old.n_vocab, new.n_vocab) == (32_000, 32_768)
    assert old.files["Q4_K_M"].value < new.files["Q4_K_M"].value


def test_an_unknown_model_is_answered_with_the_known_ones():
    """The error names those that are most like it, and says of when the list is; case and spaces do not matter."""
    with pytest.raises(ModelNotFound, match=r"Did you mean mistral-7b or .* is of 20\d\d-\d\d"):
        lab.known_model("mistral-8b")
    assert lab.known_model("Qwen3 30B A3B") == lab.known_model("qwen3-30b-a3b")


def test_every_title_is_a_name():
    """A title of the page, typed as it stands, is the model that it heads."""
    assert all(lab.known_model(title).name == title for title in known_models().titles.values())


def test_titles_are_those_of_the_models():
    """They are found without reading the entries, and none is missing."""
    assert known_models().titles == {name: model.name for name, model in known_models().items()}
    assert known_models().keys() == {name for name, entry in read_table("models").items() if isinstance(entry, dict)}


def test_a_published_table_keeps_its_columns():
    """A row has one number under each column's name, and a column one number for each mix."""
    table = published_tables()["llama-3.1-8b-rates"]
    assert table.rows["Q4_K_M"]["decode"] == table.column("decode")["Q4_K_M"] == 71.93
    assert list(table.column("prefill")) == list(table.rows)
