"""How often Ollama loads models and why, which context it takes by itself, and its starts without a GPU."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise

from inferlab.log_reader.conditions.afterwards import place_of
from inferlab.log_reader.conditions.found import FEWEST_REQUESTS, MOST_LINES, MOST_READ, Found
from inferlab.log_reader.conditions.placement import layers_on_cpu
from inferlab.log_reader.observed import CPU_ONLY, RUNNER_STARTS, Observed
from inferlab.log_reader.runs import MODEL_FILE
from inferlab.log_reader.text import Line, LogText
from inferlab.units import GIB, bytes_text

LISTENING = 'msg="Listening on '
LOADER = "llama_model_loader: loaded meta data with"
CONTEXT = re.compile(r"(?:(?:--ctx-size|-c) |KvSize:|: n_ctx {1,30}= )(\d{1,12})\b")
PARALLEL = re.compile(r"(?:--parallel|-np) (\d{1,4})\b|Parallel:(\d{1,4})\b")
TIME = re.compile(r"time=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class Load:
    """One load of a model by Ollama: its first line, its model, the context of a request or None, and its time."""

    line: Line
    model: str
    context: int | None
    time: datetime | None


def _loads(seen: Observed) -> list[Load]:
    """Loads by the lines that start runners, or by the loader's lines before Ollama 0.1.33, in their order."""
    lines = [line for needle in RUNNER_STARTS for line in seen.log.lines_with(needle) if " --model " in line.text]
    if not lines and seen.program.key == "ollama" and not any(seen.log.has(needle) for needle in RUNNER_STARTS):
        lines = list(seen.log.lines_with(LOADER))
    lines.sort(key=lambda line: line.number)
    places = [*(place_of(seen.log, line.number) for line in lines), len(seen.log.text)]
    loads = (_load(seen.log, line, end) for line, end in zip(lines, places[1:], strict=True))
    return [load for load in loads if load]


def _load(log: LogText, line: Line, end: int) -> Load | None:
    model = MODEL_FILE.search(line.text)
    words = () if CONTEXT.search(line.text) else ("KvSize:", ": n_ctx ")
    lines = (log.first(word, place_of(log, line.number), end) for word in words)
    asked = next((found for found in lines if found), None)
    return Load(line, model[1] or model[2], _context((asked or line).text), _time(log, line)) if model else None


def _context(text: str) -> int | None:
    """The context of one request: a runner is given that of all at once."""
    context, parallel = CONTEXT.search(text), PARALLEL.search(text)
    slots = int(parallel[1] or parallel[2]) if parallel else 1
    return int(context[1]) // max(slots, 1) if context else None


def _time(log: LogText, line: Line) -> datetime | None:
    """The time of a line of Ollama, or of the last one before it that has one."""
    before = log.last("time=", 0, place_of(log, line.number))
    match = TIME.search(line.text) or (TIME.search(before.text) if before else None)
    try:
        return datetime.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def _of_one_model(seen: Observed) -> list[Load]:
    """The loads of the model that was loaded most often since the server started, without attempts that it repeated."""
    start = max(0, seen.log.text.rfind(LISTENING))
    loads = [load for load in _loads(seen) if place_of(seen.log, load.line.number) >= start]
    by_model: dict[str, list[Load]] = {}
    for i, load in enumerate(loads):
        later = loads[i + 1] if i + 1 < len(loads) else load
        if later.model != load.model or not _repeated(seen.log, load.line, later.line):
            by_model.setdefault(load.model, []).append(load)
    return max(by_model.values(), key=len, default=[])


def _repeated(log: LogText, one: Line, other: Line) -> bool:
    """Whether Ollama itself began a load anew, with less context or after other models were unloaded."""
    return log.text.find("retrying once", place_of(log, one.number), place_of(log, other.number)) >= 0


def _contexts(loads: list[Load]) -> list[int]:
    return sorted({load.context for load in loads if load.context})


def loaded_again(seen: Observed) -> Found | None:
    """One model was loaded with different contexts, or three times or more and the log does not say with which."""
    loads = _of_one_model(seen)
    contexts = _contexts(loads)
    if len(contexts) < 2 and (contexts or len(loads) < FEWEST_REQUESTS or loaded_after_idle(seen)):
        return None
    sizes = ", ".join(f"{size:,}" for size in contexts[:MOST_LINES])
    why = f", with contexts of {sizes} tokens: clients ask for different ones" if contexts else ""
    what = f"The same model was loaded {len(loads)} times{why}."
    return Found(tuple(load.line for load in loads[:MOST_LINES]), {"what": what})


def _again_alike(seen: Observed) -> tuple[list[Load], list[timedelta]] | None:
    """Three or more loads of one model, none with another context, and the times between them, where all are known."""
    loads = _of_one_model(seen)
    times = [load.time for load in loads]
    if len(loads) < FEWEST_REQUESTS or len(_contexts(loads)) > 1:
        return None
    between = [later - earlier for earlier, later in pairwise(times) if earlier and later]
    return (loads, between) if len(between) == len(loads) - 1 else None


def loaded_after_idle(seen: Observed) -> Found | None:
    """One model, loaded again after times for which Ollama keeps no unused model."""
    again = _again_alike(seen)
    kept, said = _kept(seen)
    if again is None or min(again[1]) < kept:
        return None
    minutes = [round(gap.total_seconds() / 60) for gap in again[1]]
    apart = f"{minutes[0]}" if len(set(minutes)) == 1 else f"{min(minutes):,} to {max(minutes):,}"
    contexts = _contexts(again[0])
    always = f", always with a context of {contexts[0]:,} tokens" if contexts else ""
    values = {"n": len(again[0]), "minutes": apart, "always": always, "kept": said}
    return Found(tuple(load.line for load in again[0][:MOST_LINES]), values)


def loaded_again_alike(seen: Observed) -> Found | None:
    """One model with one context, loaded again while Ollama would have kept it."""
    again = _again_alike(seen)
    kept, said = _kept(seen)
    if again is None or not _contexts(again[0]):
        return None
    others = [load.line.number for load in _loads(seen) if load.model != again[0][0].model]
    pairs = zip(pairwise(again[0]), again[1], strict=True)
    if not any(gap < kept and _alone(pair, others) for pair, gap in pairs):
        return None
    values = {"n": len(again[0]), "context": _contexts(again[0])[0], "kept": said}
    return Found(tuple(load.line for load in again[0][:MOST_LINES]), values)


def _alone(pair: tuple[Load, Load], others: list[int]) -> bool:
    """Whether none of the lines that load other models stands between two loads of one: they may take its place."""
    return bisect_right(others, pair[0].line.number) == bisect_right(others, pair[1].line.number)


KEEP_ALIVE = re.compile(r"OLLAMA_KEEP_ALIVE:(?:(\d{1,7})h)?(?:(\d{1,2})m)?(?:(\d{1,2})(?:\.\d{1,9})?s)?[ \]]")
DEFAULT_KEPT = timedelta(minutes=5)


def _kept(seen: Observed) -> tuple[timedelta, str]:
    """How long Ollama keeps an unused model, by its line about its settings, and in words."""
    line = seen.log.last("OLLAMA_KEEP_ALIVE:")
    match = line and KEEP_ALIVE.search(line.text)
    if match and any(match.groups()):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        kept = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if kept != DEFAULT_KEPT:
            return kept, f"As it was started, Ollama keeps an unused model for {_duration(kept)}."
    return DEFAULT_KEPT, "By default, Ollama unloads a model after 5 minutes without a request."


def _duration(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return "ever" if minutes > MOST_MINUTES else f"{minutes} minutes"


MOST_MINUTES = 100_000_000
FEWEST_RETURNS = 2
SOON = timedelta(minutes=10)


def models_in_turn(seen: Observed) -> Found | None:
    """Ollama loaded a model again, as it was, soon after another one had taken its place, at least twice."""
    loads = _loads(seen)
    known: dict[str, int | None] = {}
    returns = []
    for earlier, load in pairwise(loads):
        known[earlier.model] = earlier.context
        if _new_server(seen.log, earlier.line, load.line):
            known.clear()
        again = load.model in known and known[load.model] == load.context
        if load.model != earlier.model and again and _soon(earlier, load):
            returns.append(load.line)
    if len(returns) < FEWEST_RETURNS:
        return None
    values = {"models": len({load.model for load in loads}), "n": len(returns)}
    evicted = [line for line in [seen.log.last(", evicting")] if line]
    return Found((*returns[: MOST_LINES - 1], *evicted), values)


def _new_server(log: LogText, one: Line, other: Line) -> bool:
    return log.text.find(LISTENING, place_of(log, one.number), place_of(log, other.number)) >= 0


def _soon(earlier: Load, later: Load) -> bool:
    """Whether two loads are minutes apart, as far as both have a time."""
    return earlier.time is None or later.time is None or later.time - earlier.time < SOON


DEFAULT = re.compile(r'total_vram="?([\d.]{1,12} \w{1,4})"? default_num_ctx=(\d{1,12})')


def default_context(seen: Observed) -> tuple[Line, int, str] | None:
    """The line about the context that Ollama takes by itself, its tokens, and the memory of the GPUs."""
    line = seen.log.last('msg="vram-based default context"', 0, seen.load.loader)
    match = line and DEFAULT.search(line.text)
    return (line, int(match[2]), match[1]) if line and match else None


def long_default_context(seen: Observed) -> Found | None:
    """Layers are in RAM, and the context, whose cache takes memory of the GPU, is the one that Ollama takes itself."""
    found, default, n_ctx = layers_on_cpu(seen), default_context(seen), seen.context.n_ctx
    cache = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "kv_cache")
    if not (found and default and n_ctx) or cache < GIB:
        return None
    line, tokens, vram = default
    if n_ctx != min(tokens, seen.model.n_ctx_train or tokens):
        return None
    return Found((line,), {"n": n_ctx, "vram": vram, "cache": bytes_text(cache)})


def gpu_not_always_found(seen: Observed) -> Found | None:
    """Some starts of Ollama's server found a GPU, and others none."""
    text = seen.log.text
    starts = _starts(seen.log)
    if len(starts) < 2:
        return None
    searches = [
        list(seen.log.lines_with('msg="inference compute"', at, end)) for at, end in pairwise([*starts, len(text)])
    ]
    without = [lines[0] for lines in searches if lines and all(CPU_ONLY.search(line.text) for line in lines)]
    n_with = sum(any(not CPU_ONLY.search(line.text) for line in lines) for lines in searches)
    if not without or not n_with:
        return None
    return Found(tuple(without[:MOST_LINES]), {"n": len(without), "all": len(without) + n_with})


def _starts(log: LogText) -> list[int]:
    return [place_of(log, line.number) for line in islice(log.lines_with(LISTENING), MOST_READ)]


STARTED = re.compile(r"started in (\d{1,6}\.\d{1,3}) seconds")
LONG_LOAD, SLOW_LOAD = 30.0, GIB / 2
"""Seconds, and bytes for each of them, which an NVMe drive reads several times as fast"""


def slow_load(seen: Observed) -> Found | None:
    """The last load of Ollama took long for the size of its weights."""
    weights = seen.model.weights_bytes
    line = seen.log.last(" started in ", seen.load.loader)
    match = line and STARTED.search(line.text)
    if not (line and match and weights) or seen.program.key != "ollama":
        return None
    seconds = float(match[1])
    if seconds < LONG_LOAD or weights / seconds > SLOW_LOAD:
        return None
    values = {"size": bytes_text(weights), "seconds": f"{seconds:.0f}", "rate": bytes_text(round(weights / seconds))}
    return Found((line,), values)


EMBEDDED = re.compile(r'\| 200 \| {1,12}(?:(\d{1,3})m)?([\d.]{1,16})(m?s) \|.{1,80}POST {1,8}"/(?:api|v1)/embed')
ANSWERED = re.compile(r'POST {1,8}"/(?:api/(?:chat|generate)|v1/(?:chat|completions|messages|responses))')
FOR_EMBEDDINGS = re.compile(r"bert|embed|bge|gte|\be5\b|minilm|arctic|rerank|colbert", re.IGNORECASE)
LARGE = 2 * GIB
LONG = 1.0
"""Seconds of a request, above which a smaller model is worth the change."""


def embeddings_by_a_language_model(seen: Observed) -> Found | None:
    """A large language model answers nothing but embeddings, and takes seconds for each."""
    names = f"{seen.model.name} {seen.model.architecture}"
    if seen.program.key != "ollama" or (seen.model.weights_bytes or 0) < LARGE or FOR_EMBEDDINGS.search(names):
        return None
    lines = list(islice(seen.log.lines_with("[GIN] ", seen.load.loader), MOST_READ))
    if any(ANSWERED.search(line.text) for line in lines):
        return None
    timed = [(line, match) for line in lines if (match := EMBEDDED.search(line.text))]
    seconds = sorted(60 * int(m[1] or 0) + float(m[2]) / (1000 if m[3] == "ms" else 1) for _, m in timed)
    if len(seconds) < FEWEST_REQUESTS or seconds[len(seconds) // 2] < LONG:
        return None
    size = bytes_text(seen.model.weights_bytes or 0)
    values = {"n": len(seconds), "size": size, "seconds": f"{seconds[len(seconds) // 2]:.1f}"}
    return Found(tuple(line for line, _ in timed[:MOST_LINES]), values)


CONDITIONS = (
    loaded_again,
    loaded_after_idle,
    loaded_again_alike,
    models_in_turn,
    long_default_context,
    gpu_not_always_found,
    slow_load,
    embeddings_by_a_language_model,
)
