"""JUnit's XML, SARIF and annotations: a result for each cause, where the operation is written,
whatever names are made of.
"""

import json
import re
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import properties
from properties.command.cli import main
from properties.processes.sources import sources
from properties.verifier.report import Cause, Diagnosis, Outcome, Report, Violation
from properties.views.github import annotations
from properties.views.junit import junit
from properties.views.results import results
from properties.views.sarif import sarif
from properties.views.whole import write_whole

HOSTILE = "a\x1b[31m\x00,:%0A\r\n::error::b<&\"'>\udcff\ufffe]]>"
FIRST, SECOND, THIRD, FOURTH = "keeps what it is[rope]", "adds up[rope]", "is told[rope]", "is not run[rope]"
KERNELS = """
import numpy as np

def rope(x, start_pos=0):
    d = x.shape[-1]
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)

half = {"rope": rope}
"""


def outcome(law, status="held", name="mine", **more):
    law, _, operation = law.partition("[")
    return Outcome(law, operation.removesuffix("]"), name, status, **more)


def report_of(*outcomes, causes=(), strict=False, name="mine", **settings):
    listed = [{"name": name, "sources": {"rope": {"file": "src/my kernels.py", "line": 7}}}]
    return Report(outcomes, {"implementations": listed, **settings}, strict=strict, causes=causes)


def broken(name="mine", known=False):
    """A report with one cause that breaks two laws, a law that holds, one that is declared, and one
    that was not run.
    """
    laws = [law.partition("[")[0] for law in (FIRST, SECOND)]
    violations = [Violation(law, "rope", name, f"is wrong{HOSTILE}", {"n": 3}, 2.0) for law in laws]
    diagnosis = (Diagnosis("a-bug", "It is wrong.", "Mend it.", "a/b#1", 0.5),)
    cause = Cause(name, (FIRST, SECOND), replace(violations[0], diagnosis=diagnosis))
    violated = [outcome(v.law_id, "violated", name, violation=v, seconds=1.0, known=known) for v in violations]
    others = [outcome(THIRD, "declared", name, reason="As its page says."), outcome("holds[rope]", name=name)]
    return report_of(
        *violated,
        *others,
        outcome(FOURTH, "not run", name, reason="The process ended.", known=known),
        causes=(cause,),
        name=name,
    )


def test_a_cause_is_one_result_with_all_the_laws_that_it_breaks():
    first, second = results(broken())
    assert (first.law, first.laws, first.status, first.cause) == (FIRST, (FIRST, SECOND), "violated", "a-bug")
    assert first.summary.endswith(
        f"Likely cause: a-bug. It is wrong. Mend it. 2 checks fail for this cause: {FIRST}; {SECOND}."
    )
    assert (first.file, first.line) == ("src/my kernels.py", 7)
    assert (second.law, second.laws, second.status) == (FOURTH, (FOURTH,), "not run")
    assert second.summary == "1 check is not run. The process ended."


@pytest.mark.parametrize(
    ("report", "ok"),
    [
        (report_of(outcome(FIRST)), True),
        (
            report_of(
                outcome(FIRST), outcome(SECOND, "not applicable"), outcome(THIRD, "declared", reason="So it is.")
            ),
            True,
        ),
        (report_of(outcome(FIRST), outcome(SECOND, "not run", unavailable=True)), True),
        (report_of(outcome(FIRST, "suspicious")), True),
        (report_of(outcome(FIRST, "suspicious"), strict=True), False),
        (report_of(outcome(FIRST), outcome(SECOND, "vacuous")), False),
        (report_of(outcome(FIRST), outcome(SECOND, "not run")), False),
        (report_of(outcome(FIRST, "not applicable")), False),
        (report_of(outcome(FIRST, "not run", unavailable=True)), False),
        (broken(), False),
        (broken(known=True), True),
        (
            report_of(
                outcome(
                    FIRST, "violated", violation=Violation("keeps what it is", "rope", "mine", "is wrong.", {}, 2.0)
                )
            ),
            False,
        ),
    ],
)
def test_there_is_something_that_fails_if_and_only_if_the_report_is_not_ok(report, ok):
    assert report.ok == ok
    assert [result for result in results(report) if not result.known] == [] or not ok
    assert ("<failure" in junit(report) or "<error" in junit(report)) == (not ok)
    assert ("::error" in annotations(report)) == (not ok)


def test_in_junit_a_cause_is_a_test_that_fails_and_a_law_that_holds_one_that_passes():
    (suite,) = ElementTree.fromstring(junit(broken()))
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {FIRST: ["failure"], FOURTH: ["error"], THIRD: ["skipped"], "holds[rope]": []}
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert suite.find("testcase").get("time") == "2.0"  # of all laws that the cause breaks
    (known,) = ElementTree.fromstring(junit(broken(known=True)))
    assert [child.tag for case in known.iter("testcase") for child in case] == ["skipped", "skipped", "skipped"]


TEXT, NATURAL = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}


def required(**properties):
    return {"type": "object", "required": list(properties), "properties": properties}


def listed(items):
    return {"type": "array", "minItems": 1, "items": items}


MESSAGE = required(text=TEXT)
LOCATION = required(
    physicalLocation=required(
        artifactLocation=required(uri={"type": "string", "pattern": r"^[\w./%-]+$"}), region=required(startLine=NATURAL)
    )
)
SARIF = required(  # what SARIF 2.1.0 requires, and code scanning besides, of what is written
    version={"const": "2.1.0"},
    runs=listed(
        required(
            tool=required(
                driver=required(
                    name=TEXT,
                    rules=listed(required(id=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE, help=MESSAGE)),
                )
            ),
            invocations=listed(required(executionSuccessful={"type": "boolean"})),
            results=listed(
                required(
                    ruleId=TEXT,
                    ruleIndex=NATURAL,
                    level={"const": "error"},
                    message=MESSAGE,
                    locations=listed(LOCATION),
                )
                | {"partialFingerprints": required(primaryLocationLineHash=TEXT)}
            ),
        )
    ),
)


def test_sarif_has_what_code_scanning_needs():
    found = json.loads(sarif(broken()))
    assert [error.message for error in Draft202012Validator(SARIF).iter_errors(found)] == []
    (run,) = found["runs"]
    assert [(r["ruleId"], run["tool"]["driver"]["rules"][r["ruleIndex"]]["id"]) for r in run["results"]] == [
        (FIRST, FIRST),
        (FOURTH, FOURTH),
    ]
    assert run["results"][0]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/my%20kernels.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7},
    }
    again = json.loads(sarif(broken("another")))["runs"][0]["results"]
    assert again[0]["partialFingerprints"] != run["results"][0]["partialFingerprints"]
    assert all("baselineState" not in result for result in run["results"])


@pytest.mark.parametrize("name", ["mine", HOSTILE])
def test_whatever_a_name_is_made_of_the_forms_stay_well_formed(name):
    report = broken(name)
    lines = annotations(report).splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"::error file=src/my kernels.py,line=7,title=[^,:]+::.+", line) for line in lines)
    (suite,) = ElementTree.fromstring(junit(report))
    assert "\x00" not in suite.get("name")
    assert len(list(suite.iter("testcase"))) == 4
    (run,) = json.loads(sarif(report))["runs"]
    assert run["results"][0]["properties"]["implementation"] == name
    assert "\n" not in lines[0].encode(errors="replace").decode()
    junit(report).encode()  # no half of a character is left


def test_a_message_is_read_again_as_it_was_written():
    (line, _) = annotations(broken()).splitlines()
    _, _, message = line.partition("mine%3A rope%3A a-bug::")
    read = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert read == results(broken())[0].summary


# -- Where functions are written ---------------------------------------------------------------------


def rope(x, start_pos=0):
    return x


LINE = rope.__code__.co_firstlineno


@wraps(rope)
def decorated(*arguments):
    return rope(*arguments)


class Callable:
    def __call__(self, x, start_pos=0):
        return x


class Hostile:
    def __getattr__(self, name):
        raise OSError("there is nothing")

    def __call__(self, x, start_pos=0):
        return x


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (rope, LINE),
        (decorated, LINE),
        (partial(rope, start_pos=0), LINE),
        (Callable(), Callable.__call__.__code__.co_firstlineno),
        (np.add, 1),
        (json.dumps, 1),
        (Hostile(), 1),
    ],
    ids=["plain", "decorated", "partial", "object", "ufunc", "of a library", "hostile"],
)
def test_a_function_is_where_it_is_written_or_else_where_it_is_offered(function, line, monkeypatch):
    root = Path(properties.__file__).parents[1]
    monkeypatch.chdir(root)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    assert sources({"rope": function}, f"{__name__}:adapter") == {"rope": ("properties/tests/test_outputs.py", line)}
    monkeypatch.setenv("GITHUB_WORKSPACE", str(root.parent))
    monkeypatch.chdir(root / "docs")
    assert sources({"rope": function}, f"{__name__}:adapter") == {
        "rope": (f"{root.name}/properties/tests/test_outputs.py", line)
    }


# -- The command -------------------------------------------------------------------------------------


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    (tmp_path / "kernels_of_outputs.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


LAWS = ["--laws", "rope is within its error limit", "rotation keeps the norm of each pair"]
VERIFY = ["verify", "kernels_of_outputs:half", *LAWS, "--max-examples", "8", "--jobs", "1"]


def test_the_command_writes_all_forms_and_annotates_in_a_workflow(kernels, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main([*VERIFY, "--junit", "out.xml", "--sarif", "out.sarif", "--json", "-"]) == 1
    printed = capsys.readouterr()
    json.loads(printed.out)
    said = "::error file=kernels_of_outputs.py,line=4,title=attnspec%3A half%3A rope%3A rope-half-split-pairs::out["
    (line,) = [line for line in printed.err.splitlines() if line.startswith("::")]
    assert line.startswith(said)
    assert ElementTree.parse("out.xml").getroot().find("testsuite").get("failures") == "1"
    (result,) = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
    assert len(result["properties"]["laws"]) == 2


@pytest.mark.parametrize("option", ["--junit", "--sarif"])
@pytest.mark.parametrize("name", ["", ".", "no/such/folder/file", "kernels_of_outputs.py/file"])
def test_what_cannot_be_written_is_refused_before_the_work(kernels, capsys, option, name):
    assert main([*VERIFY, option, name]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"attnspec: .*(cannot be written|empty name).*\.\n", printed.err)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file, link = tmp_path / "file.txt", tmp_path / "link.txt"
    file.write_text("before")
    link.symlink_to(file)
    with pytest.raises(UnicodeEncodeError):
        write_whole(link, "after \udcff")
    assert file.read_text() == "before"
    write_whole(link, "after")
    assert (file.read_text(), link.is_symlink()) == ("after", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt", "link.txt"]
    write_whole(Path("/dev/null"), "nothing")
    assert not Path("/dev/null").is_file()
