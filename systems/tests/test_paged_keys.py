"""Implementations of paged attention that share no formula with the reference keep every law."""

import pytest

from properties import verify
from systems.paged_keys import IMPLEMENTATIONS


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda i: i.name)
def test_a_paged_implementation_keeps_every_law(implementation):
    report = verify(implementation, max_examples=8, seed=3)
    assert report.ok, report
