"""Campaigns: each chunk is run once and counted once, whatever happens to workers, to the driver and to the disk."""

import importlib.util
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import html5lib
import pytest
from hypothesis.database import InMemoryExampleDatabase
from rich.console import Console

import properties
from properties.campaign import engines, report
from properties.campaign.bench import Bench, Broken, Lost, Result
from properties.campaign.campaign import Campaign, until_cases
from properties.campaign.chunks import Chunk, parsed_seeds, plan
from properties.campaign.examples import AwayError, Examples, at
from properties.campaign.progress import Shown
from properties.campaign.store import FullError, Store, reading
from properties.command.campaign import _order
from properties.command.cli import main, parser_of_command
from properties.command.configuration import configure
from properties.processes.signals import Signals, StoppedError
from properties.verifier.worst_input import Worst

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide/campaigns.md").read_text("utf-8")
KERNELS = """
import os, signal, time
import numpy as np
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation

rope = REFERENCE["rope"]

def first(kill):
    def call(x, start_pos=0):
        if not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), kill)
        return rope(x, start_pos)
    return call

def hangs(x, start_pos=0):
    time.sleep(60)

kept = []
def leaks(x, start_pos=0):
    kept.append(np.ones(2**24))
    return rope(x, start_pos)

right = [Implementation("right", {"rope": rope, "rotate_half": REFERENCE["rotate_half"]})]
driven = [Implementation("ends its worker", {"rope": lambda x, start_pos=0: os.kill(os.getppid(), signal.SIGKILL)})]
pair = [*right, Implementation("wrong", {"rope": lambda x, start_pos=0: rope(x, start_pos + 1)})]
killed = [Implementation("killed", {"rope": first(signal.SIGKILL)})]
bad = [
    Implementation("aborts", {"rope": lambda x, start_pos=0: os.abort()}),
    Implementation("kills itself", {"rope": lambda x, start_pos=0: os.kill(os.getpid(), signal.SIGKILL)}),
    Implementation("hangs", {"rope": hangs}),
    Implementation("leaks", {"rope": leaks}),
]
"""
LAW = "rope is within its error limit"
ON_RAY = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed.")
VERDICT = "SELECT chunk, cases, examples, held, violated, vacuous, not_applicable, not_run, excess FROM chunk"
BROKEN = "SELECT chunk, law, status, excess, summary, diagnosis, example, script FROM violation"


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("kernels", None)


def campaign(attribute, database="c.db", *more):
    """Run a campaign by the command in this process; its status."""
    return main(
        [
            "campaign",
            f"kernels.py:{attribute}",
            "--database",
            database,
            "--max-examples",
            "20",
            "--jobs",
            "1",
            *map(str, more),
        ]
    )


def order(*words):
    """What the command would tell its workers to verify."""
    options = parser_of_command().parse_args(["campaign", *words])
    configure(options)
    return _order(options)


def rows(query, database="c.db"):
    with reading(Path(database)) as opened:
        return list(opened.execute(query))


class Instant:
    """An engine whose chunks are finished as soon as one looks; some are lost before."""

    workers = 2

    def __init__(self, lose=()):
        self.given, self._lose, self._running = [], set(lose), []

    @property
    def running(self):
        return len(self._running)

    def submit(self, chunk):
        self.given.append(chunk.seed)
        self._running.append(chunk)

    def finished(self, seconds):
        chunk = self._running.pop()
        if chunk.seed in self._lose:
            self._lose.remove(chunk.seed)
            return [(chunk, Lost("the moon was full."))]
        return [(chunk, Result({"held": 1}, cases=chunk.cases, examples=1))]


def run(engine, store, chunks, folder, **more):
    said = []
    with Signals() as signals:
        Campaign(
            engine, store, chunks, at(str(folder / "examples")), signals, said=said.append, wait=0.01, **more
        ).run()
    return said


# -- The plan ----------------------------------------------------------------------------------------


def test_the_plan_goes_seed_after_seed_and_has_no_end():
    found = list(islice(plan([("a", "rope"), ("b", "rope")], parsed_seeds("3:"), 20, [("a", "rope")], 5), 8))
    assert [(c.kind, c.implementation, c.seed) for c in found[:4]] == [
        ("draw", "a", 3),
        ("draw", "b", 3),
        ("climb", "a", 3),
        ("draw", "a", 4),
    ]
    assert len({c.id for c in found}) == 8
    assert found[2].domain != found[5].domain  # by turns
    assert len(list(until_cases(iter(found), 46))) == 4  # 20, 20, 5 and one more


@pytest.mark.parametrize("text", ["", ":5", "5:5", "5:3", "-1:", "a", "1:2:3"])
def test_seeds_that_are_none_are_refused(text):
    with pytest.raises(
        ValueError,
        match=rf"^--seeds '{text}', but should be a range, such as 0:100 \(0 to 99\) or 0: \(without end\)\.$",
    ):
        parsed_seeds(text)
    assert list(parsed_seeds("7")) == [7]
    assert list(parsed_seeds("7:9")) == [7, 8]


def test_a_chunk_that_goes_on_from_a_case_is_another():
    chunks = [Chunk("a", "rope", 0, 5, "climb", "everyday", start) for start in ("", "{}", '{"x": 1}')]
    assert len({chunk.id for chunk in chunks}) == 3


# -- The loop and the store --------------------------------------------------------------------------


def chunks(number):
    return plan([("a", "rope")], range(number), 20)


def test_each_chunk_is_run_once_over_several_runs_and_lost_ones_again(tmp_path):
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        run(Instant(), store, chunks(3), tmp_path)
    again = Instant(lose=[6, 4])  # the last ones: when nothing else is left to be given out
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        said = run(again, store, chunks(7), tmp_path)
        assert store.counts() == (7, 140, 0)
    assert sorted(again.given) == [3, 4, 4, 5, 6, 6]
    assert "draw a[rope] seed=4 cases=20 runs again in 0.01 s: the moon was full." in said
    assert rows("SELECT run, count(*) FROM chunk GROUP BY run", tmp_path / "c.db") == [(1, 3), (2, 4)]


def test_a_chunk_that_is_added_twice_counts_once(tmp_path):
    (chunk,), result = chunks(1), Result({"violated": 1}, cases=20)
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        assert store.add(chunk, result)
        assert not store.add(chunk, result)
        assert store.counts() == (1, 20, 1)


def test_a_chunk_whose_error_is_no_number_is_written_and_one_that_cannot_be_is_not_passed_over(tmp_path):
    nan, (chunk, other) = float("nan"), chunks(2)
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        worst = Worst(nan, "out", {}, 0, 20)
        assert store.add(
            chunk,
            Result({"violated": 1}, excess=nan, broken=(Broken(LAW, "violated", nan, "It is wrong."),), worst=worst),
        )
        with pytest.raises(sqlite3.IntegrityError, match=r"NOT NULL constraint failed: chunk\.cases"):
            store.add(other, Result({"held": 1}, cases=None))
    found = rows(
        "SELECT chunk.excess, violation.excess, ratio FROM chunk JOIN violation USING (chunk) JOIN worst USING (chunk)",
        tmp_path / "c.db",
    )
    assert found == [(float("inf"),) * 3]


def test_a_full_disk_is_waited_for_and_nothing_of_the_chunk_is_lost(tmp_path):
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        database, left = store._database, iter([2, 1])
        (most,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count={most}")  # SQLite's own way to be full
        free = database.execute("PRAGMA freelist_count").fetchone()

        def say(sentence):
            if next(left, 0) == 1:
                database.execute(f"PRAGMA max_page_count={most + 1000}")

        worst = Worst(0.5, "out", {"x": "0" * 100_000}, 0, 20)
        (chunk,) = chunks(1)
        with pytest.raises(FullError, match=r"full"):
            store.add(chunk, Result({"held": 1}, worst=worst))
        assert store.counts() == (0, 0, 0)
        assert free == database.execute("PRAGMA freelist_count").fetchone()  # nothing is left of it
        with Signals() as signals:
            engine = Instant()
            engine.finished = lambda seconds: [(engine._running.pop(), Result({"held": 1}, cases=20, worst=worst))]
            Campaign(engine, store, [chunk], at(str(tmp_path / "examples")), signals, said=say, wait=0.01).run()
        assert store.counts() == (1, 20, 0)
    assert next(left, None) is None  # it was said twice


def test_a_signal_ends_it_and_what_was_under_way_is_run_another_time(tmp_path):
    with Store(tmp_path / "c.db", {}) as store, Signals() as signals:
        store.begin("instant", 2, {})

        def done(chunk, result):
            if chunk is not None and chunk.seed == 3:
                signals.ask(signal.SIGTERM)

        with pytest.raises(StoppedError):
            Campaign(Instant(), store, chunks(100), at(str(tmp_path / "examples")), signals, done=done).run()
        before = store.counts()[0]
        assert before < 10
        rest = Instant()
        run(rest, store, chunks(20), tmp_path)
        assert len(rest.given) == 20 - before
        assert store.counts()[0] == 20


def test_no_chunk_is_given_out_after_the_end_and_those_that_were_lost_are_run_another_time(tmp_path):
    engine = Instant(lose=[0])
    finished = engine.finished
    engine.finished = lambda seconds: time.sleep(0.3) or finished(seconds)
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        run(engine, store, chunks(9), tmp_path, end=time.monotonic() + 0.2)
        assert store.counts()[0] == 1
        run(again := Instant(), store, chunks(2), tmp_path)
        assert store.counts()[0] == 2
    assert (sorted(engine.given), again.given) == ([0, 1], [0])


def test_a_log_that_was_cut_off_leaves_a_database_that_is_gone_on_with(tmp_path):
    """As a machine leaves it that went down: the last transactions are gone, each whole."""
    file = tmp_path / "c.db"
    with Store(file, {}) as store:
        store.begin("instant", 2, {})
        run(Instant(), store, chunks(9), tmp_path)
        for name in ("c.db", "c.db-wal"):
            (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
    log = tmp_path / "copy-c.db-wal"
    os.truncate(log, log.stat().st_size * 2 // 3)
    with Store(tmp_path / "copy-c.db", {}) as store:
        before = store.counts()[0]
        assert 0 < before < 9
        store.begin("instant", 2, {})
        rest = Instant()
        run(rest, store, chunks(9), tmp_path)
        assert len(rest.given) == 9 - before
        assert store.counts() == (9, 180, 0)


def test_a_database_is_of_one_campaign(tmp_path):
    file = tmp_path / "c.db"
    Store(file, {"targets": ["a.py"], "laws": None}).__exit__(None, None, None)
    with pytest.raises(
        ValueError,
        match=r"c.db holds a campaign with targets=\[\"a.py\"\], but targets=\[\"b.py\"\] was given: another needs",
    ):
        Store(file, {"targets": ["b.py"], "laws": None})
    (tmp_path / "text").write_text("no database at all" * 100)
    with pytest.raises(ValueError, match=r"text cannot be used as a database: file is not a database\.$"):
        Store(tmp_path / "text", {})
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE chunk (x)").connection.close()
    with pytest.raises(
        ValueError, match=r"other.db has tables of version 0, but should have those of a campaign of version 2\.$"
    ):
        Store(tmp_path / "other.db", {})
    with pytest.raises(ValueError, match=r"^.*none.db does not exist\.$"):
        reading(tmp_path / "none.db")


def test_a_kernel_that_was_mended_needs_another_database(kernels, capsys):
    (kernels / "written.py").write_text(
        "from properties.bugs.reference import REFERENCE\n\ndef rope(x, start_pos=0):\n    return -x\n"
    )
    (kernels / "adapters").mkdir()
    (kernels / "adapters/__init__.py").write_text("")
    (kernels / "adapters/mine.py").write_text("from written import rope\n\nadapter = {'rope': rope}\n")
    command = [
        "campaign",
        "adapters.mine",
        "--max-examples",
        "20",
        "--cases",
        "20",
        "--climb",
        "0",
        "--laws",
        LAW,
        "--jobs",
        "1",
    ]
    assert main(command) == 1
    assert main(command) == 1  # it goes on
    (digests,) = [
        json.loads(value)
        for name, value in rows("SELECT name, value FROM campaign", "campaign.db")
        if name == "sources"
    ]
    assert list(digests) == ["adapters.mine", "written.py"]
    for file in ("written.py", "adapters/mine.py"):
        before = (kernels / file).read_text()
        (kernels / file).write_text(before + "# mended\n")
        capsys.readouterr()
        assert main(command) == 2
        assert re.search(
            r"campaign.db holds a campaign with sources=\{.*: another needs another --database\.",
            capsys.readouterr().err,
        )
        (kernels / file).write_text(before)
    assert main(command) == 1


def test_what_is_broken_or_worst_is_put_first_in_the_next_campaign(tmp_path):
    examples, row = at(str(tmp_path)), ("a", "rope")
    broken, held = Result({"violated": 1}), Result({"held": 1})
    for seed in (5, 3):
        examples.note(Chunk(*row, seed, 20), broken)
    for seed, ratio in ((1, 0.5), (2, 0.7), (3, 0.6)):
        examples.note(
            Chunk(*row, seed, 9, "climb", "everyday"), Result({}, worst=Worst(ratio, "out", {"x": seed}, seed, 9))
        )
    known = list(at(str(tmp_path)).of([row], [row], 4))
    assert known == [Chunk(*row, 3, 20), Chunk(*row, 5, 20), Chunk(*row, 2, 4, "climb", "everyday", '{"x": 2}')]
    examples.note(known[0], held)
    assert [chunk.seed for chunk in examples.of([row], [], 4)] == [5]


def test_a_worst_input_that_is_gone_on_with_is_replaced_by_what_it_has_become(tmp_path):
    examples, row = at(str(tmp_path)), ("a", "rope")

    def climbed(ratio, seed, start="", statuses=("held",)):
        worst = None if ratio is None else Worst(ratio, "out", {"x": seed}, seed, 9)
        chunk = Chunk(*row, seed, 9, "climb", "everyday", start)
        examples.note(chunk, Result(dict.fromkeys(statuses, 1), worst=worst))
        return [(chunk.seed, chunk.start) for chunk in examples.of([], [row], 4)]

    first = (1, '{"x": 1}')
    assert climbed(7.0, 1) == [first]
    assert climbed(5.0, 2) == [first]
    assert climbed(7.0, 1, first[1]) == [first]  # it is what it was
    assert climbed(None, 1, first[1], ("violated",)) == [first]  # the process died
    assert climbed(None, 3, "", ()) == [first]
    assert climbed(0.5, 4, first[1]) == [(4, '{"x": 4}')]  # a kernel that was mended
    assert climbed(None, 4, '{"x": 4}', ()) == []  # no case any more


def test_what_was_known_of_something_that_is_gone_is_left_out(kernels, capsys):
    assert campaign("right", "c.db", "--cases", 20, "--climb", 0) == 0
    gone = [Chunk("right", "alibi_bias", 3, 20), Chunk("gone", "rope", 3, 20), Chunk("right", "rope", 3, 20)]
    with sqlite3.connect("c.db") as database:
        database.executemany("INSERT INTO known (chunk) VALUES (?)", [(json.dumps(vars(chunk)),) for chunk in gone])
    database.close()
    assert campaign("right", "c.db", "--cases", 20, "--climb", 0) == 0
    assert rows("SELECT implementation, operation, seed FROM chunk") == [("right", "rope", 0), ("right", "rope", 3)]
    bench = Bench(order("kernels.py:right"))
    lost = bench.run(gone[0])
    bench.close()
    assert lost == Lost("A worker does not find right with alibi_bias, or cannot run it.", starts=False)


def test_what_is_put_first_is_settled_when_the_first_run_begins(tmp_path):
    old, new = (
        [Chunk("a", "rope", 7, 20), Chunk("a", "rope", 2, 9, "climb", "everyday", "{}")],
        [Chunk("a", "rope", 8, 20)],
    )
    with Store(tmp_path / "c.db", {}) as store:
        assert store.begins_with(new) == new
        assert store.begins_with(old) == old  # none has begun
        store.begin("instant", 2, {})
    with Store(tmp_path / "c.db", {}) as store:
        assert store.begins_with(new) == old


def test_a_database_of_examples_that_is_away_is_said_once_and_no_chunk_is_lost(tmp_path):
    class GoneError(Exception):
        """As Redis has errors of its own."""

    class Sometimes(InMemoryExampleDatabase):
        calls = 0

        def delete(self, key, value):
            self.calls += 1
            if self.calls not in (1, 4):
                raise GoneError("Connection refused.")

        def fetch(self, key):
            raise GoneError("Connection refused.")

    examples, said, sentence = (
        Examples(Sometimes(), "redis://x", GoneError),
        [],
        "The examples at redis://x cannot be used: Connection refused.",
    )
    with pytest.raises(AwayError, match=f"^{re.escape(sentence)}$"):
        examples.of([("a", "rope")], [], 5)
    with Store(tmp_path / "c.db", {}) as store, Signals() as signals:
        store.begin("instant", 2, {})
        Campaign(Instant(), store, chunks(6), examples, signals, said=said.append).run()
        assert store.counts()[0] == 6
    assert said == [f"{sentence} The results are in the campaign's database only."] * 2


def test_examples_in_redis_need_redis():
    if importlib.util.find_spec("redis"):
        pytest.skip("redis is installed.")
    with pytest.raises(
        ValueError,
        match=r"^--examples redis://nowhere needs redis, which `pip install 'hypothesis\[redis\]'` installs\.$",
    ):
        at("redis://nowhere")


# -- Workers -----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_verdicts_are_those_of_verify_whatever_the_number_of_workers(kernels, capsys):
    more = ("--cases", 120, "--climb", 5)
    assert (
        campaign("pair", "one.db", *more, "--examples", "one")
        == campaign("pair", "two.db", *more, "--examples", "two", "--jobs", 2)
        == 1
    )
    assert set(rows(VERDICT, "one.db")) == set(rows(VERDICT, "two.db"))
    assert set(rows(BROKEN, "one.db")) == set(rows(BROKEN, "two.db"))
    assert set(rows("SELECT * FROM worst", "one.db")) == set(rows("SELECT * FROM worst", "two.db"))
    from kernels import pair

    verdict = properties.verify(pair[1], max_examples=20, seed=1)
    ((held, violated, excess),) = rows(
        "SELECT held, violated, excess FROM chunk WHERE chunk = 'draw wrong[rope] seed=1 cases=20'", "one.db"
    )
    assert (held, violated) == (verdict.counts()["held"], verdict.counts()["violated"])
    assert excess == max(o.worst_excess for o in verdict.outcomes if o.status == "held")
    assert "1 of 2 implementations breaks a law" in capsys.readouterr().out


def test_deaths_hangs_and_leaks_are_verdicts_and_the_campaign_goes_on(kernels):
    more = ("--laws", LAW, "--timeout", 2, "--memory", "1G", "--cases", 4 * 20)
    assert campaign("bad", "c.db", *more, "--climb", 0) == 1
    summaries = dict(rows("SELECT implementation, summary FROM violation JOIN chunk USING (chunk)"))
    # Memory is sampled, so the sample that is too large may come in a call or between two calls.
    summaries["leaks"] = summaries["leaks"].replace(", after the call had returned", "")
    assert summaries == {
        "aborts": "killed the process: SIGABRT.",
        "kills itself": "killed the process: SIGKILL.",
        "hangs": "did not return within 2 s.",
        "leaks": "took more than 1 GiB of memory.",
    }
    assert dict(rows("SELECT implementation, lost FROM chunk WHERE lost")) == {
        "kills itself": 3,
        "leaks": 1,
    }  # the process had others before


def test_a_death_in_a_climb_is_a_verdict_with_its_input(kernels):
    assert campaign("bad", "c.db", "--laws", LAW, "--only", "aborts", "--cases", 25, "--climb", 5) == 1
    ((summary, example),) = rows("SELECT summary, example FROM violation WHERE chunk LIKE 'climb%'")
    assert summary == "killed the process: SIGABRT."
    assert '"start_pos"' in example


def test_a_worker_that_somebody_kills_costs_no_verdict(kernels):
    assert campaign("killed", "c.db", "--cases", 20, "--climb", 0) == 0
    assert rows("SELECT cases, violated, lost FROM chunk") == [(20, 0, 1)]


def test_workers_that_do_not_start_any_more_end_it_and_what_they_died_of_is_a_verdict(kernels, capsys):
    text = "import os\nif os.path.exists('once'): raise ImportError('the device is gone')\n"
    text += "def rope(x, start_pos=0):\n    open('once', 'w').close()\n    os.abort()\n"
    (kernels / "once.py").write_text(text)
    command = [
        "campaign",
        "once.py",
        "--cases",
        "200",
        "--max-examples",
        "20",
        "--climb",
        "0",
        "--jobs",
        "1",
        "--database",
        "c.db",
    ]
    assert main(command) == 2
    said = "No worker starts any more: once could not be imported: ImportError: the device is gone"
    assert said in " ".join(capsys.readouterr().err.split())
    assert rows("SELECT summary FROM violation WHERE status = 'violated'") == [("killed the process: SIGABRT.",)]
    assert rows("SELECT violated, held, not_run > 5 FROM chunk") == [(1, 0, 1)]
    ((ended,),) = rows("SELECT ended FROM run")
    assert ended.startswith(said)


def test_a_worker_that_does_not_start_ends_nothing_while_others_work(tmp_path):
    engine = Instant()
    finished, failing = engine.finished, iter([True] * 9 + [False] * 3 + [True] * 9 + [False] * 3)
    engine.finished = lambda seconds: (
        [(engine._running.pop(), Lost("gone.", starts=False))] if next(failing) else finished(seconds)
    )
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 2, {})
        run(engine, store, chunks(6), tmp_path)
        assert store.counts()[0] == 6


@pytest.mark.thorough
def test_a_driver_that_is_killed_is_gone_on_with_and_nothing_counts_twice(kernels, capsys):
    command = [
        sys.executable,
        "-P",
        "-m",
        "attnspec",
        "campaign",
        "kernels.py:right",
        "--database",
        "c.db",
        "--max-examples",
        "20",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen([*command, "--climb", "0"], env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (Path("c.db").exists() and done("c.db") > 4):
        time.sleep(0.05)
    assert main(["campaign", "status", "c.db"]) == 0  # while it runs
    assert "cases a second now." in capsys.readouterr().out
    driver.kill()
    driver.wait()
    before = done("c.db")
    number = before + 6
    assert campaign("right", "c.db", "--cases", number * 20, "--climb", 0) == 0
    assert rows("SELECT count(*), count(DISTINCT seed), sum(cases) FROM chunk") == [
        (number, -(-number // 2), number * 20)
    ]
    assert rows("SELECT run, ended FROM run") == [(1, ""), (2, "to its end")]


def done(database):
    try:
        return rows("SELECT count(*) FROM chunk", database)[0][0]
    except (ValueError, sqlite3.OperationalError):  # it is being made
        return 0


@pytest.mark.parametrize("more", [(), pytest.param(("--engine", "ray"), marks=ON_RAY)])
def test_a_signal_ends_the_command_soon_and_says_so(more, kernels):
    begun = []

    def stop():
        while not begun and not Path("c.db").exists():
            time.sleep(0.1)
        time.sleep(1)
        begun.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert campaign("bad", "c.db", "--only", "hangs", *more) == 128 + signal.SIGTERM
    assert time.monotonic() - begun[0] < 30  # a call would take a minute
    assert rows("SELECT ended FROM run") == [("SIGTERM came",)]


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(1e9, r"$"), (9000, r"$"), (8000, r", ends on \d{4}-\d\d-\d\d at \d\d:\d\d$"), (1e-4, r", ends at \d\d:\d\d$")],
)
def test_the_end_is_shown_with_its_day_and_none_beyond_a_year(hours, shown):
    log = Console(width=200, file=io.StringIO())
    told = Shown(log, hours * 3600, 10**15, (0, 0, 0))
    told._line -= 100
    told.done(Chunk("a", "rope", 0, 1), Result({"held": 1}, cases=1))
    assert re.search(r"0 violations" + shown, log.file.getvalue().strip())


@pytest.mark.parametrize(
    ("option", "text", "should"),
    [
        ("--gpus", "1e-320", "a positive number, from 0.0001 to 1000000000."),
        ("--hours", "99999999999999", "a positive number, from 0.0001 to 1000000000."),
        ("--hours", "nan", "a positive number, from 0.0001 to 1000000000."),
        ("--cases", "9" * 20, "a whole number from 1 to 1000000000000000."),
        ("--climb", "9" * 5000, "a whole number from 0 to 1000000000000000."),
        ("--jobs", "9" * 9, "a whole number from 1 to 10000."),
    ],
)
def test_numbers_that_are_too_small_or_too_large_are_refused(option, text, should, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["campaign", "kernels.py", option, text])
    assert f"argument {option}: {text!r}, but should be {should}\n" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), pytest.param(("--engine", "ray"), marks=ON_RAY)])
def test_a_signal_ends_the_command_while_it_still_imports(more, kernels):
    (kernels / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    stopped = []

    def stop():
        while not Path("begun").exists():
            time.sleep(0.1)
        stopped.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests to ignore it
    try:
        threading.Thread(target=stop).start()
        assert main(["campaign", "slow.py", "--jobs", "1", *more]) == 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - stopped[0] < 20


def test_what_cannot_be_done_is_said_at_once(kernels, capsys):
    for words, sentence in (
        (["kernels.py:none"], "kernels has no attribute 'none'"),
        (["kernels.py:right", "--seeds", "5:1"], "--seeds '5:1', but should be a range, such as 0:100"),
        (["kernels.py:right", "--address", "auto"], "--address auto is the address of Ray, and needs --engine ray."),
        (["kernels.py:right", "--html", "page"], "--html belongs to `attnspec campaign report"),
        (["status"], "Type `attnspec campaign status FILE` or"),
        (["report", "c.db"], "Type `attnspec campaign status FILE` or"),
        (["status", "missing.db"], "missing.db does not exist."),
    ):
        assert main(["campaign", *words, "--jobs", "1"]) == 2
        assert sentence in capsys.readouterr().err


# -- Engines and devices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "workers", "devices"),
    [(1, 2, ["3", "5"]), (2, 1, ["3,5"]), (0.5, 3, ["3", "3", "5"]), (0, 2, [None, None])],
)
def test_each_worker_has_devices_of_its_own_or_a_share(gpus, workers, devices, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [engines._devices(n, gpus, workers).get("CUDA_VISIBLE_DEVICES") for n in range(workers)] == devices
    with pytest.raises(ValueError, match=r"^3 workers with --gpus 1 need 3 devices, but there are 2\.$"):
        engines._devices(0, 1, 3)


def test_ray_is_asked_for_by_name_where_it_is_not_installed(kernels, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert campaign("right", "c.db", "--engine", "ray") == 2
    assert "--engine ray needs Ray, which `pip install 'attnspec[ray]'` installs." in capsys.readouterr().err


@ON_RAY
def test_verdicts_are_the_same_on_ray(kernels):
    more = ("--cases", 120, "--climb", 5)
    assert campaign("pair", "here.db", *more, "--examples", "here") == 1
    assert campaign("pair", "ray.db", *more, "--examples", "ray", "--engine", "ray", "--jobs", 2) == 1
    assert set(rows(VERDICT, "here.db")) == set(rows(VERDICT, "ray.db"))
    assert set(rows(BROKEN, "here.db")) == set(rows(BROKEN, "ray.db"))


@ON_RAY
def test_a_chunk_under_which_four_workers_of_rays_died_is_a_verdict_and_the_campaign_ends(kernels):
    assert campaign("driven", "c.db", "--engine", "ray", "--cases", 20, "--climb", 0, "--laws", LAW) == 1
    ((lost, status, summary),) = rows("SELECT lost, status, summary FROM chunk JOIN violation USING (chunk)")
    assert (lost, status) == (3, "violated")
    assert re.fullmatch(r"ended each Ray worker that ran it, 4 of them: Actor\w+Error\.", summary)


@ON_RAY
def test_workers_that_ray_has_no_room_for_hold_up_nothing(kernels, monkeypatch):
    began = engines.OnRay.__init__

    def crowded(self, order_, workers, gpus, address):
        import ray

        init = ray.init
        monkeypatch.setattr(ray, "init", lambda **how: init(**{**how, "num_cpus": 1}))
        began(self, order_, workers, gpus, address)

    monkeypatch.setitem(engines.ENGINES, "ray", type("Crowded", (engines.OnRay,), {"__init__": crowded}))
    assert campaign("right", "c.db", "--engine", "ray", "--cases", 60, "--climb", 0, "--jobs", 3) == 0
    assert rows("SELECT count(*) FROM chunk") == [(3,)]


def test_a_worker_whose_machine_lacks_the_folder_says_so(kernels):
    bench, missing = Bench(order("kernels.py:right"), str(kernels / "missing")), Chunk("right", "rope", 0, 20)
    folder = kernels / "missing"
    why = f"What is verified should be under the same path on every machine, but a worker cannot work in {folder}, "
    assert bench.run(missing) == Lost(f"{why}No such file or directory.", starts=False)
    bench.close()


# -- Reports -----------------------------------------------------------------------------------------


def test_status_and_page_say_what_the_database_has(kernels, capsys):
    campaign("pair", "c.db", "--cases", 60, "--climb", 0)
    capsys.readouterr()
    assert main(["campaign", "status", "c.db"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("3 chunks, 60 cases in 1 run.")
    assert (
        "violated: rope is within its error limit[rope] on wrong (rope-positions-from-one), "
        "in 1 chunk, the first by seed 0: out[" in shown
    )
    assert shown.endswith("1 of 2 implementations breaks a law after 3 chunks.")
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    assert main(["campaign", "report", "c.db", "--html", "page"]) == 0
    page = Path("page/index.html").read_text("utf-8")
    html5lib.HTMLParser(strict=True).parse(page)
    assert "1 of 2 implementations breaks a law after 3 chunks." in page
    assert "properties.replay(" in page or "replay(&#34;" in page


def test_laws_of_two_operations_are_two_findings_each_with_its_example_of_the_lowest_seed(tmp_path):
    law = "a law of many operations"
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 1, {})
        for operation, seed, example in (
            ("rope", 2, "{2}"),
            ("rope", 7, "{777}"),
            ("rope", 1, ""),
            ("unrope", 9, "{9}"),
        ):
            broken = Broken(law, "violated", 2.0, f"{operation} of {seed}.", "", example, f"script of {seed}")
            store.add(Chunk("a", operation, seed, 20), Result({"violated": 1}, cases=20, broken=(broken,)))
    found = [
        (row["operation"], row["chunks"], row["seed"], row["summary"], row["script"])
        for row in report.found_in(tmp_path / "c.db").violations
    ]
    assert found == [("rope", 3, 1, "rope of 2.", "script of 2"), ("unrope", 1, 9, "unrope of 9.", "script of 9")]


def test_what_a_database_says_is_escaped(tmp_path):
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 1, {"system": "<b>"})
        store.add(Chunk("<script>[red]", "rope", 0, 1), Result({"held": 1}, cases=1))
    found = report.found_in(tmp_path / "c.db")
    page = report.write_page(found, tmp_path / "page").read_text("utf-8")
    assert "<script>" not in page
    assert "&lt;b&gt;" in page
    console = Console(record=True, width=120, file=io.StringIO())
    report.print_status(console, found)
    assert "<script>[red]" in console.export_text()


# -- The guide ---------------------------------------------------------------------------------------


def test_the_questions_in_the_guide_are_answered_and_every_table_is_there(tmp_path):
    with Store(tmp_path / "c.db", {}) as store:
        store.begin("instant", 1, {})
        broken = Broken("rope is within its error limit", "violated", 2.0, "It is wrong.", "rope_pairing=half")
        store.add(Chunk("a", "rope", 3, 20), Result({"violated": 1}, cases=20, excess=0.25, broken=(broken,)))
    answers = [rows(query, tmp_path / "c.db") for query in re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL)]
    assert answers == [
        [("a", "rope", "rope is within its error limit", "rope_pairing=half", 1, 3)],
        [("a", "rope", 0.25, None)],
    ]
    tables = {name for (name,) in rows("SELECT name FROM sqlite_schema WHERE type = 'table'", tmp_path / "c.db")}
    assert tables == set(re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE))


# -- Databases that somebody else has written ---------------------------------------------------------


def _changed(folder, statement, *values):
    """A database with one chunk and one violation, changed by one statement of SQL."""
    file = folder / "other.sqlite"
    with Store(file, {"seed": 0}) as store:
        store.begin("one", 1, {})
        broken = (Broken("a law", "violated", 2.0, "It is wrong."),)
        store.add(Chunk("a", "rope", 0, 20), Result({"violated": 1}, cases=20, broken=broken))
    with sqlite3.connect(file) as database:
        database.execute(statement, values)
    return str(file)


@pytest.mark.parametrize("column", ["implementation", "operation"])
def test_a_status_prints_no_control_characters(column, tmp_path, capsys):
    file = _changed(tmp_path, f"UPDATE chunk SET {column} = ?", "\x1b[2J\x07")
    assert main(["campaign", "status", file]) == 1
    printed = capsys.readouterr().out
    assert r"\x1b[2J\x07" in printed
    assert not {"\x1b", "\x07"} & {*printed}


@pytest.mark.parametrize(
    ("statement", "value", "words"),
    [
        ("UPDATE chunk SET excess = ?", "many", "the column excess holds 'many'"),
        ("UPDATE run SET environment = ?", "{", "cannot be read as a campaign's database"),
        ("UPDATE campaign SET value = ?", "[" * 100_000, "cannot be read as a campaign's database"),
        ("UPDATE violation SET summary = ?", b"x", "the column summary holds b'x'"),
    ],
)
def test_a_database_with_other_contents_is_refused_in_a_sentence(statement, value, words, tmp_path, capsys):
    assert main(["campaign", "status", _changed(tmp_path, statement, value)]) == 2
    assert words in capsys.readouterr().err
