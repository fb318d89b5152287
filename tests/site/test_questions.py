"""A prediction on a built page: chosen and committed, kept in this browser, and shown beside its answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
from readings import COMMIT_ELSEWHERE

CHAPTER = "book/workflow/pipeline.html"
LAB = "labs/03-follow-the-pipeline.html"
FIRST = "fieldset.question >> nth=0"
CHOICES = "fieldset.question >> nth=0 >> role=radio"
TOO_WIDE = """[...document.querySelectorAll(".question, .question *")]
  .filter(one => one.getBoundingClientRect().right > innerWidth).length"""
ON_ONE_LINE = """(() => {
  const parts = [...document.querySelectorAll("[data-committed] > .commit > *")];
  const boxes = parts.map(one => one.getBoundingClientRect());
  return boxes.length === 3 && Math.max(...boxes.map(box => box.top)) < Math.min(...boxes.map(box => box.bottom));
})()"""
MARK = "written by a test"
WINDOWS = 5
"""In how many a test is tried whose pages the browser gives no common storage."""
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture
def page(browser) -> Iterator:
    """A page of a fresh browser profile."""
    context = browser.new_context(viewport=WIDE)
    yield context.new_page()
    context.close()


def commit_by_keyboard(page) -> str:
    """Choose the second choice of the first question and commit it without a mouse; the choice."""
    page.locator(CHOICES).first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    return page.locator(f"{FIRST} >> label >> nth=1").inner_text().strip()


class StorageLost(Exception):
    """A page from disk has an empty storage, although one before it wrote; Chromium does so now and then under load."""


def open_next(page, name: str) -> None:
    """Open an address in the storage that the page before it wrote to. Raises StorageLost where that is not there."""
    page.evaluate(f"localStorage.setItem({MARK!r}, 'yes')")
    page.goto(name)
    if page.evaluate(f"localStorage.getItem({MARK!r})") is None:
        raise StorageLost


def where_storage_is_kept(test: Callable) -> Callable:
    """Try a test in another window where the browser lost the storage: also what the test itself wrote there."""

    @functools.wraps(test)
    def tried(page, **given):
        for _ in range(WINDOWS - 1):
            try:
                return test(page=page, **given)
            except StorageLost:
                page = page.context.browser.new_context(viewport=WIDE).new_page()
        return test(page=page, **given)

    return tried


def outcomes(page):
    return page.locator(f'details[data-question="{page.locator(FIRST).get_attribute("id")}"]')


@pytest.mark.parametrize("name", [CHAPTER, LAB])
def test_a_committed_prediction_opens_its_answer_and_stands_in_it(home, page, name):
    """By keyboard alone; a screen reader is told, and a link leads to the answer."""
    page.goto(f"{home}{name}")
    assert outcomes(page).first.get_attribute("open") is None
    assert page.locator(f"{FIRST} >> button").is_disabled()
    choice = commit_by_keyboard(page)
    assert "Committed" in page.locator(f"{FIRST} >> role=status").inner_text()
    for outcome in outcomes(page).all():
        assert f"You predicted: {choice}" in outcome.inner_text()
    page.get_by_role("link", name="See the answer").click()
    assert outcomes(page).first.locator("> summary").is_visible()
    assert page.evaluate("document.querySelector(location.hash).open")


def test_only_the_answer_of_a_committed_question_opens(home, page):
    """Whoever commits to the first question has not seen the answer to the second."""
    page.goto(f"{home}{CHAPTER}")
    commit_by_keyboard(page)
    others = page.locator("details.outcome:not([open])")
    assert others.count() == page.locator("fieldset.question").count() - 1


@pytest.mark.parametrize("name", [CHAPTER, LAB])
@where_storage_is_kept
def test_a_prediction_is_kept_until_the_reader_clears_it(home, page, name):
    """A page opened again shows the choice, fixed; after a change of mind nothing of it is left."""
    page.goto(f"{home}{name}")
    choice = commit_by_keyboard(page)
    open_next(page, f"{home}{name}")
    assert f"You predicted: {choice}" in outcomes(page).first.inner_text()
    assert page.locator(CHOICES).nth(1).is_checked()
    assert page.locator(CHOICES).nth(1).is_disabled()
    page.get_by_role("button", name="Change my mind").click()
    open_next(page, f"{home}{name}")
    assert page.locator(f"{CHOICES} >> nth=1").is_enabled()
    assert page.locator("fieldset.question :checked, .predicted, [data-committed], details.outcome[open]").count() == 0


@where_storage_is_kept
def test_each_page_keeps_its_own(home, page):
    """A question of two pages is answered on each."""
    page.goto(f"{home}{CHAPTER}")
    commit_by_keyboard(page)
    open_next(page, f"{home}{LAB}")
    commit_by_keyboard(page)
    kept = page.evaluate("Object.keys(localStorage).filter(key => key.startsWith('inferlab-predictions:'))")
    assert sorted(key.rpartition("/")[2] for key in kept) == [LAB.rpartition("/")[2], CHAPTER.rpartition("/")[2]]


def choose_and_commit(page, number: int, choice: int) -> str:
    """Commit to one choice of a question with the mouse; the choice."""
    question = page.locator("fieldset.question").nth(number)
    question.get_by_role("radio").nth(choice).check()
    question.get_by_role("button", name="Commit").click()
    return question.locator("label").nth(choice).inner_text().strip()


def test_two_windows_of_a_page_keep_each_others_predictions(server, page):
    """What one commits to, or takes back, stands in the other and is kept beside its own."""
    page.goto(f"{server}{LAB}")
    other = page.context.new_page()
    other.goto(f"{server}{LAB}")
    first = choose_and_commit(page, 0, 1)
    other.get_by_text(f"You predicted: {first}").first.wait_for(state="attached")
    second = choose_and_commit(other, 1, 0)
    page.get_by_text(f"You predicted: {second}").first.wait_for(state="attached")
    page.locator("fieldset.question").first.get_by_role("button", name="Change my mind").click()
    other.locator(f"{FIRST} >> button:disabled").wait_for()
    changed = choose_and_commit(other, 0, 0)
    for window in (page, other):
        window.reload()
        kept = window.locator(".commit:has(.to-answer)")
        assert kept.count() == 2
        assert window.get_by_text(f"You predicted: {changed}").count() >= 1


def test_a_press_too_many_takes_no_prediction_back(page, built_book):
    """Neither the second press of a double click nor a key that is held."""
    page.goto((built_book / LAB).as_uri())
    page.locator(CHOICES).first.check()
    page.locator(f"{FIRST} >> button").dblclick()
    assert page.locator("[data-committed]").count() == 1
    second = page.locator("fieldset.question").nth(1)
    second.get_by_role("radio").first.check()
    second.get_by_role("button").focus()
    for _ in range(4):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    assert page.locator("[data-committed]").count() == 2


def test_a_prediction_belongs_to_its_page(home, page):
    """A choice on one page is none on another, even where both ask the same question."""
    page.goto(f"{home}{CHAPTER}")
    commit_by_keyboard(page)
    page.goto(f"{home}{LAB}")
    assert page.locator("[data-committed]").count() == 0


def test_a_commit_sends_nothing(home, page):
    """After the page is loaded, choosing and committing makes no request; its icon may still be on the way."""
    page.goto(f"{home}{CHAPTER}", wait_until="networkidle")
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    commit_by_keyboard(page)
    page.wait_for_timeout(200)
    assert [url for url in sent if "favicon" not in url] == []


@pytest.mark.parametrize("name", [CHAPTER, LAB])
def test_an_answer_opens_without_a_prediction(home, page, name):
    """Who does not want to choose presses the fold."""
    page.goto(f"{home}{name}")
    outcomes(page).first.locator("> summary").click()
    assert outcomes(page).first.get_attribute("open") is not None
    assert page.locator(".predicted").count() == 0


def test_a_caption_says_that_its_figure_is_in_a_closed_fold(built_book, page):
    """Not once the figure is there to be seen."""
    page.goto((built_book / LAB).as_uri())
    folded = page.locator("figure:has(> .output > details.outcome)").first
    before = "one => getComputedStyle(one, '::before').content"
    assert folded.locator(".caption-text").evaluate(before) == '"In the fold above: "'
    folded.locator("summary").first.click()
    assert folded.locator(".caption-text").evaluate(before) == "none"


@pytest.mark.parametrize("name", [CHAPTER, LAB])
def test_without_javascript_a_question_is_a_list_and_its_answer_a_fold(home, open_page, name):
    """No control is shown that would do nothing."""
    page = open_page(f"{home}{name}", java_script_enabled=False)
    assert page.locator(f"{FIRST} >> li >> nth=0").is_visible()
    assert not any(control.is_visible() for control in page.locator("fieldset.question").locator("input, button").all())
    outcomes(page).first.locator("> summary").click()
    assert outcomes(page).first.get_attribute("open") is not None


def test_commit_stands_below_the_choices_at_the_left(seen):
    """On every question of every page, so that nobody has to look for it."""
    assert sum(read["questions"] > 0 for read in seen.values()) > 20
    assert {page: read["buttons"] for page, read in seen.items() if read["buttons"]} == {}


def test_a_commit_in_another_place_is_noticed(page):
    """The check above can fail: on a button beside or above a choice, or indented."""
    commit, choices = '<p class="commit"><button>Commit</button></p>', "<ul><li>{}</li></ul>"
    boxes = [
        choices.format("below") + commit,
        f'<div style="display: flex">{choices.format("beside")}{commit}</div>',
        commit + choices.format("above"),
        f'{choices.format("indented")}<div style="padding-left: 9px">{commit}</div>',
    ]
    asked = "".join(f'<fieldset class="question">{box}</fieldset>' for box in boxes)
    page.set_content(f"<style>* {{ margin: 0; padding: 0; border: 0; }}</style>{asked}")
    assert [text.replace("Commit", "") for text in page.evaluate(COMMIT_ELSEWHERE)] == ["beside", "above", "indented"]


@pytest.mark.parametrize("name", [CHAPTER, LAB])
def test_on_a_wide_screen_the_link_to_the_answer_stands_beside_the_button(home, page, name):
    """Button, note and link of a committed question share one line."""
    page.goto(f"{home}{name}")
    commit_by_keyboard(page)
    assert page.evaluate(ON_ONE_LINE)


@pytest.mark.parametrize("name", [CHAPTER, LAB])
def test_a_question_fits_a_phone_and_a_printed_page(home, open_page, name):
    """Nothing is wider than its place on a phone; paper has the choices and no button."""
    page = open_page(f"{home}{name}", viewport=NARROW)
    commit_by_keyboard(page)
    assert page.evaluate(TOO_WIDE) == 0
    page.emulate_media(media="print")
    assert page.locator(f"{FIRST} >> li >> nth=0").is_visible()
    assert page.locator(f"{FIRST} >> button").is_hidden()
