"""A machine whose every rate is written down: an engine that takes exactly as long as `speed` says for these rates.

It stands in for llama.cpp and its devices where a calibration is tested: what was put in must come out.
"""

from dataclasses import replace
from functools import partial

from fakes import CPU_ONLY

from inferlab.engine.protocol import Opening, Pass
from inferlab.machine import Link
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.calibrate import MIX_OF_TYPE, VALUE_RATES_FROM
from inferlab.prediction.memory.placement import placed_layers
from inferlab.prediction.speed import AttentionRates, DeviceRates, LinkRates, PlacedModel, TypeRates

ENDPOINT = "127.0.0.1:7"


def device_rates(name, n_threads, slowness, step_seconds):
    """Every type at its own rate, attention likewise."""
    value = {"F16": 1e-9, "Q4_K": 3e-9}
    types = {kind: TypeRates((1 + i / 10) * slowness * 1e-10, (1 + i / 5) * slowness * 1e-11,
                             slowness * value.get(VALUE_RATES_FROM.get(kind), 2e-9))
             for i, kind in enumerate([*MIX_OF_TYPE, "F32"])}  # fmt: skip
    paths = ("f16/flash", "q8_0/flash", "q4_0/flash", "f16/plain", "f16/flash/128")
    attention = {path: AttentionRates((1 + i) * slowness * 1e-10, (1 + i) * slowness * 5e-11)
                 for i, path in enumerate(paths)}  # fmt: skip
    return DeviceRates(name, n_threads, True, 1e10, types, attention, slowness * 2e-5, step_seconds)


TRUTH = {
    "host/1": device_rates("host", 1, 2.0, 2e-4),
    "host/2": device_rates("host", 2, 1.0, 1e-4),
    "loopback/1": device_rates("loopback/1", 1, 3.0, 6e-4),
}
RELAYED = 2e-4  # seconds through a relay and back
LINK = LinkRates(2e9, 1e-4, split_seconds=3e-4, split_waits=2.0, split_bytes=12_000.0, relay_round_trip_seconds=RELAYED,
                 relay_step_seconds=1e-3, relay_split_seconds=2e-4)  # fmt: skip
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
        prefill = sum(term.seconds for term in whole.prefill(len(prompt)))
        return Pass(prefill, tuple(float(i) for i in range(n_gen)), tuple(sums), tuple(range(n_gen)))

    def multiply(self, device, n_threads=None, **work):
        return [1e-3] * 3

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
