"""Plans the small model of every architecture on bare Python, and prints weights and cache of each device as JSON.

    python -I -S tests/bare_architectures.py src

The same file runs in a child process, under Pyodide and inside the tests, as `bare_planner` does.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

SETTINGS = {
    "one sequence, windows": {"n_ctx": 1024},
    "one pool, no flash attention": {"n_ctx": 4096, "n_seq_max": 4, "kv_unified": True, "flash_attn": "off"},
    "three sequences, q8_0": {"n_ctx": 3000, "n_seq_max": 3, "swa_full": True, "type_k": "q8_0", "type_v": "q8_0"},
}


def plans() -> dict[str, dict[str, object]]:
    """Weights and cache of each device, for each model and settings; the words of a refusal where there is none."""
    from architecture_files import unpack

    with TemporaryDirectory() as folder:
        models = unpack(Path(folder))
        return {f"{name}: {asked}": planned(models[name], asked) for name in models for asked in SETTINGS}


def planned(model: object, asked: str) -> object:
    """One plan for a card that has room for everything."""
    from inferlab.errors import InvalidSettings
    from inferlab.prediction.fit import machine_for
    from inferlab.prediction.predict import predict_memory
    from inferlab.settings import Settings

    try:
        plan = predict_memory(model, Settings(**SETTINGS[asked]), machine_for(vram="8GiB"), simulate=False)
    except InvalidSettings as error:
        return str(error)
    return {name: [held.weights_bytes, held.kv_cache_bytes] for name, held in plan.devices.items()}


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), *sys.argv[1:]]
    from bare_planner import ABSENT, take_away

    take_away(ABSENT)
    print(json.dumps({"plans": plans(), "loaded": sorted(ABSENT & set(sys.modules))}))
