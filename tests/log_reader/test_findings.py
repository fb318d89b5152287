"""What is found in logs of real runs, with faults provoked, and in logs written by hand after their sources."""

import re
from pathlib import Path

import pytest
from written_causes import LOGS_OF_CAUSES
from written_failures import LOGS_OF_FAILURES
from written_loads import LOGS_OF_LOADS
from written_logs import (
    CONTEXT_FAILED,
    HEALTHY,
    LOGS,
    MODEL,
    OLLAMA_START,
    READY,
    SERVER,
    START,
    card,
    context,
    ollama,
    runner,
    weights,
)
from written_parts import LOGS_OF_PARTS
from written_speed import LOGS_OF_SPEED

import inferlab as lab
from inferlab.log_reader.advice import DONE, named, still_to_do
from inferlab.log_reader.conditions import CONDITIONS
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.rules import SETTING, fix_for, rules
from inferlab.log_reader.text import read
from inferlab.options.names import options

LOGS = LOGS | LOGS_OF_SPEED
LOGS = LOGS | LOGS_OF_FAILURES | LOGS_OF_CAUSES | LOGS_OF_PARTS
LOGS = LOGS | LOGS_OF_LOADS
ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests" / "data" / "logs"

FOUND = {
    "python": [],
    "python-all-layers": ["no-usable-gpu"],
    "python-context": ["request-too-long"],
    "python-quantized-values": ["quantized-values"],
    "server": [],
    "server-2024": ["template-fallback"],
    "server-2024-all-layers": ["no-usable-gpu", "template-fallback"],
    "server-2024-lfs-pointer": ["lfs-pointer"],
    "server-2024-quantized-values": ["quantized-values"],
    "server-2024-slots": ["input-truncated", "template-fallback"],
    "server-2025": ["no-gpu-offered"],
    "server-2025-all-layers": ["no-usable-gpu"],
    "server-2025-changing-prompts": ["prompt-read-again", "no-gpu-offered"],
    "server-2025-slots": ["input-truncated", "no-gpu-offered"],
    "server-default": [],
    "server-all-layers": [],
    "server-cache-full": ["cache-does-not-fit", "beyond-training"],
    "server-changing-prompts": ["prompt-read-again", "no-gpu-seen"],
    "server-compute-full": ["compute-does-not-fit", "cache-larger-than-weights", "beyond-training"],
    "server-draft": ["draft-rejected"],
    "server-fit-failed": ["fit-failed", "no-gpu-seen"],
    "server-incomplete": ["incomplete-file"],
    "server-lfs-pointer": ["lfs-pointer"],
    "server-mlock": ["mlock-failed", "no-gpu-seen"],
    "server-pool": ["pool-exceeded"],
    "server-quantized-values": ["quantized-values"],
    "server-slots": ["request-too-long", "no-gpu-seen"],
    "server-some-layers": ["layers-on-cpu"],
    "server-unknown-architecture": ["unknown-architecture"],
    "server-web-page": ["html-page"],
}
"""The log of a run -> the rules that find something in it, the most important first."""

SYMPTOMS = {
    1: ("n_gpu_layers has no effect", ["no-usable-gpu"]),
    2: ("no usable GPU found", ["no-usable-gpu", "no-gpu-seen"]),
    3: ("out of memory at a long context", ["weights-do-not-fit", "cache-does-not-fit", "compute-does-not-fit"]),
    4: ("no error, and ten times slower", ["more-than-free"]),
    5: ("Ollama forgets the beginning", ["prompt-truncated", "input-truncated"]),
    6: ("slow with a larger num_ctx", ["layers-on-cpu", "cache-larger-than-weights"]),
    7: ("loaded again at every request", ["loaded-again"]),
    8: ("Requested tokens exceed context window of 512", ["request-too-long"]),
    9: ("exceed_context_size_error", ["request-too-long", "pool-exceeded"]),
    10: ("quantized V cache requires flash attention", ["quantized-values"]),
    11: ("mixed cache types", ["cache-types-on-cuda", "cache-types-without-kernel"]),
    12: ("forcing full prompt re-processing", ["full-reprocessing"]),
    13: ("an agent reads everything again", ["prompt-read-again"]),
    14: ("the server's memory grows", ["prompt-cache-in-ram"]),
    15: ("failed to fit params", ["fit-failed"]),
    16: ("experts on the CPU", ["experts-on-cpu"]),
    17: ("speculation is slower", ["draft-rejected", "draft-refused", "draft-unused"]),
    18: ("two GPUs are slower than one", ["two-devices-for-one", "no-nccl"]),
    19: ("more threads are slower", ["more-threads-than-processors"]),
    20: ("the disk is busy", ["mlock-failed"]),
    21: ("slow in WSL, or killed", ["windows-folder", "killed"]),
    22: ("Illegal instruction", ["illegal-instruction"]),
    23: ("no kernel image, old driver", ["no-kernel-image", "driver-too-old"]),
    24: ("invalid magic, unknown architecture", ["html-page", "lfs-pointer", "unknown-architecture", "chat-template"]),
    25: ("slower with time, GPU lost", ["throttled", "gpu-lost"]),
}
"""What people report -> the rules that find it, as far as it leaves a trace in a log."""
SHOWN = [*(names for _, names in LOGS.values()), *FOUND.values()]
"""What is found in each log of the tests."""


def ids(report):
    return [finding.id for finding in report.findings]


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_that_was_provoked_is_found(name):
    """Each log of a real run shows its fault and no other, and a healthy one shows none."""
    assert ids(lab.explain(RUNS / f"{name}.log")) == FOUND[name]


def test_every_log_of_a_run_has_its_expectation():
    """No file lies in the folder without a test."""
    assert {path.stem for path in RUNS.glob("*.log")} == set(FOUND)


@pytest.mark.parametrize("name", LOGS)
def test_a_message_that_is_cited_is_found(name):
    """Each log after a cited message shows its fault and no other, and a healthy one of each program shows none."""
    log, expected = LOGS[name]
    assert ids(lab.explain(log)) == expected


def test_every_rule_finds_something():
    """No rule is there that no log of the tests shows."""
    assert {name for names in SHOWN for name in names} == set(rules())


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_is_found(symptom):
    """Every symptom that people report has a log in which it is found."""
    for rule in SYMPTOMS[symptom][1]:
        assert any(rule in names for names in SHOWN)


@pytest.mark.parametrize("name", LOGS)
def test_a_finding_rests_on_lines_of_the_log(name):
    """Every finding names a line by its number, and that line has the text that is shown."""
    log = LOGS[name][0]
    for finding in lab.explain(log).findings:
        assert finding.lines
        for line in finding.lines:
            assert line.text in log.split("\n")[line.number - 1]


@pytest.mark.parametrize("rule", [rule for rule in rules().values() if rule.page], ids=lambda rule: rule.id)
def test_a_finding_leads_to_a_page(rule):
    """The page of every rule that has one is in the book, with the label that it names."""
    page, _, anchor = rule.page.partition("#")
    assert f"({anchor})=" in (ROOT / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_fix_names_settings_of_the_table(rule):
    """A name between angle brackets is a setting of options.toml, and every program is told something to do."""
    sentences = [*rule.fix, *(sentence for fixes in rule.fixes.values() for sentence in fixes)]
    assert {name for sentence in sentences for name in SETTING.findall(sentence)} <= set(options())
    for program in ("cli", "python", "ollama", "lmstudio"):
        assert fix_for(rule, program)
        assert not any(SETTING.search(sentence) for sentence in fix_for(rule, program))


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_is_complete(rule):
    """It has a message or a known condition, a source, and excludes only rules that exist."""
    assert rule.when in CONDITIONS if rule.when else rule.any
    assert rule.source
    assert set(rule.unless) <= {*rules(), "fault"}
    assert re.compile(rule.pattern)


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (HEALTHY, "`-c`"),
        (OLLAMA_START + runner() + HEALTHY, "`num_ctx`"),
        ("[LMSInternal] x\n" + HEALTHY, "Context Length"),
    ],
)
def test_a_fix_is_in_the_words_of_the_program(log, name):
    """The same fault names `-c` to llama.cpp, `num_ctx` to Ollama, and a field of its form to LM Studio."""
    report = lab.explain(log + "llama_init_from_model: failed to allocate buffer for kv cache\n")
    assert name in " ".join(report.findings[0].fix)


def test_a_setting_is_named_once():
    """Ollama has one type for keys and values, and llama.cpp a switch for each way, of which the first is named."""
    assert " ".join(fix_for(rules()["cache-types-on-cuda"], "ollama")).count("OLLAMA_KV_CACHE_TYPE") == 1
    assert "`--op-offload` on" in " ".join(fix_for(rules()["experts-on-cpu"], "cli"))


@pytest.mark.parametrize(("name", "size"), [("server-cache-full", "192.00 MiB"), ("server-compute-full", "14.01 MiB")])
def test_what_did_not_fit_has_its_size(name, size):
    """The size of the buffer that was refused is told, from the line that every backend writes."""
    finding = lab.explain(RUNS / f"{name}.log").findings[0]
    assert f"a piece of {size} was refused" in finding.what
    assert "failed to allocate RPC0" in finding.lines[0].text


WITHOUT_A_PAGE = ("port", "not a GGUF", "instruction", "killed", "template", "no file", "embedding")


@pytest.mark.parametrize("name", WITHOUT_A_PAGE)
def test_what_the_book_does_not_treat_has_no_page(name):
    """A port, a download, an instruction and an ended process are no matter of the book's pages."""
    assert lab.explain(LOGS[name][0]).findings[0].page == ""


@pytest.mark.parametrize("name", [name for name, (_, names) in LOGS.items() if "load-failed" in names])
def test_a_failed_load_is_shown_with_its_error(name):
    """The finding quotes a line of the log, the one that says most of the cause, and says that it failed."""
    finding = lab.explain(LOGS[name][0]).findings[0]
    assert finding.severity == "fault"
    assert any(word in finding.lines[0].text.lower() for word in ("error", "failed", "exited"))


def test_a_failure_that_was_overcome_is_none():
    """The simulation of `-fit` may fail and the load go on."""
    failed = CONTEXT_FAILED.format("failed to initialize CPU backend")
    assert ids(lab.explain(SERVER + failed + HEALTHY + READY)) == []
    assert ids(lab.explain(SERVER + HEALTHY + READY + failed)) == ["load-failed"]


@pytest.mark.parametrize("name", FOUND)
def test_the_last_lines_of_a_failed_load_are_enough(name):
    """Whatever is left of a log of a run that ended in a failed load, something failed in it."""
    lines = (RUNS / f"{name}.log").read_text(encoding="utf-8").splitlines()
    if any("exiting due to" in line for line in lines):
        for kept in range(1, 6):
            report = lab.explain("\n".join(["", *lines[-kept:], ""]))
            assert "fault" in {finding.severity for finding in report.findings}


def test_the_last_search_of_ollama_counts():
    """A server that found its GPU after a new start is not said to have found none."""
    lost, back = LOGS["Ollama without a GPU"][0], LOGS["Ollama with a GPU"][0]
    assert ids(lab.explain(lost + back)) == ["gpu-not-always-found"]
    assert ids(lab.explain(back + lost)) == ["ollama-found-no-gpu", "gpu-not-always-found"]
    assert not any("names no GPU" in sentence for log in (lost, back) for sentence in lab.explain(log).unknown)


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_condition_of_a_fix_is_known(rule):
    """`[unless …]` names what a log can show, and no such mark is left in a sentence that is told."""
    for sentence in (text for fixes in (rule.fix, *rule.fixes.values()) for text in fixes):
        assert set(named(sentence)) <= set(DONE)
        assert "unless " not in still_to_do([sentence], None)[0]


FLAG = re.compile(r"`(?:llama-\w{1,20} )?--?[a-z]")
OF_ANOTHER = ("Docker", "ontainer", "LocalAI", "for llama.cpp", "llama-server, `-", "Start llama-server with")
"""Whose flag a sentence names."""


@pytest.mark.parametrize("program", ["ollama", "lmstudio", "python"])
@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_fix_names_no_flag_of_another_program(rule, program):
    """llama.cpp's flags are advised for llama.cpp's programs, or said to be theirs."""
    for sentence in fix_for(rule, program):
        assert not FLAG.search(sentence) or any(name in sentence for name in OF_ANOTHER)


def test_ollamas_own_runner_is_given_no_variable_of_llama_server():
    """Its runners before llama-server read none."""
    rule = rules()["weights-do-not-fit"]
    own = Observed(read(ollama('msg="starting runner" cmd="/bin/ollama runner --model /m/x --port 40000"')))
    assert not any("LLAMA_ARG_" in sentence for sentence in fix_for(rule, "ollama", own))
    assert any("LLAMA_ARG_" in sentence for sentence in fix_for(rule, "ollama", Observed(read(runner()))))


TEXTS = [*(log for log, _ in LOGS.values()), *(path.read_text() for path in sorted(RUNS.glob("*.log")))]


@pytest.mark.parametrize("log", TEXTS)
def test_what_the_log_shows_as_done_is_not_advised(log):
    """Every finding keeps something to do; one slot is advised to nobody who has one."""
    report = lab.explain(log)
    for finding in report.findings:
        assert finding.fix
        assert report.context.n_slots != 1 or not any("slot" in sentence for sentence in finding.fix)


def test_no_room_is_made_where_the_layers_fit():
    """With enough free memory all layers belong on the GPU at once; without it, free memory comes first."""
    half = START + MODEL + weights(2000.0, 2167.0, "17/33") + context()
    roomy = lab.explain(card(free=11000) + half).findings[0]
    assert [sentence.partition(" (")[0] for sentence in roomy.fix] == ["Put all layers on the GPU"]
    assert "by the sizes in the log, they fit" in roomy.fix[0]
    tight = lab.explain(card(free=4000) + half).findings[0]
    assert tight.fix[0].startswith("Make room first: ")
    assert not any("experts" in sentence for sentence in tight.fix)


def test_slots_that_share_the_context_are_not_reduced():
    """Fewer slots help where each has its share, and not where all cells are one pool."""
    slots = (RUNS / "server-slots.log").read_text(encoding="utf-8")
    assert "Use fewer slots" in " ".join(lab.explain(slots).findings[0].fix)
    shared = slots.replace("kv_unified = 'false'", "kv_unified = 'true'")
    shared = shared.replace("kv_unified            = false", "kv_unified            = true")
    assert "Use fewer slots" not in " ".join(lab.explain(shared).findings[0].fix)


def test_a_missing_file_is_named():
    """The name and the system's reason, where the line has them."""
    missing = lab.explain(LOGS["no file"][0]).findings[0]
    assert missing.what == "There is no file /models/x.gguf."
    refused = lab.explain(LOGS["no file"][0].replace("No such file or directory", "Permission denied")).findings[0]
    assert refused.what == "The file /models/x.gguf could not be opened: Permission denied."
    older = lab.explain(LOGS["no file, 2025"][0]).findings[0]
    assert older.what == "The file /models/x.gguf could not be opened: it is missing, or may not be read."


def test_a_divided_context_is_named():
    """A request that is too long for its slot is told how the context was divided."""
    finding = lab.explain(RUNS / "server-slots.log").findings[0]
    assert finding.what == (
        "A request of 362 tokens is longer than the context of 256, which is 1,024 divided among 4 slots."
    )


def test_the_default_context_of_llama_cpp_python_is_named():
    """512 tokens are recognised as a default that nobody chose."""
    assert "512 is the default" in lab.explain(RUNS / "python-context.log").findings[0].what


def test_layers_are_not_read_from_the_request():
    """`offloaded 7/7 layers` with all weights in RAM is no layer on a GPU (claim A30)."""
    report = lab.explain(RUNS / "python-all-layers.log")
    assert report.layers.by_device == {"CPU": 7}


def test_a_cache_larger_than_the_weights_is_worth_a_note():
    """The cache of a long context is compared with the weights."""
    log = HEALTHY.replace(context(), context(32768, 4300.0))
    assert ids(lab.explain(log)) == ["cache-larger-than-weights"]
