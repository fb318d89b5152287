"""A student's folder: what is copied into it, and that nothing in it is ever overwritten."""

import sys
from pathlib import Path

import pytest
import student_folder
from class_list import UnusableList, read_list


@pytest.fixture
def book(tmp_path):
    """A small book: a lab, a page, and what is not copied."""
    for name in ("labs/01-one.ipynb", "labs/02-two.ipynb", "book/part/page.md", "book/_static/large.png"):
        (tmp_path / "shipped" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shipped" / name).write_text(f"shipped {name}")
    return tmp_path / "shipped"


def test_a_new_folder_has_the_labs_and_the_pages_they_link_to(book, tmp_path):
    """The links of the labs lead to pages in the same places as in the repository."""
    added = student_folder.fill(tmp_path / "ada", book)
    names = {str(path.relative_to(tmp_path / "ada")) for path in (tmp_path / "ada").rglob("*") if path.is_file()}
    assert names == {"labs/01-one.ipynb", "labs/02-two.ipynb", "book/part/page.md"}
    assert len(added) == 3


def test_work_is_never_overwritten(book, tmp_path):
    """A file that is there stays as it is, also an empty one, a link, and after the shipped lab changed."""
    folder = tmp_path / "ada"
    student_folder.fill(folder, book)
    (folder / "labs" / "01-one.ipynb").write_text("my work")
    (folder / "labs" / "02-two.ipynb").unlink()
    (folder / "labs" / "02-two.ipynb").symlink_to("nowhere")
    (book / "labs" / "01-one.ipynb").write_text("shipped anew")
    assert student_folder.fill(folder, book) == []
    assert (folder / "labs" / "01-one.ipynb").read_text() == "my work"
    assert (folder / "labs" / "02-two.ipynb").is_symlink()


def test_a_deleted_lab_comes_back(book, tmp_path):
    """Who deletes or renames a copy gets the shipped one with the next start."""
    folder = tmp_path / "ada"
    student_folder.fill(folder, book)
    (folder / "labs" / "01-one.ipynb").rename(folder / "labs" / "mine.ipynb")
    assert student_folder.fill(folder, book) == [folder / "labs" / "01-one.ipynb"]


def test_the_start_page_lists_the_students_own_labs(tmp_path):
    """It has a line for each lab of the book, and counts the cells that this copy has run."""
    student_folder.fill(tmp_path)
    student_folder.write_start_page(tmp_path, Path(sys.executable))
    page = (tmp_path / "labs" / "start.md").read_text(encoding="utf-8")
    labs = list((tmp_path / "labs").glob("*.ipynb"))
    assert labs
    assert all(f"]({lab.name})" in page for lab in labs)


def test_a_list_of_names(tmp_path):
    """Comments and empty lines do not count, and a teacher is marked."""
    (tmp_path / "names.txt").write_text("# room 3\nteacher teacher\n\nada  # first row\nben\n")
    students = read_list(tmp_path / "names.txt")
    assert (students.names, students.teachers) == (("teacher", "ada", "ben"), {"teacher"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ada", "'Ada' in .* is no name"),
        ("../etc", "is no name"),
        ("ada admin", "'ada admin' in .* is no name"),
        ("ada\nben\nada", "'ada' stands twice"),
        ("# nobody", "has no name"),
    ],
)
def test_a_list_that_cannot_be_used_says_why(tmp_path, text, said):
    """A name becomes a folder's name, so only plain ones are taken."""
    (tmp_path / "names.txt").write_text(text)
    with pytest.raises(UnusableList, match=said):
        read_list(tmp_path / "names.txt")


def test_a_missing_list_says_how_to_name_one():
    """`make hub` alone, and a file that is not there, say what is missing."""
    for path in (None, "", "no-such-file.txt"):
        with pytest.raises(UnusableList, match="HUB_NAMES=file"):
            read_list(path)
