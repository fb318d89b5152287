"""The gallery of the built site: its pictures are shown, and its downloads are there, from disk and from a server."""

from __future__ import annotations

from urllib.parse import urljoin
from urllib.request import urlopen

PAGE = "book/appendix/gallery.html"
BEGINNINGS = {"svg": b"<svg ", "png": b"\x89PNG\r\n\x1a\n"}


def test_every_download_answers(home, open_page):
    """Each picture has an SVG and a PNG that are what they are called."""
    page = open_page(f"{home}{PAGE}")
    links = page.locator(".gallery a[download]").evaluate_all("links => links.map((one) => one.getAttribute('href'))")
    n_entries = page.locator(".gallery-entry").count()
    assert len(set(links)) == len(links) == 2 * n_entries
    assert n_entries > 10
    for link in links:
        with urlopen(urljoin(f"{home}{PAGE}", link)) as answer:
            assert answer.read(8).startswith(BEGINNINGS[link.rpartition(".")[2]]), link


def test_every_picture_is_shown_with_its_alternative(home, open_page):
    """A browser draws each SVG as an image, and the words below are those of the image."""
    page = open_page(f"{home}{PAGE}")
    entries = page.locator(".gallery-entry").evaluate_all("""(entries) => Promise.all(entries.map(async (entry) => {
      const image = entry.querySelector("img");
      image.loading = "eager";
      await image.decode();
      const said = entry.querySelector("details p").textContent;
      return [image.naturalWidth > 0, image.alt === said, said.length > 40];
    }))""")
    assert entries
    assert all(all(one) for one in entries)
