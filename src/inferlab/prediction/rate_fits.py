"""Rates of a device from the times of its single operations.

Every fit minimizes the sum of squared relative errors with rates that are not negative:

    min over x >= 0 of sum over operations (terms . x / seconds - 1)^2

so that a small product counts as much as a large one. `rates` has the equations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inferlab.measurement.operations import Attention, Product
from inferlab.model.kernels import KERNEL_OF_BUFFER
from inferlab.prediction.rates import TILED_CACHES, AttentionKey, AttentionRates, MatrixKey, MatrixRates, attended_cells
from inferlab.statistics import nonnegative_fit


def matrix_rates(products: Iterable[Product]) -> dict[MatrixKey, MatrixRates]:
    """Rates by type and extra buffer, from products with one token and with many."""
    groups: dict[MatrixKey, list[Product]] = {}
    for product in products:
        extra = product.buffer if product.buffer in KERNEL_OF_BUFFER else ""
        groups.setdefault(MatrixKey.from_parts(product.type, extra), []).append(product)
    return {key: _matrix_rates(group) for key, group in groups.items()}


def _matrix_rates(products: Sequence[Product]) -> MatrixRates:
    single = [p for p in products if p.n_tokens == 1]
    many = [p for p in products if p.n_tokens > 1]
    per_byte, per_row, per_product = nonnegative_fit(
        [(p.n_bytes, p.n_rows, 1.0) for p in single], [p.typical for p in single]
    )
    beside = [p.typical - min(per_product, p.typical / 2) for p in many]
    unpack, weight, value_in, value_out = nonnegative_fit([_batch_terms(p) for p in many], beside)
    return MatrixRates(per_byte, weight, per_row, unpack, value_in, value_out, per_product)


def _batch_terms(product: Product) -> tuple[float, ...]:
    n_weights = product.n_rows * product.n_cols
    n_tokens = product.n_tokens
    return n_weights, n_weights * n_tokens, n_tokens * product.n_cols, n_tokens * product.n_rows


def attention_rates(operations: Iterable[Attention], on_cpu: bool) -> dict[AttentionKey, AttentionRates]:
    """Rates by type, path and values of a head, from one query over shared and unshared heads, and a batch."""
    groups: dict[AttentionKey, list[Attention]] = {}
    for operation in operations:
        path = "flash" if operation.flash else "plain"
        groups.setdefault(AttentionKey.from_parts(operation.type_k.lower(), path, operation.head_dim), []).append(
            operation
        )
    return {key: _attention_rates(group, on_cpu) for key, group in groups.items()}


def _attention_rates(operations: Sequence[Attention], on_cpu: bool) -> AttentionRates:
    single = [a for a in operations if a.n_tokens == 1]
    per_cell, per_byte = nonnegative_fit(
        [(a.n_head * a.n_cells, a.n_cells * a.cell_bytes) for a in single], [a.typical for a in single]
    )
    batch = [a.typical / (a.n_head * _batch_cells(a, on_cpu)) for a in operations if a.n_tokens > 1]
    return AttentionRates(per_cell, per_byte, sum(batch) / len(batch))


def _batch_cells(batch: Attention, on_cpu: bool) -> float:
    tiled = batch.type_k.lower() in TILED_CACHES
    return attended_cells(batch.n_tokens, batch.depth, batch.n_cells, skips_masked=on_cpu and batch.flash, tiled=tiled)
