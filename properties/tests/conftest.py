"""Here signatures of `spec` and `oracles` are not checked, as in a user's program: their own tests do, and it would take most of the time."""

import pytest


@pytest.fixture(autouse=True)
def _as_users_run_it(unchecked):
    """Every test of `properties`."""
