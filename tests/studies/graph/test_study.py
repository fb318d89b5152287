"""One token through the graph: where each operation runs, what is copied, and what the settings change."""

from itertools import product

import pytest
from fakes import made_graph_trace

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.model.find import find_model
from studies.graph import study
from studies.graph.study import EMBEDDING, OUTPUT, PARTS, GraphPass, trace_graph


def test_operations_get_their_layer_and_part():
    """By the names that llama.cpp gives them; what has none belongs where its neighbour does.

    Bytes in both directions are added.
    """
    decode = made_graph_trace().decode
    steps = decode.steps
    assert (decode.copied_bytes, decode.n_nodes) == (1040 + 512, 16)
    assert [step.node.op for step in steps if step.on_host] == ["GET_ROWS", "SET_ROWS"]
    layer = ("norm", "norm", "Q, K, V", "RoPE", "cache write", "attention", "output", "sums", "FFN norm", "FFN norm")
    expected = [(0, part) for part in (*layer, "FFN", "sums")]
    outside = [(None, "logits")] * 3
    assert [(step.layer, step.part) for step in steps] == [(None, "embedding"), *expected, *outside]


@pytest.mark.parametrize("n_prompt", [0, 513])
def test_a_prompt_of_several_graphs_is_refused(n_prompt):
    """One batch is one graph."""
    with pytest.raises(InvalidSettings, match="fit one batch"):
        trace_graph(n_prompt=n_prompt)


@pytest.mark.engine
def test_an_engine_that_does_not_log_its_graphs_is_refused(engine):
    """The environment variable must be set when the worker starts."""
    engine.open(find_model(None), lab.Settings(n_ctx=256))
    with pytest.raises(EngineRefused, match="GGML_SCHED_DEBUG=2"):
        engine.trace([1, 2])


@pytest.fixture(scope="module")
def traced(device):
    """Traces of the embedded model with a loopback device, by settings."""
    made = {}

    def trace(**changes) -> tuple[GraphPass, GraphPass]:
        key = tuple(sorted(changes.items()))
        if key not in made:
            asked = {"n_ctx": 512, "flash_attn": "on"} | changes
            found = trace_graph(settings=device.settings(lab.Settings(**asked)))
            made[key] = (found.prefill, found.decode)
        return made[key]

    return trace


@pytest.mark.engine
def test_everything_on_the_host_is_one_split(traced):
    """Without a layer on the device nothing is copied, whatever op_offload says: an RPC device offers no offload."""
    for op_offload in (True, False):
        prefill, decode = traced(n_gpu_layers=0, op_offload=op_offload)
        assert [(len(one.splits), one.copied_bytes) for one in (prefill, decode)] == [(1, 0), (1, 0)]


@pytest.mark.engine
def test_everything_on_the_device_leaves_the_embedding_on_the_host(traced):
    """Two splits; the device gets one embedding row and the small inputs of the graph."""
    header = lab.read_gguf(lab.tiny_model())
    _, decode = traced(n_gpu_layers=-1)
    assert [split.on_host for split in decode.splits] == [True, False]
    assert [node.op for node in decode.splits[0].nodes] == ["GET_ROWS"]
    copied = {one.name: one.n_bytes for one in decode.splits[1].inputs}
    assert (copied["embd"], copied["inp_pos"]) == (4 * header.n_embd, 4)


@pytest.mark.engine
def test_the_cache_in_ram_divides_every_layer(traced):
    """Each layer gets a split on the host for its cache: 2 + 2 x layers; flash attention decides what is copied."""
    header = lab.read_gguf(lab.tiny_model())
    _, flash = traced(n_gpu_layers=-1, offload_kqv=False)
    _, plain = traced(n_gpu_layers=-1, offload_kqv=False, flash_attn="off")
    assert len(flash.splits) == len(plain.splits) == 2 + 2 * header.n_layer
    ops = ("FLASH_ATTN", "SOFT_MAX")
    keys_and_values = 2 * 256 * header.head_dim_k * header.n_head_kv * 2  # F16, one step of 256 cells
    assert flash.copied_bytes > header.n_layer * keys_and_values > 10 * plain.copied_bytes
    on_host = [sum(step.on_host and step.node.op in ops for step in one.steps) for one in (flash, plain)]
    assert on_host == [0, header.n_layer]


@pytest.mark.engine
def test_parts_of_every_layer_are_known(traced):
    """No operation of the embedded model falls out of the figure's columns."""
    for one in traced(n_gpu_layers=3):
        assert {step.part for step in one.steps} == {*PARTS, EMBEDDING, OUTPUT}
        assert [step.node.index for step in one.steps] == sorted(step.node.index for step in one.steps)


@pytest.mark.engine
def test_exact_sizes_come_from_the_callback(traced):
    """A token's position has 4 bytes, which the log would round to 0 KiB."""
    _, decode = traced(n_gpu_layers=3)
    sizes = {one.name: one.n_bytes for split in decode.splits for one in split.inputs}
    assert sizes["inp_pos"] == 4


@pytest.mark.engine
def test_tracing_changes_no_token():
    """The callback asks for no values, so the logged engine generates what the other one does."""
    plain, logged = LlamaEngine(), LlamaEngine(environment={"GGML_SCHED_DEBUG": "2"})
    found = []
    for engine in (plain, logged):
        engine.open(find_model(None), lab.Settings(n_ctx=256, devices=()))
        found.append(engine.generate(engine.random_prompt(16), 16).tokens)
        engine.close()
    assert found[0] == found[1]


def test_the_page_names_its_placements():
    """Splits and bytes are those of the trace beside each name, and an operation of the last layer is counted once."""
    traces = dict.fromkeys(product(*study.placements().values()), made_graph_trace())
    found, decode = study.numbers(traces), made_graph_trace().decode
    assert {found[f"{name}_splits"] for name in ("device", "ram", "plain", "host", "partly")} == {len(decode.splits)}
    assert found["ram_kib"] == decode.copied_bytes / 1024
    assert (found["n_prompt"], found["n_nodes"]) == (8, 16)


def test_every_part_says_what_it_does():
    """In the order of a token, with the operations of the last layer and of those outside."""
    rows = study.operations_table(made_graph_trace())[1]
    assert [part for part, _, _ in rows] == [EMBEDDING, *PARTS, OUTPUT]
    operations = {part: ops for part, ops, _ in rows}
    assert operations["sums"].startswith("2 ")
    assert operations["cache write"] == "`SET_ROWS`"


def test_layers_move_from_the_host_to_the_device():
    """More layers on the device leave fewer bytes on the CPU; with all layers there is no cache."""
    rows = study.division_table()[1]
    layers, on_host, on_device, cache = (list(map(int, column)) for column in zip(*rows, strict=True))
    assert layers == sorted(layers)
    assert on_host == sorted(on_host, reverse=True)
    assert cache == sorted(cache, reverse=True)
    assert on_device == sorted(on_device)
    assert (on_device[0], cache[-1]) == (0, 0)
