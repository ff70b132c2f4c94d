"""The command: what it returns and prints, whatever an implementation does to the process it is in."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from properties.bugs import CATALOGUE
from properties.command.cli import main
from properties.laws import LAWS, find
from properties.processes.clock import Clock
from properties.views.pages import print_bug, print_bugs, print_law

COMMAND = [sys.executable, "-P", "-m", "attnspec"]
LAW = "a second call gives the same result[rope]"
ADAPTERS = """
import ctypes, itertools, os, time
import numpy as np
from properties.contract.implementation import Implementation
from properties.bugs.reference import REFERENCE

right = {"rope": REFERENCE["rope"]}
also = REFERENCE["rope"]

def rope(x, start_pos=0):
    return REFERENCE["rope"](x, start_pos)

calls = itertools.count()
wrong = {"rope": lambda x, start_pos=0: x + next(calls)}
from_one = {"rope": lambda x, start_pos=0: REFERENCE["rope"](x, start_pos + 1)}

def allocates(x, start_pos=0):
    raise MemoryError("8 TiB")

_fails = {"rope": lambda x, start_pos=0: 1 // 0}
raises = Implementation("raises", _fails, supports=())
out_of_memory = Implementation("out_of_memory", {"rope": allocates}, supports=())
undeclared = {"rope": lambda x, start_pos=0: 1 // 0}
aborts = {"rope": lambda x, start_pos=0: os.abort()}
reads_nowhere = {"rope": lambda x, start_pos=0: ctypes.string_at(0)}
exits = {"rope": lambda x, start_pos=0: os._exit(7)}

def waits_forever(x, start_pos=0):
    while True:
        time.sleep(1)

hangs = {"rope": waits_forever}

def waits(x, start_pos=0):
    if not next(calls):
        time.sleep(1.5)
    return REFERENCE["rope"](x, start_pos)

waits_once = {"rope": waits}

def aborts_on_simple_numbers(x, start_pos=0):
    if x.any() and np.array_equal(x, np.sign(x)):
        os.abort()
    return REFERENCE["rope"](x, start_pos) + x

ends_while_it_is_shrunk = {"rope": aborts_on_simple_numbers}  # such numbers are hardly ever drawn
raises_first = Implementation("raises_first", {**_fails, "rotate_half": REFERENCE["rotate_half"]}, supports=())
wrong_twice = {**wrong, "rotate_half": lambda x: x + next(calls)}

def says_something(x, start_pos=0):
    os.system("echo from below; echo from below >&2")
    return REFERENCE["rope"](x, start_pos)

prints = {"rope": says_something}

class Kernels:
    rope = staticmethod(rope)

kernels = Kernels()

def rope_in_halves(x, start_pos=0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    frequencies = 500.0 ** (-np.arange(0, x.shape[-1], 2) / max(x.shape[-1], 1))
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * frequencies
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)

half = {"rope": rope_in_halves}
deviations = {"a second call gives the same result": "It aborts, as its page says."}
declared = Implementation("declared", aborts, known_deviations=deviations)
several = [Implementation("first", right), right]
GROUPS = {"good ones": [Implementation("first", right)], "others": [Implementation("second", wrong)]}
"""


@pytest.fixture
def adapters(tmp_path, monkeypatch):
    (tmp_path / "adapters.py").write_text(ADAPTERS)
    (tmp_path / "no_import.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "no_return.py").write_text("import os\nos.abort()\n")
    (tmp_path / "spec.py").write_text("raise RuntimeError('this is not the spec of attnspec')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments, **environment):
    """The command as a shell runs it."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def verify(*targets, options=()):
    return ["verify", *targets, "--laws", LAW, "--max-examples", "8", "--jobs", "1", *options]


def test_a_law_that_holds_is_exit_status_0(adapters, capsys):
    assert main(verify("adapters:right")) == 0
    printed = capsys.readouterr()
    assert re.search(r"^✓  rope +1 +\d+ +0$", printed.out, re.MULTILINE)
    assert re.search(r"\n1 passes, 0 fail \(\d+\.\d s\)\n$", printed.out)
    assert re.fullmatch(r"right: 1 passes \(\d+\.\d s\)\n\n", printed.err)


def test_whatever_ends_the_process_or_never_returns_is_a_violation_with_its_input_and_the_rest_goes_on(adapters):
    names = ["aborts", "reads_nowhere", "exits", "hangs", "raises", "out_of_memory", "prints", "declared", "right"]
    ran = command(*verify(*(f"adapters:{name}" for name in names), options=["--timeout", "2", "--json", "-"]))
    assert ran.returncode == 1
    report = json.loads(ran.stdout)
    outcomes = {o["implementation"]: o for o in report["outcomes"]}
    assert {name: o["status"] for name, o in outcomes.items()} == {
        **dict.fromkeys(["aborts", "reads_nowhere", "exits", "hangs", "raises", "out_of_memory"], "violated"),
        "declared": "declared",
        "prints": "held",
        "right": "held",
    }
    summaries = {name: o["violation"]["summary"] for name, o in outcomes.items() if "violation" in o}
    assert summaries["aborts"] == "killed the process: SIGABRT."
    assert summaries["reads_nowhere"] == "killed the process: SIGSEGV."
    assert summaries["exits"] == "ended the process with exit status 7."
    assert summaries["hangs"] == "did not return within 2 s."
    assert summaries["raises"] == "raised ZeroDivisionError: integer division or modulo by zero"
    assert summaries["out_of_memory"] == "raised MemoryError: 8 TiB"
    assert outcomes["hangs"]["violation"]["counterexample"] == {"x": [[0.0, 0.0]], "start_pos": 0}
    assert {name: o["violation"]["shrunk"] for name, o in outcomes.items() if "violation" in o} == {
        **dict.fromkeys(["aborts", "reads_nowhere", "exits", "hangs", "declared"], False),
        **dict.fromkeys(["raises", "out_of_memory"], True),
    }
    line = 1 + ADAPTERS[: ADAPTERS.index("        time.sleep")].count("\n")
    assert [re.sub(r" /.*/", " ", note) for note in outcomes["hangs"]["violation"]["notes"]] == [
        f"The process was at adapters.py:{line} in waits_forever."
    ]
    assert list(adapters.glob(".hypothesis")) == []
    assert list(adapters.glob("core*")) == []


@pytest.mark.parametrize(("share", "status"), [(0.9, 0), (0.0, 1)])
def test_seconds_without_a_processor_are_not_those_of_a_call(adapters, monkeypatch, capsys, share, status):
    monkeypatch.setattr(Clock, "waited", lambda clock: share * clock.elapsed())
    assert main(verify("adapters:waits_once", options=["--timeout", "0.7"])) == status
    assert ("did not return within 0.7 s." in capsys.readouterr().out) == bool(status)


def test_the_report_in_json_is_the_one_of_verify_and_says_who_was_verified(adapters, capsys):
    assert main(verify("adapters:GROUPS", options=["--json", "report.json", "--seed", "3"])) == 1
    assert "✗ second: 1 check fails; cause not recognised" in capsys.readouterr().out
    report = json.loads((adapters / "report.json").read_text())
    assert set(report) == {
        "version",
        "ok",
        "interrupted",
        "strict",
        "settings",
        "seconds",
        "counts",
        "narrowest",
        "coverage",
        "causes",
        "outcomes",
    }
    assert (report["ok"], report["interrupted"]) == (False, False)
    assert report["settings"]["seed"] == 3
    sources = [i.pop("sources") for i in report["settings"]["implementations"]]
    line = 1 + ADAPTERS[: ADAPTERS.index("wrong = ")].count("\n")
    assert sources == [{"rope": {"file": "adapters.py", "line": 1}}, {"rope": {"file": "adapters.py", "line": line}}]
    assert report["settings"]["implementations"] == [
        {"name": "first", "group": "good ones", "target": "adapters:GROUPS", "arithmetic": "float64"},
        {"name": "second", "group": "others", "target": "adapters:GROUPS", "arithmetic": "float64"},
    ]
    violation = report["outcomes"][1]["violation"]
    assert "from adapters import GROUPS" in violation["script"]
    assert "next(i for i in GROUPS['others'] if i.name == 'second')" in violation["script"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere:adapter", "nowhere could not be imported: ModuleNotFoundError: No module named 'nowhere'."),
        (
            "no_import",
            "no_import could not be imported: ModuleNotFoundError: No module named 'nothing_of_this_name', at ",
        ),
        ("no_return:adapter", "no_return:adapter could not be imported: it killed the process: SIGABRT."),
        ("adapters:nothing", "adapters has no attribute 'nothing'. Its adapters are raises, out_of_memory, "),
        (
            "json",
            "json has no adapter: no properties.Implementation, no mapping from operations to functions, and no ",
        ),
        ("json:decoder", "json:decoder is not an implementation: json.decoder offers no operation, but should be "),
        (
            "adapters:GROUPS.items",
            "adapters:GROUPS.items is not an implementation: items offers no operation, but should be ",
        ),
    ],
)
def test_what_is_no_implementation_is_exit_status_2_and_a_sentence(adapters, capsys, target, sentence):
    assert main(verify(target)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"attnspec: {sentence}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["verify", "adapters:right", "--laws", "zzz"], "Unknown law 'zzz'. `attnspec laws` lists the known ones."),
        (
            ["verify", "adapters:right", "--laws", "a second call[rape]"],
            "'a second call gives the same result' is no law of 'rape', but of ",
        ),
        (
            ["verify", "adapters:right", "--laws", "a second call[causal_mask]"],
            "'a second call[causal_mask]' is not about an operation of ",
        ),
        (
            ["verify", "adapters:right", "--arithmetic", "float65"],
            "arithmetic='float65', but should be one of float64, ",
        ),
        (
            ["verify", "adapters:right", "--json", "no/such/folder"],
            "no/such/folder cannot be written: the folder ",
        ),
        (
            ["explain", "a second coll gives the same"],
            "Unknown law or bug or operation 'a second coll gives the same'. "
            "Did you mean 'a second call gives the same result'?\n",
        ),
        (["bugs", "integer"], "'integer' may mean "),
        (
            ["verify", "adapters:right", "--convention", "rope_pairs=half"],
            "Unknown convention 'rope_pairs'. Did you mean 'rope_pairing'?\n",
        ),
        (
            ["verify", "adapters:right", "--convention", "rope_pairing=halves"],
            "Conventions.rope_pairing='halves', but should be one of 'adjacent', 'half'. Did you mean 'half'?\n",
        ),
        (
            ["verify", "adapters:right", "--convention", "rope_base=ten"],
            "rope_base='ten', but should be a number, as rope_base=10000.",
        ),
        (["verify", "adapters:right", "--exclude", "zzz"], "Unknown law 'zzz'. `attnspec laws` lists the known ones."),
    ],
)
def test_nonsense_is_exit_status_2_and_a_sentence(adapters, capsys, arguments, sentence):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"attnspec: {sentence}")


@pytest.mark.parametrize("option", [["--max-examples", "0"], ["--jobs", "-1"], ["--seed", "x"], ["--timeout", "inf"]])
def test_numbers_out_of_range_are_refused(option, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["verify", "adapters:right", *option])
    assert exit.value.code == 2
    assert option[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.thorough) for number in (signal.SIGHUP, signal.SIGTERM))],
)
def test_a_signal_prints_what_is_known_and_leaves_nothing_behind(adapters, number):
    folder = adapters / "temporary"
    folder.mkdir()
    line = [*COMMAND, *verify("adapters:right", "adapters:hangs")]
    with subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        preexec_fn=lambda: signal.signal(
            number, signal.SIG_DFL
        ),  # a shell ignores SIGINT in what it runs in the background
    ) as running:
        assert running.stderr.readline().startswith("right: 1 passes")
        time.sleep(0.2)
        children = descendants(running.pid)
        running.send_signal(number)
        out, err = running.communicate(timeout=10)
    assert running.returncode == 128 + number
    assert re.search(r"^✓  rope +1 +\d+ +0 *$", out, re.MULTILINE)
    assert f"It was not run: {number.name} came.\n" in out
    assert re.search(r"Interrupted\. 1 passes, 0 fail, 1 not run \(\d+\.\d s\)\n$", out)
    assert err == "\n"
    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert list(folder.iterdir()) == []


def descendants(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_narrow_pipe_without_colours_is_readable(adapters):
    ran = command(*verify("adapters:GROUPS", options=["--all"]), COLUMNS="44", NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert "\x1b" not in ran.stdout
    table = ran.stdout.split("To reproduce it")[0]
    assert max(map(len, table.splitlines())) <= 44
    assert "second" in table
    assert re.search(r"1 passes, 1 fails \(\d+\.\d s\)\n$", ran.stdout)


def test_an_input_that_was_not_shrunk_is_not_called_the_smallest(adapters, capsys):
    assert main(verify("adapters:aborts", options=["-v"])) == 1
    printed = capsys.readouterr().out
    assert "\n  The input:\n    x  " in printed
    assert "smallest" not in printed


def test_a_kernel_that_raises_everywhere_is_inconclusive_beside_a_right_one(adapters, capsys):
    assert main(verify("adapters:right", "adapters:undeclared")) == 3
    printed = capsys.readouterr().out
    assert "every call (ZeroDivisionError: integer division or modulo by zero)" in printed
    assert "Declare `supports=...`" in printed


def test_a_list_in_a_pipe_has_a_line_for_each_entry():
    for page, names in (("laws", {law.name for law in LAWS}), ("bugs", set(CATALOGUE))):
        listed = [
            line[2:].split("  ") for line in command(page, COLUMNS="30").stdout.splitlines() if line.startswith("  ")
        ]
        assert {name for name, _ in listed} == names


def test_a_list_in_a_narrow_terminal_has_its_later_lines_set_in():
    screen = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    print_bugs(screen)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert {line.split()[0] for line in lines if re.match(r"  \w", line)} == set(CATALOGUE)


def test_a_dumb_terminal_gets_a_line_for_an_implementation_and_no_bar(adapters):
    ours, theirs = pty.openpty()
    line = [*COMMAND, *verify("adapters:right")]
    ran = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "dumb"}, timeout=60, check=True
    )
    assert "1 passes, 0 fail" in ran.stdout.decode()
    assert re.fullmatch(rb"right: 1 passes \(\d+\.\d s\)\r\n\r\n", os.read(ours, 4096))
    os.close(ours)
    os.close(theirs)


def test_a_list_of_implementations_and_an_object_with_functions_are_verified(adapters, capsys):
    assert main(verify("adapters:several", "adapters:kernels", options=["--json", "-", "--arithmetic", "float32"])) == 1
    printed = json.loads(capsys.readouterr().out)
    assert [i["name"] for i in printed["settings"]["implementations"]] == ["first", "several[1]", "kernels"]
    assert {i["arithmetic"] for i in printed["settings"]["implementations"]} == {"float32"}
    summaries = {
        o["violation"]["summary"] for o in printed["outcomes"]
    }  # the reference works in float64 whatever it is given
    assert summaries == {"out has dtype float64, but should have dtype float32."}


def test_conventions_replace_what_is_declared_one_by_one_and_the_script_has_them(adapters, capsys):
    options = ["--convention", "rope_pairing=half", "--convention", "rope-base=500"]
    assert main(verify("adapters:half", options=["--laws", "rope is within", *options])) == 0
    assert main(verify("adapters:right", options=["--laws", "rope is within", *options, "--json", "report.json"])) == 1
    report = json.loads((adapters / "report.json").read_text())
    assert report["settings"]["conventions"] == {"rope_pairing": "half", "rope_base": 500.0}
    (cause,) = report["causes"]
    assert 'conventions=oracles.Conventions(rope_pairing="half", rope_base=500.0)' in cause["example"]["script"]
    path = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{adapters}"}
    again = subprocess.run(
        [sys.executable, "-P", "-c", cause["example"]["script"]], capture_output=True, text=True, env=path, check=False
    )
    assert again.returncode == 1
    assert f"BrokenError: {cause['example']['summary']}" in again.stderr


def test_what_is_excluded_is_left_out_and_told(adapters, capsys):
    both = ["--laws", "a second call", "f(a) + f(b) = f(a + b)", "--exclude", "f-a-f-b-f-a-b"]
    assert main(["verify", "adapters:right", *both, "--max-examples", "4", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1 passes, 0 fail" in printed
    assert "Laws left out: f-a-f-b-f-a-b.\n1 passes, 0 fail (" in printed


def test_the_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"attnspec \d+\.\d+\.\d+\n", capsys.readouterr().out)


def page(print_page, *about):
    """What a function prints, in one line."""
    screen = Console(file=io.StringIO(), width=100)
    print_page(screen, *about)
    return " ".join(screen.file.getvalue().split())


def test_every_law_has_a_page(capsys):
    for law in {law.name: law for law in LAWS}.values():
        assert page(print_law, find(law.id)).startswith(law.name)
    assert main(["explain", LAWS[0].id]) == 0
    assert capsys.readouterr().out.startswith(LAWS[0].name)
    assert main(["laws"]) == 0
    listed = capsys.readouterr().out
    assert all(law.name.split()[0] in listed for law in LAWS)


def test_a_part_of_a_name_that_no_other_has_is_enough(capsys):
    assert main(["explain", "Second-call_gives the"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("a second call gives the same result\n")
    assert "the same call again gives the same result." in " ".join(printed.split())
    assert (
        "compares Exact if the implementation declares `deterministic`; otherwise within the error limit."
        in " ".join(printed.split())
    )


def test_every_bug_has_a_page(capsys):
    for bug in CATALOGUE.values():
        printed = page(print_bug, bug)
        assert printed.startswith(bug.id)
        assert bug.repair.split()[0] in printed
    assert main(["bugs", bug.id]) == 0
    assert capsys.readouterr().out.startswith(bug.id)
    assert main(["bugs"]) == 0
    assert f"{len(CATALOGUE)} bugs" in capsys.readouterr().out


FAIL_FAST = ["--laws", LAW.partition("[")[0], "--max-examples", "8", "--fail-fast", "--json", "-"]


def test_no_law_is_begun_after_the_first_violation_if_it_fails_fast(adapters, capsys):
    assert main(["verify", "adapters:right", "adapters:raises_first", *FAIL_FAST, "--jobs", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(o["operation"], o["status"]) for o in report["outcomes"]] == [
        ("rope", "held"),
        ("rope", "violated"),
        ("rotate_half", "not run"),
    ]
    assert report["outcomes"][-1]["reason"] == "The run ended at the first violation (--fail-fast)."
    (cause,) = report["causes"]
    assert cause["laws"] == [f"{cause['example']['law']}[rope]"]


def test_violations_have_their_causes_however_many_laws_are_being_checked_when_it_fails_fast(adapters, capsys):
    assert main(["verify", "adapters:wrong_twice", *FAIL_FAST, "--jobs", "2"]) == 1
    report = json.loads(capsys.readouterr().out)
    violated = {f"{o['law']}[{o['operation']}]" for o in report["outcomes"] if o["status"] == "violated"}
    assert {law for cause in report["causes"] for law in cause["laws"]} == violated


def test_it_fails_at_the_first_case_that_shows_a_violation_and_says_which_laws_it_cut_short(adapters, capsys):
    arguments = ["verify", "adapters:from_one", "--jobs", "1", "--json", "-"]
    assert main([*arguments, "--max-examples", "20"]) == 1
    whole = json.loads(capsys.readouterr().out)["outcomes"]
    assert main([*arguments, "--fail-fast"]) == 1
    found = json.loads(capsys.readouterr().out)["outcomes"]
    assert sum(o["examples"] for o in found) < sum(o["examples"] for o in whole) / 4
    cut = [o["reason"] for o in found if o["status"] == "not run"]
    assert len(cut) > 10
    (why,) = set(cut)
    ended = r"The run ended at the first violation after \d test inputs? of rope, before the law was checked\."
    assert re.fullmatch(ended, why)


def test_other_processes_end_when_one_fails_fast(adapters, capsys):
    start = time.monotonic()
    assert main(["verify", "adapters:hangs", "adapters:raises", *FAIL_FAST, "--jobs", "2"]) == 1
    assert time.monotonic() - start < 50  # a call that hangs has 60 s, and the machine may be busy
    found = {o["implementation"]: o for o in json.loads(capsys.readouterr().out)["outcomes"]}
    assert (found["raises"]["status"], found["hangs"]["status"]) == ("violated", "not run")
    assert found["hangs"]["reason"] == "The run ended at the first violation (--fail-fast)."


def test_an_end_of_the_process_while_smaller_inputs_are_tried_leaves_the_causes_as_they_are(adapters, capsys):
    law = "rope is within its error limit[rope]"
    assert (
        main(
            [
                "verify",
                "adapters:ends_while_it_is_shrunk",
                "--laws",
                law,
                "--max-examples",
                "8",
                "--jobs",
                "1",
                "--json",
                "-",
            ]
        )
        == 1
    )
    (cause,) = json.loads(capsys.readouterr().out)["causes"]
    assert cause["laws"] == [law]
    assert not cause["example"]["shrunk"]
    assert cause["searched"]
