"""Damaged files for the error clinic: each function writes one into a folder and returns its path."""

from __future__ import annotations

from pathlib import Path

from inferlab.errors import ModelError
from inferlab.model.find import tiny_model


def web_page(folder: Path) -> Path:
    """A web page under the name of a model."""
    return _written(folder, b"<!doctype html>\n<html><title>Sign in</title></html>\n" + b" " * 64)


def lfs_pointer(folder: Path) -> Path:
    """A pointer of Git LFS, in the form that its specification gives, in place of the model."""
    oid = b"0" * 64
    return _written(folder, b"version https://git-lfs.github.com/spec/v1\noid sha256:" + oid + b"\nsize 4000000000\n")


def incomplete(folder: Path) -> Path:
    """The first half of the embedded model."""
    content = tiny_model().read_bytes()
    return _written(folder, content[: len(content) // 2])


def unknown_architecture(folder: Path) -> Path:
    """The embedded model, whose architecture has another name of equal length."""
    return _written(folder, _renamed("general.architecture", b"llama", b"lumen"))


def unknown_pre_tokenizer(folder: Path) -> Path:
    """The embedded model, whose `tokenizer.ggml.pre` has a value that llama.cpp does not know."""
    return _written(folder, _renamed("tokenizer.ggml.pre", b"gpt-2", b"xxxxx"))


def _renamed(key: str, old: bytes, new: bytes) -> bytes:
    """The embedded model with a string value replaced by one of equal length, so that no offset changes."""
    content = tiny_model().read_bytes()
    at = content.find(old, content.find(key.encode()))
    if len(old) != len(new) or at < 0:
        raise ModelError(f"{key} has no value {old!r} that {new!r} could replace.")
    return content[:at] + new + content[at + len(old) :]


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path
