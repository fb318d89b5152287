"""Rows of the page on error messages, from data/facts/log_findings.toml: the message, what it means, what to do.

The groups name rules, so that the page has an order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from inferlab.log_reader.rules import Rule, fix_for, rules

GROUPS = {
    "file": (
        *("html-page", "lfs-pointer", "not-gguf", "incomplete-file", "unknown-architecture"),
        "unknown-pre-tokenizer",
    ),
    "memory": ("out-of-memory", "too-little-ram", "fit-failed", "mlock-failed"),
    "device": (
        *("driver-too-old", "no-kernel-image", "cuda-not-started", "gpu-lost", "illegal-instruction"),
        *("flash-attention-unsupported", "cache-types-without-kernel", "no-nccl", "rpc-version"),
    ),
    "request": (
        *("quantized-values", "pool-exceeded", "batch-too-small", "port-taken", "decode-failed", "input-truncated"),
        *("context-shift", "beyond-training", "full-reprocessing", "prompt-not-kept", "chat-template", "no-free-cells"),
        "draft-refused",
    ),
}
HEADS = ("message", "what it means", "what to do")
READ_FROM_THE_LOG = re.compile(r"\{\w+\}")
"""A part of a sentence that the log reader takes from the line."""


def message_rows(group: str) -> list[tuple[str, str, str]]:
    """One row for each rule of a group, by the columns HEADS, with llama.cpp's own names of the settings.

    Raises KeyError for an unknown group.
    """
    return rows(GROUPS[group])


def rows(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """One row for each named rule. Raises KeyError for an unknown rule."""
    return [_row(rules()[name]) for name in names]


def _row(rule: Rule) -> tuple[str, str, str]:
    return f"`{rule.any[0].strip()}`", READ_FROM_THE_LOG.sub("…", rule.what), " ".join(fix_for(rule, "cli"))
