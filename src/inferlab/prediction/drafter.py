"""The memory of a model that drafts for another one in llama-server, and whether their vocabularies match.

llama-server gives the second model a context of as many tokens and slots as the first one has, a cache of F16 unless
--spec-draft-type-k and -v say otherwise, and all its layers on the GPU (common/speculative.cpp:2446, 2531).
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.errors import InvalidSettings
from inferlab.machine import Machine
from inferlab.model.find import is_address
from inferlab.model.gguf import LazyArray, Model
from inferlab.options.lines.base import on_hub
from inferlab.options.speculation import Speculative
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import bytes_text

TOKENS = "tokenizer.ggml.tokens"
TYPE = "tokenizer.ggml.model"
IDS = ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id")
MOST_DIFFERENCE, FIRST_CHECKED = 128, 5
"""common/speculative.cpp:30: how many more tokens one vocabulary may have, and the first id that is compared."""
WITH_FLAGS = ("llama-server", "llama-cli")
"""Programs whose drafting model is given by flags."""


@dataclass(frozen=True)
class DraftPlan:
    """The bytes of a drafting model, and its path or address; "" where there is no file."""

    plan: MemoryPlan
    path: str

    @property
    def most_bytes(self) -> int:
        """What it needs at most on one device."""
        return max(self.plan.most_bytes(device) for device in self.plan.devices)

    @property
    def text(self) -> str:
        """Its weights, cache and other buffers over all devices, in a sentence."""
        held = self.plan.devices.values()
        weights, cache = (sum(device.parts[kind] or 0 for device in held) for kind in ("weights", "kv_cache"))
        most = sum(self.plan.most_bytes(device) for device in self.plan.devices)
        return (
            f"Drafter {self.plan.model.name}: {bytes_text(weights)} of weights and {bytes_text(cache)} of cache for "
            f"{self.plan.settings.n_ctx:,} tokens, {bytes_text(most)} with all buffers; left free beside the model."
        )

    def line(self, program: str) -> str:
        """The flags for a program; a comment where it has none."""
        elsewhere = is_address(self.path) and not on_hub(self.path)
        path = "draft.gguf" if elsewhere or not self.path else self.path
        if program not in WITH_FLAGS:
            return f"# the drafter {path} is not part of these lines for {program}"
        return Speculative(("draft-simple",), path).line


def plan_drafter(model: Model, draft: Model, settings: Settings, machine: Machine, simulate: bool = True) -> DraftPlan:
    """The memory of `draft` beside `model` with `settings`, which have n_ctx.

    Raises InvalidSettings for vocabularies that llama-server takes for different, UnsupportedArchitecture.
    """
    check_vocabularies(model, draft)
    own = Settings(
        n_ctx=settings.n_ctx,
        n_seq_max=settings.n_seq_max,
        n_batch=settings.n_batch,
        n_ubatch=settings.n_ubatch,
        kv_unified=settings.kv_unified,
        flash_attn=settings.flash_attn,
    )
    plan = predict_memory(draft, own, machine, reserve="llama-server", simulate=simulate)
    return DraftPlan(plan, str(draft.file or draft.source))


def check_vocabularies(model: Model, draft: Model) -> None:
    """Raise InvalidSettings where llama-server would start without speculation because the vocabularies differ.

    Compared are the type, BOS, EOS, the number of tokens, and those from id 5 on, as far as both headers have them.
    """
    difference = _difference(model, draft)
    if difference:
        raise InvalidSettings(
            f"{draft.name} cannot draft for {model.name}: {difference}. llama-server would start without speculation "
            "and log one error (speculative.cpp:242, server-context.cpp:1244). Take a drafter of the same family."
        )


def _difference(model: Model, draft: Model) -> str:
    names = [header.metadata.get(TYPE) for header in (model, draft)]
    if None not in names and names[0] != names[1]:
        return f"their tokenizers are {names[0]} and {names[1]}"
    for key in IDS:
        ids = [header.metadata.get(key) for header in (model, draft)]
        if None not in ids and ids[0] != ids[1]:
            return f"{key} is {ids[0]} in one and {ids[1]} in the other"
    n_vocab, n_draft = model.n_vocab, draft.n_vocab
    if n_vocab is not None and n_draft is not None and abs(n_vocab - n_draft) > MOST_DIFFERENCE:
        return f"they have {n_vocab:,} and {n_draft:,} tokens, and at most {MOST_DIFFERENCE} may be missing"
    if not all(
        isinstance(header.metadata.get(TOKENS), LazyArray) and header.path.is_file() for header in (model, draft)
    ):
        return ""
    pairs = zip(*(header.array(TOKENS)[FIRST_CHECKED:] for header in (model, draft)), strict=False)
    other = next((i for i, (a, b) in enumerate(pairs, FIRST_CHECKED) if a != b), None)
    return "" if other is None else f"token {other} is not the same in both"
