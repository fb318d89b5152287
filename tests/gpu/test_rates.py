"""The roof of the device, and rates by type: the code that measures a card, with a label where it is none."""

import pytest

from inferlab.measurement import ceilings
from inferlab.settings import Settings
from studies.kernels.measure import tiny_rates

OF_ROOF = ("F16", "Q8_0", "Q4_K")
OF_MODEL = ("F16", "Q8_0", "Q4_K_M", "Q4_0", "IQ4_NL")


def test_the_roof_of_the_device(gpu, engine, monkeypatch, record_property):
    """Bandwidth and arithmetic of each type, in a buffer of the device; smaller matrices where software computes."""
    if gpu.is_software:
        monkeypatch.setattr(ceilings, "SIDE", 1024)
        monkeypatch.setattr(ceilings, "PRODUCTS", ((1024, 128), (1024, 32)))
        monkeypatch.setattr(ceilings, "MOST_BLOCK_BYTES", ceilings.LEAST_BLOCK_BYTES)
    roof = ceilings.ceiling(gpu.name, types=OF_ROOF, seconds=0.1, engine=engine)
    assert set(roof.buffers.values()) == {gpu.name}
    assert roof.bandwidth_bytes_per_second > 0
    rates = ", ".join(f"{type} {flops / 1e9:.1f}" for type, flops in roof.matrix_flops_per_second.items())
    found = f"{gpu.title}: {roof.bandwidth_bytes_per_second / 1e9:.1f} GB/s; GFLOP/s {rates}"
    record_property("found", found)
    assert ("software" in found) == gpu.is_software


def test_rates_by_type_name_the_device_and_what_it_is(gpu, engine, record_property):
    """The table of the CPU's page, of this device: its title and its badge say where software computed."""
    settings = Settings(flash_attn="on", n_ctx=256)
    rates = tiny_rates(OF_MODEL, 2, settings, engine, n_prompt=64, n_gen=16)
    assert [one.type for one in rates.rates] == list(OF_MODEL)
    assert rates.devices == gpu.title
    assert gpu.title in rates.badge
    assert ("software" in str(rates)) == gpu.is_software
    record_property("found", str(rates).replace("\n", "; "))


@pytest.mark.parametrize("way", ["to_device", "to_host"])
def test_the_link_to_the_device(way, gpu, engine):
    """Copies of a block there and back are timed without a model."""
    link = ceilings.link(gpu.name, seconds=0.1, engine=engine)
    assert getattr(link, f"{way}_bytes_per_second") > 0
