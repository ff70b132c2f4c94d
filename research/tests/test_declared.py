"""Whatever conventions an implementation declares, no law of any operation is broken by what is right in them."""

from dataclasses import fields
from typing import get_args

import pytest

from oracles import Conventions
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.tests.readings import meaning
from properties.verifier.verify import verify

NAMED = {field.name: values for field in fields(Conventions) if (values := get_args(field.type))}
NUMBERS = {"rope_base": (10000.0, 100.0, 1.0, 500_000.0), "rope_scale": (1.0, 0.25, 2.0)}
LATER = (1, 2, 3, 4)
"""Readings, each of the values so many places behind the default: with these every value occurs."""


def test_every_value_is_read():
    for name, values in (NAMED | NUMBERS).items():
        assert {values[later % len(values)] for later in LATER} >= set(values[1:]), name


@pytest.mark.parametrize("later", LATER)
def test_no_reading_is_a_false_alarm(later):
    """Each value but the default is that of some implementation, which has all operations, those
    too that it does not concern.
    """
    reading = Conventions(**{name: values[later % len(values)] for name, values in (NAMED | NUMBERS).items()})
    operations = {name: meaning(o, reading) for name, o in OPERATIONS.items()}
    implementation = Implementation("oracle", operations, conventions=reading, features=FEATURES)
    found = verify(implementation, max_examples=10, seed=later)
    assert not [
        (o.law_id, o.reason or o.violation) for o in found.outcomes if o.status in ("violated", "vacuous", "not run")
    ]
