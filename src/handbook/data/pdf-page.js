// Adds the article of one page to the page that `handbook.delivery.pdf` prints; the first takes the place of what stands there.
([path, html, paths]) => {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const article = parsed.querySelector("article.bd-article");
  const key = (page) => `page-${paths.indexOf(page) + 1}`;
  const named = (id, page = path) => `${key(page)}-${id}`;
  plainQuestions(article);
  collectAnswers(article);
  const own = [...article.querySelectorAll("*")].filter((element) => !element.closest(".diagram"));

  for (const element of own) {
    if (element.id) element.id = named(element.id);
    for (const { name, value } of [...element.attributes]) {
      if (value.includes("url(#")) element.setAttribute(name, value.replace(/url\(#/g, `url(#${named("")}`));
      if (value.includes('url("#')) element.setAttribute(name, value.replace(/url\("#/g, `url("#${named("")}`));
    }
  }
  article.querySelectorAll(".headerlink").forEach((link) => link.remove());
  leadLinks(article, path, paths, (page, hash) => `#${hash ? named(hash.slice(1), page) : key(page)}`);
  article.querySelectorAll("details:not([open], .hide, .on-trial)").forEach((fold) => { fold.open = true; });
  article.querySelectorAll("img").forEach(find);
  article.querySelectorAll("h1, h2, h3, h4").forEach(keepSpaces);
  article.querySelectorAll("h1").forEach((heading) => { heading.style.setProperty("font-size", "1.7rem", "important"); });
  article.id = key(path);
  parsed.querySelectorAll("link[rel=stylesheet]").forEach(addSheet);

  const pages = document.querySelectorAll("article.bound");
  article.classList.add("bound");
  if (pages.length) {
    article.style.breakBefore = "page";
    pages[pages.length - 1].after(article);
  } else {
    document.documentElement.dataset.theme = "light";
    document.querySelector("article.bd-article").replaceWith(article);
    document.querySelectorAll("nav, header, footer, dialog").forEach((around) => article.contains(around) || around.remove());
  }

  // Chromium's outline forgets a space at which the line of a heading ends, unless the space has room of its own.
  function keepSpaces(heading) {
    const texts = parsed.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(/\s+/g, " ");
    heading.style.cssText = "white-space: break-spaces; text-wrap-style: auto";
  }

  // Pictures and sheets are named from their own page, and this is the first one.
  function fromHere(name) {
    return new URL(name, document.URL.slice(0, -paths[0].length) + path).href;
  }

  function find(image) {
    image.loading = "eager";
    image.src = fromHere(image.getAttribute("src"));
  }

  // Some pages have a sheet that others have not.
  function addSheet({ attributes: { href } }) {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: fromHere(href.value) });
    if (![...document.querySelectorAll("link")].some((one) => one.href === sheet.href)) document.head.append(sheet);
  }
}
