"""What an importance matrix changes, and the numbers of the pages on quantization.

Every file reads the same held-out text, so two files are compared token by token: the mean difference of their
divergences has a much smaller standard error than either divergence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferlab.errors import InvalidSettings
from inferlab.facts import published_tables
from inferlab.machine import Machine
from inferlab.measurement.fidelity import Estimate, Fidelity
from inferlab.measurement.run import Run
from inferlab.model.catalog import known_model
from inferlab.model.find import tiny_imatrix
from inferlab.model.gguf import ModelCard
from inferlab.model.imatrix import read_imatrix
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.records import load
from inferlab.shown import Shown
from inferlab.units import GB, GIB
from studies.quantization.quant_tradeoffs import CACHE_TYPES, TYPES, Losses

RIGHT, NONE, EVEN, LEAKED = "training", "", "even", "held-out"
MATRIX_NAMES = {
    NONE: "no matrix",
    RIGHT: "training text",
    "one-chunk": "512 tokens of it",
    "code": "code examples",
    "random": "random tokens",
    EVEN: "all columns alike",
    "shuffled": "columns shuffled",
    LEAKED: "the test text itself",
}
"""The embedded model's matrices by the text that they were made from (data/tiny/matrices.py): names for readers."""
MATRICES = tuple(name for name in MATRIX_NAMES if name != NONE)
COMPARED = ("Q4_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS")
"""The quantizations that were made with every matrix."""
TABLE_TYPES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
"""The quantizations to choose from in chapter 5."""
MEASURES = {
    "perplexity": "perplexity",
    "the change of perplexity": "log_perplexity_ratio",
    "KL divergence": "kl_divergence",
}
"""Name of a measure for readers -> attribute of a `Fidelity`."""


@dataclass(frozen=True)
class Loss:
    """The loss of one file against the unquantized model, on the held-out text.

    matrix           text of the importance matrix, a name of `MATRICES`; "" for none
    tensor_bytes     of all tensors of the file
    change           mean change of the divergence from that of the same quantization without a matrix (where llama.cpp
                     makes it without one), token by token; None for the file without a matrix itself
    """

    type: str
    matrix: str
    tensor_bytes: int
    kl_divergence: Estimate
    log_perplexity_ratio: Estimate
    same_top_share: Estimate
    change: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class MatrixLosses(Shown):
    """The losses of one model in several quantizations, with several importance matrices.

    n_tokens  scored tokens, the same for all
    """

    model: ModelCard
    machine: Machine
    date: str
    n_tokens: int
    losses: tuple[Loss, ...]

    @property
    def badge(self) -> str:
        return f"{self.machine.badge(self.date)}; {self.n_tokens:,} tokens scored on {self.model.name}"

    def of(self, type: str, matrix: str = NONE) -> Loss | None:
        """One file's loss; None where it was not measured or is not made."""
        return next((one for one in self.losses if (one.type, one.matrix) == (type, matrix)), None)

    def types(self, matrix: str) -> tuple[str, ...]:
        """The quantizations that were measured with one matrix, "" for none."""
        return tuple(one.type for one in self.losses if one.matrix == matrix)

    def bits_per_weight(self, loss: Loss) -> float:
        return 8 * loss.tensor_bytes / self.model.n_params

    def less_percent(self, type: str, matrix: str = RIGHT) -> float:
        """By how many percent a matrix lowers the divergence; negative where it raises it.

        Raises InvalidSettings where one of the two files was not measured.
        """
        without, helped = self.of(type), self.of(type, matrix)
        if without is None or helped is None:
            raise InvalidSettings(f"{type} was not measured both without a matrix and with {matrix!r}.")
        return 100 * (1 - helped.kl_divergence.value / without.kl_divergence.value)

    def more_percent(self, type: str, matrix: str) -> float:
        """By how many percent the divergence with a matrix is above that with the training text's."""
        return 100 * (self.of(type, matrix).kl_divergence.value / self.of(type, RIGHT).kl_divergence.value - 1)


def recorded() -> MatrixLosses:
    """The losses of the embedded model."""
    return load("epyc-2c/matrix-losses", MatrixLosses)


# --- chapter 5 ------------------------------------------------------------------------------------------------------


def published_numbers() -> dict[str, float]:
    """Sizes of Mistral 7B in GB, of its cache in GiB, bits per weight, and published losses; changes in percent."""
    tables, mistral = published_tables(), known_model("mistral-7b")
    cited, older = tables["llama-3-8b-fidelity"].rows, tables["llama-2-7b-fidelity"].rows
    increase = tables["mistral-7b-perplexity"].column("increase_percent")
    sizes = {mix.lower(): shape("mistral-7b", mix) for mix in ("F16", *TYPES)}
    cells = {kind: 8192 * kv_cache_bytes_per_token(mistral, kind, kind) for kind in ("f16", "q8_0", "q4_0")}
    return {
        **{f"size_{mix}": one.tensor_bytes / GB for mix, one in sizes.items()},
        **{f"bpw_{mix}": 8 * one.tensor_bytes / one.n_params for mix, one in sizes.items()},
        **{f"mistral_cache_{kind}": n_bytes / GIB for kind, n_bytes in cells.items()},
        **{f"ppl_{mix.lower()}": _change_percent(cited[mix]) for mix in TABLE_TYPES},
        **{f"older_{mix.lower()}": cited[mix]["kld"] / older[mix]["kld"] for mix in ("Q4_K_M", "Q2_K")},
        **{f"mistral_{mix.lower()}": increase[mix] for mix in ("Q4_K_M", "Q4_0", "Q3_K_M")},
        "kld_f16": cited["F16"]["kld"],
    }


def _change_percent(row: Mapping[str, float]) -> float:
    """The change of perplexity, in percent of that of the unquantized model."""
    return 100 * row["perplexity_change"] / (row["perplexity"] - row["perplexity_change"])


def loss_numbers(losses: Losses) -> dict[str, float | int | str]:
    """What the embedded model lost in each type: divergences in nats a token, ratios and shares in percent."""
    found = losses.by_name
    eight, four, two = (found[mix].kl_divergence.value for mix in ("Q8_0", "Q4_K_M", "Q2_K"))
    numbers = {
        "tiny_ppl": found["Q8_0"].reference_perplexity.value,
        "tiny_ppl_error": found["Q8_0"].reference_perplexity.standard_error,
        "tokens_scored": found["Q8_0"].n_tokens,
        "step_84": four / eight,
        "step_42": two / four,
        "same_order": "in the same order" if _is_published_order(found) else "in another order",
        "apart": _measures_apart(found["Q6_K"], found["Q5_K_M"]),
    }
    for mix in ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q2_K"):
        numbers |= _fidelity_numbers(f"tiny_{mix.lower()}", found[mix])
    return numbers


def _fidelity_numbers(key: str, one: Fidelity) -> dict[str, float]:
    return {
        key: one.kl_divergence.value,
        f"{key}_error": one.kl_divergence.standard_error,
        f"{key}_ppl": one.perplexity.value,
        f"{key}_ppl_error": one.perplexity.standard_error,
        f"{key}_ratio": 100 * one.log_perplexity_ratio.value,
        f"{key}_ratio_error": 100 * one.log_perplexity_ratio.standard_error,
        f"{key}_top": 100 * one.same_top_share.value,
    }


def _is_published_order(found: Mapping[str, Fidelity]) -> bool:
    """Whether the types lose in the order of the published losses of Llama 3 8B."""
    cited = published_tables()["llama-3-8b-fidelity"].column("kld")
    shared = [mix for mix in TYPES if mix in cited]
    return sorted(shared, key=lambda mix: found[mix].kl_divergence.value) == sorted(shared, key=cited.get)


def _measures_apart(one: Fidelity, other: Fidelity) -> str:
    """The measures by which two files differ by more than both standard errors, as words."""
    pairs = {name: (getattr(one, measure), getattr(other, measure)) for name, measure in MEASURES.items()}
    apart = [name for name, (a, b) in pairs.items() if abs(a.value - b.value) > a.standard_error + b.standard_error]
    return " and ".join(apart) + (" only" if 0 < len(apart) < len(MEASURES) else "") or "none"


def imatrix_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: losses without and with the matrix of the training text, and the decode rate of a shape."""
    losses, rates = recorded(), load("epyc-2c/shape-type-rates")
    heads = "type", "bits per weight", "KLD without matrix", "KLD with", "decode, times F16", "kernel"
    rows = []
    for type in ("Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS"):
        without, helped = losses.of(type), losses.of(type, RIGHT)
        rows.append(
            (
                type,
                f"{losses.bits_per_weight(helped):.2f}",
                f"{without.kl_divergence.value:.4f}" if without else "not made",
                f"{helped.kl_divergence.value:.4f}",
                f"{rates.ratio(type, 'F16', 'decode'):.2f}",
                rates.of(type).kernel("decode"),
            )
        )
    return heads, rows


def imatrix_numbers() -> dict[str, float | str]:
    """Rates and bytes of two IQ types, in units of those of Q4_K_M."""
    rates, numbers = load("epyc-2c/shape-type-rates"), {}
    for key, type in (("iq4", "IQ4_XS"), ("iq3", "IQ3_XXS")):
        numbers |= {f"{key}_{phase}": rates.ratio(type, "Q4_K_M", phase) for phase in ("prefill", "decode")}
        numbers[f"{key}_bytes"] = rates.of(type).tensor_bytes / rates.of("Q4_K_M").tensor_bytes
    return {"types_cpu": rates.machine.cpu, **numbers}


def rate_numbers(runs: Mapping[str, Run]) -> dict[str, float | str]:
    """Rates and bytes of a shape in several types, in units of those of F16; `flow` is GB of weights read a second."""
    full, numbers = runs["F16"], {}
    for key, mix in (("f16", "F16"), ("q8", "Q8_0"), ("q6", "Q6_K"), ("q4", "Q4_K_M"), ("q2", "Q2_K")):
        one = runs[mix]
        numbers |= {
            f"{key}_decode_gain": one.decode_tokens_per_second / full.decode_tokens_per_second,
            f"{key}_prefill_gain": one.prefill_tokens_per_second / full.prefill_tokens_per_second,
            f"{key}_bytes_gain": full.model.tensor_bytes / one.model.tensor_bytes,
            f"{key}_flow": one.model.tensor_bytes * one.decode_tokens_per_second / GB,
        }
    shares = {key: runs[mix].kernel_shares(full.n_prompt) for key, mix in (("q8", "Q8_0"), ("q6", "Q6_K"))}
    return {**numbers, **{f"{key}_kernel": max(found, key=found.get) for key, found in shares.items()}}


def cache_numbers(caches: Losses, weights: Losses) -> dict[str, float]:
    """Divergences with a quantized cache, in nats a token, and how many times as much others are."""
    turned = {kind: caches.by_name[kind].kl_divergence.value for kind in CACHE_TYPES}
    plain = {kind: caches.by_name[f"{kind}, plain"].kl_divergence.value for kind in CACHE_TYPES}
    return {
        **{f"cache_{kind}": value for kind, value in turned.items()},
        **{f"cache_{kind}_gain": plain[kind] / turned[kind] for kind in CACHE_TYPES},
        "weights_over_cache": weights.by_name["Q8_0"].kl_divergence.value / turned["q8_0"],
    }


# --- inside a quantized file ----------------------------------------------------------------------------------------


def again_numbers() -> dict[str, int | str]:
    """What the same call gave when it was repeated: how many losses were others, to the last digit."""
    before, again = recorded(), load("epyc-2c/matrix-losses-again", MatrixLosses)
    pairs = zip(before.losses, again.losses, strict=True)
    return {
        "losses_first": before.date,
        "losses_again": again.date,
        "losses_n": len(again.losses),
        "losses_other": sum(one != two for one, two in pairs),
    }


def matrix_numbers() -> dict[str, float | int | str]:
    """What matrices of the right text, of a wrong one and of none change of the divergence, in percent."""
    losses, matrix = recorded(), read_imatrix(tiny_imatrix())
    code, shuffled = [losses.more_percent(type, "code") for type in COMPARED], losses.of("Q4_K_M", "shuffled").change
    return {
        "n_matrix": matrix.n_chunks * matrix.n_ctx,
        "n_scored": losses.n_tokens,
        **{f"less_{type.lower()}": losses.less_percent(type) for type in ("Q6_K", "Q4_K_M", "Q2_K")},
        "even_q2_k": losses.less_percent("Q2_K", EVEN),
        "search_share": _share_of_the_search(losses, "Q2_K"),
        "search_share_q4": _share_of_the_search(losses, "Q4_K_M"),
        "more_code_least": min(code),
        "more_code_most": max(code),
        "shuffled_verdict": "loses more than with no matrix at all"
        if shuffled.value - 2 * shuffled.standard_error > 0
        else "loses no more than without a matrix, within two standard errors",
        "mxfp4_or_q4_0": losses.of("MXFP4").kl_divergence.value / losses.of("Q4_0").kl_divergence.value,
    }


def _share_of_the_search(losses: MatrixLosses, type: str) -> float:
    """The part of the gain, in percent, that a matrix brings which says nothing about the columns."""
    return 100 * losses.less_percent(type, EVEN) / losses.less_percent(type)


def matrix_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: for each matrix but the test text's, the change of the divergence in three types."""
    losses = recorded()
    heads = "matrix", "Q4_K_M, against no matrix", "Q2_K, against no matrix", "IQ2_XXS, against the training text"
    return heads, [
        (
            MATRIX_NAMES[name],
            f"{-losses.less_percent('Q4_K_M', name):+.1f} %",
            f"{-losses.less_percent('Q2_K', name):+.1f} %",
            f"{losses.more_percent('IQ2_XXS', name):+.1f} %",
        )
        for name in MATRICES
        if name != LEAKED
    ]


def published_matrix_numbers() -> dict[str, float | int]:
    """What a matrix won back in Llama 3 8B, in percent, and how little the number of its tokens changed."""
    tables = published_tables()
    plain = tables["llama-3-8b-fidelity"].rows
    helped = tables["llama-3-8b-fidelity-imatrix"].rows
    by_tokens = tables["llama-3-8b-fidelity-q2_k-by-tokens"].column("kld")
    tokens = [int(name) for name in by_tokens]
    mixes = "Q4_K_M", "Q3_K_M", "Q2_K"
    return {
        **{f"published_less_{mix.lower()}": 100 * (1 - helped[mix]["kld"] / plain[mix]["kld"]) for mix in mixes},
        "by_tokens": 100 * (max(by_tokens.values()) / min(by_tokens.values()) - 1),
        "fewest": min(tokens),
        "most": max(tokens),
    }
