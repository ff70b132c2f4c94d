"""Installing attnspec changes nothing for a project with its own `properties.py`, `oracles.py` or
`spec/`, and works beside them.
"""

import re
import subprocess

import pytest

OWN = {"properties": "properties.py", "oracles": "oracles.py", "spec": "spec/__init__.py"}
TEST = """
import {name}

def test_the_project_imports_its_own_module():
    assert {name}.KEY == "theirs"
"""
KERNELS = """
import oracles, properties, spec
import attnspec
from attnspec.properties.bugs.reference import REFERENCE

assert {module.KEY for module in (oracles, properties, spec)} == {"theirs"}
right = attnspec.Implementation("right", {"causal_mask": REFERENCE["causal_mask"]})
wrong = attnspec.Implementation("wrong", {"causal_mask": lambda n_q, n_k=None: ~REFERENCE["causal_mask"](n_q, n_k)})
"""


def project(folder, names):
    """A project that has modules with some of our names."""
    for name in names:
        (folder / OWN[name]).parent.mkdir(exist_ok=True)
        (folder / OWN[name]).write_text('KEY = "theirs"\n')
        (folder / f"test_{name}.py").write_text(TEST.format(name=name))
    (folder / "kernels.py").write_text(KERNELS)
    return folder


def run(folder, *line):
    """The exit status of a command, and what it prints."""
    ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "flags", [["-P"], []], ids=["pytest", "python -m pytest"]
)  # the second puts the folder on the path first
def test_a_project_s_tests_run_as_if_attnspec_were_not_installed(flags, installed, tmp_path):
    status, printed = run(
        project(tmp_path, OWN), installed / "python", *flags, "-m", "pytest", "-q", "-p", "no:cacheprovider"
    )
    assert status == 0, printed
    assert f"{len(OWN)} passed" in printed


def test_the_plugin_imports_nothing_of_ours_without_a_check(installed, tmp_path):
    names = {"spec", "oracles", "properties", "numpy", "hypothesis"}
    code = f"import sys, attnspec.pytest_plugin; print(sorted({names} & {{*sys.modules}}))"
    assert run(tmp_path, installed / "python", "-P", "-c", code) == (0, "[]\n")


def test_checks_run_beside_modules_of_the_project_s_own(installed, tmp_path):
    folder = project(tmp_path, OWN)
    few = ["-k", "definition"]
    line = [
        installed / "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--attnspec",
        "kernels.py:right",
        *few,
    ]
    status, printed = run(folder, *line)
    assert status == 0, printed
    assert re.search(r"right: \d+ pass", printed)


def test_a_verdict_beside_modules_of_the_project_s_own_and_its_script_show_the_same(installed, tmp_path):
    folder = project(tmp_path, OWN)
    few = ["--laws", "a causal mask equals its definition", "--max-examples", "5", "--jobs", "1"]
    status, printed = run(folder, installed / "attnspec", "verify", "kernels.py:wrong", "-v", *few)
    assert status == 1, printed
    script = printed.partition("To reproduce it:\n")[2].partition("\n✗")[0]
    body = script[: script.index(")\n", script.index("properties.replay")) + 1]
    (folder / "again.py").write_text("\n".join(line[4:] for line in body.splitlines()))
    status, printed = run(folder, installed / "python", "again.py")
    assert status == 1
    assert printed.splitlines()[-1].endswith("should be exactly True.")


def test_ours_are_the_usual_modules_where_nothing_shadows_them(installed, tmp_path):
    code = (
        "import attnspec, attnspec.oracles, oracles, properties, spec\n"
        "from attnspec.oracles.ball import exact\n"
        "import oracles.ball\n"
        "assert attnspec.oracles is oracles and attnspec.properties is properties and attnspec.spec is spec\n"
        "assert exact is oracles.ball.exact and oracles.__spec__.name == 'oracles'\n"
        "assert attnspec.verify is properties.verify and attnspec.Conventions is oracles.Conventions\n"
        "assert set(attnspec.__all__) <= {name for name in attnspec.__all__ if getattr(attnspec, name)}"
    )
    assert run(tmp_path, installed / "python", "-c", code) == (0, "")


@pytest.mark.parametrize("name", ["oracles", "spec"])
def test_only_what_is_shadowed_is_loaded_under_another_name(name, installed, tmp_path):
    code = (
        f"import attnspec, {name}\n"
        f"assert {name}.KEY == 'theirs' and attnspec.{name}.__name__ == 'attnspec.{name}'\n"
        "assert attnspec.properties.__name__ == 'attnspec.properties'\n"
        "assert attnspec.Conventions is attnspec.oracles.Conventions"
    )
    assert run(project(tmp_path, [name]), installed / "python", "-c", code) == (0, "")


@pytest.mark.parametrize("name", ["oracles", "spec"])
def test_properties_that_is_not_shadowed_itself_keeps_its_name(name, installed, tmp_path):
    code = (
        f"import properties, {name}\n"
        "import attnspec\n"
        "from properties.contract.implementation import Implementation\n"
        f"assert {name}.KEY == 'theirs' and properties is attnspec.properties\n"
        "assert Implementation is properties.Implementation is attnspec.Implementation"
    )
    assert run(project(tmp_path, [name]), installed / "python", "-c", code) == (0, "")
