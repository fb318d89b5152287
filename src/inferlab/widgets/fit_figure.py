"""A widget without a look of its own that keeps a live figure as wide as its place."""

from __future__ import annotations

import anywidget
import traitlets

FRONT_END = """
function render({ model, el }) {
  let waiting;
  const tell = () => {
    if (!el.clientWidth) return;  // not shown yet
    model.set("width", el.clientWidth);
    model.save_changes();
  };
  const watch = new ResizeObserver(() => { clearTimeout(waiting); waiting = setTimeout(tell, 200); });
  el.style.margin = "0";
  watch.observe(el);
  return () => watch.disconnect();
}
export default { render };
"""


class FitFigure(anywidget.AnyWidget):
    """Stands in a box below a live figure, which plotly would draw 700 pixels wide whatever its place."""

    _esm = FRONT_END
    width = traitlets.Int(0).tag(sync=True)

    def __init__(self, figure: anywidget.AnyWidget) -> None:
        super().__init__()
        self.figure = figure

    @traitlets.observe("width")
    def _fit(self, change: dict) -> None:
        self.figure.layout.width = change["new"]
