"""Which stored rows each query of a cache reads: silent about right caches, and true about known bugs."""

import numpy as np
import pytest

from properties import Implementation
from properties.bugs.caches import bug as register
from properties.bugs.reference import REFERENCE
from properties.bugs.reference_caches import Buffered, Paged
from properties.contract.cache_programs import parse
from properties.contract.caches import CACHES
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.inspection.caches import caches, sentences_of_caches
from properties.inspection.measurements import measured
from properties.inspection.probe import Probe
from properties.inspection.shapes import shape_of
from properties.tests.instrument_calls import FORMATS

DECODE = OPERATIONS["decode"]
PROGRAM = "append 3; attend 2"


def arguments_of(steps, **options):
    """A call of `decode` with a program."""
    number = {"append": 0, "attend": 0}
    for step in parse(steps):
        if step.name in number and not step.refused:
            number[step.name] += step.n
    shapes = ((number["attend"], 2), (number["append"], 2), (number["append"], 3))
    return DECODE.arguments((*map(np.zeros, shapes), steps), options)


def found(implementation, steps=PROGRAM, **options):
    probe = Probe(Caller(implementation, "decode"), 60)
    return caches(probe, shape_of(DECODE, arguments_of(steps, **options)))


def sentences(implementation, steps=PROGRAM, **options):
    return sentences_of_caches(found(implementation, steps, **options))


class Rounded(Buffered):
    """A cache that computes in float64 and returns results of its inputs' type."""

    def append(self, k, v):
        self.dtype = k.dtype
        super().append(k.astype(float), v.astype(float))

    def attend(self, q):
        out, sums = super().attend(q.astype(float))
        return out.astype(self.dtype), sums.astype(np.promote_types(self.dtype, "f4"))


@pytest.mark.parametrize("arithmetic", FORMATS)
def test_no_sentence_is_about_a_right_cache(arithmetic):
    right = Implementation("mine", {"decode": Rounded}, arithmetic)
    programs = found(right, "append 4; attend 1; rollback 1; append 2; evict 1; other append 1; attend 2")
    assert len(programs) == 13
    assert sentences_of_caches(programs) == ()


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ("append 5; poison nan; attend 5", {}),
        ("append 5; append 4; attend 2; append 1; attend 1", {"window": 3, "capacity": 6}),
        ("append 2; append 9 refused; attend 1", {"capacity": 4}),
        ("append 5; rollback 2; append 1; attend 2", {"rotates": True}),
    ],
)
def test_no_sentence_is_about_a_right_program(steps, options):
    for make in (REFERENCE["decode"], *([] if "rotates" in options else [Buffered, Paged])):
        offers = CACHES if make is REFERENCE["decode"] else None
        assert sentences(Implementation("mine", {"decode": make}, caches=offers), steps, **options) == ()


def test_what_a_cache_does_not_offer_is_not_measured():
    class Bare:
        """A cache without features."""

        def __init__(self, d, d_v):
            self.cache = Buffered(d, d_v)

        def append(self, k, v):
            self.cache.append(k, v)

        def attend(self, q):
            return self.cache.attend(q)

    programs = found(Implementation("mine", {"decode": Bare}))
    assert [program.is_own for program in programs] == [True, False, False, False, False]
    assert sentences_of_caches(programs) == ()


TOLD = {
    "cache-window-one-key-short-at-decode": (
        "With window=2, steps «append 5; attend 4; append 1; attend 1»: in step 4 (attend 1) query 0 misses "
        "position 3.",
    ),
    "cache-chunk-sees-its-future": ("In step 2 (attend 2) query 0 reads position 2 after its own position.",),
    "cache-rollback-of-the-oldest": (
        "With steps «append 6; rollback 2; append 3; attend 2»: in step 4 (attend 2) queries 0–1 read "
        "positions 4–5 from before the rollback and miss positions 0–1.",
    ),
    "cache-boundaries-ignored": (
        "With steps «append 3; other append 2; other attend 1; append 2; attend 2»: in step 5 (attend 2) "
        "queries 0–1 read positions 0–1 of the other cache.",
    ),
    "cache-sequences-of-one-token-merge": (
        "With steps «append 1; attend 1; restart; append 2; attend 1»: in step 5 (attend 1) query 0 reads "
        "position 0 from before the restart.",
    ),
    "cache-mask-as-wide-as-the-buffer": (
        "In step 2 (attend 2) query 0 reads the right positions, but with weights that add up to 0.6667, should be 1.",
        "In step 2 (attend 2) query 1 reads the right positions, but with weights that add up to 0.75, should be 1.",
    ),
}


def mutant(identity):
    (entry,) = [entry for entry in register.bugs if entry.id == identity]
    return Implementation("mine", {"decode": entry.mutants["decode"]()}, caches=CACHES)


@pytest.mark.parametrize("identity", TOLD)
def test_what_a_wrong_cache_reads_is_told(identity):
    assert sentences(mutant(identity)) == TOLD[identity]
    assert measured(mutant(identity), "decode", arguments_of(PROGRAM)) == TOLD[identity]


def test_the_program_of_the_call_is_told_first():
    (said, *_) = sentences(mutant("cache-rollback-of-the-oldest"), "append 4; rollback 1; append 1; attend 1")
    assert said.startswith("In step 4 (attend 1) query 0 reads position 3 from before the rollback and misses")


def test_most_known_bugs_of_caches_are_told():
    """All bugs but those that refuse a step wrongly, which is told without a measurement."""
    refusals = ("ring-shorter-than-the-prompt", "rolls-back-to-what-is-overwritten", "refuses-after", "without-a-limit")
    for entry in register.bugs:
        if not any(part in entry.id for part in refusals):
            assert sentences(mutant(entry.id)), entry.id


def test_a_cache_that_raises_is_not_measured():
    class Raises(Buffered):
        """A cache that cannot answer."""

        def attend(self, q):
            raise RuntimeError("It is broken.")

    broken = Implementation("mine", {"decode": Raises})
    with pytest.raises(BrokenError, match="It is broken"):
        sentences(broken)
    assert measured(broken, "decode", arguments_of(PROGRAM)) == ()


def test_a_result_without_rows_is_told():
    class Zero(Buffered):
        """A cache that returns zeros, or NaN."""

        value = 0.0

        def attend(self, q):
            out, sums = super().attend(q)
            return 0.0 * out + self.value, sums

    zero = Implementation("mine", {"decode": Zero})
    assert sentences(zero)[0] == "In step 2 (attend 2) queries 0–1 read no appended row."
    undefined = Implementation("mine", {"decode": type("Undefined", (Zero,), {"value": np.nan})})
    assert sentences(undefined)[0] == "In step 2 (attend 2) queries 0–1 are NaN or infinite."
