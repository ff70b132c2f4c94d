"""FP8 attention and an INT8 cache keep every law, and a kernel that rounds weights as they are does not."""

from dataclasses import replace

import pytest

from properties import verify
from systems import quantised_attention
from systems.quantised_attention import IMPLEMENTATIONS


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda i: i.name)
def test_a_quantised_implementation_keeps_every_law(implementation):
    report = verify(implementation, max_examples=8, seed=3)
    assert report.ok, report


def test_weights_that_are_rounded_without_their_factor_are_outside_the_error_limit(monkeypatch):
    monkeypatch.setattr(quantised_attention, "_FACTOR", 1.0)
    kernel = replace(IMPLEMENTATIONS[0], name="no factor")
    report = verify(kernel, laws=["attention with options is within its error limit[attention]"], max_examples=16)
    assert not report.ok
