"""What happened to requests: their prompts, their templates and their answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from inferlab.log_reader.conditions.found import MOST_LINES, MOST_READ, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import Line
from inferlab.units import GIB

TOO_LONG = (
    (
        "exceeds the available context size",
        r"request \((\d{1,12}) tokens\) exceeds the available context size \((\d{1,12})",
    ),
    ("exceed_context_size_error", r'"n_prompt_tokens":(\d{1,12}),"n_ctx":(\d{1,12})'),
    ("exceed context window of", r"Requested tokens \((\d{1,12})\) exceed context window of (\d{1,12})"),
    (
        "is larger than the max context size",
        r"input \((\d{1,12}) tokens\) is larger than the max context size \((\d{1,12})",
    ),
    ("prompt is too long (", r"prompt is too long \((\d{1,12}) tokens, max (\d{1,12})\)"),  # tools/completion
    (  # LM Studio, lmstudio-bug-tracker#546
        "Trying to keep the first ",
        r"keep the first (\d{1,12}) tokens when .{1,90}? with (?:a )?context length of only (\d{1,12})",
    ),
    ("Cannot truncate prompt with n_keep", r"n_keep \((\d{1,12})\) >= n_ctx \((\d{1,12})\)"),  # opencode#11141
    (
        "tokens to keep from the initial prompt is greater than the context length",
        r"\(n_keep: {0,2}(\d{1,12}) {0,2}>= {0,2}n_ctx: {0,2}(\d{1,12})\)",
    ),
    ("exceeds the available context size", r"the request exceeds the available context size()()"),
    ("the prompt is longer than the context length", r"the prompt is longer than the context length()()"),
    ("input length exceeds ", r"input length exceeds (?:the context length|maximum context length)()()"),  # Ollama
    ("input exceeds maximum context length", r"input exceeds maximum context length()()"),
    ("Input is too large to process. Either ", r"Input is too large to process\. Either (?:enable|disable)()()"),
)
"""Refusals of each program, with the tokens of the request and of the context where the line has them."""


def _refusals(seen: Observed) -> Iterator[tuple[Line, int | None, int | None]]:
    """A line for each refused request, its tokens and the limit."""
    for needle, pattern in TOO_LONG:
        for line in islice(seen.lines(needle), MOST_READ):
            match = re.search(pattern, line.text)
            if match and "context shift is disabled" not in line.text:
                yield line, int(match[1]) if match[1] else None, int(match[2]) if match[2] else None


def _longest(seen: Observed) -> tuple[Line, int | None, int | None] | None:
    """The refusal of the longest request, the first of several."""
    refusals = list(_refusals(seen))
    most = max((tokens or 0 for _, tokens, _ in refusals), default=0)
    return next((refusal for refusal in refusals if (refusal[1] or 0) == most), None)


def _beyond_training(seen: Observed, tokens: int | None) -> bool:
    trained = seen.model.n_ctx_train
    return bool(tokens and trained and tokens > trained)


def request_too_long(seen: Observed) -> Found | None:
    """A request that its context refused, and that the model could read."""
    refusal = _longest(seen)
    if not refusal or _beyond_training(seen, refusal[1]):
        return None
    line, tokens, limit = refusal
    return Found(*_too_long(seen, line, tokens, limit))


def _too_long(
    seen: Observed, line: Line, tokens: int | None, limit: int | None
) -> tuple[tuple[Line, ...], dict[str, str]]:
    what = (
        f"A request of {tokens:,} tokens is longer than the context of {limit:,}."
        if tokens and limit
        else "A request is longer than the context."
    )
    context = seen.context
    if context.n_slots and context.n_slots > 1 and context.kv_unified is False and context.n_ctx:
        slots = seen.first("n_slots = ")
        what = what[:-1] + f", which is {context.n_ctx:,} divided among {context.n_slots} slots."
        return ((line, slots) if slots else (line,)), {"what": what}
    if limit == 512 and seen.program.key == "python":
        what += " 512 is the default of llama-cpp-python."
    return (line,), {"what": what}


def request_beyond_training(seen: Observed) -> Found | None:
    """A refused request that is longer than what the model was trained for, so that no context makes room for it."""
    refusal = _longest(seen)
    if not refusal or not _beyond_training(seen, refusal[1]):
        return None
    trained = seen.first(" n_ctx_train ")
    lines = (refusal[0], trained) if trained and trained.number != refusal[0].number else (refusal[0],)
    return Found(lines, {"tokens": refusal[1], "trained": seen.model.n_ctx_train})


def prompt_truncated(seen: Observed) -> Found | None:
    """Ollama's warnings with the last limit, of which the one about the longest prompt is told."""
    lines = list(islice(seen.log.lines_with("truncating input prompt"), MOST_READ))
    cut = [(int(match[2]), match, line) for line in lines if (match := TRUNCATED.search(line.text))]
    if not cut:
        return None
    cut = [one for one in cut if one[1][1] == cut[-1][1][1]]
    prompt, match, line = max(cut, key=lambda one: one[0])
    prompts, of = ("the prompt", "") if len(cut) == 1 else (f"{len(cut)} prompts", " of the longest")
    kept = f"{int(match[3] or match[1]):,}"
    return Found((line,), {"prompts": prompts, "prompt": f"{prompt:,}", "of": of, "kept": kept})


TRUNCATED = re.compile(r"limit=(\d{1,12}) prompt=(\d{1,12})(?: .{0,40}?new=(\d{1,12}))?")
"""What it kept is the limit where the line does not say it."""


CAPPED = (
    (
        "requested context size too large for model",  # ollama llm/server.go:114; before v0.10 with num_parallel
        r"num_ctx=(\d{1,12}) (?:num_parallel=(\d{1,4}) )?n_ctx_train=(\d{1,12})",
    ),
    (
        "exceeds the training context of the model",  # tools/server/server-context.cpp:1214
        r"slot context \((\d{1,12})\)() exceeds the training context of the model \((\d{1,12})\) - capping",
    ),
)


def context_capped(seen: Observed) -> Found | None:
    """More context was asked for than the model was trained for, and the program gives no more than that."""
    server = max(0, seen.log.text.rfind('msg="Listening on '))
    for needle, pattern in CAPPED:
        own = seen.first(needle)
        line = own or (seen.log.last(needle, server) if seen.program.key == "ollama" else None)
        if line and (match := re.search(pattern, line.text)):
            asked = int(match[1]) // int(match[2] or 1)
            said = _asked(seen, asked) if own else f"In an earlier load: {_asked(seen, asked)}"
            return Found((line,), {"asked": said, "trained": f"{int(match[3]):,}"})
    return None


def _asked(seen: Observed, n_ctx: int) -> str:
    line = seen.log.last('msg="vram-based default context"')
    if line and re.search(rf"default_num_ctx={n_ctx}\b", line.text):
        by = "" if 'total_vram="0 B"' in line.text else ", by the memory of the GPU,"
        return f"Ollama's default{by} is a context of {n_ctx:,} tokens"
    return f"A context of {n_ctx:,} tokens was asked for"


CUT = ("truncated = 1", "contextLengthReached")
"""tools/server/server-context.cpp:518, LM Studio's reason of an end"""
SHIFTED = ('"truncated":true', "truncated=true")
"""The server of 2024, which marks a slot so once it has cut a prompt or dropped the oldest half of a context"""


def context_dropped(seen: Observed) -> Found | None:
    """Requests of a server of 2024 for which the context was too short, and which went on without a part of it."""
    lines = [line for needle in SHIFTED for line in seen.lines(needle) if "slot released" in line.text]
    if not lines:
        return None
    size = seen.context.n_ctx_slot or seen.context.n_ctx
    requests = "A request" if len(lines) == 1 else f"{len(lines)} requests"
    values = {"requests": requests, "size": f" of {size:,} tokens" if size else ""}
    return Found(tuple(lines[:MOST_LINES]), values)


def answers_cut(seen: Observed) -> Found | None:
    """Answers that ended because their slot's context was full."""
    lines = [line for needle in CUT for line in seen.lines(needle) if _of_an_answer(line)]
    if not lines:
        return None
    said = seen.first("n_ctx_slot = ")
    match = said and re.search(r"n_ctx_slot = (\d{1,12})", said.text)
    size = seen.context.n_ctx_slot or (int(match[1]) if match else None)
    answers = "An answer" if len(lines) == 1 else f"{len(lines)} answers"
    return Found(tuple(lines[:MOST_LINES]), {"answers": answers, "size": f" of {size:,} tokens" if size else ""})


def _of_an_answer(line: Line) -> bool:
    return any(word in line.text for word in ("stop processing: n_", "slot released", "contextLengthReached"))


LIMITED = (
    "stopped by limit, n_",  # tools/server/server-context.cpp:1881, with n_decoded before
    '"finish_reason":"length"',
    '"finish_reason": "length"',
    '"done_reason":"length"',
    "maxPredictedTokensReached",  # LM Studio
)


def answers_limited(seen: Observed) -> Found | None:
    """Answers that ended at the number of tokens that their request allows."""
    for needle in LIMITED:
        if line := seen.first(needle):
            match = re.search(r"n_predict = (\d{1,9})", line.text)
            return Found((line,), {"limit": _limit(match)})
    return None


def _limit(match: re.Match[str] | None) -> str:
    return (
        f"the {int(match[1]):,} tokens that its request allows" if match else "a limit of its request or of the context"
    )


VERY_SLOW, HARDLY_MOVES = 2.0, 0.3
"""Tokens per second: of a model whose size the log tells, and of any."""
SLOWEST_RAM, SLOWEST_CARD = GIB, 5 * GIB
"""Bytes a second, less than a small board's RAM or any GPU reads; weights read so slowly lie elsewhere, or wait."""
FEWEST_TOKENS = 10


def very_slow(seen: Observed) -> Found | None:
    """Answers far slower than memory can be read, of which the log names no cause."""
    answer = seen.rates[1]
    if not answer or answer.n_tokens < FEWEST_TOKENS or not answer.seconds:
        return None
    rate, weights = answer.n_tokens / answer.seconds, _weights_read(seen)
    on_gpu = seen.bytes_on("weights", host=False) > seen.bytes_on("weights", host=True)
    slowest = SLOWEST_CARD if on_gpu else SLOWEST_RAM
    if rate >= (VERY_SLOW if weights else HARDLY_MOVES) or weights * rate >= slowest:
        return None
    line = next(line for line in seen.log.lines_with("eval time ", seen.load.loader) if "prompt eval" not in line.text)
    prompt = seen.rates[0]
    beside = f", and prompts at {prompt.text}" if prompt and prompt.fastest else ""
    return Found((line,), {"rate": answer.text, "prompt": beside})


def _weights_read(seen: Observed) -> int:
    """The weights that each token reads, 0 where the log does not say it, or where only some experts are read."""
    held = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "weights")
    return 0 if seen.model.n_expert else seen.model.weights_bytes or held


FEWEST_WORDS = 4
"""Tokens of a prompt that hold no chat: the beginning of the text, and what a template writes around nothing."""
CHATS = ("/chat/completions", "/v1/messages", "/api/chat", "Chat format: ", "chat format: ")
PROMPT = re.compile(r"new prompt, .{0,80}(?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})")


def prompts_without_words(seen: Observed) -> Found | None:
    """Two or more chats, and all prompts of a few tokens, so that the template has lost the messages."""
    prompts = [(line, int(match[1])) for line in seen.lines("new prompt, ") if (match := PROMPT.search(line.text))]
    most = max((tokens for _, tokens in prompts), default=0)
    if len(prompts) < 2 or not 0 < most <= FEWEST_WORDS or not any(seen.first(word) for word in CHATS):
        return None
    lines = tuple(line for line, _ in prompts[:MOST_LINES])
    return Found(lines, {"n": len(prompts), "most": "one token" if most == 1 else f"at most {most} tokens"})


RAISED = (
    "got exception: ",  # tools/server/server.cpp:79
    "Jinja Exception: ",  # common/jinja
    "exceptions.TemplateError: ",  # jinja2, of llama-cpp-python
    "Error rendering prompt with jinja template",  # LM Studio
    "Value is not callable: ",  # minja, llama.cpp of 2025
    "Cannot subscript null at row ",
    "Unknown method: ",
)
"""What stands before the error of a template in use; the templates themselves, which a log may show, do not count."""
ROLES = re.compile(r"roles? must alternate|must alternate between user|alternate user and assistant", re.IGNORECASE)
SYSTEM = re.compile(
    r"system role (?:is )?not supported|only user(?:,| and) assistant\w*,? (?:and tool )?roles", re.IGNORECASE
)
JINJA = re.compile(r"requires --jinja flag|custom template is not supported, try using --jinja")
OF_A_TEMPLATE = re.compile(
    r"Jinja Exception|TemplateError|jinja template|While executing \w|for this template| at row \d{1,6}, column \d"
)
SAID = re.compile(
    r"Jinja Exception: ([^\"\\]{1,140})|TemplateError: (.{1,140}?)\s*$|jinja template: {0,2}\\?\"?([^\"]{1,140})"
    r"|\"message\":\"(?:\\n|-)*([^\"\\]{1,140})"
    r"|^(?:.{0,80}: )??((?:Value is not callable|Cannot subscript|Unknown method)[^\"\\]{1,140}?)(?: at row|$)"
)


def _raised(seen: Observed, kind: re.Pattern[str], but: tuple[re.Pattern[str], ...] = ()) -> Line | None:
    for needle in RAISED:
        for line in islice(seen.lines(needle), MOST_READ):
            if kind.search(line.text) and not any(other.search(line.text) for other in but):
                return line
    return None


def _template(name: str, kind: re.Pattern[str]) -> Callable[[Observed], Found | None]:
    """A condition: a template ended a request with an error of one kind."""

    def condition(seen: Observed) -> Found | None:
        line = _raised(seen, kind)
        return Found((line,)) if line else None

    condition.__name__ = name
    return condition


def template_failed(seen: Observed) -> Found | None:
    """Any other error of a template, in its own words."""
    line = _raised(seen, OF_A_TEMPLATE, but=(ROLES, SYSTEM, JINJA))
    if not line:
        return None
    match = SAID.search(line.text)
    said = next((group for group in match.groups() if group), "").strip(" .\n") if match else ""
    return Found((line,), {"why": f": {said}" if said else ""})


NOT_CAPABLE = re.compile(
    r"([\w./:@-]{1,120})\\?\"? does not support (tools|thinking|chat|generate|insert|vision|embeddings?)\b"
)


def capability_missing(seen: Observed) -> Found | None:
    """Ollama's answer to a request that a model cannot serve; where it goes on without, it says so (relaxing)."""
    for needle in ("tools", "thinking", "chat", "generate", "insert", "vision", "embed"):
        for line in islice(seen.lines(f" does not support {needle}"), MOST_READ):
            match = NOT_CAPABLE.search(line.text)
            if match and "relaxing" not in line.text and match[1].lower() not in NO_MODELS:
                return Found((line,), {"model": match[1].rpartition("library/")[2], "capability": match[2]})
    return None


NO_MODELS = (
    "server",
    "model",
    "runner",
    "backend",
    "device",
    "engine",
    "context",
    "endpoint",
    "template",
    "it",
    "that",
    "mode",
)
"""Words before `does not support` that name no model."""
BATCH_TOO_SMALL = re.compile(
    r"input \((\d{1,12}) tokens\) is too large to process\. increase the physical batch size "
    r"\(current batch size: (\d{1,12})\)"
)


def batch_too_small(seen: Observed) -> Found | None:
    """tools/server/server-context.cpp:3167; without numbers before 2025."""
    line = seen.first("input is too large to process. increase the physical batch size")
    for said in seen.lines("is too large to process. increase the physical batch size"):
        if match := BATCH_TOO_SMALL.search(said.text):
            values = {"n": f" of {int(match[1]):,} tokens", "batch": f" of {int(match[2]):,}"}
            return Found((said,), values)
    return Found((line,), {"n": "", "batch": ""}) if line else None


CONDITIONS = (
    request_too_long,
    request_beyond_training,
    prompt_truncated,
    context_capped,
    context_dropped,
    answers_cut,
    answers_limited,
    very_slow,
    prompts_without_words,
    _template("template_roles", ROLES),
    _template("template_without_system", SYSTEM),
    _template("template_needs_jinja", JINJA),
    template_failed,
    capability_missing,
    batch_too_small,
)
