"""The readers are packages: what npm and cargo would publish is whole, and the examples of their pages run."""

import json
import re
import shutil
import subprocess
import tomllib

import pytest

from properties.tests.test_vectors import DATA, READERS, ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def _run(tool, *words, cwd):
    if not shutil.which(tool):
        pytest.skip(f"There is no {tool} here.")
    return subprocess.run([tool, *words], cwd=cwd, capture_output=True, text=True, check=False)


def _example(language, fence):
    """The program of a reader's page."""
    page = (READERS / language / "README.md").read_text("utf-8")
    (program,) = re.findall(rf"^```{fence}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return program.replace("vectors/data", str(DATA))


def _skips_each(printed):
    """Whether each printed test is skipped, or is the refused call, which passes."""
    lines = [line for line in printed.splitlines() if "rope/float32" in line]
    return bool(lines) and all(" skip" in line or "refused" in line for line in lines)


def test_npm_publishes_the_reader_its_example_and_its_page():
    packed = _run("npm", "pack", "--dry-run", "--json", "--offline", cwd=READERS / "javascript")
    (package,) = json.loads(packed.stdout)
    assert package["name"] == "attnspec-vectors"
    assert package["version"] == VERSION
    names = {file["path"] for file in package["files"]}
    assert names == {"README.md", "example.mjs", "package.json", "vectors.mjs"}


def test_cargo_packages_the_reader(tmp_path):
    """The one warning says that the test with mutated files is left out, which needs the vectors."""
    words = ["package", "--offline", "--allow-dirty", "--target-dir", str(tmp_path)]
    packed = _run("cargo", *words, cwd=READERS / "rust")
    assert packed.returncode == 0, packed.stderr
    warnings = [line for line in packed.stderr.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert "ignoring test `mutated`" in warnings[0]
    assert (tmp_path / "package" / f"attnspec-vectors-{VERSION}.crate").exists()


def test_the_page_of_javascript_runs(tmp_path):
    package = tmp_path / "node_modules" / "attnspec-vectors"
    package.mkdir(parents=True)
    for name in ("package.json", "vectors.mjs"):
        shutil.copy(READERS / "javascript" / name, package)
    (tmp_path / "page.mjs").write_text(_example("javascript", "javascript"))
    ended = _run("node", "page.mjs", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert _skips_each(ended.stdout)


def test_the_page_of_rust_runs(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.rs").write_text(_example("rust", "rust"))
    dependency = f'attnspec-vectors = {{ path = "{READERS / "rust"}" }}'
    package = '[package]\nname = "page"\nversion = "0.0.0"\nedition = "2021"\n'
    (tmp_path / "Cargo.toml").write_text(f"{package}[dependencies]\n{dependency}\n")
    ended = _run("cargo", "run", "--offline", "--quiet", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert _skips_each(ended.stdout)


@pytest.mark.parametrize("compiler", [("cc", "-std=c99", "-x", "c"), ("c++", "-x", "c++")])
def test_the_page_of_c_runs_in_c_and_in_cpp(compiler, tmp_path):
    (tmp_path / "page.c").write_text(_example("c", "c"))
    words = [*compiler[1:], "-Wall", "-Wextra", "-Werror", "-I", str(READERS / "c"), "page.c", "-o", "page", "-lm"]
    compiled = _run(compiler[0], *words, cwd=tmp_path)
    assert compiled.returncode == 0, compiled.stderr
    ended = subprocess.run([tmp_path / "page"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    assert _skips_each(ended.stdout)
    assert re.search(r"^\d+ pass, 0 fail, \d+ skip$", ended.stdout, re.MULTILINE)
