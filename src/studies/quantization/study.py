"""What an importance matrix changes, and the numbers of the pages on quantization.

Every file reads the same held-out text, so two files are compared token by token: the mean difference of their
divergences has a much smaller standard error than either divergence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

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
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


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

    def loss(self, type: str, matrix: str = NONE) -> Loss | None:
        """One file's loss; None where it was not measured or is not made."""
        return next((loss for loss in self.losses if (loss.type, loss.matrix) == (type, matrix)), None)

    def bits_per_weight(self, loss: Loss) -> float:
        return 8 * loss.tensor_bytes / self.model.n_params

    def less_percent(self, type: str, matrix: str = RIGHT) -> float:
        """By how many percent a matrix lowers the divergence; negative where it raises it.

        Raises InvalidSettings where one of the two files was not measured.
        """
        without, helped = self.loss(type), self.loss(type, matrix)
        if without is None or helped is None:
            raise InvalidSettings(f"{type} was not measured both without a matrix and with {matrix!r}.")
        return 100 * (1 - helped.kl_divergence.value / without.kl_divergence.value)

    def more_percent(self, type: str, matrix: str) -> float:
        """By how many percent the divergence with a matrix is above that with the training text's."""
        return 100 * (self.loss(type, matrix).kl_divergence.value / self.loss(type, RIGHT).kl_divergence.value - 1)


@cache
def recorded() -> MatrixLosses:
    """The losses of the embedded model."""
    return load("epyc-2c/matrix-losses", MatrixLosses)


@cache
def _type_rates():
    """The rates of a shape in many types."""
    return load("epyc-2c/shape-type-rates")


# --- chapter 5 ------------------------------------------------------------------------------------------------------


def published_numbers() -> dict[str, float]:
    """Sizes of Mistral 7B in GB, of its cache in GiB, bits per weight, and published losses; changes in percent."""
    tables, mistral = published_tables(), known_model("mistral-7b")
    cited, older = tables["llama-3-8b-fidelity"].rows, tables["llama-2-7b-fidelity"].rows
    increase = tables["mistral-7b-perplexity"].column("increase_percent")
    models = {mix.lower(): shape("mistral-7b", mix) for mix in ("F16", *TYPES)}
    cells = {kind: 8192 * kv_cache_bytes_per_token(mistral, kind, kind) for kind in ("f16", "q8_0", "q4_0")}
    return {
        **{f"size_{mix}": model.tensor_bytes / GB for mix, model in models.items()},
        **{f"bpw_{mix}": 8 * model.tensor_bytes / model.n_params for mix, model in models.items()},
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
    files = losses.by_name
    eight, four, two = (files[mix].kl_divergence.value for mix in ("Q8_0", "Q4_K_M", "Q2_K"))
    numbers = {
        "tokens_scored": files["Q8_0"].n_tokens,
        "step_84": four / eight,
        "step_42": two / four,
        "same_order": "in the same order" if _is_published_order(files) else "in another order",
        "apart": _measures_apart(files["Q6_K"], files["Q5_K_M"]),
        **{f"tiny_{mix.lower()}_top": 100 * files[mix].same_top_share.value for mix in ("Q4_K_M", "Q2_K")},
    }
    estimates = {"tiny_ppl": files["Q8_0"].reference_perplexity}
    for mix in ("Q6_K", "Q5_K_M"):
        key, file, ratio = f"tiny_{mix.lower()}", files[mix], files[mix].log_perplexity_ratio
        percent = Estimate(100 * ratio.value, 100 * ratio.standard_error)
        estimates |= {key: file.kl_divergence, f"{key}_ppl": file.perplexity, f"{key}_ratio": percent}
    for key, estimate in estimates.items():
        numbers |= {key: estimate.value, f"{key}_error": estimate.standard_error}
    return numbers


def _is_published_order(files: Mapping[str, Fidelity]) -> bool:
    """Whether the types lose in the order of the published losses of Llama 3 8B."""
    cited = published_tables()["llama-3-8b-fidelity"].column("kld")
    shared = [mix for mix in TYPES if mix in cited]
    return sorted(shared, key=lambda mix: files[mix].kl_divergence.value) == sorted(shared, key=lambda mix: cited[mix])


def _measures_apart(file: Fidelity, other: Fidelity) -> str:
    """The measures by which two files differ by more than both standard errors, as words."""
    pairs = {name: (getattr(file, measure), getattr(other, measure)) for name, measure in MEASURES.items()}
    apart = [name for name, (a, b) in pairs.items() if abs(a.value - b.value) > a.standard_error + b.standard_error]
    return " and ".join(apart) + (" only" if 0 < len(apart) < len(MEASURES) else "") or "none"


def imatrix_table() -> Table:
    """Heads and rows: losses without and with the matrix of the training text, and the decode rate of a shape."""
    losses, rates = recorded(), _type_rates()
    rows = []
    for type in ("Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS"):
        without, helped = losses.loss(type), losses.loss(type, RIGHT)
        bits, decode = losses.bits_per_weight(helped), rates.ratio(type, "F16", "decode")
        plain = f"{without.kl_divergence.value:.4f}" if without else "not made"
        kld = f"{helped.kl_divergence.value:.4f}"
        rows.append((type, f"{bits:.2f}", plain, kld, f"{decode:.2f}", rates.type_rate(type).kernel("decode")))
    return ("type", "bits per weight", "KLD without matrix", "KLD with", "decode, times F16", "kernel"), rows


def imatrix_numbers() -> dict[str, float | str]:
    """Rates and bytes of two IQ types, in units of those of Q4_K_M."""
    rates = _type_rates()
    numbers: dict[str, float | str] = {"types_cpu": rates.machine.cpu}
    for key, type in (("iq4", "IQ4_XS"), ("iq3", "IQ3_XXS")):
        numbers |= {f"{key}_{phase}": rates.ratio(type, "Q4_K_M", phase) for phase in ("prefill", "decode")}
        numbers[f"{key}_bytes"] = rates.type_rate(type).tensor_bytes / rates.type_rate("Q4_K_M").tensor_bytes
    return numbers


def rate_numbers(runs: Mapping[str, Run]) -> dict[str, float | str]:
    """Rates and bytes of a shape in several types, in units of those of F16; `flow` is GB of weights read a second."""
    full = runs["F16"]
    numbers: dict[str, float | str] = {}
    for key, mix in (("f16", "F16"), ("q8", "Q8_0"), ("q6", "Q6_K"), ("q4", "Q4_K_M"), ("q2", "Q2_K")):
        run = runs[mix]
        numbers |= {
            f"{key}_decode_gain": run.decode_tokens_per_second / full.decode_tokens_per_second,
            f"{key}_prefill_gain": run.prefill_tokens_per_second / full.prefill_tokens_per_second,
            f"{key}_bytes_gain": full.model.tensor_bytes / run.model.tensor_bytes,
            f"{key}_flow": run.model.tensor_bytes * run.decode_tokens_per_second / GB,
        }
    for key, mix in (("q8", "Q8_0"), ("q6", "Q6_K")):
        shares = runs[mix].kernel_shares(full.n_prompt)
        numbers[f"{key}_kernel"] = max(shares, key=lambda kernel: shares[kernel])
    return numbers


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
    return {
        "losses_first": before.date,
        "losses_again": again.date,
        "losses_n": len(again.losses),
        "losses_other": sum(first != second for first, second in zip(before.losses, again.losses, strict=True)),
    }


def matrix_numbers() -> dict[str, float | int | str]:
    """What matrices of the right text, of a wrong one and of none change of the divergence, in percent."""
    losses, matrix = recorded(), read_imatrix(tiny_imatrix())
    code, shuffled = [losses.more_percent(type, "code") for type in COMPARED], losses.loss("Q4_K_M", "shuffled").change
    even = {type: losses.less_percent(type, EVEN) for type in ("Q2_K", "Q4_K_M")}
    return {
        "n_matrix": matrix.n_chunks * matrix.n_ctx,
        "n_scored": losses.n_tokens,
        **{f"less_{type.lower()}": losses.less_percent(type) for type in ("Q6_K", "Q4_K_M", "Q2_K")},
        "even_q2_k": even["Q2_K"],
        "search_share": 100 * even["Q2_K"] / losses.less_percent("Q2_K"),
        "search_share_q4": 100 * even["Q4_K_M"] / losses.less_percent("Q4_K_M"),
        "more_code_least": min(code),
        "more_code_most": max(code),
        "shuffled_verdict": "loses more than with no matrix at all"
        if shuffled.value - 2 * shuffled.standard_error > 0
        else "loses no more than without a matrix, within two standard errors",
        "mxfp4_or_q4_0": losses.loss("MXFP4").kl_divergence.value / losses.loss("Q4_0").kl_divergence.value,
    }


def matrix_table() -> Table:
    """Heads and rows: for each matrix but the test text's, the change of the divergence in three types."""
    losses, rows = recorded(), []
    for name in (name for name in MATRICES if name != LEAKED):
        changes = (
            -losses.less_percent("Q4_K_M", name),
            -losses.less_percent("Q2_K", name),
            losses.more_percent("IQ2_XXS", name),
        )
        rows.append((MATRIX_NAMES[name], *(f"{change:+.1f} %" for change in changes)))
    heads = "matrix", "Q4_K_M, against no matrix", "Q2_K, against no matrix", "IQ2_XXS, against the training text"
    return heads, rows


def published_matrix_numbers() -> dict[str, float | int]:
    """What a matrix won back in Llama 3 8B, in percent, and how little the number of its tokens changed."""
    tables = published_tables()
    plain, helped = tables["llama-3-8b-fidelity"].rows, tables["llama-3-8b-fidelity-imatrix"].rows
    by_tokens = tables["llama-3-8b-fidelity-q2_k-by-tokens"].column("kld")
    mixes, tokens = ("Q4_K_M", "Q3_K_M", "Q2_K"), [int(name) for name in by_tokens]
    return {
        **{f"published_less_{mix.lower()}": 100 * (1 - helped[mix]["kld"] / plain[mix]["kld"]) for mix in mixes},
        "by_tokens": 100 * (max(by_tokens.values()) / min(by_tokens.values()) - 1),
        "fewest": min(tokens),
        "most": max(tokens),
    }
