"""A plan as the lines that one pastes into llama-server, llama-cpp-python, Ollama or LM Studio.

Names come from data/facts/options.toml. A value that equals the program's own default is left out, unless the plan
depends on it: context and layers are always written. What a program has no setting for becomes a comment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

from inferlab.engine.option_names import arguments, flag, options, programs
from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import padded, row_bytes
from inferlab.prediction.fit import DEFAULT_N_CTX, Answer, Fit
from inferlab.prediction.memory.cache import WINDOWED
from inferlab.settings import UNQUANTIZED, Settings
from inferlab.units import MIB, bytes_text

PLACEHOLDER = "model.gguf"
SMALL = 512 * MIB  # bytes that every machine has beside a model
BLOCKS = 256  # values in whole blocks of every cache type, to compare their bytes
ALWAYS = ("n_ctx", "n_gpu_layers")
MEMORY = ("flash_attn", "type_k", "type_v", "n_batch", "n_ubatch", "n_seq_max", "offload_kqv")
OTHERS = ("n_threads", "n_threads_batch", "op_offload", "kv_unified", "load_mode", "use_extra_bufts", "no_host",
          "split_mode", "main_gpu", "tensor_split", "devices", "rpc_servers")  # fmt: skip
NO_ROW = {"devices": "-dev", "rpc_servers": "--rpc"}
NO_ROW_WHAT = {"devices": "devices to use", "rpc_servers": "other machines to use"}
"""Settings that name the parts of one machine, with llama-server's flags; the table has no row for them."""
LM_STUDIO_TYPES = ("f32", "f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")  # LLMLoadModelConfig.ts


@dataclass(frozen=True)
class Part:
    """Lines for one place: the terminal, a file named `Modelfile`, fields of an interface."""

    where: str
    text: str
    language: str = "sh"


@dataclass(frozen=True)
class Pasted:
    """A plan's lines for one program.

    settings  what the lines ask for: those of the plan, or the nearest that fit; None where nothing fits
    notes     sentences: what was changed and why, and what stands for something else
    parts     the lines, by the place where they are pasted; empty where nothing fits
    """

    program: str
    settings: Settings | None
    notes: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The notes and the lines for a terminal, each part below its place."""
        return "\n\n".join([*self.notes, *(f"{part.where}:\n{_indented(part.text)}" for part in self.parts)])

    def _repr_markdown_(self) -> str:
        """As the last line of a page's cell."""
        return self.markdown

    @property
    def markdown(self) -> str:
        """The notes and the lines for a page: each part as a code block below its place."""
        blocks = (f"{part.where}:\n\n```{part.language}\n{part.text}\n```"
                  for part in self.parts)  # fmt: skip
        return "\n\n".join([*self.notes, *blocks])


def lines_for(
    found: Fit, program: str, model_path: str | Path | None = None, n_ctx_train: int | None = None
) -> Pasted:
    """The lines of a plan for one program: llama-server, llama-cpp-python, ollama or lmstudio.

    Where the plan does not fit, they are those of the nearest setting that does: fewer layers on the GPU if any fit
    there, else a context of at least 4096 that is shorter, else no layer on the GPU or any context. Where nothing fits
    there are none.
    model_path is the file; None: `model.gguf` stands for it. n_ctx_train is the context that the model was trained
    with (`Model.n_ctx_train`); a note says where the lines have more.
    Raises InvalidSettings for any other program.
    """
    key = _key(program)
    settings, notes = nearest(found)
    if settings is None:
        return Pasted(program, None, notes, ())
    if model_path is None:
        notes += (f"{PLACEHOLDER} stands for the path of your file.",)
    notes += _ram_note(found, settings) + _trained_note(settings, n_ctx_train, key)
    values = requested(found, settings)
    write = {"cli": _llama_server, "python": _llama_cpp_python, "ollama": _ollama, "lmstudio": _lm_studio}[key]
    return Pasted(program, settings, notes, tuple(write(values, found, str(model_path or PLACEHOLDER))))


def programs_for() -> tuple[str, ...]:
    """The names that `lines_for` takes."""
    return tuple(program.pastes for program in programs().values() if program.pastes)


def _key(program: str) -> str:
    keys = {one.pastes: key for key, one in programs().items() if one.pastes}
    if program not in keys:
        raise InvalidSettings(f"No lines can be written for {program!r}. There are: {', '.join(keys)}.")
    return keys[program]


def nearest(found: Fit) -> tuple[Settings | None, tuple[str, ...]]:
    """The settings of a plan, or the nearest that fit, and in a sentence what was changed; None where none fit."""
    if found.fits == "yes":
        return found.plan.settings, ()
    if found.fits == "unsure":
        return found.plan.settings, ("This may not fit, and these lines are the plan as you asked for it.",)
    layers, context = found.most_layers, found.largest_n_ctx
    fitting = [answer for answer in (layers, context, found.cache_type) if answer.settings is not None]
    if not fitting:
        reasons = " ".join(dict.fromkeys([context.reason, layers.reason]))
        why = f"Nothing that was tried fits, so there are no lines to paste. {reasons} {_advice(found)}"
        return None, (why,)
    if not layers.value and fitting[:2] == [layers, context] and context.value >= DEFAULT_N_CTX:
        fitting[:2] = [context, layers]
    first, *others = (f"{_setting(found, one)}, {one.question}" for one in fitting)
    other = f" This would fit too: {'; or '.join(others)}." if others else ""
    return fitting[0].settings, (f"What you asked for does not fit. These lines have {first}.{other}",)


def _ram_note(found: Fit, settings: Settings) -> tuple[str, ...]:
    """What the host must hold, where its memory is unknown and was therefore not compared."""
    if found.free_bytes.get("host") is not None:
        return ()
    n_bytes, compute_known = _host_bytes(found, settings)
    more = "" if compute_known else ", and a compute buffer"
    return (f"RAM was not compared: these lines need up to {bytes_text(n_bytes)} there{more}.",) * (n_bytes >= SMALL)


def _host_bytes(found: Fit, settings: Settings) -> tuple[int, bool]:
    """The most that the host holds with the settings, and whether its compute buffer is in that.

    The host has the input and the first layers; what was planned for a longer context is an upper end.
    """
    if settings == found.plan.settings:
        return found.plan.most_bytes("host"), True
    on_host = found.plan.layers[: 1 + _all_layers(found) - _layers(found, settings)]
    cached = on_host if settings.offload_kqv else found.plan.layers
    compute = found.plan.compute_range.get("host", (0, 0))[1]
    n_bytes = sum(row.weights_bytes for row in on_host) + sum(row.kv_cache_bytes for row in cached) + compute
    return n_bytes, compute > 0


def _trained_note(settings: Settings, n_ctx_train: int | None, program: str) -> tuple[str, ...]:
    """A note on a context, of one sequence, above the trained one; llama-server caps it (server-context.cpp:4008)."""
    n_ctx = settings.n_ctx if settings.kv_unified else settings.n_ctx // settings.n_seq_max
    if not n_ctx_train or n_ctx <= n_ctx_train:
        return ()
    cap = f" llama-server gives each slot at most {n_ctx_train:,}." if program == "cli" else ""
    return (f"The model was trained for {n_ctx_train:,} tokens; more are of little use.{cap}",)


def _setting(found: Fit, answer: Answer) -> str:
    if answer is found.cache_type:
        return f"type_k={answer.value} and type_v={answer.value}"
    return f"{'n_ctx' if answer is found.largest_n_ctx else 'n_gpu_layers'}={answer.value:,}"


def _advice(found: Fit) -> str:
    """What to plan with instead: smaller weights where these alone are too large for all devices together."""
    rooms = found.room_bytes
    if None not in rooms.values() and "host" in rooms and (found.plan.bytes_of("weights") or 0) > sum(rooms.values()):
        return "The weights alone are too large: plan with weights of a smaller type, or with a smaller model."
    ways = ["a smaller --reserve"] if found.reserve_bytes else []
    if set(rooms) - {"host"}:
        ways.append("`--devices none` (the card unused)")
        ways += ["fewer layers and a shorter context"] * all(room is None or room > 0 for room in rooms.values())
    return f"Plan with {''.join(f'{way}, ' for way in ways)}{'or ' if ways else ''}weights of a smaller type."


def requested(found: Fit, settings: Settings) -> dict[str, Any]:
    """What the lines must say, by the names of `Settings`: all that memory depends on, and what is not the default.

    Layers are counted out, with none where the plan has no GPU; quantized values turn flash attention on.
    """
    usual = Settings()
    values = {name: getattr(settings, name) for name in (*ALWAYS, *MEMORY)}
    values |= {name: getattr(settings, name) for name in OTHERS if getattr(settings, name) != getattr(usual, name)}
    values |= {"n_gpu_layers": _layers(found, settings), **_batches(settings, usual)}
    if settings.flash_attn == "auto" and settings.type_v not in UNQUANTIZED:
        values["flash_attn"] = "on"
    if settings.n_seq_max > 1:
        values["kv_unified"] = settings.kv_unified
    if found.plan.model.architecture in WINDOWED:
        values["swa_full"] = settings.swa_full
    return values


def _batches(settings: Settings, usual: Settings) -> dict[str, int]:
    """The batch sizes, or the usual ones where the plan has less only because its whole context is one batch."""
    sizes = {name: getattr(settings, name) for name in ("n_batch", "n_ubatch")}
    if padded(settings.n_batch) < settings.n_ctx:
        return sizes
    cut = {name: size for name, size in sizes.items() if size == settings.n_batch}
    return sizes | {name: max(size, getattr(usual, name)) for name, size in cut.items()}


def _layers(found: Fit, settings: Settings) -> int:
    if not any(device != "host" for device in found.plan.devices):
        return 0
    every = _all_layers(found)
    return every if settings.n_gpu_layers < 0 else min(settings.n_gpu_layers, every)


def _all_layers(found: Fit) -> int:
    """The blocks and the output layer."""
    return sum(layer.index is not None for layer in found.plan.layers) + 1


def is_default(name: str, value: Any, program: str) -> bool:
    """Whether a program does so by itself; always false for the context, the layers and what has no row."""
    if name in ALWAYS or name not in options():
        return False
    said = re.split(r"[:,;] ?", options()[name].default_in(program))
    return bool({str(value), _switch(value)} & set(said))


def _switch(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


# --- one program each -------------------------------------------------------------------------


def _llama_server(values: dict[str, Any], found: Fit, path: str) -> Iterator[Part]:
    words = ["llama-server", "-m", shlex.quote(path)]
    for name, value in values.items():
        if name in NO_ROW:
            words += [NO_ROW[name], ",".join(value) or "none"]
        elif name == "tensor_split":
            words += [options()[name].cli, ",".join(f"{share:g}" for share in value)]
        elif not is_default(name, value, "cli"):
            words.append(flag(name, value))
    port = options()["port"]
    yield Part("In a terminal", " ".join(filter(None, [*words, port.cli, port.cli_default])))


def _llama_cpp_python(values: dict[str, Any], found: Fit, path: str) -> Iterator[Part]:
    lines = [f"    model_path={path!r},"]
    for name, value in values.items():
        if is_default(name, value, "python"):
            continue
        if name == "split_mode":
            lines.append(f"    {name}={SPLIT_MODES[value]},  # {value}")
        elif name == "tensor_split":
            lines.append(f"    {name}={list(value)!r},")
        elif name not in options() or not (options()[name].python or name == "n_seq_max"):
            lines.append(f"    {_cannot(name, value, 'llama-cpp-python')}")
        elif name == "n_seq_max":
            lines += [] if value == 1 else [f"    # llama-cpp-python computes one sequence; the plan has {value}"]
        else:
            code = f"  # {value}" if name in ("type_k", "type_v") else ""
            lines += [f"    {_cannot(name, value, 'llama-cpp-python')}"] if value == "direct_io" else []
            lines += [f"    {one},{code}" for one in arguments({name: value})]
    yield Part("In Python", "\n".join(["from llama_cpp import Llama", "", "llm = Llama(", *lines, ")"]), "python")


SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}  # llama_split_mode, llama.h


OLLAMA_SERVER = "In the terminal of the server, before it starts (a service takes them from its own environment)"


def _ollama(values: dict[str, Any], found: Fit, path: str) -> Iterator[Part]:
    file, server, comments = [f"FROM {_ollama_path(path)}"], [], []
    for name, value in _for_ollama(values, comments).items():
        option = options().get(name)
        known = option.ollama if option else ""
        if is_default(name, value, "ollama" if known else "cli") and name != "n_ubatch":
            continue
        if name == "load_mode":
            file.append(f"PARAMETER {known} {str('mmap' in value or value == 'auto').lower()}")
            comments += [_cannot(name, value, "Ollama")] if "mlock" in value or value == "direct_io" else []
        elif known.islower():
            file.append(f"PARAMETER {known} {value}")
        elif known or (option and option.env):
            server.append(f"export {known or option.env}={_environment(name, value)}")
        else:
            comments.append(_cannot(name, value, "Ollama"))
    yield Part("In a file named Modelfile", "\n".join(file), "text")
    if server:
        yield Part(OLLAMA_SERVER, "\n".join([*comments, *server, "ollama serve"]))
    create = "ollama create my-model -f Modelfile\nollama run my-model"
    yield Part("In another terminal", create) if server else Part("In a terminal", "\n".join([*comments, create]))


def _for_ollama(values: dict[str, Any], comments: list[str]) -> dict[str, Any]:
    """The values with one batch size, one cache type, and the context of one sequence, as Ollama counts."""
    found = {name: values[name] for name in values if name not in ("n_batch", "type_v", "split_mode", "main_gpu")}
    found["n_ctx"] = max(1, values["n_ctx"] // values["n_seq_max"])
    types = values["type_k"], values["type_v"]
    if types[0] != types[1]:
        found["type_k"] = one = _one_type(types, values["flash_attn"])
        comments.append(f"# Ollama has one type for keys and values; the plan has {types[0]} and {types[1]}, "
                        f"these lines have {one} for both")  # fmt: skip
    if values["n_batch"] not in (values["n_ubatch"], Settings().n_batch):
        comments.append(f"# Ollama has one batch size; the plan has n_batch {values['n_batch']} and n_ubatch "
                        f"{values['n_ubatch']}, these lines have {values['n_ubatch']} for both")  # fmt: skip
    if found["type_k"] not in UNQUANTIZED and found["flash_attn"] == "auto":
        found["flash_attn"] = "on"
    if values.get("split_mode") == "none":
        found["main_gpu"] = values.get("main_gpu", 0)  # which also turns splitting off (llm/llama_server.go)
    elif "split_mode" in values:
        comments.append(_cannot("split_mode", values["split_mode"], "Ollama"))
    return found


def _one_type(types: tuple[str, str], flash_attn: str) -> str:
    """The smaller type, which needs no more memory; without flash attention that of the values, which it limits."""
    return types[1] if flash_attn == "off" else min(types, key=lambda name: row_bytes(name, BLOCKS))


def _environment(name: str, value: Any) -> str:
    if name == "flash_attn":
        return str(int(value == "on"))
    return ",".join(f"{share:g}" for share in value) if name == "tensor_split" else _switch(value)


def _ollama_path(path: str) -> str:
    """A path that Ollama does not take for a model's name."""
    return path if path.startswith((".", "/", "~")) or re.match(r"[A-Za-z]:", path) else f"./{path}"


def _lm_studio(values: dict[str, Any], found: Fit, path: str) -> Iterator[Part]:
    words, comments = ["lms", "load", "MODEL_KEY"], []
    fields = [f"{options()['fit'].lmstudio}: off"]  # so that nothing replaces what the plan has
    own = {} if values.get("kv_unified", True) else {"n_ctx": values["n_ctx"] // values["n_seq_max"]}
    for name, value in {**values, **own}.items():  # without one pool, its context is that of one prediction
        option = options().get(name)
        if is_default(name, value, "lmstudio") and not (option.lmstudio and name in (*MEMORY, "kv_unified")):
            continue  # a default of its schema is no promise: LM Studio keeps settings for each model
        if option and option.lms:
            words += [option.lms, _share(value, found) if name == "n_gpu_layers" else str(value)]
        elif option and option.lmstudio and _lm_studio_takes(name, value):
            fields.append(f"{option.lmstudio}: {_field(name, value)}")
            fields += [f"{options()['mlock'].lmstudio}: on"] if name == "load_mode" and "mlock" in value else []
            comments += [_cannot(name, value, "LM Studio")] if value == "direct_io" else []
        else:
            comments.append(_cannot(name, value, "LM Studio"))
    every = _all_layers(found)
    if 0 < values["n_gpu_layers"] < every:
        comments.append(f"# {options()['n_gpu_layers'].lmstudio} is a share there: {values['n_gpu_layers']} of {every} "
                        "layers, rounded down")  # fmt: skip
    yield Part("In a terminal", f"lms import --copy {shlex.quote(path)}")
    yield Part("In the model's load settings (My Models, the gear)", "\n".join(fields), "text")
    load = ["# MODEL_KEY is its name in `lms ls`", *comments, " ".join(words)]
    yield Part("Then in the terminal", "\n".join(load))


def _lm_studio_takes(name: str, value: Any) -> bool:
    """Whether its interface offers a value: not every cache type, and no split by tensors or rows."""
    return value in LM_STUDIO_TYPES if name in ("type_k", "type_v") else name != "split_mode"


def _share(n_layers: int, found: Fit) -> str:
    """A share of the layers as `lms load --gpu` takes it: off, max, or a number rounded down to a hundredth."""
    every = _all_layers(found)
    if n_layers in (0, every):
        return "max" if n_layers else "off"
    return f"{floor(100 * n_layers / every) / 100:.2f}"


def _field(name: str, value: Any) -> str:
    if name == "flash_attn":
        return "off" if value == "off" else "on"
    if name in ("type_k", "type_v") and value == "f16":
        return "off (f16)"
    if name == "load_mode":
        return "on" if "mmap" in value or value == "auto" else "off"
    return _value(value)


def _cannot(name: str, value: Any, program: str) -> str:
    """A comment on a setting that a program does not have, or not with this value."""
    what = options()[name].what if name in options() else NO_ROW_WHAT[name]
    return f"# {name} ({what}) cannot be set to {_value(value)} in {program}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value) or "none"
    return _switch(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
