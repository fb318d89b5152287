"""llama.cpp's --fit beside `lab.fit`: what is read of the tool's output, and what is computed of both answers."""

import pytest

import inferlab as lab
from inferlab.units import GIB, MIB
from studies.fit_params import study
from studies.fit_params.measure import fitted_settings, flags, printed_line
from studies.fit_params.study import BASE, BothAnswers, Placement, Question, ram_bytes_per_token


def test_a_printed_line_becomes_settings():
    """Context, layers, and each override as llama.cpp's -ot takes it; other settings stay as they were asked."""
    overrides = r"blk\.16\.ffn_down.*=CPU", r"blk\.17\.ffn_(up|down)_(ch|)exps=CPU"
    line = printed_line(f'warning\n-c 4096 -ngl 49 -ot "{",".join(overrides)}"\n')
    assert fitted_settings(line) == BASE.but(n_ctx=4096, n_gpu_layers=49, override_tensor=overrides)
    whole = fitted_settings("-c 19968 -ngl -1", BASE.but(type_k="q8_0"))
    assert whole == BASE.but(type_k="q8_0", n_ctx=19968, n_gpu_layers=-1)


def test_what_is_not_set_is_no_argument():
    """An unset context and all layers are left to --fit: `-c 0` or `-ngl` would forbid it to lower them."""
    assert list(flags(BASE)) == ["-ctk", "f16", "-ctv", "f16", "-dev", "RPC0"]
    line = list(flags(BASE.but(n_ctx=512, n_gpu_layers=3, override_tensor=("a=CPU", "b=CPU"))))
    assert line[-6:] == ["-c", "512", "-ngl", "3", "-ot", "a=CPU,b=CPU"]
    assert list(flags(BASE.but(n_cpu_moe=7)))[-2:] == ["-ncmoe", "7"]
    assert list(flags(BASE.but(cpu_moe=True)))[-1] == "-cmoe"


def test_unused_bytes_are_those_below_the_reserve():
    """Free memory minus the reserve minus the three kinds on the card; negative where the reserve is touched."""
    question = Question("llama-3.1-8b", "Q4_K_M", 8 * GIB)
    small, large = (Placement(BASE, n * GIB, GIB, GIB) for n in (4, 6))
    both = BothAnswers(question, "-c 1 -ngl 1", small, large)
    assert (both.unused_bytes("llama"), both.unused_bytes("lab")) == (GIB, -GIB)


def test_a_token_reads_what_lies_in_ram():
    """Nothing with all layers on the card, all matrices with none, and of experts the share that is used."""
    dense, experts = lab.shape("llama-3.1-8b", "Q4_K_M"), lab.shape("qwen3-30b-a3b", "Q4_K_M")
    assert ram_bytes_per_token(dense, BASE) == 0
    of_experts = sum(tensor.n_bytes for tensor in experts.tensors if "_exps" in tensor.name)
    assert ram_bytes_per_token(experts, BASE.but(cpu_moe=True)) == pytest.approx(of_experts * 8 / 128)
    embedding = next(tensor.n_bytes for tensor in dense.tensors if tensor.name == "token_embd.weight")
    in_ram = ram_bytes_per_token(dense, BASE.but(n_gpu_layers=0))
    assert dense.tensor_bytes - embedding - in_ram == pytest.approx(0, abs=2 * MIB)  # vectors are no matrices


def test_an_override_that_matches_nothing_reads_nothing():
    """The tool's last override may name a block that the model does not have."""
    model = lab.shape("qwen3-30b-a3b", "Q4_K_M")
    idle = BASE.but(override_tensor=(r"blk\.48\.ffn_(up|down|gate_up|gate)_(ch|)exps=CPU",))
    assert ram_bytes_per_token(model, idle) == 0


def test_there_are_twenty_different_questions():
    """Dense models and models with experts, with the context given and left open, and two types of cache."""
    questions = [one.question for one in study.recorded().answers]
    assert len(set(questions)) == 20
    assert {question.n_ctx is None for question in questions} == {True, False}
    assert {question.type_kv for question in questions} == {"f16", "q8_0"}


def test_the_printed_lines_are_the_recorded_settings():
    """The settings of each answer are those that the tool printed for its question."""
    for one in study.recorded().answers:
        assert fitted_settings(one.printed, one.question.settings) == one.by_llama.settings


def test_the_page_counts_what_its_table_shows():
    """A row for each question about a mixture; bytes that are unused lie between the two that the prose names."""
    found, (heads, rows) = study.numbers(), study.mixtures_table()
    table = [dict(zip(heads, row, strict=True)) for row in rows]
    assert found["n_questions"] == found["n_dense"] + len(table)
    moved = [row for row in table if not row["with experts in RAM"].startswith("0 ")]
    unused = [int(row["unused, MiB"].split(" / ")[0].replace(",", "")) for row in moved]
    assert (len(moved), min(unused), max(unused)) == (found["fit_moved"], found["fit_least"], found["fit_most"])
    read = [list(map(float, row["GB read from RAM"].split(" / "))) for row in moved]
    differs = [100 * abs(llama / lab - 1) for llama, lab in read]
    assert max(differs) == pytest.approx(found["fit_differs"], abs=1)
