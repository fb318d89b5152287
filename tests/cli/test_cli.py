"""The command line: fields for programs, a table for people, exit statuses for scripts."""

import io
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from fakes import CARD, WITH_GPU, ScriptedEngine, made_plan, made_run, scripted_pass
from marks import needs_rpc
from rich.console import Console

from inferlab import cli
from inferlab.cli.measure import print_table
from inferlab.cli.options import settings_from
from inferlab.cli.plan import plan_table
from inferlab.engine import client, dry_run
from inferlab.engine.process import WorkerProcess
from inferlab.errors import EngineCrashed
from inferlab.model.find import tiny_imatrix, tiny_model
from inferlab.model.imatrix import read_imatrix
from inferlab.prediction.fit import Fit
from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.memory.verified import tried_text
from inferlab.prediction.search import SettingThatFits
from inferlab.units import GIB, MIB

REQUEST = ["measure", str(tiny_model()), "--n-prompt", "8", "--n-gen", "3", "--repeats", "2"]
INFERLAB = [sys.executable, "-m", "inferlab.cli"]


@pytest.fixture
def scripted():
    """A scripted engine on a machine with a GPU."""
    return ScriptedEngine(machine=WITH_GPU)


def printed_json(capsys, command, engine=None):
    """The JSON that a command prints."""
    assert cli.main([*command, "--json"], engine) == 0
    return json.loads(capsys.readouterr().out)


def test_json_uses_llama_benchs_names_where_it_has_them(scripted, capsys):
    """A script written for llama-bench finds its fields."""
    fields = printed_json(capsys, REQUEST, scripted)
    assert (fields["n_prompt"], fields["n_gen"], fields["n_batch"], fields["n_ubatch"]) == (8, 3, 2048, 512)
    assert (fields["type_k"], fields["type_v"], fields["no_kv_offload"], fields["n_threads"]) == (
        "f16",
        "f16",
        False,
        4,
    )
    assert (fields["cpu_info"], fields["gpu_info"], fields["backends"]) == ("Example CPU", "Example GPU", "CPU,CUDA")
    assert (fields["model_filename"], fields["model_n_params"] > 5e6) == ("tiny.gguf", True)


def test_json_has_the_numbers_of_the_run(scripted, capsys):
    """The four measured numbers under the objects' own names, and the raw timestamps they come from."""
    fields, one_pass = printed_json(capsys, REQUEST, scripted), scripted_pass()
    assert fields["ttft_seconds"] == one_pass.token_seconds[0]
    assert fields["prefill_tokens_per_second"] == pytest.approx(8 / one_pass.prefill_seconds)
    assert fields["decode_tokens_per_second"] == pytest.approx(2 / sum(one_pass.decode_seconds))
    assert fields["inter_token_seconds"] == pytest.approx(0.1)
    assert [tuple(p["token_seconds"]) for p in fields["passes"]] == [one_pass.token_seconds] * 2
    assert fields["buffers"][0] == {"device": "CUDA0", "kind": "weights", "n_bytes": 10 * 2**20}
    assert fields["load_seconds"] == 1.25


def test_options_are_settings(scripted, capsys):
    """Every option reaches the engine under the same name; names of devices have commas, and `none` is no device."""
    numbers = ["--n-ctx", "512", "--n-threads", "3", "--n-gpu-layers", "5"]
    others = ["--type-k=q8_0", "--type-v=q4_0", "--flash-attn=on", "--no-offload-kqv", "--no-repack"]
    printed_json(capsys, [*REQUEST, *numbers, *others], scripted)
    asked = scripted.opened[0]
    assert (asked.n_ctx, asked.n_threads, asked.n_gpu_layers) == (512, 3, 5)
    assert (asked.type_k, asked.type_v, asked.flash_attn, asked.offload_kqv) == ("q8_0", "q4_0", "on", False)
    assert (asked.use_extra_bufts, asked.no_host) == (False, False)
    printed_json(capsys, [*REQUEST, "--devices", "CUDA0,CUDA1", "--tensor-split", "3,1"], scripted)
    printed_json(capsys, [*REQUEST, "--devices", "none"], scripted)
    shared = [(asked.devices, asked.tensor_split) for asked in scripted.opened[1:]]
    assert shared == [(("CUDA0", "CUDA1"), (3.0, 1.0)), ((), None)]


def test_llama_cpps_own_flags_are_taken():
    """`inferlab explain` advises them, and people have them in their lines: each means what it means there."""
    theirs = (
        "-c 512 -ngl all -ncmoe 3 -b 1024 -ub 256 -np 2 -fa 1 -ctk q8_0 -ctv q4_0 -ts 3/1 -sm none -mg 1 -nkvo -nr "
        "-kvu -dev CUDA0 -ot exps=CPU"
    )
    ours = (
        "--n-ctx 512 --n-gpu-layers -1 --n-cpu-moe 3 --n-batch 1024 --n-ubatch 256 --n-seq-max 2 --flash-attn on "
        "--type-k q8_0 --type-v q4_0 --tensor-split 3,1 --split-mode none --main-gpu 1 --no-offload-kqv --no-repack "
        "--kv-unified --devices CUDA0 --override-tensor exps=CPU"
    )
    long = (
        "--ctx-size 512 --gpu-layers -1 --n-cpu-moe 3 --batch-size 1024 --ubatch-size 256 --parallel 2 --flash-attn on "
        "--cache-type-k q8_0 --cache-type-v q4_0 --tensor-split 3,1 --split-mode none --main-gpu 1 --no-kv-offload "
        "--no-repack --kv-unified --device CUDA0 --override-tensor exps=CPU"
    )
    asked = [cli.parser("plan").parse_args(["plan", "tiny", *line.split()]) for line in (theirs, ours, long)]
    settings = [settings_from(options) for options in asked]
    assert settings[0] == settings[1] == settings[2]
    assert settings[0].n_ubatch == 256
    for command in ("measure", "plan"):
        assert cli.parser(command).parse_args([command, "tiny", "-t", "3", "-c512"]).n_threads == 3


@pytest.mark.parametrize("command", ["measure", "plan"])
@pytest.mark.parametrize("flag", ["-m", "-s", "-f", "-d", "-nc"])
def test_the_beginning_of_a_flag_is_not_the_flag(capsys, command, flag):
    """llama.cpp has other flags of these names, so `-m` must not be `-mg`."""
    with pytest.raises(SystemExit):
        cli.parser(command).parse_args([command, "tiny", flag, "1"])
    assert f"unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--dev", "--s", "--n-c"])
def test_the_beginning_of_an_option_is_not_the_option(capsys, option):
    """It may be that of two, today or with the next option."""
    with pytest.raises(SystemExit):
        cli.parser("plan").parse_args(["plan", "tiny", option, "1"])
    assert f"unrecognized arguments: {option}" in capsys.readouterr().err


@pytest.mark.engine
@needs_rpc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a loopback device's memory")
def test_a_limit_lasts_as_long_as_the_measurement(capsys):
    """It is in the fields, and what does not fit into it is an error of llama.cpp's."""
    limited = [*REQUEST, "--loopback", "--limit-vram", "256MiB"]
    assert printed_json(capsys, limited)["limits"] == {"RPC0": 256 * 2**20}
    assert cli.main([*limited, "--n-ctx", "400000"]) == 1
    assert "EngineRefused: llama.cpp did not make a context" in capsys.readouterr().err


def test_the_table_is_for_people(scripted, capsys):
    """Without --json the numbers come with units and the badge says who measured."""
    assert cli.main(REQUEST, scripted) == 0
    table = capsys.readouterr().out
    for text in ("time to first token", "500 ms", "20 tokens/s", "12.5 tokens/s", "10.00 MiB", "Example CPU"):
        assert text in table


def test_an_unsettled_warm_up_is_reported(capsys):
    """Whoever measures beside a busy program learns it from the output."""
    passes = [scripted_pass(0.05, (0.1,)), scripted_pass(0.05, (0.2,))] * 4
    assert cli.main(REQUEST, ScriptedEngine(passes)) == 0
    assert "never settled" in capsys.readouterr().out


def test_a_models_name_is_never_markup(capsys):
    """Brackets in a file's name are printed, not obeyed."""
    print_table(made_run(model=replace(CARD, name="[/red] [bold]evil")))
    assert "[/red] [bold]evil" in capsys.readouterr().out


PLANS = [["tiny"], ["tiny", "--vram", "8GiB"], ["mistral-7b", "--type=Q8_0", "--vram=1GiB"]]


@pytest.mark.engine
@pytest.mark.parametrize("arguments", PLANS)
def test_a_plan_has_one_shape(scripted, capsys, arguments):
    """Model, method, four kinds of bytes on each device, the verdict and what it rests on: these names, no others."""
    fields = printed_json(capsys, ["plan", *arguments], scripted)
    names = "model method devices fits settings compute_range rooms reserve_bytes margin_bytes ram notes answers steps"
    assert list(fields) == [*names.split(), "expected"]
    assert list(fields["model"]) == ["name", "n_params", "tensor_bytes"]
    assert fields["method"] in ("closed form", "oracle", "bound")
    assert fields["fits"] in ("yes", "no", "unsure")
    assert "host" in fields["devices"]
    for held in fields["devices"].values():
        assert list(held) == ["weights_bytes", "kv_cache_bytes", "compute_bytes", "output_bytes"]
        assert all(n is None or (isinstance(n, int) and n >= 0) for n in held.values())


@pytest.mark.engine
def test_options_of_a_plan_are_settings(scripted, capsys):
    """More context is more cache, a smaller type less of it, and the type of a known name its bytes."""

    def planned(*options):
        return printed_json(capsys, ["plan", "mistral-7b", *options], scripted)

    def cache(*options):
        return sum(held["kv_cache_bytes"] for held in planned(*options)["devices"].values())

    assert cache("--n-ctx", "8192") == 2 * cache() == 2**30
    assert cache("--type-k", "q8_0", "--type-v", "q8_0") == cache() * 34 // 64
    assert planned("--type", "F16")["model"]["tensor_bytes"] > 14e9


@pytest.mark.engine
def test_a_plan_for_people(scripted, capsys):
    """A table, a bar for each device, the verdict with what it is compared with, and what would fit."""
    assert cli.main(["plan", "mistral-7b", "--vram", "24GiB", "--reserve", "650MiB"], scripted) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Mistral 7B v0.2" in printed
    for text in ("█", "▓", "fits: yes", "Compared with gpu0 24.00 GiB free, of which 650.00 MiB stay", "Method: "):
        assert text in printed
    for question in ("largest n_ctx", "most layers", "KV cache type"):
        assert question in printed


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize("place", [["--devices", "none"], ["--vram", "24GiB"]])
def test_a_plan_in_closed_form_is_verified_after_the_answer(capsys, place):
    """The last line says that one simulation agrees, for this machine and for a card that is not here."""
    assert cli.main(["plan", "llama-3.2-1b", *place]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Verified by llama.cpp's own dry run")


@pytest.mark.engine
def test_a_plan_for_this_machine_starts_one_worker(monkeypatch, capsys):
    """The process that told the devices also simulates."""
    started = []
    monkeypatch.setattr(client, "WorkerProcess", lambda *how: started.append(how) or WorkerProcess(*how))
    monkeypatch.setattr(dry_run, "_ENGINES", {})
    monkeypatch.setattr(dry_run, "_SIMULATIONS", {})
    assert cli.main(["plan", "gemma-3-1b", "--devices", "none"], client.LlamaEngine()) == 0
    assert "Verified by llama.cpp's own dry run" in capsys.readouterr().out
    assert len(started) == 1


def test_a_plan_in_closed_form_that_nobody_verifies_says_how_often_such_plans_were_exact(scripted, capsys):
    """Where llama.cpp is not asked, the last line has the count of tries."""
    assert cli.main(["plan", "llama-3.2-1b", "--vram", "24GiB", "--no-simulation"], scripted) == 0
    assert capsys.readouterr().out.splitlines()[-1] == tried_text()


def test_a_plan_without_simulation_says_so(scripted, capsys):
    """A cache without a formula for its buffer keeps its exact bytes; the rest is unknown, in the table and in JSON."""
    asked = ["plan", "tiny", "--type-k", "f32", "--type-v", "f32", "--vram", "8GiB,8GiB", "--no-simulation"]
    fields = printed_json(capsys, asked, scripted)
    assert (fields["method"], fields["fits"], list(fields["rooms"])) == ("partial", "unsure", ["gpu0", "gpu1", "host"])
    assert fields["devices"]["gpu1"]["compute_bytes"] is None
    assert cli.main(asked, scripted) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "GiB to spare without the compute buffer" in printed
    assert "was not asked" in printed


@pytest.mark.engine
def test_one_memory_for_host_and_gpu_is_one_bar(scripted, capsys):
    """The devices have rows of their own, the room belongs to their sum; another backend gets its note."""
    assert cli.main(["plan", "mistral-7b", "--unified", "16GiB", "--backend", "metal"], scripted) == 0
    printed = capsys.readouterr().out
    assert " 12.0 GiB" in next(line for line in printed.splitlines() if line.strip().startswith("shared  "))
    assert [line.split()[0] for line in printed.splitlines() if "█" in line and "weights" not in line] == ["shared"]
    assert "Compared with shared 16.00 GiB free" in printed
    assert "another backend's can be" in " ".join(printed.split())


BOUND = made_plan(
    method="bound",
    compute_range={"host": (0, 140 * MIB), "gpu0": (0, 881 * MIB - 1)},
    devices={"host": DeviceBytes(1023 * MIB, 288 * MIB, None, 128_000), "gpu0": DeviceBytes(5 * GIB, GIB, None, 0)},
)
OPEN = SettingThatFits("", None, None, "")


def rows_of(plan, width=80) -> list[str]:
    """The rows of a plan's table as they are printed at a width, with one space for several."""
    console = Console(width=width, file=io.StringIO())
    console.print(plan_table(Fit(plan, {"gpu0": 24 * GIB}, GIB, OPEN, OPEN, OPEN)))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_table_of_bounds_is_readable_at_80_columns():
    """No cell is cut, and a total is the most of all parts of a device; exact bytes have no bound."""
    rows = rows_of(BOUND)
    assert "host 1023 MiB 288 MiB ≤ 140 MiB 125 KiB ≤ 1.42 GiB unknown" in rows
    assert "gpu0 5.00 GiB 1.00 GiB ≤ 881 MiB 0 B ≤ 6.87 GiB 23.0 GiB" in rows

    assert "gpu0 10.0 MiB 0 B 512 KiB 0 B 10.5 MiB 23.0 GiB" in rows_of(made_plan())
    assert "≤" not in "".join(rows_of(made_plan()))


@pytest.mark.parametrize(
    "words",
    [
        "",
        "masure",
        "measure --n-prompt many",
        "measure --type-k q4",
        "measure --no-such-option",
        "plan",
        "plan tiny --vram 8",
        "measure --limit-vram 8",
        "plan tiny --tensor-split a",
        "plan mistral-7b --type Q9",
        "plan mistral-7b --unified 16GiB --vram 8GiB",
    ],
)
def test_unusable_arguments_are_status_2(words, capsys):
    """The usage goes to standard error, nothing to standard output."""
    with pytest.raises(SystemExit) as left:
        cli.main(words.split())
    printed = capsys.readouterr()
    assert (left.value.code, printed.out, "usage:" in printed.err) == (2, "", True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("measure no-such.gguf", "ModelNotFound: no-such.gguf does not exist"),
        ("quantize tiny Q4_K_N", "InvalidSettings: llama.cpp has no quantization 'Q4_K_N'. Did you mean"),
        ("fidelity tiny --n-ctx 4", "InvalidSettings: n_ctx=4 leaves nothing to score"),
        (f"measure {__file__}", "NotGGUF: "),
        ("measure tiny --n-gen 0", "InvalidSettings: n_gen=0"),
        ("measure tiny --n-ctx 10", "InvalidSettings: n_ctx=10"),
        ("measure tiny --type-v q8_0 --flash-attn off", "InvalidSettings: type_v"),
        ("measure tiny --loopback 0", "InvalidSettings: gigabytes_per_second=0"),
        ("plan no-such.gguf", "ModelNotFound: no-such.gguf does not exist"),
        ("plan tiny --type Q8_0", "InvalidSettings: type='Q8_0' is for a known model"),
        ("plan mistral-7b-v3", "Did you mean mistral-7b-v0.3 or mistral-7b"),
        ("shape gpt-5 -o none.gguf", "ModelNotFound: There is no known model 'gpt-5'. Did you mean gpt-oss-20b"),
    ],
)
def test_an_error_of_ours_is_status_1_and_one_sentence(scripted, words, error, capsys):
    """No traceback: what happened, what was found, what to do, on standard error."""
    assert cli.main([*words.split(), "--json"], scripted) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("inferlab: ")
    assert error in printed.err
    assert "Traceback" not in printed.err


def test_a_crash_of_the_engine_is_status_1(capsys):
    """So is a worker that died."""
    assert cli.main(REQUEST, ScriptedEngine(fails=EngineCrashed("died", "last line"))) == 1
    assert "EngineCrashed: died\nllama.cpp's last lines:\nlast line" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_ends_is_no_crash(more):
    """As `head` does: status 1, and no word of it."""
    command = [*INFERLAB, "plan", "mistral-7b", "--card", "rtx-4060", "--no-simulation", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as planning:
        planning.stdout.close()
        assert planning.stderr.read() == ""
    assert planning.returncode == 1


@pytest.mark.parametrize(("words", "n_modules"), [(["plan", "--help"], 1), (["--help"], 10)])
def test_a_command_loads_no_other_commands_module(words, n_modules):
    """`inferlab plan` answers sooner; the help of all commands has them all."""
    count = "print(sum(f'inferlab.cli.{module}' in sys.modules for module in set(COMMANDS.values())))"
    code = f"import sys; from inferlab.cli import COMMANDS, parser; parser({words[0]!r}); {count}"
    assert int(subprocess.check_output([sys.executable, "-c", code])) == n_modules


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_asking_is_no_error(option, capsys):
    """--version and --help end with status 0."""
    with pytest.raises(SystemExit) as left:
        cli.main([option])
    assert left.value.code == 0
    assert "inferlab" in capsys.readouterr().out


@pytest.mark.engine
def test_a_real_measurement():
    """`inferlab measure --json` prints one JSON object and nothing else, from a real prefill and decode."""
    command = [*INFERLAB, "measure", "tiny", "--n-prompt", "32", "--n-gen", "8", "--repeats", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    fields = json.loads(done.stdout)
    assert min(fields[name] for name in ("inter_token_seconds", "load_seconds")) > 0
    assert fields["ttft_seconds"] == pytest.approx(sum(p["token_seconds"][0] for p in fields["passes"]) / 2)
    assert [len(p["token_seconds"]) for p in fields["passes"]] == [8, 8]
    assert {b["kind"] for b in fields["buffers"]} == {"weights", "kv_cache", "compute", "output"}


@pytest.mark.engine
def test_a_matrix_and_single_types_reach_the_quantizer(tmp_path, capsys):
    """`--imatrix` makes what needs one, `--tensor-type` overrules the mix."""
    made = str(tmp_path / "made.gguf")
    words = ["--imatrix", str(tiny_imatrix()), "--tensor-type", "ffn_down=q8_0", "-o", made]
    types = printed_json(capsys, ["quantize", "tiny", "IQ2_XXS", *words])["tensors"]
    assert types["IQ2_XXS"] == 30
    assert types["Q8_0"] == 6


def test_a_matrix_is_made_and_described(monkeypatch, capsys):
    """The line has the file, its matrices and tokens; experts without a token are counted."""
    made = replace(read_imatrix(tiny_imatrix()), tokens={"blk.0.ffn_down_exps.weight": (5, 0)})
    monkeypatch.setattr("inferlab.cli.quantize.importance_matrix", lambda *asked: made)
    assert cli.main(["imatrix", "tiny", "mine.txt", "--chunks", "56"]) == 0
    told = capsys.readouterr().out
    assert "training.gguf: 42 matrices over 28,672 tokens" in told
    assert "1 experts saw no token" in told


@pytest.mark.engine
def test_a_model_is_quantized_and_held_against_itself(tmp_path, capsys):
    """`quantize` writes the file and says its size; `fidelity` says what was lost, in JSON or as a table."""
    made = str(tmp_path / "made.gguf")
    fields = printed_json(capsys, ["quantize", "tiny", "q4_k", "-o", made])
    assert (fields["path"], fields["tensors"]["F32"], 5 < fields["bits_per_weight"] < 5.2) == (made, 13, True)
    fields = printed_json(capsys, ["fidelity", made, "tiny", "--n-chunks", "1", "--type-k", "q8_0"])
    assert (fields["n_tokens"], fields["type_k"], fields["kl_divergence"][0] > 0.001) == (255, "q8_0", True)
    assert cli.main(["quantize", made, "Q8_0", "--requantize", "-o", made + "2"]) == 0
    assert cli.main(["fidelity", "tiny", "--n-chunks", "1"]) == 0
    table = capsys.readouterr().out
    for text in ("made.gguf2: ", "bits per weight", "tiny.gguf beside tiny.gguf", "0.000000", "255 tokens scored"):
        assert text in table


@pytest.mark.engine
def test_ctrl_c_ends_the_measurement_and_its_worker():
    """SIGINT in the middle of a measurement gives status 130, one sentence, and leaves no process."""
    command = [*INFERLAB, "measure", "tiny", "--n-prompt", "8", "--n-gen", "4000", "--repeats", "99"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as measuring:
        worker = _busy_child(measuring.pid)
        measuring.send_signal(signal.SIGINT)
        try:
            out, err = measuring.communicate(timeout=60)
        finally:
            measuring.kill()
    assert (measuring.returncode, out) == (130, "")
    assert err == "inferlab: interrupted; the engine was stopped.\n"
    assert not worker.is_running()


def _busy_child(pid):
    """The process's child, once it has computed for a while."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for child in psutil.Process(pid).children():
            if child.cpu_times().user > 1.5:
                return child
        time.sleep(0.05)
    raise TimeoutError("no worker began to compute")


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize(("option", "asked"), [(["--loopback"], []), (["--loopback", "0.2"], [0.2])])
def test_loopback_measures_on_a_second_device(option, asked, capsys):
    """`--loopback` puts the layers on a second device of this machine, a number over a link of that rate."""
    arguments = ["measure", "tiny", "--n-prompt", "8", "--n-gen", "3", "--repeats", "2", *option]
    assert cli.main([*arguments, "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (fields["gpu_info"], fields["n_threads"]) == ("loopback device", 1)
    assert [link["gigabytes_per_second"] for link in fields["links"]] == asked
    assert cli.main(arguments) == 0
    assert "weights on loopback device" in capsys.readouterr().out
