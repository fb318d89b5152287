"""The site on this machine: what a browser is told about each file, and what a reader is told who cannot have it."""

from __future__ import annotations

import gzip
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import small_site
from servers import serving

from handbook.delivery import serve
from inferlab.instruments import addressed
from inferlab.instruments.views import html_of

PAGE = """<!DOCTYPE html><title>é</title>
<script>
  let words = "a < b && c";
</script>
<script src="a.js"></script><script type="module" src="b.mjs">ignored</script>
<a onclick="window.print()" href="#">print</a><p>text</p>
"""


UNUSED = ("object", "frame", "media", "manifest")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[tuple[str, int]]:
    """Host and port of a server of a small site."""
    folder = tmp_path_factory.mktemp("outside") / "html"
    for name in ("book", "_static/instruments"):
        (folder / name).mkdir(parents=True)
    (folder.parent / "secret.txt").write_text("not for readers")
    (folder / "404.html").write_text("<h1>There is no page</h1>")
    (folder / "book" / "index.html").write_text(PAGE, encoding="utf-8")
    workers = ("instruments/worker.js", "instruments/llama.js")
    for name in ("a.js", "b.mjs", "c.wasm", "d.zip", "e.svg", "f.woff2", "g.css", *workers):
        (folder / "_static" / name).write_bytes(b"0123456789" * 20)
    with serving(folder, serve.Handler) as address:
        yield place_of(address)


def place_of(address: str) -> tuple[str, int]:
    """Host and port of `http://127.0.0.1:8000/`."""
    place = urlsplit(address)
    return place.hostname, place.port


def asked(home: tuple[str, int], path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer; the path is sent as it is written."""
    connection = http.client.HTTPConnection(*home, timeout=60)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def sources(headers: dict[str, str], directive: str) -> list[str]:
    """What a policy allows for a directive."""
    rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
    return rules[directive].split()


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/book/", "GET", 200),
        ("/_static/c.wasm", "HEAD", 200),
        ("/book", "GET", 301),
        ("/gone", "GET", 404),
        ("/book/", "POST", 501),
    ],
)
def test_every_answer_has_the_headers_of_a_careful_site(home, path, method, status):
    """A page, a file, a detour and an error: isolated from other sites, with a policy, and never guessed at."""
    answered, headers, _ = asked(home, path, method)
    assert answered == status
    assert headers.items() >= {**serve.ISOLATED, **serve.CAREFUL}.items()
    assert sources(headers, "default-src") == ["'self'"]
    assert {word for kind in UNUSED for word in sources(headers, f"{kind}-src")} == {"'none'"}
    assert "'unsafe-inline'" not in sources(headers, "script-src")


def test_the_policy_names_the_scripts_that_stand_in_the_page(home):
    """Digests of its one script element and its one attribute; the policy of another page has neither."""
    _, headers, _ = asked(home, "/book/")
    digests = [serve._digest('\n  let words = "a < b && c";\n'), serve._digest("window.print()")]
    assert sorted(sources(headers, "script-src")) == sorted(["'self'", "'unsafe-hashes'", *digests])
    assert sources(asked(home, "/gone")[1], "script-src") == ["'self'"]


def test_only_a_page_with_a_field_for_an_address_may_ask_another_host(home, tmp_path):
    """Its policy names the Hub and the hosts that this sends on to, over TLS; every other page may ask its own site."""
    assert sources(asked(home, "/book/")[1], "connect-src") == ["'self'"]
    page = tmp_path / "page.html"
    page.write_text(html_of(addressed.controls("file", only="model=file")), encoding="utf-8")
    rules = dict(rule.split(" ", 1) for rule in serve.policy_of(page, 0).split("; "))
    assert rules["connect-src"] == "'self' https://huggingface.co https://*.hf.co"
    assert "*.hf.co" not in " ".join(text for name, text in rules.items() if name != "connect-src")


def test_a_digest_is_that_of_the_standard():
    """The digest of `alert('Hello, world.');` is the one in the specification of content security policies."""
    assert serve._digest("alert('Hello, world.');") == "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"


@pytest.mark.parametrize(
    ("path", "webassembly", "workers"),
    [
        ("book/", False, []),
        ("_static/a.js", False, []),
        ("_static/instruments/worker.js", True, []),
        ("_static/instruments/llama.js", True, ["blob:"]),
    ],
)
def test_only_workers_of_the_instruments_compile_webassembly(home, path, webassembly, workers):
    """No page does; llama.cpp's threads are blobs, and nothing else may start a worker that lies in no file."""
    headers = asked(home, f"/{path}")[1]
    assert ("'wasm-unsafe-eval'" in sources(headers, "script-src")) is webassembly
    assert sources(headers, "worker-src") == ["'self'", *workers]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.js", "text/javascript"),
        ("b.mjs", "text/javascript"),
        ("c.wasm", "application/wasm"),
        ("d.zip", "application/zip"),
        ("e.svg", "image/svg+xml"),
        ("f.woff2", "font/woff2"),
        ("g.css", "text/css"),
    ],
)
def test_a_file_is_called_what_it_is(home, name, kind):
    """Scripts, WebAssembly, fonts and drawings have the kinds without which a browser refuses them."""
    assert asked(home, f"/_static/{name}")[1]["Content-Type"] == kind


@pytest.mark.parametrize(("name", "smaller"), [("b.mjs", True), ("c.wasm", True), ("d.zip", False)])
def test_text_and_webassembly_are_compressed_for_who_accepts_it(home, name, smaller):
    """What is compressed already, and a browser that does not ask, get the file as it is."""
    _, headers, body = asked(home, f"/_static/{name}", Accept_Encoding="br, gzip")
    assert headers.get("Content-Encoding") == ("gzip" if smaller else None)
    plain = asked(home, f"/_static/{name}", Accept_Encoding="br")
    assert (gzip.decompress(body) if smaller else body) == plain[2]
    assert "Content-Encoding" not in plain[1]
    assert plain[1]["Content-Length"] == str(len(plain[2]))


def test_what_a_browser_has_is_sent_again_when_it_changed(tmp_path):
    """An unchanged file is answered with 304 and no byte; a file written anew, compressed or not, comes anew."""
    (tmp_path / "a.js").write_text("old")
    with serving(tmp_path, serve.Handler) as address:
        home = place_of(address)
        _, headers, body = asked(home, "/a.js")
        assert (headers["Cache-Control"], body) == ("no-cache", b"old")
        assert asked(home, "/a.js", If_None_Match=headers["ETag"])[::2] == (304, b"")
        (tmp_path / "a.js").write_text("new")
        os.utime(tmp_path / "a.js", (1, 1))
        assert asked(home, "/a.js", If_None_Match=headers["ETag"])[::2] == (200, b"new")


def test_an_unknown_address_gets_the_page_for_it(home):
    """With the status that says so; a folder's address without its slash leads to the folder."""
    assert asked(home, "/book/gone.html")[::2] == (404, b"<h1>There is no page</h1>")
    assert asked(home, "/_static/")[0] == 404
    status, headers, _ = asked(home, "/book?q=1")
    assert (status, headers["Location"]) == (301, "book/")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/book/../../secret.txt",
        "//../secret.txt",
        "/..%2fsecret.txt",
        "/_static/%2e%2e%2f%2e%2e%2fsecret.txt",
    ],
)
def test_no_address_leads_out_of_the_site(home, path):
    """A file beside the site's folder is not there for any spelling of the way up."""
    status, _, body = asked(home, path)
    assert status == 404
    assert b"not for readers" not in body


# --- the command ----------------------------------------------------------------------------------------


def command(folder: Path, *options: str, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "handbook.delivery.serve", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="sends the signal of Ctrl-C")
def test_the_command_tells_the_address_and_ends_with_ctrl_c(tmp_path):
    """It serves the built site of its folder, and Ctrl-C is no error."""
    server = command(small_site.build(tmp_path), "--port=0")
    told = server.stdout.readline()
    port = int(told.partition("http://127.0.0.1:")[2].partition("/")[0])
    assert asked(("127.0.0.1", port), "/part/chapter.html")[0] == 200
    server.send_signal(signal.SIGINT)
    assert (*server.communicate(timeout=60), server.returncode) == ("\n", "", 0)


def test_a_busy_port_is_told_with_the_option_that_names_another(tmp_path):
    """Another program has the port: one sentence, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = command(small_site.build(tmp_path), f"--port={port}")
        told = server.communicate(timeout=60)[1]
    assert server.returncode == 1
    assert f"Port {port} " in told
    assert "--port" in told
    assert "Traceback" not in told


def test_without_a_site_the_command_that_builds_it_is_told(tmp_path):
    """Nothing is served before `make book`."""
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\n", encoding="utf-8")
    server = command(tmp_path)
    assert "run `make book` first" in server.communicate(timeout=60)[1]
    assert server.returncode == 1


def test_a_large_file_is_sent_as_it_is_read(tmp_path, monkeypatch):
    """A package of a mirror arrives whole, and is not kept in memory."""
    monkeypatch.setattr(serve, "LARGE_BYTES", 10)
    (tmp_path / "a.whl").write_bytes(1000 * b"x")
    serve._contents.cache_clear()
    with serving(tmp_path, serve.Handler) as address:
        home = place_of(address)
        assert asked(home, "/a.whl")[::2] == (200, 1000 * b"x")
        assert asked(home, "/a.whl", "HEAD")[1]["Content-Length"] == "1000"
    assert serve._contents.cache_info().currsize == 0


# --- a mirror -------------------------------------------------------------------------------------------


@pytest.fixture
def stick(tmp_path) -> Path:
    """A mirror with a start page and a package, on a stick with private files and a link that leads out."""
    folder = tmp_path / "stick"
    (folder / "wheels").mkdir(parents=True)
    names = ["index.html", "wheels/a.whl", "wheels/link.whl"]
    for name in (*names[:2], ".private", "letter.txt"):
        (folder / name).write_text(name)
    (tmp_path / "secret.txt").write_text("not for the room")
    (folder / "wheels" / "link.whl").symlink_to(tmp_path / "secret.txt")
    (folder / "SHA256SUMS").write_text("".join(f"{'0' * 64}  {name}\n" for name in names))
    return folder


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/SHA256SUMS", 200),
        ("/wheels/a.whl", 200),
        ("/wheels/", 404),
        ("/wheels/link.whl", 404),
        ("/.private", 404),
        ("/letter.txt", 404),
        ("/../secret.txt", 404),
        ("/%2e%2e/secret.txt", 404),
    ],
)
def test_a_room_gets_the_files_of_the_mirror_and_no_other(stick, path, status):
    """What else lies on the stick, and where a link leads, is nobody's; all answers have the site's headers."""
    with serving(stick, serve.MirrorHandler) as address:
        home = place_of(address)
        answered, headers, body = asked(home, path)
        assert asked(home, path, "HEAD")[0] == answered == status
        assert asked(home, path, "PUT")[0] == 501
    assert b"not for the room" not in body
    assert headers.items() >= {**serve.ISOLATED, **serve.CAREFUL}.items()


@pytest.mark.skipif(sys.platform == "win32", reason="sends the signal of Ctrl-C")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], ["Every machine of the networks", "The mirror is at http://"]),
        (["--host=127.0.0.1"], ["The mirror is at http://127.0.0.1:"]),
    ],
)
def test_a_mirror_is_served_to_every_network_or_to_one_address(stick, words, told):
    """The command says who can read it, and the addresses to type."""
    server = command(stick, "--port=0", f"--mirror={stick}", *words)
    lines = [server.stdout.readline() for _ in told]
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=60)
    assert [line.startswith(start) for line, start in zip(lines, told, strict=True)] == [True] * len(told)


def test_a_folder_that_is_no_mirror_is_not_served(tmp_path):
    """A wrong path shares nothing."""
    server = command(tmp_path, f"--mirror={tmp_path}")
    assert "is no mirror: found no SHA256SUMS in it" in server.communicate(timeout=60)[1]
    assert server.returncode == 1
