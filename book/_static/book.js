// The book's own script. It draws each plotly figure in the page's colours, draws it again when the reader
// switches between light and dark, and keeps search working on pages opened from disk.
"use strict";

(() => {
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

  const pageColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function pageTheme() {
    const ink = pageColour("--pst-color-text-base");
    const line = pageColour("--book-figure-line");
    const surface = pageColour("--pst-color-surface");
    const muted = pageColour("--pst-color-text-muted");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line, automargin: true };
    return {
      font: { family: getComputedStyle(document.body).fontFamily, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: axis,
      yaxis: axis,
      legend: { bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: surface, bordercolor: line, font: { color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
      slider: { bgcolor: surface, bordercolor: muted, tickcolor: muted, font: { color: ink } },
    };
  }

  function merged(base, extra) {
    const result = { ...base };
    for (const [key, value] of Object.entries(extra)) {
      const nested = value && typeof value === "object" && !Array.isArray(value);
      result[key] = nested ? merged(base?.[key] ?? {}, value) : value;
    }
    return result;
  }

  function pageTemplate(template = {}) {
    const { slider, ...layout } = pageTheme();
    const defaults = { sliderdefaults: slider, updatemenudefaults: slider };
    return { ...template, layout: merged(template.layout ?? {}, { ...layout, ...defaults }) };
  }

  async function draw(box) {
    const figure = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    const { width, height, ...layout } = figure.layout ?? {};
    const template = pageTemplate(layout.template);
    const plot = box.appendChild(document.createElement("div"));
    plot.className = "lab-plot";
    await Plotly.newPlot(plot, { ...figure, layout: { ...layout, template, autosize: true }, config: CONFIG });
    box.dataset.drawn = "yes";
  }

  function recolour() {
    for (const plot of document.querySelectorAll(".lab-figure[data-drawn] .lab-plot")) {
      Plotly.relayout(plot, { template: pageTemplate(plot.layout.template) });
    }
  }

  async function drawAll() {
    const figures = [...document.querySelectorAll(".lab-figure")];
    if (figures.length === 0) return;
    await document.fonts.load("16px 'Source Sans 3 Variable'");
    await Promise.all(figures.map(draw));
    new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  function resizeUnfolded(event) {
    // A figure drawn inside a closed fold has no width yet.
    if (!event.target.open) return;
    for (const plot of event.target.querySelectorAll(".lab-plot")) Plotly.Plots.resize(plot);
  }

  function searchFromDisk() {
    // A page opened from disk may not fetch its neighbours, so results come without an extract.
    if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
      DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
    }
  }

  searchFromDisk();
  addEventListener("toggle", resizeUnfolded, true);
  if (document.readyState === "complete") drawAll();
  else addEventListener("DOMContentLoaded", drawAll);
})();
