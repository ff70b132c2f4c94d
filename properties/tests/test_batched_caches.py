"""Batched caches: rows with their own positions, which are copied, exchanged and freed."""

import numpy as np
import pytest

import properties
from properties.bugs.batched_caches import bug as register
from properties.bugs.reference_batched_caches import Slotted
from properties.contract.cache_programs import Step, parse, rows_of_part, written
from properties.contract.cache_states import Held, attends, is_legal, played
from properties.contract.cache_values import batched_decode, decode
from properties.contract.caches import OFFERS, BatchedDecoder, held_of, offered
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.operations import OPERATIONS
from properties.inspection.caches import caches, sentences_of_caches
from properties.inspection.measurements import measured
from properties.inspection.probe import Probe
from properties.inspection.shapes import shape_of
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.strategies.drawn_programs import shorter
from properties.tests.diagnosing import first_cause

OPERATION = OPERATIONS["batched_decode"]
RNG = np.random.default_rng(0)
Q, K, V = RNG.standard_normal((4, 9, 2)), RNG.standard_normal((2, 9, 2)), RNG.standard_normal((2, 9, 3))


def call_of(steps, batch=3, heads=1, **options):
    """The arguments of a call with a program: zeros, as many as the program needs."""
    program = parse(steps)
    count = {"append": 0, "attend": 0}
    for step in program:
        if step.name in count and not step.refused:
            count[step.name] += step.n * len(step.rows_of(batch))
    arrays = (np.zeros((heads, count[name], width)) for name, width in (("attend", 2), ("append", 2), ("append", 3)))
    return OPERATION.arguments((*arrays, batch, steps), options)


def case_of(steps, **options):
    """The same call by the names of the arguments."""
    return OPERATION.named(call_of(steps, **options))


# -- Programs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "append 3 rows 2 0; attend 1; other fork 0 1; reorder 1 1 0; free 2; rollback 1 rows 0; evict 2 rows 1 refused",
        "fork 4 0 refused; other reorder 0 refused; free 7 refused; restart; poison nan; other attend 2 rows 1",
    ],
)
def test_a_program_with_rows_is_read_as_it_is_written(text):
    assert written(parse(text)) == text


@pytest.mark.parametrize("text", ["fork 1", "fork 0 1 2", "free", "reorder", "append 2 rows", "restart rows 0"])
def test_a_step_without_its_rows_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match=r"^Unknown step '.*'\. Write steps such as .* 'fork 0 1' or"):
        parse(text)


def test_each_row_gets_the_next_rows_of_the_arrays_in_the_order_in_which_it_is_named():
    first, second, third = attends(parse("append 2 rows 1 0; append 1 rows 1; attend 1 rows 0 1; attend 2 rows 1"), 2)
    assert (first.row, first.held.keys, first.queries) == (0, (2, 3), range(1))
    assert (second.row, second.held.keys, second.queries) == (1, (0, 1, 4), range(1, 2))
    assert (third.row, third.held.keys, third.queries) == (1, (0, 1, 4), range(2, 4))


def test_rows_are_copied_exchanged_and_freed():
    steps = "append 1 rows 0; append 2 rows 1; fork 1 2; append 1 rows 2; reorder 2 0 0; free 1; attend 1 rows 0 2"
    first, second = attends(parse(steps), 3)
    assert (first.held.keys, second.held.keys) == ((1, 2, 3), (0,))


def test_a_part_of_a_step_keeps_the_first_positions_of_each_of_its_rows():
    whole, part = parse("append 3 rows 2 0; attend 1 rows 2"), Step("append", 2, rows=(0,))
    assert rows_of_part(whole, [(0, part)], 3)["append"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("steps", "legal"),
    [
        ("append 2 rows 0; attend 1 rows 0", True),
        ("append 2 rows 0; attend 1", False),  # row 1 is empty
        ("append 2 rows 0; attend 1 refused; attend 1 rows 0", True),
        ("append 2 rows 0 0; attend 1 rows 0", False),  # a row twice
        ("append 2 rows 0 0 refused; append 1; attend 1", True),
        ("append 1; attend 1 rows 2 refused; attend 1", True),  # there is no row 2
        ("append 1; reorder 0 refused; reorder 1 1; attend 1", True),
        ("append 1; reorder 0 2; attend 1", False),
        ("append 4; append 1 rows 0; attend 1", False),  # more than the capacity
        ("append 4 rows 0; append 1 refused; append 1 rows 1; attend 1", True),
        ("append 4 rows 0; free 0; append 4; attend 1", True),
        ("append 2; rollback 2 refused; rollback 1; attend 1", True),  # position 0 belongs to the prefix
        ("append 3; evict 3 refused; evict 1; attend 1", True),
        ("append 3; evict 2; append 2; attend 3", False),  # it is not defined which queries these are
    ],
)
def test_a_batch_of_two_with_a_capacity_of_four_and_a_prefix_of_one_refuses_as_a_whole(steps, legal):
    assert is_legal(parse(steps), Held(None, 4, prefix=1), 2) is legal


@pytest.mark.parametrize(
    ("steps", "legal"),
    [
        ("append 5; append 2; attend 1", True),  # positions 0, 4, 5 and 6, and one more slot
        ("append 5; append 5; attend 1", False),  # the prefix keeps its slot
        ("append 5; append 4; attend 2", True),
        ("append 5; append 4; attend 3 refused; attend 1", True),  # position 6 looks back to 4
        ("append 1; append 5 refused; append 4; attend 5", True),
    ],
)
def test_a_ring_with_a_prefix_holds_the_prefix_and_the_newest(steps, legal):
    assert is_legal(parse(steps), Held(2, 5, gives_way=True, prefix=1), 1) is legal


def test_what_is_drawn_is_legal_and_reaches_every_step_option_and_border():
    i = Implementation("batched", {"batched_decode": Slotted})
    seen, lengths = set(), set()
    for name in ("everyday", "rings"):
        cases = Cases(OPERATION, DOMAINS["batched_decode"][name], i)
        for seed in range(200):
            case = OPERATION.named(cases.draw(seed))
            empty = held_of(case, i.of_caches("batched_decode"), i.resolved_conventions)
            program = parse(case["steps"])
            assert is_legal(program, empty, case["batch"]), case["steps"]
            seen |= {name for name in OPERATION.options if case[name] is not None}
            for step, state in played(program, empty, case["batch"]):
                seen.add(f"{'other ' * step.other}{step.name}{' refused' * step.refused}")
                ends = [held.end for held in state.rows[False]]
                seen |= {"uneven"} if len({*ends}) > 1 else set()
                seen |= {"wraps"} if any(held.dropped for held in state.rows[False]) else set()
                lengths |= {end - empty.left for end in ends if empty.left is not None}
                lengths |= {f"{end - empty.capacity} of the capacity" for end in ends if empty.capacity is not None}
    names = {"append", "attend", "rollback", "evict", "fork", "reorder", "free"}
    assert seen >= {*names, *(f"{name} refused" for name in names), *(f"other {name}" for name in names)}
    assert seen >= {*OPERATION.options, "uneven", "wraps", "poison", "restart"}
    assert lengths >= {-1, 0, 1, "-1 of the capacity", "0 of the capacity"}


# -- Values ----------------------------------------------------------------------------------------


def attention_by_hand(q, k, v, bias=0.0, scale=2**-0.5):
    scores = k @ q * scale + bias
    e = np.exp(scores)
    return e @ v / e.sum(), np.log(e.sum())


def test_the_oracle_is_attention_of_each_head_on_the_history_of_its_row():
    """By hand: row 1 holds rows 0 and 1 of the arrays, row 0 holds row 2; heads 2 and 3 use key head 1."""
    out, lse = batched_decode(Q, K, V, 2, "append 2 rows 1; append 1 rows 0; attend 1")
    for head, group in ((1, 0), (2, 1)):
        for query, keys in ((0, [2]), (1, [0, 1])):
            value, total = attention_by_hand(Q[head, query], K[group, keys], V[group, keys])
            assert np.abs(out.mid[head, query] - value).max() < 1e-14
            assert abs(lse.mid[head, query] - total) < 1e-14


@pytest.mark.parametrize(
    ("options", "keys", "bias"),
    [
        ({"window": 1}, [2, 3], 0.0),
        ({"window": 1, "prefix": 1}, [0, 2, 3], 0.0),
        ({"alibi": np.full(4, 0.5)}, [0, 1, 2, 3], np.array([-1.5, -1.0, -0.5, 0.0])),
        ({"scale": 0.25}, [0, 1, 2, 3], 0.0),
    ],
)
def test_options_change_what_the_last_query_sees_and_how(options, keys, bias):
    out, _ = batched_decode(Q, K, V, 1, "append 4; attend 1", **options)
    value, _ = attention_by_hand(Q[0, 0], K[0, keys], V[0, keys], bias, options.get("scale", 2**-0.5))
    assert np.abs(out.mid[0, 0] - value).max() < 1e-14


def test_positions_of_the_prefix_and_of_cross_attention_see_later_positions():
    """Query 0 stands at position 1, and sees position 2 as well."""
    for options in ({"prefix": 3}, {"causal": False}):
        out, _ = batched_decode(Q, K, V, 1, "append 3; attend 2", **options)
        value, _ = attention_by_hand(Q[0, 0], K[0, :3], V[0, :3])
        assert np.abs(out.mid[0, 0] - value).max() < 1e-14


def test_a_cache_of_one_head_is_one_row_with_one_head():
    steps = "append 4; rollback 1; append 2; evict 1; attend 2"
    for single, batched in zip(
        decode(Q[0], K[0], V[0], steps, window=2),
        batched_decode(Q[:1], K[:1], V[:1], 1, steps, window=2),
        strict=True,
    ):
        assert np.array_equal(single.mid, batched.mid[0])
        assert np.array_equal(single.rad, batched.rad[0])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"causal": False, "window": 2}, "causal=False with window=2, but causal=False has no window."),
        ({"alibi": np.array([0.3])}, r"alibi=\[0.3\], but slopes should be 0 or powers of two."),
        ({"steps": "append 1"}, "The program 'append 1' asks nothing: add a step such as 'attend 1'."),
    ],
)
def test_the_oracle_refuses_in_a_sentence(options, sentence):
    given = {"steps": "append 1; attend 1", **options}
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        batched_decode(Q[:1], K[:1], V[:1], 1, **given)


# -- Adapters --------------------------------------------------------------------------------------


def test_a_class_with_a_batch_offers_the_batched_operation_and_what_it_shows():
    assert {*implementation_of(Slotted).operations} == {"batched_decode"}
    assert offered(Slotted) == {*OFFERS["batched_decode"]}
    both = Implementation("both", {"batched_decode": Slotted, "decode": properties.concatenating(lambda *x, **y: x)})
    assert both.of_caches("decode") == {"window", "rollback", "evict"}
    assert both.of_caches("batched_decode") == {*OFFERS["batched_decode"]}


def test_what_makes_batched_caches_is_refused_where_it_does_not_say_what_it_is():
    with pytest.raises(
        TypeError,
        match=r"operations\['batched_decode'\]=.*, or properties.BatchedDecoder\(make_cache\) with a function",
    ):
        Implementation("x", {"batched_decode": lambda *sizes, **options: Slotted(*sizes, **options)})


def test_a_cache_gets_arrays_of_its_rows_and_the_rows_that_a_step_names():
    class Told(Slotted):
        def append(self, k, v, rows=None):
            told.append(("append", k.shape, v.shape, rows))
            super().append(k, v, rows)

        def attend(self, q, rows=None):
            told.append(("attend", q.shape, rows))
            return super().attend(q, rows)

    told = []
    steps = "append 2; append 1 rows 1; append 3 rows 1 refused; attend 1 rows 1 0"
    out, lse = BatchedDecoder(Told)(Q, K, V, 2, steps, capacity=4)
    assert told == [
        ("append", (2, 2, 2, 2), (2, 2, 2, 3), None),
        ("append", (1, 2, 1, 2), (1, 2, 1, 3), [1]),
        ("append", (1, 2, 3, 2), (1, 2, 3, 3), [1]),
        ("attend", (2, 4, 1, 2), [1, 0]),
    ]
    assert (out.shape, lse.shape) == ((4, 2, 3), (4, 2))


# -- What is wrong ---------------------------------------------------------------------------------


def mutant(identity):
    (entry,) = [entry for entry in register.bugs if entry.id == identity]
    return Implementation("wrong", {"batched_decode": entry.mutants["batched_decode"]()})


def found(implementation, steps="append 3; attend 2", **options):
    call = call_of(steps, **options)
    return caches(Probe(Caller(implementation, "batched_decode"), 60), shape_of(OPERATION, call))


def test_no_sentence_is_about_a_right_batched_cache():
    right = Implementation("right", {"batched_decode": Slotted})
    programs = found(right, "append 4; fork 0 1; append 1 rows 1; reorder 1 0 2; attend 2 rows 1 0", heads=2)
    assert len(programs) == 29
    assert sentences_of_caches(programs) == ()


TOLD = {
    "batched-cache-reorder-skipped": (
        "With batch=3, steps «append 3 rows 0; append 2 rows 1; append 1 rows 2; reorder 1 0 0; append 1; attend 1»: "
        "in step 6 (attend 1) row 0 reads positions 0–2 from before the reorder and misses positions 0–1.",
    ),
}


@pytest.mark.parametrize("identity", TOLD)
def test_what_a_wrong_batched_cache_reads_is_told(identity):
    assert measured(mutant(identity), "batched_decode", call_of("append 3; attend 2"))[:1] == TOLD[identity]


UNTOLD = {"batched-cache-refuses-after-some-rows"}
"""A step that should raise and does not is told without a measurement."""


@pytest.mark.parametrize("entry", register.bugs, ids=lambda entry: entry.id)
def test_each_known_bug_of_batched_caches_is_told(entry):
    assert bool(sentences_of_caches(found(mutant(entry.id)))) == (entry.id not in UNTOLD)


def test_a_wrong_batched_cache_is_named_by_a_short_program():
    cause = first_cause(mutant("batched-cache-reorder-in-place"))
    assert cause.diagnosis[0].id == "batched-cache-reorder-in-place"
    assert len(parse(cause.example.counterexample["steps"])) <= 5


def test_programs_are_cut_to_fewer_rows_steps_and_options():
    right = Implementation("right", {"batched_decode": Slotted})
    case = case_of("append 2; append 1 rows 2; fork 1 0; attend 1 rows 0 2", window=2, softcap=1.0)
    cut = list(shorter(OPERATION, right, case))
    assert {(each["batch"], each["steps"]) for each in cut} >= {
        (2, "append 2 rows 0 1; fork 1 0; attend 1 rows 0"),
        (3, "append 2; append 1 rows 2; attend 1 rows 0 2"),
        (3, "append 2; append 1 rows 2; fork 1 0; attend 1 rows 2"),
    }
    assert any(each["softcap"] is None for each in cut)
    for each in cut:
        assert each["k"].shape[1] == sum(len(part) for part in rows_used(each, "append"))
        assert each["q"].shape[1] == sum(len(part) for part in rows_used(each, "attend"))


def rows_used(case, name):
    """The parts of the arrays that the steps of one name get."""
    return [
        range(step.n)
        for step in parse(case["steps"])
        if step.name == name and not step.refused
        for _ in step.rows_of(case["batch"])
    ]


def test_the_portrait_of_declared_batched_caches_has_their_conventions_and_what_they_read_wrongly():
    (right,) = properties.inspect(Implementation("right", {"batched_decode": Slotted})).operations
    assert (right.anomalies, right.calls > 0) == ((), True)
    (wrong,) = properties.inspect(mutant("batched-cache-fork-without-a-copy")).operations
    assert "row 0 reads position 5 of row 1 and misses position 5" in wrong.anomalies[0]
