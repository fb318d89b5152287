"""The forms in which people have results: tables of every version, SQL, several in one text, and other programs'."""

from __future__ import annotations

from time import process_time

import pytest
from bench_rows import as_bytes, on_card

from inferlab.errors import RecordError
from inferlab.results import compare, read_results
from inferlab.results.bound import bound_of, card_named, known_model_of

MODEL = "| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B |"
TABLE = f"""\
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
{MODEL} CUDA       |  99 |           pp512 |       4321.09 ± 12.30 |
{MODEL} CUDA       |  99 |           tg128 |        101.25 ± 0.40 |

build: 1a2b3c4d (7001)
"""
FOUND = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
"""


def read(text: str, name: str = "a.md"):
    return read_results(name, text.encode())


def test_the_usual_table_is_read_with_what_it_lacks():
    """Rates, deviations and rounded sizes; no samples, so no interval; the GPU where messages above name it."""
    found = read(f"Results of today:\n\n```\n{FOUND}{TABLE}```\nFast!")
    prompt, decode = found.results
    assert [prompt.test, decode.test] == ["pp512", "tg128"]
    assert (decode.mean, decode.deviation, decode.samples) == (101.25, 0.4, ())
    assert (decode.n_params, decode.build, decode.backend) == (8_030_000_000, "1a2b3c4d", "CUDA")
    assert card_named(decode).name == "rtx-4090"
    assert known_model_of(decode).n_layer == 32
    assert found.problems == ()
    assert "no single repetitions" in found.notes[0]
    assert found.rows == ()


def test_a_table_without_messages_has_no_card_and_is_not_on_the_processor():
    """The backend is named, so the weights do not lie in RAM; which card it is, nothing says."""
    decode = read(TABLE).results[1]
    assert not decode.on_processor
    assert decode.gpu == ""
    assert bound_of(decode, card_named(decode)) == "no card of the list is named"
    cpu = read(TABLE.replace("CUDA      ", "CPU       ")).results[1]
    assert cpu.on_processor


@pytest.mark.parametrize(
    ("heads", "cells", "settings", "test"),
    [
        ("backend | ngl | threads | fa | mmap", "Vulkan | 33 | 8 | 1 | 0", "flash_attn on use_mmap 0", "tg128 @ d4096"),
        (
            "backend | ngl | n_ubatch | type_k | sm | dev",
            "ROCm | 99 | 64 | q8_0 | row | ROCm0",
            "devices ROCm0",
            "tg64",
        ),
        ("backend | ngl | fa | ot | nopo | dio", "CUDA | 99 | 1 | exps=CPU | 1 | 1", "use_direct_io 1", "pp512+tg128"),
        ("backend | n_gpu_layers | n_threads", "Metal | 1 | 4", "n_gpu_layers 1 n_threads 4", "pp 512"),
        ("backend | ngl | fa | rtr | fmoe | ser", "CUDA | 99 | 1 | 1 | 1 | 0,0", "fused_moe 1 ser 0,0", "tg128@pp512"),
        (
            "backend | ngl | lm | rpk | a_new_one",
            "CUDA | 99 | dio | 0 | 7",
            "a_new_one 7 load_mode dio repack 0",
            "pp512",
        ),
    ],
)
def test_columns_of_every_version_and_fork_are_settings(heads, cells, settings, test):
    """By their own names, which llama-bench's other forms use, and by the head where nobody knows it."""
    text = f"| model | size | params | {heads} | test | t/s |\n|---|\n{MODEL} {cells} | {test} | 12.50 ± 0.10 |"
    (result,) = read(text).results
    asked = settings.split()
    assert {name: result.settings[name] for name in asked[::2]} == dict(zip(asked[::2], asked[1::2], strict=True))
    named = {"pp 512": "pp512", "tg128@pp512": "tg128 @ d512"}
    assert result.test == named.get(test, test)


@pytest.mark.parametrize("sign", ["±", "+-", "┬▒", "Â±", "\N{REPLACEMENT CHARACTER}", ""])
def test_a_rate_is_read_however_its_sign_was_kept(sign):
    """Terminals and forums turn the sign into others; without one there is no deviation."""
    text = TABLE.replace("101.25 ± 0.40", f"101.25 {sign} 0.40" if sign else "101.25")
    assert read(text).results[1].deviation == (0.4 if sign else None)


@pytest.mark.parametrize(
    ("cell", "rate"),
    [
        ("1,234.56", (1234.56, None)),
        ("4,321.09 ± 1,010.00", (4321.09, 1010.0)),
        ("35.1±0.4", (35.1, 0.4)),
        *((refused, None) for refused in ("1e3", "1234,56", "1,234", "35.1 → 40.2", "35.1-40.2", "35.1/40.2", "1.2.3")),
    ],
)
def test_a_cell_is_one_rate_or_refused(cell, rate):
    """Two rates in a cell are no rate with its deviation, and a comma may part thousands or begin decimals."""
    found = read(TABLE.replace("101.25 ± 0.40", cell))
    assert [(one.mean, one.deviation) for one in found.results[1:]] == [rate] * bool(rate)
    assert len(found.problems) == (not rate)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\n".join(f"> {line}" for line in text.splitlines()),
        lambda text: "\n".join("  " + line for line in text.splitlines()),
        lambda text: text.replace("101.25 ± 0.40", "**101.25 ± 0.40**"),
        lambda text: "\n".join(
            "\t".join(line.strip("| ").split("|")) for line in text.splitlines() if "---" not in line
        ),
    ],
)
def test_a_table_is_read_as_people_paste_it(change):
    """Quoted, indented, in bold, and copied from a page that shows it."""
    assert [round(one.rate, 2) for one in read(change(TABLE)).results] == [4321.09, 101.25]


def as_sql(found) -> str:
    names = [name for name in found[0] if not name.startswith("samples")]
    lines = ["CREATE TABLE IF NOT EXISTS llama_bench (", *(f"  {name} TEXT," for name in names), ");", ""]
    for row in found:
        values = ", ".join(f"'{row[name]}'" for name in names)
        lines.append(f"INSERT INTO llama_bench ({', '.join(names)}) VALUES ({values});")
    return "\n".join(lines)


def test_sql_is_read_as_csv_is():
    """Means and deviations, with all settings; also where only the CREATE TABLE names the fields."""
    by_csv, by_sql = read(as_bytes(on_card(), "csv").decode()), read(as_sql(on_card()))
    assert [one.to_dict() for one in by_sql.results] == [one.to_dict() for one in by_csv.results]
    bare = "\n".join(
        line if "INSERT" not in line else f"INSERT INTO llama_bench VALUES{line.partition('VALUES ')[2]}"
        for line in as_sql(on_card()).splitlines()
    )
    assert [one.to_dict() for one in read(bare).results] == [one.to_dict() for one in by_csv.results]
    cut = read(as_sql(on_card())[:-40])
    assert len(cut.results) == 1
    assert cut.problems[0].endswith("the statement is not whole.")


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv"])
def test_forms_within_a_page_are_read_without_its_fences(kind):
    """Prose before and below; a fence that closes is no test."""
    text = as_bytes(on_card(), kind).decode()
    found = read(
        f"# Mine\n\n[a link](https://example.org), 1, 2\n\n```json\n{text}\n```\n\nSo much for this, and more.\n"
    )
    assert len(found.results) == 2
    assert found.problems == ()


def printed_table(found) -> str:
    """The rows as llama-bench's table has them."""
    lines = ["| model | size | params | backend | ngl | test | t/s |", "|---|--:|--:|---|--:|--:|--:|"]
    for row in found:
        test = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        test += f" @ d{row['n_depth']}" if row["n_depth"] else ""
        rate = f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}"
        lines.append(f"| {row['model_type']} | 4.58 GiB | 8.03 B | CUDA | {row['n_gpu_layers']} | {test} | {rate} |")
    return "\n".join([*lines, "", f"build: {found[0]['build_commit']} (1)", ""])


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv"])
def test_a_test_in_two_forms_counts_once(kind):
    """The form with more is kept, wherever it stands."""
    text = as_bytes(on_card(), kind).decode()
    for page in (f"{printed_table(on_card())}\n{text}\n", f"```\n{text}\n```\n{printed_table(on_card())}"):
        found = read(page)
        assert [bool(one.samples) for one in found.results] == [kind != "csv"] * 2
        assert [one.from_table for one in found.results] == [False, False]
        assert {one.source for one in found.results} == {"a.md"}
        assert "2 tests" in found.notes[-1]


def test_two_parts_with_other_rates_are_compared():
    """Before and after in one text: each is a run of its own, and their ratio has no interval."""
    found = read(f"before:\n{TABLE}\nafter:\n{TABLE.replace('101.25', '121.50')}")
    assert [one.source[-6:] for one in found.results] == ["part 1", "part 1", "part 2"]
    assert found.notes[-1].startswith("1 test of several")
    first, second = found.results[1:]
    (pair,) = compare([first], [second]).pairs
    assert pair.ratio == pytest.approx(1.2)
    assert pair.interval is None
    assert "does not list the repetitions" in pair.lacking


def test_a_table_has_partners_in_other_forms():
    """By its rounded number of weights; what it leaves out is no difference."""
    rows = read(as_bytes(on_card()).decode()).results
    other = read(printed_table(on_card(slower=9, n_gpu_layers=20))).results
    found = compare(rows, other)
    assert len(found.pairs) == 2
    assert found.pairs[0].differing["n_gpu_layers"] == ("99", "20")
    assert not {"n_batch", "poll", "bytes of the weights"} & found.pairs[0].differing.keys()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("use_direct_io", (0, 1)),
        ("no_op_offload", (0, 1)),
        ("poll", (50, 100)),
        ("cpu_mask", ("0x0", "0xff")),
        ("embeddings", (False, True)),
        ("devices", ("auto", "CUDA1")),
        ("tensor_buft_overrides", ("none", "exps=CPU")),
        ("lazy_mode", ("auto", "off")),
        ("fit_target", (0, 1024)),
        ("of_the_future", ("a", "b")),
    ],
)
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_every_column_that_differs_is_named(kind, name, values):
    """Whichever version wrote it."""
    sides = [read_results("a", as_bytes([{**on_card()[1], name: value}], kind)).results for value in values]
    (pair,) = compare(*sides).pairs
    shown = {False: "0", True: "1"}
    assert [*pair.differing] == [name]
    told = pair.differing[name]
    assert told == tuple(str(value) if kind == "csv" else shown.get(value, str(value)) for value in values)


def test_the_build_is_that_of_its_own_table():
    """Below it, as llama-bench prints it; or above, where somebody put it into another block."""
    above = (
        "```\nggml_vulkan: 0 = {} (RADV NAVI31) (radv) | uma: 0 | fp16: 1\nbuild: {} (7000)\n```\n\n{}\nAnd now:\n\n"
    )
    table = TABLE.partition("\nbuild")[0].replace("CUDA", "Vulkan")
    cards = ("AMD Radeon RX 7900 XTX", "AMD Radeon RX 7900 XT")
    page = "".join(
        above.format(card, build * 7, table.replace("101.25", f"{rate}"))
        for card, build, rate in zip(cards, "ab", (90.5, 80.5), strict=True)
    )
    found = read(page).results
    assert [one.build for one in found if one.is_decode] == ["aaaaaaa", "bbbbbbb"]
    assert card_named(found[-1]).title.endswith("7900 XT")
    below = read(f"{TABLE}\n{TABLE.replace('1a2b3c4d', 'ccccccc').replace('101.25', '99.00')}").results
    assert [one.build for one in below] == ["1a2b3c4d", "1a2b3c4d", "ccccccc", "ccccccc"]


@pytest.mark.parametrize(
    ("heads", "cells", "names"),
    [
        (
            "GPU | Model | Model Size [GiB] | Test | t/s master | t/s my-branch | Speedup",
            "RTX 4090 | {}",
            "master my-branch",
        ),
        ("model | size | test | t/s (before) | t/s (after) | diff", "{} GiB", "before after"),
    ],
)
def test_two_columns_of_rates_are_two_results(heads, cells, names):
    """As compare-llama-bench.py and people write them; each is told by the name of its column."""
    model = "llama 8B Q4_0 | 4.33"
    text = f"| {heads} |\n|---|\n| {cells.format(model)} | pp512@d128 | 100.00 | 125.00 | 1.25 |"
    first, second = read(text).results
    (pair,) = compare([first], [second]).pairs
    assert pair.ratio == 1.25
    assert pair.differing == {"rates of": tuple(names.split())}
    assert (first.test, first.model_bytes) == ("pp512 @ d128", round(4.33 * 2**30))


def test_columns_of_the_same_head_are_told_apart():
    """By numbers."""
    found = read("| model | test | t/s | t/s |\n|---|\n| llama 8B Q4_0 | tg128 | 10.0 | 20.0 |")
    assert [(one.rate, one.settings["rates of"]) for one in found.results] == [(10.0, "t/s"), (20.0, "t/s 2")]


@pytest.mark.parametrize(("n_rates", "n_others"), [(21, 0), (1, 200)])
def test_a_table_that_is_too_wide_is_refused(n_rates, n_others):
    """Each rate is a result with all other columns."""
    heads = [f"t/s {n}" for n in range(n_rates)] + [f"x{n}" for n in range(n_others)]
    wide = f"| model | test | {' | '.join(heads)} |\n| a F16 | tg1 | {'1.5 | ' * len(heads)}"
    with pytest.raises(RecordError, match=rf"the table has {len(heads) + 2} columns, {n_rates} of them rates"):
        read(wide)


@pytest.mark.parametrize("head", ["time", "Time (s)", "std. dev.", "stddev", "watts", "Power [W]", "speedup", "VRAM"])
def test_what_was_measured_is_no_setting(head):
    """Else no two rows would have the same settings."""
    (result,) = read(f"| model | test | t/s | {head} |\n|---|\n| a F16 | tg1 | 1.5 | 7 |").results
    assert result.settings == {}


GPUS = "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("2x RTX 4090", GPUS),
        ("RX 7900 XTX", "AMD Radeon RX 7900 XTX"),
        ("MI210", "AMD Instinct MI210"),
        ("P40", "Tesla P40"),
        ("RTX 4090, P40", "NVIDIA GeForce RTX 4090, Tesla P40"),
        ("RTX 6000 Ada Generation", "RTX 6000 Ada Generation"),
        ("M2 Max", "M2 Max"),
        ("2x 2x 2x a", "2x 2x a, 2x 2x a"),
    ],
)
def test_a_shortened_gpu_has_its_name_again(short, long):
    """As llama-bench names it, where compare-llama-bench.py took its maker away."""
    assert read(f"| GPU | Model | Test | t/s a |\n|---|\n| {short} | a F16 | tg1 | 1.5 |").results[0].gpu == long


def test_a_table_that_compares_has_partners_in_other_forms():
    """Without the number of weights, with the model, the GPUs and the switches in compare-llama-bench.py's words."""
    heads = "GPU | Model | FlashAttention | NKVO | Test | t/s master | Speedup"
    rows = "\n".join(
        f"| 2x RTX 4090 | llama 8B Q4_K_M | {on} | No | tg127@d512 | 90.00 | 1.0 |" for on in ("Yes", "No")
    )
    table = read(f"| {heads} |\n|---|\n{rows}").results
    bench = [on_card(GPUS, flash_attn=on, no_kv_offload=False)[1] for on in (0, 1)]
    found = compare(read(as_bytes(bench).decode()).results, table)
    assert [pair.differing.keys() & {"GPU", "flash_attn", "no_kv_offload"} for pair in found.pairs] == [set()] * 2


OTHER_TABLES = (
    "\nPrices:\n\n| GPU | Price |\n|---|---|\n| RTX 4090 | 1600 |\n",
    "\n| GPU | Price |\n|---|---|\n| RTX 4090 | 1600 |\n",
    f"\n{TABLE.splitlines()[0].replace('t/s', 'ppl')}\n|{'---|' * 7}\n{MODEL} CUDA | 99 | tg128 | 7.5 |\n",
)


@pytest.mark.parametrize("other", OTHER_TABLES)
def test_another_table_below_is_not_part_of_the_first(other):
    """Neither as faults nor as rates."""
    found = read(TABLE + other)
    assert [round(one.rate) for one in found.results] == [4321, 101]
    assert found.problems == ()


def test_messages_between_rows_do_not_end_a_table():
    """Where errors and output go to one place."""
    rows = TABLE.splitlines()
    messages = ["llama_model_loader: loaded meta data", "", "  Device 0: a card", "....."]
    found = read("\n".join([*rows[:3], *messages, *rows[3:]]))
    assert [one.build for one in found.results] == ["1a2b3c4d"] * 2


def test_a_build_above_each_table_is_its_own():
    """Also where the next one's stands just below the rows."""
    table = TABLE.partition("\nbuild")[0]
    found = read(f"build: aaaaaaa (1)\n{table}\nbuild: bbbbbbb (2)\n{table.replace('101.25', '90.00')}")
    assert [one.build for one in found.results if one.is_decode] == ["aaaaaaa", "bbbbbbb"]


@pytest.mark.parametrize(
    ("change", "n_kept"),
    [
        (lambda text: text, 2),
        (lambda text: text.replace("RTX 4090", "RTX 3090"), 4),
        (lambda text: text.replace("CUDA  ", "ROCm  ").replace(FOUND, ""), 4),
    ],
)
def test_the_same_rate_of_another_machine_is_no_repetition(change, n_kept):
    """GPU and backend agree where both are named."""
    page = FOUND + TABLE
    assert len(read(f"{page}\nAnd now:\n\n{change(page)}").results) == n_kept


def test_the_same_rate_of_another_backend_in_another_form_is_no_repetition():
    """It was measured elsewhere."""
    page = f"{as_bytes(on_card()).decode()}\n{printed_table(on_card()).replace('CUDA', 'Vulkan')}"
    assert [one.backend for one in read(page).results] == ["CUDA"] * 2 + ["Vulkan"] * 2


@pytest.mark.parametrize(
    ("heads", "cells", "is_on"),
    [("ngl", "99", False), ("backend | ngl", "CPU | 99", True), ("backend", "", False), ("ngl", "0", True)],
)
def test_a_table_is_on_the_processor_only_where_it_says_so(heads, cells, is_on):
    """A column of the backend may be missing."""
    (one,) = read(f"| model | {heads} | test | t/s |\n|---|\n| a F16 | {cells} | tg1 | 1.5 |").results
    assert one.on_processor is is_on


@pytest.mark.parametrize(
    "page",
    ["before\n{0}\nafter\n{1}\n", "{0}\n{1}\n", '```\n{{"threads": 4}}\n```\n{0}\n{{\n  f();\n}}\n\n[]\n{1}'],
)
@pytest.mark.parametrize("is_list", [(True, True), (False, True), (True, False)])
def test_json_on_a_line_is_read_and_code_passed_over(page, is_list):
    """Lists and objects, each once."""
    rows = [f'{{"model_type": "a F16", "n_prompt": 0, "n_gen": 1, "avg_ts": {rate}}}' for rate in (1.5, 2.5)]
    found = read(page.format(*(f"[{row}]" if listed else row for row, listed in zip(rows, is_list, strict=True))))
    assert [one.rate for one in found.results] == [1.5, 2.5]
    assert found.problems == ()


def test_a_statement_that_is_none_takes_no_time():
    """Spaces are looked at once."""
    began = process_time()
    with pytest.raises(RecordError, match="the statement is not whole"):
        read(f"INSERT INTO a{' ' * 40_000}b")
    assert process_time() - began < 2


@pytest.mark.parametrize("head", ["tk/s", "tok/s", "tokens/s"])
def test_other_words_for_the_rate_are_read(head):
    """People edit the heads."""
    assert read(TABLE.replace(" t/s", head)).results[1].rate == 101.25


def test_tokens_may_stand_in_columns():
    """As in the first llama-bench of August 2023."""
    heads = "| model | backend | n_gpu_layers | n_prompt | n_gen | t/s |"
    assert read(f"{heads}\n|---|\n| LLaMA 7B | CUDA | 99 | 512 | 0 | 9.5 ± 1.0 |").results[0].test == "pp512"


def test_a_table_on_the_terminal_beside_sql_in_the_same_text():
    """`-o sql -oe md` prints both at once, row by row: each test counts once."""
    head, rule, *rows = printed_table(on_card()).splitlines()[:4]
    sql = as_sql(on_card()).splitlines()
    statements = [line for line in sql if "INSERT" in line]
    page = [*sql[: sql.index(statements[0])], head, rule, rows[0], statements[0], rows[1], statements[1]]
    found = read("\n".join(page))
    assert [one.from_table for one in found.results] == [False, False]


BATCHED = """\
llama_model_loader: loaded meta data with 30 key-value pairs and 291 tensors from /home/me/some-8b.gguf
main: n_kv_max = 4096, n_batch = 2048, n_ubatch = 512, flash_attn = 1, is_pp_shared = 0, \
n_gpu_layers = 99, n_threads = 8, n_threads_batch = 8

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |    128 |    1 |    640 |    0.100 |  5120.00 |    1.280 |   100.00 |    1.380 |   463.77 |
|   512 |    128 |    4 |   2560 |    0.400 |  5120.00 |    2.048 |   250.00 |    2.448 |  1045.75 |
"""
LINE = (
    '{"n_kv_max": 4096, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 1, "is_pp_shared": 0, "n_gpu_layers": 99, '
    '"n_threads": 8, "n_threads_batch": 8, "pp": 512, "tg": 128, "pl": 4, "n_kv": 2560, "t_pp": 0.4, '
    '"speed_pp": 5120.0, "t_tg": 2.048, "speed_tg": 250.0, "t": 2.448, "speed": 1045.75}'
)


def test_several_sequences_are_called_so():
    """llama-batched-bench's table with the file and the settings above it, and its JSON lines."""
    found = read(BATCHED)
    assert found.kind == "llama-batched-bench"
    assert [one.test for one in found.results] == [
        "pp512",
        "tg128 @ d512",
        "pp512, 4 sequences",
        "tg128 @ d512, 4 sequences",
    ]
    last = found.results[-1]
    assert (last.rate, last.model, last.settings["flash_attn"]) == (250.0, "some-8b.gguf", "on")
    assert bound_of(last, None) == "several sequences were decoded together"
    assert found.notes[0].endswith("without a spread.")
    by_line = read(LINE)
    assert "names no model" in by_line.notes[0]
    assert (by_line.kind, by_line.results[1].test) == ("llama-batched-bench", "tg128 @ d512, 4 sequences")
    assert by_line.results[1].settings == {name: v for name, v in last.settings.items()}
    assert not last.on_processor
    named = read(BATCHED.replace("main:", "llama_batched_bench:")).results[-1]
    assert named.settings == last.settings


@pytest.mark.parametrize("kind", [BATCHED, LINE])
def test_a_shared_prompt_is_of_one_sequence(kind):
    """It was computed once, whatever the number of sequences."""
    found = read(kind.replace("is_pp_shared = 0", "is_pp_shared = 1").replace('"is_pp_shared": 0', '"is_pp_shared": 1'))
    assert [one.n_sequences for one in found.results[-2:]] == [1, 4]


def test_tests_without_a_model_are_paired_between_files_only():
    """A page has tables of several models below each other, and nothing in them says of which."""
    bare = BATCHED.partition("\n\n")[2]
    page = read(f"{bare}\nAnother model:\n\n{bare.replace('250.00', '90.00')}").results
    first, second = ([one for one in page if one.source.endswith(number)] for number in "12")
    told = compare(first, second)
    assert told.pairs == ()
    assert "no model is named, and the parts of one text may be of several" in {reason for _, reason in told.alone}
    assert len(compare(read(bare).results, read(bare, "b.md").results).pairs) == 4


def test_a_sweep_over_depths_is_one():
    """llama-sweep-bench of ik_llama.cpp times both at the depth N_KV."""
    text = """\
|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |    128 |      0 |    0.500 |  1024.00 |    4.000 |    32.00 |
|   512 |    128 |    512 |    0.512 |  1000.00 |    4.129 |    31.00 |
"""
    found = read(text)
    assert found.kind == "llama-sweep-bench"
    assert [one.test for one in found.results] == ["pp512", "tg128", "pp512 @ d512", "tg128 @ d512"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("| model | size | test | t/s |\n|--|--|--|--|\n", "holds no test below line 1"),
        ("CREATE TABLE IF NOT EXISTS llama_bench (\n  n_gen INTEGER\n);", "holds no test below line 1"),
        (f"{TABLE.splitlines()[0]}\n{MODEL} CUDA | 99 | tg128 | fast |", "Line 2: t/s is 'fast', no rate"),
        (f"{TABLE.splitlines()[0]}\n{MODEL} CUDA | 99 | both | 1.0 |", "Line 2: its test is 'both', no pp512 or tg128"),
        (f"{TABLE.splitlines()[0]}\n{MODEL} CUDA | 99 |", "Line 2: it has 5 cells below 7 heads"),
    ],
)
def test_what_is_no_test_has_its_reason(text, told):
    """With its line as the file counts it, and what can be read."""
    with pytest.raises(RecordError, match=told):
        read(text)


def test_older_fields_name_their_backend():
    """Until 2024 each backend had a field of its own in JSON and CSV."""
    row = {name: value for name, value in on_card()[1].items() if name != "backends"}
    (result,) = read_results("a", as_bytes([{**row, "cuda": True, "metal": False, "blas": True}])).results
    assert result.backend == "CUDA,BLAS"
    assert "cuda" not in result.settings
