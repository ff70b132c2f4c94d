"""Each law of conduct fails on the one quirk it is about, and on that alone; what an implementation may do passes."""

import os
import random
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles import Conventions
from properties.bugs import reference
from properties.bugs.reference import REFERENCE
from properties.contract import process_state
from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.contract.subject import Subject
from properties.laws import batches, call_contract, find, refusals
from properties.tests.diagnosing import causes
from properties.verifier.examination import Supervision
from properties.verifier.verify import examine, verify

ROOT = Path(__file__).parents[2]
SDPA, VJP, MHA = "scaled_dot_product_attention", "scaled_dot_product_attention_vjp", "multi_head_attention"
SOFTMAX, SINUSOID = "hard_masked_softmax", "sinusoidal_positional_encoding"
LAWS = [law for module in (call_contract, batches, refusals) for law in module.law.laws]


def after(operation, effect):
    """The operation, and then something besides, with its arguments and its result; what that
    returns is returned, if anything.
    """

    def call(*arguments):
        out = REFERENCE[operation](*arguments)
        other = effect(out, *arguments)
        return out if other is None else other

    return call


def before(operation, change):
    """The operation of changed arguments."""
    return lambda *arguments: REFERENCE[operation](*change(*arguments))


def in_memory_order(x):
    return x.ravel(order="K").reshape(x.shape) if isinstance(x, np.ndarray) else x


def writes_mask(out, scores, mask):
    if mask is not None:
        mask[...] = True


def kept(operation):
    """The operation with a buffer for its results."""
    memory = {}

    def call(*arguments):
        out = REFERENCE[operation](*arguments)
        buffer = memory.setdefault(out.shape, np.empty(out.shape))
        buffer[...] = out
        return buffer

    return call


def remembering(operation, key, what):
    """The operation with some of its arguments from the first call with the same key."""
    memory = {}

    def call(*arguments):
        old = memory.setdefault(key(*arguments), arguments)
        return REFERENCE[operation](*(old[place] if place in what else x for place, x in enumerate(arguments)))

    return call


def counting(operation):
    calls = []

    def call(*arguments):
        calls.append(1)
        return REFERENCE[operation](*arguments) * (1 + 1e-15 * len(calls))

    return call


def unbatched(x, *by):
    if x.ndim > 2:
        return np.stack([unbatched(part, *by) for part in x])
    return reference.rope(x, *by)


PROMISED, WRITTEN, VIEW = (
    "all results have the declared types and shapes, and are finite",
    "inputs are not modified",
    "the output does not share memory with an input",
)
SECOND, EARLIER = "a second call gives the same result", "a call does not depend on earlier calls"
INTERPRETER, LAYOUT = (
    "a call prints nothing and leaves process-wide state unchanged",
    "a view gives the same result as its contiguous copy",
)
BATCH, EMPTY = "a batch gives the same as its elements one by one", "an empty batch gives an empty result"

QUIRKS = {
    "a list": (PROMISED, "rope", lambda: after("rope", lambda out, *_: out.tolist())),
    "float32": (PROMISED, SINUSOID, lambda: after(SINUSOID, lambda out, *_: out.astype(np.float32))),
    "an axis more": (PROMISED, SDPA, lambda: after(SDPA, lambda out, *_: out[None])),
    "two of three": (PROMISED, VJP, lambda: after(VJP, lambda out, *_: out[:2])),
    "integers for a mask": (PROMISED, "causal_mask", lambda: after("causal_mask", lambda out, *_: out.astype(int))),
    "a NaN": (PROMISED, SOFTMAX, lambda: after(SOFTMAX, lambda out, *_: out * np.nan)),
    "writes x": (WRITTEN, "rope", lambda: after("rope", lambda out, x, start: x.fill(0.0))),
    "writes the mask": (WRITTEN, SOFTMAX, lambda: after(SOFTMAX, writes_mask)),
    "writes a table": (WRITTEN, "apply_rotary", lambda: after("apply_rotary", lambda out, x, cos, sin: sin.fill(0.0))),
    "writes the indices": (
        WRITTEN, "table_lookup", lambda: after("table_lookup", lambda out, table, indices: indices.fill(0)),
    ),
    "writes the second mask": (
        WRITTEN, "combine_masks", lambda: after("combine_masks", lambda out, first, second: second.fill(True)),
    ),
    "returns its input": (VIEW, "add_positional_encoding", lambda: lambda x, pos: np.add(x, pos) if pos.any() else x),
    "returns a slice": (
        VIEW, "learned_positional_encoding", lambda: lambda table, n, start=0: table[start : start + n],
    ),
    "counts": (SECOND, "rope", lambda: counting("rope")),
    "one buffer": (EARLIER, "rope", lambda: kept("rope")),
    "the first mask": (
        EARLIER, SDPA, lambda: remembering(SDPA, lambda q, k, v, m=None: (q.shape, k.shape, m is None), {3}),
    ),
    "the first position": (EARLIER, SINUSOID, lambda: remembering(SINUSOID, lambda n, d, start=0: (n, d), {2})),
    "the first tables": (EARLIER, "apply_rotary", lambda: remembering("apply_rotary", lambda x, c, s: c.shape, {1, 2})),
    "the first indices": (
        EARLIER, "table_lookup", lambda: remembering("table_lookup", lambda t, i: (t.shape, i.shape), {1}),
    ),
    "prints": (INTERPRETER, MHA, lambda: after(MHA, lambda *_: print("here"))),
    "prints an error": (
        INTERPRETER, "causal_mask", lambda: after("causal_mask", lambda *_: print("here", file=sys.stderr)),
    ),
    "silences warnings": (
        INTERPRETER, SOFTMAX, lambda: after(SOFTMAX, lambda *_: warnings.simplefilter("ignore", UserWarning)),
    ),
    "silences NumPy": (INTERPRETER, "rope", lambda: after("rope", lambda *_: np.seterr(all="ignore") and None)),
    "seeds NumPy": (INTERPRETER, SDPA, lambda: after(SDPA, lambda *_: np.random.seed(0))),
    "seeds Python": (INTERPRETER, "rope", lambda: after("rope", lambda *_: random.seed(0))),
    "sets a variable": (INTERPRETER, "rope", lambda: after("rope", lambda *_: os.environ.update(OMP_NUM_THREADS="7"))),
    "shortens prints": (INTERPRETER, "rope", lambda: after("rope", lambda *_: np.set_printoptions(precision=3))),
    "k in memory order": (LAYOUT, SDPA, lambda: before(SDPA, lambda q, k, v, m=None: (q, in_memory_order(k), v, m))),
    "the cotangent in memory order": (LAYOUT, VJP, lambda: before(VJP, lambda *a: (*a[:4], in_memory_order(a[4])))),
    "the mask in memory order": (LAYOUT, SOFTMAX, lambda: before(SOFTMAX, lambda s, m=None: (s, in_memory_order(m)))),
    "a sine in memory order": (
        LAYOUT, "apply_rotary", lambda: before("apply_rotary", lambda x, c, s: (x, c, in_memory_order(s))),
    ),
    "no signs of strides": (
        LAYOUT, "rope", lambda: before("rope", lambda x, start=0: (x[::-1] if x.strides[0] < 0 else x, start)),
    ),
    "the first of a batch": (
        BATCH, "rope", lambda: before("rope", lambda x, start=0: (x[:1] + 0 * x if x.ndim > 2 else x, start)),
    ),
    "the first mask for all": (
        BATCH, SDPA, lambda: before(SDPA, lambda q, k, v, m=None: (q, k, v, m if np.ndim(m) < 3 else m[:1])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 3, 2, 4, 5), (3, 2, 4, 5), (1, 2, 4, 5), (2, 4, 5)], ids=str)
def test_a_bias_of_a_part_of_the_batch_axes_gets_the_sum_of_its_gradients(shape):
    """The right gradient is right whichever axes of the batch the bias has."""
    rng = np.random.default_rng(0)
    q, k, v, grad_out = (rng.standard_normal((2, 3, 2, n, 3)) for n in (4, 5, 5, 4))
    i = Implementation("NumPy", {"attention_vjp": REFERENCE["attention_vjp"]}, batch_ranks=(3,), features=("bias",))
    (law,) = find("a batch gives the same as its elements one by one[attention_vjp]")
    assert law.hold(
        Subject(i, "attention_vjp"), {"q": q, "k": k, "v": v, "bias": rng.standard_normal(shape), "grad_out": grad_out}
    )


def test_a_batch_of_one_says_nothing_of_batches_where_no_single_problem_is_taken():
    (law,) = find(f"{BATCH}[{SDPA}]")
    for ranks, status in (((1,), "not applicable"), ((0, 1), "held")):
        one = Implementation("one", {SDPA: REFERENCE[SDPA]}, supports={"batch": (1,)}, batch_ranks=ranks)
        assert outcome(law, one).status == status


def outcome(law, implementation):
    """What becomes of a law by itself."""
    (found,) = examine([law], implementation, 40)
    return found


@pytest.mark.parametrize("quirk", QUIRKS)
def test_a_quirk_breaks_its_law(quirk):
    name, operation, make = QUIRKS[quirk]
    (found,) = examine(
        find(f"{name}[{operation}]"),
        Implementation(quirk, {operation: make()}),
        supervision=Supervision(ends=lambda law: True),
    )
    assert found.status == "violated"


@pytest.mark.parametrize(("supports", "status"), [((), "violated"), (None, "not applicable")], ids=str)
def test_an_exception_for_an_empty_batch_breaks_the_law_of_kernels_that_declare_what_they_take(supports, status):
    (law,) = find(f"{EMPTY}[rope]")
    assert outcome(law, Implementation("no empty batch", {"rope": unbatched}, supports=supports)).status == status


def test_what_earlier_calls_change_is_seen_in_a_kernel_that_takes_few_sizes():
    """The first look and the search for sizes that work call the kernel before the law does."""

    def one_width(x, start_pos=0):
        os.environ["OMP_NUM_THREADS"] = "7"
        if x.shape[-1] != 64:
            raise ValueError("64 only")
        return reference.rope(x, start_pos)

    known = dict(os.environ)
    (law,) = find(f"{INTERPRETER}[rope]")
    found = outcome(law, Implementation("one width", {"rope": one_width}))
    assert found.violation.summary == "changed the environment's variables, but should leave it as before."
    assert dict(os.environ) == known


@pytest.mark.parametrize(
    "quirk",
    [
        "writes x",
        "writes the mask",
        "returns a slice",
        "one buffer",
        "prints",
        "silences NumPy",
        "seeds NumPy",
        "k in memory order",
    ],
)
def test_a_quirk_breaks_no_other_law_of_conduct(quirk):
    name, operation, make = QUIRKS[quirk]
    others = [law for law in LAWS if law.operation == operation and law.name != name]
    found = examine(others, Implementation(quirk, {operation: make()}), 20)
    assert [outcome for outcome in found if outcome.status not in ("held", "not applicable")] == []


def test_what_a_call_changes_is_put_back():
    known = process_state.states()
    for quirk in ("seeds NumPy", "seeds Python", "sets a variable", "shortens prints"):
        name, operation, make = QUIRKS[quirk]
        outcome(find(f"{name}[{operation}]")[0], Implementation(quirk, {operation: make()}))
    assert process_state.changes(known, process_state.states()) in (
        [],
        ["Python's global random numbers"],
    )  # which Hypothesis seeds


def summary(law, **implementation):
    (found,) = find(law)
    return examine([found], Implementation("i", **implementation), 25)[0].violation.summary


def test_a_summary_says_which_argument_and_what_was_done_to_it():
    assert (
        summary(f"{WRITTEN}[rope]", operations={"rope": QUIRKS["writes x"][2]()})
        == "x was written to, but should be left as it is."
    )
    shared = summary(
        f"{VIEW}[learned_positional_encoding]",
        operations={"learned_positional_encoding": QUIRKS["returns a slice"][2]()},
    )
    assert shared == "encoding shares memory with table, but should be an array of its own."
    assert (
        summary(f"{EARLIER}[rope]", operations={"rope": kept("rope")})
        == "out was changed by a later call, but should be an array of its own."
    )
    seeded = summary(f"{INTERPRETER}[{SDPA}]", operations={SDPA: QUIRKS["seeds NumPy"][2]()})
    assert seeded == "changed NumPy's global random numbers, but should leave it as before."
    misread = summary(f"{LAYOUT}[{SDPA}]", operations={SDPA: QUIRKS["k in memory order"][2]()})
    assert re.match(r"with transposed( k| arrays), out\[", misread), misread


def contiguous_only(x, start_pos=0):
    if not (x.flags.c_contiguous and x.flags.writeable):
        raise BufferError("not contiguous")
    return reference.rope(x, start_pos)


def test_a_layout_may_be_refused_unless_it_is_declared():
    (law,) = find(f"{LAYOUT}[rope]")
    refusing = Implementation("refusing", {"rope": contiguous_only})
    assert outcome(law, refusing).status == "held"
    assert outcome(law, replace(refusing, layouts=("offset",))).status == "held"
    broken = outcome(law, replace(refusing, layouts=("offset", "transposed")))
    assert broken.violation.summary == "raised BufferError: not contiguous"
    assert outcome(law, replace(refusing, layouts=())).reason == "It declares no layout besides contiguous arrays."


def test_a_kernel_that_refuses_some_layouts_must_not_misread_others():
    def misreading(x, start_pos=0):
        if not x.flags.writeable or x.strides[-1] != x.itemsize:
            raise BufferError("not taken")
        return reference.rope(x[::-1] if x.strides[0] < 0 else x, start_pos)

    (law,) = find(f"{LAYOUT}[rope]")
    for supports in ((), None):
        assert outcome(law, Implementation("misreading", {"rope": misreading}, supports=supports)).status == "violated"


def test_the_layouts_that_are_not_declared_are_not_given():
    (law,) = find(f"{LAYOUT}[rope]")
    misreading = Implementation(
        "misreading",
        {"rope": QUIRKS["no signs of strides"][2]()},
        layouts=("transposed", "strided", "offset", "read-only"),
    )
    assert outcome(law, misreading).status == "held"


def twos(x, start_pos=0):
    """Rope for whole batches of rows in pairs, which is not deterministic to the last bit."""
    return reference.rope(x, start_pos) * (1 + 2.0**-52 * np.random.default_rng().integers(0, 2))


def test_an_implementation_that_declares_not_to_be_deterministic_repeats_itself_within_its_budget():
    for name in (SECOND, EARLIER):
        (law,) = find(f"{name}[rope]")
        assert outcome(law, Implementation("noisy", {"rope": twos}, deterministic=False)).status == "held"
        assert outcome(law, Implementation("noisy", {"rope": twos})).status == "violated"


def restricted(kind):
    def call(x, start_pos=0):
        if x.shape[-1] % 8:
            raise kind("The head_dim should be a multiple of 8.")
        return reference.rope(x, start_pos)

    return call


def test_what_is_not_supported_is_refused_by_a_declared_exception():
    (law,) = find("unsupported sizes are refused[rope]")

    def found(raised, **promises):
        return outcome(law, Implementation("i", {"rope": restricted(raised)}, **promises))

    even = {"head_dim": lambda d: d % 8 == 0}
    assert found(ValueError, supports=even, refuses=USUAL_REFUSALS).status == "held"
    assert found(ArithmeticError, supports=even, refuses=(ArithmeticError,)).status == "held"
    other = found(ArithmeticError, supports=even, refuses=USUAL_REFUSALS).violation.summary
    assert re.fullmatch(
        r"raised ArithmeticError: The head_dim should be a multiple of 8\. But head_dim=\d+ should be "
        r"refused by ValueError or TypeError or NotImplementedError\.",
        other,
    )
    assert found(ArithmeticError, supports=even).status == "not applicable"
    assert found(ValueError, refuses=USUAL_REFUSALS).reason == "It declares no size that it does not support."


def test_the_right_answer_for_what_is_not_supported_is_no_violation_and_a_wrong_one_is():
    (law,) = find("unsupported sizes are refused[rope]")
    promises = {"supports": {"head_dim": lambda d: d % 8 == 0}, "refuses": USUAL_REFUSALS}
    assert outcome(law, Implementation("i", {"rope": reference.rope}, **promises)).status == "held"
    wrong = outcome(
        law, Implementation("i", {"rope": lambda x, start_pos=0: reference.rope(x, start_pos + 1)}, **promises)
    ).violation.summary
    assert re.fullmatch(
        r"returned something wrong for head_dim=\d+, but should refuse it by ValueError or TypeError or "
        r"NotImplementedError: out is .* budgets off\.",
        wrong,
    )
    short = outcome(
        law, Implementation("i", {"rope": lambda x, start_pos=0: reference.rope(x, start_pos)[:0]}, **promises)
    ).violation.summary
    assert "but should have shape" in short
    (law,) = find("unsupported sizes are refused[causal_mask]")
    for make, status in (
        (REFERENCE["causal_mask"], "held"),
        (lambda n_q, n_k=None: np.ones((n_q, n_k or n_q), bool), "violated"),
    ):
        few = Implementation("i", {"causal_mask": make}, supports={"n_q": lambda n: n < 8}, refuses=USUAL_REFUSALS)
        assert outcome(law, few).status == status


def test_a_width_without_a_right_answer_is_refused():
    (law,) = find("the last channel of an odd width follows its convention[rope]")
    reject = Implementation("i", {"rope": reference.rope}, conventions=Conventions(odd_lane="reject"))
    assert outcome(law, reject).violation.summary.startswith("returned something for head_dim=")


def test_a_nan_is_found_by_python_without_assertions_too():
    code = (
        "from properties import verify; from properties.bugs import reference; "
        "rope = lambda x, start_pos=0: reference.rope(x, start_pos) * float('nan'); "
        f"found = verify({{'rope': rope}}, laws=['{PROMISED}'], max_examples=5); "
        "print(found.violations[0].summary)"
    )
    ran = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == "out[0, 0]=nan, but should be a finite number.\n"


def test_an_odd_width_has_no_exponents_in_tensor2tensor():
    (law,) = find(f"unsupported sizes are refused[{SINUSOID}]")
    promises = {"conventions": Conventions(sinusoid_layout="tensor2tensor"), "refuses": USUAL_REFUSALS}
    assert outcome(law, Implementation("i", {SINUSOID: REFERENCE[SINUSOID]}, **promises)).status == "violated"


def test_a_batch_is_compared_with_batches_of_one_where_single_problems_are_not_taken():
    (law,) = find(f"{BATCH}[rope]")

    def batched(x, start_pos=0):
        if x.ndim != 3:
            raise ValueError("three axes")
        return reference.rope(x, start_pos)

    assert outcome(law, Implementation("batched", {"rope": batched}, batch_ranks=(1,))).status == "held"
    neither = Implementation("neither", {"rope": batched}, batch_ranks=(1,), supports={"batch": lambda n: n > 1})
    assert outcome(law, neither).status == "not applicable"
    assert outcome(law, Implementation("alone", {"rope": reference.rope}, batch_ranks=(0,))).status == "not applicable"


def test_the_gradients_of_weights_are_summed_over_the_batch():
    (law,) = find(f"{BATCH}[multi_head_attention_vjp]")

    def averaging(*arguments):
        dx, *dw = reference.multi_head_attention_vjp(*arguments)
        return dx, *(g / max(int(np.prod(arguments[0].shape[:-2])), 1) for g in dw)

    assert outcome(law, Implementation("averaging", {law.operation: averaging})).status == "violated"


def test_arrays_of_a_kind_of_their_own_cannot_be_asked_whether_they_share_memory():
    (law,) = find(f"{VIEW}[rope]")
    own = Implementation("own", {"rope": reference.rope}, arrays=lambda x: x)
    assert outcome(law, own).reason == "Its arrays cannot be asked whether they share memory."


# -- Arrays of others ------------------------------------------------------------------------------


class Foreign:
    """An array as MLX has them: its types have the module's name, negative strides cannot be handed
    over, and DLPack reads it.
    """

    def __init__(self, values):
        if any(stride < 0 for stride in values.strides):
            raise ValueError("strides should not be negative")
        self.values, self.shape = values.copy(), values.shape
        self.dtype = type("Dtype", (), {"__str__": lambda self: f"mlx.core.{values.dtype}"})()

    def __dlpack__(self, **keywords):
        return self.values.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def of_foreign(operation):
    def call(*arguments):
        return Foreign(REFERENCE[operation](*(x.values if isinstance(x, Foreign) else x for x in arguments)))

    return call


def test_arrays_of_others_are_handed_over_and_read_masks_too():
    foreign = Implementation("foreign", {name: of_foreign(name) for name in ("combine_masks", "rope")}, arrays=Foreign)
    report = verify(foreign, max_examples=10)
    assert report.ok, [
        (o.law, o.reason, o.violation) for o in report.outcomes if o.status not in ("held", "not applicable")
    ]
    assert {
        o.operation
        for o in report.outcomes
        if o.law == "a view gives the same result as its contiguous copy" and o.status == "held"
    } == {
        "combine_masks",
        "rope",
    }


def test_what_cannot_be_handed_over_is_not_applicable_and_says_why():
    def contiguous(values):
        if not values.flags.c_contiguous or not values.flags.writeable or values.base is not None:
            raise BufferError("no views")
        return values

    report = verify(
        {"rope": reference.rope}, laws=["a view gives the same result as its contiguous copy"], max_examples=20
    )
    assert report.outcomes[0].status == "held"
    strict = Implementation("strict", {"rope": reference.rope}, arrays=contiguous)
    (found,) = verify(strict, laws=["a view gives the same result as its contiguous copy"], max_examples=20).outcomes
    assert found.status == "not applicable"
    assert re.fullmatch(
        r"Transposed arrays of float64 and shape .* cannot be passed: BufferError: no views\.", found.reason
    )

    nowhere = Implementation("nowhere", {"rope": reference.rope}, arrays=lambda values: values.on_the_moon)
    (found,) = verify(nowhere, laws=["rope is within its error limit"], max_examples=20).outcomes
    assert found.status == "vacuous"
    assert (
        "so nowhere has no verdict: Contiguous arrays of float64 and shape (1, 2) cannot be passed: AttributeError: "
        in found.reason
    )


# -- What is told ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rope",
    [lambda x, start_pos=0: reference.rope(x, start_pos) + 1, lambda x, start_pos=0: 1 // 0],
    ids=["wrong", "raises"],
)
def test_what_is_wrong_by_itself_does_not_depend_on_earlier_calls(rope):
    found = causes(Implementation("wrong", {"rope": rope}, supports=()), 10)
    assert "a call does not depend on earlier calls[rope]" not in [law for cause in found for law in cause.laws]
    assert "rope is within its error limit" in [cause.example.law for cause in found]


def test_the_call_that_is_wrong_is_shown_as_it_was_handed_over():
    def minds_zeros(q, k, v, mask=None):
        return REFERENCE[SDPA](q, k, v, mask) + 1.0 * (q.shape[-1] > 1 and not q[..., -1].any())

    report = verify({SDPA: minds_zeros}, laws=["added zero channels change only the scale"], max_examples=60)
    (cause,) = report.causes
    assert cause.example.counterexample["q"].shape[-1] * 4 == int(
        re.search(r"q=\[.*?\] float64 \(.*?(\d+)\),", cause.example.notes[0])[1]
    )

    def narrow(x, start_pos=0):
        return reference.rope(x.astype(np.float64), start_pos).astype(np.float32) + np.float32(1)

    report = verify({"rope": narrow}, arithmetic="float32", laws=["rope is within its error limit"], max_examples=20)
    assert report.causes[0].example.notes[0] == "The call got the numbers as float32."


def test_the_law_about_refusals_calls_combined_masks_with_two():
    promises = {"supports": {"n_q": (1, 2, 3)}, "refuses": USUAL_REFUSALS}
    i = Implementation("some queries", {"combine_masks": np.logical_and}, **promises)
    (outcome,) = verify(i, laws=["unsupported sizes are refused"], max_examples=10).outcomes
    assert outcome.status == "not applicable"
