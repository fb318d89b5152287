"""A model at an address in the planner: what the front end is told to do, and what the library makes of its answers."""

from __future__ import annotations

import json
import re

import pytest
from bs4 import BeautifulSoup
from small_models import write_model

from inferlab import instruments
from inferlab.instruments import addressed, planner
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.views import html_of
from inferlab.model.hub import HUB

LISTED = [
    {"type": "file", "path": "m/model-Q4_K_M-00001-of-00002.gguf", "size": 30},
    {"type": "file", "path": "m/model-Q4_K_M-00002-of-00002.gguf", "size": 20},
    {"type": "file", "path": "model-Q8_0.gguf", "size": 80},
    {"type": "file", "path": "mmproj-F16.gguf", "size": 5},
]
ADDRESS = "hf:owner/repo:Q4_K_M"
LIST = f"{HUB}/api/models/owner/repo/tree/main?recursive=true"


@pytest.fixture
def files(tmp_path) -> DroppedFiles:
    """No file yet."""
    return DroppedFiles(tmp_path)


def answered(files: DroppedFiles, listed: object = LISTED, status: int = 200, **more: str) -> dict:
    """What follows an answer of the Hub."""
    message = {"text": ADDRESS, "pages": [json.dumps(listed)], "url": LIST, "status": status, **more}
    return instruments.heard(files, message)


def test_an_address_becomes_a_list_and_then_files(files):
    """First the repository's list is asked for, then the parts of the model that the type means."""
    assert instruments.heard(files, {"text": f" {ADDRESS} ", "press": 7}) == {
        "kind": "fetch",
        "url": LIST,
        "address": f" {ADDRESS} ",
        "command": f"inferlab plan {ADDRESS}",
        "press": 7,
    }
    told = answered(files)
    assert (told["kind"], told["source"]) == ("files", "hf:owner/repo/m/model-Q4_K_M-00001-of-00002.gguf")
    assert told["files"][1] == {
        "name": "model-Q4_K_M-00002-of-00002.gguf",
        "size": 20,
        "url": f"{HUB}/owner/repo/resolve/main/m/model-Q4_K_M-00002-of-00002.gguf",
    }
    assert [text for _, text in told["choices"]] == ["Q4_K_M, 50 B (2 parts)", "Q8_0, 80 B"]
    assert "mmproj-F16.gguf, 5 B, a projector" in files.beside[told["source"]][0]


def test_a_list_goes_on_where_the_hub_says(files):
    """A next page of the same host is asked for; another host never is."""
    following = f"{LIST}&cursor=x"
    assert answered(files, link=f'<{following}>; rel="next"')["url"] == following
    assert answered(files, link='<https://elsewhere.example.org/x>; rel="next"')["kind"] == "files"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "There is no address. Write hf:owner/repo"),
        ("https://example.org/a b.gguf", "In a terminal: inferlab plan 'https://example.org/a b.gguf'"),
        ("http://huggingface.co.evil.example/a/b", "may ask huggingface.co alone"),
        ("model.gguf", "'model.gguf' is no address"),
        ("hf:a/b/../c.gguf", "is not of the form"),
        ("https://[x", "is no address"),
        ("https://huggingface.co:x/a/b", "is no address"),
        ("https://user:secret@huggingface.co/a/b", "has a name or a password"),
    ],
)
def test_another_address_is_never_asked(files, text, said):
    """It is refused with what to write, or with the command for a terminal."""
    told = instruments.heard(files, {"text": text})
    assert told["kind"] == "unread"
    assert said in told["text"]
    assert "secret" not in told["text"]


@pytest.mark.parametrize(
    ("status", "listed", "said"),
    [
        (401, [], "was answered 401. It is a name that is not there, or a private or gated repository."),
        (404, [], "was answered 404. There is no such file."),
        (200, {"error": "x"}, "something else than a list of files"),
        (200, [{"type": "file", "path": "a.txt", "size": 1}], "has no model as a .gguf file"),
        (200, [{"type": "file", "path": "a.gguf", "size": float("inf")}], "something else than a list of files"),
        (200, [{"type": "file", "path": "a.gguf", "size": 10**400}], "something else than a list of files"),
    ],
)
def test_a_refusal_of_the_hub_is_told(files, status, listed, said):
    """With what it may mean and what to do."""
    told = answered(files, listed, status)
    assert told["kind"] == "unread"
    assert said in told["text"]
    assert ".." not in told["text"]


def test_an_answer_that_is_no_list_is_told(files):
    """A page to log in, as a hotel's network sends, is none."""
    message = {"text": ADDRESS, "pages": ["<html>"], "url": LIST, "status": 200}
    assert "no JSON: '<html>'" in instruments.heard(files, message)["text"]


def test_an_answer_nested_without_end_is_told(files):
    """No depth of brackets ends the worker."""
    message = {"text": ADDRESS, "pages": ["[" * 200_000], "url": LIST, "status": 200}
    assert "no JSON" in instruments.heard(files, message)["text"]


def test_a_file_with_signs_of_a_shell_is_quoted(files):
    """What a reader pastes runs no more than one command, whatever a stranger calls a file."""
    listed = [{"type": "file", "path": f"{name}-Q4_K_M.gguf", "size": 9} for name in ("m;reboot", "mtp-$(reboot)")]
    told = answered(files, listed)
    assert told["command"] == "inferlab plan 'hf:owner/repo/m;reboot-Q4_K_M.gguf'"
    assert "--draft 'hf:owner/repo/mtp-$(reboot)-Q4_K_M.gguf'" in files.beside[told["source"]][0]


def test_a_slice_that_does_not_follow_is_refused(files, tmp_path):
    """Bytes of another file of the same name, or bytes twice, never become part of a header."""
    content = write_model(tmp_path / "other.gguf", "llama").read_bytes()
    assert instruments.sent(files, "m.gguf", len(content), 0, content[:64])["kind"] == "more"
    for start in (32, 100):
        told = instruments.sent(files, "m.gguf", len(content), start, content[start:])
        assert (told["kind"], "64 are here" in told["text"]) == ("refused", True)
    assert instruments.sent(files, "m.gguf", len(content), 64, content[64:])["kind"] == "read"


def test_a_file_knows_where_it_came_from(files, tmp_path):
    """The model of an address has it and what lies beside; the same name dropped later has neither."""
    content = write_model(tmp_path / "other.gguf", "llama").read_bytes()
    files.beside["hf:a/b/m.gguf"] = ("A projector.",)
    assert instruments.sent(files, "m.gguf", len(content), 0, content, source="hf:a/b/m.gguf")["kind"] == "read"
    assert (files.model("m.gguf").source, files.model("m.gguf").beside) == ("hf:a/b/m.gguf", ("A projector.",))
    instruments.sent(files, "m.gguf", len(content), 0, content)
    assert (files.model("m.gguf").source, files.model("m.gguf").beside) == ("", ())


def test_the_command_names_the_address(files, tmp_path):
    """What to type in a terminal is the address that was read, and what lies beside it stands among the notes."""
    content = write_model(tmp_path / "other.gguf", "llama").read_bytes()
    files.beside["hf:a/b/m.gguf"] = ("A projector lies beside.",)
    instruments.sent(files, "m.gguf", len(content), 0, content, source="hf:a/b/m.gguf")
    answer = instruments.answered("planner", {**planner.DEFAULTS, "model": "file", "file": "m.gguf"}, files)
    shown = BeautifulSoup(html_of(answer["view"]), "html.parser").get_text()
    assert "inferlab plan hf:a/b/m.gguf --" in shown
    assert "A projector lies beside." in shown


def test_the_lines_to_paste_name_the_address_or_the_file(files, tmp_path):
    """A program fetches what was read from the Hub; of a dropped file its name stands there."""
    content = write_model(tmp_path / "other.gguf", "llama").read_bytes()
    asked = {**planner.DEFAULTS, "model": "file", "file": "m.gguf"}

    def lines(source):
        instruments.sent(files, "m.gguf", len(content), 0, content, source=source)
        view = instruments.answered("planner", asked, files)["view"]
        return BeautifulSoup(html_of(view), "html.parser").select_one("#for-llama-server").get_text()

    assert "llama-server -hf a/b -hff m.gguf -c 8192 " in lines("hf:a/b/m.gguf")
    assert "llama-server -m m.gguf -c 8192 " in lines("")


def test_the_form_names_whom_it_asks():
    """The button has the host, the sentence beside it both, and both are what the policy allows; any file is taken."""
    soup = BeautifulSoup(html_of(addressed.controls("file", only="model=file")), "html.parser")
    button = soup.select_one(f"button[{addressed.BUTTON}]")
    assert button.get_text() == "Ask huggingface.co"
    assert re.findall(r"[*\w.]*\b(?:huggingface\.co|hf\.co)", soup.p.find_next("p").get_text()) == [
        "huggingface.co",
        "*.hf.co",
    ]
    assert addressed.SOURCES == ("https://huggingface.co", "https://*.hf.co")
    assert not soup.select_one("[type=file]").has_attr("accept")
