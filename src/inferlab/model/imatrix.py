"""Reads an importance matrix: how much each column of a model's matrices is used on a sample text.

A column of a matrix is multiplied with one activation x of each token. llama-imatrix adds up x**2 over the tokens:

    importance of a column = sum of x**2 / tokens

Of experts each has columns of its own, which count only the tokens that were routed to it.
The file is a GGUF with two tensors for each matrix, NAME.in_sum2 and NAME.counts (tools/imatrix/imatrix.cpp:558-630,
read by common/imatrix-loader.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.errors import DamagedGGUF, InvalidSettings, NotGGUF
from inferlab.model.gguf import Model, Tensor, read_part
from inferlab.model.gguf_kinds import IMATRIX
from inferlab.model.quant_mixes import is_quantized

if TYPE_CHECKING:
    import numpy as np

SUMS, COUNTS = ".in_sum2", ".counts"
NOT_COUNTED = ("token_embd.weight", "output.weight", "per_layer_token_embd.weight")
"""Matrices that may be absent: embeddings are looked up, and llama-imatrix leaves out the output matrix by default."""


@dataclass(frozen=True, eq=False)
class ImportanceMatrix:
    """The importance of every column of the matrices that llama-imatrix watched.

    datasets  names of the texts, without their folders
    n_chunks  pieces of the texts that were read, of n_ctx tokens each
    columns   matrix -> importance of its columns in 32-bit floats, (experts, columns)
    tokens    matrix -> tokens that were counted, for each of its experts
    """

    path: Path
    datasets: tuple[str, ...]
    n_chunks: int
    n_ctx: int
    columns: Mapping[str, np.ndarray] = field(repr=False)
    tokens: Mapping[str, tuple[int, ...]] = field(repr=False)

    @property
    def unseen_experts(self) -> tuple[str, ...]:
        """`MATRIX, expert N` for each expert that no token reached: llama.cpp gives all of its columns importance 1."""
        counted = ((name, n, count) for name, counts in self.tokens.items() for n, count in enumerate(counts))
        return tuple(f"{name}, expert {n}" for name, n, count in counted if not count)

    def require_for(self, model: Model) -> None:
        """Refuse a matrix that was not made from this model.

        llama.cpp would quantize a tensor without an entry as if there were no matrix, and say so only in its log
        (llama-quant.cpp:1279); a wrong number of columns ends its work in the middle (line 1292).
        Raises InvalidSettings with the first tensor that has no entry, or one of another size.
        """
        for tensor in filter(is_quantized, model.tensors):
            columns = self.columns.get(tensor.name)
            if columns is None and tensor.name not in NOT_COUNTED:
                raise self._refused(model, f"has no entry for {tensor.name}")
            needed = tensor.shape[0] * prod(tensor.shape[2:])
            if columns is not None and columns.size != needed:
                raise self._refused(model, f"has {columns.size} columns for {tensor.name}, which has {needed}")

    def _refused(self, model: Model, what: str) -> InvalidSettings:
        return InvalidSettings(
            f"{self.path.name} {what}, so it was not made from {model.path.name}. "
            f"Make one: inferlab imatrix {model.path.name} TEXT"
        )


def read_imatrix(path: str | Path) -> ImportanceMatrix:
    """Read the file of an importance matrix.

    Raises ModelNotFound, NotGGUF for a file of another kind, DamagedGGUF for missing or unusable numbers.
    """
    header = _header(Path(path))
    tensors = {tensor.name: tensor for tensor in header.tensors}
    names = [name.removesuffix(SUMS) for name in tensors if name.endswith(SUMS)]
    read = {name: [_floats(header, tensors.get(name + suffix), name) for suffix in (SUMS, COUNTS)] for name in names}
    columns = {name: _means(header, name, *pair) for name, pair in read.items()}
    tokens = {name: tuple(map(int, counts)) for name, (_, counts) in read.items()}
    try:
        texts = tuple(text.replace("\\", "/").rsplit("/", 1)[-1] for text in header.array(f"{IMATRIX}.datasets"))
        n_chunks, n_ctx = (header.metadata[f"{IMATRIX}.{key}"] for key in ("chunk_count", "chunk_size"))
    except KeyError as error:
        raise _damaged(header, f"{error.args[0]} is missing") from None
    return ImportanceMatrix(header.path, texts, n_chunks, n_ctx, columns, tokens)


def _header(path: Path) -> Model:
    try:
        header = read_part(path, {})
    except NotGGUF as error:
        raise NotGGUF(
            f"{error} A matrix in llama.cpp's older format (.dat) must be converted first: "
            f"llama-imatrix --in-file {path.name} -o {path.stem}.gguf"
        ) from None
    if header.metadata.get("general.type") != IMATRIX:
        raise NotGGUF(f"{path} is a GGUF, but no importance matrix. Make one: inferlab imatrix MODEL TEXT")
    return header


def _damaged(header: Model, what: str) -> DamagedGGUF:
    return DamagedGGUF(f"{header.path}: {what}. Make the importance matrix again: inferlab imatrix MODEL TEXT")


def _floats(header: Model, tensor: Tensor | None, name: str) -> np.ndarray:
    import numpy as np

    if tensor is None or tensor.type != "F32":
        raise _damaged(header, f"the sums or the counts of {name} are missing, or not in F32")
    return np.fromfile(header.path, "<f4", tensor.n_elements, offset=tensor.offset)


def _means(header: Model, name: str, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum / count of every column, and 1 where an expert saw no token (tools/quantize/quantize.cpp:200)."""
    import numpy as np

    if sums.size % counts.size or not (np.isfinite(sums).all() and np.isfinite(counts).all()):
        raise _damaged(header, f"the sums of {name} are not finite, or do not fit its {counts.size} experts")
    by_expert, counts = sums.reshape(counts.size, -1), counts[:, None]
    return np.divide(by_expert, counts, out=np.ones_like(by_expert), where=counts > 0)
