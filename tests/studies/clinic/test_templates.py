"""Faults of a chat template, met by llama-server on SmolLM2's real template."""

import pytest

from inferlab.engine.programs import built_program
from inferlab.errors import EngineTimeout, EngineUnavailable, ModelNotFound
from inferlab.log_reader import explain
from inferlab.model import smollm2
from inferlab.model.find import cache_folder
from studies.clinic import study, templates
from studies.clinic.templates import QUESTION, SYSTEM, TemplateCase

EXPECTED = {
    "unknown template": ("exit", "chat-template", "template is not supported: chatlm"),
    "name taken for a template": ("no error", "prompt-without-words", "task.n_tokens = 2"),
    "messages lost": ("no error", "prompt-without-words", "task.n_tokens = 4"),
    "system role refused": ("error", "template-without-system", "Jinja Exception: System role not supported"),
}
"""Case -> how it ends, the finding, a part of llama.cpp's message."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@pytest.fixture
def fetched(monkeypatch, tmp_path):
    """llama-server is there, and so is the model."""
    monkeypatch.setattr(templates, "built_program", lambda _: tmp_path)
    monkeypatch.setattr(templates, "find_model", lambda _: tmp_path)


def test_every_case_has_an_expectation():
    """And the real server is asked for all of them."""
    assert set(templates.CASES) == set(EXPECTED)


def test_all_cases_where_server_and_model_are(fetched):
    """In the order in which the lab shows them."""
    assert templates.possible() == [*EXPECTED]


def test_without_the_server_nothing_is_fetched(fetched, monkeypatch):
    """The model is not asked for."""
    monkeypatch.setattr(templates, "built_program", lambda _: None)
    monkeypatch.setattr(templates, "find_model", lambda _: pytest.fail("the model was asked for"))
    assert templates.possible() == []


def test_without_the_model_the_cases_are_left_out(fetched, monkeypatch):
    """A machine without a network has a lab without them."""

    def missing(_):
        raise ModelNotFound("It is not on this machine.")

    monkeypatch.setattr(templates, "find_model", missing)
    assert templates.possible() == []


@pytest.mark.parametrize("name", ["messages lost", "system role refused"])
def test_a_case_changes_the_models_own_template(name, tmp_path):
    """One place of it differs, in a file that the server is given."""
    option, path = templates.CASES[name].options(tmp_path, TEMPLATE)
    changed = (tmp_path / "template.jinja").read_text(encoding="utf-8")
    assert (option, path) == ("--chat-template-file", str(tmp_path / "template.jinja"))
    assert changed != TEMPLATE
    assert changed.endswith("{{ message['content'] }}{% endfor %}")


def needs_server():
    if not built_program("llama-server") or not smollm2.is_fetched(cache_folder()):
        pytest.skip("llama-server or SmolLM2 is not on this machine")


@pytest.mark.engine
@pytest.mark.parametrize("name", EXPECTED)
def test_a_provoked_fault_is_recognised(name):
    """llama.cpp's own message is in the log, and the log reader puts the cause first."""
    needs_server()
    ended, finding, message = EXPECTED[name]
    found = templates.provoke(name)
    assert found.ended == ended
    assert message in found.own_words
    assert found.own_words in found.log
    assert finding in [one.id for one in explain(found.log).findings[:1]]


@pytest.mark.engine
def test_one_message_of_the_system_is_joined_to_the_users(monkeypatch):
    """The control: llama-server mends it before the template sees it; alone in the chat, it is removed."""
    needs_server()
    joined = TemplateCase("control", "", templates.refuses_system, [(SYSTEM, QUESTION), (QUESTION,)])
    monkeypatch.setitem(templates.CASES, "control", joined)
    found = templates.provoke("control")
    sizes = [int(line.rpartition(" = ")[2]) for line in found.log.splitlines() if "new prompt, " in line]
    assert found.ended == "no error"
    assert sizes[0] > sizes[1] > 20
    assert study.first_finding(found) is None


@pytest.mark.engine
def test_a_server_that_never_listens_is_ended(monkeypatch):
    """After a minute there is an error with its last words."""
    needs_server()
    monkeypatch.setattr(templates, "TIMEOUT_SECONDS", 0.0)
    with pytest.raises(EngineTimeout, match="was not ready"):
        templates.provoke("messages lost")


def test_a_missing_server_is_an_error(fetched, monkeypatch, tmp_path):
    """Who asks for a case that is not possible is told what to compile."""
    monkeypatch.setattr("inferlab.engine.llama_server.built_program", lambda _: None)
    with pytest.raises(EngineUnavailable, match="make tools"):
        templates._met(templates.CASES["unknown template"], (), tmp_path)
