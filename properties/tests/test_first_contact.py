"""What a user meets first: files of any name, an import that fails, a device that is not there, a run that
is slow or is stopped, what editors read, and running again on a change.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import oracles
import properties
from properties.bugs.reference import REFERENCE
from properties.command import progress, watching
from properties.command.cli import main
from properties.command.progress import Shown, in_words, seconds_left
from properties.command.watching import watch
from properties.conformance import checks_of_adapters
from properties.contract.implementation import Implementation
from properties.processes.adapters import AdapterError, load
from properties.processes.messages import Order, Progress
from properties.tests.processes import wait_for
from properties.verifier.comparison import Known
from properties.verifier.examination import Examination, Supervision
from properties.verifier.plan import CALLS, QUICKLY, plan
from properties.verifier.report import Outcome, Report
from properties.views.short import short
from properties.views.terminal import print_report

LAW = "rope is within its error limit"
KERNEL = """
from properties.bugs.reference import REFERENCE as _REFERENCE

def rope(x, start_pos=0):
    return {sign}_REFERENCE["rope"](x, start_pos)

adapter = {{"rope": rope}}
"""
RIGHT, WRONG = KERNEL.format(sign=""), KERNEL.format(sign="-")
QUICKLY_ONE_LAW = ["--laws", LAW, "--max-examples", "4", "--jobs", "1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["01_x.py", "two.dots.py"])
def test_a_file_of_any_name_is_loaded_and_its_script_finds_it_again(folder, name, capsys):
    (folder / name).write_text(WRONG)
    (found,) = load([name])
    report = properties.verify(found.implementation, laws=[LAW], max_examples=2)
    from properties.verifier.script import script

    text = script(report.violations[0], found.target)
    assert f'adapter = runpy.run_path("{folder / name}")["adapter"]\n' in text
    with pytest.raises(AssertionError, match="but should be"):
        exec(text, {})


def test_an_import_error_shows_the_line_of_the_user(folder):
    (folder / "fails.py").write_text("import numpy\n\n\ndef start():\n    numpy.nothing_of_this_name()\n\nstart()\n")
    (folder / "syntax.py").write_text("def rope(x:\n    return x\n")
    with pytest.raises(AdapterError) as raised:
        load(["fails.py"])
    assert str(raised.value).endswith(f", at {folder}/fails.py:5: `numpy.nothing_of_this_name()`.")
    with pytest.raises(AdapterError) as raised:
        load(["syntax.py"])
    assert f", at {folder}/syntax.py:1: `def rope(x:`." in str(raised.value)


def test_a_device_that_is_not_here_is_one_sentence(folder, capsys):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("CUDA is here.")
    (folder / "cuda.py").write_text(
        "from properties import Implementation\nadapter = Implementation('mine', {'rope': lambda x, start_pos: x}, "
        "arrays='torch', device='cuda')\n"
    )
    with pytest.raises(AdapterError) as raised:
        load(["cuda.py"])
    sentence = r"mine declares device='cuda', which PyTorch cannot use here \(.+\): run attnspec where this device is, "
    assert re.fullmatch(f"{sentence}or declare another device\\.", str(raised.value))
    with pytest.raises(ValueError, match=sentence):
        properties.verify(Implementation("mine", {"rope": REFERENCE["rope"]}, arrays="torch", device="cuda"))
    away = Implementation("mine", {"rope": REFERENCE["rope"]}, arrays="torch", device="cuda", unavailable="No GPU.")
    assert {o.unavailable for o in properties.verify(away, laws=[LAW]).outcomes} == {True}


def test_pytest_obeys_the_table_of_the_project_as_the_command_does(folder):
    (folder / "kernels.py").write_text(WRONG)
    (folder / "pyproject.toml").write_text(
        f'[tool.attnspec]\narithmetic = "float32"\nlaws = ["{LAW}", "a second call gives the same result"]\n'
        f'max-examples = 3\nseed = 5\n[tool.attnspec.conventions]\nrope_pairing = "half"\n'
        f'[tool.attnspec.known-deviations]\n"{LAW}" = "It is negative."\n'
    )
    (found,) = checks_of_adapters(["kernels.py"]).values()
    assert {check.law.name for check in found} == {LAW, "a second call gives the same result"}
    assert {(check.max_examples, check.random_seed) for check in found} == {(3, 5)}
    implementation = found[0].implementation
    assert implementation.resolved_arithmetic.name == "float32"
    assert implementation.resolved_conventions.rope_pairing == "half"
    assert implementation.known_deviations == {LAW: "It is negative."}
    violation = properties.verify(implementation, known_deviations={}, laws=[LAW], max_examples=2).violations[0]
    assert 'arithmetic="float32", conventions=oracles.Conventions(rope_pairing="half")' in found[0].scripted(violation)


def order(**changed):
    settings = {
        **dict.fromkeys(("targets", "only", "exclude"), ()),
        **dict.fromkeys(("arithmetic", "laws")),
        **dict.fromkeys(("long", "quick", "fail_fast"), False),
        **{"conventions": {}, "known_deviations": {}, "max_examples": 100, "seed": 0, "timeout": 60.0},
        **{"time_limit": float("inf"), "known": Known()},
    }
    return Order(**(settings | changed))


@pytest.mark.parametrize(("operation", "quick"), [("alibi_slopes", False), ("rope_angles", True)])
def test_the_estimate_after_the_first_calls_is_true_within_a_factor_of_two(operation, quick):
    """If each call takes a second."""
    implementation, calls, seen = Implementation("mine", {operation: REFERENCE[operation]}), [], {}

    def checked(examination):
        for number in (3, 20):
            if len(calls) >= number:
                cases, taken = examination.evidence.cases, (len(calls), float(len(calls)), float(len(calls)))
                seen.setdefault(number, Progress(operation, cases, examination.planned, *taken, ()))

    supervision = Supervision(observe=lambda *call: calls.append(call), checked=checked)
    number, asked = QUICKLY if quick else 100, order(quick=quick, max_examples=QUICKLY if quick else 100)
    Examination(implementation, operation, plan(implementation, quick=quick), supervision).run(number, 0)
    for each in seen.values():
        whole = each.calls + seconds_left(asked, [(0, operation)], {(0, operation): each}, jobs=1)
        assert len(calls) / 2 < whole < len(calls) * 2
    assert len(seen) == 2
    assert len(calls) / 2 < CALLS[operation][quick] < len(calls) * 2


def test_an_estimate_of_chosen_laws_needs_no_finished_test_input():
    under_way = {(0, "rope"): Progress("rope", 0, 16, 4, 2.0, 2.0, ())}
    assert seconds_left(order(laws=("rope is within its error limit[rope]",)), [(0, "rope")], under_way, jobs=1) == 30.0


def test_operations_that_have_not_begun_take_their_usual_calls_and_processes_share_the_work():
    under_way = {(0, "rope"): Progress("rope", 10, 100, 40, 20.0, 20.0, ())}
    alone = seconds_left(order(), [(0, "rope")], under_way, jobs=1)
    both = seconds_left(order(), [(0, "rope"), (0, "rope_vjp")], under_way, jobs=1)
    assert both - alone == pytest.approx(0.5 * CALLS["rope_vjp"][0])
    assert seconds_left(order(), [(0, "rope"), (0, "rope_vjp")], under_way, jobs=2) == pytest.approx(both / 2, rel=0.2)
    assert seconds_left(order(), [], under_way, jobs=2) == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.25, "0.25 s"), (1.0, "1 s"), (40.4, "40 s"), (99.0, "99 s"), (366, "6 min")]
)
def test_times_are_in_words(seconds, words):
    assert in_words(seconds) == words


def test_without_a_terminal_there_is_a_line_every_10_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    entry = SimpleNamespace(name="mine", laws=("a[rope]", "b[rope]"), groups={"rope": (0, 1)})
    runner = SimpleNamespace(entries=[], progress={})
    with Shown(Console(stderr=True), order(targets=("mine.py",)), 1) as shown:
        for now[0], runner.entries, cases in ((9.9, [], 0), (10.0, [], 0), (15.0, [entry], 1), (20.1, [entry], 3)):
            runner.progress = {(0, "rope"): Progress("rope", cases, 113, 4 * cases, 8.0, 8.0, ())} if cases else {}
            shown.look(runner)
    first, second, blank = capsys.readouterr().err.split("\n", 2)
    assert first == "10 s: importing mine.py"
    assert re.fullmatch(r"20 s: rope: 3 test inputs, no failure; 0\.67 s a call: about \d min in all", second)
    assert blank == "\n"


def test_the_bar_shows_no_number_before_it_is_known(monkeypatch):
    console = Console(force_terminal=True, force_interactive=True, width=80, file=io.StringIO(), record=True)
    with Shown(console, order(targets=("mine.py",)), 1) as shown:
        shown.look(SimpleNamespace(entries=[], progress={}))
        console.print(shown._bar)
    assert "importing mine.py" in (text := console.export_text())
    assert "None" not in text


def test_an_interrupt_counts_what_was_checked(monkeypatch):
    calls = []

    def rope(x, start_pos=0):
        calls.append(x)
        if len(calls) > 30:
            raise KeyboardInterrupt
        return REFERENCE["rope"](x, start_pos)

    report = properties.verify({"rope": rope})
    stopped = [o for o in report.outcomes if o.status == "stopped early"]
    assert report.interrupted
    assert stopped
    assert all(o.examples for o in stopped)
    assert re.fullmatch(r"The run was stopped after \d+ test inputs of rope: no failure\.", stopped[0].reason)
    assert not [o for o in report.outcomes if o.status == "held"]


def test_an_interrupt_shows_the_failures_so_far():
    calls = []

    def rope(x, start_pos=0):
        calls.append(x)
        if len(calls) > 30:
            raise KeyboardInterrupt
        return -REFERENCE["rope"](x, start_pos)

    report = properties.verify({"rope": rope})
    assert LAW in {violation.law for violation in report.violations}
    assert report.violations[0].script
    assert "Interrupted." in str(report)


SLOW = RIGHT.replace("    return ", "    time.sleep(0.05)\n    open('calls', 'a').write('.')\n    return ")


def test_the_command_counts_what_was_checked_before_ctrl_c(folder):
    (folder / "slow.py").write_text(f"import time\n{SLOW}")
    (folder / "calls").touch()
    line = [sys.executable, "-m", "attnspec", "verify", "slow.py", "--jobs", "1", "--json", "report.json"]
    with subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        wait_for(lambda: (folder / "calls").stat().st_size > 45)  # more than two seconds
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=20)
    assert running.returncode == 130
    assert re.search(r"The run was stopped after \d+ test inputs? of rope: no failure\.", " ".join(out.split()))
    assert json.loads((folder / "report.json").read_text())["counts"]["stopped early"] > 0


@pytest.mark.parametrize("survivors", [1, 0])
def test_a_spare_process_that_is_killed_during_its_import_does_not_end_the_run(folder, survivors, capsys):
    """As Linux kills processes when memory is short; one process that imports is enough."""
    first = "open('first', 'x').close()" if survivors else "raise FileExistsError"
    killed = f"try:\n    {first}\nexcept FileExistsError:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (folder / "kernels.py").write_text(f"import os, signal\n{killed}{RIGHT}")
    status = main(["verify", "kernels.py", *QUICKLY_ONE_LAW[:-1], "2"])
    assert status == (0 if survivors else 2)
    sentence = "attnspec: kernels.py could not be imported: it killed the process: SIGKILL.\n"
    assert (sentence in capsys.readouterr().err) == (not survivors)


def test_editors_get_a_line_for_each_cause_and_the_verdict(folder, capsys):
    (folder / "kernels.py").write_text(WRONG)
    assert main(["verify", "kernels.py", *QUICKLY_ONE_LAW, "--format", "short"]) == 1
    line, verdict = capsys.readouterr().out.splitlines()
    assert line.startswith(f"kernels.py:4: adapter: rope: {LAW}: out[")
    assert verdict.startswith("0 pass, 1 fails (")


def test_a_cause_without_a_known_place_has_the_name_of_its_implementation():
    report = properties.verify({"rope": lambda x, start_pos=0: -x}, laws=[LAW], max_examples=2)
    assert short(report).startswith(f"implementation: implementation: rope: {LAW}: ")
    assert short(properties.verify({"rope": REFERENCE["rope"]}, laws=[LAW], max_examples=2)) == ""


def test_what_is_not_drawn_takes_one_line_and_with_all_a_line_for_each_reason(capsys):
    undrawn = ("a: It takes no a.", "b: It takes no b.", *(f"family {n}: It takes no a." for n in range(30)))
    report = Report((Outcome(LAW, "rope", "mine", "held", 3, undrawn=undrawn),))
    print_report(Console(width=80), report, {"mine": ["mine"]})
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "not tested" in line]
    assert line.startswith("· not tested  mine  a, family 0, ") or line.startswith("· not tested  mine  a, b, ")
    assert line.endswith(" … -v says why")
    assert len(line) == 80
    print_report(Console(width=2000), report, {"mine": ["mine"]}, everything=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if "not tested" in line]
    assert [line.rpartition(": ")[2].rstrip() for line in lines] == ["It takes no a.", "It takes no b."]


def test_a_report_and_an_enclosure_can_be_read_in_a_notebook():
    report = properties.verify({"rope": lambda x, start_pos=0: -x}, laws=[LAW], max_examples=2)
    assert re.fullmatch(r"<Report on implementation: 0 pass, 1 fails \(\d+\.\d s\)>", repr(report))
    assert str(report).startswith("✗ implementation: 1 check fails")
    assert report._repr_html_().startswith("<pre><span ")
    enclosure = oracles.rope(np.ones((2, 4)), arithmetic="float32")
    assert re.fullmatch(r"<Enclosure of binary32, shape \(2, 4\), radius \S+ to \S+>", repr(enclosure))
    assert str(enclosure).startswith(f"{enclosure!r}\nmid  [[")
    assert "\nrad  [[" in str(enclosure)
    assert enclosure._repr_html_() == f"<pre>{str(enclosure).replace('<', '&lt;').replace('>', '&gt;')}</pre>"
    assert repr(oracles.Enclosure(np.zeros(0), np.zeros(0))) == "<Enclosure, shape (0,)>"
    assert (
        repr(oracles.Enclosure(np.zeros(()), np.ones(()), vacuous=True)) == "<Enclosure, shape (), radius 1, vacuous>"
    )


def test_watching_runs_again_on_a_change_and_ends_with_the_last_exit_status(folder, capsys):
    (folder / "kernels.py").write_text("1\n")
    (folder / "written").mkdir()
    runs, statuses = [], iter([1, ValueError("It is half written."), 0])

    def run():
        runs.append((folder / "kernels.py").read_text())
        status = next(statuses)
        if isinstance(status, ValueError):
            raise status
        return status

    def wait(seconds):
        (folder / "written" / "test_x.py").write_text("what the command writes counts for nothing")
        (folder / "notes.txt").write_text("no source")
        if len(runs) == 3:
            raise KeyboardInterrupt
        (folder / "kernels.py").write_text("1\n" * (len(runs) + 1))
        os.utime("kernels.py", (len(runs), len(runs)))

    assert watch(run, ["kernels.py:adapter"], "written", wait) == 0
    assert [len(text) for text in runs] == [2, 4, 6]
    said = capsys.readouterr().err
    assert said.count("\nChanged: kernels.py\n") == 2
    assert "attnspec: It is half written.\n" in said


def test_watching_ends_with_a_run_that_a_signal_ended(folder):
    assert watch(lambda: 130, [], wait=lambda seconds: pytest.fail("It waited.")) == 130


@pytest.mark.thorough
def test_the_command_runs_again_when_the_file_changes(folder):
    (folder / "kernels.py").write_text(WRONG)
    line = [
        sys.executable,
        "-u",
        "-m",
        "attnspec",
        "verify",
        "kernels.py",
        *QUICKLY_ONE_LAW,
        "--watch",
        "--format",
        "short",
    ]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    ) as running:
        assert "kernels.py:4: " in running.stdout.readline()
        assert running.stdout.readline().startswith("0 pass, 1 fails")
        (folder / "kernels.py").write_text(RIGHT)
        assert running.stdout.readline().startswith("1 passes, 0 fail")
        time.sleep(watching._SECONDS)
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
