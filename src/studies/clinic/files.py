"""Damaged files for the error clinic: each function writes one into a folder and returns its path."""

from __future__ import annotations

from pathlib import Path

from inferlab.model.find import tiny_model

WEB_PAGE = b"<!doctype html>\n<html><title>Sign in</title></html>\n" + b" " * 64
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4000000000\n"
"""In the form that the specification of Git LFS gives."""


def written(folder: Path, content: bytes) -> Path:
    """The content under the name of a model."""
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def incomplete(folder: Path) -> Path:
    """The first half of the embedded model."""
    content = tiny_model().read_bytes()
    return written(folder, content[: len(content) // 2])


def renamed(folder: Path, key: str, old: bytes, new: bytes) -> Path:
    """The embedded model with a string value replaced by one of equal length, so that no offset changes."""
    content = tiny_model().read_bytes()
    at = content.index(old, content.index(key.encode()))
    return written(folder, content[:at] + new + content[at + len(old) :])
