"""Signatures of `spec` and `oracles` are unchecked here, as in a user's program: their own tests check them, at most of the time."""

import pytest


@pytest.fixture(autouse=True)
def _as_users_run_it(unchecked):
    """Every test of `properties`."""
