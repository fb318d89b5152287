"""Ask llama.cpp's own quantizer, in a process of its own, which type it would give each tensor of a file."""

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path

LINE = re.compile(r"\] +(\S+) +- \[.*?\], type = +(\w+), size = .*?(?:MiB \((\w+)\))?$", re.MULTILINE)


def quantizer_types(paths: list[Path], mixes: dict[str, int]) -> list[dict[str, dict[str, str]]]:
    """For each F16 file and mix (by its number) the type of each tensor, from a dry run; the data is never read."""
    asked = json.dumps({"paths": [str(path) for path in paths], "mixes": mixes})
    done = subprocess.run([sys.executable, __file__], input=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    import llama_cpp

    asked, log = json.load(sys.stdin), []
    keep = llama_cpp.llama_log_callback(lambda level, text, _: log.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
    told = [{mix: dry_run(llama_cpp, log, path, n) for mix, n in asked["mixes"].items()} for path in asked["paths"]]
    json.dump(told, sys.stdout)


def dry_run(llama_cpp, log: list[str], path: str, file_type: int) -> dict[str, str]:
    log.clear()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.dry_run = file_type, True
    failed = llama_cpp.llama_model_quantize(path.encode(), b"", ctypes.byref(params))
    text = "".join(log)
    if failed:
        sys.exit(text[-1000:])
    return {name: (new or old).upper() for name, old, new in LINE.findall(text)}


if __name__ == "__main__":
    main()
