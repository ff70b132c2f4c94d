"""Each known bug of positional and rotary encodings, and of conduct, shows on its trigger and nowhere else."""

import re
import warnings

import numpy as np
import pytest

from properties.bugs import CATALOGUE, common_mistakes, conduct, layout, learned, lookups, memory, offsets, positional, rope, rotary
from properties.bugs import tables as rotary_inputs
from properties.reference import OPERATIONS, apply_rotary, rotary_tables

MODULES = (positional, learned, rope, common_mistakes, offsets, rotary, rotary_inputs, lookups, conduct, memory, layout)
BUGS = {bug.id: bug for module in MODULES for bug in module.bug.bugs}
PUBLIC = {
    *("rope-vjp-sin-after-rotate", "rope-half-split-pairs", "rope-positions-bf16", "rope-inv-freq-bf16", "rope-cache-ignores-offset"),
    *("rope-odd-dim-exponent", "sin-concatenated-layout", "sin-doubled-exponent", "sin-cos-next-exponent", "learned-pe-start-offset"),
}
INVISIBLE = 1e-12
"""Far more than float64 rounds at the positions used here, far less than the smallest slip, a rounding to float32."""


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).uniform(1, 2, shape)


def tables(n, d, seed=0):
    return numbers(n, d, seed=seed + 1), numbers(n, d, seed=seed + 2)


def computed(function, arguments):
    """The result, or the exception."""
    try:
        return function(*arguments)
    except (ValueError, ZeroDivisionError) as error:
        return error


def distance(a, b):
    if isinstance(a, tuple):
        return max(map(distance, a, b))
    if isinstance(a, Exception) or a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    return np.abs(a.astype(float) - b).max(initial=0.0)


X, Q = numbers(4, 6), numbers(2, 3, 4)
TABLE = numbers(300, 2)
QKV = (numbers(2, 2, 3, 4), numbers(2, 2, 3, 4, seed=1), numbers(2, 2, 3, 2, seed=2))
MASKS = np.tri(3, dtype=bool) & np.array([1, 0], bool)[:, None, None] | np.eye(3, dtype=bool)
WEIGHTS = tuple(numbers(4, 4, seed=i) for i in range(4))
TRANSPOSED = numbers(6, 4).T
LENGTHS, SQUARE = np.array([1, 3]), np.array([[0, 1], [2, 3]])
ROW, ROWS = np.array([[True, False, True]]), np.array([[[True, True, False]], [[False, True, True]]])
CAUSAL = np.tri(2, 3, dtype=bool)
TRIGGERS = {
    # the bug: (arguments that show it, arguments that don't)
    "sin-concatenated-layout": ((2, 4), (2, 2)),
    "sin-doubled-exponent": ((2, 4), (1, 4)),
    "sin-cos-next-exponent": ((2, 2), (1, 2)),
    "sin-integer-exponent": ((2, 4), (9, 2)),
    "sin-floor-division-comes-last": ((2, 6), (9, 2)),
    "sin-exponent-reaches-one": ((2, 6), (9, 2)),
    "sin-one-based-positions": ((1, 2), None),
    "sin-start-counts-chunks": ((2, 4, 3), (1, 4, 3)),
    "sin-rows-count-within-blocks": ((257, 4), (256, 4, 300)),
    "sin-positions-in-eight-bits": ((1, 4, 256), (256, 4)),
    "sin-table-ends-at-5000": ((1, 4, 5000), (1, 4, 4999)),
    "sin-rows-by-recurrence": ((3, 4), (1, 4, 100)),
    "sin-cast-to-integers": ((2, 2), (1, 2)),
    "sin-cosine-first": ((1, 2), None),
    "sin-odd-width-raises": ((1, 3), (5, 4)),
    "sin-odd-width-padded": ((2, 3), (5, 4)),
    "sin-no-columns-raises": ((2, 0), (5, 3)),
    "sin-returns-float32": ((2, 2), None),
    "learned-pe-start-offset": ((TABLE, 2), (TABLE[:1], 1)),
    "learned-positions-from-one": ((TABLE, 1), (TABLE[:1], 1)),
    "learned-last-chunk-early": ((TABLE, 2, 298), (TABLE, 2, 297)),
    "learned-padding-row": ((TABLE, 2), (TABLE, 2, 1)),
    "learned-positions-in-eight-bits": ((TABLE, 1, 128), (TABLE, 128)),
    "add-scales-by-root-of-width": ((X, X), (X[:, :1], X[:, :1])),
    "add-along-batch-axis": ((Q, Q[0]), (Q[0], Q[0])),
    "add-first-encoding-to-all": ((Q, Q), (Q, Q[0])),
    "add-ignores-the-sign-of-strides": ((X[::-1], X), (X, X)),
    "rope-half-split-pairs": ((X,), (X[:, :2], 7)),
    "rope-positions-bf16": ((X, 254), (X, 253)),
    "rope-inv-freq-bf16": ((X, 1024), (X, 1020)),
    "rope-positions-from-one": ((X,), None),
    "rope-angles-as-degrees": ((X,), (X[:1],)),
    "rope-exponent-over-half-the-width": ((X,), (X[:, :2], 9)),
    "rope-frequencies-rise": ((X,), (X[:, :2], 9)),
    "rope-pairs-stored-as-halves": ((X,), (X[:, :2], 9)),
    "rope-cosine-and-sine-exchanged": ((X,), None),
    "rope-lanes-exchanged": ((X,), None),
    "rope-without-minus": ((X,), (X[:1],)),
    "rope-odd-dim-exponent": ((X[:, :5],), (X, 9)),
    "rope-exponent-counts-from-one": ((X,), (X[:1],)),
    "rope-exponent-not-doubled": ((X,), (X[:, :2], 9)),
    "rope-exponent-reaches-one": ((X,), (X[:, :2], 9)),
    "rope-frequencies-by-products": ((X,), (X[:, :2], 9)),
    "rope-angle-in-float32": ((X, 4096), (X, 4092)),
    "rope-turns-backwards": ((X,), (X[:1],)),
    "rope-tables-tiled": ((X,), (X[:, :2], 9)),
    "rope-sines-at-padded-offset": ((X,), (X[:, :4], 9)),
    "rope-first-lane-overwritten": ((X,), (X[:1],)),
    "rope-lanes-beyond-64-left": ((numbers(2, 65), 9), (numbers(2, 64), 9)),
    "rope-odd-width-padded": ((X[:, :5],), (X, 9)),
    "rope-odd-width-raises": ((X[:, :5],), (X, 9)),
    "rope-decodes-at-zero": ((X[:1], 3), (X[:2], 3)),
    "rope-decodes-one-late": ((X[:1], 3), (X[:2], 3)),
    "rope-window-at-one-position": ((X[:2], 3), (X[:1], 3)),
    "rope-offset-twice": ((X, 1), (X,)),
    "rope-tail-left": ((numbers(129, 2), 1), (numbers(256, 2), 1)),
    "rope-table-ends-at-4096": ((X, 4093), (X, 4092)),
    "rope-beyond-the-table-left": ((X, 32765), (X, 32764)),
    "rope-positions-in-sixteen-bits": ((X, 32765), (X, 32764)),
    "rope-along-heads": ((Q,), (Q[0], 3)),
    "rope-positions-run-through-the-batch": ((Q,), (Q[:1], 3)),
    "rope-decodes-the-first-of-a-batch": ((Q[:, :1],), (Q, 3)),
    "rope-memory-order": ((TRANSPOSED,), (TRANSPOSED.copy(),)),
    "rope-vjp-sin-after-rotate": ((X, *tables(4, 6), X), (X, *rotary_tables(3, 4, 6), X)),
    "rope-vjp-turns-forwards": ((X, X), (X[:1], X[:1])),
    "rope-vjp-negates-every-sine": ((X[:, :5], X[:, :5]), (X, X, 3)),
    "rope-vjp-ignores-start": ((X, X, 3), (X, X)),
    "rope-vjp-one-sign-forgotten": ((X, X), (X[:1], X[:1])),
    "rope-vjp-rows-count-within-blocks": ((numbers(129, 2),) * 2, (numbers(128, 2), numbers(128, 2), 3)),
    "apply-rotary-reads-half-the-tables": ((X, *tables(4, 6)), (X, *rotary_tables(3, 4, 6))),
    "apply-rotary-normalizes": ((X, *tables(4, 6)), (np.sign(X), *tables(4, 6))),
    "apply-rotary-sine-before-rotation": ((X, *tables(4, 6)), (X, *rotary_tables(3, 4, 6))),
    "apply-rotary-without-minus": ((X, *tables(4, 6)), (X[:, :1], *tables(4, 1))),
    "apply-rotary-square-tables-transposed": ((X[:, :4], *tables(4, 4)), (X, *tables(4, 6))),
    "apply-rotary-vjp-inverts": ((X, *tables(4, 6), X), (X, *rotary_tables(3, 4, 6), X)),
    "causal-mask-of-numbers": ((2, 3), None),
    "inv-freq-counts-from-one": ((2,), None),
    "inv-freq-exponent-not-doubled": ((4,), (2,)),
    "inv-freq-exponent-reaches-one": ((4,), (2,)),
    "inv-freq-in-bfloat16": ((6,), (2,)),
    "inv-freq-odd-width-short": ((5,), (6,)),
    "inv-freq-no-lanes-raises": ((0,), (5,)),
    "rope-angles-from-one": ((1, 4), None),
    "rope-angles-in-turns": ((2, 4), (1, 4)),
    "rope-angles-of-sixteen-bit-positions": ((1, 4, 32768), (2, 4, 32766)),
    "rope-angles-in-float16": ((1, 2, 2049), (1, 2, 2048)),
    "rope-angles-ignore-the-start": ((1, 4, 1), (5, 4)),
    "rope-tables-begin-at-zero": ((1, 4, 1), (5, 4)),
    "rope-tables-of-halves": ((2, 4), (2, 2)),
    "rope-tables-turn-backwards": ((2, 4), (1, 4)),
    "rope-tables-sine-first": ((1, 4), None),
    "rope-tables-sines-of-the-next-pair": ((2, 4), (2, 2)),
    "rope-tables-end-at-2048": ((1, 4, 2048), (1, 4, 2047)),
    "rotate-half-without-minus": ((X,), (X[:0],)),
    "rotate-half-turns-backwards": ((X,), (0 * X,)),
    "rotate-half-of-adjacent-lanes": ((X,), (X[:, :2],)),
    "rotate-half-copies-the-second": ((X,), (np.tile(X, 2),)),
    "rotate-half-no-lanes-raises": ((X[:, :0],), (X,)),
    "padding-one-too-many": ((LENGTHS, 3), (LENGTHS[1:], 3)),
    "padding-at-the-beginning": ((LENGTHS, 3), (LENGTHS[1:], 3)),
    "padding-empty-sequence-is-full": ((LENGTHS - 1, 3), (LENGTHS, 3)),
    "padding-relative-to-the-end": ((LENGTHS, 4), (LENGTHS, 3)),
    "padding-sorted-by-length": ((LENGTHS, 3), (LENGTHS[::-1], 3)),
    "padding-of-nothing-raises": ((LENGTHS[:0], 3), (LENGTHS, 3)),
    "combined-by-or": ((ROW, ROWS), (ROW, ROW)),
    "combined-second-inverted": ((ROW, ROWS), (ROW & False, ROWS)),
    "combined-where-equal": ((ROW & False, ROW & False), (ROW | True, ROW)),
    "combined-keeps-a-dead-row": ((ROW, ROW & False), (ROW, ROWS)),
    "combined-square-batch-along-queries": ((CAUSAL, ROWS), (CAUSAL[:1], ROWS)),
    "combined-without-entries-raises": ((ROW[:, :0], ROW[:, :0]), (ROW, ROWS)),
    "lookup-padding-row": ((TABLE, SQUARE), (TABLE, SQUARE + 1)),
    "lookup-counts-from-one": ((TABLE, SQUARE), (TABLE[:1], SQUARE[:1, :1])),
    "lookup-in-eight-bits": ((TABLE, SQUARE + 128), (TABLE, SQUARE + 124)),
    "lookup-sorted": ((TABLE, SQUARE[::-1]), (TABLE, SQUARE)),
    "lookup-each-row-once": ((TABLE, SQUARE // 2), (TABLE, SQUARE)),
    "lookup-indices-transposed": ((TABLE, SQUARE), (TABLE, SQUARE[:1])),
    "lookup-subtracts-the-mean": ((TABLE, SQUARE), (TABLE - TABLE.mean(0), SQUARE)),
    "lookup-no-indices-raises": ((TABLE, SQUARE[:0]), (TABLE, SQUARE)),
    "sdpa-squeezes": (tuple(x[:1] for x in QKV), QKV),
    "sdpa-mask-memory-order": ((X, X, X, np.tri(4, dtype=bool).T), (X, X, X, np.tri(4, dtype=bool))),
    "sdpa-masks-tiled-over-heads": ((*QKV, MASKS[:, None]), (*(x[:1] for x in QKV), MASKS[:1, None])),
    "sdpa-square-batch-transposed": (QKV, tuple(x[:1] for x in QKV)),
    "sdpa-empty-batch-raises": (tuple(x[:0] for x in QKV), QKV),
    "mha-first-mask-for-all": ((Q, *WEIGHTS, 2, MASKS), (Q, *WEIGHTS, 2, MASKS[1])),
    "mha-vjp-averages-the-batch": ((Q, *WEIGHTS, 2, None, Q), (Q[0], *WEIGHTS, 2, None, Q[0])),
}
SEQUENCES = {
    # the bug: (an earlier call, arguments that show it, arguments that don't)
    "rope-cache-ignores-offset": ((X,), (X, 5), (X[:3], 5)),
    "rope-cache-ignores-width": ((X,), (X[:, :4],), (X, 3)),
    "apply-rotary-keeps-the-first-tables": ((X, *tables(4, 6)), (X, *tables(4, 6, 3)), (X[:3], *tables(3, 6, 3))),
    "sdpa-vjp-accumulates": ((X, X, X, None, X), (X, X, X, None, X), (X, X, X[:, :3], None, X[:, :3])),
    "sin-cache-grows-by-length": ((3, 4), (2, 4, 2), (2, 4, 1)),
}
CONDUCT = {
    *("rope-rotates-in-place", "softmax-fills-scores", "softmax-vjp-overwrites-cotangent", "learned-returns-a-view"),
    *("rope-first-position-is-its-input", "rope-reuses-its-output", "mha-prints", "softmax-silences-numpy"),
    *("sdpa-jvp-silences-warnings", "gqa-seeds-the-generator"),
}


def test_every_bug_has_a_trigger_and_its_id_is_its_own():
    assert sum(len(module.bug.bugs) for module in MODULES) == len(BUGS) == len(TRIGGERS) + len(SEQUENCES) + len(CONDUCT)
    assert set(BUGS) == {*TRIGGERS, *SEQUENCES, *CONDUCT}
    assert BUGS.items() <= CATALOGUE.items()


def test_entries_are_sentences_and_public_bugs_are_cited():
    assert {id for id, bug in BUGS.items() if bug.public} == PUBLIC
    for bug in BUGS.values():
        assert bug.operation in OPERATIONS
        assert all(text.endswith(".") for text in (bug.mechanism, bug.effect, bug.repair))
        assert bug.law
        assert bug.citation.startswith("none: ") or re.fullmatch(r"([\w.-]+/[\w.-]+#\d+( \(.*\))?(; )?)+", bug.citation)
        assert not (bug.public and bug.citation.startswith("none: "))


@pytest.mark.parametrize("id", TRIGGERS)
def test_a_bug_shows_on_its_trigger_and_nowhere_else(id):
    trigger, harmless = TRIGGERS[id]
    bug = BUGS[id]
    expected = OPERATIONS[bug.operation]
    assert distance(computed(bug.fresh(), trigger), expected(*trigger)) > 100 * INVISIBLE
    if harmless is not None:
        assert distance(computed(bug.fresh(), harmless), expected(*harmless)) < INVISIBLE


@pytest.mark.parametrize("id", SEQUENCES)
def test_what_is_remembered_shows_in_a_later_call(id):
    earlier, trigger, harmless = SEQUENCES[id]
    bug = BUGS[id]
    expected = OPERATIONS[bug.operation]
    for arguments in (trigger, harmless):
        remembering, forgetful = bug.fresh(), bug.fresh()
        assert distance(remembering(*earlier), expected(*earlier)) < INVISIBLE
        assert (distance(remembering(*arguments), expected(*arguments)) > 100 * INVISIBLE) == (arguments is trigger)
        assert distance(forgetful(*arguments), expected(*arguments)) < INVISIBLE


@pytest.mark.parametrize(
    ("id", "arguments", "written"),
    [
        ("rope-rotates-in-place", (X,), 0),
        ("softmax-fills-scores", (X, X > 1.5), 0),
        ("softmax-vjp-overwrites-cotangent", (X, None, X), 2),
    ],
)
def test_an_input_is_written_and_the_result_is_right(id, arguments, written):
    given = [a.copy() if a is not None else None for a in arguments]
    result = BUGS[id].fresh()(*given)
    assert distance(result, OPERATIONS[BUGS[id].operation](*arguments)) < INVISIBLE
    assert [i for i, (a, b) in enumerate(zip(given, arguments, strict=True)) if not np.array_equal(a, b)] == [written]
    assert not np.shares_memory(result, given[written])


def test_scores_without_a_mask_are_left_alone():
    scores = X.copy()
    BUGS["softmax-fills-scores"].fresh()(scores)
    assert np.array_equal(scores, X)


@pytest.mark.parametrize(
    ("id", "trigger", "harmless"),
    [("learned-returns-a-view", (TABLE, 2), None), ("rope-first-position-is-its-input", (X[:1],), (X[:2],))],
)
def test_a_result_is_a_view_of_an_input(id, trigger, harmless):
    mutant = BUGS[id].fresh()
    assert np.shares_memory(mutant(*trigger), trigger[0])
    assert distance(mutant(*trigger), OPERATIONS[BUGS[id].operation](*trigger)) == 0
    assert harmless is None or not np.shares_memory(mutant(*harmless), harmless[0])


def test_an_earlier_result_is_overwritten_by_a_later_call():
    mutant = BUGS["rope-reuses-its-output"].fresh()
    first = mutant(X)
    kept = first.copy()
    assert distance(mutant(X[:3], 1), OPERATIONS["rope"](X[:3], 1)) == distance(first, kept) == 0
    mutant(X, 1)
    assert distance(first, kept) > 100 * INVISIBLE


def test_a_mask_makes_multi_head_attention_print(capsys):
    mutant = BUGS["mha-prints"].fresh()
    mutant(Q, *WEIGHTS, 2)
    assert capsys.readouterr().out == ""
    mutant(Q, *WEIGHTS, 2, MASKS)
    assert capsys.readouterr().out == "mask (2, 3, 3)\n"


def test_the_interpreter_is_changed():
    state = np.random.get_state()
    with np.errstate(all="raise"), warnings.catch_warnings():
        before = np.geterr(), list(warnings.filters)
        BUGS["softmax-silences-numpy"].fresh()(X)
        BUGS["sdpa-jvp-silences-warnings"].fresh()(X, X, X, None, X, X, X)
        assert np.geterr() != before[0]
        assert warnings.filters != before[1]
    heads = numbers(2, 3, 4)
    drawn = [BUGS["gqa-seeds-the-generator"].fresh()(heads, heads, heads) is None or np.random.random() for _ in range(2)]
    assert drawn[0] == drawn[1]
    np.random.set_state(state)


def test_positions_are_rounded_to_the_nearest_bfloat16():
    x = numbers(2, 8)
    cos, sin = rotary_tables(256, 1, 8)
    assert distance(BUGS["rope-positions-bf16"].fresh()(x[:1], 257), apply_rotary(x[:1], cos, sin)) < INVISIBLE


def test_an_equivalent_mutant_is_right_and_is_not_in_the_catalogue():
    (bug,) = rotary.equivalent.bugs
    assert bug.id not in CATALOGUE
    for d in (0, 1, 2, 5, 6):
        x, g = numbers(2, 4, d), numbers(2, 4, d, seed=1)
        assert distance(bug.fresh()(x, g, 1000), OPERATIONS[bug.operation](x, g, 1000)) < INVISIBLE


ENCODINGS = [id for id, bug in BUGS.items() if bug.operation in ("rope", "sinusoidal_positional_encoding") and "raises" not in id]


@pytest.mark.parametrize("id", ENCODINGS)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1), (0, 0)])
def test_mutants_of_encodings_take_the_smallest_sizes(id, shape):
    bug = BUGS[id]
    arguments = (numbers(*shape), 7) if bug.operation == "rope" else (*shape, 7)
    assert bug.fresh()(*arguments).shape == shape
