// Paper is light: a dark page is light while it is printed, and dark again afterwards. What is closed is not printed;
// the menu of the page offers to print it with all answers open.
"use strict";

(() => {
  const { dataset } = document.documentElement;
  const paper = matchMedia("print");
  let theme;

  function prepare() {
    if (dataset.theme === "light") return;
    theme = dataset.theme;
    dataset.theme = "light";
  }

  function restore() {
    if (theme) dataset.theme = theme;
    theme = undefined;
  }

  const closedAnswers = () => [
    ...document.querySelectorAll("article details:not([open], .hide, .on-trial, .claim-body, .provenance), article .admonition.toggle-hidden"),
  ];

  function turn(answer) {
    if (answer.matches("details")) answer.open = !answer.open;
    else answer.querySelector("button.toggle-button").click();
  }

  function printWithAnswers() {
    const answers = closedAnswers();
    answers.forEach(turn);
    addEventListener("afterprint", () => answers.forEach(turn), { once: true });
    print();
  }

  function offerAnswers() {
    const entry = document.querySelector(".btn-download-pdf-button")?.closest("li");
    if (!entry || !closedAnswers().length) return;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "btn btn-sm dropdown-item print-answers", textContent: "Print with answers" });
    button.addEventListener("click", printWithAnswers);
    entry.after(document.createElement("li"));
    entry.nextElementSibling.append(button);
  }

  addEventListener("load", offerAnswers);
  addEventListener("beforeprint", prepare);
  addEventListener("afterprint", restore);
  paper.addEventListener("change", () => (paper.matches ? prepare() : restore()));
  if (paper.matches) prepare();
})();
