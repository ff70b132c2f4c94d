"""That tests check signatures: what they call with what is no array is refused by the checker,
before the function is begun.
"""

import pytest
from beartype.roar import BeartypeCallHintParamViolation
from jaxtyping import TypeCheckError

from oracles.ball import Ball, total


@pytest.mark.parametrize("call", [lambda: total("1"), lambda: Ball("1", 0)], ids=["a function", "a dataclass"])
def test_what_is_no_array_is_refused_by_the_checker(call):
    with pytest.raises((BeartypeCallHintParamViolation, TypeCheckError)):
        call()
