"""The table of what each split mode needs and excludes."""

import re

from inferlab.settings import SPLIT_MODES
from studies.several_cards.split_modes import SAYS, split_rules


def test_every_rule_names_its_modes_and_its_place_in_the_source():
    """A reader can look up each line."""
    for rule in split_rules().values():
        assert set(rule.modes) <= set(SPLIT_MODES)
        assert rule.says in SAYS
        assert re.fullmatch(r"[\w./-]+:\d+(-\d+)?(, \d+)?", rule.where), rule.where


def test_what_llama_cpp_passes_over_is_refused_where_a_user_could_not_mean_it():
    """A silent rule that is not refused changes no result that a user asked for, or only the bytes."""
    silent = {name for name, rule in split_rules().items() if rule.says == "silent" and not rule.refused}
    assert silent == {
        "tensor-flash-attention-auto", "tensor-cache-types", "tensor-order", "tensor-default-shares",
        "tensor-pipeline", "zero-share", "layer-pipeline",
    }  # fmt: skip
