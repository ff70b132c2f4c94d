"""Signatures of `spec` and `oracles` are unchecked here, as in a user's program: their own tests check them, at most of the time."""

import pytest
from jaxtyping import config


@pytest.fixture(autouse=True, scope="module")
def _as_users_run_it():
    """Every test of `properties`, and what a module of them prepares once."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
