// The figures of a page. The build has drawn each as SVG; when a reader points at one or presses Explore, plotly is
// loaded and draws it anew in the same place. A figure that the build could not draw is drawn when it comes into view.
// `handbookFigures.themed` gives a figure the page's colours: for the reader here, and for the build's drawing.
"use strict";

(() => {
  const STATIC = (document.currentScript?.src ?? "").replace(/[^/]*$/, "");
  const HOVER_MS = 150;
  const CONFIG = {
    displaylogo: false,
    displayModeBar: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
  };
  const known = new Map(); // digest -> figure, from _static/figures/
  const loading = new Map(); // address -> promise of a loaded script
  const active = new Map(); // box of an interactive figure -> its plot

  // --- colours of the page ---------------------------------------------------------------------

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
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
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

  const pageTemplate = (template = {}) => ({ ...template, layout: merged(template.layout ?? {}, pageTheme()) });

  function themed({ data, layout: { width, height, ...layout } }) {
    return { data, layout: { ...layout, template: pageTemplate(layout.template), autosize: true } };
  }

  function recolour() {
    for (const plot of active.values()) Plotly.relayout(plot, { template: pageTemplate(plot.layout.template) });
  }

  // --- an interactive figure in the place of the drawing -------------------------------------------

  function load(address) {
    if (!loading.has(address)) {
      loading.set(address, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = STATIC + address;
        script.onload = resolve;
        script.onerror = () => { loading.delete(address); reject(new Error(`${address} did not load`)); };
        document.head.append(script);
      }));
    }
    return loading.get(address);
  }

  const isCoarse = () => matchMedia("(pointer: coarse)").matches;

  function interactive(box) {
    box.becoming ??= draw(box).catch((failed) => { box.becoming = null; throw failed; });
    return box.becoming;
  }

  async function draw(box) {
    const digest = box.dataset.figure;
    await Promise.all([
      load("plotly-cartesian.min.js"),
      load(`figures/${digest}.js`),
      document.fonts.load("16px 'Source Sans 3 Variable'"),
    ]);
    const { data, layout } = themed(known.get(digest));
    const plot = document.createElement("div");
    plot.className = "lab-plot";
    plot.tabIndex = -1;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", layout.meta?.alt ?? "");
    box.append(plot);
    const dragmode = isCoarse() ? false : (layout.dragmode ?? "zoom"); // a finger scrolls the page
    await Plotly.newPlot(plot, data, { ...layout, dragmode }, CONFIG);
    active.set(box, plot);
    await showPosition(box);
    box.dataset.drawn = "yes";
    new ResizeObserver(() => plot.clientWidth && Plotly.Plots.resize(plot)).observe(box);
    return plot;
  }

  async function explore(box, button) {
    const plot = await interactive(box);
    button.remove();
    if (!isCoarse()) await Plotly.newPlot(plot, plot.data, plot.layout, { ...CONFIG, displayModeBar: true });
    (plot.querySelector(".modebar-btn") ?? plot).focus({ preventScroll: true });
  }

  // --- what a reader does ---------------------------------------------------------------------------

  function addButton(box) {
    const number = box.closest("figure")?.querySelector(".caption-number")?.textContent.trim();
    const button = document.createElement("button");
    button.type = "button";
    button.className = "figure-explore";
    button.textContent = "Explore";
    if (number) button.setAttribute("aria-label", `Explore ${number}`);
    button.addEventListener("click", () => explore(box, button));
    box.append(button);
  }

  function followPointer(box) {
    let waiting;
    box.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse") waiting = setTimeout(() => interactive(box), HOVER_MS);
    });
    box.addEventListener("pointerleave", () => clearTimeout(waiting));
  }

  function drawWhenSeen(boxes) {
    const seen = new IntersectionObserver((entries) => {
      for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
        seen.unobserve(target);
        interactive(target);
      }
    });
    for (const box of boxes) seen.observe(box);
  }

  // --- controls: one range input for each name, its state in the page's address -------------------------

  const inputsOf = (box) => [...(box.closest(".lab-controlled")?.querySelectorAll("input[type=range]") ?? [])];
  const textsOf = (input) => JSON.parse(input.dataset.values);
  const addressName = (box, input) => `${box.closest("figure")?.id || box.dataset.figure}.${input.name}`;

  // The position that the controls show; the last control's values change fastest.
  const positionOf = (box) =>
    inputsOf(box).reduce((position, input) => position * textsOf(input).length + Number(input.value), 0);

  async function showPosition(box) {
    const plot = active.get(box);
    const { positions } = plot.layout.meta ?? {};
    if (!positions) return;
    const { shown, alt, ...layout } = positions[positionOf(box)];
    plot.setAttribute("aria-label", alt);
    await Plotly.update(plot, { visible: plot.data.map((_, i) => shown.includes(i)) }, layout);
  }

  function tell(input) {
    const text = textsOf(input)[input.value];
    input.setAttribute("aria-valuetext", input.dataset.said.replace("{}", text));
    input.parentElement.querySelector("output").textContent = text;
  }

  async function move(box, input) {
    tell(input);
    const address = new URL(location.href);
    address.searchParams.set(addressName(box, input), textsOf(input)[input.value]);
    history.replaceState(history.state, "", address);
    const drawnBefore = active.has(box);
    await interactive(box);
    if (drawnBefore) await showPosition(box);
  }

  function control(box) {
    const asked = new URL(location.href).searchParams;
    let moved = false;
    for (const input of inputsOf(box)) {
      const index = textsOf(input).indexOf(asked.get(addressName(box, input)));
      input.value = index < 0 ? input.defaultValue : index;
      moved ||= input.value !== input.defaultValue;
      tell(input);
      input.addEventListener("input", () => move(box, input));
    }
    if (moved) interactive(box);
  }

  function start() {
    const boxes = [...document.querySelectorAll(".lab-figure")];
    for (const box of boxes) {
      addButton(box);
      followPointer(box);
      control(box);
    }
    drawWhenSeen(boxes.filter((box) => !box.querySelector("svg")));
    new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  window.handbookFigures = { themed, add: (digest, figure) => known.set(digest, figure) };
  if (document.readyState === "complete") start();
  else addEventListener("DOMContentLoaded", start);
})();
