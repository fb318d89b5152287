// What the pages of `handbook.pdf` and `handbook.epub` share.

// A link to a page of the file leads to its `place` there; one to what only the site has leads to the site, if the
// site knows its address, and is plain text otherwise.
function leadLinks(article, path, paths, place) {
  const site = article.ownerDocument.querySelector("link[rel=canonical]")?.href;
  for (const link of article.querySelectorAll("a[href]")) {
    const target = new URL(link.getAttribute("href"), `site:///${path}`);
    const page = decodeURI(target.pathname).slice(1);
    if (target.protocol !== "site:") continue;
    if (paths.includes(page)) link.setAttribute("href", place(page, target.hash, link.getAttribute("href")));
    else if (site) link.setAttribute("href", new URL(link.getAttribute("href"), site).href);
    else link.removeAttribute("href");
  }
}
