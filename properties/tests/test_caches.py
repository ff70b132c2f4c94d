"""Caches are run by programs of steps: each bug is seen and named, right ones are right, and what is shown is short."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import pytest

import oracles
import properties
from oracles import Conventions
from properties.bugs.caches import bug as register
from properties.bugs.reference import REFERENCE
from properties.bugs.reference_caches import Buffered, Paged
from properties.contract.cache_programs import parse, rows_of_part, written
from properties.contract.cache_states import Held, attends, is_legal, played
from properties.contract.cache_values import decode
from properties.contract.caches import OFFERS, Decoder, held_of, offered
from properties.contract.concatenating import concatenating
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import find
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.strategies.drawn_programs import shorter
from properties.tests.diagnosing import first_cause
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Supervision
from properties.verifier.report_file import read
from properties.verifier.verify import examine

RNG = np.random.default_rng(0)
Q, K, V = RNG.standard_normal((3, 2)), RNG.standard_normal((5, 2)), RNG.standard_normal((5, 3))


class Plain:
    """As little as a cache may be: keys in a list, and no window."""

    def __init__(self, d, d_v):
        self.rows = []

    def append(self, k, v):
        self.rows += zip(k, v, strict=True)

    def attend(self, q):
        if len(q) > len(self.rows):
            raise ValueError("There are fewer positions.")
        k, v = (np.array(x) for x in zip(*self.rows, strict=True))
        may = np.arange(len(k)) <= np.arange(len(k) - len(q), len(k))[:, None]
        scores = np.where(may, q @ k.T / np.sqrt(q.shape[1]), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights @ v / weights.sum(-1, keepdims=True)


class Telling(Plain):
    """It tells its window and its capacity, takes neither, and may rotate, but does not unless it is told to."""

    window = capacity = property(lambda self: 5)

    def __init__(self, d, d_v, rotates=False):
        super().__init__(d, d_v)


def test_a_program_is_read_as_it_is_written_and_else_refused_in_a_sentence():
    text = "append 3; attend 2; other append 1; rollback 2; evict 9 refused; restart; poison 64.0; other attend 1"
    assert written(parse(text)) == text
    with pytest.raises(
        ValueError,
        match=r"Unknown step 'append'\. Write steps such as 'append 3', 'other attend 1', .* or 'evict 9 refused'\.",
    ):
        parse("append; attend 1")
    with pytest.raises(ValueError, match=r"The step evict 4 needs more positions than the cache holds: 3\."):
        list(attends(parse("append 3; evict 4")))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-64.0", "1e+300"])
def test_unused_slots_are_filled_with_a_number_or_the_step_is_refused(value):
    assert written(parse(f"append 1; poison {value}; attend 1")) == f"append 1; poison {value}; attend 1"
    with pytest.raises(ValueError, match=r"Unknown step 'poison x.*'\. Write steps such as 'append 3'"):
        parse(f"append 1; poison x{value}; attend 1")


def test_an_attend_is_of_what_is_left_at_absolute_positions():
    first, second = attends(
        parse("append 2; other append 1; append 1; rollback 1; append 1; evict 1; attend 2; other attend 1")
    )
    assert (first.queries, first.held.keys, first.held.evicted) == (range(2), (0, 1, 4), 1)
    assert (second.queries, second.held.keys, second.held.evicted) == (range(2, 3), (2,), 0)
    once, ask = parse("append 1; attend 1")
    assert list(attends((once, once, ask))) == list(attends(parse("append 1; append 1; attend 1")))
    assert rows_of_part((once, once, ask), [(0, once), (2, ask)])["append"].tolist() == [0]


def test_the_oracle_is_attention_on_the_whole_history():
    """By hand: of rows 0, 1 and 4 the first is evicted: query 0 at position 1 reads row 1, query 1
    reads rows 1 and 4.
    """
    out, lse = decode(Q[:2], K, V, "append 4; rollback 2; append 1; evict 1; attend 2", arithmetic="float64")
    scores = K[[1, 4]] @ Q[1] / np.sqrt(2)
    weights = np.exp(scores) / np.exp(scores).sum()
    assert (out.excess(np.stack([V[1], weights @ V[[1, 4]]])) <= 1).all()
    assert lse.excess(np.array([K[1] @ Q[0] / np.sqrt(2), np.log(np.exp(scores).sum())])).max() <= 1
    out, _ = decode(
        Q[:1], K[:2], V[:2], "append 2; attend 1", window=1, conventions=oracles.Conventions(window="count")
    )
    assert out.contains(V[1:2]).all()


def test_a_cache_that_rotates_is_judged_by_rotated_attention():
    """By hand, in 50 digits: pairs are complex numbers, and a score is the real part of q·k̄·e^(i(p − j))."""
    q, k, v = Q[:1], K[:2], V[:2]
    with mpmath.workdps(50):
        query, keys = mpmath.mpc(*q[0]), [mpmath.mpc(*key) for key in k]
        e = [
            mpmath.exp((query * mpmath.conj(key) * mpmath.expj(1 - j)).real / mpmath.sqrt(2))
            for j, key in enumerate(keys)
        ]
        lse, out = (
            mpmath.log(sum(e)),
            [sum(w * mpmath.mpf(x) for w, x in zip(e, column, strict=True)) / sum(e) for column in v.T],
        )
        found = decode(q, k, v, "append 2; attend 1", rotates=True)
        for enclosure, exact in zip(found, (out, [lse]), strict=True):
            assert enclosure.rad.max() < 1e-14
            for mid, rad, x in zip(enclosure.mid.ravel(), enclosure.rad.ravel(), exact, strict=True):
                assert abs(mpmath.mpf(mid) - x) <= rad


def test_a_rotating_cache_that_counts_wrongly_or_pairs_otherwise_is_named():
    class Right(Buffered):
        rotates = True

    class Renumbering(Right):
        def evict(self, n):
            super().evict(n)
            self.offset = self.end - self.first

    class OfHalves(Right):
        def rotated(self, x, start):
            return super().rotated(np.stack(np.split(x, 2, 1), -1).reshape(x.shape), start)

    assert properties.verify({"decode": Right}, laws=["decoding is within its error limit"], max_examples=30).ok
    for wrong, name in ((Renumbering, "cache-offset-of-the-rows-kept"), (OfHalves, "rope_pairing=half")):
        assert first_cause(Implementation("wrong", {"decode": wrong})).diagnosis[0].id == name


@pytest.mark.parametrize(
    ("steps", "legal"),
    [
        ("append 4; attend 1", True),
        ("append 5; attend 1", False),  # more than the capacity
        ("append 5 refused; append 1; attend 1", True),
        ("append 4; append 2; attend 2", True),  # a ring: 0 and 1 gave way
        ("append 4; append 2; attend 3", False),  # position 3 looks back to 1
        ("append 4; append 2; attend 3 refused; attend 1", True),
        ("append 4; append 2; rollback 1; attend 1", True),
        ("append 4; append 2; rollback 3; attend 1", False),  # position 2 looks back to 1
        ("append 2; evict 3 refused; evict 2; attend 1 refused; append 1; attend 1", True),
        ("append 4; append 1; evict 1; attend 1", False),  # which is the oldest of a ring's?
        ("append 1", False),  # nothing is asked
    ],
)
def test_a_ring_of_four_with_a_left_bound_of_two_holds_the_newest(steps, legal):
    assert is_legal(parse(steps), Held(2, 4, gives_way=True)) is legal


def test_what_is_drawn_is_legal_reaches_every_step_and_wraps():
    i = Implementation("ring", {"decode": Buffered})
    drawn = [
        Cases(OPERATIONS["decode"], DOMAINS["decode"][name], i).draw(seed)
        for name in ("everyday", "rings")
        for seed in range(120)
    ]
    seen = set()
    for q, k, v, text, window, capacity, _ in drawn:
        empty = held_of({"window": window, "capacity": capacity}, i.of_caches("decode"), i.resolved_conventions)
        assert is_legal(parse(text), empty), text
        found = list(attends(parse(text)))
        assert len(q) == sum(len(each.queries) for each in found)
        assert len(k) == len(v) == sum(step.n for step in parse(text) if step.name == "append" and not step.refused)
        for step, state in played(parse(text), empty):
            seen.add(f"{'other ' * step.other}{step.name}{' refused' * step.refused}")
            seen |= {"wraps"} if state.rows[False][0].dropped else set()
    names = {"append", "attend", "rollback", "evict"}
    assert seen == {*names, *(f"{name} refused" for name in names), "poison", "restart", "wraps"} | {
        f"other {name}" for name in (*names, *(f"{name} refused" for name in names), "poison", "restart")
    }


def test_a_class_shows_what_its_caches_offer_and_nothing_else_is_asked():
    assert offered(Buffered) == offered(Paged) == set(OFFERS["decode"]) - {"rotates"}
    assert offered(Plain) == offered(Telling) == set()
    report = properties.verify(Plain, max_examples=30)
    assert report.ok
    assert {o.implementation for o in report.outcomes} == {"Plain"}
    reasons = {o.law: o.reason for o in report.outcomes if o.status == "not applicable"}
    assert reasons["a rolled-back append changes nothing"] == "Its caches offer no rollback."
    assert reasons["the content of unused slots does not matter"] == "Its caches offer no poison."


class Maker:
    def __call__(self, d, d_v):
        return Plain(d, d_v)

    @classmethod
    def make(cls, d, d_v):
        return Plain(d, d_v)


@pytest.mark.parametrize(
    "make",
    [
        lambda d, d_v, window=None, capacity=None: Plain(d, d_v),
        lambda *sizes, **options: Plain(*sizes),
        partial(Maker.make),
        Maker.make,
        Maker(),
    ],
    ids=["function", "of anything", "partial", "classmethod", "object"],
)
def test_what_makes_caches_is_refused_where_it_does_not_say_what_it_is(make):
    with pytest.raises(
        TypeError, match=r"operations\['decode'\]=.*, but should be a class of caches, or properties.Decoder"
    ):
        Implementation("x", {"decode": make})


def test_what_makes_caches_offers_what_is_declared():
    with pytest.raises(ValueError, match=r"Unknown feature of caches 'forks'\. "):
        Implementation("x", {"decode": Plain}, caches=["forks"])
    made = properties.Decoder(lambda d, d_v: Plain(d, d_v))
    assert properties.verify(Implementation("x", {"decode": made}), max_examples=5).ok


@pytest.mark.parametrize("entry", register.bugs[::6], ids=lambda entry: entry.id)
def test_a_wrong_cache_is_seen_and_named(entry):
    """A few of them: that a law kills each is tested with all known bugs."""
    wrong = Implementation("wrong", {"decode": entry.fresh()})
    laws = [*find("decoding is within its error limit"), *find(entry.law)]
    outcomes = examine(laws, wrong, 60, supervision=Supervision(ends=lambda law: law == f"{entry.law}[decode]"))
    violations = [o.violation for o in outcomes if o.status == "violated"]
    assert entry.law in {violation.law for violation in violations}
    assert entry.id in {d.id for cause in causes_of(wrong, violations, shrinks=False) for d in cause.diagnosis}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, marks=[pytest.mark.thorough] * (place % 2), id=entry.id)
        for place, entry in enumerate(register.bugs[::6])
    ],
)
def test_the_program_that_shows_a_wrong_cache_is_short(entry):
    (cause, *_) = properties.verify(
        {"decode": entry.fresh()}, laws=["decoding is within its error limit", entry.law], max_examples=60
    ).causes
    assert len(parse(cause.example.counterexample["steps"])) <= 6


WRONG = """\
import numpy as np

import properties
from properties.bugs.reference_caches import Buffered


class Ring(Buffered):
    def slots(self, positions):  # when it is read: as if the order of slots were that of time
        reads = self.wraps and len(positions) and positions[-1] < self.end
        return positions - positions[0] if reads else super().slots(positions)


adapter = {"decode": Ring}
"""


def test_the_command_shows_the_shortest_program_and_a_script_that_runs_it_again(tmp_path):
    (tmp_path / "mine.py").write_text(WRONG)
    options = ["--laws", "decoding is within its error limit", "--json", "out.json", "--html", "page"]
    environment = {**os.environ, "PYTHONPATH": str(Path(properties.__file__).parents[1]), "COLUMNS": "120"}
    run = partial(subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    ran = run([sys.executable, "-m", "attnspec", "verify", "mine.py", *options])
    assert ran.returncode == 1
    assert "cache-ring-read-by-its-length" in ran.stdout
    (cause,) = read(tmp_path / "out.json")["causes"]
    steps = cause["example"]["counterexample"]["steps"]
    assert f"steps     '{steps}'" in ran.stdout
    assert any(steps in page.read_text() for page in (tmp_path / "page").rglob("*.html"))
    assert "import properties\nfrom mine import adapter\n" in cause["example"]["script"]
    (tmp_path / "again.py").write_text(cause["example"]["script"])
    again = run([sys.executable, "again.py"])
    assert again.returncode == 1
    assert f"BrokenError: {cause['example']['summary']}" in again.stderr


def test_programs_that_write_nan_over_what_is_gone_are_cut_too():
    i = Implementation("unread", {"decode": Buffered}, conventions=Conventions(blocked_values="unread"))
    case = {
        "q": Q[:1],
        "k": K[:3],
        "v": V[:3],
        "steps": "append 3; poison nan; attend 1",
        "window": None,
        "capacity": None,
        "rotates": None,
    }
    programs = {each["steps"] for each in shorter(OPERATIONS["decode"], i, case)}
    assert {"append 3; attend 1", "append 1; poison nan; attend 1"} <= programs
    assert properties.verify(
        i, max_examples=25, laws=["attending does not change a cache", "decoding is within its error limit"]
    ).ok


@pytest.mark.parametrize(
    ("window", "capacity", "says"), [(2, 4, True), (3, 2, False), (3, None, False), (None, 3, False)]
)
def test_a_ring_is_asked_for_what_is_gone_where_there_is_one(window, capacity, says):
    """Cases are made shorter to such as are no ring, of which the law says nothing."""
    i = Implementation("ring", {"decode": Buffered})
    law, _ = find("a ring buffer refuses to attend to overwritten positions")
    case = law.case((Q[:1], K[:1], V[:1], "append 1; attend 1", window, capacity, None), 3)
    assert law.hold(Subject(i, "decode"), case) is says


def test_a_step_that_raises_or_should_have_is_said_with_its_place():
    with pytest.raises(
        BrokenError, match=r"^raised ValueError: There are fewer positions\. It happened in step 2, attend 2\.$"
    ):
        properties.call(
            "decode",
            {"decode": Plain},
            q=Q,
            k=K,
            v=V,
            steps="append 1; attend 2",
            window=None,
            capacity=None,
            rotates=None,
        )
    with pytest.raises(BrokenError, match=r"^step 2, attend 1, raised nothing, but should raise a ValueError\.$"):
        properties.call(
            "decode",
            {"decode": Plain},
            q=Q,
            k=K,
            v=V,
            steps="append 1; attend 1 refused",
            window=None,
            capacity=None,
            rotates=None,
        )


def test_a_function_with_past_keys_is_a_cache_that_gives_the_log_sum_exp_if_the_function_does():
    attention = REFERENCE["attention"]
    both, alone = (
        Implementation("x", {"decode": properties.concatenating(f)})
        for f in (attention, lambda *x, **y: attention(*x, **y)[0])
    )
    assert both.of_caches("decode") == alone.of_caches("decode") == {"window", "rollback", "evict"}
    for i, results in ((both, 2), (alone, 1)):
        assert properties.verify(
            i, max_examples=20, laws=["decoding is within its error limit", "decoding equals prefill"]
        ).ok
        given = {"q": Q[:1], "k": K, "v": V, "window": 1, "capacity": None, "rotates": None}
        found = properties.call("decode", i, steps="append 5; evict 1; rollback 1; attend 1", **given)
        assert (len(found) if isinstance(found, tuple) else 1) == results


def test_a_decoder_is_made_from_what_can_be_called():
    with pytest.raises(TypeError, match="make=3, but should be a function or a class that makes a cache"):
        Decoder(3)
    with pytest.raises(TypeError, match="attention=None, but should be a function"):
        concatenating(None)
