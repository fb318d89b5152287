"""A model's header from an address, with a server of our own in place of the Hub: good ones, and all others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_server import (
    REPO,
    HubServer,
    answers,
    drips,
    ends_early,
    fails_first,
    ignores_ranges,
    is_silent,
    of_files,
    page_of_a_file,
    sends_other_bytes,
    serving_hub,
    tells,
    tells_more_each_time,
)
from small_models import write_model
from split_files import write_split

from inferlab.errors import DamagedGGUF, ModelError, ModelNotFound, NotGGUF, NotReached, UnsupportedGGUF
from inferlab.model import find, remote, web
from inferlab.model.find import find_model
from inferlab.model.gguf import PackedArray, Tensor, header_bytes, read_gguf
from inferlab.model.named import model_named
from inferlab.model.remote import remote_model

WHOLE_FILE = 16 * 2**30
FILE = "model-Q4_K_M.gguf"
LONG = 5 * 2**20


@pytest.fixture(autouse=True)
def _nobodys_token(monkeypatch, tmp_path):
    """No token and no file of this machine's user takes part, no try is waited for, and each test asks anew."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "INFERLAB_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setattr(web, "PAUSES", (0.01, 0.01))
    remote_model.cache_clear()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A small model, which takes 16 GiB of address space and almost no disk, with what lies beside it."""
    folder = tmp_path_factory.mktemp("hub")
    model = write_model(folder / FILE, "llama")
    os.truncate(model, WHOLE_FILE)
    other = write_model(folder / "model-Q8_0.gguf", "llama")
    projector, notes = folder / "mmproj-model-F16.gguf", folder / "README.md"
    projector.write_bytes(b"GGUF" + bytes(2**20))
    notes.write_text("notes")
    parts = write_split(folder, "big-F16", write_model(folder / "whole.gguf", "llama"), 3)
    return {
        "README.md": notes,
        **{f"big/{part.name}": part for part in parts},
        projector.name: projector,
        FILE: model,
        other.name: other,
    }


def long_header(path: Path, n_bytes: int = LONG) -> Path:
    """A model whose metadata has so many bytes, as a large vocabulary has."""
    padding = PackedArray(0, n_bytes, n_bytes, lambda: bytes(n_bytes))
    tensors = (Tensor("token_embd.weight", (32, 8), "F32", 1024, 0),)
    plain = {"general.architecture": "llama", "llama.block_count": 1, "padding": padding}
    path.write_bytes(header_bytes(plain, tensors) + bytes(1024))
    return path


@pytest.fixture
def hub(files, monkeypatch) -> Iterator[HubServer]:
    """A server in the Hub's place that sends on to another host for the bytes."""
    with serving_hub(HubServer(files)) as cdn, serving_hub(HubServer(files)) as hub:
        hub.cdn = cdn.address.replace("127.0.0.1", "localhost")
        hub.bytes_of = cdn
        monkeypatch.setenv("HF_ENDPOINT", hub.address + "/")
        yield hub


def numbers(model: Any) -> tuple:
    return model.tensors, model.file_bytes, [*model.metadata], model.architecture


# --- what works -----------------------------------------------------------------------------------------


def test_only_the_beginning_of_a_file_is_read(hub, files):
    """Of 16 GiB two are 2 MiB sent, and the header is that of the file; its name is the address."""
    model = model_named(f"hf:{REPO}/{FILE}")
    assert numbers(model) == numbers(read_gguf(files[FILE]))
    assert model.source == f"hf:{REPO}/{FILE}"
    assert hub.n_sent == 0 < hub.bytes_of.n_sent <= remote.FIRST_SLICE


def test_a_long_header_is_read_to_its_end(tmp_path, monkeypatch):
    """Slices are asked for until the header is whole, and none twice."""
    path = long_header(tmp_path / FILE)
    with serving_hub(HubServer({FILE: path})) as hub:
        model = remote_model(f"{hub.address}/bytes/{FILE}")
        assert model.metadata["padding"].length == LONG
        assert model.array("padding") == [0] * LONG
        ranges = [asked for _, asked, _ in hub.asked]
    assert ranges == ["bytes=0-2097151", f"bytes=2097152-{path.stat().st_size - 1}"]


@pytest.mark.parametrize("name", [f"hf:{REPO}:q4_k_m", f"hf:{REPO}", "https://huggingface.co/{REPO}/blob/main/{FILE}"])
def test_a_type_or_the_page_of_a_file_means_that_file(hub, name):
    """A type is found as llama.cpp's -hf finds it, and the address of the file's page on the Hub is taken, too."""
    assert model_named(name.format(REPO=REPO, FILE=FILE)).source == f"hf:{REPO}/{FILE}"


def test_the_parts_of_a_split_file_are_one_model(hub, files):
    """By name or address of the first part all are read, a little of each, with the projector told beside."""
    whole = read_gguf(files["big/big-F16-00001-of-00003.gguf"])
    model = model_named(f"hf:{REPO}:F16")
    assert numbers(model) == numbers(whole)
    assert {t.part for t in model.tensors} == {0, 1, 2}
    assert "mmproj-model-F16.gguf, 1.00 MiB, a projector" in model.beside[0]
    direct = remote_model(f"{hub.bytes_of.address}/bytes/big/big-F16-00001-of-00003.gguf")
    assert (direct.tensors, direct.beside) == (whole.tensors, ())


def test_a_list_of_files_comes_in_pages(hub):
    """All pages are read, by the addresses that the server tells."""
    hub.page_size = 2
    assert model_named(f"hf:{REPO}:Q8_0").source == f"hf:{REPO}/model-Q8_0.gguf"
    assert sum("/api/" in place for place, *_ in hub.asked) == 4


def test_a_header_is_asked_for_once(hub):
    """A second plan of the same address asks nobody."""
    model_named(f"hf:{REPO}/{FILE}")
    n_asked = len(hub.asked)
    model_named(f"hf:{REPO}/{FILE}")
    assert len(hub.asked) == n_asked


def test_a_file_that_was_downloaded_is_not_asked_for(hub, files, tmp_path):
    """The Hub's own cache has it with its path, and no server is needed."""
    folder = tmp_path / "hf-home" / "hub" / f"models--{REPO.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    kept = folder / "snapshots" / "abc" / FILE
    kept.symlink_to(files[FILE])
    model = model_named(f"hf:{REPO}/{FILE}")
    assert (model.path, model.source, hub.asked) == (kept, "", [])


def test_weights_are_still_downloaded(hub, monkeypatch, tmp_path):
    """What needs weights takes them through the Hub's client: all parts of the file that a type means."""
    asked = []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *a, **_: asked.append(a) or str(tmp_path / a[1]))
    assert find_model(f"hf:{REPO}:F16") == tmp_path / "big/big-F16-00001-of-00003.gguf"
    assert [file for _, file in asked] == [f"big/big-F16-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    with pytest.raises(ModelNotFound, match="reads its header; to run it, download it"):
        find_model("https://example.org/a.gguf")


# --- the token ------------------------------------------------------------------------------------------


def test_the_token_goes_to_the_hub_alone(hub, monkeypatch):
    """It is sent to the Hub's host, and not to the host that the Hub sends on to."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    model_named(f"hf:{REPO}/{FILE}")
    assert {token for *_, token in hub.asked} == {"Bearer hf_secret"}
    assert {token for *_, token in hub.bytes_of.asked} == {None}


def test_the_token_is_read_where_the_hub_keeps_it(hub, monkeypatch, tmp_path):
    """Without HF_TOKEN it is that of `hf auth login`; an address elsewhere never gets it."""
    assert web.token() is None
    (tmp_path / "hf-home").mkdir(exist_ok=True)
    (tmp_path / "hf-home" / "token").write_text("hf_kept\n")
    assert web.token() == "hf_kept"
    remote_model(f"{hub.bytes_of.address}/bytes/{FILE}")
    assert {token for *_, token in hub.bytes_of.asked} == {None}
    for other in ("https://huggingface.co.example.org/a", "http://huggingface.co/a", "https://huggingface.co:444/a"):
        monkeypatch.delenv("HF_ENDPOINT", raising=False)
        assert web._token_for(other) is None
    assert web._token_for("https://huggingface.co/a") == "hf_kept"


def test_a_token_is_never_shown(hub, monkeypatch):
    """Line ends are taken out, as the Hub's client does; with other signs nobody is asked."""
    monkeypatch.setenv("HF_TOKEN", "hf_sec\nret\r\n")
    model_named(f"hf:{REPO}/{FILE}")
    assert {token for *_, token in hub.asked} == {"Bearer hf_secret"}
    remote_model.cache_clear()
    hub.asked.clear()
    for odd in ("hf_secret\x7f", "hf_secret…"):
        monkeypatch.setenv("HF_TOKEN", odd)
        with pytest.raises(NotReached, match="Look at HF_TOKEN") as refused:
            model_named(f"hf:{REPO}/{FILE}")
        assert "secret" not in str(refused.value)
    assert hub.asked == []


def test_no_token_is_sent_where_the_reader_forbids_it(monkeypatch):
    """By the variable of the Hub's client."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert web.token() is None


# --- what does not ----------------------------------------------------------------------------------------


def refusal(behave, files: dict[str, Path], error: type[ModelError] = NotReached) -> tuple[str, HubServer]:
    """What is said of a server that behaves so."""
    with serving_hub(HubServer(files, of_files(behave))) as hub, pytest.raises(error) as raised:
        remote_model(f"{hub.address}/bytes/{FILE}")
    return str(raised.value), hub


def test_a_server_that_ignores_ranges_is_not_read_to_the_end(files, tmp_path):
    """It sends the whole file of 16 GiB, and is left as soon as the header is there; a long header goes on."""
    with serving_hub(HubServer(files, of_files(ignores_ranges))) as hub:
        assert numbers(remote_model(f"{hub.address}/bytes/{FILE}")) == numbers(read_gguf(files[FILE]))
        assert hub.n_sent < 64 * 2**20
    long = long_header(tmp_path / FILE)
    with serving_hub(HubServer({FILE: long}, of_files(ignores_ranges))) as hub:
        assert remote_model(f"{hub.address}/bytes/{FILE}").metadata["padding"].length == LONG
        assert len(hub.asked) == 1


def test_a_server_that_lies_about_the_length_is_told(files, tmp_path):
    """A size that changes is refused with both; one that is too small makes the header's tensors end past it."""
    said, _ = refusal(tells_more_each_time, {FILE: long_header(tmp_path / FILE)})
    assert "told to have 5,244," in said
    assert "its server cannot be trusted" in said
    said, _ = refusal(tells(2**20), files, DamagedGGUF)
    assert "past the end, says the header" in said
    assert str(tmp_path.parent) not in said


def test_the_hub_and_the_host_of_the_bytes_must_agree(hub, files):
    """The size in the Hub's list is the file's."""
    hub.bytes_of.behave = of_files(tells(2**33))
    with pytest.raises(NotReached, match=r"told to have 17,179,869,184 bytes, and then 8,589,934,592"):
        model_named(f"hf:{REPO}/{FILE}")


def test_an_answer_that_ends_early_is_tried_again(files, capsys):
    """Two more tries, each said; then how much came of how much."""
    said, hub = refusal(ends_early, files)
    assert "ended its answer after 1,048,575 of 2,097,152 bytes after 3 tries. Check the network" in said
    assert len(hub.asked) == 3
    assert capsys.readouterr().err.count("trying again in 10 ms") == 2


def test_a_whole_file_that_ends_early_is_tried_again(tmp_path):
    """Where a server knows no ranges a later slice may end early, too; the next try begins anew."""

    def ends_after_3_mib(handler, path):
        handler.start(200, {"Connection": "close"}, path.stat().st_size)
        handler.close_connection = True
        handler.stream(path, 0, 3 * 2**20)

    long = {FILE: long_header(tmp_path / FILE)}
    said, hub = refusal(ends_after_3_mib, long)
    assert "ended its answer after 1,048,576 of 3,146," in said
    assert len(hub.asked) == 3

    def ends_once(handler, path):
        (ends_after_3_mib if len(handler.hub.asked) == 1 else ignores_ranges)(handler, path)

    with serving_hub(HubServer(long, of_files(ends_once))) as hub:
        assert remote_model(f"{hub.address}/bytes/{FILE}").metadata["padding"].length == LONG


def test_a_busy_server_is_tried_again(files):
    """503 twice and then the file is no failure; three times is one."""
    with serving_hub(HubServer(files, of_files(fails_first(2)))) as hub:
        assert remote_model(f"{hub.address}/bytes/{FILE}").architecture == "llama"
    said, _ = refusal(fails_first(9), files)
    assert "answered 503 Service Unavailable after 3 tries" in said


def test_a_slow_server_is_left(files, monkeypatch):
    """One that says nothing, and one that sends a byte now and then, are left in time."""
    monkeypatch.setattr(web, "SILENT_SECONDS", 0.2)
    began = time.monotonic()
    said, _ = refusal(is_silent(1.5), files)
    assert "sent nothing for 0.2 s after 3 tries" in said
    monkeypatch.setattr(web, "MOST_SECONDS", 0.5)
    said, _ = refusal(drips(0.05), files)
    assert "after 3 tries" in said
    assert time.monotonic() - began < 20


def test_what_a_slow_line_brought_is_kept(files, monkeypatch):
    """A slice that does not come in its time is asked for from where it stopped."""
    monkeypatch.setattr(web, "SLICE_SECONDS", 0.1)
    whole = files["model-Q8_0.gguf"].read_bytes()

    def slow(handler, path):
        first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        last = min(last, len(whole) - 1)
        handler.start(206, {"Content-Range": f"bytes {first}-{last}/{len(whole)}"}, last + 1 - first)
        with suppress(OSError):
            for start in range(first, last + 1, 256):
                handler.wfile.write(whole[start : min(start + 256, last + 1)])
                time.sleep(0.04)

    with serving_hub(HubServer({FILE: files["model-Q8_0.gguf"]}, of_files(slow))) as hub:
        assert numbers(remote_model(f"{hub.address}/bytes/{FILE}")) == numbers(read_gguf(files["model-Q8_0.gguf"]))
        starts = [int(asked.split("=")[1].split("-")[0]) for _, asked, _ in hub.asked]
    assert len(starts) > 1
    assert starts == sorted({*starts})


def test_a_reading_has_an_end(files, monkeypatch):
    """However many small answers come, one model takes no longer than its time."""
    monkeypatch.setattr(web, "SLICE_SECONDS", 0.05)
    monkeypatch.setattr(remote, "MOST_SECONDS", 1.0)
    began = time.monotonic()

    def a_byte_each_time(handler, path):
        first = int(handler.headers["Range"].removeprefix("bytes=").split("-")[0])
        handler.start(206, {"Content-Range": f"bytes {first}-{first + 99}/{path.stat().st_size}"}, 100)
        with suppress(OSError):
            for byte in path.read_bytes()[first : first + 100]:
                handler.wfile.write(bytes([byte]))
                time.sleep(0.06)

    said, _ = refusal(a_byte_each_time, {FILE: files["model-Q8_0.gguf"]})
    assert "was not read in the time for one model" in said
    assert time.monotonic() - began < 5


def test_parts_that_a_file_does_not_have_are_not_asked_for(files):
    """A name may tell of 999 parts; the first one says how many there are."""
    with serving_hub(HubServer({"x-00001-of-00999.gguf": files["model-Q8_0.gguf"]})) as hub:
        assert remote_model(f"{hub.address}/bytes/x-00001-of-00999.gguf").architecture == "llama"
        assert len(hub.asked) == 1


def test_nobody_there_is_said(monkeypatch):
    """A host that does not answer is named with the reason."""
    with pytest.raises(NotReached, match=r"127\.0\.0\.1:9 was not reached \(Connection refused\) after 3 tries"):
        remote_model("http://127.0.0.1:9/a.gguf")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(NotReached, match="was not reached"):
        model_named(f"hf:{REPO}/{FILE}")


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (answers(401), "answered 401 (Unauthorized). It needs a login"),
        (answers(404), "answered 404 (Not Found). There is no such file"),
        (answers(403, X_Error_Message="Awaiting a review"), "answered 403 (Awaiting a review)"),
        (answers(416), "The file is shorter than was told"),
        (answers(418), "answered 418"),
        (page_of_a_file, "answered with an HTML page"),
        (answers(302, Location="https://[x"), "to what is no address"),
        (answers(302, Location="https://user:secret@127.0.0.1/a"), "to what is no address"),
        (sends_other_bytes, "sent others, by its Content-Range 'bytes 7-70/"),
        (answers(302), "did not say where"),
        (answers(302, Location="ftp://127.0.0.1/a"), "begins with ftp"),
        (answers(302, Location="file:///etc/passwd"), "begins with file"),
    ],
)
def test_a_refusal_says_what_to_do(files, behave, said):
    """The number of the answer, the server's own words and the next step; asked once."""
    text, hub = refusal(behave, files)
    assert said in text
    assert "secret" not in text
    assert len(hub.asked) == 1


def test_a_page_in_the_files_place_is_told_of_the_hub_too(hub):
    """A login page has another size than the file, which is not what is wrong."""
    hub.bytes_of.behave = of_files(page_of_a_file)
    with pytest.raises(NotReached, match="answered with an HTML page"):
        model_named(f"hf:{REPO}/{FILE}")


def test_what_a_server_says_commands_no_terminal(files, capsys):
    """Its reason and its address are shown without the signs that a terminal obeys."""

    def behave(handler, path):
        handler.send_response(503, "\x1b[2Jgone")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    said, _ = refusal(behave, files)
    assert "503 [2Jgone" in said
    assert "\x1b" not in said + capsys.readouterr().err
    said, _ = refusal(answers(302, Location="ftp://\x1b[2Jx/a"), files)
    assert "\x1b" not in said


def test_a_private_or_gated_repository_is_told(hub, monkeypatch):
    """The Hub's 401 may mean either or a wrong name; with a token the terms are not accepted yet."""
    hub.behave = lambda handler: answers(401)(handler, Path()) is None
    with pytest.raises(NotReached, match=r"private or gated repository.*hf auth login"):
        model_named(f"hf:{REPO}/{FILE}")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(NotReached, match="your token may not read it"):
        model_named(f"hf:{REPO}/{FILE}")


def test_a_circle_of_redirects_ends(files):
    """It is said through which hosts it went; a long way ends, too."""

    def in_a_circle(handler, path):
        handler.send(302, {"Location": "/b" if handler.path.endswith(FILE) else f"/bytes/{FILE}"})

    with serving_hub(HubServer({**files, "/b": files[FILE]}, of_files(in_a_circle))) as hub:
        with pytest.raises(NotReached, match=r"was sent on 2 times.*came to no file"):
            remote_model(f"{hub.address}/bytes/{FILE}")
        hub.behave = lambda handler: answers(302, Location=f"{handler.path}/x")(handler, Path()) is None
        with pytest.raises(NotReached, match="was sent on 6 times"):
            remote_model(f"{hub.address}/bytes/{FILE}")


def test_a_redirect_from_https_to_http_is_not_followed():
    """What was asked for in secret is never asked for in the open."""
    with pytest.raises(NotReached, match="begins with http, which anybody"):
        web._next_address(["https://a/x.gguf"], "http://b/x.gguf")
    assert web._next_address(["https://a/x.gguf"], "/y.gguf") == "https://a/y.gguf"
    assert web._next_address(["http://a/x.gguf"], "https://b/x.gguf") == "https://b/x.gguf"


def test_a_file_that_is_no_model_is_named_by_its_address(tmp_path, files):
    """Errors of the reader have the address in place of a folder of this machine."""
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<!DOCTYPE html>" + bytes(100))
    with serving_hub(HubServer({**files, "page.gguf": page, FILE: files["mmproj-model-F16.gguf"]})) as hub:
        with pytest.raises(NotGGUF, match=rf"^{hub.address}/bytes/page\.gguf starts with b'<!DO'"):
            remote_model(f"{hub.address}/bytes/page.gguf")
        with pytest.raises((DamagedGGUF, UnsupportedGGUF), match=rf"^{hub.address}/bytes/{FILE}"):
            remote_model(f"{hub.address}/bytes/{FILE}")


@pytest.mark.parametrize("name", ["a%00%1b.gguf", "%2e%2e%2f" + "x" * 400 + "-Q4_K_M.gguf", ".gguf", "a%5c..%5cb.gguf"])
def test_a_strange_name_is_kept_inside_the_folder(files, name):
    """An address may have signs and lengths that no file name can have."""
    with serving_hub(HubServer(files)) as hub:
        hub.behave = lambda handler: handler.send_file(files["model-Q8_0.gguf"]) is None
        model = remote_model(f"{hub.address}/bytes/{name}")
    assert model.path.parent.name.startswith("inferlab-beginnings-")
    assert model.path.is_file()


def test_a_header_has_a_limit(tmp_path):
    """A file that claims a header of more than 128 MiB is not read that far."""
    path = tmp_path / FILE
    path.write_bytes(header_bytes({"general.architecture": "llama", "x": PackedArray(0, 2**40, 0, bytes)}, ()))
    os.truncate(path, 2**41)
    with serving_hub(HubServer({FILE: path})) as hub:
        with pytest.raises(DamagedGGUF, match="needs 1,099,511,627,776 bytes"):
            remote_model(f"{hub.address}/bytes/{FILE}")
        assert hub.n_sent < 8 * 2**20


@pytest.mark.parametrize(
    ("listed", "said"),
    [(b"[1]", "something else than a list"), (b"{}", "no model as a .gguf file"), (b"<p>", "answered with no JSON")],
)
def test_a_list_that_is_none_is_refused(hub, listed, said):
    """What the Hub's list is not is not taken for one."""
    hub.behave = lambda handler: handler.send(200, {"Content-Type": "application/json"}, listed) is None
    with pytest.raises(ModelError, match=said):
        model_named(f"hf:{REPO}:Q4_K_M")


def test_what_is_not_there_is_told_with_what_is(hub):
    """A type or a file that the repository lacks is refused with those that it has; a later part with the first."""
    with pytest.raises(ModelNotFound, match=r"no model of the type Q2_K\. It has F16, Q4_K_M, Q8_0\."):
        model_named(f"hf:{REPO}:Q2_K")
    with pytest.raises(ModelNotFound, match=r"has no file none\.gguf\. It has"):
        model_named(f"hf:{REPO}/none.gguf")
    with pytest.raises(ModelNotFound, match=r"is part 2 of 3\. Give the first part, big-F16-00001"):
        model_named(f"hf:{REPO}/big/big-F16-00002-of-00003.gguf")
    with pytest.raises(ModelNotFound, match=r"is no \.gguf file"):
        model_named(f"hf:{REPO}/README.md")


def test_a_remote_model_is_planned_as_the_file_is(hub, files):
    """Every number of a plan is that of the same file on this machine; nothing names a folder of this machine."""
    from inferlab.prediction.fit import fit
    from inferlab.prediction.fit_fields import plan_fields

    planned = [
        fit(model, vram="8GiB", simulate=False) for model in (f"hf:{REPO}/model-Q8_0.gguf", files["model-Q8_0.gguf"])
    ]
    remote_fields, local_fields = map(plan_fields, planned)
    assert remote_fields["devices"] == local_fields["devices"]
    assert replace(planned[0].plan, model=None, notes=()) == replace(planned[1].plan, model=None, notes=())


def test_the_address_of_a_name_is_known():
    """An address is one by how it begins, whatever the case."""
    assert [find.is_address(name) for name in ("hf:a/b", "HTTPS://a", "http://a", "a.gguf", "ollama:a")] == [
        *[True] * 3,
        *[False] * 2,
    ]
