"""A question to a model through its own chat template, and its answer: what a person would read, not a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import ModelError
from inferlab.model.find import find_model
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings

TEMPLATE = "tokenizer.chat_template"
ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")


def answer(question: str, model: str | Path | None = None, n_gen: int = 48, engine: Engine | None = None) -> str:
    """The greedy answer to one question, at most `n_gen` tokens; cut off, it ends with an ellipsis.

    A model without a chat template goes on with the text instead. Raises ModelError, EngineRefused or EngineCrashed.
    """
    engine, path = engine or default_engine(), find_model(model)
    header = read_gguf(path)
    with engine.exclusive():
        engine.open_vocabulary(path)
        prompt = engine.tokenize(prompt_text(question, header.metadata.get(TEMPLATE)))
        engine.open(path, Settings(n_ctx=padded(len(prompt) + n_gen)))
        tokens = engine.generate(prompt, n_gen).tokens
        ends = {header.metadata.get(name) for name in ENDS}
        return _told(engine, tokens, list(takewhile(lambda token: token not in ends, tokens)))


def _told(engine: Engine, tokens: Sequence[int], before_end: Sequence[int]) -> str:
    return engine.detokenize(before_end).strip() + (" …" if len(before_end) == len(tokens) else "")


def prompt_text(question: str, template: str | None) -> str:
    """The text that a Jinja template makes of one message of the user; the question itself without a template.

    The text has no opening token, because the tokenizer adds it. The template comes from a file, so it runs in
    Jinja's sandbox. Raises ModelError for one that fails.
    """
    if not template:
        return question
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": "user", "content": question}]
    values = {"messages": messages, "add_generation_prompt": True, "raise_exception": _raise}
    try:
        return sandbox.from_string(template).render(bos_token="", eos_token="", **values)
    except TemplateError as error:
        raise ModelError(f"The model's chat template fails: {error}. Ask a model with another template.") from error


def _raise(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
