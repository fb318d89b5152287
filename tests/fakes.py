"""Replacements for llama.cpp, a driver or a machine in tests; never for the logic that is tested.

`ScriptedEngine` implements the same Protocol as LlamaEngine and returns passes that the test wrote.
`TurnedClock` is a clock that waits for nobody.
`made_run` is a finished `Run` for figures, records and the command line.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import RLock

import numpy as np
from gguf import GGUFWriter

from inferlab.engine.log import Buffer
from inferlab.engine.protocol import Entry, Opening, Pass, Step
from inferlab.machine import Device, Machine
from inferlab.measurement.fidelity import Fidelity
from inferlab.measurement.run import Run
from inferlab.model.gguf import ModelCard
from inferlab.prediction.memory import DeviceBytes, LayerBytes, MemoryPlan
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.cold_start.load_memory import Held, LoadMemory
from studies.graph.graph_log import Copied, Node, Split
from studies.graph.study import GraphPass, GraphTrace
from studies.links_and_rates.study import CacheLevel, DeviceRates, LinkRates, ReadPoint

CPU_ONLY = Machine(
    cpu="Example CPU",
    n_cores=4,
    ram_bytes=8 * 2**30,
    system="Linux x86_64",
    python="3.12.0",
    llama_cpp_python="0.0.1",
    llama_cpp="b1234",
    devices=(Device("CPU", "Example CPU", "cpu", 8 * 2**30, backend="CPU"),),
)
WITH_GPU = replace(CPU_ONLY, devices=(*CPU_ONLY.devices, Device("CUDA0", "Example GPU", "gpu", 2**33, backend="CUDA")))
BUFFERS = (
    Buffer("CUDA0", "weights", 10 * MIB),
    Buffer("CPU", "weights", 2 * MIB),
    Buffer("CPU", "kv_cache", 3 * MIB),
    Buffer("CPU", "compute", MIB),
)
CARD = ModelCard("example", "example.gguf", "llama", 1000, 2000)


def scripted_pass(ttft: float = 0.5, gaps: Sequence[float] = (0.1, 0.1), prefill: float = 0.4, share: float = 0.8):
    """A pass whose tokens follow each other after `gaps`, of which the engine takes `share`."""
    return Pass(
        prefill_seconds=prefill,
        token_seconds=tuple(accumulate([ttft, *gaps])),
        decode_seconds=tuple(share * gap for gap in gaps),
        tokens=tuple(range(1, len(gaps) + 2)),
    )


class ScriptedEngine:
    """An engine that returns `passes` one after another, then the last one again.

    `fails` is raised by the next `generate`, once; `asked` lists what was generated, `opened` the settings.
    """

    def __init__(
        self,
        passes: Iterable[Pass] = (),
        machine: Machine = CPU_ONLY,
        buffers: tuple[Buffer, ...] = BUFFERS,
        fails: Exception | None = None,
    ) -> None:
        self.passes = list(passes) or [scripted_pass()]
        self.buffers, self.fails = buffers, fails
        self.scripted_machine = machine
        self.lock = RLock()
        self.asked: list[tuple[list[int], int]] = []
        self.opened: list[Settings] = []

    @property
    def pid(self) -> int | None:
        return None

    def exclusive(self):
        return self.lock

    def machine(self) -> Machine:
        return self.scripted_machine

    def open(self, model: Path, settings: Settings) -> Opening:
        self.opened.append(settings)
        chosen = settings.but(n_threads=settings.n_threads or self.scripted_machine.n_cores)
        return Opening(self.buffers, {"model_seconds": 1.0, "context_seconds": 0.25}, chosen, "")

    def generate(self, prompt: Sequence[int], n_gen: int) -> Pass:
        if self.fails:
            error, self.fails = self.fails, None
            raise error
        self.asked.append((list(prompt), n_gen))
        return self.passes[min(len(self.asked), len(self.passes)) - 1]

    def open_vocabulary(self, model: Path) -> None:
        pass

    def random_prompt(self, n_prompt: int) -> list[int]:
        return list(range(n_prompt))

    def tokenize(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    def detokenize(self, tokens: Sequence[int]) -> str:
        return " ".join("x" * token for token in tokens)

    def close(self) -> None:
        pass


class TurnedClock:
    """A clock that waiting turns: in place of the module `time`, and of an event that ends a thread after `ends`."""

    def __init__(self, ends: float = float("inf")) -> None:
        self.now, self.ends = 0.0, ends

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, seconds: float) -> bool:
        self.sleep(seconds)
        return self.now > self.ends

    def set(self) -> None:
        self.ends = self.now


class BatchEngine(ScriptedEngine):
    """An engine whose steps take `step_seconds(n_tokens)`; the token after a number is the next number.

    `cells` has the tokens of each sequence; a token at a position that is not its sequence's next one is refused.
    """

    def __init__(self, step_seconds: Callable[[int], float] = lambda n: 1.0 + 0.25 * n, n_vocab: int = 1000) -> None:
        super().__init__()
        self.step_seconds, self.n_vocab = step_seconds, n_vocab
        self.cells: dict[int, list[int]] = {}
        self.steps: list[int] = []

    def step(self, entries: Sequence[Entry]) -> Step:
        for token, position, sequence, _ in entries:
            tokens = self.cells.setdefault(sequence, [])
            assert position == len(tokens), f"sequence {sequence} goes on at {len(tokens)}, not at {position}"
            tokens.append(token)
        self.steps.append(len(entries))
        picks = tuple((entry.token + 1) % self.n_vocab for entry in entries if entry.wanted)
        return Step(self.step_seconds(len(entries)), picks)

    def share(self, source: int, target: int) -> float:
        self.cells[target] = list(self.cells.get(source, []))
        return 0.0

    def keep(self, n_tokens: int, sequence: int | None = None) -> None:
        for number in list(self.cells) if sequence is None else [sequence]:
            self.cells[number] = self.cells.get(number, [])[:n_tokens]


def made_run(**changes) -> Run:
    """A finished run of 8 prompt tokens and 3 generated ones, two passes."""
    facts = {
        "model": CARD,
        "settings": Settings(n_ctx=256),
        "machine": CPU_ONLY,
        "n_prompt": 8,
        "n_gen": 3,
        "passes": (scripted_pass(), scripted_pass(0.7, (0.2, 0.2), 0.5)),
        "warmups": (scripted_pass(),),
        "buffers": BUFFERS,
        "load": {"model_seconds": 1.0, "context_seconds": 0.25},
        "date": "2026-01-31",
        "text": "x xx xxx",
    }
    return Run(**(facts | changes))


def made_fidelity(nats: Sequence[float], kl_nats: Sequence[float], same_top: Sequence[bool], **changes) -> Fidelity:
    """A finished comparison over one chunk of 8 tokens, in which the reference did as well as the model."""
    nats = tuple(nats)
    columns = {"nats": nats, "reference_nats": nats, "kl_nats": tuple(kl_nats), "same_top": tuple(same_top)}
    facts = {"model": CARD, "settings": Settings(), "machine": CPU_ONLY, "date": "2026-01-31"}
    return Fidelity(**(facts | {"reference": CARD, "n_ctx": 8} | columns | changes))


def made_plan(**changes) -> MemoryPlan:
    """A finished plan beside `made_run`: one block and the output on a device, one block and the cache on the host."""
    facts = {
        "model": CARD,
        "settings": Settings(n_ctx=256, n_gpu_layers=2),
        "method": "closed form",
        "devices": {"host": DeviceBytes(2 * MIB, 3 * MIB, MIB, 0), "gpu0": DeviceBytes(10 * MIB, 0, MIB // 2, 0)},
        "layers": (
            LayerBytes("input", "host", MIB, "host", 0),
            LayerBytes("block 0", "host", MIB, "host", 2 * MIB, 0),
            LayerBytes("block 1", "gpu0", 4 * MIB, "host", MIB, 1),
            LayerBytes("output", "gpu0", 6 * MIB, "gpu0", 0),
        ),
    }
    return MemoryPlan(**(facts | changes))


def write_gguf(path: Path, metadata: dict[str, object] | None = None, shape: tuple[int, ...] = (2, 64)) -> Path:
    """A small valid GGUF by gguf-py's own writer: many kinds of metadata, three tensors of `shape` in NumPy's order."""
    writer = GGUFWriter(path, "llama")
    writer.add_name("example")
    writer.add_block_count(2)
    writer.add_float32("example.float", 0.5)
    writer.add_bool("example.bool", True)
    writer.add_token_list(["a", "b", "ä"])
    writer.add_array("example.numbers", [1, 2, 3])
    for key, value in (metadata or {}).items():
        add = {int: writer.add_uint32, str: writer.add_string, bool: writer.add_bool, list: writer.add_array}
        add.get(type(value), writer.add_float32)(key, value)
    for name in ("one", "two", "three"):
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def made_graph_trace(**changes) -> GraphTrace:
    """One layer whose cache is on the host: 16 operations in 4 splits, for a prompt of 8 tokens and for one token."""
    names = (
        *("GET_ROWS embd", "RMS_NORM norm-0", "MUL attn_norm-0", "MUL_MAT Qcur-0", "ROPE Qcur-0"),
        *("SET_ROWS cache_k_l0 (view)", "FLASH_ATTN node_7", "MUL_MAT attn_out-0", "ADD ffn_inp-0", "RMS_NORM norm-0"),
        *("MUL ffn_norm-0", "MUL_MAT ffn_out-0", "ADD l_out-0", "RMS_NORM norm", "MUL result_norm"),
        "MUL_MAT result_output",
    )
    nodes = [Node(index, *name.split(" ", 1)) for index, name in enumerate(names)]
    embedding, to_cache, to_attention = Copied("embd", 1024), Copied("Kcur-0 (view)", 512), Copied("inp_pos", 16)
    far = "RPC0[127.0.0.1:4000]"
    parts = (("CPU", (), 0, 1), (far, (embedding,), 1, 5), ("CPU", (to_cache,), 5, 6), (far, (to_attention,), 6, 16))
    splits = tuple(Split(backend, inputs, tuple(nodes[start:end])) for backend, inputs, start, end in parts)
    facts = {"model": CARD, "settings": Settings(n_ctx=256), "machine": CPU_ONLY, "date": "2026-01-31"}
    return GraphTrace(**(facts | {"prefill": GraphPass(8, splits), "decode": GraphPass(1, splits)} | changes))


def made_link_rates(**changes) -> LinkRates:
    """Round rates of a machine with two caches, a disk and a loopback device."""
    sweep = tuple(ReadPoint(2**n, rate * 1e9) for n, rate in ((14, 100), (19, 80), (28, 20)))
    facts = {
        "machine": CPU_ONLY,
        "date": "2026-01-31",
        "disk": 2e9,
        "page_cache": 10e9,
        "host_ram": 40e9,
        "threads": 2,
        "caches": (CacheLevel(1, 2**15), CacheLevel(2, 2**20)),
        "sweep": sweep,
        "devices": (DeviceRates("loopback device", 1e9, 1.5e9),),
    }
    return LinkRates(**{**facts, **changes})


def made_load(**changes) -> LoadMemory:
    """A load that maps, then locks, then makes its cache: 300 MiB of the file, 100 MiB of its own."""
    rows = ((0.5, 100, 10, 0), (1.5, 400, 10, 0), (2.5, 400, 10, 300), (3.5, 400, 110, 300))
    samples = tuple(Held(at, *(MIB * size for size in sizes)) for at, *sizes in rows)
    phases = {"header": 1.0, "map_and_buffers": 1.0, "weights": 1.0, "graph_reserve": 1.0}
    facts = {"model": CARD, "settings": Settings(load_mode="mmap_mlock"), "machine": CPU_ONLY, "date": "2026-01-31"}
    own = {"phases": phases, "before": replace(samples[0], seconds=0.0), "samples": samples, "peak_bytes": 512 * MIB}
    return LoadMemory(**(facts | own | changes))
