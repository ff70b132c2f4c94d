"""Kernels that are wrong at the sizes of models alone are seen with every seed."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from properties import Implementation
from properties.bugs.reference import REFERENCE
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS, find
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.strategies.point_numbers import border_keys
from properties.verifier.examination import Supervision
from properties.verifier.plan import QUICKLY, plan
from properties.verifier.verify import examine, verify

SDPA, GQA, ATTENTION = "scaled_dot_product_attention", "grouped_query_attention", "attention"
LENGTHS = (512, 1024, 2048, 4096)


def decoding(change, length, operation=GQA, arithmetic="float64"):
    """A kernel that changes k and v of at most 8 queries over at least `length` keys."""

    def attention(q, k, v, *masks, **options):
        if k.shape[-2] >= length and q.shape[-2] <= 8:
            k, v = change(k, v)
        results = REFERENCE[operation](q, k, v, *masks, **options)
        return tuple(x.astype(q.dtype) for x in results) if operation == ATTENTION else results.astype(q.dtype)

    return Implementation("mine", {operation: attention}, arithmetic)


def lost_key(k, v, part, parts, after):
    """k and v without the last key of a part of the keys, or the first key after it."""
    lost = part * -(-k.shape[-2] // parts) - 1 + after
    return np.delete(k, lost, -2), np.delete(v, lost, -2)


def doubled_key(k, v):
    """k and v with the middle key twice."""
    middle = k.shape[-2] // 2
    return np.insert(k, middle, k[..., middle, :], -2), np.insert(v, middle, v[..., middle, :], -2)


def half_of_the_keys(k, v):
    """The first half of k and v."""
    return (x[..., : x.shape[-2] // 2, :] for x in (k, v))


def first_batch(k, v):
    """k and v of the first sequence, for all sequences."""
    return (np.broadcast_to(x[:1], x.shape) for x in (k, v))


FAULTS = {
    **{
        f"a lost key at the border of part {part} of {parts}": partial(lost_key, part=part, parts=parts, after=after)
        for parts, part, after in ((2, 1, 0), (2, 1, 1), (4, 3, 0), (8, 5, 1), (8, 7, 0))
    },
    "a doubled key": doubled_key,
    "half of the keys": half_of_the_keys,
    "the batch offset": first_batch,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", [SDPA, GQA, ATTENTION])
def test_a_fault_of_long_rows_is_seen_by_border_keys_in_16_bits(operation, fault):
    for length in LENGTHS:
        implementation = decoding(FAULTS[fault], length, operation, "float16")
        cases = Cases(OPERATIONS[operation], DOMAINS[operation]["operating borders"], implementation)
        long = [place for place, case in enumerate(cases.fixed) if case[1].shape[-2] >= length and case[0].ndim == 4]
        assert any(is_wrong(implementation, operation, cases.draw(place)) for place in long), length


def is_wrong(implementation, operation, arguments):
    subject = Subject(implementation, operation)
    subject.begin()
    try:
        subject(*arguments)
        subject.judge(0)
    except BrokenError:
        return True
    return False


def test_each_row_of_scores_has_border_keys_and_each_border_is_in_some_row():
    cases = Cases(OPERATIONS[GQA], DOMAINS[GQA]["operating borders"], Implementation("mine", {GQA: REFERENCE[GQA]}))
    for place in range(len(cases.fixed)):
        q, k, *_ = cases.draw(place)
        scores = q.reshape(*k.shape[:-2], -1, q.shape[-1]) @ k.swapaxes(-1, -2)
        is_largest = (scores == scores.max(-1, keepdims=True)).reshape(-1, k.shape[-2])
        assert is_largest.any(0)[border_keys(k.shape[-2], 8)].all()
        assert is_largest.sum(1).max() <= 8


@pytest.mark.parametrize("n_k", [511, 512, 513, 1040, 4097])
def test_border_keys_are_at_the_borders_of_all_blocks_from_the_largest_on(n_k):
    keys = border_keys(n_k, 64)
    assert len(keys) == len(set(keys)) == 64
    for parts in (2, 4, 8):
        border = -(-n_k // parts)
        assert {0, n_k - 1, *range(border, n_k, border), *range(border - 1, n_k, border)} <= set(keys)


def seen_quickly(implementation, seed=0):
    """Whether a law of the quick plan fails."""
    laws = plan(implementation, quick=True)
    supervision = Supervision(ends=lambda law: True)
    return any(found.status == "violated" for found in examine(laws, implementation, QUICKLY, seed, supervision))


@pytest.mark.parametrize("fault", [half_of_the_keys, first_batch, FAULTS["a lost key at the border of part 3 of 4"]])
def test_a_fault_of_long_rows_is_seen_by_the_quick_plan(fault):
    assert seen_quickly(decoding(fault, 4096))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("operation", [SDPA, GQA, ATTENTION])
def test_each_fault_of_long_rows_is_seen_with_each_seed_and_by_the_quick_plan(operation, seed):
    for name, fault in FAULTS.items():
        for length in LENGTHS:
            implementation = decoding(fault, length, operation)
            assert seen_quickly(implementation, seed), (name, length)
            assert not verify(implementation, seed=seed, fail_fast=True).ok, (name, length)


@pytest.mark.parametrize("operation", [SDPA, GQA, ATTENTION])
def test_the_mean_of_the_values_at_the_widths_of_models_is_seen_by_the_quick_plan(operation):
    def attention(q, k, v, *masks, **options):
        is_of_models = q.shape[-2] >= 64 and k.shape[-2] >= 64 and q.shape[-1] in (64, 128) and q.ndim == 4
        return REFERENCE[operation](q * (not is_of_models), k, v, *masks, **options)

    assert seen_quickly(Implementation("mine", {operation: attention}))


def test_points_depend_on_neither_the_seed_nor_the_number_of_inputs_but_their_numbers_on_the_seed():
    implementation = Implementation("mine", {"rope": REFERENCE["rope"]})
    law = next(law for law in LAWS if law.agreement and law.operation == "rope")
    longest = []
    for number, seed in ((1, 0), (20, 3)):
        drawn = []
        examine([law], implementation, number, seed, Supervision(observe=lambda *call: drawn.append(call[1][0])))  # noqa: B023
        longest.append([x for x in drawn if x.shape == (2, 8, 1024, 8)])
    assert [len(drawn) for drawn in longest] == [1, 1]
    assert not np.array_equal(*(drawn[0] for drawn in longest))


def test_a_slow_kernel_gets_fewer_points_and_is_told_which():
    law = next(law for law in LAWS if law.agreement and law.operation == GQA)
    implementation = Implementation("mine", {GQA: REFERENCE[GQA]})
    (before,) = examine([law], implementation, 4, 0)
    (outcome,) = examine([law], implementation, 4, 0, Supervision(seconds_of_points=0.0))
    assert (before.undrawn, outcome.status) == ((), "held")
    told = {family: text for family, _, text in (each.partition(": ") for each in outcome.undrawn)}
    names = told["operating borders"].removeprefix("mine is slow: calls at points took 0 s, so others were left out: ")
    assert names.removesuffix(".").split("; ")[-1] == "257 tokens"
    assert outcome.examples < before.examples


def test_a_slow_kernel_still_breaks_the_law_that_it_is_declared_to_break():
    (law,) = find(f"each query reads what it should[{GQA}]")
    twice = lambda *arguments: 2 * REFERENCE[GQA](*arguments)  # noqa: E731
    implementation = Implementation("mine", {GQA: twice}, known_deviations={law.id: "it doubles its outputs."})
    (outcome,) = examine([law], implementation, 4, 0, Supervision(seconds_of_points=-1.0))
    assert (outcome.status, outcome.examples) == ("declared", 1)


LAYER = "attention_layer"


@pytest.mark.parametrize("own", [False, True])
def test_the_first_key_alone_at_the_sizes_of_models_is_seen_in_a_layer_by_the_quick_plan(own):
    """Other test inputs have at most 65 keys, or 33 where the context is x."""

    def layer(x, context, *weights, **options):
        assert not own or np.array_equal(x, context)
        return REFERENCE[LAYER](
            x, context if context.shape[-2] < 66 - 2 * own else context[..., :1, :], *weights, **options
        )

    supports = ["context is x", "positive sizes"] if own else []
    mine = Implementation("mine", {LAYER: layer}, features=("causal",), supports=supports)
    agreement = [law.id for law in LAWS if law.agreement and law.operation == LAYER]
    assert not verify(mine, laws=agreement, max_examples=20, quick=True).ok


# -- Sums over tiles -------------------------------------------------------------------------------


def in_tiles(tile, stored):
    """Attention with sums in float32 over tiles of keys, and a running output in a format."""

    def attention(q, k, v, mask=None):
        given, (q, k, v) = q.dtype, (x.astype(np.float32) for x in (q, k, v))
        highest, total, output = np.float32(-np.inf), np.float32(0), np.zeros(())
        for start in range(0, k.shape[-2], tile):
            scores = q @ k[..., start : start + tile, :].mT / np.float32(np.sqrt(q.shape[-1]))
            higher = np.maximum(highest, scores.max(-1, keepdims=True))
            weights, shrink = np.exp(scores - higher), np.exp(highest - higher)
            parts = weights.astype(given).astype(np.float32) @ v[..., start : start + tile, :]
            total = total * shrink + weights.sum(-1, keepdims=True)
            output, highest = output.astype(stored).astype(np.float32) * shrink + parts, higher
        return (output / total).astype(given)

    return attention


@pytest.mark.parametrize("tile", [16, 32, 64, 128])
@pytest.mark.parametrize("given", ["bfloat16", "float16"])
def test_a_running_output_that_is_rounded_at_each_tile_is_seen(given, tile):
    family, narrow = "small values after a large one", np.dtype(getattr(ml_dtypes, given, given))
    for stored in (narrow, np.dtype(np.float32)):
        implementation = Implementation("tiles", {SDPA: in_tiles(tile, stored)}, given)
        cases = Cases(OPERATIONS[SDPA], DOMAINS[SDPA][family], implementation)
        excess = []
        for seed in range(len(cases.fixed)):
            subject = Subject(implementation, SDPA)
            (found,) = subject.watch(SDPA, cases.draw(seed)).results
            excess.append(float(found.excess.max()))
        assert (max(excess) > 1) == (stored == narrow)
