"""The picture of a shared link: its figure, and what happens without one or without a browser."""

from pathlib import Path

import pytest

from handbook.delivery import findable, social_card
from handbook.directives import drawings

ROOT = Path(__file__).parents[2]
SVG = '<svg viewBox="0 0 9 9"><text style="fill:var(--pst-color-text-base)">decode</text></svg>'


def test_the_card_shows_title_answer_and_the_figure_of_the_front_page():
    """Its text is escaped; where the page has no figure, title and answer stand alone."""
    assert SVG in social_card.drawing("A", "Why?", b"font", SVG)
    plain = social_card.drawing("A & B", "Why?", b"font")
    assert "<h1>A &amp; B</h1>" in plain
    assert "<p>Why?</p>" in plain
    assert [left for left in ("<svg", "@title@", "@font@") if left in plain] == []


def test_the_figure_of_a_card_has_the_light_colours_of_the_book():
    """A colour that the page's theme would give is written out as the stylesheet's light one."""
    assert drawings.in_light(SVG, ROOT) == SVG.replace("var(--pst-color-text-base)", "#1d2733")


def test_every_colour_of_a_drawing_is_known_in_light():
    """No drawing can name a colour that the stylesheet lacks."""
    named = "".join(f"var({variable})" for variable in drawings.SENTINELS)
    assert "var(" not in drawings.in_light(named, ROOT)


@pytest.mark.usefixtures("browser")
def test_a_card_replaces_the_one_before(tmp_path):
    """The folder holds one picture, of the size that shared links want."""
    (tmp_path / "card-old.png").write_bytes(b"")
    page = social_card.drawing("A", "Why?", drawings.font(ROOT).read_bytes(), SVG)
    assert social_card._draw(page, tmp_path / "card-new.png")
    [card] = tmp_path.glob("*.png")
    assert [int.from_bytes(card.read_bytes()[at : at + 4], "big") for at in (16, 20)] == [1200, 630]


def test_without_a_browser_there_is_no_card(tmp_path, monkeypatch):
    """The build goes on, says what is missing, and no page names a picture."""
    says: list[str] = []
    monkeypatch.setattr(social_card.LOGGER, "info", lambda text, *words: says.append(text % words))
    monkeypatch.setenv("CHROMIUM", "/bin/false")
    assert not social_card._draw("", tmp_path / "card.png")
    assert list(tmp_path.iterdir()) == []
    assert "CHROMIUM=path" in says[0]
    assert "og:image" not in findable.tags("A", "Why?", "A", image="", image_text="A: a line")
