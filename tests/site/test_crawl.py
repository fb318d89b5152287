"""The visits on which other modules judge: a page with faults shows each of them, and no page is visited twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from crawl import UNSCRIPTED, Crawl, visit
from servers import serving

from handbook.delivery.serve import Handler

FAULTY = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title>
<link rel="stylesheet" href="gone.css"></head><body><a href="#end">elsewhere</a>
<a href="#">nor here</a><main><article class="bd-article">
<h1>x</h1><img src="https://example.org/x.png"><p style="width: 900px">wide</p><span class="math">\\(x\\)</span>
<figure><img alt="x"></figure><pre style="width: 50px; overflow: auto">one long line of code</pre>
<i style="font-family: 'Font Awesome 6 Free'">★</i><fieldset class="question"><ul><li>x</li></ul>
<p class="commit" style="padding: 9px"><button>Commit</button></p></fieldset>
<details><summary><p>below its marker</p></summary></details>
<div class="diagram"><svg width="9" height="9"></svg></div>
<div class="lab-figure"><div role="img" aria-label="x"><svg width="90"><text x="-9" y="9">cut</text></svg></div></div>
<div style="overflow: auto"><table><td><p style="width: 900px">table</p></table></div>
<code class="literal">beyond</code><style>code { position: absolute; left: -9px }</style></article></main><script>
document.body.append(Object.assign(document.createElement("script"), { textContent: "1" }));
setTimeout(() => {
  document.querySelector("h1").style.marginTop = "300px";
  document.documentElement.style.fontSize = "20px";
}, 100);
throw new Error("broken");
</script></body></html>"""


@pytest.fixture
def site(tmp_path) -> Path:
    """A site of two pages, one of which only leads on to the other."""
    (tmp_path / "faulty.html").write_text(FAULTY, encoding="utf-8")
    leads_on = '<meta http-equiv="refresh" content="0; url=faulty.html">'
    (tmp_path / "index.html").write_text(leads_on, encoding="utf-8")
    return tmp_path


def test_a_page_with_faults_shows_each(site, browser):
    """What is missing, refused, foreign or failed, what moves or is cut: no reading of any window overlooks it."""
    with serving(site, Handler) as home:
        wide = visit(browser, home, "faulty.html", "wide", with_axe=True)
        phone = visit(browser, home, "index.html", "phone")
        unscripted = visit(browser, home, "faulty.html", UNSCRIPTED)
    for seen in (wide, phone):
        assert seen["foreign"] == ["https://example.org/x.png"]
        told = "\n".join(seen["complaints"])
        assert [word for word in ("gone.css", "broken", "failed: https://example.org") if word not in told] == []
        assert ["script-src" in text or "img-src" in text for text in seen["refused"]] == [True, True]
        assert seen["shift"] > 0.05
        assert seen["root_sizes"] == ["16px", "20px"]
        assert seen["icons"] == ["★"]
        assert seen["form"]["cut"] == ["one long line of code"]
        assert (seen["questions"], len(seen["buttons"])) == (1, 1)
        content = seen["content"]
        assert (content["math"], content["typeset"], content["sources"]) == (1, 0, ["\\(x\\)"])
        assert [(figure["drawn"], figure["caption"]) for figure in content["figures"]] == [(False, "")]
    assert phone["content"]["overflow"] > 0
    assert (phone["signs"], phone["names"], phone["tables"]) == (["below its marker"], ["beyond"], ["table"])
    assert any("image-alt" in text for text in wide["barriers"])
    assert wide["focus"]["article"] is False
    assert unscripted["diagrams"] == [[9, 9]]
    assert [drawn["cut"] for drawn in unscripted["drawn"].values()] == [["cut"], ["cut"]]


def test_no_page_is_visited_twice(site, tmp_path):
    """What was read is kept; only what axe-core finds may have to be added."""
    visits = []

    def noted(page: str, window: str, *, with_axe: bool) -> dict:
        visits.append((page, window, with_axe))
        return {"barriers": []} if with_axe else {}

    for _ in range(2):
        crawl = Crawl(site, tmp_path / "crawl", noted)
        assert crawl.visited("wide") == {"faulty.html": {}, "index.html": {}}
    assert crawl.barriers("wide", 0) == crawl.barriers("wide", 0) == {}
    assert visits == [("faulty.html", "wide", False), ("index.html", "wide", False), ("faulty.html", "wide", True)]
