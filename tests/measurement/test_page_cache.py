"""The page cache: emptied on purpose, and believed only when mincore says so."""

import pytest

from inferlab.measurement import page_cache

on_linux = pytest.mark.skipif(not page_cache.ON_LINUX, reason="only Linux tells what its page cache holds")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5_000_000)
    return path


@on_linux
def test_a_file_is_read_into_the_cache_and_dropped_from_it(file):
    """After reading, every page is in memory; after emptying, none, confirmed by the kernel."""
    assert page_cache.fill_cache(file) == 1.0
    if page_cache.empty_cache(file) == 1.0:
        pytest.skip("this file system keeps its files in memory")
    assert page_cache.cached_share(file) == 0.0
    assert page_cache.fill_cache(file) == 1.0


@on_linux
def test_part_of_a_file_counts_as_a_share(file):
    """Reading the beginning caches some pages and not all."""
    if page_cache.empty_cache(file) == 1.0:
        pytest.skip("this file system keeps its files in memory")
    with file.open("rb", buffering=0) as opened:
        opened.read(4096)
    assert 0 < page_cache.cached_share(file) < 1


def test_where_nobody_can_tell_the_answer_is_unknown(file, monkeypatch):
    """On another system the share is None, never 0, and filling still reads the file."""
    monkeypatch.setattr(page_cache, "ON_LINUX", False)
    assert page_cache.cached_share(file) is None
    assert page_cache.empty_cache(file) is None
    assert page_cache.fill_cache(file) is None


def test_an_empty_file_has_no_share(tmp_path):
    """No pages, no share."""
    (tmp_path / "empty").touch()
    assert page_cache.cached_share(tmp_path / "empty") is None
