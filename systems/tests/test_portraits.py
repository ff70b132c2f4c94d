"""Portraits of the implementations that come with attnspec: what is inferred is what is declared."""

import pytest

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.inspection.form_trials import NoFormError
from properties.portraits.portrait import inspect
from systems import GROUPS

IMPLEMENTATIONS = [
    implementation for members in GROUPS.values() for implementation in members if not implementation.unavailable
]

_REFUSES_BOTH = "torch SDPA math, float masks"
"""It is declared for masks or causality; the functions refuse both together."""


@pytest.mark.thorough
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda implementation: implementation.name)
def test_no_convention_is_read_that_contradicts_the_declared_one(implementation: Implementation) -> None:
    for portrait in inspect(implementation).operations:
        assert not [text for text in portrait.anomalies if text.startswith("The adapter declares")]
        if not implementation.known_deviations:
            assert portrait.anomalies == ()


@pytest.mark.thorough
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda implementation: implementation.name)
def test_the_bare_functions_show_the_declared_conventions(implementation: Implementation) -> None:
    """A function that cannot be called in any way that was tried says so."""
    declared = implementation.resolved_conventions
    for name, function in implementation.operations.items():
        if OPERATIONS[name].is_played or implementation.known_deviations:
            continue
        try:
            (portrait,) = inspect({name: function}).operations
        except NoFormError:
            continue
        for convention, value in portrait.conventions.items():
            if convention == "causal_with_mask" and implementation.name.startswith(_REFUSES_BOTH):
                continue
            if convention == "mask_polarity" and implementation.support.entries:
                continue  # the adapter declares masks of numbers; the function takes booleans too
            assert value == getattr(declared, convention), (name, convention)
