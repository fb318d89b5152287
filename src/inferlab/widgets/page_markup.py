"""HTML of a question on a built page, the same in chapters and labs; `book/_static/questions.js` works on it.

The theme hides what has the class `pst-js-only` where no script runs; a list of the choices is left.
"""

LEGEND = ("<legend>", "</legend>")
CHOICES = ("<ul>", "</ul>")


def question(key: str) -> tuple[str, str]:
    """Beginning and end of a question; `key` is its id, which its outcomes name."""
    button = '<button type="button" disabled>Commit</button>'
    end = f'<p class="commit pst-js-only">{button} <span role="status"></span></p></fieldset>\n'
    return f'<fieldset class="question" id="{key}">', end


def choice(key: str) -> tuple[str, str]:
    """Beginning and end of one choice of the question `key`."""
    radio = f'<input type="radio" name="{key}" class="pst-js-only" autocomplete="off">'
    return f"<li><label>{radio}<span>", "</span></label></li>"


def outcome(key: str | None) -> tuple[str, str]:
    """Beginning and end of a folded outcome; without a key it belongs to no question and opens only by hand."""
    answers = f' data-question="{key}"' if key else ""
    return f'<details class="outcome"{answers}>', "</details>"
