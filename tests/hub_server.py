"""A server as the Hugging Face Hub's is: lists of files, redirects to their bytes, ranges of them; and worse ones."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

PIECE = 2**16
REPO = "owner/model-GGUF"


@dataclass
class HubServer:
    """What a server has, how it behaves, and what it was asked.

    files      path in the repository -> file on disk
    behave     called with the handler before any answer; True: it has answered
    cdn        the address of the host that files are sent from; "" for the same one
    page_size  of the list of files
    asked      path, range and authorization of each request
    n_sent     bytes of files that were sent
    """

    files: dict[str, Path]
    behave: Callable[[Handler], bool] = lambda handler: False
    cdn: str = ""
    page_size: int = 1000
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    n_sent: int = 0
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    """Answers as `HubServer` says."""

    protocol_version = "HTTP/1.1"

    def __init__(self, hub: HubServer, *args) -> None:
        self.hub = hub
        super().__init__(*args)

    def do_GET(self) -> None:
        """A list, a redirect, or a range of a file."""
        self.place = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if self.hub.behave(self):
            return
        if self.place == f"/api/models/{REPO}/tree/main":
            return self.list_files()
        if self.place.startswith(f"/{REPO}/resolve/main/") and self.hub.cdn:
            file = self.hub.files.get(self.name)
            size = {"X-Linked-Size": str(file.stat().st_size)} if file else {}
            return self.send(302, {"Location": f"{self.hub.cdn}/bytes/{self.name}", **size})
        if self.name in self.hub.files:
            return self.send_file(self.hub.files[self.name])
        self.send(404, {}, b"Entry not found")

    def do_OPTIONS(self) -> None:
        """What a browser asks of another host before it sends a header such as Range."""
        allowed = {"Access-Control-Allow-Headers": "Range", "Access-Control-Allow-Methods": "GET"}
        self.send(204, allowed)

    @property
    def name(self) -> str:
        return re.sub(rf"^/({REPO}/resolve/main|bytes)/", "", self.place)

    def list_files(self) -> None:
        """One page of the list, and the address of the next one."""
        query = urlsplit(self.path).query
        start = int(found[1]) if (found := re.search(r"cursor=(\d+)", query)) else 0
        sizes = [(path, file.stat().st_size) for path, file in self.hub.files.items()]
        page = [{"type": "file", "path": path, "size": size, "oid": "0"} for path, size in sizes]
        end = start + self.hub.page_size
        following = f"<{self.hub.address}{self.place}?recursive=true&cursor={end}>"
        link = {"Link": f'{following}; rel="next"'} if end < len(page) else {}
        listed = [{"type": "directory", "path": "sub", "size": 0}, *page[start:end]]
        self.send(200, {"Content-Type": "application/json", **link}, json.dumps(listed).encode())

    def send_file(self, path: Path, total: int | None = None) -> None:
        """The range that was asked for; total: a size to tell in place of the true one."""
        size = path.stat().st_size
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        last = min(last, size - 1)
        self.start(206, {"Content-Range": f"bytes {first}-{last}/{total or size}"}, last + 1 - first)
        self.stream(path, first, last + 1)

    def stream(self, path: Path, start: int, end: int) -> None:
        """Bytes of a file, until the other side has enough."""
        with path.open("rb") as file, suppress(ConnectionError):
            file.seek(start)
            while start < end:
                piece = file.read(min(PIECE, end - start))
                self.wfile.write(piece)
                self.hub.n_sent += len(piece)
                start += len(piece)

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.start(status, headers, len(body))
        with suppress(ConnectionError):
            self.wfile.write(body)

    def start(self, status: int, headers: dict[str, str], n_bytes: int) -> None:
        self.send_response(status)
        for item in {"Content-Length": str(n_bytes), **self.hub.headers, **headers}.items():
            self.send_header(*item)
        self.end_headers()

    def log_message(self, *_) -> None:
        """Say nothing."""


@contextmanager
def serving_hub(hub: HubServer, certificate: Path | None = None) -> Iterator[HubServer]:
    """Start it on this machine; with a certificate (a file that has its key, too) over TLS."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, hub)) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        hub.address = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()


# --- servers that misbehave: each for files alone ---------------------------------------------------------


def of_files(act: Callable[[Handler, Path], None]) -> Callable[[Handler], bool]:
    """A behaviour for requests of a file's bytes; lists and redirects are as usual."""

    def behave(handler: Handler) -> bool:
        is_file = handler.name in handler.hub.files and not (handler.hub.cdn and "/resolve/" in handler.place)
        if is_file:
            act(handler, handler.hub.files[handler.name])
        return is_file

    return behave


def ignores_ranges(handler: Handler, path: Path) -> None:
    """Sends the whole file, whatever was asked."""
    size = path.stat().st_size
    handler.start(200, {"Connection": "close"}, size)
    handler.close_connection = True
    handler.stream(path, 0, size)


def ends_early(handler: Handler, path: Path) -> None:
    """Promises a range and sends half of it."""
    first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers["Range"]).groups())
    last = min(last, path.stat().st_size - 1)
    handler.start(206, {"Content-Range": f"bytes {first}-{last}/{path.stat().st_size}"}, last + 1 - first)
    handler.stream(path, first, (first + last) // 2)
    handler.close_connection = True


def tells_more_each_time(handler: Handler, path: Path) -> None:
    """Tells another size with each answer."""
    handler.send_file(path, path.stat().st_size + len(handler.hub.asked))


def tells(size: int) -> Callable[[Handler, Path], None]:
    """Tells a size that the file does not have."""
    return lambda handler, path: handler.send_file(path, size)


def sends_other_bytes(handler: Handler, path: Path) -> None:
    """Sends bytes from another place."""
    handler.start(206, {"Content-Range": f"bytes 7-70/{path.stat().st_size}"}, 64)
    handler.stream(path, 7, 71)


def drips(seconds: float) -> Callable[[Handler, Path], None]:
    """Sends a byte now and then, and never stops."""

    def act(handler: Handler, path: Path) -> None:
        handler.start(206, {"Content-Range": f"bytes 0-{path.stat().st_size - 1}/{path.stat().st_size}"}, 2**20)
        with suppress(OSError):
            for _ in range(1000):
                handler.wfile.write(b"G")
                time.sleep(seconds)

    return act


def is_silent(seconds: float) -> Callable[[Handler, Path], None]:
    """Takes the question and says nothing."""
    return lambda handler, path: time.sleep(seconds)


def answers(status: int, body: bytes = b"", **headers: str) -> Callable[[Handler, Path], None]:
    """Answers with a number."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return lambda handler, path: handler.send(status, named, body)


def page_of_a_file(handler: Handler, path: Path) -> None:
    """Sends an HTML page in place of the file."""
    handler.send(200, {"Content-Type": "text/html; charset=utf-8"}, b"<!DOCTYPE html><title>Log in</title>")


def fails_first(times: int) -> Callable[[Handler, Path], None]:
    """Answers 503 so many times, and then as usual."""

    def act(handler: Handler, path: Path) -> None:
        if sum("/api/" not in place for place, *_ in handler.hub.asked) <= times:
            handler.send(503, {})
        else:
            handler.send_file(path)

    return act
