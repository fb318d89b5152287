"""A machine whose every rate is written down: an engine that takes exactly as long as `speed` says for these rates.

It stands in for llama.cpp and its devices where a calibration is tested: what was put in must come out.
"""

from dataclasses import replace
from functools import partial

from fakes import CPU_ONLY

from inferlab.engine.protocol import Opening, Pass
from inferlab.machine import Link
from inferlab.measurement.operations import Attention
from inferlab.model.ggml_types import tensor_type
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.calibrate import CACHES, TYPES
from inferlab.prediction.memory.placement import placed_layers
from inferlab.prediction.rates import (
    TILED_CACHES,
    AttentionRates,
    DeviceRates,
    LinkRates,
    MatrixRates,
    attended_cells,
)
from inferlab.prediction.speed import PlacedModel

ENDPOINT = "127.0.0.1:7"
REPACKED_TYPES = ("Q4_K", "Q4_0", "IQ4_NL", "Q2_K")
REPACKED = {f"{type}/CPU_REPACK": 0.5 for type in REPACKED_TYPES}


def device_rates(name, n_threads, slowness, step_seconds, repacked=True):
    """Every type at its own rate, repacked ones at half of it, attention likewise."""
    keys = {**{type: 1 + i / 10 for i, type in enumerate([*TYPES, "F32"])}, **(REPACKED if repacked else {})}
    matrices = {key: matrix_rates(share * slowness) for key, share in keys.items()}
    attention = {
        f"{type.lower()}/{'flash' if flash else 'plain'}/{size}": attention_rates((1 + i) * slowness * size)
        for i, (type, flash, sizes) in enumerate(CACHES)
        for size in sizes
    }
    return DeviceRates(
        name, n_threads, True, 1e10, matrices, attention, slowness * 2e-5, step_seconds, slowness * 1e-10
    )


def matrix_rates(factor):
    rates = MatrixRates(1e-10, 1e-11, 1e-8, 5e-11, 1e-9, 1e-9, 1e-6)
    return MatrixRates(**{name: factor * value for name, value in rates.__dict__.items()})


def attention_rates(factor):
    return AttentionRates(factor * 1e-10, factor * 1e-12, factor * 5e-11)


TRUTH = {
    "host/1": device_rates("host", 1, 2.0, 2e-4),
    "host/2": device_rates("host", 2, 1.0, 1e-4),
    "loopback/1": device_rates("loopback/1", 1, 2.0, 6e-4, repacked=False),
}
RELAYED = 2e-4  # seconds through a relay and back
LINK = LinkRates(
    2e9,
    1e-4,
    split_seconds=3e-4,
    split_waits=2.0,
    split_bytes=12_000.0,
    relay_round_trip_seconds=RELAYED,
    relay_step_seconds=1e-3,
    relay_split_seconds=2e-4,
)
DIRECT = replace(LINK, relay_step_seconds=0.0, relay_split_seconds=0.0)


class KnownMachine:
    """Behind the engine's protocol: the settings decide which device works, the clock is arithmetic."""

    def __init__(self):
        self.links = {}
        self.closed = False

    def machine(self):
        return CPU_ONLY

    def open(self, path, settings):
        self.model, self.settings = read_gguf(path), settings
        return Opening((), {}, settings, "")

    def random_prompt(self, n_prompt):
        return list(range(n_prompt))

    def generate(self, prompt, n_gen):
        far = self.settings.rpc_servers
        link = self.links.get(far[0]) if far else None
        layers = placed_layers(self.model.n_layer, self.settings, [1.0] if far else [])
        way = DIRECT
        if link:
            rate = min(LINK.bytes_per_second, 1e9 * link.achieved_gigabytes_per_second)
            way = replace(LINK, extra_seconds=link.round_trip_seconds - RELAYED, bytes_per_second=rate)
        host = TRUTH[f"host/{self.settings.n_threads}"]
        whole = PlacedModel(
            self.model, self.settings, layers, {"host": host, "gpu0": TRUTH["loopback/1"]}, {"gpu0": way}
        )
        sums = [sum(term.seconds for term in whole.decode(len(prompt) + i)) for i in range(n_gen - 1)]
        prefill = sum(term.seconds for term in whole.prefill(len(prompt))) - whole.overlap(len(prompt))
        return Pass(prefill, tuple(float(i) for i in range(n_gen)), tuple(sums), tuple(range(n_gen)))

    def multiply(self, device, n_threads=None, *, type, n_rows, n_cols, n_tokens, n_matrices, extra_bufts=True, **_):
        repacked = extra_bufts and type in REPACKED_TYPES
        rates = TRUTH[f"host/{n_threads}"].matrix(type, repacked)
        n_bytes = tensor_type(type).bytes_of(n_rows * n_cols)
        once = rates.one_token(n_bytes, n_rows) if n_tokens == 1 else rates.batch(n_rows, n_cols, n_tokens)
        return [n_matrices * once] * 3, "CPU_REPACK" if repacked else "CPU"

    def attend(self, device, *, seconds, least_passes, **work):
        one = Attention(**work)
        rates = TRUTH[f"host/{one.n_threads}"].attention_of(
            one.type_k.lower(), "flash" if one.flash else "plain", one.head_dim
        )
        if one.n_tokens == 1:
            arithmetic = one.n_head * one.n_cells * rates.seconds_per_head_cell
            once = arithmetic + one.n_cells * one.cell_bytes * rates.seconds_per_byte
        else:
            tiled = one.type_k.lower() in TILED_CACHES
            cells = attended_cells(one.n_tokens, one.depth, one.n_cells, skips_masked=one.flash, tiled=tiled)
            once = one.n_head * cells * rates.seconds_per_batch_cell
        return [one.n_blocks * once] * 3

    def transfer(self, device, n_bytes, seconds):
        trip = n_bytes / LINK.bytes_per_second if n_bytes > 4 else LINK.round_trip_seconds
        return [trip] * 3, [trip] * 3

    def close(self):
        self.closed = True


class KnownDevice:
    """What `loopback_device` returns, without a process."""

    def __init__(self, engine, rate=None, latency_seconds=None):
        self.endpoint, self.n_threads = f"{ENDPOINT}{rate or latency_seconds or ''}", 1
        trip = RELAYED + 2 * (latency_seconds or 0.0)
        self.link = Link(self.endpoint, rate, latency_seconds, rate or 2.0, trip) if rate or latency_seconds else None
        self.achieved_gigabytes_per_second = rate
        engine.links[self.endpoint] = self.link

    def settings(self, base=None):
        from inferlab.settings import Settings

        return (base or Settings()).but(rpc_servers=(self.endpoint,), n_threads=1, n_threads_batch=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def known_machine(monkeypatch, tmp_path):
    """The engine, with shapes as headers alone, two cores, one memory rate and devices without processes."""
    from inferlab.engine import libraries
    from inferlab.measurement import ceilings
    from inferlab.prediction import calibrate

    engine = KnownMachine()
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(calibrate, "make_shape", partial(make_shape, header_only=True))
    monkeypatch.setattr(calibrate, "physical_cores", lambda: 2)
    monkeypatch.setattr(calibrate, "loopback_device", partial(KnownDevice, engine))
    monkeypatch.setattr(libraries, "backends", lambda: ("cpu", "rpc"))
    monkeypatch.setattr(ceilings, "host_bandwidth", lambda n_threads, seconds=0.1: 1e10 * n_threads)
    return engine
