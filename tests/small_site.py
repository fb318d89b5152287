"""A built site of two pages, with what an article can hold, for tests of what binds a site into one file."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
FRONT = """<html data-theme="dark"><head><style>h1 { text-wrap: balance; }</style></head><body>
<nav class="bd-links"><ul><li><a class="internal" href="#">A book</a></li></ul>
<p class="caption">Part &amp; one</p><ul><li><a class="internal" href="part/chapter.html">1. Chapter</a></li></ul></nav>
<article class="bd-article"><section id="a-book"><h1>A book<a class="headerlink" href="#a-book">#</a></h1>
<p>See <a href="part/chapter.html#here">the chapter</a>, <a href="notebook.ipynb">a file</a> and
<a href="https://example.org/">a site</a>.<br></p></section></article></body></html>"""
CHAPTER = """<html><head><link rel="stylesheet" href="../instrument.css"></head><body>
<article class="bd-article"><section id="here"><h1>Chapter</h1>
<div class="figure-controls"><input type="range"></div>
<div class="lab-figure" style="height: 9px"><div class="figure-drawing" role="img" aria-label="A line.">
<svg class="is-wide" width="9" viewBox="0 0 9 9"><text>wide</text></svg>
<svg class="is-narrow" width="9" viewBox="0 0 9 9"><clipPath id="clip"></clipPath><g clip-path="url(#clip)">
<text style="fill:var(--pst-color-text-base)">narrow</text></g></svg></div></div>
<fieldset class="question" id="prediction-1"><legend>Which?</legend>
<ul><li><label><input type="radio"><span>this one</span></label></li></ul><p class="commit pst-js-only">
<button disabled>Commit</button></p></fieldset>
<div class="compare"><p class="rubric">Compare</p><details class="outcome" data-question="prediction-1">
<summary>Answer: <em>Which</em></summary><p>It was this one.</p></details></div>
<figure id="fig-outcome"><div class="output"><details class="outcome"><summary>Outcome</summary><p>A bar.</p>
<details class="provenance"><summary>measured</summary></details></details></div><figcaption>
<span class="caption-text">Its caption</span></figcaption>
</figure><div class="exercise admonition" id="ex"><p class="admonition-title">Exercise 1</p></div>
<div class="solution dropdown admonition" id="part/solution-1"><p class="admonition-title">Solution to
<a href="#ex">Exercise 1</a></p><section><p>Two.</p></section></div>
<details><summary>Answers</summary><p>All of them.</p></details>
<details><summary><p class="title">In words</p></summary></details>
<svg width="9" role="graphics-document document" viewBox="0 0 9 9"><rect/><rect name="R" width="9" height="9"/></svg>
<img src="../picture.svg" alt="A picture." loading="lazy">
<p id="twice">x &lt; y</p><p id="twice"><a href="../index.html">back</a></p>
<script>alert("no")</script></section></article></body></html>"""

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'


def build(root: Path) -> Path:
    """Write the site, its settings and its stylesheet into a folder, as a build leaves them."""
    (root / "_toc.yml").write_text("format: jb-book\nroot: index\n", encoding="utf-8")
    (root / "_config.yml").write_text("title: A book\nauthor: B & C\n", encoding="utf-8")
    (root / "book").symlink_to(ROOT / "book")
    site = root / "_build" / "html"
    (site / "part").mkdir(parents=True)
    (site / "instrument.css").write_text(".legend { color: rgb(1, 2, 3); }", encoding="utf-8")
    (site / "picture.svg").write_text(PICTURE, encoding="utf-8")
    (site / "index.html").write_text(FRONT, encoding="utf-8")
    (site / "part" / "chapter.html").write_text(CHAPTER, encoding="utf-8")
    return root
