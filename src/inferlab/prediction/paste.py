"""A plan as the lines that one pastes into llama-server, llama-cli, llama-cpp-python, Ollama or LM Studio.

Where the plan does not fit, the lines are those of the nearest one that does, and a note says what was changed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from inferlab.machine import HOST_DEVICE
from inferlab.model.find import is_address
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import Model
from inferlab.model.hub import hub_address
from inferlab.model.named import addressed
from inferlab.model.ollama_store import PREFIX, bare_name, is_ollama_name
from inferlab.options.lines import check_program, option_lines
from inferlab.options.lines.base import ALWAYS, PLACEHOLDER, Part
from inferlab.prediction.fit import DEFAULT_N_CTX, Fit
from inferlab.prediction.free_memory import PROMPT_CACHE_BYTES, ram_bytes
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.search import MOST_N_CTX, SettingThatFits
from inferlab.settings import UNQUANTIZED, Settings
from inferlab.units import MIB, bytes_text, count_text

SMALL = 512 * MIB  # bytes that every machine has beside a model
EXPERTS_STAY = ("llama-cpp-python",)
"""Programs that put no experts in RAM without the rest of their layer."""
KEEP_PROMPTS = ("llama-server", "llama-cli", "ollama")
"""Programs that keep earlier prompts in RAM, as llama-server does (--cache-ram, common/arg.cpp:1716)."""
BY_TYPE = ("llama-server", "llama-cli")
"""Programs that take a type of a repository of the Hub in place of a file, as it was typed."""
MEMORY = ("flash_attn", "type_k", "type_v", "n_batch", "n_ubatch", "n_seq_max", "offload_kqv")
PLACEMENT = (
    "split_mode",
    "main_gpu",
    "tensor_split",
    "n_cpu_moe",
    "cpu_moe",
    "override_tensor",
    "devices",
    "rpc_servers",
)
WINDOWS = "swa_full"
OTHERS = (
    *(f.name for f in fields(Settings) if f.name not in (*ALWAYS, *MEMORY, *PLACEMENT, WINDOWS)),
    *PLACEMENT,
)
"""Written where they are not the default, in this order."""


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
        blocks = (f"{part.where}:\n\n```{part.language}\n{part.text}\n```" for part in self.parts)
        return "\n\n".join([*self.notes, *blocks])


def lines_for(fit: Fit, program: str, model_path: str | Path | None = None, n_ctx_train: int | None = None) -> Pasted:
    """The lines of a plan for one program: llama-server, llama-cli, llama-cpp-python, ollama or lmstudio.

    Where the plan does not fit, they are those of the nearest setting that does: experts in RAM for a model that has
    them, else fewer layers on the GPU if any fit there, else a context of at least 4096 that is shorter, else no layer
    on the GPU or any context. Where nothing fits there are none.
    model_path is the file, its address, or its name as `option_lines` takes it; None: `model.gguf` stands for it.
    n_ctx_train is the context that the model was trained with (`Model.n_ctx_train`); a note says where the lines have
    more.
    Raises InvalidSettings for any other program.
    """
    check_program(program)
    near = nearest(fit, experts_move=program not in EXPERTS_STAY)
    if near.settings is None:
        return Pasted(program, None, near.notes, ())
    notes = near.notes
    if model_path is None:
        notes += (f"{PLACEHOLDER} stands for the path of your file.",)
    notes += _ram_note(fit, near.plan) + _trained_note(near.settings, n_ctx_train, program)
    values = requested(fit, near.settings)
    if program in KEEP_PROMPTS and (limit := prompt_cache_limit(fit, near.plan)) is not None:
        values["cache_ram"] = limit // MIB
        notes += (prompt_cache_text(fit, near.plan),)
    path = str(model_path or PLACEHOLDER)
    return Pasted(program, near.settings, notes, option_lines(values, program, path, _all_layers(fit)))


def path_for(program: str, name: str, model: Model) -> str | None:
    """Where a program finds the model of a name, for `lines_for`: its file or address; None for a known model.

    Ollama has its own by their names, beside template and projector.
    """
    named = addressed(name)
    if is_address(named):
        address = hub_address(named)
        return named if address and address.type and program in BY_TYPE else str(model.file or model.source)
    if program == "ollama" and is_ollama_name(named) and model.file:
        return f"{PREFIX}{bare_name(named)}"
    return str(model.file) if model.file else None


@dataclass(frozen=True)
class Nearest:
    """The settings of a plan, or the nearest that fit, with their plan; None where none fit.

    notes  sentences: what was changed
    """

    settings: Settings | None
    plan: MemoryPlan
    notes: tuple[str, ...] = ()


def nearest(fit: Fit, experts_move: bool = True) -> Nearest:
    """The settings of a plan, or the nearest that fit, and in a sentence what was changed.

    experts_move  whether experts may be put in RAM without the rest of their layer
    """
    if fit.fits == "yes":
        return Nearest(fit.plan.settings, fit.plan)
    if fit.fits == "unsure":
        note = "This may not fit, and these lines are the plan as you asked for it."
        return Nearest(fit.plan.settings, fit.plan, (note,))
    layers, context = fit.most_layers, fit.largest_n_ctx
    answers = [fit.expert_layers if experts_move else None, layers, context, fit.cache_type]
    fitting = [(answer, answer.settings) for answer in answers if answer and answer.settings]
    if not fitting:
        reasons = " ".join(dict.fromkeys([context.reason, layers.reason]))
        why = f"Nothing that was tried fits, so there are no lines to paste. {reasons} {_advice(fit)}"
        return Nearest(None, fit.plan, (why,))
    no_layer_first = not layers.value and [answer for answer, _ in fitting[:2]] == [layers, context]
    if no_layer_first and n_ctx_of(fitting[1][1]) >= DEFAULT_N_CTX:
        fitting[:2] = fitting[1::-1]
    first, *others = (_in_words(fit, answer, settings) for answer, settings in fitting)
    other = f" This would fit too: {'; or '.join(others)}." if others else ""
    why = f"What you asked for does not fit. These lines have {first}.{_fill_text(fit, fitting[0][0])}{other}"
    answer, settings = fitting[0]
    return Nearest(settings, answer.plan or fit.plan, (why,))


def _ram_note(fit: Fit, plan: MemoryPlan) -> tuple[str, ...]:
    """What the lines need of RAM, where it was not compared or they are not the plan."""
    compared = fit.free_bytes.get(HOST_DEVICE) is not None
    n_bytes = ram_bytes(plan)
    if SHARED in fit.free_bytes or n_bytes < SMALL or (compared and plan is fit.plan):
        return ()
    more = ", and a compute buffer" if plan.is_open(HOST_DEVICE) else ""
    if compared:
        return (f"These lines need up to {bytes_text(n_bytes)} of RAM{more}.",)
    return (f"RAM was not compared: these lines need up to {bytes_text(n_bytes)} there{more}.",)


def prompt_cache_limit(fit: Fit, plan: MemoryPlan) -> int | None:
    """What the server's cache of prompts must be limited to beside a plan; None: its own limit, or RAM is not known."""
    limit = fit.prompt_cache_bytes(plan)
    return None if limit == PROMPT_CACHE_BYTES else limit


def prompt_cache_text(fit: Fit, plan: MemoryPlan) -> str:
    """What RAM a plan leaves for the server's cache of prompts, in a sentence; empty where RAM is not known."""
    limit = fit.prompt_cache_bytes(plan)
    if limit is None:
        return ""
    told = f"llama-server keeps earlier prompts in RAM, in time up to {bytes_text(PROMPT_CACHE_BYTES)}"
    if limit == PROMPT_CACHE_BYTES:
        return f"{told}, for which there is room."
    if not limit:
        return f"{told}; its lines switch that off (--cache-ram 0)."
    return f"{told}; its lines limit that to {bytes_text(limit)} (--cache-ram {limit // MIB})."


def _trained_note(settings: Settings, n_ctx_train: int | None, program: str) -> tuple[str, ...]:
    """A note on a context above the trained one; llama-server caps each slot (server-context.cpp:4008)."""
    above = above_trained(settings, n_ctx_train)
    cap = f" llama-server gives each slot at most {n_ctx_train:,}." if n_ctx_train and program == "llama-server" else ""
    return (f"{above}{cap}",) if above else ()


def above_trained(settings: Settings, n_ctx_train: int | None) -> str:
    """That a sequence has more context than the model was trained for, in a sentence; empty where it has not.

    Where the trained context is not known, only one above `MOST_N_CTX` is said.
    """
    n_ctx = n_ctx_of(settings) // (1 if settings.kv_unified else settings.n_seq_max)
    if n_ctx <= (n_ctx_train or MOST_N_CTX):
        return ""
    if not n_ctx_train:
        return "No model here was trained for so long a context; it is of little use."
    return f"The model was trained for {n_ctx_train:,} tokens; more are of little use."


def _in_words(fit: Fit, answer: SettingThatFits, settings: Settings) -> str:
    """A setting that fits, in the reader's words, with the name of the setting."""
    if answer is fit.cache_type:
        return f"a KV cache of type {answer.value} (type_k and type_v), with the context and the layers you asked for"
    if answer is fit.largest_n_ctx:
        end = "the model was trained for" if answer.memory_allows_more else "fits with the layers you asked for"
        return f"a context of {answer.value:,} tokens (n_ctx), the longest that {end}"
    if answer is fit.expert_layers:
        return _experts_in_words(settings)
    layers = count_text(settings.n_gpu_layers, "layer") if answer.value else "no layer"
    most = ", the most that fit with the context you asked for" if answer.value else ", and all of them in RAM"
    return f"{layers} on the card (n_gpu_layers={answer.value}){most}"


def _experts_in_words(settings: Settings) -> str:
    if not (settings.cpu_moe or settings.n_cpu_moe):
        return "everything on the card"
    if settings.cpu_moe:
        layers = f"{count_text(settings.n_gpu_layers, 'layer')} on the card (n_gpu_layers={settings.n_gpu_layers})"
        return f"the experts of all layers in RAM (cpu_moe) and {layers}, the most that fit so"
    return (
        f"the experts of {count_text(settings.n_cpu_moe, 'layer')} in RAM (n_cpu_moe={settings.n_cpu_moe}) and all "
        "else on the card"
    )


def _fill_text(fit: Fit, answer: SettingThatFits) -> str:
    """That the lines leave almost nothing of a memory which the system needs, too; empty elsewhere."""
    if SHARED not in fit.usable_bytes or answer.margin_bytes is None or answer.margin_bytes >= SMALL:
        return ""
    kept = f" but the {bytes_text(fit.reserve_bytes)} kept free" if fit.reserve_bytes else ""
    return f" They use all of the shared memory{kept}."


def _advice(fit: Fit) -> str:
    """What to ask for instead: smaller weights where these alone are too large for all devices together."""
    usable = fit.usable_bytes
    known = [n_bytes for n_bytes in usable.values() if n_bytes is not None]
    with_host = len(known) == len(usable) and usable.keys() & {HOST_DEVICE, SHARED}
    if with_host and (fit.plan.bytes_of("weights") or 0) > sum(known):
        return "The weights alone are too large: take weights of a smaller type, or a smaller model."
    ways = ["a shorter context", "less memory kept free"] if fit.reserve_bytes else ["a shorter context"]
    if SHARED not in usable and set(usable) - {HOST_DEVICE}:
        ways.insert(0, "fewer layers on the card")
    return f"Try {', '.join(ways)}, or weights of a smaller type."


def requested(fit: Fit, settings: Settings) -> dict[str, Any]:
    """What the lines must say, by the names of `Settings`: all that memory depends on, and what is not the default.

    Layers are counted out, with none where the plan has no GPU; quantized values turn flash attention on.
    """
    usual = Settings()
    values = {name: getattr(settings, name) for name in (*ALWAYS, *MEMORY)}
    values |= {name: getattr(settings, name) for name in OTHERS if getattr(settings, name) != getattr(usual, name)}
    values |= {"n_gpu_layers": _layers(fit, settings), **_batches(settings, usual)}
    if settings.flash_attn == "auto" and settings.type_v not in UNQUANTIZED:
        values["flash_attn"] = "on"
    if settings.n_seq_max > 1:
        values["kv_unified"] = settings.kv_unified
    if fit.has_windows:
        values[WINDOWS] = settings.swa_full
    return values


def _batches(settings: Settings, usual: Settings) -> dict[str, int]:
    """The batch sizes, or the usual ones where the plan has less only because its whole context is one batch."""
    sizes = {name: getattr(settings, name) for name in ("n_batch", "n_ubatch")}
    if padded(settings.n_batch) < n_ctx_of(settings):
        return sizes
    cut = {name: size for name, size in sizes.items() if size == settings.n_batch}
    return sizes | {name: max(size, getattr(usual, name)) for name, size in cut.items()}


def _layers(fit: Fit, settings: Settings) -> int:
    if not any(device != HOST_DEVICE for device in fit.plan.devices):
        return 0
    every = _all_layers(fit)
    return every if settings.n_gpu_layers < 0 else min(settings.n_gpu_layers, every)


def _all_layers(fit: Fit) -> int:
    """The blocks and the output layer."""
    return sum(layer.index is not None for layer in fit.plan.layers) + 1


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
