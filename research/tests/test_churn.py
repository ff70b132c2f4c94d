"""Generated lines are counted by the name of a file after the commit; binary files are not counted."""

import subprocess

import pytest

from research import churn


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A function that commits files with these texts, and renames others."""
    monkeypatch.setattr(churn, "ROOT", tmp_path)

    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    def commit(texts, renames=()):
        for old, new in renames:
            git("mv", old, new)
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(text)
        git("add", "--all")
        git("commit", "--quiet", "--message", "A commit")

    git("init", "--quiet")
    return commit


def test_lines_of_generated_files_are_counted_of_all_changed_lines(repository, capsys):
    repository(
        {
            "docs/seeds.txt": b"1\n2\n3\n",
            "docs/a.md": b"1\n2\n3\n4\n",
            "vectors/data/rope.json": b"1\n",
            "docs/a.png": b"\0\n",
        }
    )
    repository({}, [("docs/a.md", "docs/named.md")])
    assert list(churn.changed(["-1"])) == [("docs/named.md", 0)]
    repository({"docs/named.md": b"1\n2\n3\n5\n"})
    assert churn.main([]) == 0
    assert capsys.readouterr().out == (
        "generated at cbecffb: 6 of 10 changed text lines, 60.0%\n"
        "still made on a push: 1 of 10 changed text lines, 10.0%\n"
    )
    assert churn.main(["-1"]) == 0
    assert "generated at cbecffb: 2 of 2 changed text lines, 100.0%" in capsys.readouterr().out
