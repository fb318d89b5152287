"""Ask llama.cpp's own quantizer, in a process of its own, which type it would give each tensor of a file."""

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path

LINE = re.compile(r"\] +(\S+) +- \[.*?\], type = +(\w+), size = .*?(?:MiB \((\w+)\))?$", re.MULTILINE)
REFUSED, NEEDS_IMATRIX = "no tensor type fallback is defined", "will require an imatrix"


def quantizer_types(
    paths: list[Path], mixes: dict[str, int], imatrix: bool = False
) -> list[dict[str, dict[str, str] | None]]:
    """For each F16 file and mix (by its number) the type of each tensor, from a dry run; the data is never read.

    {} for rows that llama.cpp refuses in this mix; None for a mix that it would only make with an importance matrix.
    """
    asked = json.dumps({"paths": [str(path) for path in paths], "mixes": mixes, "imatrix": imatrix})
    done = subprocess.run([sys.executable, __file__], input=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    import llama_cpp

    asked, log = json.load(sys.stdin), []
    keep = llama_cpp.llama_log_callback(lambda level, text, _: log.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
    matrix = some_matrix(llama_cpp) if asked["imatrix"] else None
    told = [
        {mix: dry_run(llama_cpp, log, path, n, matrix) for mix, n in asked["mixes"].items()} for path in asked["paths"]
    ]
    json.dump(told, sys.stdout)


def some_matrix(llama_cpp) -> ctypes.Array:
    """A matrix of one value for a tensor that is not there: a dry run only asks whether there is a matrix."""
    value = (ctypes.c_float * 1)(1.0)
    entries = (llama_cpp.llama_model_imatrix_data * 2)()  # the second one, without a name, ends the list
    entries[0] = llama_cpp.llama_model_imatrix_data(b"none", value, 1)
    return entries


def dry_run(llama_cpp, log: list[str], path: str, file_type: int, matrix: ctypes.Array | None) -> dict | None:
    log.clear()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.dry_run = file_type, True
    if matrix is not None:
        params.imatrix = matrix
    failed = llama_cpp.llama_model_quantize(path.encode(), b"", ctypes.byref(params))
    text = "".join(log)
    if failed and REFUSED not in text:
        sys.exit(text[-1000:])
    if failed:
        return {}
    if NEEDS_IMATRIX in text:
        return None
    return {name: (new or old).upper() for name, old, new in LINE.findall(text)}


if __name__ == "__main__":
    main()
