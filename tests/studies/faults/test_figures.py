"""Figures of diagnoses: the symptoms of each case, and the table of right and mistaken ones."""

from collections import Counter

from inferlab.prediction.diagnosis import RelativeSigns
from inferlab.units import MIB
from studies.faults import figures

CASES = {
    "case 1": RelativeSigns(0, 1.0, 1.1, 1.2, 0.0, 0.05, None),
    "case 2": RelativeSigns(MIB, 3, 1, 2, 1.25, 0.5, 0.5),
}
TABLE = {"one": Counter({"one": 2}), "other": Counter({"one": 1, "other": 1})}


def test_an_unknown_symptom_says_so():
    """What no sample measured is "unknown", never 0."""
    texts = figures.symptoms(CASES, "measured here").data[1].text
    assert texts[6] == "unknown"
    assert list(texts[7:]) == ["1", "3.0x", "1.0x", "2.0x", "+1.25", "50 %", "0.50x"]


def test_a_confusion_matrix_counts_and_names_its_mistakes():
    """Right diagnoses on the diagonal, mistakes in another colour; the text alternative names the mistaken ones."""
    figure = figures.confusion_matrix(TABLE, "measured here")
    assert figure.layout.meta["alt"] == "3 of 4 diagnoses were right. Mistaken: other taken for one."
    assert list(figure.data[1].text) == ["2", "", "1", "1"]
    assert [list(row) for row in figure.data[0].z] == [[2, 0], [1, 2]]
    assert len({colour for _, colour in figure.data[0].colorscale}) == 3
