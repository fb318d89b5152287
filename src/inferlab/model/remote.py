"""The header of a model at an address: a few MB of it, never the whole file.

    hf:owner/repo/file.gguf     a file on the Hugging Face Hub
    hf:owner/repo:Q4_K_M        the one that llama.cpp's `-hf` would take
    https://host/file.gguf      any other; of a split file the first part, and the others lie beside it

Pages do not load this module: there the browser asks.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from inferlab.errors import ModelNotFound, NotReached
from inferlab.model.beginnings import Beginnings
from inferlab.model.gguf import KEPT_HEADERS, MAX_PARTS, Model
from inferlab.model.hub import HubAddress, HubFile, Repository, files_of, hub_address, part_urls, parted, repository
from inferlab.model.web import WebFile, hub, read_list, say
from inferlab.units import bytes_text

FIRST_SLICE, LATER_SLICE = 2**21, 2**17
"""Bytes of the first request: a first part has the vocabulary, a later one only its tensors."""
MOST_SECONDS = 300.0
"""For all of one model: the list of files, and the beginning of each part."""
MOST_PAGES = 100
"""Of a list of files."""


@dataclass
class RemoteBeginnings(Beginnings):
    """Beginnings of files at an address; errors name that."""

    base: str = ""

    def shown(self, text: str) -> str:
        """An error's text with the address in place of the folder."""
        return text.replace(f"{self.folder}", self.base)


@lru_cache(maxsize=KEPT_HEADERS)
def remote_model(name: str) -> Model:
    """The model at an address, whose header is read once in a process.

    Raises NotReached for a server that does not give it, and what `read_gguf` raises for a file that is no model.
    """
    address = hub_address(name)
    if address is None:
        urls = part_urls(name)
        return _read(name, urls, [None] * len(urls), time.monotonic() + MOST_SECONDS)
    until = time.monotonic() + MOST_SECONDS
    found = repository(address, _files(address, until))
    model = found.chosen()
    urls = [address.file_url(file.path, hub()) for file in model.files]
    header = _read(str(found.address_of(model)), urls, [file.n_bytes for file in model.files], until)
    return replace(header, beside=found.beside(model))


def listed(address: HubAddress) -> Repository:
    """The models of a repository. Raises NotReached, or ModelNotFound where it has none."""
    return repository(address, _files(address, time.monotonic() + MOST_SECONDS))


def _files(address: HubAddress, until: float) -> Iterator[HubFile]:
    url: str | None = address.list_url(hub())
    for _ in range(MOST_PAGES):
        if url is None:
            return
        text, following = read_list(url, until)
        try:
            page = json.loads(text)
        except (ValueError, RecursionError) as wrong:
            raise NotReached(f"{url} was answered with no JSON: {text[:40]!r}. Try again later.") from wrong
        yield from files_of(page, url)
        url = following


def _read(name: str, urls: Sequence[str], sizes: Sequence[int | None], until: float) -> Model:
    """The model in these files, one for each part, as many as the first one says that there are."""
    if len(urls) > MAX_PARTS:
        raise ModelNotFound(f"{name} would have {len(urls):,} parts; this library reads models of up to {MAX_PARTS:,}.")
    here = RemoteBeginnings(_folder(), base=urls[0].rpartition("/")[0])
    for url, size in zip(urls, sizes, strict=True):
        with closing(WebFile(url, size, until)) as file:
            _bring(here, file, FIRST_SLICE if url == urls[0] else LATER_SLICE)
        if here.n_parts(_last(urls[0])) != len(urls):
            break
    return replace(here.model(_last(urls[0])), source=name)


def _bring(here: Beginnings, file: WebFile, first_slice: int) -> None:
    """Read a file from its beginning on until its header is whole."""
    following: tuple[int, int] | None = (0, first_slice)
    while following:
        if following[0]:
            say(f"{_last(file.url)}: {bytes_text(following[0])} read; its header goes on …")
        data = file.read(*following)
        if file.n_bytes is None:
            raise NotReached(f"{file.url}: the server does not tell how large the file is, so it cannot be planned.")
        following = here.add(_last(file.url), file.n_bytes, following[0], data)


def _last(url: str) -> str:
    """The name of the file at an address."""
    return unquote(parted(url).path).rpartition("/")[2]


def _folder() -> Path:
    """A folder for the beginnings of one model, which is deleted with the session."""
    folder = Path(tempfile.mkdtemp(prefix="inferlab-beginnings-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
