"""Prompts read again, caches of prompts, and drafts: what reuse saves, costs, or fails to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inferlab.log_reader.conditions.found import FEWEST_REQUESTS, MOST_LINES, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import Line
from inferlab.units import GIB, MIB, bytes_text

LONG_PROMPT = 512
PROMPT = re.compile(r"new prompt, .{0,80}(?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})")
REUSED = re.compile(r"(?:cache rm|seq_rm) \[(\d{1,12}), end\)")
SLOT = re.compile(r"\bid {1,6}(\d{1,4}) \| task {1,6}(-?\d{1,9}) \|")


@dataclass(frozen=True)
class Prompt:
    """One prompt of llama-server: the line about its reuse, its slot, its tokens, and those that were there already."""

    line: Line
    slot: str
    n_tokens: int
    n_reused: int


def prompt_read_again(seen: Observed) -> Found | None:
    """Three or more long prompts of which next to nothing was reused; the first never counts, nor do embeddings."""
    if _only_embeddings(seen):
        return None
    long = [prompt for prompt in _prompts(seen) if prompt.n_tokens >= LONG_PROMPT]
    again = [prompt for prompt in long[1:] if prompt.n_reused < 0.1 * prompt.n_tokens]
    if len(again) < FEWEST_REQUESTS or len(again) < (len(long) - 1) / 2:
        return None
    slots = {prompt.slot for prompt in long}
    lines = tuple(prompt.line for prompt in again[:MOST_LINES])
    values = {"n": len(again), "least": LONG_PROMPT, "why": _why_again(len(slots), _one_at_a_time(seen))}
    return Found(lines, values)


ENDPOINT = re.compile(r"log_server_r: (?:done )?request: POST (?:/v1)?/([\w/]{1,40}) ")
"""tools/server/server-http.cpp:67, server.cpp:255; without `done` in 2025"""
FOR_VECTORS = ("embedding", "embeddings", "rerank", "reranking")
GENERATING = ("completion", "completions", "chat/completions", "responses", "messages", "infill")


def _only_embeddings(seen: Observed) -> bool:
    """Whether requests were for embeddings or ranks, of which nothing can be reused, and none for an answer."""
    asked = {match[1] for line in seen.lines("request: POST ") if (match := ENDPOINT.search(line.text))}
    return not asked.isdisjoint(FOR_VECTORS) and asked.isdisjoint(GENERATING)


def _why_again(n_slots: int, in_turn: bool) -> str:
    if n_slots < 2:
        return "their beginnings differ"
    client = ", though never two were answered at once" if in_turn else ""
    return f"their beginnings differ, or they came to another slot: {n_slots} slots took them{client}"


def _prompts(seen: Observed) -> list[Prompt]:
    """Every prompt with what was reused of it, told apart by slot and task; later such lines of one do not count."""
    needles = ("new prompt, ", " rm [", "_rm [")
    lines = sorted((line for needle in needles for line in seen.lines(needle)), key=lambda line: line.number)
    waiting: dict[str, int] = {}
    prompts = []
    for line in lines:
        slot, task = _slot(line)
        if match := PROMPT.search(line.text):
            waiting[f"{slot} {task}"] = int(match[1])
        elif (match := REUSED.search(line.text)) and (n_tokens := waiting.pop(f"{slot} {task}", 0)):
            prompts.append(Prompt(line, slot, n_tokens, int(match[1])))
    return prompts


def _slot(line: Line) -> tuple[str, str]:
    match = SLOT.search(line.text)
    return (match[1], match[2]) if match else ("", "")


def _one_at_a_time(seen: Observed) -> bool:
    """Whether each request had ended before the next one began, as with one client; not so where an end is missing."""
    events = [(line.number, 1) for line in seen.lines("new prompt, ")]
    events += [(line.number, -1) for line in seen.lines("stop processing: ")]
    active = most = 0
    for _, change in sorted(events):
        active += change
        most = max(most, active)
    return most == 1


REMOVED = re.compile(r"removing oldest entry \(size = (\d{1,9}(?:\.\d{1,6})?) MiB\)")
READ = re.compile(r"\| task {1,6}(\d{1,9}) \| {1,4}prompt eval time = .{1,40}? ms / {1,12}(\d{1,12}) tokens")
LONG_AGAIN = 2048
FEWEST_AGAIN = 2


def prompts_thrown_out(seen: Observed) -> Found | None:
    """The cache of prompts is full, and long prompts are read while older ones are thrown out."""
    removed = [line for line in seen.lines("removing oldest entry") if REMOVED.search(line.text)]
    after = [line for line in seen.lines("prompt eval time =") if removed and line.number > removed[0].number]
    read = [int(match[2]) for line in after if (match := READ.search(line.text))]
    long = [tokens for tokens in read if tokens >= LONG_AGAIN]
    if len(removed) < FEWEST_AGAIN or len(long) < FEWEST_AGAIN:
        return None
    return Found(tuple(removed[:MOST_LINES]), {"removed": len(removed), "n": len(long), "tokens": f"{min(long):,}"})


def slots_fill_cache(seen: Observed) -> Found | None:
    """Idle slots held the cells that a request needed, so that the server emptied them."""
    purged = [line for line in seen.lines("purging slot ") if re.search(r"slot \d{1,4} with \d{1,9} tokens", line.text)]
    if not purged:
        return None
    tokens = [int(match[1]) for line in purged if (match := re.search(r"with (\d{1,9}) tokens", line.text))]
    client = " Never two requests were answered at once." if _one_at_a_time(seen) else ""
    retried = [line for line in [seen.first("retrying with smaller batch size")] if line]
    values = {"n": len(purged), "tokens": f"{sum(tokens):,}", "client": client}
    return Found((*purged[: MOST_LINES - 1], *retried), values)


FEW_ACCEPTED = 0.5
FEWEST_DRAFTED = 100
SAVED = 2.0
"""Tokens for a pass, from which on rejected drafts are no sign of lost time."""
HARDLY = 1.05
ACCEPTED = re.compile(
    r"\( {0,12}(\d{1,12}) accepted / {0,12}(\d{1,12}) generated\)(?:, mean len = {1,8}(\d{1,6}\.\d{1,4}))?"
)
CALLS = re.compile(r"statistics {1,16}([\w-]{1,24}): {1,4}#calls\(b,g,a\) = {1,8}(\d{1,9}) ")
DURATIONS = re.compile(r"dur\(b,g,a\) = \d{1,12}\.\d{1,6}, (\d{1,12}\.\d{1,6}), ")


@dataclass(frozen=True)
class Drafts:
    """What the requests since the load tell of drafting.

    per_pass  tokens for each pass that checked a draft, where the lines say so, else as `overall`
    overall   tokens for each pass, with those that checked no draft; None where no answer is told
    share     share of the answers' time that drafting took, None where no line has it
    """

    line: Line
    accepted: int
    drafted: int
    per_pass: float | None
    overall: float | None
    share: float | None

    @property
    def rate(self) -> float:
        return self.accepted / self.drafted

    @property
    def rejected(self) -> bool:
        """Whether most tokens are rejected, and a pass gives hardly more than one."""
        return self.rate < FEW_ACCEPTED and (self.per_pass is None or self.per_pass < SAVED)

    @property
    def at_most(self) -> float | None:
        """How many times faster than without drafts at most: a pass that checks a draft takes no less than another."""
        return self.overall * (1 - self.share) if self.overall and self.share is not None else None


def _drafts(seen: Observed) -> Drafts | None:
    lines = [(line, match) for line in seen.lines("draft acceptance") if (match := ACCEPTED.search(line.text))]
    accepted, drafted = (sum(int(match[group]) for _, match in lines) for group in (1, 2))
    if drafted < FEWEST_DRAFTED:
        return None
    answers = seen.rates[1]
    passes = answers.n_tokens - accepted if answers else 0
    overall = answers.n_tokens / passes if answers and passes > 0 else None
    per_pass = _mean_length([match for _, match in lines]) or overall
    return Drafts(lines[-1][0], accepted, drafted, per_pass, overall, _share_of_drafting(seen))


def _mean_length(requests: list[re.Match[str]]) -> float | None:
    """`mean len` of all requests together; None where a line lacks it, or says 1.00 of a draft that was accepted."""
    passes = [int(match[1]) / (float(match[3]) - 1) for match in requests if match[3] and float(match[3]) > 1]
    if not sum(passes) or len(passes) < len(requests):
        return None
    return 1 + sum(int(match[1]) for match in requests) / sum(passes)


def _share_of_drafting(seen: Observed) -> float | None:
    """Drafting's part of the answers' time; None where the statistics are of more requests than the log has."""
    answers = seen.rates[1]
    latest = {match[1]: line for line in seen.lines("statistics ") if (match := CALLS.search(line.text))}
    times = [(CALLS.search(line.text), DURATIONS.search(line.text)) for line in latest.values()]
    known = [(int(calls[2]), float(dur[1]) / 1000) for calls, dur in times if calls and dur]
    if not (answers and answers.seconds and known) or max(calls for calls, _ in known) > answers.n_requests:
        return None
    return min(1.0, sum(seconds for _, seconds in known) / answers.seconds)


def draft_rejected(seen: Observed) -> Found | None:
    drafts = _drafts(seen)
    if drafts is None or not drafts.rejected:
        return None
    return Found((drafts.line,), {"share": 100 * drafts.rate, "generated": drafts.drafted})


def draft_without_gain(seen: Observed) -> Found | None:
    """Drafts are accepted, and drafting takes so much of the time that nothing can be left of the gain."""
    drafts = _drafts(seen)
    if drafts is None or drafts.rejected or drafts.at_most is None or drafts.at_most > HARDLY:
        return None
    durations = [line for line in seen.lines("statistics ") if DURATIONS.search(line.text)][-1:]
    values = {"share": 100 * drafts.rate, "per_pass": drafts.overall, "drafting": 100 * (drafts.share or 0)}
    return Found((drafts.line, *durations), values)


def draft_to_measure(seen: Observed) -> Found | None:
    """Drafts are accepted, or make long steps, and no time in the log says that they gain nothing."""
    drafts = _drafts(seen)
    if drafts is None or drafts.rejected or (drafts.at_most is not None and drafts.at_most <= HARDLY):
        return None
    what = f"Of {drafts.drafted:,} drafted tokens {100 * drafts.rate:.0f} % were accepted"
    what += f", and a pass that checks a draft gives {drafts.per_pass:.1f} tokens" if drafts.per_pass else ""
    what += f"; drafting takes {100 * drafts.share:.0f} % of the time" if drafts.share is not None else ""
    return Found((drafts.line,), {"what": f"{what}. How long a pass without a draft takes, the log does not say."})


def draft_unused(seen: Observed) -> Found | None:
    """A draft model was loaded, and the line of level 4 says that no type of speculation was given."""
    loaded = list(seen.lines("loading draft model"))
    unused = list(seen.lines("no implementations specified for speculative decoding"))
    return Found((loaded[-1], unused[-1]), {}) if loaded and unused else None


MUCH = GIB
CACHE_STATE = re.compile(
    r"cache state: (\d{1,9}) prompts, (\d{1,9})(?:\.\d{1,6})? MiB \(limits: (\d{1,9})(?:\.\d{1,6})? MiB"
)
CHECKPOINTS = re.compile(
    r"created context checkpoint \d{1,6} of (\d{1,6}) \(.{1,120}?size = (\d{1,9}(?:\.\d{1,6})?) MiB\)"
)
FREE_RAM = re.compile(r"- CPU {1,8}: .{1,120} \((\d{1,9}) MiB, (\d{1,9}) MiB free\)")  # common/common.cpp:414
"""Outside Windows both are all of RAM, ggml-cpu.cpp:377."""


def _cache_state(seen: Observed) -> tuple[Line, int, int, int] | None:
    """The last line about the cache of prompts: prompts, bytes, and the limit in bytes, 0 for none."""
    line = seen.log.last("cache state: ", seen.load.start)
    match = line and CACHE_STATE.search(line.text)
    return (line, int(match[1]), int(match[2]) * MIB, int(match[3]) * MIB) if line and match else None


IN_CACHE = re.compile(r": {1,8}(\d{1,9}) tokens, checkpoints: {1,8}(\d{1,6}), {1,12}(\d{1,9}(?:\.\d{1,6})?) MiB")


def _largest(seen: Observed) -> str:
    """The largest prompt of the last state, where its lines are there."""
    start = seen.log.text.rfind("cache state: ")
    parts = [
        match for line in seen.log.lines_with("tokens, checkpoints: ", start) if (match := IN_CACHE.search(line.text))
    ]
    if not parts:
        return ""
    tokens, checkpoints, size = max(((int(m[1]), int(m[2]), float(m[3])) for m in parts), key=lambda part: part[2])
    return f" The largest has {tokens:,} tokens and {checkpoints} checkpoints, {bytes_text(round(size * MIB))} in all."


def _risk(seen: Observed, limit: int) -> str:
    """Why the cache of prompts may use up RAM; "" where the log does not show it."""
    if not limit:
        return "It has no limit"
    line = seen.first("- CPU ")
    match = line and FREE_RAM.search(line.text)
    in_ram = sum(buffer.n_bytes for buffer in seen.buffers if buffer.device.startswith("CPU"))
    if not match or limit + in_ram <= int(match[2]) * MIB:
        return ""
    free = bytes_text(int(match[2]) * MIB)
    ram = f"the machine has {free} of RAM" if match[1] == match[2] else f"{free} of RAM were free at the start"
    return f"It may take {bytes_text(limit)}{f' beside {bytes_text(in_ram)} of the model' if in_ram else ''}, and {ram}"


def prompt_cache_in_ram(seen: Observed, risky: bool = False) -> Found | None:
    """The caches of earlier prompts take a GiB or more: a note, or a risk where no limit or too little RAM is told.

    Fewer are no risk yet: most runs end long before their limit.
    """
    state = _cache_state(seen)
    if state is None or state[2] < MUCH:
        return None
    line, n, size, limit = state
    risk = _risk(seen, limit)
    if bool(risk) != risky:
        return None
    values = {"size": bytes_text(size), "n": n, "limit": bytes_text(limit), "risk": risk, "largest": _largest(seen)}
    return Found((line,), values)


def prompt_cache_at_risk(seen: Observed) -> Found | None:
    return prompt_cache_in_ram(seen, risky=True)


def checkpoints_in_ram(seen: Observed) -> Found | None:
    """The states of a windowed or recurrent model that each slot may keep take a GiB or more."""
    line = seen.log.last("created context checkpoint ", seen.load.start)
    match = line and CHECKPOINTS.search(line.text)
    if not line or not match:
        return None
    most, size = int(match[1]), float(match[2]) * MIB
    if most * size < MUCH:
        return None
    slots = seen.context.n_slots or 1
    all_slots = f", {bytes_text(round(slots * most * size))} for all {slots}" if slots > 1 else ""
    values = {"most": most, "size": bytes_text(round(size)), "slot": bytes_text(round(most * size)), "all": all_slots}
    return Found((line,), values)


CONDITIONS = (
    prompt_read_again,
    prompts_thrown_out,
    slots_fill_cache,
    draft_rejected,
    draft_without_gain,
    draft_to_measure,
    draft_unused,
    prompt_cache_in_ram,
    prompt_cache_at_risk,
    checkpoints_in_ram,
)
