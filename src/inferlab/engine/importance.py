"""Make an importance matrix with llama.cpp's own program, llama-imatrix.

model.imatrix explains and reads the file.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from inferlab.engine.programs import built_program
from inferlab.errors import EngineRefused, EngineUnavailable, InvalidSettings
from inferlab.model.find import cache_folder, find_model
from inferlab.model.gguf import read_gguf
from inferlab.model.imatrix import ImportanceMatrix, read_imatrix

PROGRAM = "llama-imatrix"
N_CTX = 512  # tokens of a chunk, the program's default
LAST_LINES = 5


def importance_matrix(
    model: str | Path | None, text: str | Path, path: str | Path | None = None, n_chunks: int | None = None
) -> ImportanceMatrix:
    """Run a model over a text file and write how much each column of its matrices is used.

    model     in F16, BF16 or F32 (None: the embedded one)
    text      a file like the texts that the model will read; never the text on which the result will be judged
    path      the new file (None: MODEL-TEXT.gguf in the cache folder); it appears whole or not at all
    n_chunks  pieces of 512 tokens to read (None: all that the text has)

    Raises ModelError, InvalidSettings for a text that is not there, EngineUnavailable where `make tools` was not run,
    EngineRefused with the program's last lines.
    """
    source, text = find_model(model), Path(text).expanduser()
    if not text.is_file():
        raise InvalidSettings(f"{text} is no file. Give a text file, at least {N_CTX} tokens long.")
    target = Path(path).expanduser() if path else cache_folder() / f"{source.stem}-{text.stem}.gguf"
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.stem}.{os.getpid()}.partial.gguf")
    try:
        _run(source, text, partial, n_chunks)
        read_imatrix(partial).require_for(read_gguf(source))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return read_imatrix(target)


def _run(model: Path, text: Path, target: Path, n_chunks: int | None) -> None:
    program = built_program(PROGRAM)
    if program is None:
        raise EngineUnavailable(f"{PROGRAM} is not compiled. Compile it with `make tools`.")
    chunks = [] if n_chunks is None else ["--chunks", str(n_chunks)]
    paths = ["-m", str(model.absolute()), "-f", text.name, "-o", str(target.absolute())]  # text's name is in the file
    command = [str(program), *paths, "-c", str(N_CTX), "--no-ppl", *chunks]
    done = subprocess.run(command, cwd=text.absolute().parent, capture_output=True, text=True, errors="replace")
    if done.returncode or not target.is_file():
        last = "\n".join(done.stderr.splitlines()[-LAST_LINES:])
        raise EngineRefused(f"{PROGRAM} made no importance matrix from {text.name}.", last)
