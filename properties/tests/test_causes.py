"""A diagnosis names the bug or the convention that was planted, from nothing but the implementation's behaviour."""

import re
from dataclasses import fields, replace
from itertools import product
from typing import get_args

import ml_dtypes
import numpy as np
import pytest

import oracles
from oracles import Conventions, Enclosure
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE, scaled_dot_product_attention
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.meanings import meaning
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call
from properties.laws import LAWS, find
from properties.tests.diagnosing import causes, violated
from properties.verifier import diagnosis
from properties.verifier.causes import _apart
from properties.verifier.causes import causes as causes_of_all
from properties.verifier.notes import notes
from properties.verifier.plan import QUICKLY
from properties.verifier.possible_causes import possible_causes
from properties.verifier.verify import examine, verify

# Two names of one function: no behaviour tells them apart, and both are named.
SYNONYMS = {
    "mask_polarity=true_blocks": "sdpa-mask-polarity-inverted",
    "rope_pairing=half": "rope-half-split-pairs",
    "sinusoid_layout=concatenated": "sin-concatenated-layout",
    "kv_heads=tile": "gqa-tile-vs-repeat-interleave",
    "causal=bottom_right": "causal-top-left-vs-bottom-right",
    "dead_rows=nan": "sdpa-fully-masked-nan",
}


def in_float32(function):
    """Another code's roundings: the results of float64 in float32."""

    def rounded(*arguments):
        given = (np.asarray(x, np.float64) if isinstance(x, np.ndarray) and x.dtype != bool else x for x in arguments)
        found = function(*given)
        if isinstance(found, tuple):
            return tuple(x.astype(np.float32) for x in found)
        return found if found.dtype == bool else found.astype(np.float32)

    return rounded


def convention(operation, **reading):
    """The oracle's values in a convention."""

    def answer(*arguments):
        found = getattr(oracles, operation)(*arguments, conventions=Conventions(**reading))
        return found if isinstance(found, np.ndarray) else found.mid.copy()

    return answer


def cause_of(chosen, function, arithmetic="float32", examples=20):
    """Of what breaks a law, or agreement, on the reference, in the arithmetic, with another
    function for the operation.
    """
    given = in_float32 if arithmetic == "float32" else lambda f: f
    operations = {name: given(function if name == chosen.operation else f) for name, f in REFERENCE.items()}
    offered = {name: operations[name] for name in (chosen.operation, *chosen.needs)}
    blind = Implementation("blind", offered, arithmetic=arithmetic, supports=())
    outcomes = examine(list(dict.fromkeys([chosen, AGREEMENT[chosen.operation]])), blind, examples, 0)
    found = diagnosis.causes_of(blind, [o.violation for o in outcomes if o.violation], shrinks=False)
    return found[0] if found else None


SDPA = "scaled_dot_product_attention"
ALTERNATIVES = [
    (f"a fully masked row follows its convention[{SDPA}]", {"dead_rows": "uniform"}),
    (f"a fully masked row follows its convention[{SDPA}]", {"dead_rows": "nan"}),
    (f"attention is within its error limit[{SDPA}]", {"mask_polarity": "true_blocks"}),
    ("grouped-query attention is within its error limit[grouped_query_attention]", {"kv_heads": "tile"}),
    ("a causal mask equals its definition[causal_mask]", {"causal": "bottom_right"}),
    (
        "the sinusoidal encoding is within its error limit[sinusoidal_positional_encoding]",
        {"sinusoid_layout": "concatenated"},
    ),
    (
        "the sinusoidal encoding is within its error limit[sinusoidal_positional_encoding]",
        {"sinusoid_layout": "tensor2tensor"},
    ),
    ("rope is within its error limit[rope]", {"rope_pairing": "half"}),
    ("the last channel of an odd width follows its convention[rope]", {"odd_lane": "passthrough"}),
    ("rope is within its error limit[rope]", {"rope_base": 500_000.0}),
]
AGREEMENT = {law.operation: law for law in LAWS if law.agreement}


def one_of_each_operation(bugs):
    """Parameters of a test: the first bug of each operation, and the others as thorough ones."""
    first = {bug.operation: bug for bug in reversed(bugs)}.values()
    return [pytest.param(bug, marks=() if bug in first else pytest.mark.thorough, id=bug.id) for bug in bugs]


@pytest.mark.parametrize("bug", one_of_each_operation([b for b in CATALOGUE.values() if b.public]))
def test_a_public_bug_is_named_first(bug):
    """In float32, so that nothing is the same to the last bit, by agreement with the oracle."""
    law = AGREEMENT[bug.operation]
    found = cause_of(law, bug.fresh()) or cause_of(law, bug.fresh(), "float64")  # where it is too slight for float32
    if found is None:
        found = cause_of(find(f"{bug.law}[{bug.operation}]")[0], bug.fresh(), "float64", 60)
    assert found.diagnosis[0].id == bug.id, found.diagnosis
    assert found.diagnosis[0].repair.endswith(".")
    assert found.diagnosis[0].reported == bug.citations


@pytest.mark.parametrize("bug", one_of_each_operation([b for b in CATALOGUE.values() if b.tiles]))
def test_a_mistake_in_tiles_of_another_size_is_named_with_the_size(bug):
    size = min(bug.tiles)
    laws = [law for law in LAWS if law.operation == bug.operation and (law.name == bug.law or law.agreement)]
    tried = product((60, 200), laws, ("float32", "float64"))  # few cases show most of them
    causes = (cause_of(law, bug.tiles[size][1](), form, number) for number, law, form in tried)
    found = next(cause for cause in causes if cause and cause.diagnosis)
    (told,) = [
        d for d in found.diagnosis[:2] if d.id == bug.id
    ]  # of 9 keys, by tiles of 8, the last one is the tail too
    assert told.mechanism == bug.tiles[size][0] != bug.mechanism


@pytest.mark.parametrize(
    ("law", "reading"), ALTERNATIVES, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x))
)
def test_a_convention_is_named_first_or_beside_its_synonym(law, reading):
    (chosen,) = find(law)
    found = cause_of(chosen, convention(chosen.operation, **reading))
    ((field, value),) = reading.items()
    name = f"{field}={value:g}" if isinstance(value, float) else f"{field}={value}"
    named = [d.id for d in found.diagnosis]
    assert named[0] in (name, SYNONYMS.get(name)), named
    assert name in named[:2], named


def test_a_wrong_log_sum_exp_has_rows_and_no_channels():
    """Its last axis has the queries, and the axis before has the heads."""
    zeros, attention = np.zeros((2, 3, 1)), OPERATIONS["attention"]
    arguments = attention.arguments((zeros, zeros, zeros), {})
    out, lse = REFERENCE["attention"](zeros, zeros, zeros)
    lse[0, 2] += 1.0
    call = Call("attention", arguments, "contiguous", (out, lse))
    (note,) = notes((call,), Implementation("mine", REFERENCE), ())
    assert note == "lse, of shape (2, 3), is wrong in 1 of 6 entries: index 0 of axis 0; row 2."


def test_what_nothing_explains_is_described():
    def last_rows_off(q, k, v, mask=None):
        out = scaled_dot_product_attention(q, k, v, mask)
        out[..., 5:, :] += 0.125
        return out

    (violation,) = verify(
        {"scaled_dot_product_attention": last_rows_off}, laws=["attention is within its error limit"]
    ).violations
    assert violation.diagnosis == ()
    rows, size = violation.notes
    assert rows.startswith("out, of shape (6, 1), is wrong in 1 of 6 entries: row 5")
    assert re.fullmatch(r"All \d+ test inputs with n_q from 1 to 5 pass\.", size)


def test_an_exception_is_diagnosed_by_the_bug_that_raises_it_too():
    found = cause_of(
        find("empty arrays give empty results[sinusoidal_positional_encoding]")[0],
        CATALOGUE["inv-freq-no-lanes-raises"].mutants["sinusoidal_positional_encoding"](),
        "float64",
    )
    assert found.diagnosis[0].id == "inv-freq-no-lanes-raises"


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param("sdpa-blocked-nan-reaches-the-output", marks=pytest.mark.thorough),
        "sdpa-nan-in-masked-keys-reaches-the-weights",
    ],
)
def test_a_law_of_what_few_promise_is_explained_by_what_it_is_to_see(bug):
    """The reference has NaN there too, and with it every known bug."""
    promise = {"conventions": Conventions(blocked_values="unread")}
    (cause,) = causes(Implementation("unread", {SDPA: CATALOGUE[bug].fresh()}, **promise), 25)
    assert [d.id for d in cause.diagnosis] == [bug]


def test_a_correct_implementation_has_nothing_to_diagnose():
    assert cause_of(AGREEMENT["rope"], REFERENCE["rope"]) is None


# -- Several laws ----------------------------------------------------------------------------------

HALVES = ("rope is within its error limit", "rotation keeps the norm of each pair", "f(a) + f(b) = f(a + b)")


def causes_of(operations, laws, **options):
    return verify(operations, laws=laws, max_examples=20, **options).causes


def test_laws_that_one_mistake_breaks_have_one_cause():
    bug = CATALOGUE["rope-half-split-pairs"]
    (cause,) = causes_of({"rope": bug.fresh()}, HALVES)
    assert cause.laws == ("rope is within its error limit[rope]", "rotation keeps the norm of each pair[rope]")
    assert {d.id for d in cause.diagnosis} >= {bug.id, "rope_pairing=half"}
    assert cause.example.law == "rope is within its error limit"
    assert cause.example.shrunk
    assert cause.example.script


def test_two_mistakes_are_two_causes():
    operations = {"rope": CATALOGUE["rope-half-split-pairs"].fresh(), SDPA: CATALOGUE["sdpa-scale-missing"].fresh()}
    found = causes_of(operations, (*HALVES, "attention is within its error limit", "f(v1) + f(v2) = f(v1 + v2)"))
    assert [(cause.diagnosis[0].id, len(cause.laws)) for cause in found] == [
        ("rope-half-split-pairs", 2),
        ("sdpa-scale-missing", 1),
    ]


def test_one_convention_is_one_cause_in_all_operations_that_follow_it():
    operations = {name: convention(name, rope_pairing="half") for name in ("rope", "rope_vjp")}
    (cause,) = causes_of(operations, ("rope is within its error limit",))
    assert {law.partition("[")[2] for law in cause.laws} == {"rope]", "rope_vjp]"}
    assert cause.diagnosis[0].id == "rope_pairing=half"


def test_what_nothing_explains_is_one_cause_of_each_operation_and_says_what_was_worst():
    def off(x, start_pos=0):
        return REFERENCE["rope"](x, start_pos) * (1 + 1e-10 * (x.shape[-2] > 2) + (np.nan if x.shape[-2] > 6 else 0))

    (cause,) = causes_of({"rope": off}, HALVES)
    assert cause.diagnosis == ()
    assert len(cause.laws) > 1
    assert "nan" in f"{cause.largest_error} {cause.example.summary}"


def test_a_report_tells_each_violation_its_cause():
    report = verify({"rope": CATALOGUE["rope-half-split-pairs"].fresh()}, laws=HALVES, max_examples=20)
    assert {v.diagnosis for v in report.violations} == {report.causes[0].diagnosis}
    assert report.to_dict()["causes"][0]["laws"] == list(report.causes[0].laws)


def test_what_gives_something_else_on_calls_that_are_right_is_no_cause():
    """Half-split pairs where there is an even number of rows: the known bug gives the wrong
    results, and not the right ones.
    """
    half = CATALOGUE["rope-half-split-pairs"].fresh()

    def sometimes(x, start_pos=0):
        return REFERENCE["rope"](x, start_pos) if x.shape[-2] % 2 else half(x, start_pos)

    (cause,) = causes_of({"rope": sometimes}, ("rope is within its error limit[rope]",))
    assert not {d.id for d in cause.diagnosis} & {"rope-half-split-pairs", "rope_pairing=half"}


def test_the_example_of_a_cause_is_not_one_of_another():
    """Shrinking goes to width 2, where another mistake is."""
    half = CATALOGUE["rope-half-split-pairs"].fresh()

    def twice_wrong(x, start_pos=0):
        return (
            half(x, start_pos)
            if x.shape[-1] >= 6
            else REFERENCE["rope"](x, start_pos) * (1.25 if x.shape[-1] == 2 else 1)
        )

    report = verify(
        {"rope": twice_wrong},
        laws=["rope is within its error limit[rope]", "rotation keeps the norm of each pair[rope]"],
        max_examples=30,
        seed=2,
    )
    for cause in report.causes:
        if {d.id for d in cause.diagnosis} & {"rope-half-split-pairs", "rope_pairing=half"}:
            assert next(iter(cause.example.counterexample.values())).shape[-1] >= 6


@pytest.mark.thorough
def test_what_reproduces_a_tenth_is_not_told_and_the_smaller_input_is_no_dead_row():
    """A mask of −10 leaks: where a query may read nothing it gives the mean, which is a law, and a
    convention, of its own.
    """

    def leaks(q, k, v, mask=None):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
        s = s if mask is None else np.where(mask, s, -10.0)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    (cause,) = verify({SDPA: leaks}, max_examples=40).causes
    assert cause.example.law == "attention is within its error limit"
    assert cause.example.counterexample["mask"].any(-1).all()
    assert not cause.diagnosis


@pytest.mark.thorough
def test_what_reproduces_a_third_is_a_hint():
    """Two mistakes, each on inputs of its own: masks are ignored up to four keys, and more have
    outputs that are a hundredth too large.
    """

    def twofold(q, k, v, mask=None):
        few = k.shape[-2] <= 4
        return REFERENCE[SDPA](q, k, v, None if few else mask) * (1 if few else 1.01)

    found = causes(Implementation("twofold", {SDPA: twofold}), 40, 1)
    assert not any(cause.likely for cause in found)
    hints = [each for cause in found for each in cause.diagnosis]
    assert hints
    assert all(0.25 <= each.reproduces < 0.5 for each in hints)
    assert all(each.partial for each in hints)


def test_a_slip_of_the_scale_is_no_arithmetic():
    """√(d + 1) for √d: what is near the right value in many calls is not what an arithmetic would have made of all."""

    def short(q, k, v, mask=None):
        width = q.shape[-1]
        return REFERENCE[SDPA](q * np.sqrt(width / (width + 1)), k, v, mask)

    (cause,) = causes(Implementation("short", {SDPA: short}), 30)
    assert not any(
        each.mechanism.startswith("All results are within the error limits of a kernel in which")
        for each in cause.diagnosis
    )


def test_a_refusal_of_what_few_are_asked_is_no_evidence():
    """Without keys it raises, as a bug does that is not this one: masks are read the other way round."""

    def inverted(q, k, v, mask=None):
        if not k.shape[-2]:
            raise ValueError("No keys are no input.")
        return REFERENCE[SDPA](q, k, v, None if mask is None else ~mask)

    (cause,) = causes(Implementation("inverted", {SDPA: inverted}), 30, seed=1)
    assert {d.id for d in cause.diagnosis[:2]} == {"mask_polarity=true_blocks", "sdpa-mask-polarity-inverted"}
    assert cause.diagnosis[0].reproduces == 1  # of all wrong calls, among which the refusals are not


def test_a_mask_filled_with_a_number_that_is_large_is_one_cause():
    """Every law that the leak breaks is of one cause, which is named."""

    def filled(q, k, v, mask=None):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
        s = s if mask is None else np.where(mask, s, -1e9)
        e = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
        return e / np.maximum(e.sum(-1, keepdims=True), 1e-300) @ v

    (cause,) = causes(Implementation("filled", {SDPA: filled}), 30)
    assert cause.diagnosis[0].id == "sdpa-filled-at-minus-a-billion"


@pytest.mark.thorough
@pytest.mark.parametrize("quick", [True, False])
def test_what_reproduces_few_of_the_wrong_calls_is_told_as_a_part_of_what_happened(quick):
    """The mean of all values: on a few inputs so does one who clamps scores, and one who ignores masks."""

    def mean(q, k, v, mask=None):
        return np.broadcast_to(v.sum(-2, keepdims=True) / max(1, v.shape[-2]), (*q.shape[:-1], v.shape[-1])).copy()

    found = causes(Implementation("mean", {SDPA: mean}), QUICKLY if quick else 30, quick=quick)
    assert found
    assert not any(cause.likely for cause in found)


@pytest.mark.thorough
def test_a_mistake_of_the_forward_is_that_of_what_is_made_of_it():
    """The output is not rescaled from the third block of keys on: causal attention has it, and the
    gradients, by δ = rowsum(g ⊙ out).
    """

    def forward(q, k, v, mask=None):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
        s = s if mask is None else np.where(mask, s, -np.inf)
        m = total = out = 0.0
        for place, start in enumerate(range(0, k.shape[-2], 4)):
            part = s[..., start : start + 4]
            new = (
                np.maximum(m, part.max(-1, keepdims=True, initial=-np.inf))
                if place
                else part.max(-1, keepdims=True, initial=-np.inf)
            )
            safe = np.where(np.isinf(new), 0.0, new)
            shrink = np.exp(m - safe) if place else 0.0
            p = np.exp(part - safe)
            m, total = new, total * shrink + p.sum(-1, keepdims=True)
            out = (out if place > 1 else out * shrink) + p @ v[..., start : start + 4, :]
        return np.where(total > 0, out / np.where(total > 0, total, 1.0), 0.0), m, total

    def vjp(q, k, v, mask, g):
        out, m, total = forward(q, k, v, mask)
        s = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
        s = s if mask is None else np.where(mask, s, -np.inf)
        p = np.where(total > 0, np.exp(s - np.where(total > 0, m, 0.0)) / np.where(total > 0, total, 1.0), 0.0)
        ds = p * (g @ v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True)) / np.sqrt(max(1, q.shape[-1]))
        return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g

    kernels = {
        "causal_attention": lambda q, k, v: forward(q, k, v, np.tri(q.shape[-2], k.shape[-2], dtype=bool))[0],
        SDPA: lambda q, k, v, mask=None: forward(q, k, v, mask)[0],
        f"{SDPA}_vjp": vjp,
    }
    (cause,) = causes(
        Implementation("mine", kernels, supports="positive sizes"), 25, laws=[AGREEMENT[o].id for o in kernels]
    )
    assert {law.partition("[")[2] for law in cause.laws} == {"causal_attention]", f"{SDPA}]", f"{SDPA}_vjp]"}
    assert cause.example.operation == SDPA

    def larger(q, k, v):
        if 0 in (*q.shape, *k.shape, *v.shape):
            raise ValueError("A size is 0, but should be positive.")
        return 1.5 * kernels["causal_attention"](q, k, v)

    broken = Implementation("mine", {**kernels, "causal_attention": larger}, supports="positive sizes")
    assert len(causes(broken, 25)) == 2  # a mistake of its own is told by itself


def test_a_note_says_the_size_of_the_smallest_input_and_no_arithmetic_explains_what_is_rarely_wrong():
    def drops_the_last_of_many_keys(q, k, v, mask=None):
        n = k.shape[-2] - (k.shape[-2] > 64)
        return scaled_dot_product_attention(q, k[..., :n, :], v[..., :n, :], None if mask is None else mask[..., :n])

    (violation,) = verify(
        {SDPA: drops_the_last_of_many_keys}, laws=["attention is within its error limit"], max_examples=40
    ).violations
    assert not [
        d
        for d in violation.diagnosis
        if d.mechanism.startswith("All results are within the error limits of a kernel in which")
    ]
    sizes = [note for note in violation.notes if note.endswith(" pass.")]
    assert len(sizes) == 1
    assert re.fullmatch(r"All \d+ test inputs with n_k from 1 to 64 pass\.", sizes[0])


def test_an_error_while_a_smaller_input_is_looked_for_is_told(monkeypatch):
    wrong = implementation_of({"rope": lambda x, start_pos=0: -x})
    (found,) = examine([AGREEMENT["rope"]], wrong, 8, 0)

    def stumbles(*arguments):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(diagnosis, "smallest", stumbles)
    (cause,) = diagnosis.causes_of(wrong, [found.violation])
    assert cause.example.notes[-1].startswith(
        "attnspec failed while it looked for a smaller input: ZeroDivisionError: planted. This is "
    )
    assert not cause.example.shrunk


def backwards_and_refusing(x, start_pos=0):
    if x.shape[-1] % 2:
        raise ValueError("The width is odd.")
    return CATALOGUE["rope-turns-backwards"].fresh()(x, start_pos)


def as_textbooks_have_it(q, k, v, mask=None):
    with np.errstate(all="ignore"):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        s = s if mask is None else np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ({"rope": backwards_and_refusing}, {"rope-turns-backwards", "odd_lane=reject"}),
        ({SDPA: as_textbooks_have_it}, {"sdpa-fully-masked-nan", "sdpa-width-zero-not-a-number"}),
    ],
    ids=["rope", "attention"],
)
def test_of_two_mistakes_the_rarer_one_is_named_too(operations, expected):
    """It reproduces few of all wrong calls, but all that the other one does not; and what gets no
    other call wrong comes first.
    """
    found = causes(Implementation("twice wrong", operations, supports=()), 30)
    assert {cause.likely and cause.likely.id for cause in found} == expected


def test_a_convention_is_told_with_the_meaning_of_both_values():
    slopes = Implementation("slopes", {"alibi_slopes": REFERENCE["alibi_slopes"]})
    for declared, due in (
        (slopes, "the default is"),
        (replace(slopes, conventions=Conventions(alibi_slopes="geometric")), "the adapter declares"),
    ):
        causes = possible_causes([OPERATIONS["alibi_slopes"]], declared)
        (told,) = (cause for cause in causes if cause.id.startswith("alibi_slopes="))
        value, other = told.id.partition("=")[2], declared.resolved_conventions.alibi_slopes
        assert told.mechanism == (
            f"Your kernel has alibi_slopes={value!r} ({meaning('alibi_slopes', value)}); "
            f"{due} {other!r} ({meaning('alibi_slopes', other)})."
        )
        assert told.repair == f"Change the kernel, or declare Conventions(alibi_slopes={value!r}) if it is right."


def test_each_value_of_each_convention_that_a_cause_may_be_has_a_meaning():
    concerned = {name for operation in OPERATIONS.values() for name in operation.conventions}
    for field in fields(Conventions):
        for value in get_args(field.type) if field.name in concerned else ():
            assert meaning(field.name, value)


def test_a_cause_is_nearer_to_a_wrong_result_than_the_right_value_is():
    """The second head's output is tiny, and 2 % off. A known bug that makes it a larger number, within the
    error limit of the first head's output, is not the cause.
    """

    def attend(q, k, v, sink, **absent):
        out, _ = oracles.attention(*(np.asarray(x, np.float64) for x in (q, k, v)), sink=np.asarray(sink, np.float64))
        return (out.mid * [[[1.0]], [[1.02]]]).astype(ml_dtypes.bfloat16)

    kernel = Implementation(
        "mine", {"attention": attend}, arithmetic="bfloat16", features=("sink",), supports="no log-sum-exp"
    )
    q, k, v = np.array([[[0.0]], [[1.0]]]), np.full((2, 1, 1), -20.0), np.full((2, 1, 1), 50.0)
    law, found = violated(kernel, {"q": q, "k": k, "v": v, "sink": np.array([-13.5, 8.5])})
    assert not found.wrong
    assert "1 of 2 entries are outside" in found.summary
    assert causes_of_all(kernel, [(law, replace(found, wrong=found.calls))]) == [((0,), ())]


def test_a_stand_in_that_returns_the_right_value_explains_no_wrong_one():
    budget = Enclosure(np.array([50.0, 1.0]), np.array([0.25, 0.005]))
    recorded = np.array([50.0, 1.02])
    assert _apart(recorded, np.array([50.3, 1.0]), budget, 2.0**-9, 1) > 1
    assert _apart(recorded, np.array([50.1, 1.015]), budget, 2.0**-9, 1) < 1
