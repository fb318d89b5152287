// Search while one types, in the search dialog of every page and on the search page. The index, `search-index.js`, is
// loaded as a script when a search field is first used, so that it also works on pages opened from disk.
"use strict";

(() => {
  const ROOT = document.documentElement.dataset.content_root;
  const SMALL = new Set("a an and are as at be by can do does for from how i if in is it its my of on or the this to what when which why will with".split(" "));
  const PER_PAGE = 3;
  const SNIPPET = 170;
  const LAST = "book/appendix/bibliography.html";  // it has every word of the titles of others
  let index;

  function load() {
    index ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${ROOT}_static/search-index.js`;
      script.onload = () => resolve(prepared(unpacked(window.handbookSearchIndex)));
      script.onerror = reject;
      document.head.append(script);
    });
    return index;
  }

  // In the index, a common word is one sign.
  function unpacked({ words, text }) {
    return JSON.parse(text.replace(/[\u00a1-\u0bff]/g, (sign) => words[sign.charCodeAt(0) - 0xa1]));
  }

  // --- words ------------------------------------------------------------------------------------------

  // `Q4_K_M` and `8GB` are several words, so that they are found however they are written.
  function speller(spellings) {
    const known = new Map();
    const spelled = (word) => {
      const british = Object.keys(spellings).find((start) => word.startsWith(start));
      const american = british ? spellings[british] + word.slice(british.length) : word;
      return american.replace(/^(\p{L}{3,})is(e|ed|er|ers|es|ing|ation|ations)$/u, "$1iz$2");
    };
    return (text) => (text.toLowerCase().match(/\p{N}+|\p{L}+/gu) ?? []).map((word) => {
      if (!known.has(word)) known.set(word, spelled(word));
      return known.get(word);
    });
  }

  function stem(phrase) {
    const short = phrase.replace(/(ations?|ings?|ed|ers?|es|e|s)$/, "");
    return short.length >= 4 ? short : phrase;
  }

  // A word of three letters or fewer is meant as it stands: "mac" is no beginning of "machine".
  const SHORT = 3;

  function strength(words, phrase) {
    if (words.includes(` ${phrase} `)) return 1;
    if (phrase.length <= SHORT) return words.includes(` ${phrase}s `) ? 0.6 : 0;
    if (words.includes(` ${phrase}`)) return 0.6;
    return words.includes(` ${stem(phrase)}`) ? 0.4 : 0;
  }

  // --- ranking ----------------------------------------------------------------------------------------

  // An anchor that follows from its heading is not in the index.
  const joined = (heading) => heading.toLowerCase().match(/[a-z0-9]+/g).join("-");

  function prepared({ spellings, pages }) {
    const words = speller(spellings);
    const padded = (text) => ` ${words(text).join(" ")} `;
    const sections = pages.flatMap(([address, title, parts, also = []]) => parts.map(([heading, text, anchor = joined(heading)], place) => {
      const isFirst = place === 0;
      const whole = isFirst ? padded(parts.map((part) => part[1]).join(" ")) : "";
      const headings = heading.split(anchor.startsWith("term-") ? "," : isFirst ? ":" : "\n").map((name) => name.replace(/^The /, ""));
      const others = isFirst ? also : [];
      const names = [...headings, ...others].map((name) => words(name).join(" "));
      const [inTitle, inHeading, inText, inOthers] = [title, heading, text, others.join(" \n ")].map(padded);
      return { address, title, anchor, heading, text, isFirst, isLast: address === LAST, whole, names, inTitle, inHeading, inText, inOthers };
    }));
    return { words, sections };
  }

  function phrasesOf(query, { words, sections }) {
    const phrases = [...new Set(query.split(/\s+/).map((part) => words(part).join(" ")).filter(Boolean))];
    return phrases.map((phrase) => {
      const found = sections.filter(({ inHeading, inText }) => strength(inText, phrase) || strength(inHeading, phrase)).length;
      const rarity = Math.log(1 + sections.length / (1 + found));
      return { phrase, weight: SMALL.has(phrase) ? rarity / 5 : rarity };
    });
  }

  function score(section, phrases, query) {
    const { text, isFirst, whole, names, inTitle, inHeading, inText, inOthers } = section;
    let sum = 0, met = 0, all = 0;
    for (const { phrase, weight } of phrases) {
      const here = strength(inText, phrase) || 0.5 * strength(whole, phrase);
      const named = 3 * Math.max(strength(inHeading, phrase), strength(inOthers, phrase)) + (isFirst ? 2 : 0.5) * strength(inTitle, phrase);
      const often = Math.min(inText.split(` ${phrase}`).length - 1, 5) / 10;
      sum += weight * (here + named + often);
      if (here + named > 0) met += weight;
      all += weight;
    }
    const heading = inHeading.replace(/^ (\d+|[a-z]) /, " ").trim();
    if (heading === query || names.includes(query)) sum += 8 * all;
    else if (heading.includes(" ") && ` ${query} `.includes(` ${heading} `)) sum += 4 * all;
    else if (phrases.length > 1 && (inHeading + inText).includes(` ${query}`)) sum += all;
    return all ? sum * (met / all) ** 2 * (text ? 1 : 0.5) : 0;
  }

  function search(text, found, most) {
    const phrases = phrasesOf(text, found);
    const query = found.words(text).join(" ");
    const scored = found.sections.map((section) => ({ section, points: score(section, phrases, query) }));
    const perPage = {};
    return scored.filter(({ points }) => points > 0).sort((a, b) => a.section.isLast - b.section.isLast || b.points - a.points)
      .filter(({ section }) => (perPage[section.address] = (perPage[section.address] ?? 0) + 1) <= PER_PAGE)
      .slice(0, most).map(({ section }) => section);
  }

  // --- what a result shows ----------------------------------------------------------------------------

  function pattern(query, words) {
    const parts = query.split(/\s+/).map((part) => words(part)).filter((part) => part.length);
    const telling = parts.filter((part) => !SMALL.has(part.join(" ")));
    const spelled = (part) => part.map((word, place) => (place === part.length - 1 ? stem(word) : word).replace(/iz/g, "i[sz]")).join("[\\s_-]*");
    const one = (part) => spelled(part) + (part.join(" ").length <= SHORT ? "s?(?!\\p{L})" : "\\p{L}*");
    const choices = (telling.length ? telling : parts).map(one).sort((a, b) => b.length - a.length);
    return choices.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${choices.join("|")})`, "giu") : null;
  }

  function snippet(text, marked) {
    const starts = marked ? [...text.matchAll(marked)].map((match) => match.index) : [];
    const within = (start) => new Set(starts.filter((at) => at >= start && at < start + SNIPPET - 50).map((at) => text.slice(at, at + 4).toLowerCase())).size;
    const best = starts.reduce((best, start) => (within(start) > within(best) ? start : best), starts[0] ?? 0);
    const from = best < 60 ? 0 : text.indexOf(" ", best - 50) + 1;
    const until = text.length - from <= SNIPPET ? text.length : text.lastIndexOf(" ", from + SNIPPET);
    return `${from ? "… " : ""}${text.slice(from, until)}${until < text.length ? " …" : ""}`;
  }

  function withMarks(tag, text, marked) {
    const element = document.createElement(tag);
    let from = 0;
    for (const match of marked ? text.matchAll(marked) : []) {
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      element.append(text.slice(from, match.index), mark);
      from = match.index + match[0].length;
    }
    element.append(text.slice(from));
    return element;
  }

  function result(section, marked) {
    const link = document.createElement("a");
    link.href = `${ROOT}${section.address}${section.isFirst ? "" : `#${section.anchor}`}`;
    link.append(withMarks("strong", section.heading, marked));
    if (!section.isFirst) link.append(Object.assign(document.createElement("span"), { className: "search-page", textContent: section.title }));
    link.append(withMarks("span", snippet(section.text, marked), marked));
    link.lastChild.className = "search-snippet";
    const item = document.createElement("li");
    item.append(link);
    return item;
  }

  // --- the field and its results ----------------------------------------------------------------------

  function attach(form) {
    const input = form.querySelector("input");
    const dialog = form.closest("dialog");
    const box = dialog ? dialog.appendChild(document.createElement("div")) : document.getElementById("search-results");
    if (!box) return;
    const status = Object.assign(document.createElement("p"), { className: "search-status", role: "status" });
    const list = Object.assign(document.createElement("ol"), { className: "search-list" });
    box.classList.add("search-found");
    box.append(status, list);
    box.hidden = true;
    dialog?.setAttribute("aria-label", "Search");

    async function show() {
      const query = input.value.trim();
      const found = await load();
      if (query !== input.value.trim()) return;
      const results = query ? search(query, found, dialog ? 12 : 30) : [];
      const marked = pattern(query, found.words);
      list.replaceChildren(...results.map((section) => result(section, marked)));
      list.dataset.query = query;
      box.hidden = !query;
      status.textContent = results.length ? `${results.length} ${results.length === 1 ? "place" : "places"}, the best first` : `Nothing found for “${query}”.`;
      if (!dialog) history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
    }

    function steer(event) {
      if (event.key === "Escape" && dialog) {
        event.preventDefault();  // a search field would be emptied first
        dialog.close();
      }
      const stops = [input, ...list.querySelectorAll("a")];
      const at = stops.indexOf(document.activeElement);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || at < 0 || !stops[at + step]) return;
      event.preventDefault();
      stops[at + step].focus();
    }

    input.addEventListener("focus", load);
    input.addEventListener("input", show);
    form.addEventListener("keydown", steer);
    box.addEventListener("keydown", steer);
    box.addEventListener("click", (event) => event.target.closest("a") && dialog?.close());
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      await show();
      list.querySelector("a")?.[dialog ? "click" : "focus"]();
    });
    const asked = dialog ? null : new URLSearchParams(location.search).get("q");
    if (asked) {
      input.value = asked;
      show();
    }
  }

  document.querySelectorAll("form.bd-search").forEach(attach);
})();
