"""Kept answers about graphs: one for every type of weights and every place of the layers, and no other graph's."""

from __future__ import annotations

from dataclasses import replace

from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import fit
from inferlab.prediction.memory import compute
from inferlab.prediction.memory.kept import OF_GRAPH, graph_of, kept_by_graph
from inferlab.settings import Settings


def counted():
    """A function that counts its calls, kept."""
    calls = []

    @kept_by_graph
    def answer(model, settings, *more):
        calls.append((model, settings, *more))
        return len(calls)

    return answer, calls


def test_an_answer_holds_for_every_type_and_place():
    """Weights of another type, and layers elsewhere, have the same graph; another context and argument have not."""
    answer, calls = counted()
    asked = Settings(n_ctx=512)
    first = answer(shape("llama-3.2-1b", "F16"), asked, True)
    assert answer(shape("llama-3.2-1b", "Q4_K_M"), asked.but(n_gpu_layers=3, load_mode="none"), True) == first
    assert len(calls) == 1
    others = [(asked.but(n_ctx=1024), True), (asked.but(flash_attn="off"), True), (asked, False)]
    assert len({answer(shape("llama-3.2-1b"), *other) for other in others} | {first}) == 4


def test_another_header_is_another_graph():
    """A number that differs, a tensor that is not there, another model."""
    model = shape("qwen3-0.6b")
    changed = replace(model, metadata=model.metadata | {"qwen3.attention.head_count": 8})
    models = [model, changed, replace(model, tensors=model.tensors[:-1]), shape("llama-3.2-1b")]
    assert len({graph_of(one) for one in models}) == 4
    assert graph_of(shape("qwen3-0.6b", "Q8_0")) == graph_of(model)


def test_a_header_with_unread_arrays_is_told_by_itself():
    """Two readings of a file are two, because the second may be of another one."""
    one, other = read_gguf(tiny_model()), read_gguf(tiny_model())
    assert graph_of(one) == graph_of(one) != graph_of(other)


def test_a_search_computes_each_buffer_of_a_graph_once(monkeypatch):
    """For all layers and experts that it tries: where these lie changes no graph."""
    asked, near = [], compute.near_bytes
    monkeypatch.setattr(compute, "near_bytes", lambda model, *of: asked.append(settings_of(*of)) or near(model, *of))
    fit(shape("granite-4.0-h-tiny", "Q4_K_M"), Settings(n_ctx=5888), vram="4GiB", ram="32GiB", simulate=False)
    assert len(asked) == len(set(asked)) > 1


def settings_of(settings: Settings, *more: object) -> tuple[object, ...]:
    """What a graph depends on."""
    return *(getattr(settings, name) for name in OF_GRAPH), *more
