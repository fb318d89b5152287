"""The directive and the role for the settings of five programs: what is in a cell, what is cited, what is refused."""

import re
from pathlib import Path

import pytest
import sphinx_page
from bs4 import BeautifulSoup
from docutils import nodes

from handbook.directives.settings_table import default_text, settings_table, sources_text
from inferlab.options.names import option_named, options, program_named, programs

EVERY = list(programs().values())
BIBLIOGRAPHY = Path(__file__).parents[2] / "book" / "references.bib"


def cells(name: str) -> dict[str, str]:
    """The text of each cell of one setting's row by the program, without the label for narrow screens."""
    table = settings_table([option_named(name)], EVERY)
    entries = next(iter(table.findall(nodes.tbody))).findall(nodes.entry)
    texts = [" ".join(entry.astext().split()) for entry in entries][1:]
    return {program.title: text.removeprefix(f"{program.title} ") for program, text in zip(EVERY, texts, strict=True)}


def test_a_row_has_name_and_default_in_each_program():
    """A code is explained in brackets; LM Studio has the title of its interface and the flag of its command."""
    assert cells("n_gpu_layers") == {
        "llama.cpp": "-ngl: auto",
        "llama-cpp-python": "n_gpu_layers: 0 (none)",
        "Ollama": "num_gpu: -1 (chosen)",
        "LM Studio": "GPU Offload, --gpu: max, or fitted",
        "vLLM": "--cpu-offload-gb: 0 (all on the GPU)",
    }


def test_what_a_program_lacks_is_none():
    """Ollama hands variables on to its llama-server, so there the variable stands."""
    texts = cells("cpu_moe")
    assert {texts["llama-cpp-python"], texts["LM Studio"], texts["vLLM"]} == {"none"}
    assert texts["Ollama"] == "LLAMA_ARG_CPU_MOE: for its llama-server"
    assert cells("op_offload")["Ollama"] == "none"
    assert cells("n_cpu_ffn")["Ollama"] == "not in its llama.cpp, b10488"


def test_every_cell_says_whose_it_is():
    """On a narrow screen a row has no heads, so the program's title stands in each of its cells."""
    table = settings_table(list(options().values()), EVERY)
    assert {"stack", "settings"} <= set(table["classes"])
    for row in next(iter(table.findall(nodes.tbody))).findall(nodes.row):
        labels = [text.astext().strip() for text in row.findall(nodes.inline) if "stack-label" in text["classes"]]
        assert labels == [program.title for program in EVERY]


def test_names_are_code_and_titles_are_not():
    """What one types is a literal, what one looks for in an interface is text."""
    table = settings_table([option_named("n_ctx")], [program_named("LM Studio")])
    assert [code.astext() for code in table.findall(nodes.literal)] == ["--context-length"]


@pytest.mark.parametrize("name", options())
def test_a_name_in_parts_is_still_the_name(name):
    """Parts of a name may be broken over lines, but nothing of it is lost, and a leading hyphen has its word."""
    for code in settings_table([option_named(name)], EVERY).findall(nodes.literal):
        assert all(part.astext().strip("-") for part in code.children)
        known = [word for key in programs() for word in option_named(name).names_in(key)]
        assert code.astext() in {*known, option_named(name).env}


def test_versions_and_sources_are_cited():
    """Each program with the version that was read, and the month; then what a reader of its defaults should know."""
    assert sources_text([program_named("ollama"), program_named("vllm")]) == (
        "Read in Ollama 0.33.0-rc2 {cite}`ollama`, vLLM up to 0.26 {cite}`vllm`; state of August 2026."
    )
    assert sources_text([program_named("LM Studio")]).endswith("as dependent on the machine.")


@pytest.mark.parametrize("name", options())
def test_no_default_is_left_without_a_name_or_a_word(name):
    """A cell is a name with its default, a default that needs no name, or none: never half of one."""
    for program in EVERY:
        option, default = option_named(name), default_text(option_named(name), program)
        named = option.names_in(program.key) or (option.lmstudio if program.key == "lmstudio" else "")
        assert default or not named, f"{name} has a name in {program.title} and no default"


@pytest.fixture
def built(tmp_path):
    """A function: the page, and what Sphinx complained about."""
    (tmp_path / "references.bib").write_text(BIBLIOGRAPHY.read_text(encoding="utf-8"), encoding="utf-8")

    def build(page: str) -> tuple[BeautifulSoup, str]:
        extensions = ("sphinxcontrib.bibtex", "handbook.directives.settings_table")
        text = f"# Page\n\n{page}\n\n```{{bibliography}}\n```\n"
        return sphinx_page.built(tmp_path, text, *extensions, bibtex_bibfiles=["references.bib"], numfig=True)

    return build


def test_a_page_has_a_numbered_table_with_its_sources(built):
    """With a caption it can be referred to; below it stand the versions with their citations."""
    table = "```{settings} n_ctx type_k\n:engines: Ollama LM-Studio\n:caption: *Names*\n:name: tab-x\n```"
    page, complaints = built(f"{table}\n\n{{numref}}`tab-x`")
    assert complaints == ""
    assert "Table 1" in page.get_text()
    assert len(page.select("td")) == 6
    read = page.select_one(".settings-read")
    assert re.search(r"Read in Ollama 0\.33\.0-rc2 .*; state of August 2026\.", read.get_text())
    assert read.a["href"]


def test_versions_are_told_once_on_a_page(built):
    """A second table of the same programs is the table alone; one with another program says what was read of both."""
    table = "```{settings} n_ctx\n:engines: Ollama\n```"
    page, complaints = built(f"{table}\n\n{table}\n\n{table.replace('Ollama', 'Ollama vLLM')}")
    assert complaints == ""
    assert (len(page.select("table")), page.get_text().count("Read in Ollama")) == (3, 2)


def test_one_name_stands_in_a_sentence(built):
    """A name is code; of LM Studio it is the title in its interface, which is none."""
    page, complaints = built("{setting}`n_ctx`, {setting}`n_ctx:ollama`, {setting}`n_ctx:LM-Studio`.")
    assert complaints == ""
    assert "-c, num_ctx, Context Length." in page.get_text()


def test_a_command_with_a_name_in_it_is_one_code(built):
    """What stands before and behind the name in a program is in the same box."""
    page, complaints = built("{setting}`<n_gpu_layers> all` and {setting}`set <n_gpu_layers:ollama> 99`.")
    assert complaints == ""
    assert [code.get_text() for code in page.select("code")] == ["-ngl all", "set num_gpu 99"]


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```{settings} n_ctxt\n```", "There is no setting 'n_ctxt' in the table of settings. Did you mean 'n_ctx'?"),
        ("```{settings} voltage\n```", "There are: n_threads, "),
        ("```{settings} n_ctx\n:engines: KoboldCpp\n```", "There is no program 'KoboldCpp' in the table of settings."),
        ("{setting}`n_ctx:koboldcpp`", "There is no program 'koboldcpp'"),
        ("{setting}`cpu_moe:vllm`", "vllm has no name for cpu_moe"),
    ],
)
def test_a_misspelt_name_fails_the_build(built, page, complaint):
    """With the nearest name that there is."""
    assert complaint in built(page)[1]
