"""Run a model and record the timestamps of its tokens: `measure` returns a `Run`, from which all rates follow.

Definitions (the glossary has those of other programs):

    prefill_tokens_per_second   prompt tokens / engine time of the prompt (llama-bench's pp)
    decode_tokens_per_second    tokens after the first / their engine time (llama-bench's tg at depth n_prompt)
    ttft_seconds                from the call to the first token id: request, prefill, first sampling
    inter_token_seconds         (last - first token time) / (n - 1), sampling included

Engine time is the wall time of llama_decode plus llama_synchronize.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from statistics import median

from inferlab.engine import cpu_time
from inferlab.engine.protocol import Engine, Pass
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.machine import device_names
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.queued import queued
from inferlab.measurement.telemetry.sampler import TelemetrySampler
from inferlab.measurement.telemetry.samples import Sample, Sampling, sampling_interval
from inferlab.measurement.turns import in_turns
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings
from inferlab.statistics import median_interval
from inferlab.units import rate_text, seconds_text

AGREEMENT = 0.02
MAX_WARMUPS, WARMUP_SECONDS = 8, 2.0
WARMUP_TOKENS = 512
MOST_OTHERS = 0.25  # processors; with more, a warm-up that does not settle is disturbed by other programs

on_disturbed: Callable[[float], None] | None = None
"""Called with the processors that other programs kept busy during a disturbed warm-up; None: nobody looks at them."""


@dataclass(frozen=True, kw_only=True)
class Run(Measurement):
    """One workload measured `repeats` times; every rate is derived from the timestamps of its passes.

    warmups    the passes before the counted ones
    settled    whether two of them in a row agreed within 2 %; None if unknown, as after a single one
    made_with  the tool, if it was not this library
    samples    telemetry taken during the counted passes; `sampling` says how

    Passes and samples share one time axis, whose 0 is the call of the first counted pass.
    """

    n_prompt: int
    n_gen: int
    passes: tuple[Pass, ...]
    warmups: tuple[Pass, ...] = ()
    settled: bool | None = True
    load: dict[str, float] = field(default_factory=dict)
    prompt: str | None = None
    text: str | None = None
    made_with: str | None = None
    samples: tuple[Sample, ...] = ()
    sampling: Sampling | None = None

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """Medians of time and rates with their ranges, the time of loading, and the badge."""
        title = f"{self.model.name}: {self.n_prompt:,} prompt tokens, {self.n_gen:,} generated"
        told = {
            "TTFT": ("ttft_seconds", seconds_text),
            "prefill": ("prefill_tokens_per_second", rate_text),
            "decode": ("decode_tokens_per_second", rate_text),
        }
        rows = [(name, self._told(of, text)) for name, (of, text) in told.items()]
        rows += [("load", seconds_text(self.load_seconds)), ("passes", f"{len(self.passes)}"), ("badge", self.badge)]
        return title, rows

    def _told(self, of: str, text: Callable[[float | None], str]) -> str:
        """`12.3 tokens/s (12 tokens/s to 12.5 tokens/s)`: one quantity with its range."""
        low, high = map(text, self.ranges.get(of, (None, None)))
        return text(getattr(self, of)) + (f" ({low} to {high})" if low != high else "")

    @property
    def ttft_seconds(self) -> float | None:
        """Median over the passes of the time from the call to the first token id."""
        return self._median("ttft_seconds")

    @property
    def prefill_seconds(self) -> float | None:
        """Median engine time of the prompt."""
        return self._median("prefill_seconds")

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Median over the passes of prompt tokens per second of engine time."""
        return self._median("prefill_tokens_per_second")

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Median over the passes of tokens per second of engine time, first token excluded."""
        return self._median("decode_tokens_per_second")

    @property
    def inter_token_seconds(self) -> float | None:
        """Median over the passes of (last - first) / (n - 1); None below two tokens."""
        return self._median("inter_token_seconds")

    def points(self, of: str) -> tuple[float, ...]:
        """The value of one of QUANTITIES for every pass, in the order of measuring: `points("ttft_seconds")`."""
        values = (QUANTITIES[of](pass_, self.n_prompt) for pass_ in self.passes)
        return tuple(value for value in values if value is not None)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Least and greatest value of each of QUANTITIES over the passes; unknown ones are left out."""
        every = {of: self.points(of) for of in QUANTITIES}
        return {of: (min(values), max(values)) for of, values in every.items() if values}

    def interval(self, of: str) -> tuple[float, float] | None:
        """The 95 % interval of the median of one of QUANTITIES; None for fewer than six passes."""
        return median_interval(self.points(of))

    @property
    def load_seconds(self) -> float | None:
        """Wall time of loading the model and making the context; None when it was not recorded."""
        return sum(self.load.values()) if self.load else None

    @property
    def place(self) -> str:
        """The devices that have weights, by llama.cpp's names; a loopback device has a name of its own."""
        names = device_names(b.device for b in self.buffers)
        return ", ".join(dict.fromkeys(names[b.device] for b in self.buffers if b.kind == "weights")) or "unknown"

    def _median(self, of: str) -> float | None:
        values = self.points(of)
        return median(values) if values else None


def ttft_seconds(pass_: Pass) -> float | None:
    """Seconds from the call to the first token id; None when nothing was generated."""
    return pass_.token_seconds[0] if pass_.token_seconds else None


def prefill_rate(pass_: Pass, n_prompt: int) -> float | None:
    """Prompt tokens per second of engine time; None for an empty prompt, or one that was not timed."""
    return n_prompt / pass_.prefill_seconds if n_prompt and pass_.prefill_seconds else None


def decode_rate(pass_: Pass) -> float | None:
    """Tokens after the first per second of engine time; None when there are none."""
    n_tokens, seconds = pass_.decoded or (len(pass_.decode_seconds), sum(pass_.decode_seconds))
    return n_tokens / seconds if seconds > 0 else None


def inter_token_seconds(pass_: Pass) -> float | None:
    """(last - first token time) / (n - 1); None below two tokens."""
    times = pass_.token_seconds
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


QUANTITIES: dict[str, Callable[[Pass, int], float | None]] = {
    "ttft_seconds": lambda pass_, _: ttft_seconds(pass_),
    "prefill_seconds": lambda pass_, _: pass_.prefill_seconds,
    "prefill_tokens_per_second": prefill_rate,
    "decode_tokens_per_second": lambda pass_, _: decode_rate(pass_),
    "inter_token_seconds": lambda pass_, _: inter_token_seconds(pass_),
}


@queued
def measure(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_prompt: int = 512,
    n_gen: int = 128,
    repeats: int = 5,
    prompt: str | None = None,
    engine: Engine | None = None,
    progress: bool | None = None,
    telemetry: bool | float = False,
) -> Run:
    """Prefill a prompt and decode after it, `repeats` times, through llama.cpp; returns the `Run`.

    The prompt is `n_prompt` random token ids, as in llama-bench, unless `prompt` gives a text.
    Warm-up passes run first, until two in a row agree within 2 %, at most eight or for WARMUP_SECONDS.
    `telemetry=True` takes a `Sample` every 0.1 s during the counted passes; a number sets another interval.
    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    settings, engine = settings or Settings(), engine or default_engine()
    n_prompt, n_gen, repeats = _checked_workload(n_prompt, n_gen, repeats)
    interval = sampling_interval(telemetry)
    path = find_model(model)
    header = read_gguf(path)
    with engine.exclusive():
        tokens = _tokenized(prompt, path, engine) if prompt is not None else None
        n_prompt = n_prompt if tokens is None else len(tokens)
        opening = engine.open(path, with_context(settings, n_prompt, n_gen))
        tokens = tokens or engine.random_prompt(n_prompt)
        warmups, settled = _watched_warm_up(engine, tokens, n_gen)
        steps = track(range(repeats), repeats, f"measuring {header.name}", shown=progress)
        with _sampler(engine, interval) as sampler:
            passes = tuple(engine.generate(tokens, n_gen) for _ in steps)
        common, text = common_fields(engine, opening, header), engine.detokenize(passes[-1].tokens)
    samples, origin = sampler.samples if sampler else (), passes[0].began
    zero = samples[0].seconds if samples and origin is None else origin or 0.0
    return Run(
        **common,
        n_prompt=n_prompt,
        n_gen=n_gen,
        passes=_relative_to(origin, passes),
        warmups=_relative_to(origin, warmups),
        settled=settled,
        load=opening.phases,
        prompt=prompt,
        text=text,
        samples=tuple(replace(s, seconds=s.seconds - zero) for s in samples),
        sampling=sampler.sampling if sampler else None,
    )


def _tokenized(prompt: str, path: Path, engine: Engine) -> list[int]:
    engine.open_vocabulary(path)
    tokens = engine.tokenize(prompt)
    if not tokens:
        raise InvalidSettings(f"prompt={prompt!r} gives no tokens with this vocabulary; use another text.")
    return tokens


def _sampler(engine: Engine, interval: float | None) -> AbstractContextManager[TelemetrySampler | None]:
    return nullcontext() if interval is None else TelemetrySampler(engine.pid, interval)


def _relative_to(origin: float | None, passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """Passes with `began` in seconds since `origin`; None stays None."""
    return tuple(p if origin is None or p.began is None else replace(p, began=p.began - origin) for p in passes)


@queued
def measure_each(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_prompts: Sequence[int] = (64, 128, 256, 512),
    n_gen: int = 16,
    repeats: int = 5,
    engine: Engine | None = None,
) -> tuple[Run, ...]:
    """One `Run` for each prompt length, in one context that is large enough for all; the model loads once."""
    _checked_workload(max(n_prompts, default=0), n_gen, repeats)
    settings = with_context(settings or Settings(), max(n_prompts), n_gen)
    return tuple(measure(model, settings, n, n_gen, repeats, engine=engine) for n in n_prompts)


@queued
def measure_in_turns(
    model: str | Path | None,
    choices: Sequence[Settings],
    n_prompt: int = 512,
    n_gen: int = 16,
    rounds: int = 5,
    engine: Engine | None = None,
    progress: bool | None = None,
    warmup_tokens: int = WARMUP_TOKENS,
) -> tuple[Run, ...]:
    """One `Run` for each of `choices`: a pass of each in turns, in every second round in reversed order.

    Before each pass one of at most `warmup_tokens` prompt tokens is run and not kept; `settled` is None. Each pass
    opens the model anew, but for the first one of a round: its settings are those of the pass before.
    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    n_prompt, n_gen, rounds = _checked_workload(n_prompt, n_gen, rounds)
    engine, path = engine or default_engine(), find_model(model)
    header = read_gguf(path)

    def once(settings: Settings) -> Run:
        opening = engine.open(path, with_context(settings, n_prompt, n_gen))
        tokens = engine.random_prompt(n_prompt)
        engine.generate(tokens[:warmup_tokens], 2)
        passes = (engine.generate(tokens, n_gen),)
        return Run(
            **common_fields(engine, opening, header), n_prompt=n_prompt, n_gen=n_gen, passes=passes, settled=None
        )

    with engine.exclusive():
        shown = track(range(rounds), rounds, f"measuring {header.name} in turns", shown=progress)
        runs = in_turns(once, choices, shown)
    every = (tuple(run.passes[0] for run in turns) for turns in runs)
    return tuple(
        replace(turns[-1], passes=_relative_to(passes[0].began, passes))
        for turns, passes in zip(runs, every, strict=True)
    )


def warm_up(engine: Engine, tokens: Sequence[int], n_gen: int) -> tuple[tuple[Pass, ...], bool | None]:
    """Run passes until two in a row agree within 2 % in total time, and say whether two agreed.

    At most eight run, and none after WARMUP_SECONDS of passes: by then the machine is warm, and what still differs is
    noise. None after a single pass.
    """
    passes: list[Pass] = []
    while len(passes) < MAX_WARMUPS and sum(pass_.token_seconds[-1] for pass_ in passes) < WARMUP_SECONDS:
        passes.append(engine.generate(tokens, n_gen))
        if len(passes) > 1 and _agree(passes[-2], passes[-1]):
            return tuple(passes), True
    return tuple(passes), False if len(passes) > 1 else None


def _watched_warm_up(engine: Engine, tokens: Sequence[int], n_gen: int) -> tuple[tuple[Pass, ...], bool | None]:
    """`warm_up`; where it does not settle while other programs compute, `on_disturbed` hears of it."""
    if on_disturbed is None:
        return warm_up(engine, tokens, n_gen)
    began, others = time.perf_counter(), cpu_time.other_seconds()
    warmups, settled = warm_up(engine, tokens, n_gen)
    if not settled and (processors := cpu_time.since(began, others)[1]) > MOST_OTHERS:
        on_disturbed(processors)
    return warmups, settled


def _agree(before: Pass, after: Pass) -> bool:
    first, second = before.token_seconds[-1], after.token_seconds[-1]
    return abs(first - second) <= AGREEMENT * second


def _checked_workload(*counts: int) -> list[int]:
    """n_prompt, n_gen and repeats as plain integers of at least 1; any type with __index__ is accepted."""
    checked = []
    for name, value in zip(("n_prompt", "n_gen", "repeats"), counts, strict=True):
        try:
            checked.append(0 if isinstance(value, bool) else index(value))
        except TypeError:
            checked.append(0)
        if checked[-1] < 1:
            raise InvalidSettings(f"{name}={value!r} must be a whole number of at least 1.")
    return checked
