"""What a reader may rely on in telemetry: readings that are true or None, never late, never in the way."""

import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest
from fakes import ScriptedEngine, TurnedClock, made_run, scripted_pass, write_gguf
from fakes_nvml import CONSTANTS, FakeGpu, FakeNvml

from inferlab.engine.client import LlamaEngine
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.figures import telemetry
from inferlab.machine import Device
from inferlab.measurement.run import measure
from inferlab.measurement.telemetry.host import HostReader, LinuxReader, busy_percent
from inferlab.measurement.telemetry.nvml import vram_used_bytes
from inferlab.measurement.telemetry.sampler import TelemetrySampler
from inferlab.measurement.telemetry.samples import (
    GPU_FIELDS,
    GPU_LOST,
    NOT_HERE,
    NOT_PERMITTED,
    NOT_REPORTED,
    PCIE_FIELDS,
    PROCESS_ENDED,
    PROCESS_FIELDS,
    Deadlines,
    Sample,
    Sampling,
    sampling_interval,
)
from inferlab.model.find import tiny_model
from inferlab.records import from_record, load, save, to_record
from inferlab.settings import Settings

STAT = b"""cpu  4 0 1 4 1 0 0 0 4 0
cpu0 4 0 1 4 1 0 0 0 4 0
cpu1 0 0 0 0 0 0 0 0 0 0
intr 5 cpu 9
"""
DISKSTATS = b"""   8 0 sda 1 0 8 3 0 0 0 0 0 0 0
   8 1 sda1 1 0 8 3 0 0 0 0 0 0 0
   7 0 loop0 1 0 8 3 0 0 0 0 0 0 0
"""
LINUX_ONLY = pytest.mark.skipif(not psutil.LINUX, reason="reads /proc")


def known(samples, name):
    """Whether the field `name` is known in any sample."""
    return any(getattr(sample, name) is not None for sample in samples)


@pytest.fixture
def driver(monkeypatch):
    """Puts a fake NVML in the place of the module pynvml."""

    def install(*gpus, **scenario):
        nvml = FakeNvml(*gpus, **scenario)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return nvml

    return install


def sampled(seconds=0.1, interval=0.02, pid=None):
    """A sampler that ran for a while."""
    with TelemetrySampler(pid, interval) as sampler:
        time.sleep(seconds)
    return sampler


def until(condition, seconds=60.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


# --- the clock ------------------------------------------------------------------------------


def test_deadlines_do_not_drift():
    """However long each reading takes, the thousandth deadline is a thousand intervals after the first moment."""
    deadlines, now = Deadlines(5.0, 0.1), 5.0
    for _ in range(999):
        now += deadlines.seconds_left(now) + 0.037
        deadlines.met()
    assert deadlines.next == pytest.approx(105.0)
    assert deadlines.n_skipped == 0


def test_a_late_reading_skips_deadlines_and_counts_them():
    """A reading until 0.35 s leaves the deadlines at 0.1, 0.2 and 0.3 s unused; the next is on the grid, at 0.4 s."""
    deadlines = Deadlines(0.0, 0.1)
    assert deadlines.seconds_left(0.35) == pytest.approx(0.05)
    assert (deadlines.n_skipped, deadlines.next) == (3, pytest.approx(0.4))


def test_samples_stay_on_the_grid(monkeypatch, driver):
    """A slow reading shortens the wait after it, so that samples keep to multiples of the interval."""
    driver()
    clock = TurnedClock(ends=0.6)
    monkeypatch.setattr("inferlab.measurement.telemetry.sampler.time", clock)
    monkeypatch.setattr("inferlab.measurement.telemetry.nvml.GpuReader.read", lambda self: clock.sleep(0.02) or {})
    sampler = TelemetrySampler(interval_seconds=0.05)
    sampler._ended = clock
    with sampler:
        sampler._thread.join(60)
    *on_the_grid, _last = [sample.seconds for sample in sampler.samples]
    assert on_the_grid == pytest.approx([0.05 * i for i in range(13)])
    assert sampler.sampling.n_skipped == 0


def test_samples_carry_the_clock_of_the_tokens(driver):
    """A sample's seconds are time.perf_counter(): the first was taken before the block, the last after it."""
    driver()
    with TelemetrySampler(interval_seconds=10) as sampler:
        began = time.perf_counter()
        ended = time.perf_counter()
    first, last = sampler.samples
    assert first.seconds < began < ended < last.seconds


@pytest.mark.parametrize("wrong", [0, -0.1, float("nan"), float("inf"), "often"])
def test_an_interval_that_cannot_be_kept_is_refused(wrong):
    """Only a positive number of seconds is an interval."""
    with pytest.raises(InvalidSettings, match="telemetry"):
        TelemetrySampler(interval_seconds=wrong)


def test_true_means_ten_samples_a_second():
    """telemetry=True is 0.1 s, a number is itself, False takes no samples."""
    assert [sampling_interval(asked) for asked in (True, 0.5, 2, False)] == [0.1, 0.5, 2.0, None]


# --- the operating system -------------------------------------------------------------------


@LINUX_ONLY
def test_the_fields_of_a_process_are_those_the_kernel_tells(driver):
    """RSS, faults and bytes read of another process grow when it allocates, and are its own."""
    driver()
    code = "import sys; sys.stdin.readline(); x = bytearray(2**25); print(len(x), flush=True); sys.stdin.readline()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with TelemetrySampler(child.pid, 10) as sampler:
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
    child.communicate("\n")
    before, after = sampler.samples
    assert after.rss_bytes - before.rss_bytes >= 2**25
    assert after.minor_faults > before.minor_faults
    assert after.major_faults >= before.major_faults
    assert after.process_read_bytes >= before.process_read_bytes >= 0
    assert not set(PROCESS_FIELDS) & set(sampler.sampling.missing)


@LINUX_ONLY
@pytest.mark.parametrize("waited_for", [True, False])
def test_a_process_that_is_killed_becomes_unknown_not_zero(driver, waited_for):
    """After the process ended, its fields are None, whether or not its parent has waited for it."""
    driver()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with TelemetrySampler(child.pid, 0.02) as sampler:
        child.send_signal(signal.SIGKILL)
        if waited_for:
            child.wait()
        until(lambda: sampler.samples[-1].rss_bytes is None)
    child.communicate()
    assert sampler.samples[0].rss_bytes > 0
    assert [getattr(sampler.samples[-1], name) for name in PROCESS_FIELDS] == [None] * 4
    assert sampler.sampling.missing["rss_bytes"] == PROCESS_ENDED


def test_without_a_process_the_machine_is_still_read(driver):
    """No pid: the process's fields are None and say so; the processors are read."""
    driver()
    sampler = sampled(0.15)
    assert known(sampler.samples, "cpu_percent")
    assert not any(known(sampler.samples, name) for name in PROCESS_FIELDS)
    assert sampler.sampling.missing["rss_bytes"] == "no process was named"


def test_a_process_that_never_was_does_not_end_the_measurement(driver):
    """An engine that died before the first sample leaves its fields unknown."""
    driver()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    sampler = sampled(0.05, pid=child.pid)
    assert sampler.sampling.missing["rss_bytes"] == PROCESS_ENDED


def test_a_field_that_is_forbidden_is_none_beside_those_that_are_not(driver, monkeypatch):
    """A kernel that hides one process's input and output still tells its memory."""
    driver()

    def forbidden(self):
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "io_counters", forbidden, raising=False)
    sampler = sampled(0.05, pid=os.getpid())
    assert sampler.samples[-1].process_read_bytes is None
    assert sampler.samples[-1].rss_bytes > 0
    assert sampler.sampling.missing["process_read_bytes"] == NOT_PERMITTED


def test_a_machine_without_disk_counters_says_so(driver, monkeypatch):
    """Where no disk is counted (many containers), bytes read are unknown, not 0."""
    driver()
    monkeypatch.setattr("inferlab.measurement.telemetry.sampler.host_reader", HostReader)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda nowrap: None)
    sampler = sampled(0.05)
    assert sampler.samples[-1].machine_read_bytes is None
    assert sampler.sampling.missing["machine_read_bytes"] == NOT_HERE


def test_cpu_percent_is_of_each_processor_and_needs_an_interval(driver):
    """The first sample cannot know how busy a processor was; later ones have a percentage for each."""
    driver()
    sampler = sampled(0.2, 0.06)
    assert sampler.samples[0].cpu_percent is None
    told = [sample.cpu_percent for sample in sampler.samples if sample.cpu_percent]
    assert told
    assert all(len(percents) == psutil.cpu_count() for percents in told)
    assert all(0 <= percent <= 100 for percents in told for percent in percents)


def test_a_processor_is_busy_for_the_share_of_its_time_that_is_not_idle():
    """5 of 10 hundredths idle is 50 %; no time passed, or a counter that went back, is within 0 and 100."""
    assert busy_percent((100, 200), (105, 210)) == 50
    assert busy_percent((100, 200), (100, 200)) == 0
    assert busy_percent((100, 200), (99, 210)) == 100


@LINUX_ONLY
def test_waiting_for_a_disk_is_idle_and_guests_are_not_counted_twice(monkeypatch):
    """Of user 4 (all of it a guest's), system 1, idle 4, waiting 1, a processor was busy half."""
    monkeypatch.setattr("inferlab.measurement.telemetry.host.read_proc", lambda path: STAT)
    assert LinuxReader(None, {})._processor_times() == [(5, 10), (0, 0)]


@LINUX_ONLY
def test_disks_are_counted_once(monkeypatch):
    """Partitions, loops and mapped devices read from a disk that is counted already."""
    monkeypatch.setattr("inferlab.measurement.telemetry.host.read_proc", lambda path: DISKSTATS)
    reader = LinuxReader(None, {})
    reader._disk_names = {b"sda"}
    assert reader._disks() == 512 * 8
    reader._disk_names = set()
    with pytest.raises(NotImplementedError):
        reader._disks()


@LINUX_ONLY
def test_what_proc_tells_is_what_psutil_tells():
    """Two ways to one answer: processors, faults and disks agree with psutil's own reading."""
    missing = {}
    ours, theirs = LinuxReader(os.getpid(), missing), HostReader(os.getpid(), missing)
    for (idle, total), times in zip(ours._processor_times(), psutil.cpu_times(percpu=True), strict=True):
        assert idle / 100 == pytest.approx(times.idle + times.iowait, abs=1)
        assert total / 100 == pytest.approx(sum(times) - times.guest - times.guest_nice, abs=1)
    assert set(ours.read(0.0)) == set(theirs.read(0.0))
    before = ours.read(0.0)["minor_faults"]
    with mmap.mmap(-1, 2**24) as fresh:  # the heap may have pages to spare
        fresh.write(bytes(2**24))
    after = ours.read(0.0)["minor_faults"]
    assert after > before
    resource = pytest.importorskip("resource")
    assert after == pytest.approx(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, rel=0.05)


# --- the driver -----------------------------------------------------------------------------


def test_the_fake_driver_has_the_names_and_numbers_of_the_real_module():
    """What the scenarios below rely on is in the installed pynvml, with the same values."""
    import pynvml

    for name, number in CONSTANTS.items():
        assert getattr(pynvml, name) == number
    for name in (name for name in vars(FakeNvml) if name.startswith("nvml")):
        assert callable(getattr(pynvml, name))
    assert pynvml.NVMLError(3).value == 3
    told = pynvml.c_nvmlFieldValue_t()
    assert (told.nvmlReturn, told.value.uiVal) == (0, 0)


def test_one_gpu_is_read_in_full(driver):
    """Every field of a healthy GPU, in its unit: bytes, percent, watts, MHz, degrees, bytes per second."""
    nvml = driver(FakeGpu())
    with TelemetrySampler(interval_seconds=0.02) as sampler:
        until(lambda: known(sampler.samples, PCIE_FIELDS[1]))
    last = next(sample for sample in reversed(sampler.samples) if sample.pcie_rx_bytes_per_second)
    assert [getattr(last, name) for name in GPU_FIELDS] == [
        (3 * 2**30,),
        (97,),
        (251.5,),
        (1980,),
        (2619,),
        (41,),
        (1_500_000.0,),
        (12_000_000.0,),
    ]
    assert (sampler.sampling.gpus, sampler.sampling.power_source) == (("Example GPU",), ("instant",))
    assert not set(GPU_FIELDS) & set(sampler.sampling.missing)
    assert nvml.n_open == 0


CUDA0 = Device("CUDA0", "a card", "gpu", backend="CUDA", id="0000:41:00.0")


def test_a_device_is_found_by_its_place_on_the_bus(driver):
    """CUDA calls the faster card 0, NVML the one that stands first on the bus: numbers are not compared."""
    driver(FakeGpu(vram_used_bytes=7), FakeGpu("Other GPU", bus="00000000:41:00.0", vram_used_bytes=5))
    sampler = sampled(0.05)
    assert sampler.sampling.gpu_ids == ("0000:01:00.0", "0000:41:00.0")
    assert sampler.sampling.column(CUDA0) == 1
    assert sampler.samples[0].vram_used_bytes[1] == vram_used_bytes(CUDA0) == 5
    assert sampler.sampling.column(replace(CUDA0, id="0000:99:00.0")) is None
    assert sampler.sampling.column(replace(CUDA0, id=None)) is None


@pytest.mark.parametrize(
    ("gpu", "device", "said"),
    [
        (FakeGpu(), CUDA0, "reports no memory in use of CUDA0 at 0000:41:00.0: NVML shows 0000:01:00.0"),
        (FakeGpu(bus="00000000:41:00.0", refuses={"memory": 3}), CUDA0, f"0000:41:00.0: {NOT_REPORTED}"),
        (FakeGpu(refuses={"place": 3}), replace(CUDA0, id=None), "NVML shows None"),
        (None, CUDA0, "no NVIDIA GPU"),
    ],
)
def test_another_cards_memory_is_never_given(driver, gpu, device, said):
    """A device that the driver does not show, or whose memory it does not report, is an error and not a neighbour's."""
    nvml = driver(*filter(None, [gpu]))
    with pytest.raises(DeviceUnavailable) as refused:
        vram_used_bytes(device)
    assert said in str(refused.value)
    assert nvml.n_open == 0


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (None, "the package nvidia-ml-py is not installed"),
        (FakeNvml(start=CONSTANTS["NVML_ERROR_LIBRARY_NOT_FOUND"]), "no NVIDIA driver is installed"),
        (FakeNvml(start=CONSTANTS["NVML_ERROR_DRIVER_NOT_LOADED"]), "the NVIDIA driver is not loaded"),
        (
            FakeNvml(start=CONSTANTS["NVML_ERROR_LIB_RM_VERSION_MISMATCH"]),
            "the NVIDIA driver and its library differ in version",
        ),
        (FakeNvml(start=999), "NVML error 999"),
        (FakeNvml(), "no NVIDIA GPU"),
    ],
)
def test_without_a_driver_the_gpu_is_unknown_and_the_rest_is_read(monkeypatch, nvml, reason):
    """No package, library, driver or GPU, or an error: GPU fields None with the reason, processors read."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    sampler = sampled(0.15)
    assert not any(known(sampler.samples, name) for name in GPU_FIELDS)
    assert {sampler.sampling.missing[name] for name in GPU_FIELDS} == {reason}
    assert known(sampler.samples, "cpu_percent")


def test_a_gpu_lost_in_mid_run_is_none_from_then_on_and_the_other_is_read_on(driver):
    """Of two GPUs one falls off the bus: its readings before stay, later ones are None, the other's continue."""
    lost, healthy = FakeGpu(lost_after=40), FakeGpu("Other GPU", vram_used_bytes=5)
    driver(lost, healthy)
    with TelemetrySampler(interval_seconds=0.02) as sampler:
        until(lambda: sampler.samples[-1].vram_used_bytes == (None, 5))
    assert sampler.samples[0].vram_used_bytes == (3 * 2**30, 5)
    assert sampler.samples[-1].power_watts == (None, 251.5)
    assert sampler.sampling.missing["vram_used_bytes"] == f"GPU 0: {GPU_LOST}"
    asked = lost.n_asked
    time.sleep(0.05)
    assert lost.n_asked == asked


def test_a_gpu_that_cannot_be_opened_leaves_the_other(driver):
    """A GPU without a handle is a column of None."""
    driver(FakeGpu(refuses={"handle": CONSTANTS["NVML_ERROR_NO_PERMISSION"]}), FakeGpu())
    sampler = sampled(0.05)
    assert sampler.samples[-1].gpu_utilization_percent == (None, 97)
    assert sampler.sampling.gpus == (None, "Example GPU")
    assert sampler.sampling.missing["gpu_utilization_percent"] == f"GPU 0: {NOT_PERMITTED}"


@pytest.mark.parametrize(
    ("error", "reason"),
    [("NVML_ERROR_NOT_SUPPORTED", NOT_REPORTED), ("NVML_ERROR_NO_PERMISSION", NOT_PERMITTED)],
)
def test_a_field_that_is_refused_is_none_with_its_reason_and_not_asked_again(driver, error, reason):
    """Utilization unsupported (MIG, some laptops) or forbidden: None, said why, asked once; the rest is read."""
    gpu = FakeGpu(refuses={"utilization": CONSTANTS[error]})
    driver(gpu)
    asked = []
    answer, gpu.answer = gpu.answer, lambda question: asked.append(question) or answer(question)
    sampler = sampled(0.1)
    assert not known(sampler.samples, "gpu_utilization_percent")
    assert sampler.samples[-1].vram_used_bytes == (3 * 2**30,)
    assert sampler.sampling.missing == {**sampler.sampling.missing, "gpu_utilization_percent": reason}
    assert asked.count("utilization") == 1


def test_an_error_that_may_pass_is_asked_again(driver):
    """A timeout costs one reading, not the rest of the run."""
    gpu = FakeGpu(refuses={"memory": CONSTANTS["NVML_ERROR_TIMEOUT"]})
    driver(gpu)
    with TelemetrySampler(interval_seconds=0.02) as sampler:
        gpu.refuses.clear()
        until(lambda: sampler.samples[-1].vram_used_bytes is not None)
    assert sampler.samples[0].vram_used_bytes is None


@pytest.mark.parametrize("question", ["instant power", "fields"])
def test_power_falls_back_to_the_average_and_says_so(driver, question):
    """A driver without the instantaneous field, in either way of refusing it, is asked for its average."""
    driver(FakeGpu(refuses={question: CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]}))
    sampler = sampled(0.05)
    assert sampler.samples[-1].power_watts == (180.0,)
    assert sampler.sampling.power_source == ("average",)


def test_a_gpu_without_any_power_reading_has_none(driver):
    """Neither power field: None and the reason, never 0 W."""
    refused = CONSTANTS["NVML_ERROR_NOT_SUPPORTED"]
    driver(FakeGpu(refuses={"instant power": refused, "average power": refused}))
    sampler = sampled(0.05)
    assert sampler.samples[-1].power_watts is None
    assert sampler.sampling.power_source == (None,)
    assert sampler.sampling.missing["power_watts"] == NOT_REPORTED


def test_sources_of_power_are_not_mixed(driver):
    """A passing error of the instantaneous field gives None, not a value of the other kind."""
    gpu = FakeGpu(refuses={"fields": CONSTANTS["NVML_ERROR_TIMEOUT"]})
    driver(gpu)
    assert sampled(0.05).samples[-1].power_watts is None


def test_a_blocking_pcie_counter_delays_no_sample(driver):
    """While a PCIe reading waits for its window, samples are taken without it; they have it afterwards."""
    window = threading.Event()
    driver(FakeGpu(), pcie=lambda: window.wait(5))
    with TelemetrySampler(interval_seconds=0.02) as sampler:
        until(lambda: len(sampler.samples) > 5)
        assert not known(sampler.samples, PCIE_FIELDS[0])
        window.set()
        until(lambda: known(sampler.samples, PCIE_FIELDS[0]))


def test_a_driver_that_hangs_does_not_hang_the_measurement(driver, monkeypatch):
    """A PCIe call that never returns is left behind in its thread."""
    monkeypatch.setattr("inferlab.measurement.telemetry.sampler.PATIENCE_SECONDS", 0.1)
    released, returned = threading.Event(), []
    nvml = driver(FakeGpu(), pcie=lambda: returned.append(released.wait(30)))
    sampler = sampled(0.1)
    assert returned == []
    assert sampler.samples[-1].pcie_rx_bytes_per_second is None
    assert nvml.n_open == 1
    released.set()


def test_whatever_a_binding_raises_stays_inside(driver, monkeypatch):
    """A binding that breaks its own rules costs its field, not the measurement."""
    nvml = driver(FakeGpu())
    nvml.nvmlDeviceGetMemoryInfo = lambda gpu: 1 / 0
    del nvml.NVML_CLOCK_SM
    sampler = sampled(0.05)
    assert sampler.samples[-1].vram_used_bytes is None
    assert "ZeroDivisionError" in sampler.sampling.missing["vram_used_bytes"]
    assert sampler.sampling.missing["sm_clock_mhz"] == NOT_REPORTED


# --- joined with a run ----------------------------------------------------------------------


class SampledEngine(ScriptedEngine):
    """A scripted engine that says when each pass was called, in a process that can be read."""

    pid = os.getpid()

    def generate(self, prompt, n_gen):
        began = time.perf_counter()
        time.sleep(0.05)
        return replace(super().generate(prompt, n_gen), began=began)


def test_samples_and_passes_share_one_time_axis(tmp_path, driver):
    """Second 0 is the call of the first counted pass: warm-ups lie before it, samples around the counted passes."""
    driver()
    path = write_gguf(tmp_path / "m.gguf")
    run = measure(path, n_prompt=8, n_gen=3, repeats=3, engine=SampledEngine(), telemetry=0.02)
    assert run.passes[0].began == 0
    assert all(warmup.began < 0 for warmup in run.warmups)
    assert run.warmups[-1].began < run.samples[0].seconds <= 0
    assert run.samples[-1].seconds >= run.passes[-1].began + 0.05
    assert run.sampling.interval_seconds == 0.02


def test_an_engine_that_tells_no_time_still_gets_samples(tmp_path, driver):
    """Without `began` the samples count from the first of them."""
    driver()
    path = write_gguf(tmp_path / "m.gguf")
    run = measure(path, n_prompt=8, n_gen=3, repeats=2, engine=ScriptedEngine(), telemetry=True)
    assert run.samples[0].seconds == 0
    assert run.passes[0].began is None


def test_a_wrong_interval_is_refused_before_anything_loads(tmp_path):
    """telemetry=-1 costs no model load."""
    engine = ScriptedEngine()
    with pytest.raises(InvalidSettings, match="telemetry=-1"):
        measure(write_gguf(tmp_path / "m.gguf"), n_prompt=8, n_gen=3, engine=engine, telemetry=-1)
    assert not engine.opened


def test_a_sampled_run_survives_its_record(tmp_path):
    """Samples, reasons and the moment each pass began come back from JSON as they were."""
    samples = (Sample(-0.1, rss_bytes=5), Sample(0.0, (1, None), power_watts=(3.5, None), cpu_percent=(50.0, 0.0)))
    sampling = Sampling(0.1, 2, ("A", None), ("instant", None), {"power_watts": f"GPU 1: {NOT_REPORTED}"})
    run = made_run(samples=samples, sampling=sampling, passes=(replace(scripted_pass(), began=0.0),))
    assert load(save(run, tmp_path / "run.json")) == run
    assert "vram" not in json.dumps(to_record(run)["samples"][0])


def test_a_record_from_before_telemetry_is_read():
    """Older records know no samples and no `began`."""
    data = to_record(made_run())
    for name in ("samples", "sampling"):
        data.pop(name, None)
    for timed in (*data["passes"], *data["warmups"]):
        timed.pop("began", None)
    assert from_record(data) == made_run()


@pytest.mark.engine
@LINUX_ONLY
def test_the_engine_that_is_sampled_is_the_worker_not_the_notebook():
    """The engine's pid is that of its worker: None before it starts, another process's afterwards."""
    engine = LlamaEngine()
    assert engine.pid is None
    try:
        run = measure(tiny_model(), Settings(n_ctx=256), 16, 16, 2, engine=engine, telemetry=0.02)
        assert engine.pid not in (None, os.getpid())
        assert psutil.Process(engine.pid).memory_info().rss == pytest.approx(run.samples[-1].rss_bytes, rel=0.2)
        assert run.samples[-1].seconds >= run.passes[-1].began + run.passes[-1].token_seconds[-1]
    finally:
        engine.close()


def test_importing_the_library_loads_neither_psutil_nor_nvml():
    """Both are imported when a sampler starts."""
    code = "import sys, inferlab.measurement.run; print([m for m in ('psutil', 'pynvml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- drawn ----------------------------------------------------------------------------------


def sampled_run(*samples, **missing):
    """A run of two passes whose calls were at 0 and 1 s, with these samples."""
    passes = (replace(scripted_pass(), began=0.0), replace(scripted_pass(), began=1.0))
    return made_run(passes=passes, samples=samples, sampling=Sampling(0.1, missing=missing))


def titles(figure):
    """The panels' titles, from the top."""
    return [note.text for note in figure.layout.annotations if str(note.yref).endswith("domain")]


def drawn(figure, row):
    """(name, x, y) of the lines of one row."""
    axis = f"y{row}"
    return [
        (trace.name, list(trace.x), list(trace.y))
        for trace in figure.data
        if trace.type == "scatter" and trace.yaxis == axis
    ]


def test_passes_and_readings_are_drawn_on_one_axis():
    """Prefill and decode lie where they happened; each panel's readings at their own seconds, in its unit."""
    run = sampled_run(Sample(0.0, rss_bytes=2**20), Sample(0.5, rss_bytes=2**21))
    figure = telemetry(run)
    prefill, decode = (trace for trace in figure.data if trace.type == "bar")
    assert (list(prefill.base), list(prefill.x)) == ([0.0, 1.0], [0.5, 0.5])
    assert list(decode.base) == [0.5, 1.5]
    assert list(decode.x) == pytest.approx([0.2, 0.2])
    assert drawn(figure, 2) == [("", [0.0, 0.5], [1.0, 2.0])]
    assert {figure.layout.xaxis.matches, figure.layout.xaxis2.matches} == {"x2", None}


def test_a_panel_of_which_nothing_is_known_is_left_out_and_said():
    """No GPU readings: no GPU panels, and the reason stands in the text alternative and below the figure."""
    reasons = dict.fromkeys(GPU_FIELDS, "no NVIDIA driver is installed")
    figure = telemetry(sampled_run(Sample(0.0, rss_bytes=1), Sample(0.1, rss_bytes=1), **reasons))
    assert titles(figure) == ["Memory of the engine's process, MiB"]
    for text in (figure.layout.meta["alt"], figure.layout.annotations[-1].text.replace("<br>", " ")):
        assert "Not reported here: GPU utilization, GPU power, VRAM in use, PCIe" in text
        assert "(no NVIDIA driver is installed)" in text


def test_a_gpu_that_was_lost_leaves_a_gap_and_a_reason():
    """Both GPUs have a line; the lost one's ends, and the figure says that the panel is known in part."""
    samples = (Sample(0.0, power_watts=(50.0, 60.0)), Sample(0.1, power_watts=(None, 61.0)))
    figure = telemetry(sampled_run(*samples, power_watts=f"GPU 0: {GPU_LOST}"))
    assert drawn(figure, 2) == [("GPU 0", [0.0, 0.1], [50.0, None]), ("GPU 1", [0.0, 0.1], [60.0, 61.0])]
    assert f"Known in part: GPU power (GPU 0: {GPU_LOST})." in figure.layout.meta["alt"]


def test_several_gpus_are_called_what_llama_cpp_calls_them():
    """The driver's first GPU may be CUDA1; places on the bus tell, and one that llama.cpp does not see has a number."""
    cards = (CUDA0, replace(CUDA0, name="CUDA1", id="0000:01:00.0"))
    run = sampled_run(Sample(0.0, power_watts=(1.0, 2.0, None)), power_watts=f"GPU 0: {NOT_REPORTED}")
    places = ("0000:01:00.0", "0000:41:00.0", "0000:81:00.0")
    run = replace(run, machine=replace(run.machine, devices=cards), sampling=replace(run.sampling, gpu_ids=places))
    figure = telemetry(run)
    assert [name for name, *_ in drawn(figure, 2)] == ["CUDA1", "CUDA0"]
    assert f"GPU power (CUDA1: {NOT_REPORTED})" in figure.layout.meta["alt"]


def test_counters_are_drawn_as_rates_and_an_unknown_one_as_a_gap():
    """3 MB read in 0.5 s are 6 MB/s, drawn at the later sample; beside an unknown counter nothing is drawn."""
    samples = (Sample(0.0, process_read_bytes=0), Sample(0.5, process_read_bytes=3_000_000), Sample(1.0))
    figure = telemetry(sampled_run(*samples))
    assert drawn(figure, 2) == [("engine", [0.5, 1.0], [6.0, None])]


def test_processors_are_drawn_together_and_each():
    """The mean is on top of the processors it is made from."""
    figure = telemetry(sampled_run(Sample(0.0), Sample(0.1, cpu_percent=(100.0, 50.0))))
    names = [name for name, _, _ in drawn(figure, 2)]
    assert names == ["processor 0", "processor 1", "all together"]
    assert drawn(figure, 2)[-1] == ("all together", [0.1], [75.0])


def test_a_run_without_samples_shows_its_passes_and_says_so():
    """Nothing sampled is said, not drawn as nothing."""
    figure = telemetry(replace(made_run(), passes=sampled_run().passes))
    assert titles(figure) == []
    assert "No telemetry was taken." in figure.layout.meta["alt"]


def test_a_run_of_another_tool_can_be_drawn():
    """Passes that tell neither tokens nor their beginning leave the row of passes empty."""
    figure = telemetry(made_run())
    assert [len(trace.x) for trace in figure.data] == [0, 0]
