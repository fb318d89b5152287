// A card with the glossary's definition beside a link to a term: while the mouse is on the link or the card, or while
// the keyboard's focus is on the link. Escape closes it. A tap follows the link as ever.
"use strict";

(() => {
  const WAIT_MS = 200;
  const GAP = 8;
  let terms, card, shown, timer;

  function load() {
    terms ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${document.documentElement.dataset.content_root}_static/glossary-terms.js`;
      script.onload = () => resolve(window.handbookTerms);
      script.onerror = reject;
      document.head.append(script);
    });
    return terms;
  }

  function makeCard() {
    card = Object.assign(document.createElement("div"), { id: "term-card", role: "tooltip", hidden: true });
    card.append(document.createElement("strong"), document.createElement("p"));
    document.querySelector("article").append(card);
  }

  // Above the term's first line, over what was read already; where there is no room, below its last line.
  function place(link) {
    const { top, bottom } = link.getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) { close(); return; }
    const { width, height } = card.getBoundingClientRect();
    const above = top - height - GAP;
    const isAbove = above > underHeader() || bottom + GAP + height > innerHeight;
    card.style.left = `${Math.max(12, Math.min(link.getClientRects()[0].left, document.documentElement.clientWidth - width - 12))}px`;
    card.style.top = `${isAbove ? Math.max(above, 0) : bottom + GAP}px`;
  }

  const underHeader = () => document.querySelector(".bd-header-article")?.getBoundingClientRect().bottom ?? 0;

  async function open(link) {
    const entry = (await load())[link.hash.slice(1)];
    if (!entry || shown !== link) return;
    if (!card) makeCard();
    [card.firstChild.textContent, card.lastChild.textContent] = entry;
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    place(link);
  }

  function close() {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = undefined;
    if (card) card.hidden = true;
  }

  function show(link) {
    close();
    shown = link;
    open(link);
  }

  const termLink = (target) => target.closest?.('article a[href*="#term-"]:not(.headerlink)');

  function hover(event) {
    if (event.pointerType !== "mouse") return;
    clearTimeout(timer);
    const link = termLink(event.target);
    if (link && link !== shown) timer = setTimeout(show, WAIT_MS, link);
    else if (shown && !link && !card?.contains(event.target) && document.activeElement !== shown) timer = setTimeout(close, WAIT_MS);
  }

  addEventListener("pointerover", hover);
  addEventListener("focusin", ({ target }) => termLink(target) && target.matches(":focus-visible") && show(target));
  addEventListener("focusout", ({ target }) => target === shown && close());
  addEventListener("keydown", ({ key }) => key === "Escape" && close());
  addEventListener("scroll", () => card && !card.hidden && place(shown), { passive: true });
})();
