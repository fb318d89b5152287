"""Which layers attend to a sliding window, and how many tokens it has.

A window is the header's `attention.sliding_window`, or the architecture's own. Which layers have it, the header may
say: in a list with a flag for each layer, or by the number n of set_swa_pattern(n), which the architecture has else:

    of n layers the last has the whole context, the others the window; in some architectures the first has it
    n = 0: all have the window; n = 1: none has

Layers that predict further tokens have the whole context, unless the list says otherwise.
Sources: llama-hparams.cpp:8-22, llama-model.cpp:3434-3441, src/models/<architecture>.cpp.
"""

from __future__ import annotations

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.architecture_table import architecture
from inferlab.model.dimensions import layers_counted, of_each_layer, required, trunk_layers
from inferlab.model.gguf import Model

PATTERN, WINDOW = "attention.sliding_window_pattern", "attention.sliding_window"


def windows_of(model: Model) -> tuple[int, ...]:
    """Tokens of each layer's window, 0 where it keeps the whole context.

    Raises UnsupportedArchitecture for a header without a number that llama.cpp needs.
    """
    n_layer, window = layers_counted(model), window_tokens(model)
    if not window:
        return (0,) * n_layer
    return tuple(window * bool(flag) for flag in _flags(model, n_layer))


def window_tokens(model: Model) -> int:
    """Tokens of the window; 0 where no layer has one."""
    kind = architecture(model.architecture)
    if not kind.may_have_windows:
        return 0
    if kind.windows_if_n_layer not in (None, trunk_layers(model)):
        return 0
    told = model.number(WINDOW, kind.assumed_window)
    if told is None and not kind.window_optional:
        required(model, WINDOW)
    return (kind.fixed_window or told or 0) if told else 0


def _flags(model: Model, n_layer: int) -> tuple[int, ...]:
    """Whether each layer has the window."""
    kind, n_trunk = architecture(model.architecture), trunk_layers(model)
    told = model.metadata.get(f"{model.architecture}.{PATTERN}")
    if kind.window_every != 0 and told is not None and not isinstance(told, int):
        return of_each_layer(model, PATTERN)
    if kind.window_pattern:
        raise UnsupportedArchitecture(
            f"The header of {model.name} ({model.architecture}) has no list {PATTERN}, which says what layers have a "
            "sliding window. llama.cpp would not load it."
        )
    every = kind.window_every or 0
    every = model.number(PATTERN, every) or 0 if every else 0
    full = 0 if kind.window_after_full else every - 1
    trunk = (every == 0 or i % every != full for i in range(n_trunk))
    return (*trunk, *(kind.cache == "compressed" for _ in range(n_layer - n_trunk)))
