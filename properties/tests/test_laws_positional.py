"""The laws of positional encodings, rotations and masks hold under every convention, and each fails
on some simple mistake.
"""

from dataclasses import replace

import numpy as np
import pytest

from oracles import BINARY32, Conventions, formats
from properties.bugs import reference
from properties.bugs.reference import rope, rope_tables
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS, find, frequencies, mask_operations, odd_widths, positional, rotary
from properties.verifier.examination import Supervision
from properties.verifier.verify import check, examine, verify

OWN = [law for module in (positional, frequencies, rotary, odd_widths, mask_operations) for law in module.law.laws]
ABOUT = tuple(dict.fromkeys(law.operation for law in OWN))
NUMPY = Implementation("NumPy", reference.REFERENCE)
HALVES = Conventions(rope_pairing="half")


def values(operation, conventions):
    """The oracle's values in float64, which are a correct implementation."""
    o = OPERATIONS[operation]

    def call(*arguments):
        found = o.oracle(*arguments, conventions=conventions)
        results = [found] if o.is_exact else [x.mid.copy() for x in (found if isinstance(found, tuple) else (found,))]
        return results[0] if len(results) == 1 else tuple(results)

    return call


def in_conventions(conventions, **promises):
    operations = {name: values(name, conventions) for name in (*ABOUT, "scaled_dot_product_attention")}
    return Implementation("declared", operations, conventions=conventions, **promises)


def outcomes(implementation, number, about=ABOUT):
    return [
        found
        for name in about
        for found in examine([law for law in OWN if law.operation == name], implementation, number, 0)
    ]


def wrong(found):
    """Those that are violated, or say too little of what they were put to."""
    return [outcome for outcome in found if outcome.status not in ("held", "not applicable") and outcome.examples]


# -- Simple mistakes -------------------------------------------------------------------------------


def of_results(change):
    """The mistake that changes what an operation returns."""

    def mistake(function):
        def call(*arguments):
            found = function(*arguments)
            return tuple(map(change, found)) if isinstance(found, tuple) else change(found)

        return call

    return mistake


def of_arguments(kind, change):
    """The mistake that changes the first argument of a kind."""

    def mistake(function):
        def call(*arguments):
            place = next((place for place, x in enumerate(arguments) if isinstance(x, kind)), None)
            return function(*(change(x) if k == place else x for k, x in enumerate(arguments)))

        return call

    return mistake


MISTAKES = {
    "the last axis is reversed": of_results(lambda x: x[..., ::-1].copy()),
    "the first axis is reversed": of_results(lambda x: x[::-1].copy()),
    "signs are lost": of_results(np.abs),
    "results are a little too large": of_results(lambda x: x * 1.0001 if x.dtype != bool else x),
    "all is true": of_results(lambda x: x | True if x.dtype == bool else x),
    "nothing is true": of_results(lambda x: x & False if x.dtype == bool else x),
    "the first column is 0": of_results(lambda x: np.where(np.arange(x.shape[-1]) == 0, 0, x).astype(x.dtype)),
    "the last column is 0": of_results(
        lambda x: np.where(np.arange(x.shape[-1]) == x.shape[-1] - 1, 0, x).astype(x.dtype)
    ),
    "an empty result has an entry": of_results(lambda x: x if x.size else np.zeros(1)),
    "the first argument is reversed": of_arguments(np.ndarray, lambda x: x[::-1].copy()),
    "the first argument is clipped": of_arguments(np.ndarray, lambda x: np.clip(x, -1, 1) if x.dtype != bool else ~x),
    "rows for all queries are read as one for each": lambda function: (
        lambda *a: function(
            *(x[:, 0] if isinstance(x, np.ndarray) and x.ndim == 3 and x.shape[1] == 1 else x for x in a)
        )
    ),
    "the cotangent is reversed": lambda function: (
        lambda *a: function(*(x if k != 1 else x[..., ::-1] for k, x in enumerate(a)))
    ),
    "a size or position is one more": lambda function: (
        lambda *a: function(*a[:-1], a[-1] + 1) if isinstance(a[-1], int) else function(*a)
    ),
}


def fails(law, implementation, number=10):
    return (
        examine([law], implementation, number, 0, supervision=Supervision(ends=lambda law: True))[0].status
        == "violated"
    )


@pytest.mark.parametrize("law", OWN, ids=[law.id for law in OWN])
def test_a_law_fails_on_some_simple_mistake(law):
    halves = law.not_applicable(NUMPY) and "adjacent" in law.not_applicable(NUMPY)
    declared = (
        NUMPY
        if not law.not_applicable(NUMPY)
        else in_conventions(HALVES if halves else Conventions(odd_lane="passthrough"))
    )
    right = declared.operations[law.operation]
    mutants = (
        replace(declared, operations={**declared.operations, law.operation: mistake(right)})
        for mistake in MISTAKES.values()
    )
    assert any(fails(law, each) for each in mutants)


def test_the_reference_keeps_all_laws():
    assert {(found.status, found.reason) for found in outcomes(NUMPY, 8)} == {("held", "")}


# -- Conventions and promises ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "conventions",
    [
        Conventions(rope_base=100.0, rope_scale=0.25, causal="bottom_right"),
        Conventions(rope_pairing="half", rope_base=1.0, rope_scale=2.0, sinusoid_layout="concatenated"),
        Conventions(odd_lane="passthrough", mask_polarity="true_blocks", sinusoid_layout="tensor2tensor"),
        Conventions(odd_lane="reject", rope_scale=0.3),
    ],
)
def test_laws_follow_the_conventions(conventions):
    declared, about = in_conventions(conventions), ABOUT if conventions.causal == "bottom_right" else ABOUT[:-1]
    assert not wrong(outcomes(declared, 4, about))
    assert wrong(outcomes(replace(declared, conventions=None), 2, ("rope",)))


@pytest.mark.parametrize(
    "promises",
    [
        {"supports": {"head_dim": lambda d: d % 2 == 0, "start_pos": lambda p: p < 4096}},
        {
            "supports": {
                "embed_dim": lambda d: d == 4,
                "seq_len": lambda n: 0 < n < 8,
                "n_k_minus_n_q": lambda n: n == 0,
            }
        },
        {"batch_ranks": (1,), "supports": {"batch": lambda n: n < 3, "start_pos": lambda p: p == 0}},
        {"supports": "positive sizes", "batch_ranks": (0,)},
    ],
)
def test_laws_ask_for_nothing_that_is_not_supported(promises):
    def guarded(name, function):
        def call(*arguments, **options):
            sizes = OPERATIONS[name].sizes(arguments)
            assert declared.allows(
                **{size: n for size, n in sizes.items() if size in ("head_dim", "embed_dim", "seq_len", "start_pos")}
            ), sizes
            return function(*arguments, **options)

        return call

    declared = Implementation(
        "declared",
        {name: guarded(name, f) for name, f in reference.REFERENCE.items() if not OPERATIONS[name].is_played},
        **promises,
    )
    assert not wrong(outcomes(declared, 4))


@pytest.mark.parametrize("arithmetic", ["float32", "float16", "bfloat16"])
def test_indices_are_integers_and_tables_have_their_own_format_in_every_arithmetic(arithmetic):
    torch = pytest.importorskip("torch")
    seen = set()

    def look(table, indices):
        seen.add((table.dtype, indices.dtype))
        return table[indices]

    def pad(lengths, n):
        seen.add((lengths.dtype,))
        return torch.arange(n) < lengths[:, None]

    def tables(n, d, start):
        return tuple(torch.from_numpy(x).to(torch.float32) for x in rope_tables(n, d, start))

    model = replace(formats.resolve(arithmetic), angle=replace(formats.resolve(arithmetic).angle, table=BINARY32))
    i = Implementation("i", {"table_lookup": look, "padding_mask": pad, "rope_tables": tables}, model, arrays="torch")
    for name in i.operations:
        laws = [law for law in LAWS if law.operation == name and law.domains]
        assert not wrong(examine(laws, i, 6, 0))
    assert seen == {(getattr(torch, arithmetic), torch.int64), (torch.int64,)}


def refusing(x, start_pos=0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    return rope(x, start_pos)


@pytest.mark.parametrize(
    ("rotate", "conventions", "summary"),
    [
        (refusing, Conventions(odd_lane="reject"), ""),
        (values("rope", HALVES), HALVES, ""),
        (rope, Conventions(odd_lane="reject"), "returned something for head_dim="),
        (refusing, Conventions(odd_lane="passthrough"), "raised ValueError: odd"),
        (
            lambda x, s=0: np.concatenate([rope(x[..., :-1], s), x[..., -1:]], -1),
            Conventions(odd_lane="passthrough"),
            "out[",
        ),
    ],
)
def test_an_odd_width_is_rotated_or_refused_as_declared(rotate, conventions, summary):
    (law,) = find("the last channel of an odd width follows its convention[rope]")
    declared = Implementation("i", {"rope": rotate}, conventions=conventions, supports=())
    outcome = check(law, declared, 30)
    assert outcome.status == ("violated" if summary else "held")
    assert not summary or summary in outcome.violation.summary
    untaken = summary.startswith("raised ")  # without `supports` an exception is no violation
    outcome = check(law, replace(declared, supports=None), 30)
    assert outcome.status == ("vacuous" if untaken else "violated" if summary else "held")


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_integers_of_each_width_are_taken(dtype):
    operations = {"position_ids": lambda mask: reference.position_ids(mask).astype(dtype)}
    assert verify(Implementation("i", operations, supports={"seq_len": lambda n: n < 100}), max_examples=10).ok


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (lambda x: x.astype(float), "position_ids has dtype float64, but should have dtype int64."),
        (lambda x: x > 0, "position_ids has dtype bool, but should be an array of int64."),
        (lambda x: x.tolist(), "position_ids has type list, but should be an array of int64."),
        (lambda x: x[..., None], "position_ids has shape (1, 1), but should have shape (1,)."),
        (lambda x: x + 1, "position_ids[0]=1, but should be exactly 0."),
    ],
)
def test_what_is_no_position_is_said_in_a_sentence(changed, sentence):
    (law,) = find("positions of tokens equal their definition[position_ids]")
    outcome = check(law, Implementation("i", {"position_ids": lambda mask: changed(reference.position_ids(mask))}), 30)
    assert outcome.status == "violated"
    assert sentence in outcome.violation.summary
