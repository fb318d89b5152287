"""Addresses on the Hub, and what a repository has by the names of its files; nobody is asked."""

from __future__ import annotations

import pytest

from inferlab.errors import ModelNotFound
from inferlab.model.hub import HubAddress, HubFile, files_of, hub_address, next_page, part_urls, repository

ADDRESS = HubAddress("owner/model-GGUF")
FILES = {
    "README.md": 9,
    "IQ2_M/model-IQ2_M.gguf": 2,
    "UD/model-UD-Q4_K_XL-00001-of-00002.gguf": 30,
    "UD/model-UD-Q4_K_XL-00002-of-00002.gguf": 20,
    "cut-00002-of-00002.gguf": 1,
    "mmproj-BF16.gguf": 4,
    "mmproj-Q8_0.gguf": 3,
    "model-Q4_K_M.gguf": 45,
    "model-Q4_K_M.gguf.part1of2": 7,
    "model-Q8_0.gguf": 80,
    "model.imatrix.gguf": 1,
    "mtp-model-Q8_0.gguf": 5,
}


def found(address: HubAddress = ADDRESS, files: dict[str, int] = FILES):
    return repository(address, [HubFile(*item) for item in files.items()])


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("hf:owner/repo", HubAddress("owner/repo")),
        ("hf://owner/repo/", HubAddress("owner/repo")),
        ("HF:owner/repo:Q4_K_M", HubAddress("owner/repo", type="Q4_K_M")),
        ("hf:owner/repo/a/b.gguf", HubAddress("owner/repo", "a/b.gguf")),
        ("https://huggingface.co/owner/repo", HubAddress("owner/repo")),
        ("https://hf.co/owner/repo/tree/dev", HubAddress("owner/repo", revision="dev")),
        (
            "https://huggingface.co/owner/repo/resolve/main/a/b%20c.gguf?download=true",
            HubAddress("owner/repo", "a/b c.gguf"),
        ),
        ("https://huggingface.co/owner/repo/blob/abc/b.gguf", HubAddress("owner/repo", "b.gguf", revision="abc")),
        (
            "https://huggingface.co/owner/repo/blob/refs/pr/1/b.gguf",
            HubAddress("owner/repo", "b.gguf", revision="refs/pr/1"),
        ),
        ("https://example.org/owner/repo", None),
        ("https://huggingface.co.example.org/owner/repo", None),
        ("model.gguf", None),
    ],
)
def test_a_name_is_an_address_of_the_hub(name, address):
    """Short forms, llama.cpp's form and the Hub's own addresses; another host is none."""
    assert hub_address(name) == address


@pytest.mark.parametrize(
    "name", ["hf:", "hf:owner", "hf:owner//a.gguf", "hf:owner/repo/../a.gguf", "hf:o/r/..", "hf:o/r\n/a.gguf", "hf:é/b"]
)
def test_an_incomplete_address_is_refused(name):
    """What could be another place than a repository's file is none."""
    with pytest.raises(ModelNotFound, match="is not of the form hf:owner/repo"):
        hub_address(name)


@pytest.mark.parametrize("revision", ["main", "refs/pr/1", "a/b"])
def test_an_address_that_is_written_is_read_again(revision):
    """A branch may have slashes in its name, and a file any sign."""
    address = HubAddress("owner/repo", "a b/100%-#ü.gguf", revision=revision)
    assert hub_address(address.file_url(address.file)) == address
    whole = HubAddress("owner/repo", revision=revision)
    assert hub_address(str(whole)) == whole


@pytest.mark.parametrize("name", ["https://[x", "https://huggingface.co:port/a/b", "http://[::1/a.gguf"])
def test_a_malformed_address_is_refused(name):
    """With what to do, and not with an error of the library that splits it."""
    with pytest.raises(ModelNotFound, match=r"is no address .* Check each letter"):
        hub_address(name)


def test_an_address_with_a_password_is_refused_without_it():
    """Nobody is asked, and the password stands in no message."""
    for name in ("https://user:secret@example.org/a.gguf", "https://secret@[x"):
        with pytest.raises(ModelNotFound, match="Nobody was asked") as refused:
            hub_address(name)
        assert "secret" not in str(refused.value)


def test_a_link_that_is_no_address_ends_the_list():
    """What a server writes there is only followed on its own host."""
    assert next_page("https://a/b", '<https://[x>; rel="next"') is None


def test_addresses_are_written_for_the_hub():
    """Signs that an address cannot hold are replaced, and another endpoint stands in the Hub's place."""
    address = HubAddress("owner/repo", revision="refs/pr/1")
    assert address.file_url("a b/ü.gguf") == "https://huggingface.co/owner/repo/resolve/refs%2Fpr%2F1/a%20b/%C3%BC.gguf"
    assert address.list_url("http://here") == "http://here/api/models/owner/repo/tree/refs%2Fpr%2F1?recursive=true"


def test_a_repository_is_models_and_what_goes_with_them():
    """Parts are one, and pieces, parts without a first one and matrices are no models."""
    rows = found().rows()
    assert rows == [
        ("model", "IQ2_M", "2 B", "IQ2_M/model-IQ2_M.gguf"),
        ("model", "Q4_K_M", "45 B", "model-Q4_K_M.gguf"),
        ("model", "UD-Q4_K_XL", "50 B", "UD/model-UD-Q4_K_XL-00001-of-00002.gguf (2 parts)"),
        ("model", "Q8_0", "80 B", "model-Q8_0.gguf"),
        ("projector", "Q8_0", "3 B", "mmproj-Q8_0.gguf"),
        ("projector", "BF16", "4 B", "mmproj-BF16.gguf"),
        ("draft", "Q8_0", "5 B", "mtp-model-Q8_0.gguf"),
    ]
    assert {(one["kind"], one["parts"]) for one in found().fields()} == {
        ("model", 1),
        ("model", 2),
        ("projector", 1),
        ("draft", 1),
    }


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("", "model-Q4_K_M.gguf"),
        ("q8_0", "model-Q8_0.gguf"),
        ("UD-Q4_K_XL", "UD/model-UD-Q4_K_XL-00001-of-00002.gguf"),
        ("Q4_K_XL", "UD/model-UD-Q4_K_XL-00001-of-00002.gguf"),
        ("iq2_m", "IQ2_M/model-IQ2_M.gguf"),
    ],
)
def test_a_type_is_found_as_llama_cpp_finds_it(kind, path):
    """The first model whose path has the type before a dot or a dash; without one Q4_K_M, Q8_0, or the first."""
    assert found(HubAddress("owner/model-GGUF", type=kind)).chosen().path == path


@pytest.mark.parametrize("path", ["mmproj-F16.gguf", "eagle3-x.gguf", "x-imatrix-Q4_K_M.gguf"])
def test_any_file_can_be_named(path):
    """A draft, a projector or a file of another kind is found by its path, also where nothing else is there."""
    for more in ({}, {"model-Q8_0.gguf": 1}):
        repo = found(HubAddress("owner/model-GGUF", path), files={path: 1, **more})
        assert repo.chosen().path == path
        assert repo.beside(repo.chosen()) == ()


def test_without_a_usual_type_the_first_is_taken():
    """As -hf takes it; the example for the reader names its type, or its file where that would mean another one."""
    plain = found(files={"a/weird.gguf": 1, "b-Q2_K.gguf": 2})
    assert (plain.chosen().path, plain.example) == ("a/weird.gguf", "hf:owner/model-GGUF/a/weird.gguf")
    assert found().example == "hf:owner/model-GGUF:Q4_K_M"
    twice = found(files={"x-Q5_K.gguf": 1, "y-Q4_K_M.gguf": 2, "z-Q4_K_M.gguf": 3})
    assert twice.example == "hf:owner/model-GGUF:Q4_K_M"


def test_what_lies_beside_is_that_of_the_nearest_type():
    """Of two projectors the one with nearer bits, from the folder of the model or above; a draft with a command."""
    told = found().beside(found().chosen())
    assert "mmproj-Q8_0.gguf, 3 B, a projector" in told[0]
    assert "--draft hf:owner/model-GGUF/mtp-model-Q8_0.gguf" in told[1]
    deeper = found(files={**FILES, "UD/mmproj-F32.gguf": 6, "other/mmproj-Q4_0.gguf": 7})
    split = next(model for model in deeper.models if model.files[1:])
    assert "UD/mmproj-F32.gguf" in deeper.beside(split)[0]
    assert found(files={"a-Q8_0.gguf": 1}).beside(found().chosen()) == ()


def test_a_repository_without_a_gguf_says_what_it_has():
    """Its first files are named, and where to look."""
    with pytest.raises(
        ModelNotFound, match=r"Found 2 files: a\.safetensors, b\.json\. Look for a repository with GGUF"
    ):
        found(files={"a.safetensors": 1, "b.json": 2})


def test_the_hubs_list_has_the_size_of_the_file_itself():
    """Of a file that the Hub keeps apart it is not that of the pointer; folders and unreadable names are no files."""
    listed = [
        {"type": "directory", "path": "a"},
        {"type": "file", "path": "b.gguf", "size": 5, "lfs": {"size": 5, "oid": "x"}},
        {"type": "file", "path": "c.txt", "size": 7},
        {"type": "file", "path": "\x1b[2J.gguf", "size": 7},
    ]
    assert files_of(listed, "it") == [HubFile("b.gguf", 5), HubFile("c.txt", 7)]


def test_the_parts_of_an_address_follow_from_the_first():
    """Their names differ by a number; what follows the path stays; a later part is refused with the first one."""
    url = "https://example.org/a%20b/m-00001-of-00002.gguf?x=1"
    assert part_urls(url) == [url, "https://example.org/a%20b/m-00002-of-00002.gguf?x=1"]
    assert part_urls("https://example.org/m.gguf") == ["https://example.org/m.gguf"]
    with pytest.raises(ModelNotFound, match=r"is part 2 of 2\. Give the first part, m-00001-of-00002\.gguf"):
        part_urls("https://example.org/m-00002-of-00002.gguf")
