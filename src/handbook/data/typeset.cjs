// node typeset.cjs MATHJAX_ES5_FOLDER: typesets formulas with MathJax, one a line.
// In: {"tex": "…", "display": true}. Out: {"svg": "<svg …", "mathml": "<math …"} or {"error": "…"}.
"use strict";

const path = require("path");
const lines = require("readline").createInterface({ input: process.stdin });

const settings = { loader: { load: ["input/tex", "output/svg"] }, svg: { fontCache: "none" } };
const ready = require(path.join(process.argv[2], "node-main.js")).init(settings);

function typeset(mathjax, { tex, display }) {
  const adaptor = mathjax.startup.adaptor;
  const svg = adaptor.innerHTML(mathjax.tex2svg(tex, { display }));
  const error = /data-mjx-error="([^"]*)"/.exec(svg);
  return error ? { error: error[1] } : { svg, mathml: mathjax.tex2mml(tex, { display }) };
}

lines.on("line", async (line) => {
  const mathjax = await ready;
  process.stdout.write(`${JSON.stringify(typeset(mathjax, JSON.parse(line)))}\n`);
});
