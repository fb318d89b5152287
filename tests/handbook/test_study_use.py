"""Which studies a page depends on: those that it names, and those whose records it loads."""

import pytest

from handbook.execution import study_use
from handbook.execution.study_use import studies_digest, studies_named
from inferlab.records import studies


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from studies.same_answer import study", ["same_answer"]),
        ("from studies import same_answer\nimport studies.serving.study", ["same_answer", "serving"]),
        ("```{repeat} training\n```", ["training"]),
        ('lab.load("epyc-2c/same-answers")', ["same_answer"]),
        ('[lab.load(f"epyc-2c/kept-{name}") for name in names]', ["windows_and_states"]),
        ('lab.load("xeon-2c/calibration")', []),
        ("no study, only studies of others", []),
        ("from inferlab import figures", []),
    ],
)
def test_a_page_names_its_studies(text, named):
    """By an import, by the directive, or by a record, also one with a part in braces."""
    assert studies_named(text) == named


def test_the_atlas_depends_on_every_study():
    """It reads all records."""
    every = sorted(path.name for path in studies())
    for text in ("from inferlab.atlas import entries", "from handbook import atlas_table, table"):
        assert studies_named(text) == every


def test_a_study_that_names_a_machine_alone_loads_its_own_records():
    """A page that does so may load any."""
    assert studies_named("from studies.kernels import study") == ["kernels"]
    assert len(studies_named('lab.load(f"epyc-2c/{name}")')) == len(studies())


def test_an_edit_in_a_study_counts_for_those_who_name_it(tmp_path, monkeypatch):
    """And for no other page."""
    for name in ("serving", "training"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    monkeypatch.setattr(study_use, "studies", lambda: sorted(tmp_path.iterdir()))
    ours, theirs = "from studies.serving import study", "from studies.training import study"
    before = studies_digest(ours), studies_digest(theirs)
    (tmp_path / "serving" / "study.py").write_text("edited")
    assert studies_digest(ours) != before[0]
    assert studies_digest(theirs) == before[1]


def test_what_all_studies_share_counts_for_every_page():
    """`recipes` belongs to the library's digest, a study does not."""
    from handbook.execution import fingerprints

    assert fingerprints.library_digest() != fingerprints.library_digest([])
    assert studies_digest("nothing") == studies_digest("from inferlab import figures")
