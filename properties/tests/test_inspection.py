"""The instruments say nothing about right kernels, and the exact sentence about a planted mistake."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.inspection.entries import Entries
from properties.inspection.measurements import AROUND, measured
from properties.inspection.places import placed, sentence, spanned
from properties.inspection.probe import Probe, Reading, SpentError
from properties.inspection.reads import reads
from properties.inspection.rotation import rotation, sentences_of_rotation
from properties.inspection.shapes import Shape, shape_of
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.tests.instrument_calls import arguments_of, in_all_formats, of, rounded
from properties.tests.measured_kernels import heads_of, scale_of, softmax

SDPA, CAUSAL, GQA, ATTENTION = (
    "scaled_dot_product_attention",
    "causal_attention",
    "grouped_query_attention",
    "attention",
)
OPTIONS = {
    ATTENTION: (
        {},
        {"causal": True, "scale": 0.3, "window": (2, None), "sink": np.array([0.0, 1.0, -2.0, 3.0]), "softcap": 5.0},
        {"bias": np.random.default_rng(1).normal(size=(2, 4, 5, 6)), "offset": np.array([1, 3]), "causal": True},
        {"mask": np.random.default_rng(2).random((2, 4, 5, 6)) < 0.5},
    ),
    SDPA: ({}, {"mask": np.random.default_rng(3).random((2, 5, 6)) < 0.5}),
    f"{ATTENTION}_vjp": ({}, {"causal": True, "sink": np.array([0.0, 1.0, -2.0, 3.0])}),
    f"{SDPA}_vjp": ({}, {"mask": np.random.default_rng(4).random((2, 5, 6)) < 0.5}),
}


@pytest.mark.parametrize(("arithmetic", "dtype"), [("float64", float), ("float32", "f4"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize(
    "operation", sorted(AROUND.keys() - {"decode", "batched_decode", "packed_attention", "paged_attention"})
)
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic, dtype):
    function = rounded(REFERENCE[operation], ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for options in OPTIONS.get(operation, ({},))[: None if arithmetic == "float64" else 1]:
        assert measured(of(operation, function, arithmetic), operation, arguments_of(operation, **options)) == ()


@pytest.mark.parametrize("operation", ["rope", pytest.param(f"{ATTENTION}_vjp", marks=pytest.mark.thorough), GQA])
def test_no_sentence_is_about_a_right_kernel_on_drawn_inputs(operation):
    implementation = of(operation, REFERENCE[operation])
    for name, domain in DOMAINS[operation].items():
        draw = Cases(OPERATIONS[operation], domain, implementation).draw
        if name not in ("131072 keys", "long sequences", "decoding", "widths of models", "tiles"):
            assert measured(implementation, operation, draw(5)) == (), name


def test_declared_conventions_are_expected():
    mask = np.zeros((2, 5, 6), bool)
    mask[0, :, 4:] = True
    blocks = lambda q, k, v, mask=None: attention(q, k, v, None if mask is None else ~mask)  # noqa: E731
    arguments = arguments_of(SDPA, mask=mask)
    assert measured(of(SDPA, blocks, conventions=Conventions(mask_polarity="true_blocks")), SDPA, arguments) == ()
    assert measured(of(SDPA, blocks), SDPA, arguments)


def explained(function, operation=SDPA, **given):
    return measured(of(operation, function), operation, arguments_of(operation, **given))


def attention(q, k, v, mask=None, scores=lambda s: s, keys=lambda w: w):
    """Scaled dot-product attention with a mistake in the scores or in the weights."""
    found = scores(q @ k.swapaxes(-1, -2) * scale_of(q))
    return keys(softmax(found if mask is None else np.where(mask, found, -np.inf))[0]) @ v


def seen(visible, q, k, v, mask=None):
    """Scaled dot-product attention of the keys that a function of query and key lets through."""
    query, key = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return attention(q, k, v, mask, scores=lambda s: np.where(visible(query, key), s, -np.inf))


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (partial(seen, lambda i, j: j < 4), "Every query misses the last 2 visible keys."),
        (partial(seen, lambda i, j: j >= np.where(i < 2, 1, 0)), "Queries 0–1 of 5 miss the first visible key."),
        (partial(seen, lambda i, j: (j != 2) | (i != 3)), "Query 3 of 5 misses visible key 2."),
        (partial(seen, lambda i, j: i % 2 == 0), "Queries 1, 3 of 5 give weight 0 to every key."),
        (
            lambda q, k, v, mask=None: attention(q, k, np.roll(v, 1, 0), mask),
            "Every query reads the values of batch (b + 1) mod 2.",
        ),
        (
            lambda q, k, v, mask=None: attention(q, k, v[:1] + 0 * v, mask),
            "Batch 1 of 2 reads the values of batch 0.",
        ),
        (
            lambda q, k, v, mask=None: attention(q, k, v + v[::-1], mask),
            "Every query reads values of more than one batch or key head.",
        ),
        (
            lambda q, k, v, mask=None: attention(q, k, v, mask) * 0.5,
            "Every query reads the right keys, but with q = 0 the weights add up to 0.5, should be 1.",
        ),
        (lambda q, k, v, mask=None: attention(q, k, v, mask) + 1, "Doubling v does not double the output."),
        (lambda q, k, v, mask=None: attention(q, k, v, mask) * np.nan, "Every query is NaN or infinite with q = 0."),
        (
            lambda q, k, v, mask=None: attention(2 * q, k, v, mask),
            "The scale of scores of 13 keys with head_dim 4 is 1, should be 0.5.",
        ),
        (
            lambda q, k, v, mask=None: attention(q * (np.arange(q.shape[-1]) != 2), k, v, mask),
            "Channel 2 of q × channel 2 of k adds 0 to the score, should add 0.5.",
        ),
        (
            lambda q, k, v, mask=None: attention(q + np.roll(q, 1, -1) * (np.arange(q.shape[-1]) == 1), k, v, mask),
            "Channel 0 of q × channel 1 of k adds 0.5 to the score, should add 0.",
        ),
    ],
)
def test_a_mistake_in_attention_is_told(function, first):
    assert explained(function)[0] == first


def test_an_output_that_does_not_change_with_values_is_told():
    assert explained(lambda q, k, v, mask=None: 0 * attention(q, k, v, mask) + 1)[0] == (
        "Doubling v does not change the output."
    )


def test_a_result_that_another_call_changes_is_told():
    lengths = [0]

    def attends(q, k, v, mask=None):
        lengths.append(max(lengths[-1], q.shape[-2]))
        return attention(q, k, v, mask) + lengths[-1]

    assert explained(attends)[0] == "The same call gives another result after another call."


def test_a_mask_that_is_ignored_is_told():
    mask = np.ones((2, 5, 6), bool)
    mask[1, 2:, 4:] = False
    ignores = lambda q, k, v, mask=None: attention(q, k, v)  # noqa: E731
    assert explained(ignores, mask=mask)[0] == "The mask is ignored."


def test_a_mask_of_the_first_batch_is_told():
    mask = np.ones((2, 5, 6), bool)
    mask[0, :, 4:] = mask[1, :, 1:3] = False
    first = lambda q, k, v, mask=None: attention(q, k, v, None if mask is None else mask[:1])  # noqa: E731
    assert explained(first, mask=mask)[0] == "Batch 1 of 2 gets the mask of batch 0."


def test_only_some_masked_keys_are_told():
    mask = np.ones((2, 5, 6), bool)
    mask[..., 3:] = False
    one_more = lambda q, k, v, mask=None: attention(q, k, v, mask | (np.arange(k.shape[-2]) == 3))  # noqa: E731
    assert explained(one_more, mask=mask)[0] == "Every query reads the key after the last visible key."


def test_tiled_heads_are_told():
    tiled = lambda q, k, v, mask=None: attention(  # noqa: E731
        q, *(np.concatenate([x] * (q.shape[-3] // x.shape[-3]), -3) for x in (k, v)), mask
    )
    assert explained(tiled, GQA) == ("Heads 1–2 of 4 read the values of key head h mod 2.",)


def test_a_late_mistake_is_told_with_its_sizes():
    def late(q, k, v, mask=None):
        k, v = heads_of(q, k, v)
        return attention(q, k, v, mask, keys=lambda weights: weights * (np.arange(k.shape[-2]) < 1024))

    (said,) = explained(late, GQA)
    assert said == "With n_q 1, n_k 1040: every query misses the last 16 visible keys."


def vjp(q, k, v, mask, grad_out, change=lambda *gradients: gradients):
    return change(*REFERENCE[f"{SDPA}_vjp"](q, k, v, mask, grad_out))


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (partial(vjp, change=lambda dq, dk, dv: (2 * dq, dk, dv)), "dq is 2 times what it should be."),
        (partial(vjp, change=lambda dq, dk, dv: (dq, 0 * dk, dv)), "dk is 0 where it should not be."),
        (
            partial(vjp, change=lambda dq, dk, dv: (dq, dk, np.roll(dv, 1, -2))),
            "dv is what the previous key should have, from end to end.",
        ),
        (
            lambda q, k, v, mask, g: vjp(q, k, v, mask, g * (np.arange(g.shape[-1]) < 2)),
            "dq is 0 where it should not be (channel 2 of 3 of grad_out and v).",
        ),
    ],
)
def test_a_mistake_in_gradients_is_told(function, first):
    assert explained(function, f"{SDPA}_vjp")[0] == first


rope = REFERENCE["rope"]


def exchanged(x, start_pos):
    """A rotation whose cosines and sines are exchanged."""
    cos, sin = np.moveaxis(rope(np.ones((*x.shape[:-1], x.shape[-1])), start_pos).reshape(*x.shape[:-1], -1, 2), -1, 0)
    cos, sin = (cos + sin) / 2, (sin - cos) / 2
    a, b = x[..., ::2], x[..., 1::2]
    return np.stack([a * sin - b * cos, a * cos + b * sin], -1).reshape(x.shape)


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (
            lambda x, start_pos=0, **_: rope(x, start_pos + 1),
            "Rows are rotated by the angle of the next row (rows 0–2 of 4).",
        ),
        (lambda x, start_pos=0, **_: rope(x, start_pos) * 1.5, "Rows are 1.5 times what they should be."),
        (lambda x, start_pos=0, **_: rope(x, start_pos)[..., ::-1], "Channel 0 is paired with 2, 3, should be with 1."),
        (
            lambda x, start_pos=0, **_: np.concatenate([rope(x[..., :2, :], start_pos), x[..., 2:, :]], -2),
            "Rows are returned as they are (rows 2–3 of 4).",
        ),
        (
            lambda x, start_pos=0, **_: np.where(np.arange(x.shape[-1]) % 2, x, rope(x, start_pos)),
            "The second channel of each pair is returned as it is.",
        ),
        (
            lambda x, start_pos=0, **_: exchanged(x, start_pos),
            "Cosines and sines are exchanged.",
        ),
        (
            lambda x, start_pos=0, **_: np.stack(
                [rope(x[..., row, :][..., None, :], start_pos)[..., 0, :] for row in range(x.shape[-2])], -2
            ),
            "Rows are rotated by the angle of row 0 (rows 1–3 of 4).",
        ),
    ],
)
def test_a_mistake_in_a_rotation_is_told(function, first):
    assert explained(function, "rope")[0] == first


def test_exchanged_tables_are_told_beside_channels_without_a_pair():
    apply_rotary = REFERENCE["apply_rotary"]
    cos, sin = (np.repeat(f(np.arange(4.0)[:, None] / [1, 2, 4]), 2, -1) for f in (np.cos, np.sin))
    cos, sin = (np.pad(x, [(0, 0), (0, 1)], constant_values=filled) for x, filled in ((cos, 1.0), (sin, 0.0)))
    call = {"x": np.ones((4, 7)), "cos": cos, "sin": sin}

    def swapped(x, cos, sin):
        keeps = np.arange(7) == 6
        return apply_rotary(x, np.where(keeps, cos, sin), np.where(keeps, sin, cos))

    given = tuple(call[name] for name in OPERATIONS["apply_rotary"].parameters)
    assert measured(of("apply_rotary", swapped), "apply_rotary", given)[0] == "Cosines and sines are exchanged."
    negated = lambda *arrays: -apply_rotary(*arrays)  # noqa: E731
    assert measured(of("apply_rotary", negated), "apply_rotary", given)[0] == "Rows are -1 times what they should be."


def test_a_wide_rotation_without_a_batch_is_measured():
    implementation = of("rope", lambda x, start_pos=0, **_: rope(x, start_pos + 1), supports="no batch axes")
    shape = Shape({"seq_len": 3, "head_dim": 64}, (), {"start_pos": 2})
    probe = Probe(Caller(implementation, "rope"), 60)
    found = rotation(probe, shape)
    assert (probe.calls, len(found.channels)) == (44, 16)
    assert sentences_of_rotation(found) == ("Rows are rotated by the angle of the next row (rows 0–1 of 3).",)


def test_an_exception_and_sizes_that_are_not_measured_give_no_sentence():
    def raises(q, k, v, mask=None):
        raise RuntimeError("It is broken.")

    assert explained(raises) == ()
    wrong = of(SDPA, lambda q, k, v, mask=None: attention(2 * q, k, v, mask), supports={"n_q": [5], "n_k": [6]})
    assert measured(wrong, SDPA, arguments_of(SDPA)) == ("Scores are 2 times what they should be.",)
    assert measured(wrong, "rotate_half", (np.ones((2, 2)),)) == ()
    assert measured(wrong, SDPA, (np.ones((0, 3)), np.ones((2, 3)), np.ones((2, 3)), None)) == ()


def test_of_errors_of_rounding_only_their_size_is_told():
    narrow = lambda q, k, v, mask=None: attention(q.astype("f4"), k.astype("f4"), v, mask)  # noqa: E731
    (said,) = explained(lambda q, k, v, mask=None: narrow(q * 1.1, k / 1.1, v, mask))
    assert "has a relative error between" in said


def test_a_scale_of_zero_that_is_ignored_is_told():
    halved = lambda q, k, v, scale=None, **_: (attention(q, *heads_of(q, k, v)), np.zeros(q.shape[:-1]))  # noqa: E731
    said, of_another_width = explained(halved, ATTENTION, scale=0.0)
    assert said == "The scale of scores of 13 keys with head_dim 4 is 0.5, should be 0."
    assert of_another_width == "With head_dim 6: the scale of scores of 19 keys with head_dim 6 is 0.4082, should be 0."


def test_one_wrong_head_is_told():
    factors = np.array([1.0, 3.0, 1.0, 1.0])[:, None, None]
    one_head = lambda q, k, v, mask=None: attention(q * factors, *heads_of(q, k, v), mask)  # noqa: E731
    first = "The scale of scores of 13 keys with head_dim 4 is 1.5, should be 0.5 (in 2 of 8 batch entries and heads)."
    assert explained(one_head, GQA)[0] == first


def test_long_inputs_of_16_bits_are_measured():
    function = rounded(REFERENCE[f"{SDPA}_vjp"], ml_dtypes.bfloat16)
    random = np.random.default_rng(0)
    sizes = {"q": (300, 2), "k": (300, 2), "v": (300, 2), "grad_out": (300, 2)}
    given = {name: in_all_formats(random.normal(size=shape)) for name, shape in sizes.items()}
    arguments = arguments_of(f"{SDPA}_vjp", **given)
    assert measured(of(f"{SDPA}_vjp", function, "bfloat16"), f"{SDPA}_vjp", arguments) == ()


def test_few_calls_are_made():
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return REFERENCE[ATTENTION](*arguments, **options)

    assert measured(of(ATTENTION, counted), ATTENTION, arguments_of(ATTENTION)) == ()
    assert len(calls) <= 60
    probe = Probe(Caller(of(SDPA, attention), SDPA), 0)
    with pytest.raises(SpentError):
        reads(probe, shape_of(OPERATIONS[SDPA], arguments_of(SDPA)))


def test_options_follow_the_sizes():
    mask = np.arange(5)[:, None] >= np.arange(6)
    shape = shape_of(OPERATIONS[ATTENTION], arguments_of(ATTENTION, mask=mask + np.zeros((2, 4, 1, 1), bool)))
    other = shape.changed(OPERATIONS[ATTENTION], (3,), n_q=7, n_k=2, num_heads=8)
    assert other.beside(shape) == "batch 3, n_q 7, n_k 2, num_heads 8"
    assert other.arguments["mask"].shape == (3, 8, 7, 2)
    assert np.array_equal(other.arguments["mask"][2, 7, 5], mask[0, :2])
    without = shape.changed(OPERATIONS[ATTENTION], ())
    assert without.arguments["mask"].shape == (4, 5, 6)


def test_places_are_told_by_ranges():
    assert spanned([3], "query") == "query 3"
    assert spanned([16, 17, 18], "query", 48) == "queries 16–18 of 48"
    assert spanned([1, 5, 9, 13], "head") == "heads 1 to 13 in steps of 4"
    assert spanned([0, 2, 5, 6, 9], "batch") == "batches 0, 2, 5, 6 …"
    assert spanned([3, 4], "channel of grad_out", 5) == "channels 3–4 of 5 of grad_out"
    chosen = np.zeros((2, 4), bool)
    chosen[1] = True
    assert placed("It is 0", chosen, ("batch", "query")) == "It is 0 (batch 1 of 2)."
    assert placed("It is 0", chosen | True, ("batch", "query")) == "It is 0."
    chosen[0, 2] = True
    told = "5 of 8 queries, such as batch 0, query 2, miss the key."
    assert sentence(chosen, ("batch", "query"), ("misses", "miss"), "the key") == told


def test_a_rule_that_is_false_for_one_entry_is_not_told():
    expected = np.arange(1.0, 7.0).reshape(2, 3)
    doubled = Entries("dq", ("query", "channel"), Reading(2 * expected, expected, expected > 0))
    assert doubled.sentences() == ("dq is 2 times what it should be.",)
    measured = 2 * expected
    measured[1, 2] = 5.0
    other = Entries("dq", ("query", "channel"), Reading(measured, expected, measured != expected))
    number = "dq is wrong in 6 of 6 entries: at query 1, channel 1 it is 10, should be 5."
    assert other.sentences() == (number,)


# -- Several calls as one ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_ranks", [(0, 1, 2), (2,), (0,)])
@pytest.mark.parametrize("is_wrong", [False, True])
def test_calls_together_give_what_single_calls_give(batch_ranks, is_wrong):
    """A right kernel that takes a longer batch gets one call; a wrong kernel gets the single calls too."""
    name = "scaled_dot_product_attention"
    functions = {name: lambda q, k, v, mask: REFERENCE[name](q, k, v, mask) * (1 + is_wrong)}
    made = Implementation("mine", functions, batch_ranks=batch_ranks)
    shape = Shape({"n_q": 3, "n_k": 4, "head_dim": 2, "value_dim": 5}, (2, 3) if batch_ranks == (2,) else ())
    random = np.random.default_rng(0)
    calls = [{"v": random.integers(-8, 9, (*shape.batch, 4, 5)).astype(float)} for _ in range(3)]  # exact means
    apart, together = (Probe(Caller(made, name), 9, stacks=stacks) for stacks in (False, True))
    for one, other in zip(together.together(shape, calls), apart.together(shape, calls), strict=True):
        assert all(map(np.array_equal, one["out"], other["out"]))
    assert 9 - apart.calls == 3
    assert 9 - together.calls == (3 if batch_ranks == (0,) else 4 if is_wrong else 1)
