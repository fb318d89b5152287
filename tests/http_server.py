"""A small HTTP server that answers as a test wrote it: replacement for llama-server, never for the client."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMINGS = {"cache_n": 3, "prompt_ms": 20.0, "predicted_ms": 40.0}


def event(data: dict) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def answer(n_done: Sequence[int] = (1, 2, 5), slot: int = 2) -> list[bytes]:
    """Events with so many tokens predicted so far, then the last one without text."""
    some = [event({"content": "a", "stop": False, "tokens_predicted": n}) for n in n_done]
    return [*some, event({"content": "", "stop": True, "id_slot": slot, "timings": TIMINGS})]


@contextmanager
def scripted_server(
    pieces: Sequence[bytes | float], status: int = 200, kind: str = "text/event-stream", cut: bool = False
) -> Iterator[tuple[int, list[dict]]]:
    """The port of a server, and the bodies that it was sent.

    pieces  bytes are sent as one chunk of HTTP/1.1 each, a number is a pause in seconds; `cut` omits the last chunk
    """
    bodies: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in pieces:
                if isinstance(piece, float):
                    time.sleep(piece)
                else:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
            if not cut:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_):
            """Callback that writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server.server_address[1], bodies
        finally:
            server.shutdown()
