"""What a first visit to each page of a built site costs: bytes, requests, paint, shift, barriers; one table.

    INFERLAB_BUILT_BOOK=_build/html python -m pytest -s tests/benchmarks/test_site_weight.py

EVERY=4 measures only every fourth page.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest
from first_visit import PHONE, SLOW_4G, WIDE, compressing_server, first_visit, opened, pages_of

BUILT = os.environ.get("INFERLAB_BUILT_BOOK")
AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
ON_SLOW_4G = 8
"""So many pages, evenly spread, are loaded over slow 4G too: each takes up to twenty seconds."""
SCREENS = [(scheme, size) for scheme in ("light", "dark") for size in (WIDE, PHONE)]
HEAD = f"{'page':44} {'KB':>6} {'req.':>4} {'paint':>6} {'4G':>6}  {'shift light':>11}  {'shift dark':>11}  root  axe"


@pytest.mark.skipif(not BUILT, reason="INFERLAB_BUILT_BOOK names no built site")
def test_what_a_first_visit_costs(browser):
    """Each page of the site is measured, and the site's text is on the page when the measuring ends."""
    site = Path(BUILT)
    pages = pages_of(site)[:: int(os.environ.get("EVERY", "1"))]
    sample = pages[:: max(1, len(pages) // ON_SLOW_4G)]
    rows = []
    print(f"\n{HEAD}")
    with compressing_server(site) as home:
        for page in pages:
            rows.append(row(browser, home, page, page in sample))
            print(line(rows[-1]), flush=True)
    print(line(summary(rows)))
    assert all(one["paint"] for one in rows)


def row(browser, home: str, page: str, slow: bool) -> dict:
    """What is measured on one page; times in milliseconds, shifts wide and on a phone."""
    visits = {}
    for scheme, size in SCREENS:
        with opened(browser, home, page, scheme=scheme, size=size) as (tab, visit):
            visits[scheme, size["width"]] = visit
            if (scheme, size) == SCREENS[0]:
                violations = axe_violations(tab)
    first = visits["light", WIDE["width"]]
    return {
        "page": page,
        "bytes": first.bytes,
        "requests": len(first.sent),
        "paint": first.paint,
        "slow": first_visit(browser, home, page, network=SLOW_4G).paint if slow else None,
        "light": [visits["light", size["width"]].shift for size in (WIDE, PHONE)],
        "dark": [visits["dark", size["width"]].shift for size in (WIDE, PHONE)],
        "root": max(len(visit.root_sizes) for visit in visits.values()),
        "axe": violations,
    }


def axe_violations(tab) -> int:
    """How many elements of the open page break a rule of axe-core."""
    tab.add_script_tag(path=AXE)
    return tab.evaluate("async () => (await axe.run()).violations.reduce((sum, one) => sum + one.nodes.length, 0)")


def summary(rows: list[dict]) -> dict:
    """The row below the table: sums of bytes, requests and violations, medians of times, the worst shifts."""
    slow = [one["slow"] for one in rows if one["slow"]]
    return {
        "page": f"{len(rows)} pages: sum, median paint, worst shift",
        **{key: sum(one[key] for one in rows) for key in ("bytes", "requests", "axe")},
        "paint": median(one["paint"] for one in rows),
        "slow": median(slow) if slow else None,
        **{scheme: [max(one[scheme][i] for one in rows) for i in (0, 1)] for scheme in ("light", "dark")},
        "root": max(one["root"] for one in rows),
    }


def line(one: dict) -> str:
    """One line of the table."""
    slow = f"{one['slow'] / 1000:5.1f}s" if one["slow"] else ""
    shifts = ["{:5.3f} {:5.3f}".format(*one[scheme]) for scheme in ("light", "dark")]
    numbers = f"{one['bytes'] / 1000:6.0f} {one['requests']:4} {one['paint'] / 1000:5.2f}s {slow:>6}"
    return f"{one['page']:44} {numbers}  {shifts[0]}  {shifts[1]}  {one['root']:4} {one['axe']:4}"
