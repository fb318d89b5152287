"""What was repeated: the second record is of the same call, another day, and the page's numbers compare the two."""

import pytest

from inferlab.records import load
from studies.fit_params import study as fit_params
from studies.operating_system import study as operating_system
from studies.quantization import study as quantization
from studies.recipes import recipes
from studies.same_answer import study as same_answer
from studies.speculation import study as speculation

REPEATED = {
    "same_answer": "same-answers",
    "fit_params": "fit-params",
    "quantization": "matrix-losses",
    "speculation": "acceptance",
    "operating_system": "waiting-tiny",
}


@pytest.mark.parametrize(("study", "name"), REPEATED.items())
def test_a_repeated_record_has_the_same_call_and_another_day(study, name):
    """Else it would say nothing about the first one."""
    first, again = recipes(study)[name], recipes(study)[f"{name}-again"]
    assert (first.func, first.args, first.keywords) == (again.func, again.args, again.keywords)
    before, after = load(f"epyc-2c/{name}"), load(f"epyc-2c/{name}-again")
    assert before.date < after.date
    assert before.machine.cpu == after.machine.cpu


def test_the_pages_say_what_changed():
    """Counts of what differs lie between none and all; a record compared with itself would differ in nothing."""
    found = same_answer.again_numbers() | fit_params.again_numbers() | quantization.again_numbers()
    assert 0 <= found["again_other"] <= found["again_changes"]
    assert 0 <= found["losses_other"] <= found["losses_n"]
    assert found["fit_other"] >= 0
    drafts = speculation.again_numbers()
    assert 0 < drafts["again_equal"] <= drafts["again_answers"]
    assert drafts["again_cost"] != drafts["first_cost"]
    waited = operating_system.again_numbers()
    assert waited["first_busy"] != waited["again_busy"]
