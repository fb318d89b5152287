"""The tensors of llama.cpp's architectures: names, and shapes from a header's dimensions (data/facts/layouts.toml).

A width in the table is an expression over the header, such as `n_head * head_k`; the table's head explains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.facts import read_table

NamedShape = tuple[str, tuple[int, ...]]
OUTSIDE = "outside"
RMS_EPSILON = "attention.layer_norm_rms_epsilon"
EQUAL_HEADS = ("head_k = head_v",)  # most layouts of llama.cpp have one width for both


@dataclass(frozen=True)
class Line:
    """One tensor of a layout: its name, its shape, and the condition under which a file has it."""

    name: str
    shape: CodeType
    condition: CodeType | None
    text: str


@dataclass(frozen=True)
class Layout:
    """The tensors of one architecture.

    source: file and line in src/models of llama.cpp; norm: the key of the norms' epsilon; requires: equations without
    which llama.cpp does not load a file; keys: what it wants in a header besides; where: the condition of each group of
    layers; groups: the tensors of each.
    """

    source: str
    norm: str
    requires: tuple[str, ...]
    keys: dict[str, Any]
    where: dict[str, CodeType]
    groups: dict[str, tuple[Line, ...]]

    @property
    def names(self) -> frozenset[str]:
        """Every dimension and condition that a shape or a group depends on."""
        codes = [code for lines in self.groups.values() for line in lines for code in (line.shape, line.condition)]
        return frozenset(name for code in [*codes, *self.where.values()] if code for name in code.co_names)

    def uses(self, name: str) -> bool:
        """Whether a shape or a group depends on this dimension."""
        return name in self.names

    def shapes(self, header: Mapping[str, Any], optional: tuple[str, ...] = ()) -> Iterator[NamedShape]:
        """Name and shape of every tensor by layer, then by name, from a header's keys without the prefix.

        optional: the names of conditions that this model's file fulfils, such as "tied" or "qkv_bias".
        Raises InvalidSettings where a dimension is missing or does not fit.
        """
        values = _Values({name: 1 for name in optional} | _named(header))
        n_layer = values["n_layer"]
        yield from sorted(self._of_group(OUTSIDE, _of_layer(values, 0)))
        made: dict[tuple[Any, ...], list[NamedShape]] = {}
        uneven = [name for name, value in values.items() if isinstance(value, tuple)]
        for i in range(n_layer):
            layer = _of_layer(values, i)
            groups = tuple(group for group, code in self.where.items() if _is_in(layer, group, code))
            alike = (groups, *(layer[name] for name in uneven))
            if alike not in made:
                made[alike] = sorted(shape for group in groups for shape in self._of_group(group, layer))
            yield from ((f"blk.{i}.{name}", shape) for name, shape in made[alike])

    def _of_group(self, group: str, values: _Values) -> Iterator[NamedShape]:
        for line in self.groups.get(group, ()):
            if line.condition is None or _computed(line.condition, values):
                shape = _computed(line.shape, values)
                if not all(width > 0 for width in shape):
                    raise InvalidSettings(
                        f"{line.name} would be {' x '.join(map(str, shape))} ({line.text}), which is no tensor. "
                        "Give the dimensions that its shape is made of."
                    )
                yield line.name, shape

    def require(self, header: Mapping[str, Any], architecture: str) -> None:
        """Raise InvalidSettings for dimensions with which llama.cpp does not load a file."""
        values = _of_layer(_Values(_named(header)), 0)
        for wanted in self.requires:
            sign = ">=" if ">=" in wanted else "="
            left, right = (_computed(_compiled(side), values) for side in wanted.split(f" {sign} "))
            if not (left >= right if sign == ">=" else left == right):
                raise InvalidSettings(f"{architecture} wants {wanted}, but these are {left} and {right}.")


class _Values(dict[str, Any]):
    """Dimensions by the names that expressions use: one that a header lacks is 0, and has_NAME asks for it."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("has_"):
            return name.removeprefix("has_") in self
        return self.get(short_names().get(name, ""), 0)


def _of_layer(values: _Values, i: int) -> _Values:
    """The dimensions of layer i: of a list, its value there."""
    own = {name: value[i] for name, value in values.items() if isinstance(value, tuple) and i < len(value)}
    return _Values(values | own | {"i": i})


def _is_in(layer: _Values, group: str, condition: CodeType) -> bool:
    """Whether a group has this layer; the answer is a value of its own for the conditions behind it."""
    layer[group] = _computed(condition, layer)
    return bool(layer[group])


def _computed(code: CodeType, values: _Values) -> Any:
    return eval(code, {"__builtins__": {}}, values)


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "layouts.toml", "eval")


def _named(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header's values as expressions name them."""
    return {_name(key): value for key, value in header.items()}


def _name(key: str) -> str:
    return key.replace(".", "_")


@cache
def _table() -> dict[str, Any]:
    return read_table("layouts")


@cache
def short_names() -> dict[str, str]:
    """The table's short names of keys: n_embd -> embedding_length."""
    return {short: _name(key) for short, key in _table()["names"].items()}


def architectures_with_layout() -> tuple[str, ...]:
    """The architectures whose tensors are known here, by llama.cpp's names."""
    return tuple(name for name in _table() if name not in ("names", "where", "parts"))


@cache
def layout(architecture: str) -> Layout:
    """The layout of an architecture. Raises UnsupportedArchitecture where there is none."""
    if architecture not in architectures_with_layout():
        told = ", ".join(architectures_with_layout())
        raise UnsupportedArchitecture(
            f"No tensors are known for the architecture {architecture!r}; they are for {told}."
        )
    entry = dict(_table()[architecture])
    source, norm = entry.pop("source"), entry.pop("norm", RMS_EPSILON)
    requires, own = tuple(entry.pop("requires", EQUAL_HEADS)), entry.pop("where", {})
    usual = _table()["where"]
    where = {group: text for group, text in own.items() if group not in usual} | usual | own
    keys = entry.pop("keys", {})
    groups = {group: tuple(_lines(texts)) for group, texts in entry.items()}
    return Layout(source, norm, requires, keys, {group: _compiled(text) for group, text in where.items()}, groups)


def _lines(texts: list[str]) -> Iterator[Line]:
    for text in texts:
        if text.startswith("+"):
            yield from _lines(_table()["parts"][text[1:]])
            continue
        name, said = text.split(": ", 1)
        shape, _, condition = said.partition(" when ")
        yield Line(name, _compiled(f"({shape},)"), _compiled(condition) if condition else None, shape)
