"""The directive `repeat`: how the records of a study are measured again, or why they cannot be, folded below a line.

    ```{repeat} same_answer
    ```
"""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive

from studies.recipes import NotRepeatable, recipes


class RepeatDirective(Directive):
    """A fold with a command for each record of the study that its argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        study = self.arguments[0]
        return [nodes.raw("", "", format="html")] if not recipes(study) else [fold(study)]


def setup(app) -> None:
    app.add_directive("repeat", RepeatDirective)
