"""Test settings that hold everywhere: shapes and types in signatures are checked, and Hypothesis
draws the same cases every time.
"""

import gc
import os
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import get_args

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread for each test process, and for those that it starts

import jaxtyping
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from jaxtyping import config, install_import_hook, jaxtyped
from threadpoolctl import threadpool_limits

threadpool_limits(int(os.environ["OMP_NUM_THREADS"]), "blas")  # pytest's plugins have imported NumPy before

gc.disable()  # what is collected lives to the end: looking for garbage would take a third of the collection


def pytest_collection_finish():
    """Look for garbage from now on, and only in what the tests make."""
    gc.freeze()
    gc.enable()


def states_a_shape(annotation):
    """Whether an annotation, or a part of it, states a shape."""
    return hasattr(annotation, "dim_str") or any(map(states_a_shape, get_args(annotation)))


def checked(*, typechecker):
    """jaxtyping's decorator, if the shapes of one call have to be compared.

    For types alone the checker is enough, and faster. A function within a function is not checked,
    because each call makes it, and its checks, again.
    """

    def decorated(function):
        if "<locals>" in getattr(function, "__qualname__", ""):
            return function
        if not isinstance(function, FunctionType) or any(map(states_a_shape, function.__annotations__.values())):
            return jaxtyped(typechecker=typechecker)(function)
        typed = typechecker(function)
        return wraps(function)(
            lambda *given, **named: (function if config.jaxtyping_disable else typed)(*given, **named)
        )

    return decorated


jaxtyping.jaxtyped = checked  # what the hook writes above every function

# The modules that are checked. Tests are not: pytest rewrites their assertions so that a failure
# shows both sides. `properties` is not: beartype samples containers with `random`, which Hypothesis
# forbids in strategies. The modules that find the scalar and keep the signature of each call check
# types themselves, and a row of `rounding_columns` is a dataclass's field with the type of its value.
root = Path(__file__).parent
modules = [
    path
    for package in ("spec", "oracles")
    for path in sorted((root / package).rglob("[!_]*.py"))
    if "tests" not in path.relative_to(root).parts
]
names = {".".join(path.relative_to(root).with_suffix("").parts) for path in modules} - {
    "spec.lean",
    "spec.scope",
    "spec.signature",
    "oracles.error_analysis.rounding_columns",
}
install_import_hook(sorted(names), "beartype.beartype")

# Derandomised: the same cases on every machine. No database: nothing is carried from one run into
# the next. No deadline: machines differ.
settings.register_profile("attnspec", database=None, derandomize=True, deadline=None, max_examples=30)
settings.register_profile("thorough", settings.get_profile("attnspec"), max_examples=100)  # of `make test-all`
settings.load_profile("attnspec")

# Hypothesis also draws the constants of all modules imported so far: without them, cases do not
# depend on which tests ran before.
providers._get_local_constants = Constants


@pytest.fixture(autouse=True, scope="module")
def _as_users_run_it(request):
    """Signatures are checked in the tests of `spec` and `oracles`, and unchecked elsewhere, as in a user's program."""
    config.update("jaxtyping_disable", request.path.relative_to(root).parts[0] not in ("spec", "oracles"))
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def unchecked():
    """Signatures unchecked, as a user's program runs: what is refused is refused by the function's own sentence."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
