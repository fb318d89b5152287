"""What was measured: the front page counts the records that ship."""

from fakes import CPU_ONLY, WITH_GPU

from inferlab.atlas.entries import machines
from inferlab.records import shipped
from studies.measured import study


def test_the_front_page_counts_the_records():
    """Each file once, at least a measurement in each, and every machine by its processor."""
    found = study.numbers(CPU_ONLY)
    assert found["n_files"] == len(shipped())
    assert found["n_measurements"] > found["n_files"]
    assert set(machines()) == {name.partition("/")[0] for name in shipped()}
    assert found["machines"].count("cores used") == len(machines())
    assert found["here"] == "a machine without a GPU"


def test_a_measured_card_is_named(monkeypatch):
    """As soon as a record or the page's machine has a GPU, the page says which."""
    monkeypatch.setattr(study, "machines", lambda: {"one": WITH_GPU})
    found = study.numbers(WITH_GPU)
    assert found["gpus"] == "The GPUs among them: Example GPU."
    assert found["here"] == "a machine with Example GPU"
