"""Passes, drafts and answers of the embedded model and of a shape, in this process or from two llama-servers.

The embedded model answers pieces of three texts: prose that its training never saw, the same prose with its beginning
repeated at the end of the prompt, and source code. Two servers run at once, and only one of them has a request at a
time; seconds and drafted tokens are those that llama-server reports with an answer. SmolLM2 answers `prompts` through
its chat template, until it ends an answer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inferlab import progress, statistics, units
from inferlab.engine.client import LlamaEngine
from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.quantize import quantize
from inferlab.engine.session import default_engine, this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import common_fields, served_fields
from inferlab.measurement.http_client import chat_prompt, server_tokens, whole_answer
from inferlab.measurement.same_answer import n_same, pieces
from inferlab.measurement.turns import in_turns
from inferlab.model.find import find_model, held_out_text, tiny_model
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.speculation.prompts import talks
from studies.speculation.speculative import (
    Drafter,
    DraftModel,
    PromptLookup,
    Speculation,
    VerifyCost,
    answers_in_turn,
    speculate_at,
    time_verification,
)
from studies.speculation.study import (
    CODE,
    PENALIZED,
    PROSE,
    REPEATING,
    Acceptance,
    AcceptanceCase,
    DraftedAnswer,
    ServedCase,
    ServedSpeculation,
    by_position,
)
from studies.speculation.trained import (
    CHOSEN,
    TEXTS,
    SeenCase,
    SeenDrafts,
    TrainedCase,
    TrainedDrafts,
    passes,
    record_of,
)

SHAPE = "llama-3.2-1b"
SIZES = 1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 32
"""Tokens in a pass."""
SOURCES = statistics, units, progress
"""Modules of the library, whose text is the code: a record made later has another text."""
N_AGAIN = 24
"""Tokens of its beginning that a repeating prompt has once more at its end."""
DRAFTERS: Mapping[str, Callable[[], Drafter]] = {
    "copy in Q4_K_M": lambda: DraftModel(quantize("tiny", "Q4_K_M")),
    "copy in Q2_K": lambda: DraftModel(quantize("tiny", "Q2_K")),
    "lookup of 2": lambda: PromptLookup(2),
    "lookup of 4": lambda: PromptLookup(4),
}
REQUESTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    REPEATING: (REPEATING, {}),
    PROSE: (PROSE, {}),
    PENALIZED: (PROSE, {"repeat_penalty": 1.3, "repeat_last_n": 512}),
}
"""Name of a task -> which prompts, and further fields of its requests. A penalty keeps greedy decode from repeating."""
KINDS: Mapping[str, Sequence[str]] = {
    "ngram-simple": ("ngram-simple",),
    "ngram-simple 4/8": ("ngram-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "8"),
    "ngram-map-k": ("ngram-map-k",),
    "ngram-map-k4v": ("ngram-map-k4v",),
    "ngram-mod": ("ngram-mod",),
    "ngram-cache": ("ngram-cache",),
    "draft-simple, copy in Q4_K_M": ("draft-simple", "-md", "{copy}"),
}
"""Name of a kind -> its type and further flags; sizes are the server's defaults unless the name has others."""
TRAINED, CHAT_SETTINGS = "smollm2", Settings(n_seq_max=1, n_ctx=2048, flash_attn="on")
LOOKUPS: Mapping[str, Sequence[str]] = {
    **{kind: flags for kind, flags in KINDS.items() if kind.startswith("ngram")},
    CHOSEN: ("ngram-simple", "--spec-ngram-simple-size-n", "6", "--spec-ngram-simple-size-m", "16"),
}
"""Kinds for the trained model: those of KINDS, and the sizes that the seen half chose (`trained.best_seen`)."""
TRAINED_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 24, 25, 32, 33, 49)


def verify(
    model: str, cases: Sequence[tuple[str, bool]], repeats: int, sizes: Sequence[int] = SIZES
) -> tuple[VerifyCost, ...]:
    """Time passes of the embedded model ("tiny") or of a shape for each (type, whether weights may be repacked)."""
    settings = Settings(n_ctx=256, flash_attn="on")
    return tuple(
        time_verification(_file(model, mix), settings.but(use_extra_bufts=repacked), sizes, repeats=repeats)
        for mix, repacked in cases
    )


def _file(model: str, mix: str) -> Path:
    if model == TRAINED:
        return find_model(model)
    if model != "tiny":
        return make_shape(model, mix)
    return tiny_model() if mix == "F16" else quantize("tiny", mix)


def fixed_acceptance(cases: Sequence[tuple[float, int]], n_gen: int, repeats: int) -> tuple[Speculation, ...]:
    """Time decode of the shape, without repacked weights, for each (acceptance, proposals a pass)."""
    path, settings = make_shape(SHAPE, "Q4_K_M"), Settings(n_ctx=256, flash_attn="on", use_extra_bufts=False)
    return tuple(speculate_at(rate, path, settings, n_draft, n_gen, repeats) for rate, n_draft in cases)


def prompts_of(engine: LlamaEngine, n_prompts: int, n_prompt: int) -> dict[str, list[Sequence[int]]]:
    """Prompts of each kind of text, as tokens; `engine` has the vocabulary open."""
    prose = pieces(engine.tokenize(held_out_text()), n_prompts, n_prompt)
    sources = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in SOURCES)
    code = pieces(engine.tokenize(sources), n_prompts, n_prompt)
    return {PROSE: prose, REPEATING: [[*piece[: n_prompt - N_AGAIN], *piece[:N_AGAIN]] for piece in prose], CODE: code}


def n_repeated(answer: Sequence[int]) -> int:
    """Tokens of an answer that follow the same four tokens as once before in it: how much it repeats itself."""
    seen = [tuple(answer[i : i + 5]) for i in range(len(answer) - 4)]
    return len(seen) - len(set(seen))


def acceptance(n_draft: int, n_gen: int, n_prompts: int, n_prompt: int) -> Acceptance:
    """Answer each prompt without a drafter and with it, in turn, and count what was accepted."""
    path, engine = tiny_model(), default_engine()
    with engine.exclusive():
        engine.open_vocabulary(path)
        prompts = prompts_of(engine, n_prompts, n_prompt)
        opening = engine.open(path, Settings(n_ctx=padded(n_prompt + n_gen + n_draft), flash_attn="on"))
        cases = tuple(
            _case(engine, drafter, text, some, n_draft, n_gen) for drafter in DRAFTERS for text, some in prompts.items()
        )
        common = common_fields(engine, opening, read_gguf(path))
    return Acceptance(**common, n_draft=n_draft, n_prompt=n_prompt, n_gen=n_gen, cases=cases)


def _case(
    engine: LlamaEngine, name: str, text: str, prompts: Sequence[Sequence[int]], n_draft: int, n_gen: int
) -> AcceptanceCase:
    drafter = DRAFTERS[name]()
    answers_in_turn(engine, drafter, prompts[0], n_draft, 2 * n_draft)  # not counted: the first passes are slow
    answers = tuple(_answer(engine, drafter, prompt, n_draft, n_gen) for prompt in prompts)
    drafter.close()
    return AcceptanceCase(text, name, answers)


def _answer(engine: LlamaEngine, drafter: Drafter, prompt: Sequence[int], n_draft: int, n_gen: int) -> DraftedAnswer:
    plain, plain_seconds, drafted, rounds = answers_in_turn(engine, drafter, prompt, n_draft, n_gen)
    tried, accepted = by_position(rounds, n_draft)
    return DraftedAnswer(
        rounds=tuple(sum(round_.proposed == n for round_ in rounds) for n in range(n_draft + 1)),
        tried=tried,
        accepted=accepted,
        n_same=n_same(plain, drafted),
        n_repeated=n_repeated(plain),
        plain_seconds=plain_seconds,
        draft_seconds=sum(round_.draft_seconds for round_ in rounds),
        check_seconds=sum(round_.check_seconds for round_ in rounds),
        checks=tuple(
            sum(round_.check_seconds for round_ in rounds if round_.proposed == n) for n in range(n_draft + 1)
        ),
    )


def served_speculation(n_prompts: int, n_prompt: int, n_gen: int) -> ServedSpeculation:
    """Decode answers with each kind of speculation and without, prompt by prompt in turn; needs llama-server."""
    path, engine = tiny_model(), default_engine()
    engine.open_vocabulary(path)
    prompts = prompts_of(engine, n_prompts, n_prompt)
    settings = Settings(n_seq_max=1, n_ctx=2 * (n_prompt + n_gen), flash_attn="on")
    copy, cases = str(quantize("tiny", "Q4_K_M")), []
    with llama_server(path, settings) as plain:
        for kind, flags in KINDS.items():
            with llama_server(path, settings, ["--spec-type", *(flag.format(copy=copy) for flag in flags)]) as drafting:
                client = _Client(plain, drafting, n_gen)
                cases += [client.compare(kind, task, prompts[text], body) for task, (text, body) in REQUESTS.items()]
        return ServedSpeculation(
            **served_fields(plain, read_gguf(path), this_machine()),
            n_prompt=n_prompt,
            n_gen=n_gen,
            cases=tuple(cases),
        )


class _Client:
    """Sends each prompt to both servers, the first one alternating."""

    def __init__(self, plain: LlamaServer, drafting: LlamaServer, n_gen: int) -> None:
        self.servers, self.n_gen = (plain, drafting), n_gen

    def compare(self, kind: str, task: str, prompts: Sequence[Sequence[int]], body: Mapping[str, Any]) -> ServedCase:
        """All prompts of a task; the first is asked once before, and that is not counted."""
        asked = [iter((prompts[0], *prompts)) for _ in self.servers]
        turns = in_turns(
            lambda side: self._answer(self.servers[side], next(asked[side]), body), (0, 1), (None, *prompts)
        )
        plain, drafted = (answers[1:] for answers in turns)
        return ServedCase(**_beside_plain(kind, plain, drafted), task=task)

    def _answer(self, server: LlamaServer, prompt: Sequence[int], body: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {
            "prompt": list(prompt),
            "n_predict": self.n_gen,
            "temperature": 0,
            "ignore_eos": True,
            "return_tokens": True,
            "cache_prompt": False,
        }
        return whole_answer(LOOPBACK_ADDRESS, server.port, "/completion", {**fixed, **body})


def _beside_plain(kind: str, plain: Sequence[Mapping], drafted: Sequence[Mapping]) -> dict[str, Any]:
    """The fields of `SpeculativeAnswers`, from llama-server's answers without speculation and with it."""
    return {
        "kind": kind,
        "plain_seconds": tuple(map(_seconds, plain)),
        "seconds": tuple(map(_seconds, drafted)),
        "n_drafted": tuple(answer["timings"].get("draft_n", 0) for answer in drafted),
        "n_accepted": tuple(answer["timings"].get("draft_n_accepted", 0) for answer in drafted),
        "n_same": tuple(n_same(a["tokens"], b["tokens"]) for a, b in zip(plain, drafted, strict=True)),
        "n_repeated": tuple(n_repeated(answer["tokens"]) for answer in plain),
    }


def _seconds(answer: Mapping[str, Any]) -> float:
    return answer["timings"]["predicted_ms"] / 1e3


# --- a trained model --------------------------------------------------------------------------


class _Chat:
    """Asks one server through the model's own chat template, greedily, until the answer ends or has n_gen tokens."""

    def __init__(self, server: LlamaServer, n_gen: int) -> None:
        self.server, self.n_gen = server, n_gen
        self.answer(chat_prompt(server.port, "Hello!"))  # the first pass is slow

    def answer(self, prompt: str) -> dict[str, Any]:
        """The answer, with its tokens and timings; nothing of an earlier request is used again."""
        fixed = {"temperature": 0, "return_tokens": True, "cache_prompt": False}
        body = {"prompt": prompt, "n_predict": self.n_gen, **fixed}
        return whole_answer(LOOPBACK_ADDRESS, self.server.port, "/completion", body)

    def prompts(self, text: str, seen: bool) -> list[str]:
        """Two for each beginning of one half of a kind of text; a chat's second one has the answer to the first."""
        found = []
        for talk in talks(text, seen):
            first = chat_prompt(self.server.port, talk.first)
            before = [talk.first, self.answer(first)["content"]] if talk.follows else []
            found += [first, chat_prompt(self.server.port, *before, talk.second)]
        return found

    def tokens(self, prompt: str) -> list[int]:
        """Of a prompt, as the server reads it."""
        return server_tokens(self.server.port, prompt, add_special=True)


def seen_drafts(sizes_n: Sequence[int], sizes_m: Sequence[int], n_gen: int) -> SeenDrafts:
    """Count what `ngram-simple` of each pair of sizes would draft of the seen half's answers; needs llama-server."""
    path = find_model(TRAINED)
    with llama_server(path, CHAT_SETTINGS) as server:
        chat = _Chat(server, n_gen)
        answers = {
            text: [(chat.tokens(prompt), chat.answer(prompt)["tokens"]) for prompt in chat.prompts(text, seen=True)]
            for text in TEXTS
        }
        cases = tuple(_seen(text, n, m, answers[text]) for text in TEXTS for n in sizes_n for m in sizes_m if m >= n)
        return SeenDrafts(**served_fields(server, read_gguf(path), this_machine()), n_gen=n_gen, cases=cases)


def _seen(text: str, n: int, m: int, answers: Sequence[tuple[list[int], list[int]]]) -> SeenCase:
    each = [passes(prompt, answer, n, m) for prompt, answer in answers]
    rounds = tuple(map(sum, zip(*(one.rounds for one in each), strict=True)))
    return SeenCase(text, n, m, rounds, sum(one.accepted for one in each))


def trained_drafts(kind: str, n_gen: int) -> TrainedDrafts:
    """Answer the prompts that are not seen with one kind of look-up and without, in turn; needs llama-server."""
    path = find_model(TRAINED)
    flags = ["--spec-type", *LOOKUPS[kind]]
    with llama_server(path, CHAT_SETTINGS) as plain, llama_server(path, CHAT_SETTINGS, flags) as drafting:
        chats = _Chat(plain, n_gen), _Chat(drafting, n_gen)
        cases = tuple(_trained(kind, text, chats) for text in TEXTS)
        return TrainedDrafts(**served_fields(plain, read_gguf(path), this_machine()), n_gen=n_gen, cases=cases)


def _trained(kind: str, text: str, chats: tuple[_Chat, _Chat]) -> TrainedCase:
    prompts = chats[0].prompts(text, seen=False)
    asked = [iter(prompts) for _ in chats]
    plain, drafted = in_turns(lambda side: chats[side].answer(next(asked[side])), (0, 1), prompts)
    return TrainedCase(
        **_beside_plain(kind, plain, drafted),
        text=text,
        n_prompt=tuple(answer["timings"]["prompt_n"] for answer in plain),
        n_plain=tuple(answer["timings"]["predicted_n"] for answer in plain),
        n_tokens=tuple(answer["timings"]["predicted_n"] for answer in drafted),
    )


RECIPES: Mapping[str, Recipe] = {
    "verify-tiny": partial(
        verify, "tiny", [("F16", True), ("Q8_0", True), ("Q4_K_M", True), ("Q4_K_M", False)], repeats=25
    ),
    "verify-shape": partial(
        verify, SHAPE, [("Q4_K_M", True), ("Q4_K_M", False), ("Q8_0", True), ("F16", True)], repeats=15
    ),
    "fixed-acceptance": partial(fixed_acceptance, [(1.0, 1), (1.0, 15), (1.0, 3), (0.8, 15)], n_gen=33, repeats=15),
    "acceptance": partial(acceptance, n_draft=8, n_gen=64, n_prompts=30, n_prompt=128),
    "acceptance-again": partial(acceptance, n_draft=8, n_gen=64, n_prompts=30, n_prompt=128),
    "served-speculation": partial(served_speculation, n_prompts=16, n_prompt=256, n_gen=128),
    "verify-smollm2": partial(verify, TRAINED, [("Q4_1", True)], repeats=15, sizes=TRAINED_SIZES),
    "seen-drafts": partial(seen_drafts, (2, 3, 4, 6, 8, 12), (4, 8, 12, 16, 24, 32, 48), n_gen=128),
    **{record_of(kind): partial(trained_drafts, kind, n_gen=128) for kind in LOOKUPS},
}

if __name__ == "__main__":
    recipes.main(RECIPES)
