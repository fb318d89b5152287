// The article of one page as XHTML for `handbook.epub`: no script, no control, one drawing of each figure.
([path, html, paths]) => {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const article = parsed.querySelector("article.bd-article");
  const SCREEN_ONLY = "script, :not(svg) > style, button, form, input, select, output, .headerlink, .figure-controls, .pst-js-only, svg.is-wide, summary > .expanded";
  const DATA = /^(data-|tabindex$|autocomplete$|border$|on)/;

  article.querySelectorAll(SCREEN_ONLY).forEach((element) => element.remove());
  article.querySelectorAll("noscript").forEach((text) => replace(text, "p"));
  article.querySelectorAll("fieldset").forEach((question) => replace(question, "div"));
  article.querySelectorAll("legend").forEach((asked) => replace(asked, "p"));
  article.querySelectorAll("li > label").forEach((choice) => choice.replaceWith(...choice.childNodes));
  article.querySelectorAll(".sd-tab-set > label").forEach((label) => replace(label, "p"));
  article.querySelectorAll(".lab-figure").forEach((figure) => figure.removeAttribute("style"));
  leadLinks(article, path, paths, (page, hash, href) => href.replace(/\.html(?=#|$)/, ".xhtml"));
  for (const element of [article, ...article.querySelectorAll("*")]) {
    for (const { name } of [...element.attributes]) if (DATA.test(name)) element.removeAttribute(name);
  }
  const ids = new Set();
  for (const element of article.querySelectorAll("[id]")) ids.has(element.id) ? element.removeAttribute("id") : ids.add(element.id);
  return new XMLSerializer().serializeToString(article);

  function replace(element, name) {
    const other = parsed.createElement(name);
    if (element.id) other.id = element.id;
    other.className = element.className || element.localName;
    other.append(...element.childNodes);
    element.replaceWith(other);
  }
}
