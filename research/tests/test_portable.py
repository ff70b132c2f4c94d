"""Which processors are played, and which differences between them count."""

import os
import subprocess
import sys

import pytest

from research import portable
from research.portable import KERNELS, TESTS, Setting, another, compared, settings

OUTCOME = {"status": "held", "examples": 25, "informative": 20, "worst_excess": 0.5, "seconds": 1.0}


@pytest.fixture(scope="module")
def found():
    return list(settings())


def test_the_own_setting_comes_first_and_every_kernel_is_played_or_has_a_reason(found):
    assert found[0].environment == {}
    assert {one.name for one in found if one.environment.get("OPENBLAS_CORETYPE")} == set(KERNELS)
    assert all(one.environment or one.reason for one in found[1:])
    assert all(one.reason.endswith(".") for one in found if one.reason)


def test_another_setting_has_another_kernel_or_level_than_the_machine(found):
    one = another(found)
    if one.reason:
        pytest.skip(one.reason)
    assert portable._probed(one.environment) != portable._probed({})


def test_where_there_is_no_other_setting_a_sentence_says_so():
    only = [
        Setting("this machine's own"),
        Setting("Zen", {"OPENBLAS_CORETYPE": "Zen"}, "OpenBLAS takes another for it."),
    ]
    assert another(only).reason == "There is no other that this processor can run."


def test_values_may_differ_and_verdicts_may_not():
    here = {"a law": OUTCOME, "another": OUTCOME}
    assert compared(here, here) == ([], 0)
    assert compared(here, {"a law": OUTCOME | {"worst_excess": 0.25, "seconds": 2.0}, "another": OUTCOME}) == ([], 1)
    assert compared(here, {"a law": OUTCOME | {"informative": 19}, "another": OUTCOME}) == (
        ["a law: informative is 19 and not 20."],
        0,
    )
    (missing,), _ = compared(here, {"a law": OUTCOME})
    assert missing.startswith("another: status is None and not 'held'")


def test_the_tests_that_are_run_elsewhere_are_there():
    for file, _, test in (name.partition("::") for name in TESTS):
        assert f"def {test}" in (portable.ROOT / file).read_text("utf-8")


def test_a_setting_that_fails_or_differs_is_named(monkeypatch, capsys):
    played = [Setting("own"), Setting("Zen", {"Z": "1"}), Setting("old", {}, "It is not here.")]
    monkeypatch.setattr(portable, "settings", lambda: iter(played))
    outcomes = {"own": {"a law": OUTCOME}, "Zen": {"a law": OUTCOME | {"status": "violated"}}}
    monkeypatch.setattr(portable, "_outcomes", lambda setting, examples, jobs: outcomes[setting.name])
    monkeypatch.setattr(portable, "_tested", lambda setting, jobs: True)
    assert portable.main([]) == 1
    printed = capsys.readouterr().out
    assert "a law: status is 'violated' and not 'held'." in printed
    assert "== old: It is not here." in printed
    assert printed.endswith("Not the same: Zen.\n")


def test_the_same_case_has_the_same_verdict_under_another_kernel_and_level(found):
    """Laws that rounding once decided: for the mutant's dk they hold, but for its own rounding,
    where the right dk is 0 ± 0.
    """
    laws = [
        f"{law}[scaled_dot_product_attention_vjp]"
        for law in (
            "the order of channels does not matter",
            "a view gives the same result as its contiguous copy",
        )
    ]
    kills = f"[kills_of(law, ['vjp-transpose-missing-when-square']) for law in {laws}]"
    code = f"from properties.tests.kills import kills_of; print({kills})"
    for environment in ({}, another(found).environment):
        variables = os.environ | environment
        ran = subprocess.run(
            [sys.executable, "-c", code], env=variables, capture_output=True, text=True, cwd=portable.ROOT
        )
        assert ran.stdout == "[{}, {}]\n", ran.stderr
