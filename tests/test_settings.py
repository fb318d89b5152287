"""Settings: one request in llama.cpp's words, refused early when it cannot be honoured."""

import json

import pytest

from inferlab.errors import InvalidSettings
from inferlab.settings import Settings


def test_the_defaults_ask_for_everything_on_the_device():
    """Without a word, all layers and the cache go to the device, at f16."""
    settings = Settings()
    assert (settings.n_gpu_layers, settings.offload_kqv, settings.type_k, settings.type_v) == (-1, True, "f16", "f16")


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("n_ctx", 0, "n_ctx=0 must be"),
        ("n_ctx", 2.5, "n_ctx=2.5 must be"),
        ("n_ctx", 2**40, "n_ctx=1099511627776"),
        ("n_batch", True, "n_batch=True must be"),
        ("n_ubatch", None, "n_ubatch=None must be"),
        ("n_threads", -2, "n_threads=-2 must be"),
        ("n_gpu_layers", "all", "n_gpu_layers='all' must be"),
        ("n_gpu_layers", 2**31, "n_gpu_layers=2147483648"),
        ("main_gpu", -1, "main_gpu=-1 must be"),
        ("type_k", "Q4_0", "Did you mean 'q4_0'?"),
        ("type_v", "F16", "Did you mean 'f16'?"),
        ("flash_attn", "yes", "is not one of auto, on, off"),
        ("load_mode", "mmlock", "Did you mean 'mlock'?"),
        ("split_mode", "rows", "Did you mean 'row'?"),
    ],
)
def test_a_value_that_llama_cpp_would_refuse_is_refused_first(field, value, found):
    """The message repeats the value that was found and names what would do."""
    with pytest.raises(InvalidSettings) as refusal:
        Settings(**{field: value})
    assert found in str(refusal.value)


def test_quantized_values_need_flash_attention():
    """llama.cpp quantizes cached values only under flash attention; keys it quantizes either way."""
    with pytest.raises(InvalidSettings, match="needs flash attention"):
        Settings(type_v="q8_0", flash_attn="off")
    assert Settings(type_k="q8_0", flash_attn="off").type_k == "q8_0"


def test_an_unknown_name_is_answered_with_the_nearest_known_one():
    """A typing error never passes silently."""
    with pytest.raises(InvalidSettings, match=r"no setting 'n_gpu_layer'. Did you mean 'n_gpu_layers'\?"):
        Settings().but(n_gpu_layer=3)


def test_an_unknown_name_is_refused_at_the_constructor_too():
    """`Settings(n_ctxx=…)` gets the same answer; without a near name the known ones are listed."""
    with pytest.raises(InvalidSettings, match=r"no setting 'n_ctxx'. Did you mean 'n_ctx'\?"):
        Settings(n_ctxx=3)
    with pytest.raises(InvalidSettings, match="There are: n_ctx, n_batch"):
        Settings(zzzz=3)


@pytest.mark.parametrize(
    ("together", "found"),
    [
        ({"split_mode": "tensor", "flash_attn": "off"}, "needs flash attention"),
        ({"split_mode": "tensor", "offload_kqv": False}, "attend to the wrong keys"),
        ({"n_seq_max": 257}, "more than llama.cpp's 256"),
        ({"n_seq_max": 8, "n_ctx": 4}, "leaves no cell for each of n_seq_max=8"),
        ({"tensor_split": (0.0, 0.0)}, "not all 0"),
        ({"tensor_split": (2.0, -1.0)}, "at least 0"),
    ],
)
def test_combinations_that_llama_cpp_would_refuse_are_refused_first(together, found):
    """The reason stands in the message, and nothing is loaded."""
    with pytest.raises(InvalidSettings, match=found):
        Settings(**together)


def test_a_quantized_cache_must_fill_the_models_heads():
    """Blocks of 32 values do not divide a head of 80 into whole blocks; a head of 64 they do."""
    from types import SimpleNamespace

    odd = SimpleNamespace(name="odd", architecture="llama", head_dim_k=80, head_dim_v=80)
    with pytest.raises(InvalidSettings, match="does not divide the 80 values of a head of odd"):
        Settings(type_k="q8_0").require_model(odd)
    Settings(type_k="q8_0").require_model(
        SimpleNamespace(name="even", architecture="llama", head_dim_k=64, head_dim_v=64)
    )
    Settings().require_model(odd)


def test_but_changes_a_copy():
    """Settings never change; `but` makes new ones, checked like any other."""
    before = Settings()
    assert before.but(n_ctx=512).n_ctx == 512
    assert before.n_ctx is None
    with pytest.raises(InvalidSettings):
        before.but(n_ctx=-1)


def test_settings_survive_json():
    """What is written to JSON comes back equal, tuples included."""
    settings = Settings(n_ctx=512, tensor_split=(3.0, 1.0), devices=("CPU",), rpc_servers=("127.0.0.1:50052",))
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
