"""What implementations take, said in words: every call keeps to it, and what it leaves out is not
applicable, with the reason.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import oracles
from oracles import Conventions
from properties import Implementation, verify
from properties.bugs.reference import REFERENCE
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.contract.support import WORDS, OutsideError
from properties.laws import LAWS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.tests.diagnosing import causes
from properties.verifier.plan import plan
from properties.verifier.report import Outcome, Report
from properties.verifier.verify import check
from properties.views.terminal import print_report

SDPA, VJP, SOFTMAX, HEADS, GROUPED = (
    *("scaled_dot_product_attention", "scaled_dot_product_attention_vjp", "hard_masked_softmax"),
    *("multi_head_attention", "grouped_query_attention"),
)


def watched(*names, wrong=()):
    """Functions of operations that keep what they are called with; some of them return twice what they should."""
    calls = {name: [] for name in names}

    def of(name):
        def call(*arguments):
            calls[name].append(arguments)
            found = REFERENCE[name](*arguments)
            return 2 * found if name in wrong else found

        return call

    return {name: of(name) for name in names}, calls


def shapes(name, calls):
    """The different shapes of calls."""
    return {
        tuple(
            x.shape if isinstance(x, np.ndarray) else None if p == "start_pos" else x
            for p, x in zip(o.parameters, each, strict=False)
        )
        for o in [OPERATIONS[name]]
        for each in calls
    }


@pytest.mark.thorough
@pytest.mark.parametrize(("most", "wrong"), [(1, ()), (8, ()), (8, (SDPA, "rope"))])
def test_so_many_shapes_are_not_exceeded_whatever_the_seed_and_whether_it_is_right(most, wrong):
    functions, calls = watched(SDPA, "rope", "learned_positional_encoding", wrong=wrong)
    promised = Implementation("compiled", functions, supports=f"at most {most} shapes")
    for seed in (0, 1):
        report = verify(promised, max_examples=16, seed=seed)
        agreement = {
            o.operation: o
            for o in report.outcomes
            if "is within its error limit" in o.law or "rows of its table" in o.law
        }
        assert {name: o.status for name, o in agreement.items()} == {
            name: "violated" if name in wrong else "held" for name in functions
        }
        assert min(o.examples for o in agreement.values()) >= 4
        assert report.ok == (not wrong)
    assert {name: len(shapes(name, each)) <= most for name, each in calls.items()} == dict.fromkeys(functions, True)
    assert min(len(shapes(name, each)) for name, each in calls.items()) > most // 4  # and it is made use of


def test_laws_that_need_more_shapes_do_not_apply_and_say_so():
    functions, calls = watched("rope")
    report = verify(Implementation("compiled", functions, supports="at most 1 shape"), max_examples=40)
    assert len(shapes("rope", calls["rope"])) == 1
    left_out = {o.reason for o in report.outcomes if o.law == "a chunk of positions equals the slice of the whole"}
    assert left_out <= {"It takes at most 1 shapes of rope's arguments, and this call has another one."}
    reasons = [o.reason for o in report.outcomes if o.status == "not applicable"]
    assert reasons
    assert all(reasons)


def test_shapes_are_shared_by_the_items_of_pytest():
    functions, calls = watched("rope")
    promised = Implementation("compiled", functions, supports="at most 4 shapes")
    assert {check(law, promised, 6, random_seed=None).status for law in plan(promised)} == {"held", "not applicable"}
    assert len(shapes("rope", calls["rope"])) <= 4


def full(o, arguments):
    sizes = o.sizes(arguments)
    return (*o.lead(arguments), *(sizes[axis] for axis in o.axes["mask"][1:]))


@pytest.mark.parametrize(
    ("word", "queries", "names"),
    [
        ("full masks", None, (SOFTMAX, GROUPED)),
        ("key masks", 1, (SDPA, HEADS)),
        pytest.param("full masks", None, (SDPA, VJP, HEADS), marks=pytest.mark.thorough),
        pytest.param("key masks", 1, (VJP, SOFTMAX, GROUPED), marks=pytest.mark.thorough),
    ],
)
def test_masks_have_the_shape_that_is_promised_in_every_call(word, queries, names):
    functions, calls = watched(*names)
    report = verify(Implementation("refuses to broadcast", functions, supports=word), max_examples=8)
    assert report.ok, [v.summary for v in report.violations]
    for name, each in calls.items():
        o, seen = OPERATIONS[name], 0
        for arguments in each:
            mask = dict(zip(o.parameters, arguments, strict=True))["mask"]
            if mask is not None:
                *lead, n_q, n_k = full(o, arguments)
                assert mask.shape == (*lead, queries or n_q, n_k)
                seen += 1
        assert seen > 10, name


def of_kind(word, mask, lead, n):
    """A mask that is handed over as a word says, as the reference takes it, for arrays of some
    leading axes and n keys.
    """
    if word == "key lengths":
        assert (mask.dtype, mask.shape) == (np.int64, lead)
        return (np.arange(n) < mask[..., None])[..., None, :]
    if word == "padding masks":
        assert (mask.dtype, mask.shape) == (bool, (*lead, n))
        return mask[..., None, :]
    fill = -np.inf if word == "additive masks" else np.finfo(np.float32).min
    assert mask.dtype == np.float32
    assert set(np.unique(mask)) <= {0.0, fill}
    return mask == 0


KINDS = {"padding masks": GROUPED, "key lengths": SDPA, "additive masks": HEADS, "finite masks": GROUPED}
"""The kinds of masks, each with the operation of the quick test."""


@pytest.mark.parametrize(
    ("word", "name"),
    [
        pytest.param(word, name, marks=[pytest.mark.thorough] * (name != first))
        for word, first in KINDS.items()
        for name in (SDPA, HEADS, GROUPED)
    ],
)
def test_masks_are_handed_over_in_the_kind_that_is_promised(word, name):
    seen = []

    def function(*arguments):
        o = OPERATIONS[name]
        found = dict(zip(o.parameters, arguments, strict=True))
        if found["mask"] is not None:
            sizes, lead = o.sizes(arguments), o.lead(arguments)
            found["mask"] = of_kind(word, found["mask"], lead, sizes.get("n_k", sizes.get("seq_len")))
            if name == GROUPED and word in ("padding masks", "key lengths"):
                found["mask"] = found["mask"][..., None, :, :]
            seen.append(found["mask"])
        out = REFERENCE[name](
            *(x.astype(np.float64) if getattr(x, "dtype", None) == np.float32 else x for x in found.values())
        )
        return tuple(map(np.float32, out)) if isinstance(out, tuple) else out.astype(np.float32)

    report = verify(Implementation("takes " + word, {name: function}, "float32", supports=word), max_examples=8)
    assert report.ok, [v.summary for v in report.violations]
    assert len(seen) > 3


@pytest.mark.parametrize(("word", "fill"), [("additive masks", -np.inf), ("finite masks", np.finfo(np.float32).min)])
def test_masks_that_are_built_are_read_in_the_kind_that_is_promised(word, fill):
    def built(n_q, n_k=None, wrong=0.0):
        return np.where(REFERENCE["causal_mask"](n_q, n_k), np.float32(wrong), np.float32(fill))

    right = {"causal_mask": built, "combine_masks": lambda first, second: np.minimum(first, second)}
    assert verify(Implementation("builder", right, "float32", supports=word), max_examples=20).ok
    wrong = verify(
        Implementation("builder", {"causal_mask": lambda *n: built(*n, wrong=-1.0)}, "float32", supports=word),
        max_examples=5,
    )
    assert any(v.summary.endswith(f"]=-1.0, but should be 0 or {float(fill)}.") for v in wrong.violations)


@pytest.mark.parametrize("word", ["padding masks", "additive masks"])
def test_what_is_wrong_with_masks_of_a_kind_is_explained_by_the_bug_all_the_same(word):
    def unmasked(q, k, v, mask=None):
        return REFERENCE[SDPA](q, k, v)

    report = verify(
        Implementation("unmasked", {SDPA: unmasked}, supports=word),
        max_examples=20,
        laws=["attention is within its error limit"],
    )
    assert [cause.diagnosis[0].id for cause in report.causes] == ["softmax-vjp-ignores-the-mask"]


def _added_vjp(q, k, v, mask, grad_out):
    given = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    added = 0.0 if mask is None else torch.from_numpy(mask)
    weights = (given[0] @ given[1].mT / max(q.shape[-1], 1) ** 0.5 + added).softmax(-1)
    return tuple(x.numpy() for x in torch.autograd.grad(weights @ given[2], given, torch.from_numpy(grad_out)))


def test_gradients_that_flow_through_an_added_finite_fill_are_judged_where_that_is_declared():
    laws = ["the VJP is within its error limit", "a fully masked row follows its convention"]

    def adapter(function, gradients):
        meant = Conventions(dead_rows="uniform", dead_gradients=gradients)
        supports = ["finite masks" if function is _added_vjp else "additive masks", "positive sizes"]
        return Implementation("added", {VJP: function}, conventions=meant, supports=supports)

    def of_numbers(q, k, v, mask, g):
        return _added_vjp(q, k, v, None if mask is None else np.maximum(mask, -np.finfo(np.float64).max), g)

    def constant(q, k, v, mask, g):
        found = oracles.scaled_dot_product_attention_vjp(q, k, v, mask, g, conventions=Conventions(dead_rows="uniform"))
        return tuple(x.mid.copy() for x in found)

    right = verify(adapter(_added_vjp, "flow"), laws=laws, max_examples=10)
    assert [o.status for o in right.outcomes] == ["held", "held"]
    (flowing,) = causes(adapter(of_numbers, "stop"), 10, laws=laws)
    assert flowing.diagnosis[0].id == "dead_gradients=flow"
    wrong = Implementation(
        "constant", {VJP: constant}, conventions=Conventions(dead_rows="uniform", dead_gradients="flow")
    )
    (stopped,) = causes(wrong, 10, laws=laws)
    assert (stopped.laws, stopped.diagnosis[0].id) == ((f"{laws[1]}[{VJP}]",), "dead_gradients=stop")


def test_finite_masks_make_all_keys_alike_for_a_query_without_keys_and_leave_its_gradients_undrawn():
    def added(q, k, v, mask=None):
        with np.errstate(all="ignore"):
            scores = q @ k.swapaxes(-1, -2) / np.sqrt(max(q.shape[-1], 1)) + (0.0 if mask is None else mask)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    promises = {"supports": ["finite masks", "positive sizes"]}
    law = "a fully masked row follows its convention"
    for reading, status in (("uniform", "held"), ("zero", "violated")):
        i = Implementation("added", {SDPA: added}, conventions=Conventions(dead_rows=reading), **promises)
        assert [o.status for o in verify(i, laws=[law], max_examples=20).outcomes] == [status]
    (left,) = verify(Implementation("added", {VJP: REFERENCE[VJP]}, **promises), laws=[law], max_examples=5).outcomes
    assert left.reason == (
        "With finite masks, gradients may flow through the equal weights of a fully masked row. If they do, declare "
        "Conventions(dead_rows='uniform', dead_gradients='flow')."
    )


@pytest.mark.parametrize(
    ("word", "laws", "kinds"),
    [
        # Masks of keys and of heads are not full. A causal mask of one query is a mask of keys, one of 64 is not.
        ("full masks", set(), {"broadcast masks", "masks of rows", "masks of sequences", "operating numbers"}),
        ("key masks", set(), {"broadcast masks", "masks of sequences", "operating numbers"}),
        ("padding masks", set(), {"broadcast masks", "masks of sequences", "operating numbers"}),
        ("key lengths", set(), {"broadcast masks", "masks of sequences", "operating numbers"}),
        (
            "no masks",
            {"outputs do not depend on future keys and values"},
            {
                *("broadcast masks", "masks of rows", "masks of sequences", "padded masks", "one key each"),
                "operating numbers",
            },
        ),
        (
            "no batch axes",
            {"a batch gives the same as its elements one by one", "an empty batch gives an empty result"},
            {"masks of sequences", "operating numbers"},
        ),
    ],
)
def test_what_a_promise_leaves_out_is_not_applicable_or_not_drawn_with_the_reason(word, laws, kinds, capsys):
    functions, _ = watched(SDPA)
    chosen = [
        "attention is within its error limit",
        "outputs do not depend on future",
        "a batch gives the same",
        "an empty batch",
    ]
    report = verify(Implementation("mine", functions, supports=word), laws=chosen, max_examples=20)
    left = {o.law: o.reason for o in report.outcomes if o.status == "not applicable"}
    assert set(left) == laws
    assert all(reason == WORDS[word] for reason in left.values())
    agreement = next(o for o in report.outcomes if o.law == "attention is within its error limit")
    assert {each.partition(": ")[0] for each in agreement.undrawn} == kinds
    print_report(Console(width=200), report, {"mine": ["mine"]})
    (told,) = re.findall(r"· not tested  mine  (.*?)(?:: .*)?\n", capsys.readouterr().out)
    assert set(told.split(", ")) == kinds


def test_the_guide_lists_the_words():
    guide = (Path(__file__).parents[2] / "docs/guide/adapters.md").read_text("utf-8")
    assert dict(re.findall(r'^\| `"(.*)"` \| (.*) \|$', guide, re.MULTILINE)) == WORDS


@pytest.mark.parametrize(
    ("sizes", "operation"),
    [
        ({"n_q": (48,), "n_k": (48, 96), "head_dim": (64, 128)}, SDPA),
        pytest.param({"num_heads": (8,), "head_dim": [6]}, GROUPED, marks=pytest.mark.thorough),
        ({"seq_len": (7, 12), "num_heads": (3,), "head_dim": (6,)}, HEADS),
        ({"head_dim": (6, 9), "seq_len": (12, 30)}, "rope"),
        ({"start_pos": (5, 100)}, "rope"),
    ],
)
def test_sizes_of_a_list_are_drawn_and_no_others(sizes, operation):
    functions, calls = watched(operation)
    report = verify(Implementation("sized", functions, supports=[sizes, "positive sizes"]), max_examples=25)
    assert report.ok, [v.summary for v in report.violations]
    o = OPERATIONS[operation]
    found = [o.sizes(each) for each in calls[operation]]
    refused = next(x for x in report.outcomes if x.law == "unsupported sizes are refused")
    outside = [each for each in found if any(each[name] not in taken for name, taken in sizes.items() if name in each)]
    assert len(outside) <= refused.examples  # by that law alone
    assert all({each[name] for each in found} >= set(taken) - {9} for name, taken in sizes.items() if name in found[0])


@pytest.mark.parametrize(
    ("supports", "error", "sentence"),
    [
        (
            "all masks",
            TypeError,
            "supports='all masks', but should be a mapping from sizes to predicates or lists, "
            "or a word: 'positive sizes'",
        ),
        (["at most 0 shapes"], TypeError, "supports='at most 0 shapes', but should be"),
        (3, TypeError, "supports=3, but should be"),
        ({"width": (3,)}, ValueError, "Unknown size 'width' in supports. "),
        (
            {"head_dim": "64"},
            TypeError,
            "supports['head_dim']='64', but should be a predicate, a function of a size, or a list of sizes.",
        ),
        (
            {"scale": [float("nan")]},
            TypeError,
            "supports['scale']=[nan], but should be a predicate, a function of a size, or",
        ),
        (
            {"head_dim": [1.5]},
            TypeError,
            "supports['head_dim']=[1.5], but should be a predicate, a function of a size, or",
        ),
        ({"head_dim": ()}, TypeError, "supports['head_dim']=(), but should be"),
        (
            ["additive masks", "finite masks"],
            ValueError,
            "supports says 'additive masks' and 'finite masks', but should say only one of them.",
        ),
        (
            ["full masks", "key masks"],
            ValueError,
            "supports says 'full masks' and 'key masks', but should say only one of them.",
        ),
    ],
)
def test_words_that_there_are_not_are_refused(supports, error, sentence):
    with pytest.raises(error) as raised:
        Implementation("mine", {"rope": REFERENCE["rope"]}, supports=supports)
    assert sentence in str(raised.value)


def test_masks_of_keys_are_chosen_for_no_keys_too():
    def attend(x, wq, wk, wv, wo, num_heads, mask=None):
        if 0 in x.shape:
            raise ValueError("A size is 0.")
        return REFERENCE[HEADS](x, wq, wk, wv, wo, num_heads, None if mask is None else mask[..., None, :])

    mine = Implementation("mine", {HEADS: attend}, supports=["positive sizes", "padding masks"], refuses=(ValueError,))
    (outcome,) = verify(mine, laws=["unsupported sizes are refused"], max_examples=10).outcomes
    assert outcome.status == "held"


@pytest.mark.parametrize(
    ("word", "outside", "inside"),
    [
        ("causal only", {}, {"causal": True}),
        ("left windows", {"window": (2, 1)}, {"window": (2, None)}),
        ("equal windows", {"window": (2, 1)}, {"window": (2, 2)}),
        ("causal windows", {"window": (2, 1)}, {"window": (2, 1), "causal": True}),
    ],
)
def test_no_call_is_made_with_options_that_a_word_leaves_out(word, outside, inside):
    attention = OPERATIONS["attention"]
    mine = Implementation("mine", {"attention": REFERENCE["attention"]}, features=("causal", "window"), supports=word)
    q = np.ones((1, 2, 4))
    caller = Caller(mine, "attention")
    with pytest.raises(OutsideError):
        caller(*attention.arguments((q, q, q), outside))
    caller(*attention.arguments((q, q, q), inside))
    assert len(caller.calls) == 1


def test_the_window_of_a_cache_is_a_length():
    caches = Implementation("mine", {"decode": REFERENCE["decode"]}, supports="left windows")
    assert caches.support.takes_options({"window": 2})


def test_a_window_that_counts_keys_counts_at_least_one():
    counts = Implementation(
        "counts", {"attention": REFERENCE["attention"]}, conventions=Conventions(window="count"), features=("window",)
    )
    attention, q = OPERATIONS["attention"], np.ones((1, 2, 4))
    for window, is_taken in (((0, None), False), ((1, None), True), ((None, 0), True)):
        assert counts.takes(attention, attention.arguments((q, q, q), {"window": window})) is is_taken
        bounds = replace(counts, conventions=Conventions())
        assert bounds.takes(attention, attention.arguments((q, q, q), {"window": window}))


@pytest.mark.parametrize("word", ["equal windows", "causal windows"])
@pytest.mark.parametrize("features", [("window",), ("window", "causal", "softcap")])
def test_windows_are_drawn_as_a_word_says(word, features):
    mine = Implementation("mine", {"attention": REFERENCE["attention"]}, features=features, supports=[word])
    attention = OPERATIONS["attention"]
    cases = [Cases(attention, DOMAINS["attention"]["everyday"], mine).draw(seed) for seed in range(60)]
    assert all(mine.takes(attention, case) for case in cases)
    windows = {attention.named(case)["window"] for case in cases} - {None}
    assert bool(windows) == (word == "equal windows" or "causal" in features)


@pytest.mark.parametrize("pairing", ["adjacent", "half"])
def test_a_kernel_of_half_tables_gets_one_column_for_each_pair(pairing):
    def rotate(x, cos, sin):
        assert cos.shape == sin.shape == (x.shape[-2], x.shape[-1] // 2)
        first, second = np.split(x, 2, -1) if pairing == "half" else (x[..., ::2], x[..., 1::2])
        rotated = first * cos - second * sin, second * cos + first * sin
        return np.concatenate(rotated, -1) if pairing == "half" else np.stack(rotated, -1).reshape(x.shape)

    conventions = Conventions(rope_pairing=pairing)
    options = {"conventions": conventions, "supports": ["half tables", {"head_dim": lambda d: d % 2 == 0}]}
    report = verify(Implementation("mine", {"apply_rotary": rotate}, **options), max_examples=20)
    assert report.ok, report.violations
    assert not report.undecided


def test_a_layer_may_take_no_context_of_its_own():
    functions, calls = watched("attention_layer")
    assert verify(Implementation("self", functions, supports=["context is x", "positive sizes"]), max_examples=20).ok
    found = [OPERATIONS["attention_layer"].named(each) for each in calls["attention_layer"]]
    assert len({given["x"].shape for given in found}) > 5
    assert all(np.array_equal(given["x"], given["context"], equal_nan=True) for given in found)


def test_half_tables_of_the_other_pairing_are_recognised():
    def rotate(x, cos, sin):
        first, second = x[..., ::2], x[..., 1::2]
        return np.stack((first * cos - second * sin, second * cos + first * sin), -1).reshape(x.shape)

    options = {
        "conventions": Conventions(rope_pairing="half"),
        "supports": ["half tables", {"head_dim": lambda d: d % 2 == 0}],
    }
    report = verify(Implementation("mine", {"apply_rotary": rotate}, **options), max_examples=20, quick=True)
    assert report.causes[0].diagnosis[0].id == "rope_pairing=adjacent"


def test_a_verdict_of_almost_no_law_is_inconclusive():
    laws = [law for law in LAWS if law.operation == SDPA]
    outcomes = [
        Outcome(law.name, SDPA, "mine", "held" if law is laws[0] else "not applicable", reason="It takes one size.")
        for law in laws
    ]
    almost_none = Report(outcomes)
    assert (almost_none.ok, almost_none.is_inconclusive) == (False, True)
    assert f"only 1 of {len(outcomes)} laws apply" in str(almost_none)
    assert not Report(outcomes[:5]).undecided
