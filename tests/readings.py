"""What scripts read on an open page of the site: `crawl` on every page, and tests where each must find a fault."""

from __future__ import annotations

import base64

REFUSED = """
window.refused = [];
addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI, sourceFile, lineNumber, sample }) => {
  window.refused.push([effectiveDirective, blockedURI, `${sourceFile}:${lineNumber}`, sample].join(" "));
});
"""
"""To run before a page: afterwards `window.refused` has what the policy refused."""
CONTENT = """
async () => {
  const wide = innerWidth;
  const isTypeset = (formula) => {
    const ink = formula.querySelector("svg[aria-hidden] path")?.getBoundingClientRect();
    const closed = formula.checkVisibility() === false;
    return (closed || ink?.width > 0) && formula.querySelector("math")?.textContent.trim() !== "";
  };
  const texts = () => {
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (!node.parentElement.closest("pre, code, script, style")) found.push(node.data);
    }
    return found;
  };
  const figures = [...document.querySelectorAll("main figure")].map((figure) => {
    const plot = figure.querySelector(".lab-figure");
    const image = figure.querySelector("img");
    return {
      id: figure.id,
      caption: figure.querySelector("figcaption")?.textContent.trim() ?? "",
      drawn: plot ? plot.querySelectorAll(".figure-drawing svg:has(text)").length === 2
           : image ? image.complete && image.naturalWidth > 0
           : !!figure.querySelector(".diagram svg, table, pre"),
      plot: !!plot,
      alt: !!figure.querySelector("[role=img], [role=group], svg[aria-labelledby], img[alt]:not([alt='']), table"),
    };
  });
  return {
    figures,
    overflow: document.documentElement.scrollWidth - wide,
    math: document.querySelectorAll("main .math").length,
    typeset: [...document.querySelectorAll("main .math")].filter(isTypeset).length,
    sources: texts().filter((text) => /\\\\(\\(|\\[|[a-z]+\\{|frac|sum|text|cdot|times)/.test(text)),
  };
}
"""
"""The figures and formulas of a page, text that looks like a formula's source, and what is wider than the window."""
ICONS_SHOWN = """() => {
  const shown = new Set();
  for (const element of document.querySelectorAll("body *")) {
    for (const part of element.ownerSVGElement ? [null] : [null, "::before", "::after"]) {
      const style = getComputedStyle(element, part);
      if (!/Font ?Awesome/.test(style.fontFamily)) continue;
      const text = part ? style.content.replaceAll('"', "") : element.innerText;
      if (part && ["none", "normal"].includes(style.content)) continue;
      for (const sign of text ?? "") shown.add(sign);
    }
    if (/\\bfa-(?!solid|lg)/.test(element.getAttribute("class") ?? "")) {
      const { content } = getComputedStyle(element, "::before");
      if (["none", "normal"].includes(content)) shown.add(element.className);
    }
  }
  return [...shown];
}"""
"""The signs of the icons' fonts that a page shows, and the classes of icons that have no sign."""
MEASURE = """() => {
  const blocks = [...document.querySelectorAll("article.bd-article pre")];
  const words = (element) => (element?.innerText.match(/\\S+/g) ?? []).length;
  const in_closed_lists = [...document.querySelectorAll("article.bd-article select")].map(words);
  return {
    height: document.documentElement.scrollHeight,
    words: in_closed_lists.reduce((left, n) => left - n, words(document.querySelector("article.bd-article"))),
    cut: blocks.filter(pre => pre.offsetParent && pre.scrollWidth > pre.clientWidth + 1)
      .map(pre => pre.textContent.slice(0, 60)),
  };
}"""
BROKEN_CODE = """() => [...document.querySelectorAll("article .highlight .line")].flatMap((line) => {
  const text = [], walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.data.trim()) text.push(walker.currentNode);
  if (!text.length || !line.checkVisibility()) return [];
  const range = document.createRange();
  range.setStart(text[0], text[0].data.search(/\\S/));
  range.setEnd(text.at(-1), text.at(-1).data.trimEnd().length);
  const [first, ...rest] = [...range.getClientRects()].filter((rect) => rect.width > 1);
  const sets_in = rest.every((rect) => rect.top < first.bottom - 2 || rect.left > first.left + 5);
  const space = line.getBoundingClientRect().right - first.left - 20;
  const broken = [...line.querySelectorAll(".word")].filter((word) => {
    range.selectNodeContents(word);
    const tops = [...range.getClientRects()].map((rect) => rect.top);
    return Math.max(...tops) - Math.min(...tops) > 8 && word.textContent.length * 8.6 < space;
  });
  return [...(sets_in ? [] : [line.textContent]), ...broken.map((word) => word.textContent)];
})"""
"""Lines whose rest does not stand further in, and words that break although they are shorter than a line."""
COMMIT_ELSEWHERE = """[...document.querySelectorAll("fieldset.question")].filter(question => {
  const place = one => one.getBoundingClientRect(), button = place(question.querySelector(".commit button"));
  const is_above = choice => place(choice).bottom <= button.top;
  return Math.abs(button.left - place(question).left) > 1 || ![...question.querySelectorAll("li")].every(is_above);
}).map(question => question.textContent.slice(0, 60))"""
"""Questions whose button does not stand at the left below all choices."""
FRAMES = """() => [...document.querySelectorAll("article div:has(table)")].filter(frame =>
  frame.checkVisibility({ visibilityProperty: true }) && frame.scrollWidth > frame.clientWidth + 4
  && /auto|scroll/.test(getComputedStyle(frame).overflowX))"""
EDGES = """async (picture) => {
  const image = new Image(), canvas = document.createElement("canvas");
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const typical = x => {
    const greens = context.getImageData(x, 0, 1, image.height).data.filter((_, i) => i % 4 === 1).sort();
    return greens[greens.length >> 1];
  };
  return [1, image.width - 13].map(left => Math.min(...Array.from({ length: 12 }, (_, i) => typical(left + i))));
}"""
"""How light the darkest of twelve columns of pixels typically is, at the left and at the right edge of a picture."""
SIGNS_ELSEWHERE = """() => [...document.querySelectorAll("article :is(summary, .toggle > .admonition-title)")]
  .filter(title => title.checkVisibility() && !title.closest(".hide")).filter(title => {
    const walker = document.createTreeWalker(title, NodeFilter.SHOW_TEXT), range = document.createRange(), lines = [];
    while (walker.nextNode()) {
      if (!walker.currentNode.data.trim() || walker.currentNode.parentElement.closest("button")) continue;
      range.selectNodeContents(walker.currentNode);
      lines.push(...range.getClientRects());
    }
    const button = title.querySelector("button")?.getBoundingClientRect();
    if (!button) {
      const { display, paddingTop, borderTopWidth } = getComputedStyle(title);
      const top = title.getBoundingClientRect().top + parseFloat(paddingTop) + parseFloat(borderTopWidth);
      return display !== "list-item" || lines[0].top - top > lines[0].height / 2;
    }
    const middle = (button.top + button.bottom) / 2;
    const covers = line => line.right > button.left && line.bottom > button.top && line.top < button.bottom;
    return middle < lines[0].top || middle > lines.at(-1).bottom || button.right > innerWidth || lines.some(covers);
  }).map(title => title.textContent.trim().slice(0, 60))"""
"""Titles whose sign stands above or below their words, upon them, or outside of the window."""
CUT_NAMES = """() => [...document.querySelectorAll("article :is(code.literal, .question label)")].filter(name => {
  if (!name.checkVisibility({ visibilityProperty: true })) return false;
  const range = document.createRange();
  const places = (one) => (range.selectNodeContents(one), [...range.getClientRects()].filter(place => place.width));
  for (let around = name; around.tagName !== "ARTICLE"; around = around.parentElement) {
    const { overflowX } = getComputedStyle(around);
    if (overflowX === "visible" || around.scrollWidth <= around.clientWidth + 1) continue;
    return /hidden|clip/.test(overflowX);
  }
  if (places(name).some(place => place.left < 0 || place.right > innerWidth + 1)) return true;
  return [...name.querySelectorAll(".pre")].some(word => {
    const parts = places(word), tops = parts.map(part => part.top);
    if (Math.max(...tops) - Math.min(...tops) < 5) return false;
    const block = word.closest("p, li, dt, dd, td, th, h1, h2, h3, h4, summary, figcaption, legend, label");
    const { paddingLeft, paddingRight } = getComputedStyle(block);
    const space = block.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    return parts.reduce((sum, part) => sum + part.width, 0) < space - 8;
  });
}).map(name => name.textContent)"""
"""Names and choices that end outside of the window or of a frame that does not scroll, and names that break although
they are shorter than a line."""
DIAGRAMS = """() => [...document.querySelectorAll(".diagram svg")].map((svg) => {
  const { width, height } = svg.getBoundingClientRect();
  return svg.checkVisibility() ? [width, height] : [0, 0];
})"""
DRAWINGS = """() => [...document.querySelectorAll(".lab-figure")].map((box) => {
  for (let fold = box; (fold = fold.parentElement.closest("details"));) fold.open = true;
  const shown = [...box.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length);
  return {
    alt: box.querySelector("[role=img]").getAttribute("aria-label"),
    shown: shown.length,
    sizes: [...shown[0]?.querySelectorAll("text, tspan") ?? []].map((text) => {
      const { a, b } = text.getScreenCTM();
      return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
    }),
    asks: box.querySelectorAll("button").length,
  };
})"""
CUT = """() => [...document.querySelectorAll(".lab-figure")].flatMap((box) => {
  for (let fold = box; (fold = fold.parentElement.closest("details"));) fold.open = true;
  const svg = [...box.querySelectorAll("svg")].find((one) => one.getClientRects().length);
  const frame = svg?.getBoundingClientRect();
  return [...svg?.querySelectorAll("text") ?? []].filter((text) => {
    const { left, right, top, bottom, width } = text.getBoundingClientRect();
    const beyond = Math.max(frame.left - left, right - frame.right, frame.top - top, bottom - frame.bottom);
    return width > 0 && beyond > 1;
  }).map((text) => text.textContent);
})"""


def unshaded(phone) -> list[str]:
    """The beginnings of tables that scroll and do not show on which side they go on."""
    frames = phone.evaluate_handle(FRAMES).get_properties().values()
    elements = [handle.as_element() for handle in frames]
    return [frame.inner_text()[:60] for frame in elements if not is_shaded(phone, frame)]


def is_shaded(phone, frame) -> bool:
    """Whether the right edge is dark before a frame is scrolled, and the left one after, and no other.

    A first column that stays in sight lies above the shade at its side; the ground of code there is darker than a page.
    """
    before, after = (edges(phone, frame, to) for to in ("0", "frame.scrollWidth"))
    stays = frame.evaluate("frame => getComputedStyle(frame.querySelector('tr > *')).position === 'sticky'")
    return before[1] < before[0] <= after[1] and (stays or after[0] < after[1])


def edges(phone, frame, to: str) -> list[int]:
    frame.evaluate(f"frame => frame.scrollLeft = {to}")
    return phone.evaluate(EDGES, base64.b64encode(frame.screenshot()).decode())
