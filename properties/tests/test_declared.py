"""Whatever arithmetic an implementation declares, no law is broken by what is right in it;
`make test-all` has the conventions.
"""

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


@pytest.mark.parametrize(
    "name",
    [
        "hard_masked_softmax_vjp",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("scaled_dot_product_attention_vjp", "attention_jvp")
        ),
    ],
)
def test_what_budgets_of_coarse_arithmetic_cannot_tell_is_no_false_alarm(name):
    """Derivatives that are right but for the rounding of what is returned, judged as if every step
    between were rounded to bfloat16.
    """
    o, a = OPERATIONS[name], preset("bfloat16-eager")
    right = meaning(o, Conventions())

    def coarse(*arguments, **options):
        found = right(*arguments, **options)
        return tuple(
            x if x is None else rounded(x, o.stored(of, a, result=True)) for of, x in zip(o.outputs, found, strict=True)
        )

    function = coarse if len(o.outputs) > 1 else lambda *arguments: rounded(right(*arguments), a.output)
    found = verify(
        Implementation("oracle", {name: function}, arithmetic=a, dtype="float64", features=FEATURES), max_examples=8
    )
    assert found.ok, [(each.law, each.status, each.reason) for each in found.outcomes if each.status not in PASSING]
    (agreement,) = (each for each in found.outcomes if each.law_id in {law.id for law in AGREEMENT})
    assert 10 * agreement.informative >= agreement.examples
