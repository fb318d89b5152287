"""The settings of one request to the engine, under llama.cpp's names."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import wraps
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_BUFFER
from inferlab.model.architecture_table import COMPRESSED, architecture
from inferlab.model.dimensions import has_latent_cache
from inferlab.model.ggml_types import tensor_type
from inferlab.model.gguf import Model

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
UNQUANTIZED = ("f32", "f16", "bf16")
MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ, llama-cparams.h
FLASH_ATTN = ("auto", "on", "off")
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap_mlock", "direct_io")
SPLIT_MODES = ("none", "layer", "row", "tensor")
MAX_COUNT = 2**31 - 1  # llama.cpp keeps counts in 32 bits
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # LLM_FFN_EXPS_REGEX, common/common.h:1198
WITHOUT_OVERRIDES = {"n_cpu_moe": 0, "cpu_moe": False, "override_tensor": ()}


@dataclass(frozen=True)
class Settings:
    """Settings of llama.cpp's model and context. `None` leaves a choice to the engine; a run records the chosen value.

    n_ctx            cells of the KV cache, in tokens (None: as many as the workload needs)
    n_batch          most tokens in one llama_decode call
    n_ubatch         most tokens computed together inside it
    n_seq_max        sequences in the cache at once
    n_threads        threads for decode (None: one per physical core)
    n_threads_batch  threads for prefill (None: as n_threads)
    n_gpu_layers     layers on the device, output layer first (-1: all)
    split_mode       how several devices share a model: none (one device has it all), layer (whole layers),
                     tensor (a part of each matrix and of each cache), row (matrices by rows, on SYCL only)
    main_gpu         the device used when split_mode is none
    tensor_split     share of each device, e.g. (3, 1); None: by free memory for layer, equal for tensor
    n_cpu_moe        layers, from the first, whose experts are in host memory although the layer is on a device
    cpu_moe          whether the experts of all layers are
    override_tensor  memory of tensors by their names, as llama.cpp's -ot takes it: ("pattern=CPU",); the first pattern
                     found in a name counts, and these come before n_cpu_moe and cpu_moe
    devices          names of the devices to use (None: all)
    rpc_servers      endpoints of RPC devices, e.g. ("127.0.0.1:50052",)
    type_k, type_v   types of the KV cache's keys and values
    flash_attn       auto, on, off
    offload_kqv      whether the KV cache is on the layer's device; if not, flash_attn decides where attention runs:
                     "off" on the host; "on" on the device, which receives the cache in use for every token
    op_offload       whether big host operations may run on the device
    swa_full         whether sliding-window layers keep the full context; off in llama.cpp's programs (common.h:574),
                     on in its C structure, and so in llama-cpp-python
    kv_unified       whether sequences share one pool of cells
    load_mode        auto, none, mmap, mlock, mmap_mlock, direct_io (llama.cpp's own default is auto)
    use_extra_bufts  whether host weights may be repacked for the processor's kernels (see model.kernels)
    no_host          whether host weights avoid the pinned buffer of a GPU, which is used before repacking is considered

    Raises InvalidSettings for a value that llama.cpp would refuse, before anything is loaded.
    """

    n_ctx: int | None = None
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_threads: int | None = None
    n_threads_batch: int | None = None
    n_gpu_layers: int = -1
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] | None = None
    n_cpu_moe: int = 0
    cpu_moe: bool = False
    override_tensor: tuple[str, ...] = ()
    devices: tuple[str, ...] | None = None
    rpc_servers: tuple[str, ...] = ()
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: str = "auto"
    offload_kqv: bool = True
    op_offload: bool = True
    swa_full: bool = False
    kv_unified: bool = False
    load_mode: str = "mmap"
    use_extra_bufts: bool = True
    no_host: bool = False

    def __post_init__(self) -> None:
        self._require_whole(1, "n_batch", "n_ubatch", "n_seq_max")
        self._require_whole(1, "n_ctx", "n_threads", "n_threads_batch", optional=True)
        self._require_whole(-1, "n_gpu_layers")
        self._require_whole(0, "main_gpu", "n_cpu_moe")
        self._require_one_of("type_k", KV_TYPES)
        self._require_one_of("type_v", KV_TYPES)
        self._require_one_of("flash_attn", FLASH_ATTN)
        self._require_one_of("load_mode", LOAD_MODES)
        self._require_one_of("split_mode", SPLIT_MODES)
        self._require_compatible()
        self._require_overrides()

    def _require_compatible(self) -> None:
        """Refuse combinations that llama_init_from_model refuses (llama-context.cpp), before anything is loaded."""
        if self.flash_attn == "off" and self.type_v not in UNQUANTIZED:
            raise InvalidSettings(
                f"type_v={self.type_v!r} needs flash attention, but flash_attn='off'. "
                "Use flash_attn='on', or keep the values at f16; keys may be quantized either way."
            )
        if self.flash_attn == "off" and self.split_mode == "tensor":
            raise InvalidSettings(
                "split_mode='tensor' needs flash attention, but flash_attn='off'. Use 'on' or 'auto'."
            )
        if not self.offload_kqv and self.split_mode == "tensor":
            raise InvalidSettings(
                "split_mode='tensor' gives each device some heads, but with offload_kqv=False every device gets the "
                "cache of all heads: llama.cpp would attend to the wrong keys without a word, or end. Leave the cache "
                "on the devices, or use split_mode='layer'."
            )
        if self.n_seq_max > MAX_SEQUENCES:
            raise InvalidSettings(f"n_seq_max={self.n_seq_max} is more than llama.cpp's {MAX_SEQUENCES} sequences.")
        if self.n_ctx is not None and self.n_ctx < self.n_seq_max:
            raise InvalidSettings(
                f"n_ctx={self.n_ctx} leaves no cell for each of n_seq_max={self.n_seq_max} sequences. Ask for more."
            )
        if self.tensor_split is not None and not (sum(self.tensor_split) > 0 <= min(self.tensor_split)):
            raise InvalidSettings(f"tensor_split={self.tensor_split!r} must be shares of at least 0, not all 0.")

    def _require_overrides(self) -> None:
        """Refuse overrides that llama.cpp would read otherwise than they are meant, or of which one does nothing."""
        if self.cpu_moe and self.n_cpu_moe:
            raise InvalidSettings(
                f"cpu_moe=True has the experts of all layers, so n_cpu_moe={self.n_cpu_moe} changes nothing. Give one."
            )
        if not isinstance(self.override_tensor, tuple):
            raise InvalidSettings(f"override_tensor={self.override_tensor!r} must be a tuple of texts 'pattern=CPU'.")
        for text in self.override_tensor:
            pattern, equals, buffer = text.partition("=")
            if not (pattern and equals and buffer):
                raise InvalidSettings(f"override_tensor: {text!r} is not of the form 'pattern=CPU', as -ot takes it.")
            if "," in text:
                raise InvalidSettings(f"override_tensor: llama.cpp would divide {text!r} at the comma. Give two texts.")
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidSettings(f"override_tensor: {pattern!r} is no regular expression: {error}.") from error

    @property
    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Each pattern with the name of its buffer, in the order in which llama.cpp tries them."""
        given = ((pattern, buffer) for pattern, _, buffer in (text.partition("=") for text in self.override_tensor))
        layers = tuple((rf"blk\.{i}{EXPERTS}", HOST_BUFFER) for i in range(self.n_cpu_moe))
        return (*given, *layers, *((EXPERTS, HOST_BUFFER),) * self.cpu_moe)

    def require_model(self, model: Model) -> None:
        """Refuse what does not fit this model.

        Overrides that change nothing, matrices that llama.cpp cannot divide, and types of the cache for its heads.
        """
        self._require_experts(model)
        if self.split_mode == "tensor" and not architecture(model.architecture).tensor_split:
            raise InvalidSettings(
                f"split_mode='tensor': llama.cpp has no rule for dividing the matrices of {model.name} "
                f"({model.architecture}), and would not load it. Use split_mode='layer'."
            )
        for pattern, _ in self.tensor_overrides[: len(self.override_tensor)]:
            if not any(re.search(pattern, tensor.name) for tensor in model.tensors):
                raise InvalidSettings(
                    f"override_tensor: {pattern!r} is found in no tensor's name of {model.name}, and llama.cpp would "
                    f"ignore it. Names are such as {', '.join(_names_like(pattern, model))}."
                )
        self._require_types(model)

    def _require_experts(self, model: Model) -> None:
        """Refuse to move experts that do not exist, or that are in host memory anyhow."""
        if not (self.n_cpu_moe or self.cpu_moe):
            return
        what = f"n_cpu_moe={self.n_cpu_moe}" if self.n_cpu_moe else "cpu_moe=True"
        if not any(re.search(EXPERTS, tensor.name) for tensor in model.tensors):
            raise InvalidSettings(
                f"{what}: {model.name} has no experts, and llama.cpp would ignore it. Leave it out; n_gpu_layers or "
                "override_tensor puts parts of a dense model in host memory."
            )
        if self.n_cpu_moe > model.n_layer:
            raise InvalidSettings(
                f"{what}: {model.name} has {model.n_layer} layers, and llama.cpp would take all of them. "
                "Give cpu_moe=True for all."
            )
        n_on_host = 0 if self.n_gpu_layers < 0 else max(0, model.n_layer + 1 - self.n_gpu_layers)
        if n_on_host >= (self.n_cpu_moe or model.n_layer):
            raise InvalidSettings(
                f"{what} changes nothing: with n_gpu_layers={self.n_gpu_layers} the first {n_on_host} layers of "
                f"{model.name} are in host memory as a whole. Give more layers on the device, such as all: -1."
            )

    def _require_types(self, model: Model) -> None:
        """Refuse types that do not fit this model: blocks of a quantized type must fill a head exactly.

        A latent cache has one type (llama-context.cpp:3850); grok has no flash attention (llama-context.cpp:3816).
        """
        keeps_keys = has_latent_cache(model) or architecture(model.architecture).cache == COMPRESSED
        if self.type_k != self.type_v and keeps_keys:
            raise InvalidSettings(
                f"type_k={self.type_k!r} and type_v={self.type_v!r}: {model.name} keeps keys alone, and llama.cpp "
                "takes one type for both. Give the same twice."
            )
        if model.architecture == "grok" and self.type_v not in UNQUANTIZED:
            raise InvalidSettings(
                f"type_v={self.type_v!r} needs flash attention, which llama.cpp does not use for {model.name}. Use f16."
            )
        if self.flash_attn == "off":
            return
        for name, head_dim in (("type_k", model.head_dim_k), ("type_v", model.head_dim_v)):
            block = tensor_type(getattr(self, name)).block
            if head_dim is not None and head_dim % block:
                raise InvalidSettings(
                    f"{name}={getattr(self, name)!r} packs {block} values into a block, which does not divide "
                    f"the {head_dim} values of a head of {model.name}. Use f16."
                )

    def _require_whole(self, least: int, *names: str, optional: bool = False) -> None:
        for name in names:
            value = getattr(self, name)
            if value is None and optional:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_COUNT:
                raise InvalidSettings(f"{name}={value!r} must be a whole number from {least} to {MAX_COUNT:,}.")

    def _require_one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            near = get_close_matches(str(value).lower(), allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidSettings(f"{name}={value!r} is not one of {', '.join(allowed)}.{hint}")

    def but(self, **changes: Any) -> Settings:
        """The same settings with some fields changed; an unknown name is refused, with the nearest known one."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Settings:
        """From JSON: lists become tuples, unknown names are refused."""
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in data.items()}
        return cls(**values)


def _names_like(pattern: str, model: Model) -> list[str]:
    """Up to three names of tensors, the most similar to a pattern first."""
    names = [tensor.name for tensor in model.tensors]
    return get_close_matches(pattern.replace("\\", ""), names, n=3, cutoff=0.0)


def _refuse_unknown_names(cls: type[Settings]) -> None:
    """Raise InvalidSettings with the nearest known name for an unknown setting, instead of a TypeError."""
    accept = cls.__init__
    known = [f.name for f in fields(cls)]

    @wraps(accept)
    def __init__(self, *values: Any, **named: Any) -> None:  # noqa: N807
        for name in named:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(known)}."
                raise InvalidSettings(f"There is no setting {name!r}.{hint}")
        accept(self, *values, **named)

    type.__setattr__(cls, "__init__", __init__)


_refuse_unknown_names(Settings)
