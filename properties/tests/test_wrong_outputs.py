"""Whatever an implementation returns, `properties.verify` returns a report, which names a violation
and no failure of attnspec.
"""

from functools import partial, update_wrapper
from itertools import cycle

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.verifier.verify import verify


class Unreadable:
    """An array that raises when it is read."""

    dtype = np.dtype("float64")

    def __init__(self, error):
        self.error = error

    def __array__(self, *arguments, **options):
        raise self.error


class WithoutAttributes:
    """An object that raises when it is looked at."""

    def __getattr__(self, name):
        raise OSError("no disk")


def full(number):
    return lambda x: ~x if x.dtype == bool else np.full_like(x, number)


def with_one(number):
    return lambda x: ~x if x.dtype == bool else np.where(np.arange(x.size).reshape(x.shape) == x.size // 2, number, x)


NUMBERS = {
    **{str(x): full(x) for x in (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, -0.0)},
    **{f"one {x}": with_one(x) for x in (np.nan, np.inf, -np.inf)},
}
"""What stands in place of each array that is right: of its shape and type, and wrong in some numbers."""

THINGS = {
    "another axis": lambda x: x[..., None],
    "no axes": lambda x: np.array([[1.0]] * 2).sum(),
    "a number of entries that nothing has": lambda x: np.broadcast_to(1.0, (2**40,)),
    "binary32": lambda x: x.astype(np.float32),
    **{
        str(t): lambda x, t=t: np.zeros(x.shape, t)
        for t in (int, complex, object, str, "M8[s]", [("a", float)], "longdouble")
    },
    "None": lambda x: None,
    "a list": lambda x: x.tolist(),
    "a type": lambda x: np.ndarray,
    "a masked array": np.ma.masked_array,
    "a read-only array of another shape": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "no attributes": lambda x: WithoutAttributes(),
    "an array that raises": lambda x: Unreadable(RuntimeError("no array")),
    "an array that ends the program": lambda x: Unreadable(SystemExit(3)),
}
"""What else stands in place of each array."""

RESULTS = {
    "none": lambda found: (),
    "too many": lambda found: (*found, *found) if isinstance(found, tuple) else (found, found),
    "results in a result": lambda found: ((found,),),
    "a text": lambda found: "nan",
    "an object": lambda found: WithoutAttributes(),
    "a generator": lambda found: (x for x in (found,)),
    "an exception": lambda found: ValueError("returned"),
    "an exception that is raised": lambda found: 1 // 0,
}
"""What stands in place of all results."""


def each(change, found):
    """The results with every array changed."""
    if isinstance(found, tuple):
        return tuple(x if x is None else change(np.asarray(x)) for x in found)
    return change(np.asarray(found))


EVERY = {
    "numbers": [partial(each, change) for change in NUMBERS.values()],
    "things": [*(partial(each, change) for change in THINGS.values()), *RESULTS.values()],
}


def returning(operation, changes, right):
    """The reference's function, whose results are changed in each call in another way, and are right in some calls."""
    turns = cycle([*changes, *[lambda found: found] * right])
    return update_wrapper(
        lambda *arguments, **options: next(turns)(REFERENCE[operation](*arguments, **options)), REFERENCE[operation]
    )


MANY_LAWS = {
    o for o in OPERATIONS if "attention" in o or o.startswith("rope") or o in ("hard_masked_softmax_vjp", "rotate_half")
}
MANY_LAWS -= {"merge_attention", "rope_angles", "rope_tables"}
SLOW = ("packed_attention", "packed_attention_vjp", "scaled_dot_product_attention", "batched_decode")
"""Operations that the quick tests leave out. Attention, paged attention and decoding stand for them."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        # The kinds take turns, so each operation is put to one of them in the quick tests, but the slow ones.
        pytest.param(operation, kind, marks=[pytest.mark.thorough] * ((number + turn) % 2 or operation in SLOW))
        for number, operation in enumerate(OPERATIONS)
        for turn, kind in enumerate(EVERY)
    ],
)
def test_a_report_comes_of_whatever_is_returned(operation, kind, unchecked):
    """Each call returns something else, and some are right. Of operations with many laws only few
    are checked, to save time.
    """
    wrong = Implementation("mine", {operation: returning(operation, EVERY[kind], right=3)})
    report = verify(wrong, max_examples=1, quick=operation in MANY_LAWS)
    assert report.violations
    assert not [outcome.reason for outcome in report.outcomes if outcome.defect]
    assert not [note for cause in report.causes for note in cause.example.notes if note.startswith("attnspec failed")]


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("right", [0, 1])
def test_what_merging_returns_is_merged_again_only_where_it_is_numbers(number, right):
    wrong = Implementation(
        "mine", {"merge_attention": returning("merge_attention", [partial(each, full(number))], right)}
    )
    report = verify(wrong, laws=["merging is associative"], max_examples=4)
    (cause,) = report.causes
    assert cause.searched
    assert cause.example.summary.endswith(f"={number}, but should be a finite number.")
