"""The checklist of a release: `python -m research.release [STEP …]`.

Each step is a command, and is printed with its outcome. A step whose tool is missing is skipped, with
the reason. The steps that write put their files into build/release, whose checksums come last. The exit
status is 1 if a step fails.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["STEPS", "Step", "checksums", "main", "site", "versions"]

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / "build" / "release"
_FIRST_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<title>attnspec</title>
<p><a href="{version}/index.html">attnspec {version}</a></p>
"""


class Step(NamedTuple):
    """A step: its name, what it shows, and the commands or the function that runs it."""

    name: str
    shows: str
    runs: Sequence[Sequence[str]] | Callable[[], str]
    folder: str = "."

    @property
    def missing(self) -> str:
        """The tool that the step needs and this machine lacks, or ""."""
        commands = [] if callable(self.runs) else [command[0] for command in self.runs]
        return next((tool for tool in commands if not shutil.which(tool)), "")


def versions() -> str:
    """What is wrong with the version, which pyproject.toml states and every package repeats, or ""."""
    version = _version()
    readers = ROOT / "vectors" / "readers"
    said = {
        "Cargo.toml": tomllib.loads((readers / "rust/Cargo.toml").read_text("utf-8"))["package"]["version"],
        "Cargo.lock": tomllib.loads((readers / "rust/Cargo.lock").read_text("utf-8"))["package"][0]["version"],
        "package.json": json.loads((readers / "javascript/package.json").read_text("utf-8"))["version"],
        "CHANGELOG.md": re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0],
    }
    wrong = [f"{file} has the version {other}" for file, other in said.items() if other != version]
    return f"{'; '.join(wrong)}, but should have {version}, as pyproject.toml has." if wrong else ""


def site() -> str:
    """Copy the built site into the folder of its version; a sentence if it is not built. The first
    page of the whole leads to this version. To serve it, add the folders of earlier releases.
    """
    built = ROOT / "build" / "site"
    if not (built / "index.html").exists():
        return "build/site has no pages: make docs builds them."
    version, served = _version(), RELEASE / "site"
    shutil.copytree(built, served / version, dirs_exist_ok=True)
    shutil.copy(built / "404.html", served)
    (served / "index.html").write_text(_FIRST_PAGE.format(version=version), "utf-8")
    return ""


def checksums() -> str:
    """Write SHA256SUMS for all files of the release; a sentence without files."""
    files = sorted(path for path in RELEASE.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(RELEASE)}\n" for path in files]
    (RELEASE / "SHA256SUMS").write_text("".join(lines), "utf-8")
    return "" if files else "build/release has no files."


def _version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def _vectors() -> str:
    """Pack the published vectors; a sentence if that fails."""
    shutil.make_archive(str(RELEASE / "attnspec-vectors"), "gztar", ROOT, "vectors/data")
    return ""


_PYTHON = sys.executable
_DATA = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "vectors" / "data").rglob("*.json"))
STEPS = (
    Step("versions", "Each package has the version of pyproject.toml.", versions),
    Step("check", "Lint, format and types are right.", [["make", "check"]]),
    Step("test", "All tests pass.", [["make", "test-all"]]),
    Step("verify", "The systems of this repository verify.", [["make", "verify"]]),
    Step("integrations", "The files for other tools pass their tests.", [["make", "integrations"]]),
    Step(
        "vectors",
        "Each bound of the vectors is proved again.",
        [[_PYTHON, "-m", "attnspec", "vectors", "check", *_DATA]],
    ),
    Step(
        "wheel",
        "The wheel is built.",
        [[_PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(RELEASE), "."]],
    ),
    Step("docs", "The site is built.", [["make", "docs"]]),
    Step("site", "The site has a folder for each version, and is ready to be served.", site),
    Step(
        "npm",
        "The reader in JavaScript is packed.",
        [["npm", "pack", "--pack-destination", str(RELEASE)]],
        "vectors/readers/javascript",
    ),
    Step(
        "cargo",
        "The reader in Rust is packed.",
        [
            ["cargo", "package", "--offline", "--allow-dirty", "--target-dir", str(ROOT / "build" / "cargo")],
            ["cp", str(ROOT / "build/cargo/package" / f"attnspec-vectors-{_version()}.crate"), str(RELEASE)],
        ],
        "vectors/readers/rust",
    ),
    Step("archive", "The vectors are packed.", _vectors),
    Step("checksums", "SHA256SUMS names each file.", checksums),
)


def run(step: Step) -> str:
    """Run a step; the end of what it printed if it fails, or ""."""
    if callable(step.runs):
        return step.runs()
    for command in step.runs:
        ended = subprocess.run(command, cwd=ROOT / step.folder, capture_output=True, text=True, check=False)
        if ended.returncode:
            return "\n".join((ended.stdout + ended.stderr).splitlines()[-5:]) or f"{command[0]} failed."
    return ""


def main(names: Sequence[str] = (), steps: Sequence[Step] = STEPS) -> int:
    """Run the steps, or the named ones, and print the outcome of each. A run of all steps first
    removes the files of earlier runs.
    """
    if unknown := set(names) - {step.name for step in steps}:
        print(f"Unknown steps: {', '.join(sorted(unknown))}. The steps are {', '.join(step.name for step in steps)}.")
        return 2
    if not names:
        shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True, exist_ok=True)
    failed = 0
    for step in steps:
        if names and step.name not in names:
            continue
        reason = f"There is no {step.missing} here." if step.missing else run(step)
        sign = "–" if step.missing else "✗" if reason else "✓"
        print(f"{sign} {step.name}: {step.shows}" + (f"\n  {reason}" if reason else ""), flush=True)
        failed += sign == "✗"
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
