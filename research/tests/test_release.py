"""The checklist of a release runs its steps, and says which fail."""

import hashlib
import json
import shutil

import pytest

from research import release
from research.release import STEPS, Step, main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "RELEASE", tmp_path / "release")


def test_each_package_has_the_version_of_the_project():
    assert release.versions() == ""


def test_another_version_is_named(tmp_path, monkeypatch):
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(release.ROOT / name, tmp_path)
    readers = tmp_path / "vectors" / "readers"
    for name in ("rust/Cargo.toml", "rust/Cargo.lock", "javascript/package.json"):
        (readers / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / "vectors" / "readers" / name, readers / name)
    package = json.loads((readers / "javascript/package.json").read_text())
    (readers / "javascript/package.json").write_text(json.dumps({**package, "version": "9.9.9"}))
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.versions().startswith("package.json has the version 9.9.9, but should have 0.")


def test_steps_pass_fail_or_are_skipped(capsys):
    steps = (
        Step("right", "It works.", [["true"]]),
        Step("wrong", "It breaks.", [["true"], ["sh", "-c", "echo why; exit 1"]]),
        Step("absent", "It needs a tool.", [["no-such-tool"]]),
        Step("said", "A function says why.", lambda: "Because."),
    )
    assert main([], steps) == 1
    assert capsys.readouterr().out.splitlines() == [
        "✓ right: It works.",
        *("✗ wrong: It breaks.", "  why"),
        *("– absent: It needs a tool.", "  There is no no-such-tool here."),
        *("✗ said: A function says why.", "  Because."),
    ]
    assert main(["right"], steps) == 0
    assert main(["rihgt"], steps) == 2
    assert "The steps are right, wrong, absent, said." in capsys.readouterr().out


def test_the_site_is_served_from_the_folder_of_its_version(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "7.8.9"\n')
    assert release.site() == "build/site has no pages: make docs builds them."
    (tmp_path / "build/site").mkdir(parents=True)
    for name in ("index.html", "404.html"):
        (tmp_path / "build/site" / name).write_text(name)
    assert release.site() == ""
    served = tmp_path / "release/site"
    assert (served / "7.8.9/index.html").read_text() == "index.html"
    assert (served / "404.html").read_text() == "404.html"
    assert "url=7.8.9/index.html" in (served / "index.html").read_text()


def test_the_wheel_is_built_and_each_file_has_its_checksum(tmp_path, monkeypatch):
    wheel = next(step for step in STEPS if step.name == "wheel")
    command = [str(tmp_path / "release") if word.endswith("build/release") else word for word in wheel.runs[0]]
    assert main(["wheel", "checksums"], (wheel._replace(runs=[command]), STEPS[-1])) == 0
    (line,) = (tmp_path / "release" / "SHA256SUMS").read_text().splitlines()
    digest, name = line.split("  ")
    assert name.startswith("attnspec-")
    assert hashlib.sha256((tmp_path / "release" / name).read_bytes()).hexdigest() == digest


def test_a_run_of_all_steps_removes_files_of_earlier_runs(tmp_path):
    old = tmp_path / "release/old.whl"
    old.parent.mkdir()
    old.touch()
    assert main(["right"], (Step("right", "It works.", [["true"]]),)) == 0
    assert old.exists()
    assert main([], (Step("right", "It works.", [["true"]]),)) == 0
    assert not old.exists()


def test_nothing_to_release_is_a_failure(capsys):
    assert main(["checksums"]) == 1
    assert "build/release has no files." in capsys.readouterr().out
