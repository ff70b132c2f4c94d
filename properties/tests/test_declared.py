"""Whatever conventions and arithmetic an implementation declares, no law of any operation is broken by what is right in them."""

from dataclasses import fields
from typing import get_args

import pytest

from oracles import Conventions
from oracles.formats import preset
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws.agreement import AGREEMENT
from properties.strategies.choices import rounded
from properties.tests.readings import meaning
from properties.verifier.report import PASSING
from properties.verifier.verify import verify

NAMED = {field.name: values for field in fields(Conventions) if (values := get_args(field.type))}
NUMBERS = {"rope_base": (10000.0, 100.0, 1.0, 500_000.0), "rope_scale": (1.0, 0.25, 2.0)}
LATER = (5, 7, 10)
"""Readings, each of the values so many places behind the default: with these every value occurs."""


def test_every_value_is_read():
    for name, values in (NAMED | NUMBERS).items():
        assert {values[later % len(values)] for later in LATER} >= set(values[1:]), name


def alarms(later):
    """What is wrong with an implementation of all operations that is right in one of the readings."""
    reading = Conventions(**{name: values[later % len(values)] for name, values in (NAMED | NUMBERS).items()})
    operations = {name: meaning(o, reading) for name, o in OPERATIONS.items()}
    implementation = Implementation("oracle", operations, conventions=reading, features=FEATURES)
    found = verify(implementation, max_examples=10, seed=later)
    return [(o.law_id, o.reason or o.violation) for o in found.outcomes if o.status in ("violated", "vacuous", "not run")]


def test_no_alarm_is_false_in_the_first_reading():
    """`make test-all` has the other readings."""
    assert alarms(LATER[0]) == []


@pytest.mark.parametrize("name", ["scaled_dot_product_attention_vjp", "attention_jvp"])
def test_what_budgets_of_coarse_arithmetic_cannot_tell_is_no_false_alarm(name):
    """Derivatives that are right but for the rounding of what is returned, judged as if every step between were rounded to bfloat16."""
    o, a = OPERATIONS[name], preset("bfloat16-eager")
    right = meaning(o, Conventions())

    def coarse(*arguments, **options):
        found = right(*arguments, **options)
        return tuple(x if x is None else rounded(x, o.stored(of, a, result=True)) for of, x in zip(o.outputs, found, strict=True))

    function = coarse if len(o.outputs) > 1 else lambda *arguments: rounded(right(*arguments), a.output)
    found = verify(Implementation("oracle", {name: function}, arithmetic=a, dtype="float64", features=FEATURES), max_examples=8)
    assert found.ok, [(each.law, each.status, each.reason) for each in found.outcomes if each.status not in PASSING]
    (agreement,) = (each for each in found.outcomes if each.law_id in {law.id for law in AGREEMENT})
    assert 10 * agreement.informative >= agreement.examples
