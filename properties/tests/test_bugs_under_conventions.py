"""The reference and the known bugs follow the conventions that an implementation declares, so that a
bug has its name under the conventions of every library.
"""

from typing import get_args

import numpy as np
import pytest

from oracles import FLOAT64, Conventions
from oracles.conventions import DEFAULT
from properties.bugs import CATALOGUE
from properties.bugs.declared import FOLLOWED, declared, under
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.laws import LAWS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.verifier.diagnosis import causes_of
from properties.verifier.verify import examine

VALUES = [
    (field, value)
    for field in FOLLOWED
    for value in get_args(Conventions.__dataclass_fields__[field].type)
    if value != getattr(DEFAULT, field)
]
SLOW = ("131072 keys", "dominating keys")
"""Domains of cases that take long."""
BESIDE = {"dead_gradients": {"dead_rows": "uniform"}}
"""The convention without which another one changes nothing."""


def following(operation, conventions):
    """The reference of an operation under conventions."""
    function = under(conventions, operation, REFERENCE[operation])
    return Implementation("NumPy", {operation: function}, features=FEATURES, conventions=conventions, supports=())


@pytest.mark.parametrize(("field", "value"), VALUES, ids=[f"{field}={value}" for field, value in VALUES])
def test_the_reference_agrees_with_the_oracle_under_each_convention(field, value):
    conventions = Conventions(**{field: value, **BESIDE.get(field, {})})
    concerned = [o for o in OPERATIONS.values() if field in o.conventions and not o.is_played]
    assert concerned
    for operation in concerned:
        implementation = following(operation.name, conventions)
        domains = [domain for domain in DOMAINS[operation.name].values() if domain.name not in SLOW]
        for seed in range(len(domains)):
            arguments = Cases(operation, domains[seed % len(domains)], implementation).draw(seed)
            try:
                expected = operation.expected(arguments, FLOAT64, conventions)
            except ValueError:  # of a call that the convention refuses
                continue
            with np.errstate(all="ignore"):
                results = operation.call(implementation.operations[operation.name], arguments)
            results = results if isinstance(results, tuple) else (results,)
            present = [result for result in results if result is not None]
            for result, enclosure in zip(present, expected, strict=True):
                is_mask = isinstance(enclosure, np.ndarray)
                wrong = result != enclosure if is_mask else enclosure.excess(result) > 1
                assert not wrong.any(), (operation.name, domains[seed % len(domains)].name, seed)


def test_the_conventions_are_the_default_ones_again_after_a_call_that_raises():
    def refuses():
        assert declared() == bottom_right
        raise ValueError

    bottom_right = Conventions(causal="bottom_right")
    with pytest.raises(ValueError, match=r"^$"):
        under(bottom_right, "attention", refuses)()
    assert declared() == DEFAULT


LIBRARIES = {
    "flash-attention": {"causal": "bottom_right"},
    "FlashInfer": {"causal": "bottom_right", "lse_base": "2"},
    "JAX": {"dead_rows": "uniform"},
}
"""The conventions of libraries that differ from the defaults."""

RIGHT = {
    "causal-top-left-vs-bottom-right": "bottom right is the declared alignment",
    "causal-queries-past-the-last-key-begin-anew": "no query is past the last key",
    "causal-tall-rows-dead": "no query is past the last key",
    "sdpa-dead-rows-only-when-all-are": "the mean is the declared result of a fully masked row",
    "sdpa-one-key-shortcut": "the one value is the mean",
    "vjp-dead-rows-uniform": "equal weights are the declared ones",
}
"""Bugs that are right under another convention of a library, and why."""

UNNAMED = {
    "sdpa-overflow-becomes-nan": "the reference in float64 does not overflow",
    "sdpa-without-queries-raises": "a refusal explains nothing",
}
"""Bugs that diagnosis does not name under the default conventions either, and why."""


def rows():
    """Each known bug of an operation that follows a library's conventions, with the library; no bug of
    a twin, which is another path, and none that promises conventions of its own.
    """
    own = {"twins", "conventions"}
    tried = [bug for bug in CATALOGUE.values() if own.isdisjoint(bug.promises) and bug.id not in UNNAMED]
    for bug in tried:
        for library, conventions in LIBRARIES.items():
            is_concerned = not conventions.keys().isdisjoint(OPERATIONS[bug.operation].conventions)
            if is_concerned and bug.has_meaning(Conventions(**conventions)):
                yield bug.id, library


def causes(bug, implementation, operations):
    """The causes of what the bug's own law, and agreement, find wrong in some operations: on 20 cases,
    or on 200 for a bug that few cases show.
    """
    laws = [law for law in LAWS if law.agreement or law.name == bug.law]
    found = []
    for examples in (20, 200):
        for name in operations:
            found += examine([law for law in laws if law.operation == name], implementation, examples, 0)
        if any(outcome.violation for outcome in found):
            break
    return causes_of(implementation, [o.violation for o in found if o.violation], shrinks=False)


def check_named(name, library):
    """The bug is named, alone or beside others that the calls do not tell from it."""
    bug = CATALOGUE[name]
    found = causes(bug, MUTANTS[name].implementation(Conventions(**LIBRARIES[library])), [bug.operation])
    if found:
        assert any(name in [each.id for each in cause.diagnosis if not each.partial] for cause in found), found
    else:
        assert name in RIGHT


ROWS = [*rows()]


@pytest.mark.parametrize(("name", "library"), ROWS[::120])
def test_a_known_bug_is_named_under_the_conventions_of_a_library(name, library):
    check_named(name, library)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "library"), [row for row in ROWS if row not in ROWS[::120]])
def test_each_known_bug_is_named_under_the_conventions_of_each_library(name, library):
    check_named(name, library)


def check_one_cause(name, library, most=None):
    """All that one wrong comparison breaks, in the operations that make it, has one cause, the bug."""
    bug, conventions = CATALOGUE[name], Conventions(**LIBRARIES[library])
    operations = [each for each in bug.mutants if not each.startswith("multi_head")][:most]
    functions = {each: under(conventions, each, bug.mutants[each]()) for each in operations}
    implementation = Implementation(name, functions, features=FEATURES, conventions=conventions, supports=())
    (cause,) = causes(bug, implementation, operations)
    assert name in [each.id for each in cause.diagnosis]
    assert len({law.partition("[")[2] for law in cause.laws}) > 1


def test_one_wrong_comparison_is_one_cause_in_several_operations_that_make_it():
    check_one_cause("causal-attention-without-itself", "FlashInfer", most=3)


COMPARISONS = (
    "causal-attention-without-itself",
    "causal-attention-sees-one-ahead",
    "attention-window-one-key-too-many",
    "attention-window-bound-excluded",
    "sdpa-one-query-ignores-the-mask",
)


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", COMPARISONS)
def test_each_wrong_comparison_is_one_cause_under_the_conventions_of_each_library(name, library):
    check_one_cause(name, library)
