"""Where plan and run meet: matched by device and kind, whatever the backend calls its buffers."""

from fakes import BUFFERS, made_plan, made_run

from inferlab.engine.log import Buffer
from inferlab.prediction import compare
from inferlab.prediction.memory import DeviceBytes
from inferlab.units import MIB


def test_every_kind_on_every_device_is_held_against_the_log():
    """Predicted, measured and their difference in bytes; what neither knows is left out."""
    gaps = compare.compare(made_plan(), made_run(buffers=(*BUFFERS, Buffer("CUDA0", "compute", MIB))))
    assert [(g.device, g.kind, g.difference_bytes) for g in gaps] == [
        ("host", "weights", 0),
        ("host", "kv_cache", 0),
        ("host", "compute", 0),
        ("gpu0", "weights", 0),
        ("gpu0", "compute", MIB // 2),
    ]


def test_what_was_not_planned_is_no_zero():
    """A kind that the plan leaves open has no difference; on a device that it lacks it planned nothing."""
    plan = made_plan(devices={"host": DeviceBytes(2 * MIB, 3 * MIB, None, 0)})
    gaps = {(g.device, g.kind): g for g in compare.compare(plan, made_run(buffers=BUFFERS))}
    assert gaps["host", "compute"].difference_bytes is None
    assert (gaps["gpu0", "weights"].predicted_bytes, gaps["gpu0", "weights"].difference_bytes) == (0, 10 * MIB)


def test_backends_names_are_told_apart():
    """Plain, repacked and pinned memory belongs to the host; two ways into one GPU's memory are one device."""
    named = ["CPU", "AMX", "CUDA_Host", "MTL0_Mapped", "MTL0", "MTL1"]
    measured = compare.measured_bytes(Buffer(name, "weights", 10**i) for i, name in enumerate(named))
    assert measured == {("host", "weights"): 111, ("gpu0", "weights"): 11_000, ("gpu1", "weights"): 100_000}


def test_rpc_servers_come_first_in_the_order_they_were_named():
    """Each is called RPC0 in the log and comes before the machine's own devices; endpoints tell them apart."""
    buffers = [
        Buffer(name, "weights", 10**i) for i, name in enumerate(["CUDA0", "RPC0[127.0.0.1:2]", "RPC0[127.0.0.1:1]"])
    ]
    measured = compare.measured_bytes(buffers, ("127.0.0.1:2", "127.0.0.1:1"))
    assert measured == {("gpu2", "weights"): 1, ("gpu0", "weights"): 10, ("gpu1", "weights"): 100}


def test_weights_that_are_there_twice_are_counted_once():
    """A mapped file and its repacked copies: the copies stand apart, and the gap says what they are."""
    buffers = (Buffer("CPU_Mapped", "weights", 10 * MIB), Buffer("AMX", "weights", 9 * MIB))
    assert compare.measured_bytes(buffers) == {("host", "weights"): 10 * MIB}
    plan = made_plan(devices={"host": DeviceBytes(10 * MIB, 0, 0, 0)})
    (gap,) = compare.compare(plan, made_run(buffers=buffers))
    assert (gap.difference_bytes, gap.repacked_bytes) == (0, 9 * MIB)
    assert "9.00 MiB, counted apart" in gap.note


def test_without_a_mapped_file_a_repacked_buffer_is_the_only_copy():
    """Then it counts."""
    buffers = (Buffer("CPU", "weights", MIB), Buffer("CPU_REPACK", "weights", 9 * MIB))
    assert compare.measured_bytes(buffers) == {("host", "weights"): 10 * MIB}
    assert compare.repacked_bytes(buffers) == 0


def test_a_bound_shows_its_two_ends():
    """Where the plan could not say one number, the gap has its range instead of a difference."""
    plan = made_plan(devices={"host": DeviceBytes(0, 0, None, 0)}, compute_range={"host": (MIB, 3 * MIB)})
    (gap,) = compare.compare(plan, made_run(buffers=(Buffer("CPU", "compute", 2 * MIB),)))
    assert (gap.difference_bytes, gap.predicted_range) == (None, (MIB, 3 * MIB))
