// The article of one page as XHTML for `handbook.delivery.epub`: no script, no control, one drawing of each figure.
([path, html, paths]) => {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const article = parsed.querySelector("article.bd-article");
  const SCREEN_ONLY = "script, :not(svg) > style, button, form, input, select, output, .headerlink, .figure-controls, svg.is-wide, summary > .expanded";
  const DATA = /^(data-|tabindex$|autocomplete$|border$|on)/;

  plainQuestions(article);
  collectAnswers(article);
  article.querySelectorAll(SCREEN_ONLY).forEach((element) => element.remove());
  article.querySelectorAll("noscript").forEach((text) => replace(text, "p", "noscript"));
  article.querySelectorAll("fieldset").forEach((group) => replace(group, "div", group.className));
  article.querySelectorAll("summary > p").forEach((line) => replace(line, "span", line.className));
  article.querySelectorAll(".sd-tab-set > label").forEach((label) => replace(label, "p", "sd-tab-label"));
  article.querySelectorAll(".lab-figure").forEach((figure) => figure.removeAttribute("style"));
  leadLinks(article, path, paths, (page, hash, href) => href.replace(/\.html(\?[^#]*)?(?=#|$)/, ".xhtml"));
  for (const element of [article, ...article.querySelectorAll("*")]) {
    for (const { name } of [...element.attributes]) if (DATA.test(name)) element.removeAttribute(name);
  }
  const ids = new Set();
  for (const element of article.querySelectorAll("[id]")) ids.has(element.id) ? element.removeAttribute("id") : ids.add(element.id);
  return new XMLSerializer().serializeToString(article);
}
