// The register of claims: shows the choices above the rows, hides the rows that were not chosen, and unfolds the one that
// a link leads to. Without this script the choices stay hidden and every row is shown, folded.
"use strict";

addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector(".claims-filter");
  if (!form) return;
  const rows = [...document.querySelectorAll(".claim")];
  const sections = [...new Set(rows.map((row) => row.closest("section")))];
  const words = rows.map((row) => row.textContent.toLowerCase());

  function isChosen(row, index) {
    const kinds = [...form.querySelectorAll("select")].map((select) => select.value).filter(Boolean);
    const typed = form.elements.words.value.toLowerCase().split(/\s+/);
    return kinds.every((kind) => row.classList.contains(`is-${kind}`)) && typed.every((word) => words[index].includes(word));
  }

  function apply() {
    rows.forEach((row, index) => { row.hidden = !isChosen(row, index); });
    for (const section of sections) section.hidden = !section.querySelector(".claim:not([hidden])");
    const shown = rows.filter((row) => !row.hidden).length;
    form.querySelector("output").textContent = `${shown} of ${rows.length} claims`;
  }

  function showTarget() {
    // A link to a row must find it, whatever was chosen before.
    const row = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest(".claim");
    if (!row) return;
    row.querySelector("details").open = true;
    if (!row.hidden) return;
    form.reset();
    apply();
    row.scrollIntoView();
  }

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", showTarget);
  apply();
  showTarget();
});
