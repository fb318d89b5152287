"""Make the embedded model's importance matrices: one from its own kind of text, and six to compare with it.

    python matrices.py --work WORK    # WORK as `build.py corpus` left it; llama-imatrix from `make tools`

training   the beginning of the training text, calibration.txt: what a matrix should be made from
one-chunk  the first 512 tokens of the same
code       the code examples of the same pages, which the training left out: another kind of text
random     tokens in random order: no text at all
held-out   the text on which fidelity is judged: what must not be done
even       every column as important as every other: what a matrix changes besides importance
shuffled   the matrix of `training` with the columns of each tensor in random order: as useful as the matrix of another
           model that has the same names and sizes, which llama.cpp accepts

Nothing here is imported by the library.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from build import HERE, PACKAGES, Recipe, corpus_pages

import inferlab as lab
from inferlab.engine.importance import importance_matrix
from inferlab.model.gguf import read_part
from inferlab.model.imatrix import SUMS

N_BYTES = 120_000
N_CHUNKS = 56
FOLDER = HERE / "imatrix"


def training_text(work: Path) -> str:
    return _cut("\n\n\n".join(page[:12_000] for page in corpus_pages(work)[:60]))


def code_text(work: Path) -> str:
    """The code examples of the pages, in a random order of the pages."""
    from bs4 import BeautifulSoup

    pages = [page for name, folder in PACKAGES.items() for page in sorted((work / name / folder).rglob("*.html"))]
    random.Random(Recipe.seed).shuffle(pages)
    found, n_bytes = [], 0
    for page in pages:
        soup = BeautifulSoup(page.read_text(encoding="utf-8", errors="replace"), "html.parser")
        found += [block.get_text() for block in soup.find_all("pre")][:40]
        n_bytes = sum(map(len, found))
        if n_bytes > 2 * N_BYTES:
            break
    return _cut("\n".join(found))


def random_text() -> str:
    """Tokens of the vocabulary, each as probable as any other."""
    vocabulary = lab.read_gguf(lab.tiny_model()).n_vocab
    draws = random.Random(Recipe.seed)
    return lab.detokenize([draws.randrange(2, vocabulary) for _ in range(N_CHUNKS * 512)], "tiny")


def write_changed(source: Path, target: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """The same file with every tensor of sums changed."""
    data = bytearray(source.read_bytes())
    for tensor in read_part(source, {}).tensors:
        if tensor.name.endswith(SUMS):
            sums = np.frombuffer(data, "<f4", tensor.n_elements, tensor.offset)
            data[tensor.offset : tensor.offset + tensor.n_bytes] = change(sums).tobytes()
    target.write_bytes(data)


def _cut(text: str) -> str:
    return text.encode()[:N_BYTES].decode(errors="ignore").rsplit("\n", 1)[0] + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder of `build.py corpus`")
    work = parser.parse_args().work
    (HERE / "calibration.txt").write_text(training_text(work), encoding="utf-8")
    (work / "code.txt").write_text(code_text(work), encoding="utf-8")
    (work / "random.txt").write_text(random_text(), encoding="utf-8")
    texts = {
        "training": (HERE / "calibration.txt", N_CHUNKS),
        "one-chunk": (HERE / "calibration.txt", 1),
        "code": (work / "code.txt", N_CHUNKS),
        "random": (work / "random.txt", N_CHUNKS),
        "held-out": (HERE / "held-out.txt", N_CHUNKS),
    }
    for name, (text, most) in texts.items():
        made = importance_matrix("tiny", text, FOLDER / f"{name}.gguf", most)
        print(f"{name}: {made.n_chunks} chunks of {text.name}")
    draws = np.random.default_rng(Recipe.seed)
    write_changed(FOLDER / "training.gguf", FOLDER / "even.gguf", lambda sums: np.full_like(sums, sums.mean()))
    write_changed(FOLDER / "training.gguf", FOLDER / "shuffled.gguf", draws.permutation)


if __name__ == "__main__":
    main()
