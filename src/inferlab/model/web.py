"""Reads ranges of bytes at an address over HTTP, with short limits; never a whole model.

A redirect is followed a few times, never from https to http, and the Hub's token goes to the Hub's own host alone.
Pages do not load this module: there the browser asks.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.parse import urljoin
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, UnknownHandler

from inferlab.errors import ModelNotFound, NotReached
from inferlab.model.hub import HUB, advice, next_page, parted
from inferlab.units import count_text, seconds_text

SILENT_SECONDS = 10.0
"""How long a server may send nothing, as in huggingface_hub (DEFAULT_REQUEST_TIMEOUT)."""
MOST_SECONDS = 45.0
"""How long one request may take with all that it sends."""
SLICE_SECONDS = 25.0
"""How long a slice is waited for; what has come by then is kept, and the next request goes on from there."""
PAUSES = (0.5, 2.0)
"""Seconds before each further try."""
MOST_REDIRECTS = 5
MOST_LIST_BYTES = 2**24
REDIRECTS = {301, 302, 303, 307, 308}
PASSING = {408, 425, 429, 500, 502, 503, 504}
"""Answers that may be others a moment later."""
LINKED_SIZE = "X-Linked-Size"
"""The Hub's own word, beside a redirect, for how large the file is."""
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)
Result = TypeVar("Result")


class _Passing(Exception):
    """What may not happen again: no connection, no answer in time, an early end."""


def hub() -> str:
    """The address of the Hub: HF_ENDPOINT, as huggingface_hub has it, else the public one."""
    return os.environ.get("HF_ENDPOINT", HUB).rstrip("/") or HUB


def token() -> str | None:
    """The reader's token for the Hub: HF_TOKEN, else the file that `hf auth login` writes; None without one.

    As huggingface_hub has it: line ends are taken out, and HF_HUB_DISABLE_IMPLICIT_TOKEN means that none is sent.
    """
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    if given := os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN"):
        return _cleaned(given)
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token"))
    try:
        return _cleaned(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _cleaned(token: str) -> str | None:
    return token.replace("\r", "").replace("\n", "").strip() or None


def say(text: str) -> None:
    """Tell a person at a terminal why it takes longer."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """A text of which some may be a server's, without signs that would command a terminal."""
    return "".join(filter(str.isprintable, text))


@dataclass
class WebFile:
    """A file at an address, whose bytes are asked for from its beginning on.

    n_bytes  its whole size, once a server has told it
    until    when all of the reading must be done, by time.monotonic
    """

    url: str
    n_bytes: int | None = None
    until: float = inf
    _whole: http.client.HTTPResponse | None = field(default=None, repr=False)
    _position: int = 0

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, or to where the file ends; of a slow server only the first of them.

        Raises NotReached, which says what the server did.
        """
        return _tried(self.url, lambda: self._read(start, end), self.until)

    def close(self) -> None:
        """End a connection on which a server would send the whole file."""
        if self._whole is not None:
            self._whole.close()

    def _read(self, start: int, end: int) -> bytes:
        if self._whole is not None and start == self._position:
            return self._from_whole(start, end)
        return self._asked(start, end)

    def _asked(self, start: int, end: int) -> bytes:
        answer = _opened(self.url, {"Range": f"bytes={start}-{end - 1}"}, self._told_size)
        if answer.status == 206:
            with answer:
                return self._part(answer, start, end)
        if answer.status != 200:
            _refuse(self.url, answer)
        _require_no_page(self.url, answer)
        self._told_size(answer.headers.get("Content-Length"))
        self._whole, self._position = answer, 0  # a server that knows no ranges: what comes is read up to `end`
        while self._position < min(start, self.n_bytes or start):
            self._from_whole(self._position, start)
        return self._from_whole(start, end)

    def _part(self, answer: http.client.HTTPResponse, start: int, end: int) -> bytes:
        told = answer.headers.get("Content-Range", "")
        found = CONTENT_RANGE.fullmatch(told.strip())
        if not found or int(found[1]) != start:
            raise NotReached(
                f"{self.url}: asked for the bytes from {start:,} on, the server sent others, by its Content-Range "
                f"{told!r}. It cannot be trusted. Download the file with another program and give its path."
            )
        self._told_size(found[3])
        return _slice(self.url, answer, min(end, self.n_bytes or end) - start)

    def _from_whole(self, start: int, end: int) -> bytes:
        assert self._whole is not None
        try:
            data = _slice(self.url, self._whole, min(end, self.n_bytes or end) - start)
        except _Passing:
            self._whole.close()
            self._whole = None
            raise
        self._position = start + len(data)
        return data

    def _told_size(self, text: str | None) -> None:
        """Note the size that a server tells. Raises NotReached where it told another one before."""
        if text is None or not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            return
        if self.n_bytes not in (None, int(text)):
            raise NotReached(
                f"{self.url}: told to have {self.n_bytes:,} bytes, and then {int(text):,}. "
                "It was changed meanwhile, or its server cannot be trusted. Try again later."
            )
        self.n_bytes = int(text)


def read_list(url: str, until: float = inf) -> tuple[bytes, str | None]:
    """The answer to a small question such as a list in JSON, and the address of its next page.

    Raises NotReached, which says what the server did.
    """

    def asked() -> tuple[bytes, str | None]:
        answer = _opened(url, {"Accept": "application/json"})
        with answer:
            if answer.status != 200:
                _refuse(url, answer)
            _require_no_page(url, answer)
            text = _at_most(url, answer, MOST_LIST_BYTES + 1, MOST_SECONDS)
            if len(text) > MOST_LIST_BYTES:
                raise NotReached(f"{url} was answered with more than {MOST_LIST_BYTES:,} bytes. Give one file's name.")
            return text, next_page(url, answer.headers.get("Link"))

    return _tried(url, asked, until)


# --- one request --------------------------------------------------------------------------------------


def _tried(url: str, ask: Callable[[], Result], until: float) -> Result:
    """The answer, after at most two further tries, and before a time has come. Raises NotReached."""
    for pause in (*PAUSES, None):
        try:
            return _within(min(MOST_SECONDS, until - time.monotonic()), ask)
        except NotReached as refusal:
            raise NotReached(printable(str(refusal))) from refusal.__cause__
        except _Passing as reason:
            if time.monotonic() + (pause or 0) >= until:
                raise NotReached(
                    f"{printable(url)} was not read in the time for one model: its server, or the line to it, is too "
                    "slow. Try again later, or download the file and give its path."
                ) from reason.__cause__
            if pause is None:
                raise NotReached(
                    f"{printable(f'{url}: {reason}')} after {count_text(len(PAUSES) + 1, 'try', 'tries')}. Check the "
                    "network and the address, try again later, or give the path of a file that is here."
                ) from reason.__cause__
            say(f"{reason}; trying again in {seconds_text(pause)} …")
            time.sleep(pause)
    raise AssertionError


def _within(seconds: float, ask: Callable[[], Result]) -> Result:
    """The result of a call in a thread of its own: a name that is looked up, too, has no other limit."""
    if seconds <= 0:
        raise _Passing("no time is left")
    results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            results.put((ask(), None))
        except BaseException as problem:
            results.put((None, problem))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, problem = results.get(timeout=seconds)
    except Empty:
        raise _Passing(f"no whole answer came within {seconds:g} s") from None
    if problem is not None:
        raise problem
    return result


def _opened(
    url: str, headers: Mapping[str, str], told_size: Callable[[str | None], None] = lambda text: None
) -> http.client.HTTPResponse:
    """The answer at the end of the redirects; `told_size` hears of the size that the Hub tells beside one."""
    seen, at = [url], url
    while True:
        answer = _connected(at, headers)
        if answer.status not in REDIRECTS:
            return answer
        told_size(answer.headers.get(LINKED_SIZE))
        answer.close()
        at = _next_address(seen, answer.headers.get("Location"))
        seen.append(at)


def _next_address(seen: list[str], location: str | None) -> str:
    if not location:
        raise NotReached(f"{seen[0]} was sent on, but {seen[-1]} did not say where. Try again later.")
    try:
        following = urljoin(seen[-1], location)
        scheme = parted(following).scheme
    except (ModelNotFound, ValueError):
        raise NotReached(
            f"{seen[0]} was sent on by {parted(seen[-1]).netloc} to what is no address of a file. It was not asked. "
            "Give another address."
        ) from None
    way = " to ".join(parted(url).netloc for url in [*seen, following])
    if following in seen or len(seen) > MOST_REDIRECTS:
        raise NotReached(
            f"{seen[0]} was sent on {count_text(len(seen), 'time')}, {way}, and came to no file. Check the address."
        )
    if scheme not in ("https", parted(seen[-1]).scheme):
        raise NotReached(
            f"{seen[0]} was sent on, {way}, to an address that begins with {scheme or 'nothing'}, "
            "which anybody on the way could read and change. It was not asked. Give another address."
        )
    return following


def _connected(url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
    own = _token_for(url)
    if own and not (own.isascii() and own.isprintable()):
        raise NotReached("The token for the Hub has signs that no token has. Nobody was asked. Look at HF_TOKEN.")
    try:
        request = Request(url, headers={"User-Agent": "inferlab", **headers})
        if own:
            request.add_header("Authorization", f"Bearer {own}")
        answer = _opener().open(request, timeout=SILENT_SECONDS)
    except URLError as problem:
        raise _problem(url, problem.reason) from problem
    except OSError as problem:
        raise _problem(url, problem) from problem
    except (http.client.InvalidURL, ValueError):
        raise NotReached(
            f"{url} has signs that no address has. Nobody was asked. Write each as % and its number."
        ) from None
    except http.client.HTTPException as problem:
        raise _problem(url, problem) from problem
    if answer.status in PASSING:
        answer.close()
        raise _Passing(f"{parted(url).netloc} answered {answer.status} {answer.reason}")
    return answer


def _token_for(url: str) -> str | None:
    """The token where an address is of the Hub itself: of the same scheme, host and port."""
    return token() if parted(url)[:2] == parted(hub())[:2] else None


def _opener() -> OpenerDirector:
    """Opens http and https alone, through the system's proxy if there is one; no redirect is followed by itself."""
    opener = OpenerDirector()
    for handler in (ProxyHandler(), UnknownHandler(), HTTPHandler(), HTTPSHandler(context=_certificates())):
        opener.add_handler(handler)
    return opener


def _certificates() -> ssl.SSLContext:
    """The system's certificates; where Python knows none, as on some Macs, those of huggingface_hub's own client."""
    context = ssl.create_default_context()
    if not context.get_ca_certs() and not any(map(os.path.exists, filter(None, ssl.get_default_verify_paths()[:2]))):
        try:
            import certifi
        except ImportError:
            return context
        context.load_verify_locations(certifi.where())
    return context


def _problem(url: str, reason: Any) -> Exception:
    host = parted(url).netloc
    if isinstance(reason, ssl.SSLCertVerificationError):
        return NotReached(
            f"{url}: the certificate of {host} is not valid ({reason.verify_message}). Check the address, and the "
            "clock and the proxy of this machine; SSL_CERT_FILE names further certificates."
        )
    if isinstance(reason, TimeoutError):
        return _Passing(f"{host} sent nothing for {SILENT_SECONDS:g} s")
    return _Passing(f"{host} was not reached ({getattr(reason, 'strerror', None) or reason or type(reason).__name__})")


def _slice(url: str, answer: http.client.HTTPResponse, n_bytes: int) -> bytes:
    """So many bytes, or those that came in the time of a slice."""
    began = time.monotonic()
    data = _at_most(url, answer, n_bytes, SLICE_SECONDS)
    is_slow = data and time.monotonic() - began > SLICE_SECONDS
    if len(data) < n_bytes and not is_slow:
        raise _Passing(f"{parted(answer.url).netloc} ended its answer after {len(data):,} of {n_bytes:,} bytes")
    return data


def _at_most(url: str, answer: http.client.HTTPResponse, n_bytes: int, seconds: float) -> bytes:
    """Bytes up to a number, to the end of the answer, or to the end of a time."""
    parts, missing, began = [], n_bytes, time.monotonic()
    try:
        while missing > 0 and (part := answer.read1(min(missing, 2**20))):
            parts.append(part)
            missing -= len(part)
            if time.monotonic() - began > seconds:
                break
    except (OSError, http.client.HTTPException) as problem:
        raise _problem(url, problem) from problem
    return b"".join(parts)


def _require_no_page(url: str, answer: http.client.HTTPResponse) -> None:
    if answer.headers.get_content_type() == "text/html":
        answer.close()
        raise NotReached(
            f"{url} was answered with an HTML page, such as one about a file or one to log in, and not with a file. "
            "Give the address of the file itself; on the Hub it has /resolve/ in it."
        )


def _refuse(url: str, answer: http.client.HTTPResponse) -> None:
    """Raise NotReached for an answer that is no file, and say what to do."""
    told = printable(answer.headers.get("X-Error-Message") or answer.reason)[:200]
    own = parted(url)[:2] == parted(hub())[:2]
    answer.close()
    raise NotReached(f"{url} was answered {answer.status} ({told}). {advice(answer.status, own, bool(token()))}")
