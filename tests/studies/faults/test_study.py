"""The recorded rounds: what they were made with, and what the page counts in them."""

import inferlab as lab
from studies.faults import measure, study


def test_idle_cores_are_counted_as_the_diagnosis_sees_them():
    """One run for each fault and round; the page names every cause with its number of runs."""
    found, rounds = study.numbers(), study.recorded_rounds()
    busy = {
        cause: [lab.diagnose(one.runs[cause], one.baseline).comparison.busy or 1 for one in rounds]
        for cause in study.FAULTS
    }
    idle = {cause: sum(one <= 0.67 for one in several) for cause, several in busy.items()}
    assert found["n_faulty"] == len(study.FAULTS) * len(rounds)
    assert found["n_idle"] == sum(idle.values())
    assert all((f"{cause} ({n} runs)" in found["idle_causes"]) == (n > 0) for cause, n in idle.items())


def test_every_recipe_repeats_its_record():
    """Shape, tokens, number of requests, type of the cache and rate of the link are those of the record."""
    for name, recipe in measure.RECIPES.items():
        if name.endswith("competing-load"):
            continue
        number, run = recipe.args[0], lab.load(f"xeon-2c/{name}")
        shape, mix, dimensions = measure.SHAPES[number]
        changed = "-".join(f"{key}-{value}" for key, value in sorted(dimensions.items()))
        assert run.model.file == f"{shape}-{changed}-{mix}.gguf"
        assert {"n_prompt": run.n_prompt, "n_gen": run.n_gen} == measure.TOKENS[number]
        assert len(run.passes) == 2
        severity = measure.SEVERITIES[number]
        if name.endswith("wrong-cache-type"):
            assert run.settings.type_k == run.settings.type_v == severity.kv_type
        if name.endswith("throttled-link"):
            assert run.links[0].gigabytes_per_second == severity.gigabytes_per_second
