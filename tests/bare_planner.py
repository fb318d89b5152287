"""What the planner answers on bare Python: run as a script, it first takes away every module that a browser lacks.

    python -I -S tests/bare_planner.py src    # prints the answers as JSON

The same file runs in a child process, under Pyodide and inside the tests, which compare the three.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

INSTALLED = (
    "numpy scipy pandas psutil pynvml plotly rich ipywidgets anywidget gguf huggingface_hub jsonschema llama_cpp"
)
NOT_IN_WEBASSEMBLY = "subprocess multiprocessing ctypes resource fcntl ssl"
ABSENT = frozenset(f"{INSTALLED} {NOT_IN_WEBASSEMBLY}".split())
"""What the planner must not need: installed packages, and parts of the standard library that WebAssembly lacks."""

LOG = """\
load_tensors:   CPU_Mapped model buffer size =    72.00 MiB
load_tensors:        CUDA0 model buffer size =  4095.05 MiB
llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB
llama_context:        CPU  output buffer size =     0.12 MiB
sched_reserve:      CUDA0 compute buffer size =   104.00 MiB
sched_reserve:  CUDA_Host compute buffer size =    16.01 MiB
"""


class Refusal:
    """An import system without the modules that are named."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}: taken away", name=name)


def take_away(names: frozenset[str]) -> None:
    """Forget the modules, and refuse to import them from now on."""
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]
    sys.meta_path.insert(0, Refusal(names))


def answers() -> dict[str, object]:
    """A plan, a fit, its lines and fields, a speed, a header, its beginning, a log and its report, in JSON's kinds."""
    from inferlab.engine.log import buffers_in
    from inferlab.log_reader import explain
    from inferlab.model.find import tiny_model
    from inferlab.model.gguf import read_gguf
    from inferlab.prediction.calibration import Calibration
    from inferlab.prediction.fit import fit, machine_for
    from inferlab.prediction.fit_fields import plan_fields
    from inferlab.prediction.paste import lines_for
    from inferlab.prediction.predict import predict_memory, predict_speed
    from inferlab.settings import Settings

    tiny = read_gguf(tiny_model())
    found = fit("mistral-7b", vram="8GiB")
    shared = fit("qwen3-30b-a3b", unified="32GiB", backend="metal", simulate=False, with_steps=True)
    on_host = Settings(n_gpu_layers=0, n_threads=2, devices=())
    return {
        "plan": asdict(predict_memory("mistral-7b", Settings(n_ctx=4096), machine_for(vram="8GiB"))),
        "fit": asdict(found),
        "lines": asdict(lines_for(found, "ollama")),
        "layers of 4 GiB": fit("mistral-7b", vram="4GiB").most_layers.value,
        "speed": asdict(predict_speed("mistral-7b", on_host, Calibration.load("xeon-2c"))),
        "header": {"card": asdict(tiny.card()), "layers": tiny.n_layer, "tokens": tiny.array("tokenizer.ggml.tokens")},
        "page": plan_fields(shared),
        "beginning": [type(answer).__name__ for answer in map(answer_to_beginning, (1000, tiny.tensors[0].offset))],
        "log": [asdict(buffer) for buffer in buffers_in(LOG)],
        "explained": explain(LOG).to_dict(),
    }


def answer_to_beginning(n_bytes: int) -> object:
    """The embedded model's header from its first bytes alone, in a file of the system that Python runs on."""
    from inferlab.errors import HeaderIncomplete
    from inferlab.model.find import tiny_model
    from inferlab.model.gguf import read_gguf

    with TemporaryDirectory() as folder:
        path = Path(folder, "beginning.gguf")
        path.write_bytes(tiny_model().read_bytes()[:n_bytes])
        try:
            return read_gguf(path, {path.name: tiny_model().stat().st_size})
        except HeaderIncomplete as error:
            return error


if __name__ == "__main__":
    take_away(ABSENT)
    sys.path[:0] = sys.argv[1:]
    found = answers()
    print(json.dumps({**found, "loaded": sorted(ABSENT & set(sys.modules))}))
