"""Tables for people and statements of SQL as rows with llama-bench's fields.

Read are the tables of llama-bench (`markdown_printer`), of llama.cpp's compare-llama-bench.py, of llama-batched-bench
and of ik_llama.cpp's llama-sweep-bench, in every version: columns are taken by their names, and a column that nobody
knows is a setting of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any

from inferlab.errors import RecordError
from inferlab.results.result import NOT_NAMED
from inferlab.units import GIB, MIB

BENCH, BATCHED, SWEPT = "llama-bench", "llama-batched-bench", "llama-sweep-bench"
FIELDS = {
    "model": "model_type",
    "backend": "backends",
    "ngl": "n_gpu_layers",
    "threads": "n_threads",
    "sm": "split_mode",
    "mg": "main_gpu",
    "nkvo": "no_kv_offload",
    "fa": "flash_attn",
    "ts": "tensor_split",
    "ot": "tensor_buft_overrides",
    "override_tensor": "tensor_buft_overrides",
    "mmap": "use_mmap",
    "dio": "use_direct_io",
    "lm": "load_mode",
    "embd": "embeddings",
    "dev": "devices",
    "nopo": "no_op_offload",
    "noh": "no_host",
    "rpk": "repack",
    "rtr": "repack",
    "fitt": "fit_target",
    "fitc": "fit_min_ctx",
    "mmq": "mul_mat_q",
    "mla": "mla_attn",
    "amb": "attn_max_batch",
    "gr": "reuse",
    "thp": "use_thp",
    "fmoe": "fused_moe",
    "ger": "grouped_er",
}
"""Heads of columns -> llama-bench's fields (`get_field_display_name`); other heads are the fields themselves."""
COMPARED = {
    "Backends": "backends",
    "Batch size": "n_batch",
    "CPU": "cpu_info",
    "CPU mask": "cpu_mask",
    "CPU strict": "cpu_strict",
    "Embeddings": "embeddings",
    "File": "model_filename",
    "FlashAttention": "flash_attn",
    "GPU": "gpu_info",
    "GPU layers": "n_gpu_layers",
    "K type": "type_k",
    "Load mode": "load_mode",
    "Main GPU": "main_gpu",
    "Microbatch size": "n_ubatch",
    "Model": "model_type",
    "NKVO": "no_kv_offload",
    "Poll": "poll",
    "Split mode": "split_mode",
    "Tensor overrides": "tensor_buft_overrides",
    "Tensor split": "tensor_split",
    "Threads": "n_threads",
    "Use mmap": "use_mmap",
    "V type": "type_v",
}
"""Heads of compare-llama-bench.py -> llama-bench's fields (LLAMA_BENCH_PRETTY_NAMES)."""
SIZES, PARAMS = {"size", "model size", "model size [gib]"}, {"params", "num. of par."}
TESTS = {"test", "Test"}
RATES = re.compile(r"(?:t|tk|tok|tokens)/s(?: +(\S.{0,60}))?", re.IGNORECASE)
"""Heads of rates; a table that compares has several, each with a name behind."""
COLUMN = "rates of"
"""The setting by which several columns of rates are told apart."""
NO_SETTING = re.compile(
    r"(?:speed-?up|diff(?:erence)?|delta|change|gain|ratio|%|(?:total |load )?time|duration|elapsed|seconds|latency|"
    r"ttft|std\.? ?(?:dev\.?|deviation)?|stdev|sd|deviation|error|±|watts?|w|power|energy|joules|temp(?:erature)?|"
    r"v?ram|memory|ppl|perplexity)(?: ?[(\[][^()\[\]]{1,20}[)\]])?"
)
"""Heads of what was measured or follows from it; a unit may stand behind in brackets."""
MOST_RATES, MOST_COLUMNS = 20, 120
MOST_LINES_TO_BUILD = 4
BATCHED_HEADS = {
    "PP": "pp",
    "TG": "tg",
    "B": "pl",
    "N_KV": "n_kv",
    "S_PP t/s": "speed_pp",
    "S_TG t/s": "speed_tg",
}
"""Heads of llama-batched-bench's table -> its fields in JSON; llama-sweep-bench has all but `B`."""
BATCHED_KEPT = ("n_", "flash", "is_", "build", "gpu", "model")
"""How the other fields begin that say how, and of what, it was measured."""
YES_NO = {"Yes": "1", "No": "0"}
K_QUANT, K_SIZES = re.compile(r"\b(Q\d_K)_([SML])\b"), {"S": "Small", "M": "Medium", "L": "Large"}
COUNTED_GPU = re.compile(r"([1-9]\d?)x (.{1,100})")
GPU_SERIES = {
    "NVIDIA GeForce ": re.compile(r"RTX [2-5]0[5-9]0\b|GTX \d{3,4}\b"),
    "Tesla ": re.compile(r"(?:K[1248]0[cmX]?|M[1456]0|P4|P40|P100|T4|V100)(?!\w)"),
    "AMD Radeon ": re.compile(r"(?:RX|R9) \d{3,4}\b|(?:VII|PRO W\d{4}|Pro W\d{4})\b"),
    "AMD Instinct ": re.compile(r"MI\d{2,3}"),
}
"""What compare-llama-bench.py takes away from a GPU's name, and the names that are left."""
UNITS = {"KiB": 1024, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
AMOUNT = re.compile(r"([\d.]{1,20})\s{0,4}(KiB|MiB|GiB|TiB|K|M|B|T)")
NUMBER = r"((?:\d{1,3}(?:,\d{3}){1,4}(?=\.)|\d{1,15})(?:\.\d{1,15})?)"
"""Commas part thousands only where a point follows: alone, one may be the sign before the decimals."""
SIGN = r"(?:±|\+/?-|\\pm|┬▒|[ÂВ]±|¬±|ﾂｱ|卤|簣|짹|\N{REPLACEMENT CHARACTER}{1,2}|\?{1,2})"
"""The sign before the deviation, also as other code pages show its two bytes."""
RATE = re.compile(rf"{NUMBER}(?:\s{{0,4}}{SIGN}\s{{0,4}}{NUMBER})?")
TEST = re.compile(r"(?:pp ?(\d{1,9}))?\+?(?:tg ?(\d{1,9}))?(?: ?@ ?d ?(\d{1,9}))?")
AFTER_PROMPT = re.compile(r"tg(\d{1,9})@pp(\d{1,9})")
"""ik_llama.cpp's name of tokens that are generated after a prompt, whose time does not count."""
MESSAGE = re.compile(r"\s*(?:~?[a-z][\w:.~-]{1,60}: \S|Device \d|\.{2,})")
"""What llama.cpp writes between the rows of its table where errors and output go to one place."""
BUILD = re.compile(r"\s*\**build: ([0-9a-fA-F]{5,40}|unknown) \((\d{1,9})\)")
DEVICE = re.compile(r"\s*Device (\d{1,3}): (.{1,100}?), (?:compute capability|gfx)")
VULKAN_DEVICE = re.compile(r"\s*(?:ggml_vulkan: |Vulkan)(\d{1,3})(?: =|:) (.{1,100}?)(?: \([^()]{1,60}\))? \|")
METAL_DEVICE = re.compile(r"\s*ggml_metal\w{0,30}: GPU name:\s{1,8}(\S.{0,100})")
DEVICES_BEGIN = re.compile(r"\s*ggml_(?:cuda|vulkan)\w{0,20}: [Ff]ound \d")
MODEL_FILE = re.compile(r"llama_model_loader: loaded meta data .{0,200}? from (.{1,4096}\.gguf)")
PARAMETERS = re.compile(r"(?:main|llama[\w-]{1,30}): (n_kv_max = .{1,400})")
TEXTS = re.compile(r"'((?:[^']|'')*)'|([^\s,()']+)")
CREATED = re.compile(r"\s*CREATE TABLE (?:IF NOT EXISTS )?[\w\"`]{1,80}\s*\(", re.IGNORECASE)
INSERTED = re.compile(
    r"\s*INSERT INTO [\w\"`]{1,80}\s*(?:\(([^()]{1,4000})\)\s*)?VALUES\s*\((.*)\);?\s*$", re.IGNORECASE
)
Placed = tuple[int, dict[str, Any] | RecordError]
"""The number of a line from 0, and its row or why it is none."""


def column_names(line: str) -> list[str]:
    """The cells of a line of a table, without marks; tabs part them where a page was copied as it is shown."""
    text = line.strip()
    if text.startswith("|"):
        cells = text.strip("|").split("|")
    elif "\t" in text:
        cells = text.split("\t")
    else:
        return []
    return [cell.strip(" \t*`") for cell in cells]


def is_table_header(heads: Sequence[str]) -> bool:
    """Whether these are the heads of a table of rates."""
    named = {*heads}
    has_test = bool(TESTS & named) or named >= {"n_prompt", "n_gen"}
    return _is_batched_header(heads) or (has_test and any(map(RATES.fullmatch, heads)))


def _is_batched_header(heads: Sequence[str]) -> bool:
    return {*heads} >= BATCHED_HEADS.keys() - {"B"}


def table_rows(lines: Sequence[str], before: Sequence[str]) -> Iterator[Placed]:
    """The rows of a table, each with its line; the first line has the heads, `before` is what stands above.

    GPUs, the model's file and the build are taken from the messages around the table.
    """
    heads = _numbered(column_names(lines[0]))
    around = {**_gpus(before), **(_build(lines[1:]) or _build(before[::-1]))}
    if _is_batched_header(heads):
        named = {**around, **_batched_named(before)}
        return _rows(lines, heads, lambda cells: [named | _batched_row(cells)])
    rates = dict.fromkeys(head for head in heads if RATES.fullmatch(head))
    if len(heads) > MOST_COLUMNS or len(rates) > MOST_RATES:
        found = f"the table has {len(heads):,} columns, {len(rates):,} of them rates"
        return iter([(0, RecordError(f"{found}; at most {MOST_COLUMNS} and {MOST_RATES} are read"))])
    return _rows(lines, heads, lambda cells: [around | row for row in _bench_rows(cells, rates)])


def _numbered(heads: Sequence[str]) -> list[str]:
    """The heads, those of rates that stand there before with a number behind."""
    seen: dict[str, int] = {}
    told = []
    for head in heads:
        seen[head] = seen.get(head, 0) + 1
        told.append(f"{head} {seen[head]}" if seen[head] > 1 and RATES.fullmatch(head) else head)
    return told


def table_length(lines: Sequence[str], before: Sequence[str], is_followed: bool) -> int:
    """How many of these lines belong to the table that begins with the first: its rows, and its build just below.

    `before` is what stands above; `is_followed` says whether the next table begins below these lines. Then a build
    between the two is the next one's where this one has its own above.
    """
    length = _last_row(lines) + 1
    below = list(takewhile(lambda line: not line.lstrip().startswith("|"), lines[length:]))
    builds = [n for n, line in enumerate(below, 1) if BUILD.match(line)]
    is_next_ones = is_followed and len(builds) == 1 and _build(before)
    return length if not builds or builds[0] > MOST_LINES_TO_BUILD or is_next_ones else length + builds[0]


def _last_row(lines: Sequence[str]) -> int:
    """Where the last row of a table is, or its heads.

    Between rows there may be messages and empty lines; a row behind those with a rule below has the heads of another
    table, and so has one of another width behind an empty line.
    """
    heads = column_names(lines[0])
    last, before_gap, resumed = 0, 0, 0
    for number, line in enumerate(lines[1:], 1):
        if not _is_row(line, heads):
            if line.strip() and not MESSAGE.match(line):
                break
            continue
        cells = column_names(line)
        if number > last + 1:
            if not lines[number - 1].strip() and len(cells) != len(heads):
                break
            before_gap, resumed = last, number
        elif resumed == number - 1 > 0 and _is_rule(cells):
            return before_gap
        last = number
    return last


def _is_row(line: str, heads: Sequence[str]) -> bool:
    return line.lstrip().startswith("|") or len(column_names(line)) == len(heads)


def _is_rule(cells: Sequence[str]) -> bool:
    """Whether this is the line below the heads."""
    return set("".join(cells)) <= set("-: ")


def _rows(lines: Sequence[str], heads: Sequence[str], rows_of: Any) -> Iterator[Placed]:
    for number, line in enumerate(lines[1:], 1):
        cells = column_names(line)
        if not cells or not _is_row(line, heads) or _is_rule(cells):
            continue
        if len(cells) != len(heads):
            yield number, RecordError(f"it has {len(cells)} cells below {len(heads)} heads")
            continue
        try:
            yield from ((number, row) for row in rows_of(dict(zip(heads, cells, strict=True))))
        except RecordError as error:
            yield number, error


def _bench_rows(cells: dict[str, str], rates: Collection[str]) -> Iterator[dict[str, Any]]:
    """A row of llama-bench's table, for each rate, with the fields of its other forms.

    Raises RecordError with what is wrong.
    """
    row: dict[str, Any] = {}
    for name, cell in cells.items():
        row |= {} if name in rates or not name else _field(name, cell)
    for head in rates:
        rate = RATE.fullmatch(cells[head])
        if not rate:
            raise RecordError(f"{head} is {cells[head][:80]!r}, no rate")
        given = {"avg_ts": _plain(rate[1]), "stddev_ts": _plain(rate[2])}
        yield row | given | ({COLUMN: _column(head)} if len(rates) > 1 else {})


def _plain(number: str | None) -> str | None:
    """A number without commas between its thousands."""
    return number and number.replace(",", "")


def _column(head: str) -> str:
    """What a column of rates is called: `t/s master` is `master`."""
    found = RATES.fullmatch(head)
    name = found[1] if found else ""
    return name.strip("() ") if name and not name.isdecimal() else head


def _field(head: str, cell: str) -> dict[str, Any]:
    """What a cell says, under llama-bench's name."""
    if head in TESTS:
        return tokens_of(cell)
    if head.lower() in SIZES:
        return {"model_size": _amount(f"{cell} GiB" if "[" in head else cell)}
    if head.lower() in PARAMS:
        return {"model_n_params": _amount(cell)}
    if NO_SETTING.fullmatch(head.lower()):
        return {}
    name = FIELDS.get(head, COMPARED.get(head, head))
    return {name: LONG_FORMS[name](cell) if name in LONG_FORMS else YES_NO.get(cell, cell)}


def _long_model(name: str) -> str:
    """llama.cpp's description of a model, where compare-llama-bench.py or people write `Q4_K_M`."""
    return K_QUANT.sub(lambda found: f"{found[1]} - {K_SIZES[found[2]]}", name)


def _long_gpu(names: str) -> str:
    """The GPUs as llama-bench names them: `2x RTX 4090` is `NVIDIA GeForce RTX 4090` twice."""
    counted = COUNTED_GPU.fullmatch(names)
    several = [counted[2]] * int(counted[1]) if counted else names.split(", ")
    return ", ".join(next((maker for maker, short in GPU_SERIES.items() if short.match(n)), "") + n for n in several)


LONG_FORMS: dict[str, Callable[[str], str]] = {"model_type": _long_model, "gpu_info": _long_gpu}
"""Fields whose short forms are undone."""


def tokens_of(test: str) -> dict[str, int]:
    """The tokens of a test by its name: `pp512`, `tg128 @ d4096`, `pp512+tg128`. Raises RecordError for another."""
    after = AFTER_PROMPT.fullmatch(test)
    if after:
        return {"n_prompt": 0, "n_gen": int(after[1]), "n_depth": int(after[2])}
    parts = TEST.fullmatch(test)
    if not parts or not test:
        raise RecordError(f"its test is {test[:80]!r}, no pp512 or tg128")
    return dict(zip(("n_prompt", "n_gen", "n_depth"), (int(part or 0) for part in parts.groups()), strict=True))


def _amount(text: str) -> int | None:
    """`4.58 GiB` or `8.03 B` as a number; None for anything else."""
    parts = AMOUNT.fullmatch(text)
    try:
        return round(float(parts[1]) * UNITS[parts[2]]) if parts else None
    except ValueError:
        return None


def _build(lines: Sequence[str]) -> dict[str, str]:
    """The commit in the first line that names one."""
    found = next((match for line in lines if (match := BUILD.match(line))), None)
    return {"build_commit": found[1], "build_number": found[2]} if found else {}


def _gpus(before: Sequence[str]) -> dict[str, str]:
    """The GPUs that the messages above a table name, as llama-bench joins them."""
    names: dict[str, str] = {}
    for line in before:
        found = DEVICE.match(line) or VULKAN_DEVICE.match(line)
        metal = METAL_DEVICE.match(line)
        if DEVICES_BEGIN.match(line):
            names = {}
        elif found:
            names[found[1]] = found[2].strip()
        elif metal:
            names = {"0": metal[1].strip()}
    return {"gpu_info": ", ".join(names.values())} if names else {}


# --- several sequences ------------------------------------------------------------------------------------


def _batched_named(before: Sequence[str]) -> dict[str, str]:
    """The model's file and the settings in the messages above a table of llama-batched-bench."""
    named: dict[str, str] = {}
    for line in before:
        file, parameters = MODEL_FILE.search(line), PARAMETERS.search(line)
        if file:
            named["model_filename"] = file[1]
        if parameters:
            pairs = (part.partition(" = ") for part in parameters[1].split(", "))
            named |= {name.strip(): value.strip() for name, _, value in pairs if value.strip()}
    return named


def _batched_row(cells: dict[str, str]) -> dict[str, str]:
    """A row of a table under the names that its program has in JSON."""
    return {BATCHED_HEADS[head]: cell for head, cell in cells.items() if head in BATCHED_HEADS}


def is_batched(value: dict[str, Any]) -> bool:
    """Whether an object is a line of llama-batched-bench's or llama-sweep-bench's JSON."""
    return {"pp", "tg", "n_kv", "speed_pp", "speed_tg"} <= value.keys()


def batched_rows(value: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The program, and the prompt and the decode of one of its lines as rows with llama-bench's fields.

    llama-batched-bench times all sequences together, after a prompt of each, or of one where it is shared;
    llama-sweep-bench times one, and both its prompt and its decode at the depth n_kv.
    """
    kind = BATCHED if "pl" in value else SWEPT
    kept = {
        name: one for name, one in value.items() if name.startswith(BATCHED_KEPT) and name not in ("n_kv", "n_kv_max")
    }
    named = {"n_sequences": value.get("pl"), **({} if "model_filename" in kept else {"model_type": NOT_NAMED}), **kept}
    n_prompt, n_gen = value["pp"], value["tg"]
    depths = (0, n_prompt) if kind == BATCHED else (value["n_kv"],) * 2
    prompt = {"n_prompt": n_prompt, "n_gen": 0, "n_depth": depths[0], "avg_ts": value["speed_pp"]}
    if str(value.get("is_pp_shared")) in ("1", "True"):
        prompt["n_sequences"] = 1
    decode = {"n_prompt": 0, "n_gen": n_gen, "n_depth": depths[1], "avg_ts": value["speed_tg"]}
    return kind, [named | row for row, n in ((prompt, n_prompt), (decode, n_gen)) if str(n) != "0"]


# --- SQL --------------------------------------------------------------------------------------------------


def sql_rows(lines: Sequence[str]) -> list[Placed]:
    """The rows of `INSERT INTO` with the names that stand there, or those of the `CREATE TABLE` above."""
    created: list[str] = []
    rows: list[Placed] = []
    in_head = False
    for number, line in enumerate(lines):
        if CREATED.match(line):
            created, in_head = [], True
        elif in_head and line.strip().startswith(")"):
            in_head = False
        elif in_head and line.strip():
            created.append(line.split()[0].strip('",`'))
        elif line.strip().upper().startswith("INSERT"):
            rows.append((number, _inserted(line, created)))
    return rows


def _inserted(line: str, created: Sequence[str]) -> dict[str, Any] | RecordError:
    statement = INSERTED.match(line)
    if not statement:
        return RecordError("the statement is not whole")
    names = [name.strip(' "`') for name in statement[1].split(",")] if statement[1] else [*created]
    values = [(text or bare).replace("''", "'") for text, bare in TEXTS.findall(statement[2])]
    if len(values) != len(names):
        return RecordError(f"it has {len(values)} values for {len(names)} names")
    return dict(zip(names, values, strict=True))
