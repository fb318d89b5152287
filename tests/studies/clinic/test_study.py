"""What the specimens say: complaints, the place of the cause among them, and who knew it before."""

import pytest

from inferlab.settings import Settings
from studies.clinic import study
from studies.clinic.clinic import Specimen
from studies.clinic.devices import Placed
from studies.clinic.widget import clinic_cases

MAGIC = "gguf_init_from_reader: invalid magic characters: '<!do', expected 'GGUF'"
LATER = "llama_model_load: error loading model: failed to load /tmp/somewhere/model.gguf"


def a_specimen(name, log, own_words="", before="", ended="error"):
    return Specimen(name, "A cause.", own_words, log, ended, before, Placed(Settings()))


FOUND = {
    one.name: one
    for one in (
        a_specimen("last", f"{LATER}\nerror: it ended so", "error: it ended so", ended="exit"),
        a_specimen("first", f"loading\n{MAGIC}\n  {LATER}\n", MAGIC, before="it is a web page"),
        a_specimen("reply alone", LATER, "no words in the log"),
        a_specimen(study.CONTROL, "llama_model_loader: loaded meta data with 20 key-value pairs and 38 tensors"),
    )
}


def test_complaints_and_the_cause_are_told_apart():
    """The cause is a complaint even without such a word; a reply that no line has is nowhere among them."""
    assert study.complaints(FOUND["first"]) == ([MAGIC, LATER], 0)
    assert study.complaints(FOUND["last"]) == ([LATER, "error: it ended so"], 1)
    assert study.complaints(FOUND["reply alone"]) == ([LATER], None)


def test_the_numbers_count_the_faults_without_the_control():
    """Causes that come first and last, those that were refused before, and ends of the process."""
    found = study.numbers(FOUND)
    assert (found["n_faults"], found["n_before"], found["n_sound"]) == (3, 1, 0)
    assert (found["n_several"], found["n_first"], found["n_last"]) == (2, 1, 1)
    assert (found["only_log"], found["gone"], found["shown_name"]) == ("last, reply alone", "last", "first")


def test_the_shown_fault_has_its_complaints_without_folders():
    """In their order, with numbers."""
    rows = study.complaints_table(FOUND)[1]
    assert rows == [("1.", f"`{MAGIC}`"), ("2.", "`llama_model_load: error loading model: failed to load model.gguf`")]
    assert [row[::2] for row in study.words_table(FOUND)[1]] == [
        ("last", "no"),
        ("first", "before"),
        ("reply alone", "no"),
    ]


@pytest.mark.parametrize(("log", "named"), [(f"llama_model_load: loading\n{MAGIC}", True), ("", False)])
def test_the_first_finding_is_the_log_readers(log, named):
    """None for a log that it cannot read."""
    assert (study.first_finding(a_specimen("one", log)) is not None) == named


def test_a_cause_that_no_rule_knows_has_no_fix():
    """Only a run that met no fault needs none."""
    found = {"unread": a_specimen("unread", "", "some words"), study.CONTROL: FOUND[study.CONTROL]}
    fixes = [dict(rows)["the fix"] for _, _, rows in clinic_cases(found).cases]
    assert fixes == ["not in the log reader's rules", "none is needed"]
