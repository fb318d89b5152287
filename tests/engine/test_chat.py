"""A question through a model's chat template, and the answer that a person reads."""

import pytest
from fakes import ScriptedEngine, scripted_pass

from inferlab.engine import chat
from inferlab.errors import ModelError
from inferlab.model.find import tiny_model

MARKED = "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
TURN = "{% if add_generation_prompt %}<assistant>{% endif %}"


def test_a_template_marks_the_question_and_the_turn():
    """Without the opening token, which the tokenizer adds; without a template the question is the text."""
    assert chat.prompt_text("Why?", MARKED + TURN) == "<user>Why?<assistant>"
    assert chat.prompt_text("Why?", None) == "Why?"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('not so') }}", "{% for %}", "{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}"],
)
def test_a_template_that_fails_is_an_error_of_the_model(template):
    """One that refuses, that does not parse, or that reaches for more than a text: it runs in a sandbox."""
    with pytest.raises(ModelError, match="chat template fails"):
        chat.prompt_text("Why?", template)


def answered(*tokens):
    scripted = scripted_pass(gaps=(0.1,) * (len(tokens) - 1))
    return ScriptedEngine([type(scripted)(**{**vars(scripted), "tokens": tokens})])


def test_an_answer_ends_at_the_models_own_end():
    """What comes after it is not shown, and an answer that reached no end says so."""
    assert chat.answer("a bc", tiny_model(), engine=answered(2, 3, 1, 2)) == "xx xxx"
    assert chat.answer("a bc", tiny_model(), engine=answered(2, 3)) == "xx xxx …"


def test_the_context_holds_prompt_and_answer():
    """Rounded up as llama.cpp rounds it."""
    engine = answered(2, 3)
    chat.answer("a bc", tiny_model(), n_gen=300, engine=engine)
    assert engine.opened[0].n_ctx == 512
    assert engine.asked == [([1, 2], 300)]


@pytest.mark.engine
def test_the_embedded_model_goes_on_with_a_text():
    """It has no template, and the same text is continued the same way each time."""
    first, second = (chat.answer("The server reads the file and", tiny_model(), n_gen=8) for _ in range(2))
    assert first == second
    assert first.endswith(" …")
