"""Chains of samplers beside a decode step, and one token by llama-bench, llama-server and a client over HTTP.

server = bench + loop of the server + streaming + sampling          client = server + its way to the client
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median

from inferlab.engine.protocol import Sampler
from inferlab.errors import InvalidSettings
from inferlab.facts import cited_facts
from inferlab.measurement.base import Measurement
from inferlab.records import load, load_all
from inferlab.statistics import Comparison, compared

Table = tuple[Sequence[str], list[Sequence[str]]]

FLAT, SHARP = 1.0, 2.0
"""Exponents of made logits: the probability of the token of rank r is proportional to r to the power -exponent."""
ALLOWED, REJECTED = "grammar, token allowed", "grammar, token rejected"
BEFORE, BEFORE_WORDS = "grammar before top-k, any text", "grammar before top-k, words"
JSON_BEGINS, IN_STRING = "JSON before top-k, at its beginning", "JSON before top-k, in a string"
CONTROLS = ("other temperature and seed", "penalty of 1", "all nine, five off")
BENCH, SERVER, CLIENT = "llama-bench", "server: {}", "client: {}"
FLOOR, WHOLE, DEFAULT, BACKEND = "one candidate", "one candidate, not streamed", "default", "default, in the backend"
SPLIT = (
    FLOOR,
    DEFAULT,
    "greedy, only temperature",
    "repeat penalty",
    "log probabilities",
    "grammar of any text",
    "JSON schema",
    "grammar of words",
)
"""Requests whose parts the page draws."""
COMPARED = (
    "default again",
    FLOOR,
    "greedy, only temperature",
    "top-k off",
    "log probabilities",
    "JSON schema",
    "grammar of words",
)
"""Requests whose rates the page gives over those of the default samplers."""
CARD_RATES = (10, 50, 200, 500)
"""Tokens per second, without sampling, of the models for which the page computes a share."""


@dataclass(frozen=True)
class ChainTimes:
    """One chain on logits of one exponent: seconds of each call, in turns with the other chains."""

    name: str
    samplers: tuple[Sampler, ...]
    exponent: float
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Sampling(Measurement):
    """Chains of samplers on one model's vocabulary.

    n_prompt        tokens in the cache at each decode step
    decode_seconds  engine time of decode steps before the calls of the chains
    allocator       the environment variables of malloc that were set, with their values
    """

    n_vocab: int
    n_prompt: int
    chains: tuple[ChainTimes, ...]
    decode_seconds: tuple[float, ...]
    allocator: dict[str, str] = field(default_factory=dict)

    def samples(self, name: str, exponent: float = SHARP) -> tuple[float, ...]:
        """Seconds of every call of a chain. Raises InvalidSettings for one that was not measured."""
        for chain in self.chains:
            if (chain.name, chain.exponent) == (name, exponent):
                return chain.seconds
        raise InvalidSettings(f"There is no chain {name!r} on logits of exponent {exponent} in this measurement.")

    def seconds(self, name: str, exponent: float = SHARP) -> float:
        """The median of `samples`."""
        return median(self.samples(name, exponent))

    @property
    def step_seconds(self) -> float:
        """Median engine time of a decode step, without sampling."""
        return median(self.decode_seconds)

    def share(self, name: str, exponent: float = SHARP) -> float:
        """Share of the chain in the time of a token: t / (step + t)."""
        return share(self.seconds(name, exponent), self.step_seconds)


@dataclass(frozen=True, kw_only=True)
class BenchmarkPrograms(Measurement):
    """Tokens per second of the same work by several programs.

    rates    "program: work" -> one rate for each turn
    changed  request with a grammar -> share of its greedy tokens that are not the likeliest
    """

    n_prompt: int
    n_gen: int
    rates: dict[str, tuple[float, ...]]
    changed: dict[str, float] = field(default_factory=dict)

    def rate(self, name: str) -> float:
        """The median over the turns."""
        return median(self.rates[name])

    def token_seconds(self, name: str) -> float:
        """Median seconds of a token by one of the programs, e.g. `server: default`."""
        return median(1 / rate for rate in self.rates[name])

    def lost_seconds(self, before: str, after: str) -> tuple[float, ...]:
        """Turn by turn, the seconds that a token takes longer in `after` than in `before`."""
        pairs = zip(self.rates[before], self.rates[after], strict=True)
        return tuple(1 / second - 1 / first for first, second in pairs)

    def token_parts(self, name: str) -> dict[str, float]:
        """Where a token of one kind of request spends its time: median seconds of each part, turn by turn.

        decode as in llama-bench, the loop of the server, streaming, sampling beyond one candidate, the way to the
        client.
        """
        steps = {
            "server's loop": (BENCH, SERVER.format(WHOLE)),
            "streaming": (SERVER.format(WHOLE), SERVER.format(FLOOR)),
            "sampling": (SERVER.format(FLOOR), SERVER.format(name)),
            "way to the client": (SERVER.format(name), CLIENT.format(name)),
        }
        lost = {part: median(self.lost_seconds(*pair)) for part, pair in steps.items()}
        return {"decode": self.token_seconds(BENCH), **lost}

    def against_default(self, name: str) -> Comparison:
        """Turn by turn, the rate that the server reports of a request over that of its default samplers."""
        return compared(self.rates[SERVER.format(DEFAULT)], self.rates[SERVER.format(name)])


@dataclass(frozen=True)
class JsonCase:
    """Answers of a chat with a JSON schema and without, in pairs; a number for each question.

    name           whether the question asks for the format
    n_tokens       tokens of the answer with the schema
    n_rejected     those that are not the likeliest at their place: the grammar rejected the likeliest
    plain, limited tokens per second by the server, without the schema and with it
    """

    name: str
    n_tokens: tuple[int, ...]
    n_rejected: tuple[int, ...]
    plain: tuple[float, ...]
    limited: tuple[float, ...]

    @property
    def rejected_percent(self) -> float:
        """Of all tokens."""
        return 100 * sum(self.n_rejected) / sum(self.n_tokens)

    @property
    def rates(self) -> Comparison:
        """The rate with the schema over that without, pair by pair."""
        return compared(self.plain, self.limited)


@dataclass(frozen=True, kw_only=True)
class JsonAnswers(Measurement):
    """The same questions with the format in the prompt and without."""

    made_with = "llama-server over HTTP"

    n_gen: int
    cases: tuple[JsonCase, ...]


def share(seconds: float, step_seconds: float) -> float:
    """Share of sampling in the time of a token whose decode step takes `step_seconds`."""
    return seconds / (step_seconds + seconds)


@cache
def recorded() -> tuple[Sampling, ...]:
    """Every chain on the embedded model and on shapes with larger vocabularies, the smallest first."""
    return tuple(sorted(load_all("epyc-2c/sampling", Sampling), key=lambda sampling: sampling.n_vocab))


def shown() -> tuple[Sampling, Sampling, Sampling]:
    """The embedded model, Llama 3's vocabulary, and the largest one."""
    tiny, _, usual, large = recorded()
    return tiny, usual, large


@cache
def trained() -> Sampling:
    """Every chain, and a grammar of JSON, on the vocabulary of SmolLM2."""
    return load_all("epyc-2c/sampling-smollm2", Sampling)[0]


def columns() -> dict[str, Sampling]:
    """The vocabularies of the page's tables by their heads, the smallest first."""
    tiny, usual, large = shown()
    return {f"{one.n_vocab:,d}{', real' * (one is trained())}": one for one in (tiny, trained(), usual, large)}


@cache
def servers() -> dict[str, BenchmarkPrograms]:
    """The server beside llama-bench: the embedded model, SmolLM2, and one layer with Llama 3's vocabulary."""
    return {key: load(f"epyc-2c/server-and-bench-{key}", BenchmarkPrograms) for key in ("tiny", "smollm2", "shape")}


@cache
def json_answers() -> dict[str, JsonCase]:
    """SmolLM2 with a JSON schema, by whether the prompt asks for the format."""
    return {case.name: case for case in load("epyc-2c/json-smollm2", JsonAnswers).cases}


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *Sampling*."""
    return {
        **chain_numbers(),
        **grammar_numbers(),
        **malloc_numbers(),
        **server_numbers(),
        **backend_numbers(),
        **trained_numbers(),
        **reported_numbers(),
    }


def chain_numbers() -> dict[str, float | int | str]:
    """Samplers alone: shares and differences in percent, seconds in the units of the keys."""
    _, usual, large = shown()
    apart = [
        abs(sampling.seconds(name) / sampling.seconds(DEFAULT) - 1) for sampling in recorded() for name in CONTROLS
    ]
    added = large.seconds("repeat penalty") - large.seconds(DEFAULT)
    return {
        "usual_vocab": usual.n_vocab,
        "large_vocab": large.n_vocab,
        "default_share": 100 * large.share(DEFAULT),
        "default_choice": "less than 5 %" if large.share(DEFAULT) < 0.05 else "5 % or more",
        "off_ms": 1e3 * large.seconds("top-k off", FLAT),
        "off_sharp_ms": 1e3 * large.seconds("top-k off", SHARP),
        "penalty_ns": 1e9 * added / large.n_vocab,
        "first_us": 1e6 * large.seconds("repeat penalty"),
        "after_us": 1e6 * large.seconds("repeat penalty after top-k"),
        "draw_us": 1e6 * usual.seconds("only the draw"),
        "top_k_us": 1e6 * usual.seconds("only top-k"),
        "control_largest": 100 * max(apart),
    }


def grammar_numbers() -> dict[str, float | str]:
    """A grammar with Llama 3's vocabulary: shares in percent, `tenth` of a step of 2 ms, seconds in the keys' units."""
    _, usual, _ = shown()
    factor = usual.seconds(REJECTED) / usual.seconds(DEFAULT)
    more = usual.seconds(REJECTED) - usual.seconds(ALLOWED)
    choice = "less than 5 times" if factor < 5 else "5 to 20 times" if factor < 20 else "more than 20 times"
    return {
        "allowed_us": 1e6 * (usual.seconds(ALLOWED) - usual.seconds(DEFAULT)),
        "rejected_factor": factor,
        "rejected_choice": choice,
        "tenth": 100 * (2e-3 + usual.seconds(ALLOWED)) / 9 / more,
        "before_share": 100 * usual.share(BEFORE),
        "before_ms": 1e3 * usual.seconds(BEFORE),
        "reject_ns": 1e9 * usual.seconds(BEFORE_WORDS) / usual.n_vocab,
        "match_ns": 1e9 * usual.seconds(BEFORE) / usual.n_vocab,
    }


def trained_numbers() -> dict[str, float | int | str]:
    """SmolLM2: shares in percent, nanoseconds for each word of the vocabulary, seconds in the units of the keys."""
    words, server = trained(), servers()["smollm2"]
    asked, free = json_answers()["asked"], json_answers()["not asked"]
    per_word = 1e9 / words.n_vocab
    without = server.lost_seconds(SERVER.format(DEFAULT), SERVER.format("top-k off"))
    return {
        "real_vocab": words.n_vocab,
        "real_factor": words.seconds(REJECTED) / words.seconds(DEFAULT),
        "real_penalty_ns": per_word * (words.seconds("repeat penalty") - words.seconds(DEFAULT)),
        "real_reject_ns": per_word * words.seconds(BEFORE_WORDS),
        "real_match_ns": per_word * words.seconds(BEFORE),
        "real_json_share": 100 * words.share(JSON_BEGINS),
        "real_string_share": 100 * words.share(IN_STRING),
        "real_off_ms": 1e3 * median(without),
        "real_sharp_ms": 1e3 * (words.seconds("top-k off", SHARP) - words.seconds(DEFAULT, SHARP)),
        "real_flat_ms": 1e3 * (words.seconds("top-k off", FLAT) - words.seconds(DEFAULT, FLAT)),
        "json_questions": len(asked.n_tokens),
        "asked_rejected": asked.rejected_percent,
        "free_rejected": free.rejected_percent,
        "asked_rate": asked.rates.range_text,
        "free_rate": free.rates.range_text,
    }


def malloc_numbers() -> dict[str, float | str]:
    """A grammar before top-k in another run, with malloc as it is and with its two variables."""
    _, usual, _ = shown()
    plain, kept = load_all("epyc-2c/sampling-malloc", Sampling)
    return {
        "before_share_slow": 100 * share(plain.seconds(BEFORE), usual.step_seconds),
        "malloc_plain_ms": 1e3 * plain.seconds(BEFORE),
        "malloc_kept_ms": 1e3 * kept.seconds(BEFORE),
        "malloc_ratio": compared(kept.samples(BEFORE), plain.samples(BEFORE)).text,
    }


def server_numbers() -> dict[str, float | int]:
    """The server beside llama-bench: how much longer a token takes at the client in percent, milliseconds of each."""
    found: dict[str, float | int] = {"turns": min(len(record.rates[BENCH]) for record in servers().values())}
    for key in ("tiny", "smollm2"):
        bench, client = (servers()[key].token_seconds(name) for name in (BENCH, CLIENT.format(DEFAULT)))
        found |= {
            f"{key}_over": 100 * (client / bench - 1),
            f"{key}_bench_ms": 1e3 * bench,
            f"{key}_client_ms": 1e3 * client,
        }
    return found


def backend_numbers() -> dict[str, int | str]:
    """Sampling in the backend: rates over those without it, and of how many prompts the answers stayed the same."""
    answers = load("epyc-2c/backend-answers")
    n_prompts = len(answers.compared[0].n_same)
    return {
        "smollm2_backend": servers()["smollm2"].against_default(BACKEND).text,
        "n_prompts": n_prompts,
        "greedy_same": n_prompts - answers.n_other_answers("greedy, sampled in the backend"),
        "drawn_same": n_prompts - answers.n_other_answers("default, sampled in the backend"),
    }


def reported_numbers() -> dict[str, float]:
    """What users reported: tokens per second, and what they imply for each entry of the vocabulary, in nanoseconds."""
    said = {name: fact.value for name, fact in cited_facts("sampling").items()}
    penalty = 1 / said["repeat-penalty"] - 1 / said["no-penalty"]
    patched = 1 / said["presence-penalty"] - 1 / said["presence-penalty-patched"]
    return {
        "said_before": said["no-penalty"],
        "said_after": said["repeat-penalty"],
        "said_ns": 1e9 * penalty / said["vocabulary"],
        "said_vocab": said["vocabulary"],
        "said_least": said["least-share"],
        "said_most": said["most-share"],
        "patched_from": said["presence-penalty"],
        "patched_to": said["presence-penalty-patched"],
        "patched_ns": 1e9 * patched / said["vocabulary"],
        "card_off": said["backend-off"],
        "card_on": said["backend-on"],
        "slower_off": said["backend-off-slower-card"],
        "slower_on": said["backend-on-slower-card"],
    }


def chain_table() -> Table:
    """Heads and rows: microseconds of chains, and their share of a token, over the size of the vocabulary."""
    first = DEFAULT, "only top-k", "only the draw", "top-k off"
    last = "repeat penalty", "repeat penalty after top-k", "DRY", "only typical-p"
    return _chains({**dict.fromkeys(first, SHARP), "top-k off, flat": FLAT, **dict.fromkeys(last, SHARP)})


def grammar_table() -> Table:
    """Heads and rows: the same with a grammar, on sharp logits."""
    return _chains(dict.fromkeys((DEFAULT, ALLOWED, REJECTED, BEFORE), SHARP))


def _chains(exponents: Mapping[str, float]) -> Table:
    """A row for each chain, on logits of its exponent."""
    rows: list[Sequence[str]] = []
    for title, exponent in exponents.items():
        asked = title.removesuffix(", flat"), exponent
        cells = (
            f"{1e6 * sampling.seconds(*asked):,.0f} ({100 * sampling.share(*asked):.1f} %)"
            for sampling in columns().values()
        )
        rows.append((title, *cells))
    return ("chain", *columns()), rows


def request_table() -> Table:
    """Heads and rows: rates of requests over those with the default samplers in the same turn, with intervals."""
    records = [servers()[key] for key in ("smollm2", "shape")]
    return ("request", "SmolLM2", "shape of one layer"), [
        (name, *(programs.against_default(name).range_text for programs in records)) for name in COMPARED
    ]


def share_table() -> Table:
    """Heads and rows: the share of chains in the time of a token, for models of several speeds."""
    _, usual, _ = shown()
    chains = (DEFAULT, "repeat penalty", "only temperature", REJECTED, BEFORE)
    return ("samplers", *(f"{rate} tokens/s" for rate in CARD_RATES)), [
        (name, *(f"{100 * share(usual.seconds(name), 1 / rate):.1f} %" for rate in CARD_RATES)) for name in chains
    ]
