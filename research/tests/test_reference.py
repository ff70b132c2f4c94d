"""The reference that known bugs are mutants of keeps every law, on more inputs than `make verify` has."""

import pytest

from properties.bugs import reference
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.laws import LAWS
from properties.verifier.plan import grouped
from properties.verifier.verify import examine

NUMPY = Implementation("NumPy", reference.REFERENCE, features=FEATURES)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_reference_keeps_every_law_and_each_has_something_to_say(operation):
    (laws,) = grouped(law for law in LAWS if law.operation == operation)
    found = {o.law: (o.status, o.reason) for o in examine(laws, NUMPY, 40, 1)}
    assert {law: said for law, said in found.items() if said[0] not in ("held", "not applicable")} == {}
    assert {law: said for law, said in found.items() if said[1].startswith("It says nothing")} == {}
