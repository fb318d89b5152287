"""A button that saves figures as PNG in the browser, by plotly's own function."""

from __future__ import annotations

import anywidget
import traitlets

FRONT_END = """
function render({ model, el }) {
  const button = document.createElement("button");
  button.className = "jupyter-button widget-button lm-Widget";
  Object.assign(button.style, { width: "auto", margin: "var(--jp-widgets-margin, 2px)" });
  Object.assign(el.style, { display: "flex", margin: "0" });  // in line with the buttons beside it
  button.textContent = model.get("label");
  button.addEventListener("click", () => {
    const near = el.closest(".jp-OutputArea-output") ?? document;
    for (const camera of near.querySelectorAll(".js-plotly-plot [data-title^='Download plot']")) camera.click();
  });
  const follow = () => { button.disabled = model.get("disabled"); };
  model.on("change:disabled", follow);
  follow();
  el.append(button);
}
export default { render };
"""


class SavePictures(anywidget.AnyWidget):
    """A button that downloads every figure of its cell's output as PNG, by plotly's own camera."""

    _esm = FRONT_END
    label = traitlets.Unicode("Save picture (PNG)").tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
