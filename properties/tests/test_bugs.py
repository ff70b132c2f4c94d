"""Each known bug shows on some inputs and nowhere else, in every operation that has it; the traps show nowhere."""

import contextlib
import io
import re
import warnings
from functools import cache

import numpy as np
import pytest

from oracles import FLOAT64, Conventions
from properties.bugs import CATALOGUE
from properties.bugs.equivalent import EQUIVALENT
from properties.bugs.reference import REFERENCE, operations, users_of
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, FEATURES, OPERATIONS
from properties.contract.results import BrokenError
from properties.laws import LAWS
from properties.strategies import drawn_masks
from properties.strategies.cases import Cases
from properties.strategies.domain import SHORT, Domain
from properties.strategies.domains import DOMAINS

NUMPY = Implementation("NumPy", REFERENCE, features=FEATURES)
LEFT_OUT = ("131072 keys", "dominating keys", "no queries", "without keys", "many rows", "many pages")
"""Domains of cases that take long, or that the reference refuses."""
EMPTY = (
    Domain("no batch", "Batches without elements.", sizes={"batch": (0,)}, mask=drawn_masks.loose, rank=1),
    Domain(
        "no width",
        "Queries and keys without columns.",
        sizes={"head_dim": (0,), "n_q": SHORT, "n_k": SHORT},
        mask=drawn_masks.loose,
    ),
)
"""Sizes of 0 that laws ask for by themselves."""
LAYOUTS = ("", "", "", "transposed", "reversed", "heads inside")
"""How arrays lie in memory, contiguous ones more often; no strategy draws it."""


def laid_out(x, layout):
    """The same numbers: the last two axes exchanged in memory, or the two before the last, or rows read backwards."""
    inside = {"transposed": (-1, -2), "heads inside": (-2, -3)}.get(layout)
    if not isinstance(x, np.ndarray) or x.ndim < (3 if layout == "heads inside" else 2):
        return x
    if inside:
        return np.ascontiguousarray(x.swapaxes(*inside)).swapaxes(*inside)
    return x[::-1].copy()[::-1] if layout == "reversed" else x


def arguments_of(operation, seed):
    """The arguments of an operation in one of its domains, in turn, and in a layout."""
    o = OPERATIONS[operation]
    left_out = {*LEFT_OUT, *(["tiles"] if o.is_played else [])}
    domains = [domain for domain in DOMAINS[operation].values() if domain.name not in left_out]
    empty = EMPTY[:1] if "context" in o.axes else EMPTY  # without columns a layer has no number of key heads
    domains += empty if any(BATCH in axes for axes in o.axes.values()) else ()
    found = Cases(o, domains[seed % len(domains)], NUMPY).draw(seed)
    layout = np.random.default_rng(seed).choice(LAYOUTS)
    return tuple(laid_out(x, layout) for x in found)


@cache
def case(operation, seed):
    """Arguments, and the oracle's answers."""
    given = arguments_of(operation, seed)
    return given, OPERATIONS[operation].expected(given, FLOAT64, Conventions())


def copied(x):
    """The same numbers in the same layout in memory."""
    if not isinstance(x, np.ndarray):
        return x
    backwards = tuple(slice(None, None, -1 if s < 0 else 1) for s in x.strides)
    return x[backwards].copy(order="K")[backwards]


def state():
    return warnings.filters[:], np.geterr(), np.random.get_state()[1].tolist()


class Watch:
    """An instance of a mutant, which may remember earlier calls."""

    def __init__(self, bug, operation):
        self.mutant, self.operation, self.returned = bug.mutants[operation](), operation, []

    def sees(self, seed):
        """What is wrong with the results of a call, or with what it did besides, in a word; "" if nothing is."""
        arguments, expected = case(self.operation, seed)
        given, printed, before = [copied(x) for x in arguments], io.StringIO(), np.geterr()
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
                warnings.simplefilter("error")
                earlier = state()
                found = OPERATIONS[self.operation].call(self.mutant, given)
                changed = state() != earlier
        except (ValueError, ZeroDivisionError, BrokenError) as error:
            return f"raises {type(error).__name__}"
        finally:
            np.seterr(**before)
        found = tuple(x for x in found if x is not None) if isinstance(found, tuple) else (found,)
        overwritten = any(x.tobytes() != y for x, y in self.returned)
        self.returned += [(x, x.tobytes()) for x in found]
        for x, y in zip(found, expected, strict=True):
            mid = y if isinstance(y, np.ndarray) else y.mid
            if x.shape != mid.shape or x.dtype != mid.dtype:
                return "type"
            if (x != y).any() if y is mid else (y.excess(x) > 1).any():
                return "numbers"
        arrays = [(x, y) for x, y in zip(given, arguments, strict=True) if isinstance(x, np.ndarray)]
        written = any(not np.array_equal(x, y) for x, y in arrays) or any(
            np.shares_memory(x, y) for x, _ in arrays for y in found
        )
        return "conduct" if changed or overwritten or written or printed.getvalue() else ""


SEEDS = range(300)
ALWAYS = {
    "alibi-slopes-from-zero",
    "causal-attention-without-itself",
    "causal-mask-of-numbers",
    "sin-returns-float32",
    "softmax-silences-numpy",
    "sdpa-jvp-silences-warnings",
}
"""Bugs that are wrong in every call."""
AT_MANY_ROWS = (
    "packed-row-numbers-of-16-bits",
    "paged-page-numbers-in-8-bits",
    "paged-page-numbers-in-16-bits",
)
"""Bugs that show only in a domain that is left out; a law of its own asks for them."""


def bugs_in(operation, bugs=CATALOGUE):
    """The bugs that an operation can have."""
    return [bug for bug in bugs.values() if operation in bug.mutants]


def shows(bug, operation):
    """Whether a bug shows on some inputs and on some it does not, if it is not wrong in every call."""
    watch = Watch(bug, operation)
    seen = set()
    for seed in SEEDS:
        seen.add(watch.sees(seed))
        if len(seen) > 1 or (seen != {""} and bug.id in ALWAYS):
            break
    remembers = (
        "two calls in a row" in bug.requires and Watch(bug, operation).sees(seed) != ""
    )  # a new instance remembers nothing
    return bool(seen - {""}) and ("" in seen or bug.id in ALWAYS) and not remembers


@pytest.mark.thorough
# A test for each operation: the bugs of one are put to the same cases, and these take longer to
# draw than to be computed.
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_bug_shows_on_some_inputs_and_on_some_it_does_not(operation):
    """In numbers, types or conduct; a promise that the reference does not make is broken in calls
    that are not drawn here.
    """
    assert [
        bug.id
        for bug in bugs_in(operation)
        if not bug.promises and bug.id not in AT_MANY_ROWS and not shows(bug, operation)
    ] == []


OTHER_RESULTS = re.compile("raises|squeezes|short|-cache|without-a-limit|float32|of-numbers")


@pytest.mark.thorough
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_mutant_is_wrong_in_numbers_and_not_in_shapes(operation):
    """A law sees the mistake, and no crash: also of empty batches. Those whose mistake is a crash
    or a shape are named so.
    """
    found = {}
    for bug in bugs_in(operation):
        if not (bug.promises or OTHER_RESULTS.search(bug.id)):
            watch = Watch(bug, operation)
            found[bug.id] = {watch.sees(seed) for seed in SEEDS[:12]} - {"", "numbers", "conduct"}
    assert {bug: seen for bug, seen in found.items() if seen} == {}


@pytest.mark.thorough
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_trap_is_right(operation):
    for trap in bugs_in(operation, EQUIVALENT):
        watch = Watch(trap, operation)
        assert {watch.sees(seed) for seed in SEEDS[:60]} == {""}, trap.id


def test_steps_and_operations_are_the_reference_s_own():
    """An operation is the same text with other steps: without other steps it is the reference to the last bit."""
    again = operations()
    assert again.keys() == REFERENCE.keys() == OPERATIONS.keys()
    assert set(users_of("row_term")) == {o for o in OPERATIONS if o.endswith(("_vjp", "_jvp"))} - {
        "rope_vjp",
        "apply_rotary_vjp",
        "attention_vjp",
        "attention_jvp",
        "packed_attention_vjp",
    }
    for operation in again:
        for seed in SEEDS[:5]:
            found, right = (
                OPERATIONS[operation].call(of[operation], case(operation, seed)[0]) for of in (again, REFERENCE)
            )
            assert all(map(np.array_equal, found, right)) if isinstance(right, tuple) else np.array_equal(found, right)


def test_an_entry_is_written_in_sentences_and_cites():
    laws = {law.name for law in LAWS}
    for bug in CATALOGUE.values():
        assert next(iter(bug.mutants)) == bug.operation
        assert all(re.fullmatch(r"\S.*\.", text) for text in (bug.mechanism, bug.effect, bug.repair)), bug
        assert bool(bug.citations) != bool(bug.origin), bug
        reports = bug.citations.split("; ") if bug.citations else []
        assert all(re.match(r"[\w.-]+/[\w.-]+#\d+", report) for report in reports), bug
        assert bug.law in laws, bug
    assert sum(bug.public for bug in CATALOGUE.values()) == 30
    assert not EQUIVALENT.keys() & CATALOGUE.keys()


@pytest.mark.parametrize("bug", [identity for identity in CATALOGUE if identity.startswith("attention-running")])
def test_a_running_sum_in_one_tile_is_right_with_any_sink(bug):
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(2, 5, 4)) for _ in "qkv")
    mutant = CATALOGUE[bug].fresh()
    for sink in (None, np.array([-9.0, 9.0]), np.array([0.1, -np.inf])):
        given = {"scale": None, "causal": True, "sink": sink}
        for found, right in zip(mutant(q, k, v, **given), REFERENCE["attention"](q, k, v, **given), strict=True):
            assert np.array_equal(found, right)
