"""Two reports compared, and a verification against an earlier one: what is new fails, and nothing else."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from properties.command.cli import main
from properties.verifier.comparison import Change, Known, against, compared
from properties.verifier.report import Cause, Diagnosis, Outcome, Report, Violation
from properties.views.compared import print_comparison

LAW = "keeps what it is[rope]"


def outcome(status, *causes, law="keeps what it is", **more):
    diagnosis = tuple(Diagnosis(cause) for cause in causes)
    violation = (
        Violation(law, "rope", "mine", "is wrong.", {}, 2.0, diagnosis=diagnosis) if status == "violated" else None
    )
    return Outcome(law, "rope", "mine", status, violation=violation, **more)


def report_of(*outcomes, strict=False, **settings):
    return Report(outcomes, {"max_examples": 10, "seed": 0, **settings}, strict=strict)


def changes(was, now):
    before, after = (report_of(*(x,) if x else ()).to_dict() for x in (was, now))
    return compared(before, after)


ALONE = {"unavailable": True}


@pytest.mark.parametrize(
    ("was", "now", "broke", "mended", "unchecked"),
    [
        (outcome("held"), outcome("held"), 0, 0, 0),
        (outcome("held"), outcome("violated", "a"), 1, 0, 0),
        (outcome("held"), outcome("vacuous"), 1, 0, 0),
        (outcome("held"), outcome("not run"), 1, 0, 1),
        (None, outcome("violated"), 1, 0, 0),
        (None, outcome("held"), 0, 0, 0),
        (outcome("violated", "a"), outcome("violated", "a"), 0, 0, 0),
        (outcome("violated", "a", "b"), outcome("violated", "b", "c"), 0, 0, 0),
        (outcome("violated", "a"), outcome("violated", "b"), 1, 0, 0),
        (outcome("violated", "a"), outcome("violated"), 0, 0, 0),
        (outcome("violated"), outcome("violated", "a"), 0, 0, 0),
        (outcome("violated"), outcome("vacuous"), 0, 0, 0),
        (outcome("violated"), outcome("not run"), 0, 0, 1),
        (outcome("not run"), outcome("not run"), 0, 0, 0),
        (outcome("not run", **ALONE), outcome("not run"), 1, 0, 0),
        (outcome("not run"), outcome("violated"), 1, 0, 0),
        (outcome("vacuous"), outcome("violated"), 1, 0, 0),
        (outcome("violated"), outcome("held"), 0, 1, 0),
        (outcome("not run"), outcome("held"), 0, 1, 0),
        (outcome("violated"), outcome("declared"), 0, 0, 0),
        (outcome("violated"), outcome("not applicable"), 0, 0, 1),
        (outcome("held"), outcome("not run", **ALONE), 0, 0, 1),
        (outcome("held"), None, 0, 0, 1),
        (outcome("not applicable"), None, 0, 0, 0),
    ],
)
def test_a_law_broke_or_was_mended_or_is_no_longer_checked(was, now, broke, mended, unchecked):
    found = changes(was, now)
    assert (len(found.broke), len(found.mended), len(found.unchecked)) == (broke, mended, unchecked)
    if now is not None and was is not None:
        report, _ = against(report_of(now), report_of(was).to_dict())
        fails = report_of(now).fails(now)
        assert report.outcomes[0].known == (fails and not broke)
        assert report.ok == (report_of(now).ok or report.outcomes[0].known)


def test_what_is_suspicious_fails_where_both_are_strict_only_if_it_is_new():
    held, suspicious = outcome("held"), outcome("suspicious", suspicious=1)
    assert against(report_of(suspicious, strict=True), report_of(suspicious).to_dict())[0].ok
    assert not against(report_of(suspicious, strict=True), report_of(held).to_dict())[0].ok


def timed(seconds, examples=10, **more):
    return outcome("held", examples=examples, seconds=seconds, **more)


@pytest.mark.parametrize(
    ("was", "now", "slower"),
    [
        (timed(1.0), timed(2.0), [Change("mine", "rope", "100 ms", "200 ms", "per test input")]),
        (timed(1.0), timed(1.9), []),
        (timed(1.0), timed(2.0, examples=20), []),  # as long for each
        (timed(0.01), timed(0.9), []),  # less than a second in all
        (timed(0.0, examples=0), timed(9.0), []),
    ],
)
def test_an_operation_is_slower_by_the_time_of_an_example(was, now, slower):
    assert list(changes(was, now).slower) == slower


@pytest.mark.parametrize(
    ("was", "now", "further"), [(0.1, 0.2, ["0.1 → 0.2"]), (0.1, 0.19, []), (0.0, 0.0, []), (0.2, 0.1, [])]
)
def test_a_law_that_holds_is_further_from_the_exact_value_by_its_largest_error(was, now, further):
    found = changes(outcome("held", worst_excess=was), outcome("held", worst_excess=now)).further
    assert [f"{change.was} → {change.now}" for change in found] == further


def printed(comparison):
    console = Console(file=io.StringIO(), width=100)
    print_comparison(console, comparison, "a.json", "b.json")
    return console.file.getvalue()


def test_it_is_told_law_by_law_with_a_verdict_and_with_what_makes_cases_differ():
    was = report_of(outcome("held"), outcome("violated", law="adds up"), seed=1, laws=["x"])
    found = compared(
        was.to_dict(), report_of(outcome("violated", "a[red]bug"), outcome("held", law="adds up")).to_dict()
    )
    assert printed(found) == (
        "The reports differ in laws and seed, so their test inputs differ.\n"
        "✗ fails now (1)\n"
        "  mine: keeps what it is[rope]: passes → fails, a[red]bug\n"
        "✓ passes again (1)\n"
        "  mine: adds up[rope]: fails → passes\n"
        "1 new failure from a.json to b.json; 1 passes again.\n"
    )
    many = [outcome("violated", law=f"law {n}") for n in range(30)]
    assert "  … and 10 more\n30 new failures" in printed(compared(report_of().to_dict(), report_of(*many).to_dict()))
    assert printed(compared(was.to_dict(), was.to_dict())) == "No new failure from a.json to b.json; 0 pass again.\n"


KERNELS = """
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE

right = {"rope": REFERENCE["rope"]}
half = {"rope": CATALOGUE["rope-half-split-pairs"].fresh()}
backwards = {"rope": CATALOGUE["rope-turns-backwards"].fresh()}
"""


def test_a_violation_is_known_by_its_law_and_by_its_cause():
    known = Known.of(report_of(outcome("violated", "a", "b"), outcome("vacuous", law="adds up")).to_dict())
    assert known.has("mine", LAW)
    assert not known.has("mine", "adds up[rope]")
    assert not known.has("another", LAW)
    assert not Known.of(None).has("mine", LAW)

    def cause(*names, laws=(LAW,)):
        diagnosis = tuple(Diagnosis(name) for name in names)
        return Cause("mine", laws, Violation("", "rope", "mine", "is wrong.", {}, 2.0, diagnosis=diagnosis))

    assert [known.may_be(cause(*names)) for names in (["b", "c"], [], ["c"])] == [True, True, False]
    assert not known.may_be(cause("a", laws=(LAW, "adds up[rope]")))


SEVERAL = """
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE

half, backwards = ({"rope": CATALOGUE[name].fresh()} for name in ("rope-half-split-pairs", "rope-turns-backwards"))
right = {name: REFERENCE[name] for name in ("rope", "rotate_half")}
turned = {"rotate_half": lambda x: -REFERENCE["rotate_half"](x)}
known, another, new = [half, {**right, **half}], [backwards, right], [{**half, **turned}, right]
"""


@pytest.mark.thorough
def test_it_fails_fast_at_what_is_new_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "several_compared.py").write_text(SEVERAL)
    monkeypatch.chdir(tmp_path)

    def verify(name, *options):
        Path("adapter_of_several.py").write_text(
            f"import properties\nimport several_compared as s\n{MADE}".replace("NAME", name)
        )
        laws = [
            "--laws",
            "rope is within its error limit",
            "rotate_half returns the negated second half, then the first",
        ]
        status = main(
            ["verify", "adapter_of_several:made", *laws, "--max-examples", "10", "--jobs", "1", "--json", "-", *options]
        )
        report = json.loads(capsys.readouterr().out)
        return status, [(o["implementation"], o["operation"], o["status"]) for o in report["outcomes"]], report

    status, outcomes, report = verify("known")
    Path("was.json").write_text(json.dumps(report))
    held = ("second", "rotate_half", "held")
    assert (status, outcomes) == (1, [("first", "rope", "violated"), ("second", "rope", "violated"), held])
    fast = ["--baseline", "was.json", "--fail-fast"]
    assert verify("known", *fast)[:2] == (0, outcomes)  # what is known ends nothing
    assert verify("new", *fast)[1] == [("first", "rope", "violated"), ("first", "rotate_half", "violated"), *NOT_RUN]
    assert verify("another", *fast)[1] == [
        ("first", "rope", "violated"),
        *NOT_RUN,
    ]  # by another cause: told when that is known


MADE = "made = [properties.Implementation(name, one) for name, one in zip(('first', 'second'), s.NAME)]"
NOT_RUN = [("second", "rope", "not run"), ("second", "rotate_half", "not run")]


def test_the_command_fails_on_what_is_new_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "kernels_compared.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)

    def verify(name, *options):
        Path("adapter_compared.py").write_text(f"from kernels_compared import {name} as adapter\n")
        laws = [
            "--laws",
            "rope is within its error limit",
            "rotation keeps the norm of each pair",
            "f(a) + f(b) = f(a + b)",
        ]
        status = main(["verify", "adapter_compared:adapter", *laws, "--max-examples", "10", "--jobs", "1", *options])
        return status, capsys.readouterr()

    assert verify("half", "--json", "half.json")[0] == 1
    status, said = verify("half", "--baseline", "half.json", "--json", "again.json", "--fail-fast")
    assert status == 0  # nothing ends early
    assert "2 of them known in the baseline (" in said.out
    assert said.out.endswith("No new failure from half.json to now; 0 pass again.\n")
    again = json.loads(Path("again.json").read_text())
    assert (again["ok"], sum(o["known"] for o in again["outcomes"])) == (True, again["counts"]["violated"])
    assert verify("backwards", "--baseline", "half.json")[0] == 1  # the same law, and another cause
    assert verify("right", "--baseline", "half.json", "--json", "right.json", "--fail-fast")[0] == 0
    assert main(["compare", "half.json", "right.json"]) == 0
    assert main(["compare", "right.json", "half.json"]) == 1
    capsys.readouterr()
    assert main(["compare", "right.json", "kernels_compared.py"]) == 2
    assert (
        capsys.readouterr().err
        == "attnspec: kernels_compared.py is not JSON, but should be what `attnspec verify --json` writes.\n"
    )
    assert (
        verify("right", "--baseline", "nowhere.json")[1].err
        == "attnspec: nowhere.json cannot be read: No such file or directory.\n"
    )
