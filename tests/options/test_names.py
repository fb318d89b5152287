"""Names of one setting in five programs; test_claims_decided asks for defaults."""

import pytest

from inferlab.options.names import options
from inferlab.settings import Settings


def test_an_option_has_the_name_of_its_setting():
    """Every field of Settings but the names of one machine's devices has its row; some rows are no fields."""
    fields = set(Settings().to_dict())
    assert fields - set(options()) == {"rpc_servers", "devices"}
    assert set(options()) - fields == {
        "mlock",
        "logits_all",
        "numa",
        "fit",
        "fit_target",
        "fit_ctx",
        "n_cpu_ffn",
        "cache_prompt",
        "cache_ram",
        "keep_alive",
        "port",
        "cache_reuse",
        "ctx_checkpoints",
        "timeout",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repeat_penalty",
        "seed",
        "samplers",
        "typical_p",
        "top_n_sigma",
        "xtc_probability",
        "dry_multiplier",
        "grammar",
        "json_schema",
        "backend_sampling",
        "spec_type",
        "spec_draft_model",
        "spec_draft_n_max",
        "spec_draft_n_min",
        "spec_draft_p_min",
        "spec_ngram_size_n",
        "spec_ngram_size_m",
        "spec_ngram_mod",
    }


@pytest.mark.engine
def test_every_setting_reaches_llama_cpp():
    """Each is a field of llama.cpp's parameters, which the worker fills; overrides and servers are passed otherwise."""
    from llama_cpp import llama_context_params, llama_model_params

    taken = {name for params in (llama_context_params, llama_model_params) for name, *_ in params._fields_}
    c_names = {name: options()[name].c_name if name in options() else name for name in Settings().to_dict()}
    others = {name for name, c_name in c_names.items() if c_name not in taken}
    assert others == {"n_cpu_moe", "cpu_moe", "override_tensor", "rpc_servers"}
