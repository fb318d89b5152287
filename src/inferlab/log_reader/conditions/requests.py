"""What happened to prompts, answers and drafts."""

from __future__ import annotations

import re

from inferlab.log_reader.conditions.found import FEWEST_REQUESTS, MOST_LINES, Found
from inferlab.log_reader.observed import RUNNER_STARTS, Observed
from inferlab.log_reader.text import Line


def request_too_long(seen: Observed) -> Found | None:
    """llama-server's 400, or llama-cpp-python's ValueError."""
    for needle, pattern in (
        (
            "exceeds the available context size",
            r"request \((\d{1,12}) tokens\) exceeds the available context size \((\d{1,12})",
        ),
        ("exceed context window of", r"Requested tokens \((\d{1,12})\) exceed context window of (\d{1,12})"),
        ("exceeds the available context size", r"the request exceeds the available context size()()"),
        ("the prompt is longer than the context length", r"the prompt is longer than the context length()()"),
    ):
        line = seen.first(needle)
        if line and (match := re.search(pattern, line.text)):
            return Found(*_too_long(seen, line, match[1], match[2]))
    return None


def _too_long(seen: Observed, line: Line, tokens: str, limit: str) -> tuple[tuple[Line, ...], dict[str, str]]:
    what = (
        f"A request of {int(tokens):,} tokens is longer than the context of {int(limit):,}."
        if tokens
        else "A request is longer than the context."
    )
    context = seen.context
    if context.n_slots and context.n_slots > 1 and context.kv_unified is False and context.n_ctx:
        slots = seen.first("n_slots = ")
        what = what[:-1] + f", which is {context.n_ctx:,} divided among {context.n_slots} slots."
        return ((line, slots) if slots else (line,)), {"what": what}
    if limit == "512" and seen.program.key == "python":
        what += " 512 is the default of llama-cpp-python."
    return (line,), {"what": what}


def prompt_truncated(seen: Observed) -> Found | None:
    """Ollama's warning; what it kept is the limit where the line does not say it."""
    line = seen.log.last("truncating input prompt")
    pattern = r"limit=(\d{1,12}) prompt=(\d{1,12})(?: .{0,40}?new=(\d{1,12}))?"
    if not line or not (match := re.search(pattern, line.text)):
        return None
    return Found((line,), {"prompt": int(match[2]), "kept": int(match[3] or match[1])})


LONG_PROMPT = 512


def prompt_read_again(seen: Observed) -> Found | None:
    """Three or more long prompts of which next to nothing was reused; the first one never counts."""
    long = [reuse for reuse in _reuses(seen) if reuse[1] >= LONG_PROMPT]
    again = [line for line, n_tokens, n_reused in long[1:] if n_reused < 0.1 * n_tokens]
    if len(again) < FEWEST_REQUESTS or len(again) < (len(long) - 1) / 2:
        return None
    return Found(tuple(again[:MOST_LINES]), {"n": len(again), "least": LONG_PROMPT})


def _reuses(seen: Observed) -> list[tuple[Line, int, int]]:
    """The line about reuse, the tokens and the reused ones of each prompt; its later such lines do not count."""
    lines = sorted(
        [*seen.lines("new prompt, "), *seen.lines(" rm ["), *seen.lines("_rm [")], key=lambda line: line.number
    )
    reuses, n_tokens = [], 0
    for line in lines:
        if match := re.search(r"new prompt, .{0,80}(?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})", line.text):
            n_tokens = int(match[1])
        elif n_tokens and (match := re.search(r"(?:cache rm|seq_rm) \[(\d{1,12}), end\)", line.text)):
            reuses.append((line, n_tokens, int(match[1])))
            n_tokens = 0
    return reuses


def loaded_again(seen: Observed) -> Found | None:
    """Ollama started a runner for one model three times or more."""
    starts: dict[str, list[tuple[Line, str]]] = {}
    for needle in RUNNER_STARTS:
        for line in seen.log.lines_with(needle):
            model = re.search(r"--model (\S{1,300})", line.text)
            context = re.search(r"(?:--ctx-size|-c) (\d{1,12})\b", line.text)
            if model:
                starts.setdefault(model[1], []).append((line, context[1] if context else ""))
    most = max(starts.values(), key=len, default=[])
    contexts = {context for _, context in most if context}
    if len(most) < FEWEST_REQUESTS and len(contexts) < 2:
        return None
    sizes = ", ".join(f"{int(size):,}" for size in sorted(contexts, key=int)[:MOST_LINES])
    why = f", with contexts of {sizes} tokens: clients ask for different ones" if len(contexts) > 1 else ""
    return Found(
        tuple(line for line, _ in most[:MOST_LINES]), {"what": f"The same model was loaded {len(most)} times{why}."}
    )


FEW_ACCEPTED = 0.5


FEWEST_DRAFTED = 100


def draft_rejected(seen: Observed) -> Found | None:
    accepted = generated = 0
    last = None
    for line in seen.lines("draft acceptance"):
        if match := re.search(r"\( {0,12}(\d{1,12}) accepted / {0,12}(\d{1,12}) generated\)", line.text):
            accepted, generated, last = accepted + int(match[1]), generated + int(match[2]), line
    if last is None or generated < FEWEST_DRAFTED or accepted >= FEW_ACCEPTED * generated:
        return None
    return Found((last,), {"share": 100 * accepted / generated, "generated": generated})


def draft_unused(seen: Observed) -> Found | None:
    """A draft model was loaded, and the line of level 4 says that no type of speculation was given."""
    loaded = list(seen.lines("loading draft model"))
    unused = list(seen.lines("no implementations specified for speculative decoding"))
    return Found((loaded[-1], unused[-1]), {}) if loaded and unused else None


CONDITIONS = (
    request_too_long,
    prompt_truncated,
    prompt_read_again,
    loaded_again,
    draft_rejected,
    draft_unused,
)
