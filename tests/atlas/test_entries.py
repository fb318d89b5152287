"""The hardware atlas: every record read, each measurement beside a prediction made anew, and a table that shows it."""

from dataclasses import replace
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from fakes import CARD, CPU_ONLY, WITH_GPU, made_run, scripted_pass
from marks import needs_rpc
from speed_machine import ENDPOINT, LINK, TRUTH

from handbook import atlas_table
from inferlab.atlas import entries
from inferlab.engine.log import Buffer
from inferlab.errors import RecordError
from inferlab.machine import Device
from inferlab.measurement.sweep import from_runs
from inferlab.model.gguf import Shape
from inferlab.model.synthetic_model import shape
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.compare import MAPPED
from inferlab.prediction.predict import predict_memory, predict_speed
from inferlab.prediction.validation import Accuracy, Point
from inferlab.records import kinds, save, shipped
from inferlab.settings import Settings
from studies.hardware_atlas.figures import atlas_rates

DIMENSIONS = {"n_layer": 2, "n_vocab": 2048}
SHAPE = shape("llama-3.2-1b", "Q8_0", **DIMENSIONS)
HOST_SETTINGS = Settings(n_ctx=256, flash_attn="on", devices=(), n_threads=2, n_threads_batch=2)
CALIBRATED = Calibration(CPU_ONLY, "2026-01-31", TRUTH, {"loopback/1": LINK})


def as_planned(settings=HOST_SETTINGS, **changes):
    """A run on the host whose buffers and times are those that are predicted."""
    plan = predict_memory(SHAPE, settings)
    names = {"weights": MAPPED}
    buffers = tuple(Buffer(names.get(kind, "CPU"), kind, n) for kind, n in plan.devices["host"].parts.items())
    speed = predict_speed(SHAPE, settings, CALIBRATED, 64, 3)
    gaps = (speed.decode.seconds,) * 2
    one = scripted_pass(speed.prefill.seconds, gaps, speed.prefill.seconds, share=1.0)
    card = SHAPE.card()
    facts = {"model": card, "settings": settings, "buffers": buffers, "passes": (one,), "n_prompt": 64}
    return made_run(**(facts | changes))


@pytest.fixture
def folder(tmp_path):
    """A machine with a calibration, a run as planned, a sweep, a disturbed run, and one of an unknown model."""
    CALIBRATED.save(tmp_path / "box-4c" / "calibration.json")
    save(as_planned(), tmp_path / "box-4c" / "planned.json")
    slow = replace(as_planned(), passes=(scripted_pass(9.0, (9.0, 9.0), 9.0),))
    save(slow, tmp_path / "box-4c" / "faults" / "slow.json")
    save(made_run(), tmp_path / "box-4c" / "unknown.json")
    types = from_runs([as_planned(), as_planned(HOST_SETTINGS.but(type_k="q8_0", type_v="q8_0"))])
    save(types, tmp_path / "box-4c" / "types.json")
    return tmp_path


@pytest.fixture
def found(folder):
    return {(entry.record, entry.settings): entry for entry in entries.entries(folder)}


def by_record(found, record):
    return next(entry for (name, _), entry in found.items() if name == record)


# --- entries ----------------------------------------------------------------------------------


@pytest.mark.engine
def test_what_came_out_as_planned_has_no_error(found):
    """Bytes and both rates of such a run lie on the line, inside their bands."""
    entry = by_record(found, "planned")
    assert entry.memory.error == pytest.approx(0, abs=1e-6)
    for phase in entries.PHASES:
        assert entry.checked(phase).error == pytest.approx(0, abs=1e-3)
        assert entry.checked(phase).inside
    assert entry.why == ""


@pytest.mark.engine
def test_an_entry_says_what_ran_where(found):
    """Model with what was changed in it, type, device, and the settings that are a choice."""
    entry = by_record(found, "planned")
    assert entry.model == "Llama 3.2 1B shape, n_layer 2, n_vocab 2048"
    assert (entry.machine, entry.type, entry.device) == ("box-4c", "Q8_0", "host")
    assert entry.settings == "flash_attn on, 2 host threads"
    assert (entry.n_prompt, entry.n_gen, entry.date) == (64, 3, "2026-01-31")


@pytest.mark.engine
def test_every_point_of_a_sweep_is_an_entry(found):
    """A sweep's anchors are not, because they repeat its first point."""
    assert [settings for record, settings in found if record == "types"] == [
        "flash_attn on, 2 host threads",
        "type_k q8_0, type_v q8_0, flash_attn on, 2 host threads",
    ]


@pytest.mark.engine
def test_a_disturbed_run_is_shown_and_counts_for_nothing(found):
    """No rate is predicted for it, and no error is taken from it."""
    entry = by_record(found, "faults/slow")
    assert entry.disturbed
    assert entry.rates["decode"][1] is None
    assert len(entries.rate_errors(found.values(), "decode")) == 3
    assert max(map(abs, entries.rate_errors(found.values(), "decode"))) < 0.01


@pytest.mark.engine
def test_the_healthy_runs_beside_the_disturbed_ones_count(folder):
    """A baseline was measured like any other; the disturbed ones stand last."""
    save(as_planned(), folder / "box-4c" / "faults" / "1-baseline.json")
    found = entries.entries(folder)
    assert not next(entry for entry in found if entry.record == "faults/1-baseline").disturbed
    assert found[-1].record == "faults/slow"


@pytest.mark.engine
def test_a_model_that_is_not_known_is_measured_and_not_predicted(found):
    """What its log told is there, and why the rest is not."""
    entry = by_record(found, "unknown")
    assert entry.memory.error is None
    assert entry.memory.measured > 0
    assert "header is not here" in entry.why
    assert entry.checked("decode") is None


def test_a_machine_without_calibration_has_bytes_only(tmp_path):
    """The entry says what is missing."""
    save(as_planned(), tmp_path / "other-2c" / "planned.json")
    entry = entries.entries(tmp_path)[0]
    assert entry.memory.error == pytest.approx(0, abs=1e-6)
    assert "no calibration" in entry.why


@pytest.mark.engine
def test_points_of_the_speed_model_are_entries_too(folder):
    """They were measured without a log, so they have rates alone."""
    point = Point("llama-3.2-1b", "Q8_0", DIMENSIONS, HOST_SETTINGS, 64, 3, None, (0.1,), (0.01, 0.02))
    Accuracy(CALIBRATED, (point,)).save(folder / "box-4c" / "speed-points.json")
    entry = next(entry for entry in entries.entries(folder) if entry.record == "speed-points")
    assert entry.memory is None
    assert entry.rates["prefill"][0] == pytest.approx(640)


@pytest.mark.parametrize(
    ("n_gpu_layers", "device"),
    [
        (0, "host"),
        (1, "host + loopback device"),
        (2, "host + loopback device"),
        (3, "loopback device"),
        (-1, "loopback device"),
    ],
)
def test_a_speed_points_device_is_named_as_a_runs(n_gpu_layers, device):
    """Some layers on the device leave the others, or the output, on the host; without a device all are there."""
    far = Settings(n_ctx=256, n_gpu_layers=n_gpu_layers, rpc_servers=(ENDPOINT,), n_threads=1)
    point = Point("llama-3.2-1b", "Q8_0", DIMENSIONS, far, 64, 3)
    assert entries._device_of_point(point, SHAPE) == device
    assert entries._device_of_point(replace(point, settings=HOST_SETTINGS), SHAPE) == "host"


@pytest.mark.engine
@needs_rpc
def test_a_prediction_for_a_recorded_loopback_device_uses_a_running_one(tmp_path):
    """The address in a record answers no longer; another device stands in for it, and the plan is the same."""
    far = Settings(n_ctx=256, flash_attn="on", n_gpu_layers=1, rpc_servers=(ENDPOINT,), n_threads=1, n_threads_batch=1)
    buffers = (Buffer("CPU", "weights", 9), Buffer(f"RPC0[{ENDPOINT}]", "weights", 9))
    save(replace(as_planned(), buffers=buffers, settings=far), tmp_path / "box-4c" / "far.json")
    entry = entries.entries(tmp_path)[0]
    assert entry.device == "host + loopback device"
    assert entry.memory.predicted > SHAPE.tensor_bytes


def test_a_card_is_called_by_its_name():
    """The embedding that stays on the host does not count where every layer is on the card."""
    run = made_run(machine=WITH_GPU, settings=Settings(n_ctx=256))
    assert entries.device_of(run) == "Example GPU"
    assert entries.device_of(replace(run, settings=Settings(n_ctx=256, n_gpu_layers=1))) == "Example GPU + host"


def test_a_file_that_is_no_json_is_named(tmp_path):
    """A damaged record stops the atlas and is not left out in silence."""
    (tmp_path / "box-4c").mkdir()
    (tmp_path / "box-4c" / "broken.json").write_text("{")
    with pytest.raises(RecordError, match=r"broken\.json cannot be read"):
        entries.entries(tmp_path)


@pytest.mark.parametrize("changes", [{}, {"n_layer": 8, "n_vocab": 16384}, {"head_dim": 64}])
def test_a_shapes_name_says_from_what_it_was_made(changes):
    """The name of a file is read back; any other name is not."""
    made = Shape("mistral-7b-v0.3", "Q4_K_M", changes)
    assert replace(SHAPE.card(), file=made.file_name).shape == made
    assert replace(SHAPE.card(), file="mistral-7b-instruct.Q4_K_M.gguf").shape is None


def test_a_model_that_only_bears_a_shapes_name_is_not_predicted():
    """Its bytes have to be those of the shape."""
    card = SHAPE.card()
    assert entries.model_of(card).tensor_bytes == SHAPE.tensor_bytes
    assert entries.model_of(replace(card, tensor_bytes=1)) is None
    assert entries.model_of(CARD) is None
    assert entries.model_of(replace(CARD, file="tiny.gguf")).n_layer > 0


# --- files and machines -----------------------------------------------------------------------


@pytest.mark.engine
def test_every_file_is_listed_with_its_kind(folder):
    """How many measurements, when, and with which build."""
    record_files = {one.record: one for one in entries.record_files(folder)}
    assert {name: one.kind for name, one in record_files.items()} == {
        "calibration": "calibration",
        "faults/slow": "run",
        "planned": "run",
        "types": "sweep",
        "unknown": "run",
    }
    assert record_files["types"].n_measurements == 2
    assert record_files["planned"].dates == ("2026-01-31",)
    assert "b1234" in record_files["planned"].builds[0]


def test_what_was_refused_is_no_measurement():
    """The list of files counts it apart, and says so; a record without a date says that."""
    data = {"record": "sweep", "schema": 2, "points": [{"run": {}}, {"error": "EngineRefused: no memory"}]}
    file = entries._record_file("box-4c", Path("box-4c/limited.json"), data)
    assert (file.n_measurements, file.n_refused) == (1, 1)
    row = BeautifulSoup(atlas_table.files([file]).data, "html.parser").select("tbody td")
    assert [cell.get_text() for cell in row[3:]] == ["1, and 1 refused", "not recorded"]


def test_the_repositorys_own_records_are_all_known():
    """Each file is of a kind, and each measurement has an entry or is listed as a file."""
    record_files = entries.record_files()
    assert {one.kind for one in record_files} <= set(kinds())
    assert len(record_files) == len(shipped())
    assert all(one.n_measurements for one in record_files)


@pytest.mark.engine
def test_the_records_say_whether_there_is_a_gpu(folder):
    """Without one the page says so by itself; with one it names it; a loopback device is none."""
    known = entries.machines(folder)
    assert list(known) == ["box-4c"]
    assert "No GPU is among them" in atlas_table.gpu_note(known)
    far = Device("RPC0", "loopback device", "gpu", backend="RPC")
    assert entries.gpu_names({"a": replace(CPU_ONLY, devices=(far,))}) == ()
    assert "Example GPU" in atlas_table.gpu_note({"b": WITH_GPU})
    assert atlas_table.measured_on(known) == "1 machine without a GPU (Example CPU, 4 cores)"
    assert "1 machine with Example GPU (" in atlas_table.measured_on({"b": WITH_GPU})
    assert "| box-4c | Example CPU | 4 |" in atlas_table.machines(known).data


# --- the table and the figures ----------------------------------------------------------------


@pytest.mark.engine
def test_the_table_has_a_row_for_each_entry_and_choices_for_its_values(found):
    """What can be chosen is in the row, with the errors that the line beneath the choices sums up."""
    page = BeautifulSoup(atlas_table.table(list(found.values())).data, "html.parser")
    rows = page.select("table.atlas tbody tr")
    assert len(rows) == len(found)
    assert {row["data-machine"] for row in rows} == {"box-4c"}
    assert [option.get_text() for option in page.select("select[name=type] option")] == ["all", "Q8_0", "unknown"]
    planned = next(row for row in rows if "planned" in row.get_text())
    assert abs(float(planned["data-memory"])) < 1e-6
    slow = next(row for row in rows if "disturbed on purpose" in row.get_text())
    assert not slow.has_attr("data-decode")
    assert [cell["data-head"] for cell in planned.select("td")] == list(atlas_table.HEADINGS)
    assert page.select_one("form")["hidden"] == ""
    fold = page.select_one("details.atlas-fold:not([open])")
    assert fold.summary.get_text() == f"All {len(found)} measurements beside their predictions"
    assert fold.select("table.atlas tbody tr") == rows


def test_an_error_that_rounds_to_nothing_has_no_sign():
    """It is shown as 0 %, not as +0 % or -0 %."""
    shown = [atlas_table._signed(error, 1) for error in (0.012, -0.5, -1e-6, 1e-6)]
    assert shown == ["+1.2 %", "-50.0 %", "0.0 %", "0.0 %"]


@pytest.mark.engine
def test_what_a_record_says_cannot_become_markup(found):
    """Anybody may contribute one."""
    entry = replace(by_record(found, "planned"), model="<script>alert(1)</script>", machine='"><b>')
    html = atlas_table.table([entry]).data
    assert "<script>" not in html
    assert "<b>" not in html


@pytest.mark.engine
def test_errors_are_grouped_by_the_requested_field(found):
    """A row for each value; what has no error says none."""
    shown = atlas_table.errors(list(found.values()), "type").data.splitlines()
    assert shown[2].startswith("| Q8_0 | 0.0 % (3) | ")
    assert shown[3] == "| unknown | none | none | none |"


@pytest.mark.engine
def test_the_figure_says_in_words_how_far_off_predictions_were(found):
    """Points on the host are circles; the text alternative has the medians."""
    rates = atlas_rates(list(found.values()), "badge")
    assert "decode 3 points" in rates.layout.meta["alt"]
    assert [trace.name for trace in rates.data] == ["equal", "prefill, host", "decode, host"]
    assert "none" in atlas_rates([]).layout.meta["alt"]


@pytest.mark.engine
def test_files_and_stages_are_tables(folder, monkeypatch):
    """One line a file, one line a stage."""
    rows = BeautifulSoup(atlas_table.files(entries.record_files(folder)).data, "html.parser").select("tbody tr")
    assert ["box-4c", "types", "sweep", "2", "2026-01-31"] in [[cell.get_text() for cell in row] for row in rows]
    monkeypatch.setattr(atlas_table, "this_machine", lambda: CPU_ONLY)
    assert "| `llama-3.2-1b-kv-types` |" in atlas_table.stages().data
