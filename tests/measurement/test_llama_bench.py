"""llama-bench's JSON: runs written as its rows, its rows read as runs, and rows that no run can say.

data/llama-bench.jsonl is what llama-bench of the pinned llama.cpp printed for the embedded model,
with the folder taken off the model's name.
"""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CPU_ONLY, WITH_GPU, made_run, scripted_pass

import inferlab as lab
from inferlab import cli
from inferlab.errors import RecordError
from inferlab.measurement.llama_bench import (
    DEFAULTS,
    FIELDS,
    from_rows,
    import_llama_bench,
    to_rows,
)
from inferlab.settings import Settings

PRINTED = Path(__file__).parents[1] / "data" / "llama-bench.jsonl"

# What scripts/compare-llama-bench.py joins two builds on, and stops without, is every other field.
NOT_COMPARED = {
    "build_number",
    "model_size",
    "model_n_params",
    "devices",
    "lazy_mode",
    "no_op_offload",
    "no_host",
    "repack",
    "avg_ns",
    "stddev_ns",
    "stddev_ts",
    "samples_ns",
    "samples_ts",
}
COMPARED = [name for name in FIELDS if name not in NOT_COMPARED]


@pytest.fixture
def printed():
    """The pp row and the tg row that llama-bench itself printed."""
    return [json.loads(line) for line in PRINTED.read_text(encoding="utf-8").splitlines()]


# --- export -----------------------------------------------------------------------------------


def test_the_fields_are_llama_benchs_own(printed):
    """Names, order and JSON types are those that llama-bench printed, in both rows."""
    for ours, theirs in zip(to_rows(made_run()), printed, strict=True):
        assert list(ours) == list(theirs) == list(FIELDS)
        assert {name: type(value) for name, value in ours.items()} == {n: type(v) for n, v in theirs.items()}


def test_what_settings_cannot_say_is_llama_benchs_default(printed):
    """Fields without a word in Settings carry the values that llama-bench prints for its own defaults."""
    for row in (*printed, *to_rows(made_run())):
        assert {name: row[name] for name in DEFAULTS} == DEFAULTS


def test_a_run_is_a_pp_row_and_a_tg_row():
    """Prefill stands alone; the decoded tokens, one fewer than the generated, stand at the prompt's depth."""
    pp, tg = to_rows(made_run(n_prompt=8, n_gen=3))
    assert (pp["n_prompt"], pp["n_gen"], pp["n_depth"]) == (8, 0, 0)
    assert (tg["n_prompt"], tg["n_gen"], tg["n_depth"]) == (0, 2, 8)


def test_samples_are_engine_time():
    """Nanoseconds of llama_decode and llama_synchronize, for each pass; rates are tokens over them."""
    passes = [scripted_pass(prefill=p, gaps=(gap, 0.1), share=0.5) for p, gap in ((0.4, 0.1), (0.5, 0.3))]
    pp, tg = to_rows(made_run(n_prompt=8, n_gen=3, passes=tuple(passes)))
    assert pp["samples_ns"] == [400_000_000, 500_000_000]
    assert tg["samples_ns"] == [100_000_000, 200_000_000]
    assert pp["samples_ts"] == pytest.approx([20, 16])
    assert tg["samples_ts"] == pytest.approx([20, 10])


def test_the_statistics_are_llama_benchs(printed):
    """Recomputed from the samples it printed, mean and sample deviation equal what llama-bench printed."""
    again = [row for run in from_rows(printed) for row in to_rows(run)]
    for ours, theirs in zip(again, printed, strict=True):
        assert ours["avg_ns"] == pytest.approx(theirs["avg_ns"], abs=1)
        assert ours["stddev_ns"] == pytest.approx(theirs["stddev_ns"], rel=1e-3)
        assert ours["avg_ts"] == pytest.approx(theirs["avg_ts"], rel=1e-6)
        assert ours["stddev_ts"] == pytest.approx(theirs["stddev_ts"], rel=1e-4)
        assert ours["samples_ts"] == pytest.approx(theirs["samples_ts"], rel=1e-4)


def test_a_run_of_one_pass_or_one_token_has_rows():
    """The deviation of one pass is 0, as llama-bench says; one token came out of the prefill and has no tg row."""
    for row in to_rows(made_run(passes=(scripted_pass(),))):
        assert (row["stddev_ns"], row["stddev_ts"]) == (0, 0.0)
    assert [row["n_gen"] for row in to_rows(made_run(n_gen=1, passes=(scripted_pass(gaps=()),)))] == [0]


def test_a_setting_is_said_in_llama_benchs_way():
    """Switches turn over, names change, and each row has the threads of its own phase."""
    settings = Settings(
        n_threads=2,
        n_threads_batch=4,
        offload_kqv=False,
        op_offload=False,
        flash_attn="off",
        type_k="q8_0",
        load_mode="mmap_mlock",
        devices=("CUDA0", "CUDA1"),
        tensor_split=(3, 1),
        n_gpu_layers=7,
    )
    pp, tg = to_rows(made_run(settings=settings))
    said = {name: pp[name] for name in ("no_kv_offload", "no_op_offload", "flash_attn", "type_k", "load_mode")}
    assert said == {
        "no_kv_offload": True,
        "no_op_offload": 1,
        "flash_attn": 0,
        "type_k": "q8_0",
        "load_mode": "mmap+mlock",
    }
    assert (pp["devices"], pp["tensor_split"], pp["n_gpu_layers"]) == ("CUDA0/CUDA1", "3.00/1.00", 7)
    assert (pp["n_threads"], tg["n_threads"]) == (4, 2)


def test_the_build_is_named_as_far_as_it_is_known():
    """llama.cpp's commit, else the binding's version, else llama.cpp's own, else unknown."""

    def build(**known):
        nothing = replace(CPU_ONLY, llama_cpp=None, llama_cpp_python=None)
        return to_rows(made_run(machine=replace(nothing, **known)))[0]["build_commit"]

    assert build(llama_cpp_commit="0c1e570-dirty", llama_cpp_python="0.3.36") == "0c1e570"
    assert build(llama_cpp_python="0.3.36", llama_cpp="0.5.0") == "0.3.36"
    assert build(llama_cpp="0.5.0") == "0.5.0"
    assert build() == "unknown"


def test_devices_are_told_as_llama_bench_tells_them():
    """The CPU is a backend only where there is no other."""
    row = to_rows(made_run(machine=WITH_GPU))[0]
    assert (row["cpu_info"], row["gpu_info"], row["backends"]) == ("Example CPU", "Example GPU", "CUDA")
    assert to_rows(made_run())[0]["backends"] == "CPU"


def test_two_builds_can_be_joined_as_llama_cpps_script_does():
    """Two runs of different builds, put into SQLite, meet on every property that its comparison joins on."""
    runs = [made_run(machine=replace(CPU_ONLY, llama_cpp_commit=commit)) for commit in ("aaaaaaa", "bbbbbbb")]
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE llama_bench ({', '.join(COMPARED)})")
    for row in (row for run in runs for row in to_rows(run)):
        values = [row[name] for name in COMPARED]
        database.execute(f"INSERT INTO llama_bench VALUES ({', '.join('?' * len(values))})", values)
    same = [f"old.{name} = new.{name}" for name in COMPARED if name not in ("build_commit", "test_time", "avg_ts")]
    builds = "old.build_commit = 'aaaaaaa' AND new.build_commit = 'bbbbbbb'"
    joined = database.execute(
        f"SELECT old.n_prompt, old.n_gen, new.avg_ts / old.avg_ts FROM llama_bench old JOIN llama_bench new "
        f"ON {' AND '.join(same)} AND {builds}"
    ).fetchall()
    assert sorted(joined) == [(0, 2, 1.0), (8, 0, 1.0)]


def test_the_command_line_prints_the_rows(monkeypatch, capsys):
    """`inferlab measure --llama-bench` prints an array that llama.cpp's script reads from a file."""
    monkeypatch.setattr("inferlab.cli.measure.measure", lambda *_, **__: made_run())
    assert cli.main(["measure", "--llama-bench"]) == 0
    assert json.loads(capsys.readouterr().out) == to_rows(made_run())


# --- import -----------------------------------------------------------------------------------


def test_what_llama_bench_printed_becomes_a_run(tmp_path):
    """Its pp row and the tg row at that depth are one run, with the medians of its samples, which can be stored."""
    (run,) = import_llama_bench(PRINTED)
    assert (run.n_prompt, run.n_gen, len(run.passes)) == (512, 128, 5)
    assert run.prefill_tokens_per_second == pytest.approx(11_515.3, rel=1e-5)
    assert run.decode_tokens_per_second == pytest.approx(871.086, rel=1e-5)
    assert run.model.description == "llama ?B F16"
    assert run.badge.startswith("measured with llama-bench: ")
    assert run.badge.endswith("llama.cpp 0c1e570")
    assert lab.load(lab.save(run, tmp_path / "run.json")) == run


def test_what_llama_bench_does_not_record_stays_unknown():
    """No TTFT, no token times, no load time, no warm-up and no memory are invented."""
    (run,) = import_llama_bench(PRINTED)
    unknown = run.ttft_seconds, run.inter_token_seconds, run.load_seconds, run.settled, run.machine.ram_bytes, run.text
    assert unknown == (None,) * 6
    assert {one.decode_seconds for one in run.passes} == {()}


def test_an_exported_run_comes_back():
    """Export, import and export again give the same rows."""
    settings = Settings(
        n_ctx=256,
        n_threads=3,
        n_threads_batch=3,
        flash_attn="on",
        offload_kqv=False,
        load_mode="direct_io",
        devices=("CUDA0",),
        tensor_split=(1, 0),
        type_v="q8_0",
    )
    rows = to_rows(made_run(settings=settings, machine=WITH_GPU))
    (run,) = from_rows(rows)
    assert to_rows(run) == rows


def test_kernels_of_the_processor_are_exported_and_imported():
    """llama-bench calls them repack and no_host; a row without them means its defaults."""
    (run,) = from_rows(to_rows(made_run(settings=Settings(n_ctx=256, use_extra_bufts=False, no_host=True))))
    assert (run.settings.use_extra_bufts, run.settings.no_host) == (False, True)
    assert [(row["repack"], row["no_host"]) for row in to_rows(run)] == [(False, True)] * 2


def test_rows_of_other_requests_stay_apart(printed):
    """A tg row joins only a pp row of its depth and its settings; alone it is a run without a prefill."""
    pp, tg = printed
    for other in ({**tg, "n_depth": 0}, {**tg, "n_threads": 1}):
        alone, decode = from_rows([pp, other])
        assert (alone.n_gen, alone.decode_tokens_per_second) == (1, None)
        assert decode.prefill_tokens_per_second is None
        assert decode.decode_tokens_per_second == pytest.approx(871.086, rel=1e-5)


def test_folders_of_the_measurer_are_left_behind(printed):
    """Only the file's name is kept of a path, whichever way its slashes lean."""
    for path in ("/home/somebody/models/tiny.gguf", r"C:\Users\somebody\tiny.gguf"):
        assert from_rows([{**printed[0], "model_filename": path}])[0].model.file == "tiny.gguf"


def test_rows_of_an_older_build_are_read(printed):
    """Before load modes there was use_mmap, before depths there was none, and flash attention was a boolean."""
    new = {"load_mode", "lazy_mode", "n_depth", "devices", "repack"}
    old = {name: value for name, value in printed[0].items() if name not in new}
    (run,) = from_rows([old | {"use_mmap": False, "flash_attn": True, "n_gpu_layers": 99}])
    assert (run.settings.load_mode, run.settings.flash_attn, run.settings.n_gpu_layers) == ("none", "on", 99)


REFUSED = {
    "n_gen=16": ({"n_gen": 16}, "pp512+tg16 is one time for both phases"),
    "n_depth=512": ({"n_depth": 512}, "continues a prompt"),
    "nothing": ({"n_prompt": 0}, "is no workload"),
    "negative": ({"n_prompt": -1, "n_gen": 2}, "is no workload"),
    "no samples": ({"samples_ns": []}, "are not the nanoseconds"),
    "zero samples": ({"samples_ns": [0, 5]}, "are not the nanoseconds"),
    "experts on the CPU": ({"n_cpu_moe": 4}, "n_cpu_moe=4"),
    "tensors moved": ({"tensor_buft_overrides": "exps=CPU"}, "tensor_buft_overrides='exps=CPU'"),
    "embeddings": ({"embeddings": True}, "embeddings=True"),
    "text as number": ({"n_prompt": "512"}, "n_prompt is '512', not int"),
    "unknown type": ({"type_k": "q3_k"}, "its settings are not llama.cpp's"),
    "unknown flash attention": ({"flash_attn": 7}, "its settings are not llama.cpp's"),
    "unknown load mode": ({"load_mode": "teleport"}, "its settings are not llama.cpp's"),
    "bad shares": ({"tensor_split": "a/b"}, "its settings are not llama.cpp's"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_no_run_can_say_is_refused(name, printed):
    """The message names the row and the reason; nothing is imported in its place."""
    changes, reason = REFUSED[name]
    with pytest.raises(RecordError, match=r"^Row 2 cannot be imported: ") as refusal:
        from_rows([printed[1], printed[0] | changes])
    assert reason in str(refusal.value)


def test_prefills_at_a_depth_can_be_left_out(printed, tmp_path):
    """`llama-bench -p 512 -d 512` writes one, which no run can say; every other row is held to the rules."""
    deep = {**printed[0], "n_depth": 512}
    path = tmp_path / "bench.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (deep, *printed)))
    assert import_llama_bench(path, leave_out=True) == from_rows(printed)
    for name in ("n_gen=16", "negative", "no samples", "text as number", "embeddings"):
        with pytest.raises(RecordError, match=r"^Row 1 cannot be imported: "):
            from_rows([deep | REFUSED[name][0]], leave_out=True)


def test_a_row_without_samples_is_refused(printed):
    """CSV and SQL output, turned into JSON, lack the repetitions."""
    without = {name: value for name, value in printed[0].items() if not name.startswith("samples")}
    with pytest.raises(RecordError, match="it lacks samples_ns"):
        from_rows([without])
    with pytest.raises(RecordError, match="it is list, not an object"):
        from_rows([[]])


@pytest.mark.parametrize("text", ["| model | t/s |\n| --- | --- |", "[\n  {", "", "[]", "[" * 100_000])
def test_a_file_that_is_not_llama_benchs_json_is_refused(text, tmp_path):
    """Tables, unfinished output, an empty file or none: each is refused with what to do."""
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"-o json|Run it again"):
        import_llama_bench(path)
    with pytest.raises(RecordError, match=r"nowhere\.json"):
        import_llama_bench(tmp_path / "nowhere.json")
