"""Build llama.cpp's own programs from the source of the pinned llama-cpp-python: `make tools`.

    llama_tools.py BACKEND [OPTION ...]    BACKEND as in GPU=, then options for llama.cpp's CMake build

pip fetches the source distribution that requirements.txt pins, and CMake, from the index that pip is configured for.
Programs and libraries end in .tools/bin. They are built again when the pin or the backend is another.
The web interface of llama-server is left out, so that the build needs neither npm nor a download.
An interrupted build goes on where it stopped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "llama-bench": "prefill and decode rates",
    "llama-batched-bench": "decode rates of several sequences at once",
    "llama-perplexity": "perplexity, and KL divergence from a reference model",
    "llama-fit-params": "layers and context that fit into the free memory",
    "llama-imatrix": "importance matrix of a model, for quantization",
    "llama-server": "HTTP server with slots and continuous batching",
    "test-llama-archs": "a small model of every architecture (-o FOLDER), for tests/data/architectures",
}
PACKAGE = "llama-cpp-python"
FOLDER = Path(".tools")


def pin(requirements: Path = Path("requirements.txt")) -> str:
    """The pinned version of llama-cpp-python. Exits if the file has none."""
    pinned = re.search(rf"^{PACKAGE}==(\S+)", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    if not pinned:
        raise SystemExit(f"{requirements} pins no {PACKAGE}. Add the line that README.md's installation needs.")
    return pinned[1]


def cmake_options(options: list[str]) -> list[str]:
    """What the library itself is built with (requirements.txt, GPU=), without the parts that no program needs."""
    beside = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    return [
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_BUILD_RPATH={beside}",
        "-DGGML_RPC=on",
        "-DLLAMA_OPENSSL=off",
        "-DLLAMA_BUILD_UI=off",
        "-DLLAMA_USE_PREBUILT_UI=off",
        "-DLLAMA_BUILD_TESTS=on",  # of which only those in PROGRAMS are compiled
        "-DLLAMA_BUILD_EXAMPLES=off",
        "-DLLAMA_BUILD_APP=off",
        *options,
    ]


def run(*command: str | Path) -> None:
    """Run a command with the CMake of `get_cmake` in reach. Exits if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER / "cmake")}
    if subprocess.run([str(word) for word in command], env=environment).returncode:
        raise SystemExit(f"This command failed: {' '.join(map(str, command))}")


def pip(*words: str | Path) -> None:
    run(sys.executable, "-m", "pip", *words)


def get_cmake() -> None:
    if not (FOLDER / "cmake").is_dir():
        pip("install", "--quiet", "--target", FOLDER / "cmake", "cmake")


def get_source(version: str) -> Path:
    """The folder of llama.cpp in the unpacked source distribution."""
    source = FOLDER / f"{PACKAGE.replace('-', '_')}-{version}"
    if not source.is_dir():
        pip(
            "download",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
            "--no-binary",
            PACKAGE,
            "--dest",
            FOLDER,
            f"{PACKAGE}=={version}",
        )
        shutil.unpack_archive(f"{source}.tar.gz", FOLDER / "unpacked")
        (FOLDER / "unpacked" / source.name).rename(source)
    return source / "vendor" / "llama.cpp"


def build(source: Path, folder: Path, options: list[str]) -> None:
    cmake = sys.executable, "-m", "cmake"
    run(*cmake, "-S", source, "-B", folder, *options)
    for program in PROGRAMS:
        run(*cmake, "--build", folder, "--parallel", str(os.cpu_count() or 1), "--target", program)


def main(backend: str, options: list[str]) -> None:
    version = pin()
    made_from = f"{PACKAGE} {version}, GPU={backend}\n"
    stamp, programs = FOLDER / "bin" / "made-from.txt", FOLDER / "bin"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != made_from:
        FOLDER.mkdir(exist_ok=True)
        get_cmake()
        folder = FOLDER / f"build-{version}-{backend}"
        build(get_source(version), folder, cmake_options(options))
        shutil.rmtree(programs, ignore_errors=True)
        (folder / "bin").rename(programs)
        stamp.write_text(made_from, encoding="utf-8")
        for place in [place for place in FOLDER.iterdir() if place != programs]:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    print(f"Built from {made_from.strip()}:")
    for program, purpose in PROGRAMS.items():
        print(f"  {programs / program!s:<29} {purpose}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
