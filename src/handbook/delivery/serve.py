"""Serves the built site on this machine, with the headers that its instruments need; or a mirror to a room.

    python -m handbook.delivery.serve --port 8000
    python -m handbook.delivery.serve --mirror /media/stick/mirror --host 192.168.1.5

A page that is opened from disk may neither start a worker nor load WebAssembly. From any web host its instruments run,
if that sends `.mjs` as JavaScript and `.wasm` as `application/wasm`; with `ISOLATED` they have threads too.
"""

from __future__ import annotations

import argparse
import base64
import functools
import gzip
import hashlib
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from html.parser import HTMLParser
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

from handbook.delivery import instruments
from handbook.delivery.built_site import NotBuilt, built_site
from inferlab.instruments import addressed
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.telemetry.host import network_addresses

PORT = 8000
EVERY_NETWORK = "0.0.0.0"
SUMS = "SHA256SUMS"
"""The file that makes a folder a mirror (tools/mirror.py)."""
LARGE_BYTES = 16 << 20
"""A file from this size on is read as it is sent, such as a package of a mirror; smaller ones are kept in memory."""
NOT_FOUND = "404.html"
COMPRESSED = (".html", ".css", ".js", ".mjs", ".wasm", ".svg", ".json", ".txt", ".xml")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
"""The kinds of files that a system's own table may lack or name otherwise."""
ISOLATED = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What a browser asks of a site before it gives its scripts memory that threads share."""
CAREFUL = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
POLICY = {
    # Firefox fetches the next chapter ahead, which no directive but this one allows.
    "default-src": "'self'",
    "script-src": "'self'",
    # Figures, formulas and the interactive figures' library write style attributes, the last one style elements too.
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "object-src": "'none'",
    "frame-src": "'none'",
    "media-src": "'none'",
    "manifest-src": "'none'",
    "form-action": "'self'",
    "base-uri": "'self'",
    "frame-ancestors": "'self'",
}
"""What a page of the site may load and run, beside the scripts that stand in it."""


class Handler(SimpleHTTPRequestHandler):
    """Answers with the files of a folder, compressed where the browser accepts it; what a browser has is not resent."""

    protocol_version = "HTTP/1.1"
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012 (http.server has it so)

    def do_GET(self) -> None:
        """Send a file, the page of a folder, or the page for unknown addresses."""
        path = Path(self.translate_path(self.path))
        if path.is_dir() and not urlsplit(self.path).path.endswith("/"):
            return self._send(HTTPStatus.MOVED_PERMANENTLY, {"Location": f"{quote(path.name)}/"})
        path = path / "index.html" if path.is_dir() else path
        if path.is_file():
            return self._send_file(path, HTTPStatus.OK)
        missing = Path(self.directory) / NOT_FOUND
        return self._send_file(missing, HTTPStatus.NOT_FOUND) if missing.is_file() else self.send_error(404)

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send one line of text, where a request was not understood."""
        self.close_connection = True
        text = f"{code} {message or HTTPStatus(code).phrase}\n".encode()
        self._send(HTTPStatus(code), {"Content-Type": "text/plain", "Connection": "close"}, text)

    def safety(self, policy: str) -> dict[str, str]:
        """What a browser may do with an answer."""
        return {"Content-Security-Policy": policy, **ISOLATED, **CAREFUL}

    def _send_file(self, path: Path, status: HTTPStatus) -> None:
        changed = path.stat().st_mtime_ns
        headers = {"Content-Type": self.guess_type(path), "Cache-Control": "no-cache", "ETag": f'"{changed:x}"'}
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == headers["ETag"]:
            return self._send(HTTPStatus.NOT_MODIFIED, headers, None, policy_of(path, changed))
        if path.stat().st_size >= LARGE_BYTES:
            return self._send_large(path, status, headers)
        gzipped = path.suffix in COMPRESSED and "gzip" in self.headers.get("Accept-Encoding", "")
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        self._send(status, headers, _contents(path, changed, gzipped), policy_of(path, changed))

    def _send_large(self, path: Path, status: HTTPStatus, headers: dict[str, str]) -> None:
        with path.open("rb") as file:
            size = {"Content-Length": str(path.stat().st_size)}
            self._send(status, {**headers, **size}, None)
            if self.command != "HEAD":
                with suppress(ConnectionError):
                    shutil.copyfileobj(file, self.wfile, 1 << 20)

    def _send(self, status: HTTPStatus, headers: dict[str, str], body: bytes | None = b"", policy: str = "") -> None:
        sized = {} if body is None else {"Content-Length": str(len(body))}
        self.send_response(status)
        for header in {**headers, **sized, **self.safety(policy or policy_with())}.items():
            self.send_header(*header)
        self.end_headers()
        if body and self.command != "HEAD":
            with suppress(ConnectionError):  # a reader who leaves a page does not wait for the rest of it
                self.wfile.write(body)

    def log_message(self, *args) -> None:
        """Say nothing: the terminal is for the address."""


class MirrorHandler(Handler):
    """Answers with the files that a mirror's checksums list and with no other, whatever else lies on the stick."""

    def do_GET(self) -> None:
        """Send a file of the mirror, or the page of one of its folders."""
        root, path = Path(self.directory).resolve(), Path(self.translate_path(self.path)).resolve()
        page = path / "index.html" if path.is_dir() else path
        sums = root / SUMS
        names = _listed(sums, sums.stat().st_mtime_ns)
        listed = page.is_relative_to(root) and page.relative_to(root).as_posix() in names
        return super().do_GET() if listed else self.send_error(404)

    do_HEAD = do_GET


@functools.lru_cache(maxsize=1)
def _listed(sums: Path, changed: int) -> set[str]:
    """The names in a file of checksums at its date of change, and its own."""
    return {SUMS, *(line[66:] for line in sums.read_text(encoding="utf-8").splitlines())}


@functools.lru_cache(maxsize=512)
def _contents(path: Path, changed: int, gzipped: bool) -> bytes:
    """The bytes of a file at its date of change."""
    return gzip.compress(path.read_bytes(), 6) if gzipped else path.read_bytes()


# --- the content security policy --------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def policy_of(path: Path, changed: int) -> str:
    """The policy for a file: a page runs the scripts that stand in it, a worker of the instruments WebAssembly.

    A page with a field for the address of a model may ask the hosts that stand beside it.
    """
    if path.suffix == ".html":
        page = path.read_text(encoding="utf-8")
        return policy_with(*inline_scripts(page), asked=addressed.SOURCES if f"{addressed.BUTTON}=" in page else ())
    if path.parent.name != instruments.FOLDER:
        return policy_with()
    # wllama writes the script of its worker, and llama.cpp those of its threads, as blobs: no page may start them.
    workers = ["blob:"] if path.name == instruments.LLAMA_WORKER else []
    return policy_with("'wasm-unsafe-eval'", workers=workers)


def policy_with(*scripts: str, workers: Iterable[str] = (), asked: Iterable[str] = ()) -> str:
    """The policy of the site with more sources of scripts and of workers, and hosts that a reader may have asked."""
    more = {"script-src": scripts, "worker-src": workers, "connect-src": asked}
    sources = {**POLICY, **{name: " ".join([POLICY[name], *allowed]) for name, allowed in more.items()}}
    return "; ".join(f"{name} {allowed}" for name, allowed in sources.items())


def inline_scripts(page: str) -> list[str]:
    """The digests of the scripts in a page, as a policy names them; those in attributes need a word more."""
    scripts = _Scripts()
    scripts.feed(page)
    scripts.close()
    attributes = [_digest(text) for text in scripts.attributes]
    return sorted({*map(_digest, scripts.elements), *attributes, *(["'unsafe-hashes'"] if attributes else [])})


class _Scripts(HTMLParser):
    """Gathers the script elements that name no file, and the attributes that are scripts: `onclick` and its like."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {text or "" for name, text in attrs if name.startswith("on")}
        self.inside = tag == "script" and "src" not in dict(attrs)
        if self.inside:
            self.elements.append("")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.elements[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


# --- the command ------------------------------------------------------------------------------------


def serve(server: ThreadingHTTPServer, what: str) -> None:
    """Say at which addresses a server answers, and let it until Ctrl-C."""
    host, port = str(server.server_address[0]), server.server_port
    addresses = (network_addresses() or [LOOPBACK_ADDRESS]) if host == EVERY_NETWORK else [host]
    for address in addresses:
        print(f"{what} is at http://{address}:{port}/ until Ctrl-C.", flush=True)
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    print()


def site_server(host: str, port: int) -> ThreadingHTTPServer:
    """A server of the site that was built in this folder. Raises NotBuilt, or OSError where the port cannot be had."""
    folder = built_site(Path.cwd()).folder
    return ThreadingHTTPServer((host, port), functools.partial(Handler, directory=str(folder)))


def mirror_server(folder: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server of a mirror, which is only read. Raises NotBuilt, or OSError where the port cannot be had."""
    if not (folder / SUMS).is_file():
        raise NotBuilt(f"{folder} is no mirror: found no {SUMS} in it. `make mirror` fills one.")
    return ThreadingHTTPServer((host, port), functools.partial(MirrorHandler, directory=str(folder.resolve())))


def main() -> int:
    """Command line of this module: serves the site that was built in the folder that it is started in, or a mirror."""
    parser = argparse.ArgumentParser(
        "python -m handbook.delivery.serve", description="Serve the built site, or a mirror."
    )
    parser.add_argument("--port", type=int, default=PORT, help=f"{PORT} unless told; 0 takes any that is free")
    parser.add_argument("--mirror", type=Path, metavar="FOLDER", help="serve this mirror instead of the site")
    default = f"{LOOPBACK_ADDRESS} unless told, with --mirror {EVERY_NETWORK}: every network of this machine"
    parser.add_argument("--host", help=f"address to listen at; {default}")
    words = parser.parse_args()
    host = words.host or (EVERY_NETWORK if words.mirror else LOOPBACK_ADDRESS)
    try:
        with mirror_server(words.mirror, host, words.port) if words.mirror else site_server(host, words.port) as server:
            if host == EVERY_NETWORK:
                print("Every machine of the networks that this one is in can read it; --host names one address alone.")
            serve(server, "The mirror" if words.mirror else "The handbook")
    except NotBuilt as missing:
        print(f"Nothing is served. {missing}", file=sys.stderr)
        return 1
    except (OSError, OverflowError) as failed:
        other = f"Name another one: --port {PORT + 1}."
        print(f"Port {words.port} of {host} cannot be had ({failed}). {other}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
