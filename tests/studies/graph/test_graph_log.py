"""The debug lines of ggml's scheduler, in lines of our own making."""

import pytest

from inferlab.errors import EngineRefused
from studies.graph.graph_log import Copied, splits_in

LINES = """
## SPLIT #0: CPU # 0 inputs
node #  0 (  GET_ROWS):                 embd (   1K) [  CPU         ] use=2,c=1:    token_embd.weight (   2M) [  CPU         ]           inp_tokens (   0K) [  CPU         ]

## SPLIT #1: FAR0[10.0.0.1:5000] # 2 inputs: [embd (   1K)] [cache_k_l0 (view) (permuted) (   3M)] 
node #  1 (  RMS_NORM):               norm-0 (   1K) [FAR0[         ] use=1,c=1: FAR0[10.0.0.1:5000]# (   1K) [ NULL         ]
node #  3 (FLASH_ATTN):               node_3 (   1K) [FAR0[         ] use=1,c=1:               norm-0 (   1K) [FAR0[         ] FAR0[10.0.0.1:5000]# (   3M) [ NULL         ]
"""  # noqa: E501


def test_splits_nodes_and_copies_are_read():
    """Every split has its backend, its copied tensors and its operations with their place in the graph."""
    host, far = splits_in(LINES, {})
    assert (host.backend, host.inputs, host.on_host) == ("CPU", (), True)
    assert (far.backend, far.on_host) == ("FAR0[10.0.0.1:5000]", False)
    found = [(node.index, node.op, node.name) for node in far.nodes]
    assert found == [(1, "RMS_NORM", "norm-0"), (3, "FLASH_ATTN", "node_3")]


def test_sizes_are_exact_where_they_were_read():
    """The log rounds down to KiB or MiB; the callback's sizes replace that, and what it did not see stays."""
    copies = {"FAR0[10.0.0.1:5000]#embd#0": 1500, "CPU#cache_k_l0 (view) (permuted)#0": 7}
    _, far = splits_in(LINES, copies)
    assert far.inputs == (Copied("embd", 1500), Copied("cache_k_l0 (view) (permuted)", 3 * 2**20))
    assert far.copied_bytes == 1500 + 3 * 2**20


def test_the_last_of_several_graphs_counts():
    """A graph that is divided twice is logged twice."""
    node = "node #  0 (       ADD):                  sum (   1K) [  CPU         ] use=1,c=1:"
    again = f"## SPLIT #0: CPU # 0 inputs\n{node}"
    (only,) = splits_in(LINES + again, {})
    assert [node.name for node in only.nodes] == ["sum"]


@pytest.mark.parametrize("lines", ["", "sched_reserve: graph: nodes = 192, splits = 2"])
def test_a_log_without_splits_is_refused(lines):
    """An engine that was started without the environment variable is told what is missing."""
    with pytest.raises(EngineRefused, match="GRAPH_ENVIRONMENT"):
        splits_in(lines, {})
