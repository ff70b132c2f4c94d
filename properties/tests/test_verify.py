"""The verifier finds what is planted, shows it by a smallest case that runs, and gives the same answer for the same seed."""

import itertools
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import strategies as st

from oracles import BINARY16, FLOAT16, Conventions, Enclosure
from properties.__main__ import main
from properties.implementation import Deviation
from properties.implementations import GROUPS
from properties.laws import LAWS
from properties.report import script
from properties.tests import planted
from properties.tests.planted import FAULTS
from properties.verifier import check, excess, plan


def verify(where, *options):
    return main(["--implementations", where, "--jobs", "1", "--examples", "40", *options])


@pytest.fixture
def one_fault(monkeypatch):
    def use(name):
        monkeypatch.setattr(planted, "GROUPS", FAULTS[name], raising=False)
        return "properties.tests.planted:GROUPS"

    return use


def the_violation(name):
    (implementation,) = FAULTS[name]["planted"]
    outcomes = [check(law, i, 40, 0) for law, i in plan(LAWS, [implementation])]
    return next(o for o in outcomes if o.status == "violated")


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_the_run_with_a_case_that_can_be_pasted(name, one_fault, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert verify(one_fault(name)) == 1
    printed = capsys.readouterr().out
    assert "✗ violated" in printed
    start = printed.index("import numpy as np")
    code = printed[start : printed.index("](*case))\n", start) + len("](*case))\n")]
    raised = {"raises": ZeroDivisionError, "exits": SystemExit}.get(name)
    with pytest.raises(raised) if raised else nullcontext():
        exec(code, {})
    assert "should be Enclosure(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "size"),
    [("mask inverted", 2), ("causal off by one", 2), ("softmax over the wrong axis", 2), ("start position ignored in RoPE", 1)],
)
def test_the_case_shown_is_small(name, size):
    case = the_violation(name).violation.case
    assert all(max(x.shape) <= size + 1 for x in case if isinstance(x, np.ndarray)), case


def test_a_message_names_the_entry_what_it_is_and_what_it_should_be():
    summary = the_violation("start position ignored in the sinusoid").violation.summary
    assert re.fullmatch(r"out\[\d+, \d+\]=\S+, but should be \S+ ± \S+: the error is \S+ times its budget\.", summary)
    assert the_violation("wrong shape").violation.summary.startswith("out has shape (1, ")
    assert the_violation("raises").violation.summary == "raised ZeroDivisionError: integer division or modulo by zero"
    assert the_violation("writes into its input").violation.summary == "wrote into its inputs."
    assert "=nan, but should be " in the_violation("returns NaN").violation.summary
    assert the_violation("too many values").violation.summary == "returned 2 values, but should return 1."
    assert the_violation("another type of number").violation.summary == "out has dtype complex128, but should have dtype float64."
    assert the_violation("no array").violation.summary.startswith("out has shape list, but should have shape (")
    assert the_violation("exits").violation.summary == "raised SystemExit: 0"
    assert the_violation("a declared deviation hides another").violation.summary.startswith("out[")


def test_an_operation_that_gives_different_results_is_a_violation_that_says_so():
    law, implementation = plan(LAWS, GROUPS["positional encodings"][:1])[0]
    calls = itertools.count()
    correct = implementation.operations[law.operation]
    wrong_once = replace(implementation, operations={law.operation: lambda *case: correct(*case) + (next(calls) == 3)})
    outcome = check(law, wrong_once, 20, 0)
    assert (outcome.status, outcome.violation.summary) == ("violated", "gave different results when called again with the same case.")


def test_the_same_seed_gives_the_same_cases_and_another_seed_others():
    law, implementation = plan(LAWS, GROUPS["attention"])[0]
    first, again, other = (replace(check(law, implementation, 30, seed), seconds=0.0) for seed in (0, 0, 1))
    assert first == again
    assert first.worst != other.worst


def test_a_declared_deviation_that_does_not_happen_is_a_violation():
    law, implementation = plan(LAWS, GROUPS["positional encodings"])[0]
    outcome = check(law, replace(implementation, known_deviations={law.name: Deviation("none really", Conventions())}), 10, 0)
    assert outcome.status == "violated"
    assert outcome.violation.summary == "is declared to deviate, but held on 10 cases: the declaration should go. It says: none really"


def test_a_declaration_that_matches_no_law_is_refused():
    implementation = replace(
        GROUPS["attention"][0], known_deviations={"RoPE is exact within its budget": Deviation("it has none", Conventions())}
    )
    sentence = "torch math float64 declares to deviate from ['RoPE is exact within its budget'], but no such law applies to it."
    with pytest.raises(ValueError, match=re.escape(sentence)):
        plan(LAWS, [implementation])


def test_the_two_paths_of_torchs_multi_head_attention_differ_on_dead_rows_and_only_one_is_declared():
    law = next(law for law in LAWS if law.name == "a token that may attend to no token contributes zero")
    statuses = {i.name: check(law, i, 20, 0).status for i in GROUPS["multi-head attention"]}
    assert all(status == ("held" if "no weights" in name else "declared") for name, status in statuses.items())


def test_a_high_precision_number_is_judged_at_its_own_precision():
    with mpmath.workdps(50):
        third, tenth = mpmath.mpf(1) / 3, mpmath.mpf(1) / 10
        actual = np.array([third, tenth, mpmath.mpf(0), mpmath.mpf(0)], object)
    enclosure = Enclosure(np.array([1 / 3, 0.1, 0.0, 1.0]), np.array([2.0**-54, 2.0**-60, 0.0, 0.0]))
    assert [bool(x <= 1) for x in excess(actual, enclosure)] == [True, False, True, False]


def test_a_law_whose_budgets_are_all_vacuous_is_not_held(one_fault, monkeypatch, capsys):
    everything_in_16_bits = replace(FLOAT16, accumulate=2.0**-11, elementwise=BINARY16, sum_depth=None)
    (implementation,) = FAULTS["scale left out"]["planted"]
    law = next(law for law in LAWS if law.operation == "scaled_dot_product_attention")
    long = replace(law, cases=lambda _: st.just((*(np.ones((4096, 1)) * np.arange(4096.0)[:, None] % 2 for _ in range(3)), None)))
    outcome = check(long, replace(implementation, arithmetic=everything_in_16_bits), 1, 0)
    assert (outcome.status, outcome.informative) == ("vacuous", 0)


@pytest.mark.parametrize(
    "options",
    [["--examples", "0"], ["--jobs", "-1"], ["--seed", "x"], ["--implementations", "no.such:thing"], ["--implementations", "math:thing"]],
)
def test_nonsense_options_are_refused(options, capsys):
    with pytest.raises(SystemExit) as exit:
        main(options)
    assert exit.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_a_script_keeps_the_layout_of_its_arrays():
    x = np.arange(6.0).reshape(2, 3)
    outcome = the_violation("returns NaN")
    for array in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
        case = replace(outcome, violation=replace(outcome.violation, case=(array, 0)))
        arguments = re.search(r"case = \(\n    (.*),\n    0,\n\)", script(case, "m:n"), re.DOTALL).group(1)
        rebuilt = eval(arguments, {"np": np})
        assert np.array_equal(rebuilt, array)
        assert rebuilt.flags.c_contiguous == array.flags.c_contiguous


def test_an_interrupted_run_prints_what_it_knows_and_does_not_pass(monkeypatch, capsys):
    law, implementation = plan(LAWS, GROUPS["positional encodings"])[0]

    def interrupted(*_):
        yield "positional encodings", 0, check(law, implementation, 5, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr("properties.__main__.run", interrupted)
    assert main([]) == 1
    printed = capsys.readouterr().out
    assert "Interrupted: 1 of " in printed
    assert "1 held, 0 declared, 0 vacuous, 0 violated" in printed


def test_an_implementation_that_aborts_ends_the_run_with_a_sentence(tmp_path):
    (tmp_path / "aborting.py").write_text(
        "import os\n"
        "from dataclasses import replace\n"
        "from properties.implementations.torch_positional import IMPLEMENTATIONS\n"
        "GROUPS = {'g': [replace(IMPLEMENTATIONS[0], operations={'rope': lambda x, start_pos=0: os.abort()})]}\n"
    )
    command = [sys.executable, "-m", "properties", "--implementations", "aborting:GROUPS", "--jobs", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=120, check=False)
    assert ran.returncode == 1
    assert "A process died in an implementation: 0 of 2 checks were done." in ran.stdout
    assert "Traceback" not in ran.stderr


def test_a_script_says_what_should_be_in_the_conventions_that_are_declared(capsys):
    exec(
        script(the_violation("a declared deviation hides another"), "properties.implementations:GROUPS").replace(
            "'planted'", repr(GROUPS["multi-head attention"][0].name)
        ),
        {},
    )
    assert "nan" in capsys.readouterr().out.split("is [")[0]  # NaN is what should be on a dead row there
