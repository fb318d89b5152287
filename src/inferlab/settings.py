"""The settings of one request to the engine, under llama.cpp's names."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import wraps
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import tensor_type
from inferlab.model.gguf import Model

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
UNQUANTIZED = ("f32", "f16", "bf16")
MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ, llama-cparams.h
FLASH_ATTN = ("auto", "on", "off")
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap_mlock", "direct_io")
SPLIT_MODES = ("none", "layer", "row", "tensor")
MAX_COUNT = 2**31 - 1  # llama.cpp keeps counts in 32 bits


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
    split_mode       how several devices share a model: none, layer, row, tensor
    main_gpu         the device used when split_mode is none
    tensor_split     share of each device, e.g. (3, 1)
    devices          names of the devices to use (None: all)
    rpc_servers      endpoints of RPC devices, e.g. ("127.0.0.1:50052",)
    type_k, type_v   types of the KV cache's keys and values
    flash_attn       auto, on, off
    offload_kqv      whether the KV cache is on the layer's device; if not, flash_attn decides where attention runs:
                     "off" on the host; "on" on the device, which receives the cache in use for every token
    op_offload       whether big host operations may run on the device
    swa_full         whether sliding-window layers keep the full context
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
    devices: tuple[str, ...] | None = None
    rpc_servers: tuple[str, ...] = ()
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: str = "auto"
    offload_kqv: bool = True
    op_offload: bool = True
    swa_full: bool = True
    kv_unified: bool = False
    load_mode: str = "mmap"
    use_extra_bufts: bool = True
    no_host: bool = False

    def __post_init__(self) -> None:
        self._require_whole(1, "n_batch", "n_ubatch", "n_seq_max")
        self._require_whole(1, "n_ctx", "n_threads", "n_threads_batch", optional=True)
        self._require_whole(-1, "n_gpu_layers")
        self._require_whole(0, "main_gpu")
        self._require_one_of("type_k", KV_TYPES)
        self._require_one_of("type_v", KV_TYPES)
        self._require_one_of("flash_attn", FLASH_ATTN)
        self._require_one_of("load_mode", LOAD_MODES)
        self._require_one_of("split_mode", SPLIT_MODES)
        self._require_compatible()

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
        if self.n_seq_max > MAX_SEQUENCES:
            raise InvalidSettings(f"n_seq_max={self.n_seq_max} is more than llama.cpp's {MAX_SEQUENCES} sequences.")
        if self.n_ctx is not None and self.n_ctx < self.n_seq_max:
            raise InvalidSettings(
                f"n_ctx={self.n_ctx} leaves no cell for each of n_seq_max={self.n_seq_max} sequences. Ask for more."
            )
        if self.tensor_split is not None and not (sum(self.tensor_split) > 0 <= min(self.tensor_split)):
            raise InvalidSettings(f"tensor_split={self.tensor_split!r} must be shares of at least 0, not all 0.")

    def require_model(self, model: Model) -> None:
        """Refuse types that do not fit this model's heads: blocks of a quantized type must fill a head exactly."""
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
        tuples = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return cls(**tuples)


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

    cls.__init__ = __init__


_refuse_unknown_names(Settings)
