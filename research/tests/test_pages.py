"""Each page of measurements states how it was made, and the command that makes pages says what failed and resumes."""

from dataclasses import replace

import pytest

from properties.tests.test_readme import make_refuses
from research import pages
from research.pages import PAGES, Page, main, make, results
from research.stamp import ROOT, Stamp, machine, read, revision, stamped

STAMP = Stamp("make gates", "a42e1c8", "2 cores of a processor", "14")
WRITES = "from pathlib import Path; import sys; Path({file!r}).write_text({text!r}); sys.exit({status})"


# -- The head --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stamp", [STAMP, replace(STAMP, status=1), replace(STAMP, machine="not recorded", minutes="not recorded")]
)
@pytest.mark.parametrize(
    ("before", "after"), [("# A page\n\n", "Its text.\n"), ("", "A table: 1; 2.\n\nMore.\n")], ids=["Markdown", "text"]
)
def test_a_head_stands_below_the_title_or_first_and_replaces_an_earlier_one(stamp, before, after):
    page = stamped(before + after, stamp)
    assert page == f"{before}{stamp}\n\n{after}"
    assert read(page) == stamp
    assert stamped(page, STAMP) == f"{before}{STAMP}\n\n{after}"


def test_a_page_without_a_head_states_nothing():
    assert read("# A page\n\nIts text.\n") is None


def test_a_head_says_a_failure_only():
    assert str(STAMP) == "Command: `make gates`; revision: a42e1c8; machine: 2 cores of a processor; minutes: 14."
    assert str(replace(STAMP, status=2)).endswith("; minutes: 14; exit status: 2.")


def test_the_machine_and_the_revision_are_those_at_hand():
    assert " cores of " in machine()
    assert len(revision().removesuffix("-dirty")) >= 7


# -- What is published -----------------------------------------------------------------------------


@pytest.mark.parametrize("file", [file for page in PAGES for file in page.written], ids=lambda file: file.name)
def test_each_page_of_measurements_states_how_it_was_made(file):
    assert read(file.read_text("utf-8")), (
        f"{file} has no head: `make NAME` writes it, with the name that docs/results.md has."
    )


def test_each_page_in_docs_is_in_the_table_and_has_a_make_target():
    written = {file for file in (ROOT / "docs").iterdir() if file.suffix in (".md", ".txt")}
    assert written - {pages.RESULTS} == {
        file for page in PAGES for file in page.written if file.parent == ROOT / "docs"
    }
    assert make_refuses(page.name for page in PAGES) == ""


def test_the_table_of_results_is_that_of_the_heads():
    assert pages.RESULTS.read_text("utf-8") == results(), "`python -m research.pages --table` writes docs/results.md."


# -- Making pages ----------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A function that makes a page of a stand-in for the table, which writes a file and ends with a status."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path / "docs" / "results.md")
    monkeypatch.setattr(pages, "revision", lambda: "1234567")
    monkeypatch.setattr(pages, "PAGES", ())
    (tmp_path / "docs").mkdir()

    def page(name, status=0, text="# A page\n\nIts text.\n"):
        script = tmp_path / f"{name}.py"
        script.write_text(WRITES.format(file=f"docs/{name}.md", text=text, status=status))
        made = Page(name, f"docs/{name}.md", f"python {name}.py", f"The {name}", "Why?", "Therefore.")
        monkeypatch.setattr(pages, "PAGES", (*pages.PAGES, made))
        return made

    return page


def test_a_page_that_its_command_has_written_gets_a_head_and_a_row(table, tmp_path):
    assert make(table("first"), ["--seed", "1"])
    head = read((tmp_path / "docs/first.md").read_text())
    assert head == Stamp("python -m research.pages first --seed 1", "1234567", machine(), head.minutes)
    assert float(head.minutes) < 10
    row = f"| [The first](first.md) | Why? | Therefore. | 1234567 | `make first` | {head.minutes} |\n"
    assert row in (tmp_path / "docs/results.md").read_text()


def test_a_command_that_writes_no_page_has_failed(table, tmp_path):
    page = replace(table("first"), command="python -c pass")
    (tmp_path / "docs/first.md").write_text("# A page\n\nOf before.\n")
    assert not make(page)
    assert read((tmp_path / "docs/first.md").read_text()) is None


def test_a_failure_stops_no_other_page_and_is_made_again_alone(table, tmp_path, capfd):
    for name, status in (("first", 0), ("second", 3), ("third", 0)):
        table(name, status)
    assert main(["--all"]) == 1
    assert capfd.readouterr().err == "Failed: second. Run the command again: it makes these pages alone.\n"
    assert read((tmp_path / "docs/second.md").read_text()).status == 3
    times = {name: (tmp_path / f"docs/{name}.md").stat().st_mtime_ns for name in ("first", "second", "third")}
    table("second", 0)
    pages.PAGES = (pages.PAGES[0], pages.PAGES[2], pages.PAGES[3])
    assert main(["--all"]) == 0
    assert {name for name, time in times.items() if (tmp_path / f"docs/{name}.md").stat().st_mtime_ns != time} == {
        "second"
    }


def test_a_page_of_an_older_revision_is_made_again(table, monkeypatch):
    page = table("first")
    assert not page.made("1234567")
    make(page)
    assert page.made("1234567")
    assert not page.made("89abcde")


def test_all_pages_are_made_of_a_revision_that_can_be_stated(table, monkeypatch, capsys):
    table("first")
    monkeypatch.setattr(pages, "revision", lambda: "1234567-dirty")
    assert main(["--all"]) == 2
    assert (
        capsys.readouterr().err == "Files differ from revision 1234567: commit them, so that the pages can state it.\n"
    )
    assert main(["first"]) == 0


@pytest.mark.parametrize("arguments", [[], ["--all", "gates"]])
def test_a_page_is_named_or_all_are_asked_for(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "Name a page, or say --all." in capsys.readouterr().err
