"""What reading a large header costs: 262 144 tokens and 300 000 merges, in fresh processes."""

import json
import os
import subprocess
import sys
from statistics import median

import pytest
from gguf import GGUFWriter

from inferlab.statistics import median_interval
from inferlab.units import MIB

N_TOKENS, N_MERGES = 262_144, 300_000
REPEATS = 12
ALLOWED_SECONDS, ALLOWED_BYTES = 0.05, 40 * MIB

# Memory: what is resident before the call against the highest it ever was, mapped pages of the file included.
READ_ONCE = """
import json, re, sys
from time import perf_counter
from inferlab import read_gguf
def resident(name):
    with open("/proc/self/status") as status:
        return 1024 * int(re.search(name + r":\\s+(\\d+) kB", status.read())[1])
before, began = resident("VmRSS"), perf_counter()
model = read_gguf(sys.argv[1])
seconds = perf_counter() - began
print(json.dumps({"seconds": seconds, "bytes": resident("VmHWM") - before, "n_vocab": model.n_vocab}))
"""


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """One reading of the header in each of twelve processes; the file lies in the page cache."""
    path = tmp_path_factory.mktemp("vocabulary") / "large.gguf"
    write_large_vocabulary(path)
    return [read_once(path) for _ in range(REPEATS)]


def write_large_vocabulary(path):
    """A GGUF whose header is that of a model with a very large vocabulary, by gguf-py's own writer."""
    words = [f"▁token{i:06x}" for i in range(N_TOKENS)]
    writer = GGUFWriter(path, "llama")
    writer.add_token_list(words)
    writer.add_token_scores([-float(i) for i in range(N_TOKENS)])
    writer.add_token_types([1] * N_TOKENS)
    writer.add_token_merges([f"{words[i % N_TOKENS]} {words[7 * i % N_TOKENS]}" for i in range(N_MERGES)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_once(path):
    done = subprocess.run([sys.executable, "-c", READ_ONCE, str(path)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's account of a process's memory")
def test_a_large_header_takes_at_most_50_ms_and_40_mib(readings):
    """The 95 % interval of the median time ends below 50 ms; no process grew by more than 40 MiB."""
    seconds = [one["seconds"] for one in readings]
    low, high = median_interval(seconds)
    grown = max(one["bytes"] for one in readings)
    print(
        f"\nheader of {N_TOKENS:,} tokens and {N_MERGES:,} merges: {1e3 * median(seconds):.1f} ms"
        f" [{1e3 * low:.1f}, {1e3 * high:.1f}], {grown / MIB:.1f} MiB at most, over {REPEATS} processes"
    )
    assert {one["n_vocab"] for one in readings} == {N_TOKENS}
    assert high <= ALLOWED_SECONDS
    assert grown <= ALLOWED_BYTES
