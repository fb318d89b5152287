// Draws one figure as SVG for `handbook.directives.drawings`, and takes away what only an interactive figure needs.
async ([figure, width, height]) => {
  const IDLE = ".draglayer, .zoomlayer, .hoverlayer, .menulayer, .modebar-container, .legendtoggle, .scrollbar, .infolayer > .cursor";
  const DEFAULTS = {
    "font-style": "normal", "font-variant": "normal", "font-weight": "normal", "text-transform": "none",
    "text-decoration-line": "none", "text-decoration": "none", "text-shadow": "none", "vector-effect": "none",
    opacity: "1", "fill-opacity": "1", "stroke-opacity": "1", "stroke-miterlimit": "2",
  };
  const USELESS = ["font-family", "pointer-events", "cursor", "white-space"];
  const MANY = 60, LAYERS = 8;
  const NUMBERS = ["d", "transform", "x", "y", "width", "height", "x1", "x2", "y1", "y2", "r"];

  await document.fonts.load("16px 'Source Sans 3 Variable'");
  const plot = document.body.appendChild(document.createElement("div"));
  plot.style.cssText = `width: ${width}px; height: ${height}px`;
  const { data, layout } = handbookFigures.themed(figure);
  await Plotly.newPlot(plot, data, layout, { displayModeBar: false });
  const [svg, ...above] = plot.querySelectorAll(".main-svg");
  for (const layer of above) svg.append(...layer.childNodes);

  svg.querySelectorAll(IDLE).forEach((group) => group.remove());
  svg.querySelectorAll(":not(clipPath) > rect").forEach((rect) => isClear(rect) && rect.remove());
  for (const element of [svg, ...svg.querySelectorAll("*")]) tidy(element);
  svg.querySelectorAll("g").forEach(joinDots);
  dropUnused();

  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const name of ["width", "height", "style"]) svg.removeAttribute(name);
  Plotly.purge(plot);
  plot.remove();
  return svg.outerHTML;

  function isClear(rect) {
    const { fillOpacity, stroke, strokeWidth, strokeOpacity } = rect.style;
    return fillOpacity === "0" && (["", "none"].includes(stroke) || parseFloat(strokeWidth) === 0 || strokeOpacity === "0");
  }

  function tidy(element) {
    for (const { name, value } of [...element.attributes]) {
      if (/^(class|data-|aria-|focusable|pointer-events)/.test(name)) element.removeAttribute(name);
      else if (NUMBERS.includes(name)) element.setAttribute(name, value.replace(/-?\d+\.\d{2,}/g, (n) => +(+n).toFixed(1)));
    }
    const style = element.getAttribute("style");
    if (style === null) return;
    const kept = style.split(/;\s*/).map((one) => one.split(/:\s*/))
      .filter(([name, value]) => name && !USELESS.includes(name) && DEFAULTS[name] !== value);
    if (kept.length) element.setAttribute("style", kept.map((pair) => pair.join(":")).join(";"));
    else element.removeAttribute("style");
  }

  // Hundreds of equal dots as a few lines of length zero with round ends: neighbours in different ones, so that
  // where they lie on each other they darken as single dots do.
  function joinDots(group) {
    const dots = [...group.children];
    const [, radius] = dots[0]?.getAttribute("d")?.match(/^M([\d.]+),0A\1,\1 0 1,1 0,-\1A\1,\1 0 0,1 \1,0Z$/) ?? [];
    const looks = (dot) => `${dot.localName} ${dot.getAttribute("d")} ${dot.getAttribute("style")}`;
    if (dots.length < MANY || !radius || dots.some((dot) => looks(dot) !== looks(dots[0]))) return;
    const { fill, opacity } = dots[0].style;
    const layers = Array.from({ length: LAYERS }, (_, i) => dots.filter((_, n) => n % LAYERS === i));
    group.replaceChildren(...layers.map((layer) => {
      const path = document.createElementNS(svg.namespaceURI, "path");
      path.setAttribute("d", layer.map((dot) => `M${dot.getAttribute("transform").match(/\((.*)\)/)[1]}h0`).join(""));
      const look = `fill:none;stroke:${fill};stroke-width:${2 * radius};stroke-linecap:round`;
      path.setAttribute("style", opacity ? `${look};stroke-opacity:${opacity}` : look);
      return path;
    }));
  }

  function dropUnused() {
    const used = new Set(svg.outerHTML.match(/#[\w-]+/g));
    for (const element of svg.querySelectorAll("[id]")) {
      if (!used.has(`#${element.id}`)) element.localName === "clipPath" ? element.remove() : element.removeAttribute("id");
    }
    svg.querySelectorAll("path:not([d]), path[d='M0,0'], path[d='M0,0Z']").forEach((path) => path.remove());
    for (let empty; (empty = svg.querySelectorAll("g:empty, defs:empty")).length; ) empty.forEach((one) => one.remove());
    for (const group of svg.querySelectorAll("g")) if (!group.attributes.length) group.replaceWith(...group.childNodes);
  }
}
