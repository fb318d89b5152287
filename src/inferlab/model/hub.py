"""Addresses of models on the Hugging Face Hub, and the models that a repository has, by the names of its files.

Nothing here asks the network: `web` does for the command line, the page's own script for an instrument.
The choice of files is that of llama.cpp's `-hf` (common/download.cpp), and so are the words that name their kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from inferlab.errors import ModelNotFound, NotReached
from inferlab.model.gguf_kinds import piece_hint
from inferlab.units import bytes_text, count_text, file_size

HUB, MAIN, PREFIX = "https://huggingface.co", "main", "hf:"
HOSTS = ("huggingface.co", "hf.co")
"""The Hub's host, and the one that stands for it in short addresses and, with names before it, has the files
(docs/hub/models-downloading.md of huggingface/hub-docs)."""
REPO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
TYPE = re.compile(r"(?:^|[-./])((?:UD-)?(?:I?Q\d|TQ\d|BF16|F16|F32|FP16|MXFP4|NVFP4)(?:_\w+)?)(?=[-.])", re.IGNORECASE)
USUAL = ("Q4_K_M", "Q8_0")
"""The types that `-hf` looks for where none is asked (find_best_model)."""
PROJECTOR, DRAFTS = "mmproj", ("mtp-", "eagle3-", "dflash-", "dspark-")
NO_MODELS = (PROJECTOR, "imatrix", *DRAFTS)
"""Words in the names of files that are no model of their own (gguf_filename_is_model)."""
FORMS = "hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo/file.gguf"
LISTED = 5


@dataclass(frozen=True)
class HubAddress:
    """A repository of the Hub, or one of its models by a file or by a type."""

    repo: str
    file: str = ""
    type: str = ""
    revision: str = MAIN

    def __str__(self) -> str:
        if self.revision != MAIN:
            return self.file_url(self.file) if self.file else f"{HUB}/{self.repo}/tree/{quote(self.revision, safe='')}"
        return f"{PREFIX}{self.repo}{f'/{self.file}' if self.file else ''}{f':{self.type}' if self.type else ''}"

    def list_url(self, hub: str = HUB) -> str:
        """The address of the list of its files, in JSON; it comes in pages."""
        return f"{hub}/api/models/{self.repo}/tree/{quote(self.revision, safe='')}?recursive=true"

    def file_url(self, path: str, hub: str = HUB) -> str:
        """The address of a file, from which the Hub sends on to where its bytes are."""
        return f"{hub}/{self.repo}/resolve/{quote(self.revision, safe='')}/{quote(path)}"


def type_in(path: str) -> str:
    """The type of most weights, as the name of a file has it; "" where that tells none."""
    found = TYPE.findall(f"/{path}")
    return found[-1].upper() if found else ""


def hub_address(name: str) -> HubAddress | None:
    """What a name means on the Hub; None for one of another kind. Raises ModelNotFound for an incomplete one."""
    if name.lower().startswith(PREFIX):
        return _from_words(name, name[len(PREFIX) :].strip("/"))
    if not name.lower().startswith(("https://", "http://")):
        return None
    address = parted(name)
    if address.hostname not in HOSTS:
        return None
    parts = [unquote(part) for part in address.path.strip("/").split("/")]
    if len(parts) > 5 and parts[3] == "refs":  # a branch of the Hub's own, such as refs/pr/1
        parts[3:6] = ["/".join(parts[3:6])]
    if len(parts) > 4 and parts[2] in ("resolve", "blob", "raw"):
        return _checked(name, HubAddress("/".join(parts[:2]), "/".join(parts[4:]), revision=parts[3]))
    revision = parts[3] if len(parts) > 3 and parts[2] == "tree" else MAIN
    return _checked(name, HubAddress("/".join(parts[:2]), revision=revision))


def parted(url: str) -> SplitResult:
    """The parts of an address. Raises ModelNotFound for a text that is none, or that has a name or a password in it."""
    if re.match(r"[^/?#]*//[^/?#]*@", re.sub(r"[\t\r\n]", "", url)):
        raise ModelNotFound(
            "The address has a name or a password before its host, which nobody is sent. Nobody was asked. "
            "Leave out all up to the @, or download the file with a program that logs in, and give its path."
        )
    try:
        found = urlsplit(url)
        _ = found.port, found.hostname  # each checks its own part
    except ValueError as wrong:
        raise ModelNotFound(f"{url} is no address ({wrong}). Nobody was asked. Check each letter of it.") from wrong
    return found


def _from_words(name: str, words: str) -> HubAddress:
    owner, _, rest = words.partition("/")
    repo, slash, file = rest.partition("/")
    repo, _, kind = (repo, "", "") if slash else repo.partition(":")
    return _checked(name, HubAddress(f"{owner}/{repo}", file, kind))


def _checked(name: str, found: HubAddress) -> HubAddress:
    parts = [*found.repo.split("/"), *found.revision.split("/"), *(found.file.split("/") if found.file else ())]
    if not REPO.fullmatch(found.repo) or not {"", ".", ".."}.isdisjoint(parts) or not name.isprintable():
        raise ModelNotFound(f"{name} is not of the form {FORMS}.")
    if found.file and not found.file.lower().endswith(".gguf"):
        raise ModelNotFound(f"{name} is no .gguf file. {PREFIX}{found.repo} lists those that there are.")
    return found


@dataclass(frozen=True)
class HubFile:
    """A file of a repository: its path there, and its size in bytes."""

    path: str
    n_bytes: int


@dataclass(frozen=True)
class HubModel:
    """A GGUF of a repository, in one file or in all its parts, the first one first."""

    files: tuple[HubFile, ...]

    @property
    def path(self) -> str:
        return self.files[0].path

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)

    @property
    def type(self) -> str:
        return type_in(self.path)

    @property
    def n_bits(self) -> int:
        """The first number of its type, by which `-hf` compares files (extract_quant_bits); 0 without one."""
        digits = re.search(r"\d+", self.type)
        return int(digits[0]) if digits else 0

    @property
    def parts_text(self) -> str:
        """How many files it is in, if it is not one."""
        return f" ({count_text(len(self.files), 'part')})" if len(self.files) > 1 else ""

    @property
    def label(self) -> str:
        """Type and size, or its path where that tells no type."""
        return f"{self.type or self.path}, {bytes_text(self.n_bytes)}{self.parts_text}"

    def is_named(self, word: str) -> bool:
        return word in self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Repository:
    """The GGUF files of a repository: models, what goes with them, and with all others every one."""

    address: HubAddress
    models: tuple[HubModel, ...]
    projectors: tuple[HubModel, ...]
    drafts: tuple[HubModel, ...]
    every: tuple[HubModel, ...]

    def chosen(self) -> HubModel:
        """The model that the address means; by its type, or by the usual ones, as `-hf` chooses.

        Raises ModelNotFound with what there is.
        """
        if self.address.file:
            return self._by_path(self.address.file)
        for kind in [self.address.type] if self.address.type else USUAL:
            pattern = re.compile(re.escape(kind) + "[.-]", re.IGNORECASE)
            if found := next((model for model in self.models if pattern.search(model.path)), None):
                return found
        if self.address.type:
            raise ModelNotFound(f"{PREFIX}{self.address.repo} has no model of the type {self.address.type}. {self.has}")
        return self.models[0]

    def _by_path(self, path: str) -> HubModel:
        for model in self.every:
            if path == model.path:
                return model
            if path in (file.path for file in model.files):
                raise ModelNotFound(f"{path} is a later part of a model. Give the first one, {model.path}.")
        raise ModelNotFound(f"{PREFIX}{self.address.repo} has no file {path}. {self.has}")

    def address_of(self, model: HubModel) -> HubAddress:
        """The address of one of its files."""
        return replace(self.address, file=model.path, type="")

    @property
    def example(self) -> str:
        """The address of the model that `-hf` takes: by its type, or by its file where the type means another one."""
        model = self.chosen()
        typed = replace(self, address=replace(self.address, type=model.type))
        by_type = model.type and self.address.revision == MAIN and typed.chosen() == model
        return str(typed.address if by_type else self.address_of(model))

    @property
    def has(self) -> str:
        """Its models in a sentence."""
        names = [model.type or model.path for model in self.models]
        more = f" and {len(names) - 4 * LISTED} more" if len(names) > 4 * LISTED else ""
        return f"It has {', '.join(dict.fromkeys(names[: 4 * LISTED]))}{more}."

    def beside(self, model: HubModel) -> tuple[str, ...]:
        """What belongs to a model, in sentences: its bytes are in no plan of the model alone."""
        told: list[str] = []
        if model not in self.models:
            return ()
        if projector := nearest(self.projectors, model):
            told.append(
                f"Beside it lies {projector.path}, {bytes_text(projector.n_bytes)}, a projector for pictures or sound. "
                "llama-server's -hf loads it too, on top of this plan; --no-mmproj leaves it out."
            )
        if draft := nearest(self.drafts, model):
            told.append(
                f"Beside it lies {draft.path}, {bytes_text(draft.n_bytes)}, which drafts for it: plan both with "
                f"--draft {shell_quote(str(self.address_of(draft)))}."
            )
        return tuple(told)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Kind, type, size and path of each, the smallest model first."""
        every = [("model", self.models), ("projector", self.projectors), ("draft", self.drafts)]
        return [
            (kind, model.type, bytes_text(model.n_bytes), f"{model.path}{model.parts_text}")
            for kind, models in every
            for model in sorted(models, key=lambda model: model.n_bytes)
        ]

    def fields(self) -> list[dict[str, Any]]:
        """The same for other programs."""
        every = [("model", self.models), ("projector", self.projectors), ("draft", self.drafts)]
        return [
            {
                "kind": kind,
                "type": model.type or None,
                "bytes": model.n_bytes,
                "parts": len(model.files),
                "address": str(self.address_of(model)),
            }
            for kind, models in every
            for model in models
        ]


def nearest(files: Iterable[HubModel], model: HubModel) -> HubModel | None:
    """The file that `-hf` loads with a model: in its folder or above, the deepest, then of the nearest type
    (find_best_sibling)."""
    folders = model.path.split("/")[:-1]

    def rank(other: HubModel) -> tuple[int, int]:
        return -len(other.path.split("/")), abs(other.n_bits - model.n_bits)

    def is_above(other: HubModel) -> bool:
        own = other.path.split("/")[:-1]
        return own == folders[: len(own)]

    return min(filter(is_above, files), key=rank, default=None)


def files_of(listed: Any, what: str) -> list[HubFile]:
    """The files in one page of the Hub's list. Raises NotReached for an answer that is no such list."""
    try:
        files = [item for item in listed if item["type"] == "file" and item["path"].isprintable()]
        return [HubFile(str(item["path"]), file_size((item.get("lfs") or item)["size"])) for item in files]
    except (TypeError, KeyError, ValueError, OverflowError, AttributeError) as wrong:
        raise NotReached(
            f"{what} was answered with something else than a list of files ({wrong!r}). Try again later."
        ) from wrong


def next_page(url: str, links: str | None) -> str | None:
    """The address after `rel="next"` in a Link header; None without one, or where it leaves the host."""
    found = re.search(r'<([^>]+)>\s*;\s*rel="?next"?', links or "")
    try:
        following = urljoin(url, found[1]) if found else None
        return following if following and urlsplit(following)[:2] == urlsplit(url)[:2] else None
    except ValueError:  # what stands there is no address
        return None


def repository(address: HubAddress, files: Iterable[HubFile]) -> Repository:
    """The models in these files of a repository. Raises ModelNotFound where there is no GGUF."""
    files = list(files)
    ggufs = [file for file in files if file.path.lower().endswith(".gguf") and not piece_hint(file.path)]
    wholes = tuple(_joined(ggufs))
    models = tuple(model for model in wholes if not any(map(model.is_named, NO_MODELS)))
    if not models and address.file not in (file.path for whole in wholes for file in whole.files):
        found = ", ".join(file.path for file in files[:LISTED]) or "nothing"
        raise ModelNotFound(
            f"{PREFIX}{address.repo} has no model as a .gguf file. Found {count_text(len(files), 'file')}: {found}"
            f"{', …' if len(files) > LISTED else ''}. Look for a repository with GGUF in its name."
        )
    projectors = tuple(model for model in wholes if model.is_named(PROJECTOR))
    drafts = tuple(model for model in wholes if any(map(model.is_named, DRAFTS)))
    return Repository(address, models, projectors, drafts, wholes)


def _joined(files: Iterable[HubFile]) -> list[HubModel]:
    """The parts of each split file as one; a file whose first part is not there is left out."""
    wholes: dict[tuple[str, str], dict[int, HubFile]] = {}
    for file in files:
        part = PART.fullmatch(file.path)
        key, number = ((part[1], part[3]), int(part[2])) if part else ((file.path, ""), 1)
        wholes.setdefault(key, {})[number] = file
    return [HubModel(tuple(parts[n] for n in sorted(parts))) for parts in wholes.values() if 1 in parts]


def part_paths(path: str) -> list[str]:
    """The paths of all parts of a split file, from that of its first; of any other file its own.

    llama.cpp names parts so (llama_split_path). Raises ModelNotFound for a later part.
    """
    part = PART.fullmatch(path)
    if not part:
        return [path]
    if int(part[2]) != 1:
        first = f"{part[1]}-00001-of-{part[3]}.gguf".rpartition("/")[2]
        raise ModelNotFound(f"{path} is part {int(part[2])} of {int(part[3])}. Give the first part, {first}.")
    return [f"{part[1]}-{n:05}-of-{part[3]}.gguf" for n in range(1, int(part[3]) + 1)]


def part_urls(url: str) -> list[str]:
    """The addresses of all parts, as `part_paths`."""
    address = parted(url)
    paths = part_paths(address.path)
    return [url] if len(paths) == 1 else [address._replace(path=path).geturl() for path in paths]


def advice(status: int, hub: bool, has_token: bool) -> str:
    """What to do after an answer with this number. hub: it is the Hub's; has_token: the reader's token was sent."""
    if status in (401, 403) and hub:
        name = "a name that is not there, or a private or gated repository"
        if has_token:
            return f"It is {name}, and your token may not read it. Accept its terms on its page on the Hub, logged in."
        return f"It is {name}. Check the name; for a gated one accept its terms on its page, then run `hf auth login`."
    if status in (401, 403):
        return "It needs a login. Download the file with a program that has one, and give its path."
    if status in (404, 410):
        return "There is no such file. Check the address, each letter of it."
    if status == 416:
        return "The file is shorter than was told. It is cut off, or its server cannot be trusted."
    return "Try again later, or give the path of a file that is here."
