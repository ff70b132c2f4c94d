"""The verifier counts what it tried, says what is wrong in a sentence, shrinks it, and goes on
whatever an implementation does.
"""

import importlib
import itertools
import json
import pkgutil
import re
import sys
import types
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
from rich.console import Console

import properties
from oracles import Conventions, Enclosure
from oracles.ball import Ball
from properties.bugs import CATALOGUE, reference
from properties.bugs.bug import Register
from properties.bugs.reference import REFERENCE, rope
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Result
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws import LAWS, LONG, find
from properties.laws.law import Laws
from properties.verifier.plan import plan
from properties.verifier.replay import replay
from properties.verifier.verify import check, examine, verify
from properties.views.terminal import print_report

SDPA = "scaled_dot_product_attention"
ROPE = "rope is within its error limit[rope]"


def outcome_of(function, law=ROPE, examples=40, **promises):
    (chosen,) = find(law)
    planted = Implementation("planted", {chosen.operation: function}, **{"supports": (), **promises})
    return check(chosen, planted, examples, 0)


def raises_on_long(x, start_pos=0):
    return rope(x, start_pos) / (len(x) < 3 or 1 // 0)


def exits(x, start_pos=0):
    sys.exit(3)


def asserts(x, start_pos=0):
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (raises_on_long, "raised ZeroDivisionError: integer division or modulo by zero"),
        (exits, "raised SystemExit: 3"),
        (asserts, "raised AssertionError without a message"),
        (lambda x: x, "takes 1 positional argument but 2 were given. It is called as rope(x, start_pos, positions, "),
        (lambda x, start_pos=0: rope(x, start_pos)[..., :1], "out has shape (1, 1), but should have shape (1, 2)."),
        (
            lambda x, start_pos=0: rope(x, start_pos).astype(np.float32),
            "out has dtype float32, but should have dtype float64.",
        ),
        (lambda x, start_pos=0: rope(x, start_pos).tolist(), "out has type list, but should be an array of float64."),
        (lambda x, start_pos=0: None, "out has type NoneType, but should be an array of float64."),
        (
            lambda x, start_pos=0: rope(x, start_pos).astype(complex),
            "out has dtype complex128, but should be an array of float64.",
        ),
        (lambda x, start_pos=0: np.full_like(x, np.nan), "out[0, 0]=nan, but should be 0.0 ± "),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(function, sentence):
    found = outcome_of(function)
    assert found.status == "violated"
    assert sentence in found.violation.summary


def test_too_many_values_are_a_violation():
    found = outcome_of(lambda *a: (1, 2), law=f"the VJP is within its error limit[{SDPA}_vjp]")
    assert found.violation.summary == "returned 2 values, but should return 3: dq, dk, dv."


def test_a_slow_call_is_a_violation(monkeypatch):
    clock = itertools.count(step=100.0)
    monkeypatch.setattr("properties.contract.caller.time.perf_counter", lambda: next(clock))
    assert outcome_of(rope).violation.summary == "took 100 s for a call, but should take at most 60 s."


def test_what_is_wrong_once_is_reported_all_the_same():
    calls = itertools.count()
    found = outcome_of(lambda x, start_pos=0: rope(x, start_pos) + (next(calls) == 3))
    assert found.status == "violated"


def test_a_run_counts_what_it_tried():
    found = outcome_of(rope)
    assert found.status == "held"
    assert 0 < found.informative <= found.examples
    assert 0 < found.worst_excess < 1


def test_the_same_seed_gives_the_same_cases_and_another_seed_others():
    (law,) = find(ROPE)
    first, again, other = (
        replace(check(law, implementation_of(reference), 30, seed), seconds=0.0) for seed in (0, 0, 1)
    )
    assert first == again
    assert first.worst_excess != other.worst_excess


def of(body, **entry):
    """A law about rope."""
    body.__doc__ = "For every case. Exact."
    law = Laws()
    law("rope", **entry)(body)
    return law.laws[0]


def test_a_law_below_its_floor_of_informative_examples_is_not_held():
    def nothing_is_demanded(subject, *case):
        subject.informative_if(False)

    found = check(of(nothing_is_demanded), implementation_of(reference), 1, 0)
    assert (found.status, found.informative) == ("vacuous", 0)
    assert found.reason.startswith("Only 0 of ")


@pytest.mark.parametrize(("arithmetic", "status"), [("float32", "vacuous"), ("bfloat16-eager", "not applicable")])
def test_a_law_that_no_budget_is_narrow_enough_for_does_not_apply_in_16_bits(arithmetic, status):
    """One that demands too rarely is vacuous in those as well."""

    def is_beside_a_wide_ball(subject, *case):
        subject.close(np.ones(1), Ball(np.ones(1), np.full(1, 2.0)))

    def demands_nothing(subject, *case):
        is_beside_a_wide_ball(subject)
        subject.informative_if(False)

    coarse = Implementation("coarse", {"rope": rope}, arithmetic)
    assert check(of(is_beside_a_wide_ball), coarse, 1, 0).status == status
    assert check(of(demands_nothing), coarse, 1, 0).status == "vacuous"


@pytest.mark.parametrize(("every", "status"), [(2, "not applicable"), (40, "vacuous")])
def test_a_law_that_may_say_enough_of_what_is_not_taken_does_not_apply(every, status):
    """A few cases that are not taken do not excuse many of which it says nothing."""
    put = iter(range(10_000))

    def nothing_is_demanded(subject, *case):
        if next(put) % every == 0:
            raise OutsideError("The implementation takes even widths.")
        subject.informative_if(False)

    found = check(of(nothing_is_demanded), implementation_of(reference), 5, 0)
    assert (found.status, found.informative) == (status, 0)


def test_a_law_that_says_nothing_of_any_case_does_not_apply():
    found = check(of(lambda subject, *case: False), implementation_of(reference), 5, 0)
    assert (found.status, found.examples) == ("not applicable", 0)
    assert found.reason.startswith("None of the ")


def test_a_law_that_fails_itself_says_nothing_and_the_others_go_on():
    def stumbles(subject, *case):
        raise ZeroDivisionError("a mistake in the suite")

    found, other = examine([of(stumbles), find(ROPE)[0]], implementation_of(reference), 5, 0)
    assert (found.status, other.status) == ("not run", "held")
    assert (found.defect, other.defect) == (True, False)
    assert found.reason.startswith(
        "attnspec failed while it checked this law: ZeroDivisionError: a mistake in the suite. "
        "This is a defect of attnspec, not of your kernel: please report it, with this traceback: "
        "properties/tests/test_verifier.py:"
    )
    assert ", called from properties/laws/law.py:" in found.reason


def test_a_law_that_compares_nothing_is_not_held():
    found = check(of(lambda subject, *case: None), implementation_of(reference), 1, 0)
    assert (found.status, found.informative) == ("vacuous", 0)


def test_a_comparison_of_no_entries_or_within_a_radius_that_is_not_judged_tells_nothing():
    subject = Subject(implementation_of(reference), "rope")
    subject.within(subject(np.zeros((0, 2)), 0))
    assert not subject.informative
    x = np.ones((1, 1))
    for told in ({}, {"judged": False}, {"vacuous": True}):
        subject.begin()
        subject.within(Result("out", x, lambda told=told: Enclosure(x, x, **told), lambda: None))
        assert subject.informative is (not told)


def test_a_wrong_result_is_compared_by_more_than_its_own_rounding():
    """The exact value is 0 ± 0 in the first entry, and what is there instead is rounded in two ways."""
    subject, right, rad = Subject(implementation_of(reference), "rope"), np.array([0.0, 1.0]), np.array([0.0, 1e-15])

    def result(*values):
        return Result("out", np.array(values), lambda: Enclosure(right, rad), lambda: None)

    subject.close(result(3.0, 1.0), result(3.0 + 4e-16, 1.0))
    with pytest.raises(BrokenError):
        subject.close(result(3.0, 1.0), result(3.001, 1.0))
    assert (result(0.0, 1.0).ball.rad == rad).all()  # what is right keeps its own radii


@pytest.mark.parametrize("name", ["rope is within its error limit", ROPE])
def test_a_declared_deviation_must_really_happen(name):
    declared = outcome_of(lambda x, start_pos=0: rope(x, start_pos + 1), known_deviations={name: "it counts from one."})
    assert (declared.status, declared.reason) == ("declared", "it counts from one.")
    assert declared.violation is not None
    gone = outcome_of(rope, known_deviations={name: "it counts from one."})
    assert gone.status == "violated"
    assert gone.violation.summary.startswith("is declared as a known deviation, but passes on ")
    assert gone.violation.summary.endswith(" test inputs. Remove the declaration. It says: it counts from one.")


def test_a_declared_deviation_of_a_law_without_cases_should_go():
    name = f"a fully masked row follows its convention[{SDPA}]"
    found = outcome_of(
        REFERENCE[SDPA], name, supports={"n_q": lambda n: n > 2000}, known_deviations={name: "it has no such rows."}
    )
    assert found.status == "violated"
    assert found.violation.summary.startswith(
        "is declared as a known deviation, but does not apply. Remove the declaration. planted supports no"
    )


def test_a_declaration_that_matches_no_law_is_refused():
    with pytest.raises(
        ValueError,
        match=r"^implementation declares to deviate from "
        r"\['f\(a\) \+ f\(b\) = f\(a \+ b\)\[rope_vjp\]'\], but no such law",
    ):
        verify({"rope": rope}, known_deviations={"f(a) + f(b) = f(a + b)[rope_vjp]": "a reason"})


def test_a_report_is_plain_data_and_ok_only_if_all_held():
    good, bad = (
        verify({"rope": f}, max_examples=5, laws=[ROPE]) for f in (rope, lambda x, start_pos=0: -rope(x, start_pos))
    )
    assert good.ok
    assert not bad.ok
    assert not good.violations
    (violation,) = bad.violations
    assert violation.law == "rope is within its error limit"
    assert violation.operation == "rope"
    assert {name for name, x in violation.counterexample.items() if x is not None} == {"x", "start_pos"}
    found = json.loads(json.dumps(bad.to_dict()))["outcomes"][0]
    assert {"law", "operation", "status", "examples", "informative", "vacuous", "worst_excess", "seconds"} <= set(found)
    assert found["status"] == "violated"


def test_a_report_of_nothing_is_not_ok():
    assert not properties.Report(()).ok


def test_an_interrupted_run_returns_what_it_knows():
    def interrupts(q, k, v, mask=None):
        raise KeyboardInterrupt

    found = verify({"rope": rope, SDPA: interrupts}, max_examples=2, laws=[ROPE, "attention is within its error limit"])
    assert found.interrupted
    assert not found.ok
    assert {o.status for o in found.outcomes} == {"held", "not run"} or {o.status for o in found.outcomes} == {
        "not run"
    }


def test_what_is_unavailable_is_not_run_and_never_held(capsys):
    def untouched(x, start_pos=0):
        raise AssertionError("It was called.")

    absent = Implementation("absent", {"rope": untouched}, unavailable="There is no CUDA device.")
    report = verify(absent, laws=[ROPE])
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.reason, outcome.examples) == ("not run", "There is no CUDA device.", 0)
    assert (outcome.unavailable, outcome.to_dict()["unavailable"]) == (True, True)
    assert not report.ok  # nothing was shown
    both = replace(report, outcomes=report.outcomes + verify({"rope": rope}, laws=[ROPE], max_examples=5).outcomes)
    assert both.ok
    assert not replace(
        both, outcomes=(*both.outcomes, replace(outcome, unavailable=False))
    ).ok  # as when a run ends before
    print_report(Console(width=100), both, {"rope": ["absent", "implementation"]})
    printed = capsys.readouterr().out
    assert printed.count("absent") == 1
    assert "not run: There is no CUDA device." in printed
    assert re.search(r"^✓  implementation +1 +\d+ +0(\.\d+)? *$", printed, re.MULTILINE)


def test_a_law_whose_cases_are_not_supported_does_not_apply():
    found = outcome_of(
        REFERENCE[SDPA],
        law=f"a fully masked row follows its convention[{SDPA}]",
        supports={"n_q": lambda n: n > 2000},
    )
    assert (found.status, found.reason.startswith("planted supports no n_q among [")) == ("not applicable", True)


def test_a_violation_replays():
    def wrong(x, start_pos=0):
        return rope(x, start_pos + 1)

    (violation,) = verify({"rope": wrong}, laws=[ROPE]).violations
    with pytest.raises(AssertionError) as found:
        replay(ROPE, {"rope": wrong}, **violation.counterexample)
    assert str(found.value) == violation.summary
    replay(ROPE, {"rope": rope}, **violation.counterexample)


@pytest.mark.thorough
def test_shrinking_ends_even_where_every_case_fails():
    calls = itertools.count()

    def wrong(q, k, v, mask=None):
        next(calls)
        return reference.scaled_dot_product_attention(q, k, v, mask) + 1

    assert outcome_of(wrong, law="attention is within its error limit", examples=100).status == "violated"
    assert next(calls) < 2000


def test_modules_and_objects_are_implementations_of_what_they_have():
    assert set(implementation_of(reference).operations) == set(reference.REFERENCE)
    assert implementation_of(types.SimpleNamespace(rope=rope)).name == "SimpleNamespace"
    assert implementation_of({"rope": rope}, arithmetic="float32").resolved_arithmetic.name == "float32"
    assert (
        implementation_of(
            Implementation("mine", {"rope": rope}), conventions=Conventions(rope_base=500.0)
        ).resolved_conventions.rope_base
        == 500
    )


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (
            {"target": 3},
            TypeError,
            "an object of type int offers no operation, but should be a mapping or an object with some of",
        ),
        ({"target": Implementation}, TypeError, "Implementation is a class, but should be an instance of it."),
        (
            {"target": {"ropes": rope}},
            ValueError,
            "Unknown operation 'ropes'. Did you mean 'rope'?",
        ),
        ({"target": {"rope": 3}}, TypeError, "operations['rope'] has type int, but should be a function."),
        ({"target": {}}, ValueError, "implementation offers no operation, but should offer some of"),
        ({"target": {"rope": rope}, "arithmetic": "float8"}, ValueError, "'float8'"),
        ({"target": {"rope": rope}, "conventions": "half"}, TypeError, "conventions has type str"),
        ({"target": {"rope": rope}, "laws": ["no such law"]}, ValueError, "Unknown law 'no such law'"),
        ({"target": {"rope": rope}, "laws": ["rows"]}, ValueError, "'rows' may mean "),
        ({"target": {"rope": rope}, "exclude": ["no such law"]}, ValueError, "Unknown law 'no such law'"),
        (
            {"target": {"rope": rope}, "exclude": "f(a) + f(b) = f(a + b)"},
            TypeError,
            "exclude='f(a) + f(b) = f(a + b)', but should be a collection of names.",
        ),
        (
            {"target": {"rope": rope}, "laws": [ROPE, "a zero query returns the mean of the visible values"]},
            ValueError,
            "'a zero query returns the mean of the visible values' is a law",
        ),
        ({"target": {"rope": rope}, "laws": "f(a) + f(b) = f(a + b)"}, TypeError, "should be a collection of names"),
        (
            {"target": {"rope": rope}, "max_examples": 0},
            ValueError,
            "max_examples=0, but should be a whole number from 1.",
        ),
        ({"target": {"rope": rope}, "seed": 1.5}, TypeError, "seed has type float, but should be an int."),
        (
            {"target": {"rope": rope}, "known_deviations": {"f(a) + f(b) = f(a + b)": ""}},
            TypeError,
            "should be a str that gives a reason.",
        ),
    ],
)
def test_nonsense_is_refused_in_a_sentence(arguments, error, sentence, unchecked):
    with pytest.raises(error) as found:
        verify(**arguments)
    assert sentence in str(found.value)


def test_laws_are_named_alike_in_python_and_by_the_command_and_some_are_left_out():
    report = verify(
        {"rope": rope},
        laws=iter(["rope-is-within", ROPE, "f(a) + f(b) = f(a + b)"]),
        exclude=iter(["f-a-f-b"]),
        max_examples=3,
    )
    assert [(o.law, o.operation) for o in report.outcomes] == [("rope is within its error limit", "rope")]
    assert report.settings["exclude"] == ["f-a-f-b"]


def test_the_script_of_a_violation_has_the_conventions_that_replaced_what_is_declared():
    report = verify({"rope": rope}, conventions=Conventions(rope_base=500.0), laws=[ROPE], max_examples=10)
    assert "conventions=oracles.Conventions(rope_base=500.0)" in report.violations[0].script
    assert (
        "conventions"
        not in verify({"rope": lambda x, start_pos: 2 * x}, laws=[ROPE], max_examples=10).violations[0].script
    )


class Unspeakable:
    """What has no repr, and is equal to nothing."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("promise", "error", "sentence"),
    [
        ({"name": 3}, TypeError, "Implementation.name=3, but should be a str that is not empty."),
        ({"name": " "}, TypeError, "Implementation.name=' ', but should be a str that is not empty."),
        (
            {"name": Unspeakable()},
            TypeError,
            "Implementation.name=an object of type Unspeakable, but should be a str that is not empty.",
        ),
        ({"operations": [rope]}, TypeError, ">], but should be a mapping."),
        (
            {"operations": {Unspeakable(): rope}},
            ValueError,
            "Unknown operation an object of type Unspeakable. Known are ",
        ),
        ({"supports": {"width": bool}}, ValueError, "Unknown size 'width' in supports. "),
        (
            {"supports": "positive"},
            TypeError,
            "supports='positive', but should be a mapping from sizes to predicates or lists, or ",
        ),
        (
            {"supports": Unspeakable()},
            TypeError,
            "supports=an object of type Unspeakable, but should be a mapping from sizes to ",
        ),
        (
            {"supports": {"head_dim": 3}},
            TypeError,
            "supports['head_dim']=3, but should be a predicate, a function of a size, or ",
        ),
        (
            {"layouts": ("sideways",)},
            ValueError,
            "Unknown layout 'sideways'. Known are transposed, heads-inside, ",
        ),
        (
            {"layouts": "strided"},
            TypeError,
            "Implementation.layouts='strided', but should be None, or a tuple of layouts' names.",
        ),
        ({"batch_ranks": ()}, ValueError, "Implementation.batch_ranks=(), but should be a tuple of natural numbers."),
        (
            {"arrays": "jax"},
            ValueError,
            "Implementation.arrays='jax', but should be 'numpy', 'torch', or a function of an array.",
        ),
        (
            {"arrays": Unspeakable()},
            ValueError,
            "Implementation.arrays=an object of type Unspeakable, but should be 'numpy', ",
        ),
        (
            {"arithmetic": None},
            TypeError,
            "Implementation.arithmetic is None, but should be an oracles.Arithmetic or a preset's name.",
        ),
        ({"unavailable": True}, TypeError, "Implementation.unavailable=True, but should be a sentence, a str."),
        (
            {"known_deviations": 3},
            TypeError,
            "Implementation.known_deviations=3, but should be a mapping from laws to reasons.",
        ),
        (
            {"refuses": (int,)},
            TypeError,
            "Implementation.refuses=(<class 'int'>,), but should be None, or a tuple of exceptions' types.",
        ),
        (
            {"refuses": ValueError},
            TypeError,
            "Implementation.refuses=<class 'ValueError'>, but should be None, or a tuple of exceptions' types.",
        ),
        ({"device": 3}, TypeError, "Implementation.device=3, but should be the name of a device, a str."),
        (
            {"dtype": "float99"},
            ValueError,
            "'float99', but should be None or one of float64, float32, float16, bfloat16.",
        ),
        ({"deterministic": "no"}, TypeError, "Implementation.deterministic='no', but should be a bool."),
    ],
)
def test_promises_that_there_are_not_are_refused(promise, error, sentence):
    with pytest.raises(error) as found:
        Implementation(**{"name": "mine", "operations": {"rope": rope}, **promise})
    assert sentence in str(found.value)


def test_every_law_is_about_operations_that_there_are_and_says_what_it_states():
    for law in LAWS:
        assert {law.operation, *law.needs} <= set(OPERATIONS), law.id
        assert law.statement[0].isupper(), law.id
        assert len(law.name) <= 70, law.id
    assert len({law.id for law in LAWS}) == len(LAWS)


def test_a_plan_holds_the_laws_about_what_is_offered():
    chosen = plan(Implementation("mine", {"rope": rope}))
    assert chosen
    assert {law.operation for law in chosen} == {"rope"}


def without_zeros(function):
    """The function, which takes no size of 0."""

    @wraps(function)
    def call(*arguments, **options):
        sizes = [n for x in (*arguments, *options.values()) if x is not None for n in (np.shape(x) or ())]
        if 0 in sizes:
            raise ValueError("A size is 0.")
        return function(*arguments, **options)

    return call


@pytest.mark.thorough
def test_positive_sizes_in_a_word_mean_that_no_law_draws_a_size_of_0():
    small = {name: without_zeros(function) for name, function in REFERENCE.items()}
    promised = Implementation("mine", small, supports="positive sizes", refuses=(ValueError,))
    assert promised.allows(n_q=1, n_k_minus_n_q=0, start_pos=0)
    assert not promised.allows(head_dim=0)
    laws = [
        "a batch gives the same as its elements one by one",
        "unsupported sizes are refused",
        *(law.id for law in LAWS if law.agreement),
    ]
    report = verify(promised, laws=laws, max_examples=3)
    assert report.ok, [(o.law, o.operation, o.status, o.reason) for o in report.outcomes]
    sizes = {"every size": lambda n: n > 0, "head_dim": lambda d: d % 2 == 0}
    even = Implementation("mine", small, supports=sizes, refuses=(ValueError,))
    assert not even.allows(head_dim=0)
    (law,) = find("unsupported sizes are refused[rope]")
    assert check(law, even, 20, 0).status == "held"


def test_laws_about_more_keys_than_queries_do_not_apply_where_there_are_as_many():
    square = {"supports": {"n_k_minus_n_q": lambda n: n == 0}}
    for law in (
        f"repeating every key and value changes nothing[{SDPA}]",
        f"appending masked keys changes nothing[{SDPA}]",
    ):
        assert outcome_of(REFERENCE[SDPA], law, 5, **square).status == "not applicable"


def test_a_violation_is_shown_on_a_small_input():
    """A key of which there must be a thirtieth: the smallest input has thirty, and numbers that are simple."""

    def wrong(q, k, v, mask=None):
        return reference.scaled_dot_product_attention(
            q, k[..., :29, :], v[..., :29, :], None if mask is None else mask[..., :29]
        )

    found = outcome_of(wrong, law="attention is within its error limit", examples=100).violation
    q, k = found.counterexample["q"], found.counterexample["k"]
    assert (q.shape[:-1], k.shape[-2]) == ((1,), 30)
    assert q.shape[-1] == 1
    assert found.shrunk


@pytest.mark.parametrize(("package", "name"), [("laws", "law"), ("bugs", "bug")])
def test_every_module_that_registers_some_is_among_the_families(package, name):
    room = importlib.import_module(f"properties.{package}")
    modules = [
        importlib.import_module(each.name)
        for each in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")
        if not each.name.endswith(".equivalent")  # no bugs
    ]
    registers = [
        getattr(module, name) for module in modules if isinstance(getattr(module, name, None), Laws | Register)
    ]
    found = [each for register in registers for each in (register.laws if package == "laws" else register.bugs)]
    assert len(registers) > 10
    known = [*LAWS, *LONG] if package == "laws" else [*CATALOGUE.values()]
    assert {each.id for each in found} <= {each.id for each in known}


def test_further_cases_of_a_law_are_judged_by_agreement_too():
    """The one case is a single row: wrong lengths come up among those that are drawn for a law that
    has said too little.
    """

    def wrong(x, start_pos=0):
        return REFERENCE["rope"](x, start_pos) * (1.5 if x.shape[-2] > 1 else 1.0)

    report = verify({"rope": wrong}, laws=["rope is within its error limit", "f(a) + f(b) = f(a + b)"], max_examples=1)
    assert "rope is within its error limit" in {v.law for v in report.violations}


def test_a_law_s_calls_of_another_operation_are_not_judged_as_its_own():
    def wrong(x, start_pos=0):
        return REFERENCE["rope"](x, start_pos) * 1.5

    offered = {"rope": wrong, "rope_vjp": REFERENCE["rope_vjp"]}
    report = verify(
        offered,
        laws=["rope is within its error limit[rope_vjp]", "the VJP is the adjoint of the forward"],
        max_examples=1,
    )
    assert [o.status for o in report.outcomes] == ["held", "violated"]
