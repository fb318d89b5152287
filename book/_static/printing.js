// Paper is light: a dark page is light while it is printed, and dark again afterwards.
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

  addEventListener("beforeprint", prepare);
  addEventListener("afterprint", restore);
  paper.addEventListener("change", () => (paper.matches ? prepare() : restore()));
  if (paper.matches) prepare();
})();
