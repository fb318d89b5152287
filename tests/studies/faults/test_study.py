"""The recorded rounds: what they were made with, and what the page counts in them."""

from inspect import signature

import inferlab as lab
from studies.faults import measure, study
from studies.recipes import NotRepeatable


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
        if isinstance(recipe, NotRepeatable):
            assert name.endswith("competing-load")
            continue
        asked = signature(recipe.func).bind(*recipe.args, **recipe.keywords).arguments
        run = lab.load(f"xeon-2c/{name}")
        dimensions = "-".join(f"{key}-{value}" for key, value in sorted(asked["dimensions"].items()))
        assert run.model.file == f"{asked['name']}-{dimensions}-{asked['mix']}.gguf"
        assert (run.n_prompt, run.n_gen, len(run.passes)) == (asked["n_prompt"], asked["n_gen"], 2)
        if name.endswith("wrong-cache-type"):
            assert run.settings.type_k == run.settings.type_v == asked["severity"].kv_type
        if name.endswith("throttled-link"):
            assert run.links[0].gigabytes_per_second == asked["severity"].gigabytes_per_second
