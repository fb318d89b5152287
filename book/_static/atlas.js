// The hardware atlas: shows the choices above each table, hides the rows that were not chosen, and says of the others how
// far off their predictions are, or how many published results stand behind them. A row has several values of a field
// with bars between them. Words between quotation marks are one phrase. Without this script the choices stay hidden and
// every row is shown.
"use strict";

function filterTable(form) {
  const rows = [...form.nextElementSibling.querySelectorAll("tbody tr")];
  const words = rows.map((row) => row.textContent.toLowerCase());

  function isChosen(row, index) {
    const selects = [...form.querySelectorAll("select")].filter((select) => select.value);
    const typed = form.elements.words.value.toLowerCase().match(/"[^"]*"?|\S+/g) ?? [];
    return selects.every((select) => row.dataset[select.name].split("|").includes(select.value))
      && typed.every((word) => words[index].includes(word.replaceAll('"', "")));
  }

  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), half = Math.floor(sorted.length / 2);
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

  function typical(shown, quantity) {
    const errors = shown.filter((row) => quantity in row.dataset).map((row) => Math.abs(row.dataset[quantity]));
    return errors.length ? `${quantity} ${(100 * median(errors)).toPrecision(2)} %` : "";
  }

  function apply() {
    rows.forEach((row, index) => { row.hidden = !isChosen(row, index); });
    const shown = rows.filter((row) => !row.hidden);
    const errors = ["memory", "prefill", "decode"].map((quantity) => typical(shown, quantity)).filter(Boolean);
    const results = shown.reduce((sum, row) => sum + Number(row.dataset.results ?? 0), 0);
    const told = errors.length ? `; median error: ${errors.join(", ")}` : results ? `; published results: ${results}` : "";
    form.querySelector("output").textContent = `${shown.length} of ${rows.length} ${form.dataset.noun}${told}`;
  }

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll(".atlas-filter").forEach(filterTable));
