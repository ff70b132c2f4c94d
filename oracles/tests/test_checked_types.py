"""Tests check the types of arguments in every wing of the oracles: conftest.py hooks their modules."""

import pytest
from beartype.roar import BeartypeCallHintParamViolation

from oracles import positional
from oracles.error_analysis import computation
from oracles.exact import attention
from oracles.rotary import frequency_kinds


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (positional.stored, ("a", "b", "c")),
        (computation.roundoff, (3,)),
        (attention._with, (3, ())),
        (frequency_kinds.exactly, ("a",)),
    ],
)
def test_an_argument_of_another_type_is_refused(function, arguments):
    with pytest.raises(BeartypeCallHintParamViolation):
        function(*arguments)
