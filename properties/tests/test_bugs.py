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
from properties.bugs.reference import OPERATIONS as REFERENCE
from properties.bugs.reference import operations, users_of
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.contract.results import BrokenError
from properties.laws import LAWS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS, ROTATIONS

MUTANTS = [(bug, operation) for bug in CATALOGUE.values() for operation in bug.mutants]
NUMPY = Implementation("NumPy", REFERENCE, features=FEATURES)
FEW, MANY = (1, 1, 2, 3, 4, 5, 8), (16, 17, 33, 64, 65, 128, 130)
STARTS = (0, 0, 0, 1, 2, 3, 250, 257, 1030, 4090, 32767)
BATCHES = ((), (), (), (2,), (3,), (2, 2), (2, 1), (3, 2), (0,))


class Draw:
    """Seeded random arguments of each operation: sizes, batches, positions, masks with dead rows, extreme scores and views."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.n, self.m, self.d, self.d_v = (self.one(*([FEW, FEW * 3 + MANY, FEW + MANY][seed % 3])) for _ in range(4))
        self.m = self.one(self.m, self.n)
        self.d, self.d_v = (self.one(*FEW, 0, 9) if self.n * self.m > 200 else d for d in (self.d, self.d_v))
        self.lead = self.one(*BATCHES) if self.n * self.m * (self.d + 1) < 5000 else ()

    def one(self, *values):
        return values[self.rng.integers(len(values))]

    def x(self, *shape, most=2.0, views=True):
        """Numbers, sometimes with zeros among them, a transposed view, or read backwards."""
        x = self.rng.uniform(-most, most, shape) * (self.rng.random(shape) < self.one(0.7, 1, 1))
        view = self.one(0, 0, 0, 1, 2, *[3] * (len(shape) > 3)) if views and len(shape) > 1 else 0
        inside = {1: (-1, -2), 3: (-2, -3)}.get(view)  # which axes are exchanged in memory: of a matrix, or heads of a sequence
        if inside:
            return np.ascontiguousarray(x.swapaxes(*inside)).swapaxes(*inside)
        return x[::-1].copy()[::-1] if view == 2 else x

    def mask(self, *shape):
        """A mask of scores of this shape, or one that broadcasts to them."""
        some = self.rng.random(shape) < self.one(0.1, 0.5, 0.9)
        late, causal = np.arange(shape[-1]) >= self.one(0, 1, 8, 16), np.tri(*shape[-2:], dtype=bool)
        return self.one(None, some, some, some.swapaxes(-1, -2).copy().swapaxes(-1, -2), some | causal, some[..., :1, :], late, causal,
                        *([some[:1], some[:, :1]] if len(shape) > 3 else []))  # fmt: skip

    def attention(self, *heads, key_heads=()):
        n, m, d, d_v = self.n, self.m, self.d, self.d_v
        loud = self.one(2.0, 2.0, 2.0, 40.0, 900.0, 9000.0)
        q, k, v = (self.x(*self.lead, *h, *s, most=t) for h, s, t in
                   ((heads, (n, d), 2.0), (key_heads, (m, d), loud), (key_heads, (m, d_v), 2.0)))  # fmt: skip
        if d and self.one(True, False, False):  # all scores of a row of one sign, far from 0
            q[..., 0], k[..., 0] = self.one(-1, 1) * np.abs(q[..., 0]), loud * self.one(1, self.rng.uniform(0.5, 1, m))
            k[..., 1:] /= loud
            if m > 16 and self.one(True, False):
                return q, k, v, np.arange(m) >= 16
        return q, k, v, self.mask(*self.lead, *heads, n, m)

    def model(self):
        heads, width, wide = self.one(1, 2, 3), self.one(0, 1, 2, 3, 8, 9), self.one(1, 2, 4, 6)
        x, *weights = shapes = (*self.lead, min(self.n, 65), wide), *[(wide, heads * width)] * 3, (heads * width, self.one(wide, wide))
        x, *weights = (self.x(*s, most=self.one(2.0, 2.0, 8.0, 40.0)) for s in shapes)
        return x, *weights, heads, self.mask(*x.shape[:-1], x.shape[-2])

    def rows(self, d, most=2):
        return self.x(*self.lead, self.n, d, most=most)

    def tables(self, d):
        theta = self.x(self.n, d)
        return self.one((self.x(self.n, d), self.x(self.n, d)), (np.cos(theta), np.sin(theta)))


def scores(draw):
    q, k, _, mask = draw.attention()
    offsets = draw.one(0, 0, 900, -900, -2e4, draw.x(q.shape[-2], 1, most=900.0))
    return draw.one(1, 1, 8, 400, 4000) * draw.x(*q.shape[:-1], k.shape[-2]) + offsets, mask


def arguments_of(operation, seed):
    """The arguments of an operation on a seeded draw."""
    if OPERATIONS[operation].forward in (
        "attention",
        "merge_attention",
        "alibi_slopes",
        "alibi_bias",
        "decode",
        "rotary_frequencies",
        "rotary_tables",
    ):
        domains = [d for d in DOMAINS[operation].values() if d.name not in ("no keys", "tiles", "windows at edges")]
        return Cases(OPERATIONS[operation], domains[seed % len(domains)], NUMPY).draw(seed)
    if operation in ("rope", "rope_vjp") and seed % 2:
        return Cases(OPERATIONS[operation], DOMAINS[operation][ROTATIONS if seed % 4 == 1 else "sections"], NUMPY).draw(seed)
    d = Draw(seed)
    width, start = d.one(0, 1, 2, 3, 4, 5, 6, 8, 65), d.one(*STARTS)
    if operation.startswith("scaled") or operation == "causal_attention":
        q, k, v, mask = d.attention()
        if operation == "causal_attention":
            return q, k, v
        return q, k, v, mask, *{"vjp": [d.x(*q.shape[:-1], v.shape[-1])], "jvp": [d.x(*x.shape) for x in (q, k, v)]}.get(operation[-3:], [])
    if operation.startswith("multi"):
        x, *rest = d.model()
        return x, *rest, *{"vjp": [d.x(*x.shape, most=4)], "jvp": [d.x(*y.shape) for y in (x, *rest[:4])]}.get(operation[-3:], [])
    if operation.startswith("hard"):
        s, mask = scores(d)
        return s, mask, *([d.x(*s.shape)] if operation.endswith("vjp") else [])
    if operation == "grouped_query_attention":
        groups = d.one(1, 2, 3)
        return d.attention(groups * d.one(1, 2, 3), key_heads=(groups,))
    longest = d.one(d.n, 257, 300)
    lengths = d.rng.integers(0, d.n + 1, d.one(0, 1, 2, 3))
    table = d.x(d.one(d.n, 300), width)
    length = int(d.rng.integers(0, len(table) + 1))
    picked = d.rng.integers(0, len(table), d.one((0,), (3,), (2, 2), (4,)))
    columns = d.one(d.m, d.m, d.m, 0)
    first = d.rng.random((d.n, columns)) < 0.6
    x = d.rows(width, most=d.one(2, 2, 2, 8))
    y = d.rows(width)
    pos = d.one(d.x(d.n, width), d.rows(width))
    even = d.rows(width // 2 * 2)
    return {
        "causal_mask": lambda: (longest, d.one(longest, d.n, 257, 5)),
        "padding_mask": lambda: (lengths, d.n),
        "combine_masks": lambda: (
            first,
            d.rng.random(d.one(*((*lead, columns) for lead in ((d.n,), (1,), (d.n, 1), (2, 1))))) < d.one(0, 0.6, 1),
        ),
        "sinusoidal_positional_encoding": lambda: (longest, width, start),
        "add_positional_encoding": lambda: (x, pos),
        "learned_positional_encoding": lambda: (table, length, int(d.one(0, len(table) - length, (len(table) - length) // 2))),
        "table_lookup": lambda: (table, picked),
        "rope": lambda: (x, start),
        "rope_vjp": lambda: (x, y, start),
        "apply_rotary": lambda: (x, *d.tables(width)),
        "apply_rotary_vjp": lambda: (x, *d.tables(width), y),
        "rotate_half": lambda: (even,),
        "inv_freq": lambda: (width,),
        "rope_angles": lambda: (longest, width, start),
        "rope_tables": lambda: (longest, width, start),
    }[operation]()


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
        written = any(not np.array_equal(x, y) for x, y in arrays) or any(np.shares_memory(x, y) for x, _ in arrays for y in found)
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


@pytest.mark.parametrize(("bug", "operation"), MUTANTS, ids=lambda x: x if isinstance(x, str) else x.id)
def test_a_bug_shows_on_some_inputs_and_on_some_it_does_not(bug, operation):
    """In numbers, types or conduct; where it raises or returns something else, its name or its mechanism says so."""
    if bug.promises:
        pytest.skip("It breaks a promise that the reference does not make.")
    watch = Watch(bug, operation)
    seen = set()
    for seed in SEEDS:
        seen.add(watch.sees(seed))
        if len(seen) > 1 or (seen != {""} and bug.id in ALWAYS):
            break
    assert seen - {""}
    assert "" in seen or bug.id in ALWAYS
    if "two calls in a row" in bug.requires:
        assert Watch(bug, operation).sees(seed) == "", "a new instance remembers nothing"


OTHER_RESULTS = re.compile("raises|squeezes|short|-cache|without-a-limit|float32|of-numbers")


@pytest.mark.parametrize(("bug", "operation"), MUTANTS, ids=lambda x: x if isinstance(x, str) else x.id)
def test_a_mutant_is_wrong_in_numbers_and_not_in_shapes(bug, operation):
    """A law sees the mistake, and no crash: also of empty batches. Those whose mistake is a crash or a shape are named so."""
    if bug.promises or OTHER_RESULTS.search(bug.id):
        pytest.skip("This is its mistake.")
    watch = Watch(bug, operation)
    assert not {watch.sees(seed) for seed in SEEDS[:12]} - {"", "numbers", "conduct"}


@pytest.mark.parametrize(("trap", "operation"), [(t, o) for t in EQUIVALENT.values() for o in t.mutants])
def test_a_trap_is_right(trap, operation):
    watch = Watch(trap, operation)
    assert {watch.sees(seed) for seed in SEEDS[:60]} == {""}


def test_steps_and_operations_are_the_reference_s_own():
    """An operation is the same text with other steps: without other steps it is the reference to the last bit."""
    again = operations()
    assert again.keys() == REFERENCE.keys() == OPERATIONS.keys()
    assert set(users_of("row_term")) == {o for o in OPERATIONS if o.endswith(("_vjp", "_jvp"))} - {
        "rope_vjp",
        "apply_rotary_vjp",
        "attention_vjp",
        "attention_jvp",
    }
    for operation in again:
        for seed in SEEDS[:5]:
            found, right = (OPERATIONS[operation].call(of[operation], case(operation, seed)[0]) for of in (again, REFERENCE))
            assert all(map(np.array_equal, found, right)) if isinstance(right, tuple) else np.array_equal(found, right)


def test_an_entry_is_written_in_sentences_and_cites():
    laws = {law.name for law in LAWS}
    for bug in CATALOGUE.values():
        assert next(iter(bug.mutants)) == bug.operation
        assert all(re.fullmatch(r"\S.*\.", text) for text in (bug.mechanism, bug.effect, bug.repair)), bug
        assert re.match(r"none: \S", bug.citation) or re.match(r"[\w.-]+/[\w.-]+#\d+", bug.citation), bug
        assert bug.law in laws, bug
    assert sum(bug.public for bug in CATALOGUE.values()) == 30
    assert not EQUIVALENT.keys() & CATALOGUE.keys()
