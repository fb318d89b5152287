"""What a first visit to a page costs: a server that compresses, a fresh profile, and what the browser reports.

The gates of `tests/site` and the table of `tests/benchmarks/test_site_weight.py` measure with the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page
from servers import serving

from handbook.delivery.serve import Handler

WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SLOW_4G = {"offline": False, "latency": 562.5, "downloadThroughput": 1.44e6 / 8, "uploadThroughput": 0.675e6 / 8}
"""Lighthouse's slow 4G, as DevTools throttles it: milliseconds for each request, bytes for each second."""

OBSERVE = """
(() => {
  const seen = (window.firstVisit = { shift: 0, moved: [], rootSizes: [] });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      seen.shift += entry.value;
      const names = entry.sources.map(({ node }) => `${node?.nodeName}.${node?.getAttribute?.("class") ?? ""}`);
      seen.moved.push([entry.value.toFixed(3), ...names].join(" "));
    }
  }).observe({ type: "layout-shift", buffered: true });
  const sample = () => {
    if (document.styleSheets.length && document.body) {
      const size = getComputedStyle(document.documentElement).fontSize;
      if (!seen.rootSizes.includes(size)) seen.rootSizes.push(size);
    }
    if (!seen.isRead) requestAnimationFrame(sample);
  };
  sample();
})();
"""
READ = """() => {
  window.firstVisit.isRead = true;
  const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null;
  return { ...window.firstVisit, paint };
}"""


@dataclass(frozen=True)
class FirstVisit:
    """One page opened in a fresh profile; `moved` says what shifted, `addresses` what was requested."""

    page: str
    sent: dict[str, int]
    paint: float | None
    shift: float
    moved: list[str]
    root_sizes: list[str]

    @property
    def bytes(self) -> int:
        """What the server sent, compressed, headers included."""
        return sum(self.sent.values())


def pages_of(site: Path) -> list[str]:
    """The pages of a built site, as paths relative to its root; a page that only leads on to another is none."""
    paths = [path for path in site.rglob("*.html") if path.relative_to(site).parts[0] not in ("_static", "_sources")]
    return sorted(path.relative_to(site).as_posix() for path in paths if "http-equiv" not in path.read_text("utf-8"))


def compressing_server(folder: Path) -> AbstractContextManager[str]:
    """Address of a local server of a folder that compresses text as a web host does."""
    return serving(folder, _Compressing)


class _Compressing(Handler):
    """The site's own server with the headers of any web host."""

    def safety(self, policy: str) -> dict[str, str]:
        return {}


def first_visit(browser, home: str, page: str, *, scheme="light", size=WIDE, network=None, settle=300, **options):
    """Open a page of the site as somebody who never was there, wait until it is quiet, touch nothing."""
    with opened(browser, home, page, scheme=scheme, size=size, network=network, settle=settle, **options) as visit:
        return visit[1]


@contextmanager
def opened(
    browser,
    home: str,
    page: str,
    *,
    scheme="light",
    size=WIDE,
    network=None,
    settle=300,
    listen: Callable[[Page], None] = lambda tab: None,
    **options,
):
    """The same, with the page left open: a pair of playwright's page and the `FirstVisit`.

    `listen` is called with the empty page. A page that leads on to another is followed there.
    """
    context = browser.new_context(color_scheme=scheme, viewport=size, **options)
    tab = context.new_page()
    tab.add_init_script(OBSERVE)
    listen(tab)
    session = context.new_cdp_session(tab)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": network is not None})
    if network:
        session.send("Network.emulateNetworkConditions", network)
    addresses, sent = {}, {}
    session.on("Network.requestWillBeSent", lambda e: addresses.setdefault(e["requestId"], e["request"]["url"]))
    session.on("Network.loadingFinished", lambda e: sent.update({e["requestId"]: int(e["encodedDataLength"])}))
    try:
        tab.goto(home + page, wait_until="load", timeout=120_000)
        tab.wait_for_selector("main", state="attached")
        tab.wait_for_load_state("load")
        tab.wait_for_timeout(settle)
        seen = tab.evaluate(READ)
        by_address = {
            addresses[key].removeprefix(home): size for key, size in sent.items() if addresses[key].startswith("http")
        }
        visit = FirstVisit(page, by_address, seen["paint"], seen["shift"], seen["moved"], seen["rootSizes"])
        yield tab, visit
    finally:
        context.close()
