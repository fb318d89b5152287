"""Makes each line of a block of code an element, and each word with a hyphen or a slash in it another.

On a narrow page a long line goes on below, set in from its beginning, so that nobody takes the rest for a line of its
own; and it goes on at a space, not behind the first hyphen of an option. The text itself stays as it was, so that a
reader copies what the author wrote.
"""

from __future__ import annotations

import re
from itertools import groupby

BLOCK = re.compile(r'(<div class="highlight"><pre>)(.*?)(</pre>)', re.DOTALL)
PIECE = re.compile(r'<span(?: class="([^"]*)")?>([^<]*)</span>|([^<]+)')
"""A token with its class, or text between tokens."""
BREAKABLE = re.compile(r"[-/|?!][^\s]")
"""A sign behind which a browser goes on below."""

Line = list[tuple[str, str]]
"""Words and the spaces between them, each with its token's class."""


def setup(app) -> None:
    """Mark the lines of each page before its template is filled."""
    app.connect("html-page-context", _mark_page, priority=900)


def marked(article: str) -> str:
    """The HTML of an article with its code in lines and words."""
    return BLOCK.sub(lambda block: block[1] + _lines(block[2]) + block[3], article)


def _lines(code: str) -> str:
    """Highlighted code in lines; code with more in it than tokens stays as it is."""
    if PIECE.sub("", code):
        return code
    lines: list[Line] = [[]]
    for token, inside, between in PIECE.findall(code):
        for part in re.findall(r"\n|[^\S\n]+|\S+", inside + between):
            lines[-1].append((token, part))
            if part == "\n":
                lines.append([])
    return "".join(_line(line) for line in lines if line)


def _line(parts: Line) -> str:
    groups = [list(group) for _, group in groupby(parts, key=lambda part: part[1].isspace())]
    first = parts[0][1]
    if first.strip(" "):
        return f'<span class="line">{"".join(map(_word, groups))}</span>'
    words = "".join(map(_word, groups[1:]))
    return f'<span class="line" style="--indent: {len(first)}ch"><span class="indent">{first}</span>{words}</span>'


def _word(parts: Line) -> str:
    tokens = "".join(f'<span class="{token}">{text}</span>' if token else text for token, text in parts)
    text = "".join(text for _, text in parts)
    return f'<span class="word">{tokens}</span>' if BREAKABLE.search(text) else tokens


def _mark_page(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    if "body" in context:
        context["body"] = marked(context["body"])
