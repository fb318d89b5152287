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
def servers() -> dict[str, BenchmarkPrograms]:
    """The server beside llama-bench: `tiny`, the embedded model, and `shape`, one layer with Llama 3's vocabulary."""
    return {key: load(f"epyc-2c/server-and-bench-{key}", BenchmarkPrograms) for key in ("tiny", "shape")}


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *Sampling*."""
    return {
        **chain_numbers(),
        **grammar_numbers(),
        **malloc_numbers(),
        **server_numbers(),
        **backend_numbers(),
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


def malloc_numbers() -> dict[str, float | str]:
    """A grammar before top-k in another run, with malloc as it is and with its two variables."""
    _, usual, _ = shown()
    plain, kept = load_all("epyc-2c/sampling-malloc", Sampling)
    return {
        "before_share_slow": 100 * share(plain.seconds(BEFORE), usual.step_seconds),
        "malloc_plain_ms": 1e3 * plain.seconds(BEFORE),
        "malloc_kept_ms": 1e3 * kept.seconds(BEFORE),
        "malloc_ratio": compared(plain.samples(BEFORE), kept.samples(BEFORE)).text,
    }


def server_numbers() -> dict[str, float | int | str]:
    """The server beside llama-bench: differences and shares in percent, seconds in the units of the keys."""
    programs = servers()
    changed = programs["tiny"].changed
    return {
        "turns": min(len(record.rates[BENCH]) for record in programs.values()),
        "changed_words": 100 * changed["grammar of words"],
        "changed_json": 100 * changed["JSON schema"],
        **{f"{key}_{name}": value for key, record in programs.items() for name, value in _over_bench(record).items()},
    }


def _over_bench(programs: BenchmarkPrograms) -> dict[str, float | str]:
    bench, client = programs.token_seconds(BENCH), programs.token_seconds(CLIENT.format(DEFAULT))
    parts = {part: seconds for part, seconds in programs.token_parts(DEFAULT).items() if part != "decode"}
    largest = max(parts, key=parts.__getitem__)
    return {
        "over": 100 * (client / bench - 1),
        "bench_ms": 1e3 * bench,
        "client_ms": 1e3 * client,
        "largest": largest,
        "largest_us": 1e6 * parts[largest],
    }


def backend_numbers() -> dict[str, int | str]:
    """Sampling in the backend: rates over those without it, and of how many prompts the answers stayed the same."""
    answers = load("epyc-2c/backend-answers")
    n_prompts = len(answers.compared[0].n_same)
    return {
        **{f"{key}_backend": programs.against_default(BACKEND).text for key, programs in servers().items()},
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
            f"{1e6 * sampling.seconds(*asked):,.0f} ({100 * sampling.share(*asked):.1f} %)" for sampling in shown()
        )
        rows.append((title, *cells))
    return ("chain", *(f"{sampling.n_vocab:,d}" for sampling in shown())), rows


def request_table() -> Table:
    """Heads and rows: rates of requests over those with the default samplers in the same turn, with intervals."""
    records = servers()
    return ("request", "embedded model", "shape of one layer"), [
        (name, *(programs.against_default(name).range_text for programs in records.values())) for name in COMPARED
    ]


def share_table() -> Table:
    """Heads and rows: the share of chains in the time of a token, for models of several speeds."""
    _, usual, _ = shown()
    chains = (DEFAULT, "repeat penalty", "only temperature", REJECTED, BEFORE)
    return ("samplers", *(f"{rate} tokens/s" for rate in CARD_RATES)), [
        (name, *(f"{100 * share(usual.seconds(name), 1 / rate):.1f} %" for rate in CARD_RATES)) for name in chains
    ]
