"""The process of one engine: it opens a model, then answers each line of standard input, as JSON.

The first line asks as `Request`, and each other one for {"tokens": [...], "n_gen": 16}.
What the engine prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from studies.other_engines.engines.protocol import Opened, Request

MODULES = {
    "transformers": "on_transformers",
    "OpenVINO": "on_openvino",
    "ONNX Runtime": "on_onnxruntime",
    "MLX": "on_mlx",
}


def opened(request: Request) -> Opened:
    return import_module(f"{__package__}.{MODULES[request.engine]}").opened(request)


def main() -> None:
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def reply(**fields: Any) -> None:
        print(json.dumps(fields), file=replies, flush=True)

    asked = json.loads(sys.stdin.readline())
    one = opened(Request(**{**asked, "path": Path(asked["path"])}))
    reply(version=one.version)
    for line in sys.stdin:
        reply(**one.generate(**json.loads(line))._asdict())


if __name__ == "__main__":
    main()
