// Predictions that are committed: the choice is kept in this browser, stands beside the answer and opens it.
// Nothing is sent anywhere. Without this script a question is a list of choices, and its answer a fold.
"use strict";

(() => {
  const STORE = `inferlab-predictions:${location.pathname}`;
  function read() {
    try {
      return JSON.parse(localStorage.getItem(STORE)) ?? {};
    } catch {
      return {};
    }
  }

  // Another tab with this page may have written since it was opened here, so what is kept now is read again.
  function remember(asked, choice) {
    const remembered = read();
    if (choice) remembered[asked] = choice;
    else delete remembered[asked];
    try {
      localStorage.setItem(STORE, JSON.stringify(remembered));
    } catch {
      // A browser that keeps nothing forgets the choice when the page is closed.
    }
  }

  const text = (element) => element.textContent.trim().replace(/\s+/g, " ");

  function element(tag, className, ...children) {
    const made = document.createElement(tag);
    made.className = className;
    made.append(...children);
    return made;
  }

  function setUp(question) {
    const asked = text(question.querySelector("legend"));
    const radios = [...question.querySelectorAll("input[type=radio]")];
    const row = question.querySelector(".commit");
    const button = row.querySelector("button");
    const status = row.querySelector("[role=status]");
    const outcomes = [...document.querySelectorAll(`details[data-question="${question.id}"]`)];
    const choiceOf = (radio) => text(radio.closest("label"));
    let committed = "";

    function link() {
      outcomes[0].id ||= `answer-to-${question.id}`;
      const made = element("a", "to-answer", "See the answer");
      made.href = `#${outcomes[0].id}`;
      return made;
    }

    function show(choice) {
      committed = choice;
      question.toggleAttribute("data-committed", Boolean(choice));
      for (const radio of radios) {
        radio.checked = choiceOf(radio) === choice;
        radio.disabled = Boolean(choice);
      }
      button.disabled = !choice;
      button.textContent = choice ? "Change my mind" : "Commit";
      status.textContent = choice ? "Committed; kept in this browser only." : "";
      row.querySelector(".to-answer")?.remove();
      if (choice && outcomes.length) row.append(" ", link());
      for (const outcome of outcomes) {
        outcome.querySelector(".predicted")?.remove();
        outcome.open = Boolean(choice);
        if (choice) {
          const said = element("p", "predicted", "You predicted: ", element("strong", "", choice));
          outcome.querySelector("summary").after(said);
        }
      }
    }

    function showKept() {
      const kept = read()[asked];
      const choice = radios.map(choiceOf).find((one) => one === kept) ?? "";
      if (choice !== committed) show(choice);
    }

    question.addEventListener("change", () => (button.disabled = false));
    button.addEventListener("click", (press) => {
      if (press.detail > 1) return; // The second press of a double click would take the choice back.
      const choice = committed ? "" : choiceOf(radios.find((radio) => radio.checked));
      remember(asked, choice);
      show(choice);
      if (!choice) radios[0].focus();
    });
    button.addEventListener("keydown", (key) => key.repeat && key.preventDefault());
    showKept();
    return showKept;
  }

  const questions = [...document.querySelectorAll("fieldset.question")].map(setUp);
  const follow = () => questions.forEach((showKept) => showKept());
  addEventListener("storage", follow);
  addEventListener("pageshow", (shown) => shown.persisted && follow());
})();
