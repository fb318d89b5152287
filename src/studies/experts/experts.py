"""Two ways to free a device's memory for a mixture of experts, compared in pairs: whole layers, or experts alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.errors import InvalidSettings
from inferlab.measurement.paired import Paired, in_pairs, require_enough
from inferlab.measurement.run import Run, measure_in_turns
from inferlab.model.gguf import Model, read_gguf
from inferlab.prediction.decode_bound import decode_bytes
from inferlab.prediction.fit import Fit
from inferlab.prediction.link_rates import Rung
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.memory.placement import HOST
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GB, MIB
from studies.experts.op_offload import copied_bytes, most_prompt_rate

DEVICE = "gpu0"
WARMUP_TOKENS = 32  # the engines of a round stay open


def freed_bytes(model: Model, settings: Settings, **changes: int) -> int:
    """Bytes of weights that leave the first device of `settings` when these settings change, by plans."""
    whole, less = (
        predict_memory(model, asked, simulate=False).devices[DEVICE].weights_bytes
        for asked in (settings, settings.but(**changes))
    )
    return whole - less


def same_bytes(model: Model, settings: Settings, n_cpu_moe: int) -> tuple[Settings, Settings]:
    """Two settings that free about the same bytes of a device: whole layers on the host, and experts of layers there.

    Of all numbers of layers, the one whose bytes are nearest to those of the experts of `n_cpu_moe` layers.
    Raises InvalidSettings for a model without experts.
    """
    experts = settings.but(n_gpu_layers=-1, n_cpu_moe=n_cpu_moe)
    experts.require_model(model)
    wanted = freed_bytes(model, settings, n_gpu_layers=-1, n_cpu_moe=n_cpu_moe)
    layers = range(1, model.n_layer + 1)
    nearest = min(layers, key=lambda n: abs(freed_bytes(model, settings, n_gpu_layers=n) - wanted))
    return settings.but(n_gpu_layers=nearest), experts


def copies_text(plans: Sequence[MemoryPlan], model: Model, n_tokens: Sequence[int]) -> str:
    """For ubatches of so many tokens, what a CUDA card would copy with whole layers and with experts on the host."""
    rows = ((n, *(copied_bytes(plan, model, n) / MIB for plan in plans)) for n in n_tokens)
    return "\n".join(f"{n:4} tokens: {layers:4.0f} MiB with whole layers, {experts:4.0f} MiB with experts alone"
                     for n, layers, experts in rows)  # fmt: skip


def card_text(found: Fit, model: Model, bus: Rung) -> str:
    """What a token reads from RAM and what the bus allows a prompt, for both ways in which a mixture fits a card."""
    lines, read = [f"{bus.name}: {bus.bytes_per_second / GB:.3g} GB/s"], {}
    for name, answer in {"whole layers": found.most_layers, "experts alone": found.expert_layers}.items():
        if not answer.plan:
            lines.append(f"{name}: {answer.reason}")
            continue
        read[name] = decode_bytes(answer.plan, model, 0, frozenset({HOST})) / GB
        n_ubatch = answer.plan.settings.n_ubatch
        copied = f"a ubatch of {n_ubatch} copies {copied_bytes(answer.plan, model, n_ubatch) / GB:.3g} GB"
        rate = most_prompt_rate(answer.plan, model, bus.bytes_per_second)
        lines.append(f"{name}: a token reads {read[name]:.3g} GB from RAM; {copied}")
        lines.append(f"  the bus allows {rate:,.0f} prompt tokens/s" if rate else "  nothing is copied")
    if len(set(read.values())) == 2:
        lines.append(f"For a generated token, less is read from RAM with {min(read, key=read.get)}.")
    return "\n".join(lines)


def layers_or_experts(
    path: str | Path,
    n_cpu_moe: int,
    n_threads: int,
    n_prompt: int = 256,
    n_gen: int = 33,
    rounds: int = 5,
    pairs: int = 3,
    control: bool = False,
) -> Paired:
    """Rates with whole layers on the host ("before") and with experts of about the same bytes there ("after").

    Each round starts both sides anew and measures some pairs, because two processes with the same settings differ, too.
    In it each side has its own loopback device, which computes with n_threads and keeps its weights loaded; the host
    computes with one thread. Both use the weights as they are in the file, so that their kernels are the same.
    control  whole layers on both sides: what is left is the difference of the processes
    Raises InvalidSettings for a model without experts, or fewer than six pairs in all.
    """
    require_enough(rounds * pairs)
    if n_threads < 1:
        raise InvalidSettings(f"n_threads={n_threads}: the device needs at least one thread.")
    plain, model = Settings(n_ctx=n_prompt + n_gen, flash_attn="on", use_extra_bufts=False), read_gguf(path)
    runs: tuple[list[Run], list[Run]] = ([], [])
    for number in range(rounds):
        with _two_devices(n_threads, plain, swapped=number % 2 == 1) as (before, after):
            asked = same_bytes(model, before, n_cpu_moe)[0], same_bytes(model, after, n_cpu_moe)[0 if control else 1]
            for side, found in enumerate(_round(path, asked, n_prompt, n_gen, pairs)):
                runs[side].extend(found)
    return Paired(tuple(runs[0]), tuple(runs[1]))


@contextmanager
def _two_devices(n_threads: int, plain: Settings, swapped: bool) -> Iterator[tuple[Settings, Settings]]:
    """The settings for two loopback devices; swapped: the second is the one that starts first."""
    with loopback_device(n_threads=n_threads) as one, loopback_device(n_threads=n_threads) as other:
        found = one.settings(plain), other.settings(plain)
        yield found[::-1] if swapped else found


def _round(
    path: str | Path, asked: tuple[Settings, Settings], n_prompt: int, n_gen: int, n_pairs: int
) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """The pairs of one round, each side in an engine that stays open."""
    with closing(LlamaEngine()) as first, closing(LlamaEngine()) as second:
        engines = first, second

        def once(side: int) -> Run:
            chosen = [asked[side]]
            return measure_in_turns(
                path, chosen, n_prompt, n_gen, 1, engines[side], progress=False, warmup_tokens=WARMUP_TOKENS
            )[0]

        return in_pairs(once, n_pairs)
