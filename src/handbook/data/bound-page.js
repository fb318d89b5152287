// What the pages of `handbook.delivery.pdf` and `handbook.delivery.epub` share: plain questions, answers at the end, links that lead on.

function make(parsed, name, className, ...children) {
  const made = parsed.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function replace(element, name, className) {
  const other = make(element.ownerDocument, name, className, ...element.childNodes);
  if (element.id) other.id = element.id;
  element.replaceWith(other);
  return other;
}

// A question is its text and its choices: there is nothing to press.
function plainQuestions(article) {
  article.querySelectorAll(".pst-js-only").forEach((control) => control.remove());
  article.querySelectorAll("fieldset.question > legend").forEach((asked) => replace(asked, "p", "legend"));
  article.querySelectorAll("fieldset.question label").forEach((choice) => choice.replaceWith(...choice.childNodes));
  article.querySelectorAll("fieldset.question").forEach((question) => replace(question, "div", "asked"));
}

// Moves the answers to the end of the page. Where one stood, a line leads to it; its title leads back to its question.
function collectAnswers(article) {
  const parsed = article.ownerDocument;
  const isAnswer = (one) => !one.matches("details:not([class])") || one.querySelector("summary").textContent === "Answers";
  const answers = [...article.querySelectorAll("details.outcome, details:not([class]), .solution.admonition")].filter(isAnswer);
  if (!answers.length) return;
  const end = make(parsed, "section", "", make(parsed, "h2", "", "Answers"));
  end.id = "answers";
  answers.forEach(move);
  article.querySelector("section").append(end);

  function link(id, ...text) {
    const made = make(parsed, "a", "", ...text);
    made.setAttribute("href", `#${id}`);
    return made;
  }

  // A figure moves with its caption. A title that names its exercise leads back already.
  function move(answer, index) {
    const id = `answer-${index + 1}`;
    const title = replace(answer.querySelector("summary, .admonition-title"), "p", "answer-title");
    const place = make(parsed, "p", "to-answer", link(id, title.textContent));
    place.id = `place-of-${id}`;
    const question = article.querySelector(`.asked[id="${answer.dataset.question}"]`);
    if (question && !question.querySelector(".to-answer")) question.append(make(parsed, "p", "to-answer", link(id, "See the answer")));
    if (!title.querySelector("a")) title.append(" (", link(question?.id ?? place.id, "back to the question"), ")");
    const whole = answer.closest("figure") ?? answer;
    whole.replaceWith(place);
    const kept = replace(answer, "div", "");
    end.append(make(parsed, "div", "answer", whole === answer ? kept : whole));
    end.lastElementChild.id = id;
  }
}

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
    else replace(link, "span", link.className);
  }
}
