"""What a chain of samplers costs for each token, beside the decode step before it.

Every chain is called in turn, each after a decode step of its own, on logits with a known distribution; a large
vocabulary, not the model, decides the time. llama-server calls the same function of llama.cpp for every answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Sampler
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import common_fields, with_context
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from studies.sampling_cost.study import FLAT, SHARP, ChainTimes, Sampling

N_PROMPT = 128
SEED = 42
CUT = (Sampler("top_p", (0.95,)), Sampler("min_p", (0.05,)), Sampler("temperature", (0.8,)), Sampler("dist", (SEED,)))
TOP_K, DRAW = Sampler("top_k", (40,)), CUT[3]
DEFAULT_CHAIN = (TOP_K, *CUT)
REPEAT, DRY = Sampler("penalties", (64, 1.1, 0.0, 0.0)), Sampler("dry", (0.8, 1.75, 2, 64))
SIGMA, TYPICAL, XTC = Sampler("top_n_sigma", (1.0,)), Sampler("typ_p", (0.9,)), Sampler("xtc", (1.0, 0.1, SEED))
NINE = (
    Sampler("penalties", (64, 1.0, 0.0, 0.0)),
    Sampler("dry", (0.0, 1.75, 2, 64)),
    Sampler("top_n_sigma", (-1.0,)),
    TOP_K,
    Sampler("typ_p", (1.0,)),
    *CUT[:2],
    Sampler("xtc", (0.0, 0.1, SEED)),
    *CUT[2:],
)
"""llama-server's whole list in its order, with its values (common/common.h:226); five of the nine are off."""
ANY_TEXT, WORDS = r"root ::= [^\x00]*", 'root ::= ("yes" | "no" | "maybe") ("," root)?'
CHAINS: dict[str, tuple[Sampler, ...]] = {
    "default": DEFAULT_CHAIN,
    "all nine, five off": NINE,
    "likeliest token": (Sampler("greedy"),),
    "other temperature and seed": (TOP_K, *CUT[:2], Sampler("temperature", (1.2,)), Sampler("dist", (SEED + 1,))),
    "penalty of 1": (NINE[0], *DEFAULT_CHAIN),
    "repeat penalty": (REPEAT, *DEFAULT_CHAIN),
    "repeat penalty after top-k": (TOP_K, REPEAT, *CUT),
    "DRY": (DRY, *DEFAULT_CHAIN),
    "top-n-sigma": (SIGMA, *DEFAULT_CHAIN),
    "typical-p": (TOP_K, TYPICAL, *CUT),
    "XTC": (TOP_K, *CUT[:2], XTC, *CUT[2:]),
    "top-k off": CUT,
    "top-p off": (TOP_K, *CUT[1:]),
    "min-p off": (TOP_K, CUT[0], *CUT[2:]),
    "temperature off": (TOP_K, *CUT[:2], DRAW),
    "only min-p": CUT[1:],
    "only temperature": CUT[2:],
    "only the draw": (DRAW,),
    "only top-k": (TOP_K, DRAW),
    "only top-p": (CUT[0], DRAW),
    "only repeat penalty": (REPEAT, DRAW),
    "only DRY": (DRY, DRAW),
    "only top-n-sigma": (SIGMA, DRAW),
    "only typical-p": (TYPICAL, DRAW),
    "only XTC": (XTC, DRAW),
    "grammar, token allowed": (*DEFAULT_CHAIN, Sampler("grammar_check", (ANY_TEXT,))),
    "grammar, token rejected": (*DEFAULT_CHAIN, Sampler("grammar_check", (WORDS,))),
    "grammar before top-k, any text": (Sampler("grammar", (ANY_TEXT,)), *DEFAULT_CHAIN),
    "grammar before top-k, words": (Sampler("grammar", (WORDS,)), *DEFAULT_CHAIN),
}
"""Chains by name, in the order of common/common.h; `default` is llama-server's, without the samplers that are off.

The logits are made, so a text in WORDS is never the choice and ANY_TEXT always: each is one of the grammar's two cases.
"""
JSON = r"""root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" space (pair ("," space pair)*)? "}" space
pair ::= string ":" space value
array ::= "[" space (value ("," space value)*)? "]" space
string ::= "\"" character* "\"" space
character ::= [^"\\\x00-\x1f] | "\\" ["\\/bfnrtu]
number ::= "-"? [0-9]+ ("." [0-9]+)? space
space ::= [ \n]*"""
IN_STRING = JSON.replace("root ::= value", r'root ::= character* "\""')
JSON_CHAINS: dict[str, tuple[Sampler, ...]] = {
    "JSON before top-k, at its beginning": (Sampler("grammar", (JSON,)), *DEFAULT_CHAIN),
    "JSON before top-k, in a string": (Sampler("grammar", (IN_STRING,)), *DEFAULT_CHAIN),
}
"""A grammar of JSON at two places of a text: where few words may follow, and where nearly all may."""
INFINITE = float("inf")
RANGES: dict[str, tuple[tuple[str, float, float, str], ...]] = {
    "temperature": (("temperature", 0, INFINITE, "take the likeliest token, as at 0 (src/llama-sampler.cpp:270)"),),
    "top_k": (("top_k", 0, INFINITE, "keep all tokens, as at 0 (src/llama-sampler.cpp:1520)"),),
    "top_p": (("top_p", 0, 1, "switch it off above 1, and keep one token below 0 (src/llama-sampler.cpp:1720)"),),
    "min_p": (("min_p", 0, 1, "switch it off below 0, as at 0 (src/llama-sampler.cpp:1883)"),),
    "typ_p": (("typ_p", 0, 1, "switch it off above 1, as at 1 (src/llama-sampler.cpp:1995)"),),
    "xtc": (
        ("xtc-probability", 0, 1, "switch it off below 0, as at 0 (src/llama-sampler.cpp:2417)"),
        ("xtc-threshold", 0, 0.5, "switch it off above 0.5 (src/llama-sampler.cpp:2417)"),
    ),
    "penalties": (
        ("repeat-last-n", 0, INFINITE, "switch it off, as at 0 (src/llama-sampler.cpp:3209)"),
        ("repeat-penalty", 1e-6, INFINITE, "refuse it in a server, and divide by it here (common/sampling.cpp:189)"),
    ),
    "dry": (
        ("dry-multiplier", 0, INFINITE, "reward repetition (src/llama-sampler.cpp:3645)"),
        ("dry-base", 1, INFINITE, "switch it off, or keep the default with --dry-base (src/llama-sampler.cpp:3645)"),
    ),
}
"""Sampler -> name of each value, least, most, and what llama.cpp does outside of these without a word."""


def chains_named(*names: str) -> dict[str, tuple[Sampler, ...]]:
    """Some of CHAINS by their names. Raises InvalidSettings for a name that is not among them."""
    for name in names:
        if name not in CHAINS:
            raise InvalidSettings(f"There is no chain {name!r}. There are: {', '.join(CHAINS)}.")
    return {name: CHAINS[name] for name in names}


@queued
def sample_times(
    model: str | Path | None = None,
    settings: Settings | None = None,
    chains: Mapping[str, Sequence[Sampler]] = CHAINS,
    exponents: Sequence[float] = (SHARP, FLAT),
    repeats: int = 30,
    engine: LlamaEngine | None = None,
) -> Sampling:
    """Time every chain `repeats` times for each exponent. Raises InvalidSettings, ModelError, EngineError.

    Values outside of RANGES are refused, and so is a text that is no grammar, by llama.cpp.
    """
    if not chains or not exponents or repeats < 1:
        raise InvalidSettings("Give at least one chain and one exponent, and repeats of at least 1.")
    require_sampling([one for samplers in chains.values() for one in samplers])
    engine, path = engine or default_engine(), find_model(model)
    with engine.exclusive():
        opening = engine.open(path, with_context(settings or Settings(), N_PROMPT, 1))
        prompt = engine.random_prompt(N_PROMPT)
        sampled = [engine.sample(prompt, list(chains.values()), exponent, repeats) for exponent in exponents]
        header = read_gguf(path)
        return Sampling(
            **common_fields(engine, opening, header),
            n_vocab=header.n_vocab,
            n_prompt=N_PROMPT,
            chains=tuple(
                ChainTimes(name, tuple(samplers), exponent, tuple(round(one, 8) for one in seconds))
                for exponent, (every, _) in zip(exponents, sampled, strict=True)
                for (name, samplers), seconds in zip(chains.items(), every, strict=True)
            ),
            decode_seconds=tuple(step for _, steps in sampled for step in steps),
        )


def require_sampling(samplers: Sequence[Sampler]) -> None:
    """Refuse values that llama.cpp would take for others. Raises InvalidSettings, which says for which."""
    for name, values in samplers:
        for (what, least, most, silently), value in zip(RANGES.get(name, ()), values, strict=False):
            if not least <= float(value) <= most:
                upper = "or more" if most == INFINITE else f"to {most:g}"
                said = f"{what}={float(value):g} must be {least:g} {upper}. llama.cpp would {silently}."
                raise InvalidSettings(f"{said} Give a value in the range.")
        if name in ("grammar", "grammar_check") and "root" not in str(values[0]):
            raise InvalidSettings(
                f"The grammar {str(values[0])[:40]!r} has no rule 'root', where an answer begins. Without a grammar, "
                "leave the sampler out; llama-server takes an empty one for none (tools/server/server-schema.cpp:273)."
            )
