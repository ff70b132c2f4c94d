"""What a hostile adapter, terminal or disk cannot do: end the command with a traceback, or make it
say what is not so.
"""

import errno
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from properties.command.cli import main
from properties.command.outputs import printing
from properties.conformance import Check
from properties.contract.implementation import Implementation
from properties.contract.results import BrokenError
from properties.contract.wording import printable, said, shown
from properties.laws import find
from properties.tests.processes import processes_in, wait_for
from properties.views.html import page

TWO = [
    "--laws",
    "a second call gives the same result[rope]",
    "a call prints nothing and leaves process-wide state unchanged[rope]",
]
FEW = [*TWO, "--max-examples", "8", "--jobs", "1"]
ADAPTERS = """
import os
import time
from collections.abc import Mapping
import numpy as np
from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.bugs.reference_positions import rotated
from properties.contract.implementation import Implementation

rope = REFERENCE["rope"]
right = {"rope": rope}

def forking(x, start_pos=0):
    os.fork()
    return rope(x, start_pos)

forks = {"rope": forking}

def hanging(x, start_pos=0):
    open("hangs", "w").close()
    time.sleep(3600)

hangs = {"rope": hanging}

class Attributes:
    def __getattr__(self, name):
        raise OSError("no disk")

class Keys(Mapping):
    def __getitem__(self, key):
        raise OSError("no disk")
    __iter__ = __len__ = __getitem__

attributes, keys = Attributes(), Keys()
Keys.__iter__ = lambda self: self[0]
Keys.__len__ = lambda self: self[0]

hungry = Implementation("hungry", {"rope": lambda x, start_pos=0: np.ones(2**30)}, supports=())

def refusing(x, start_pos=0):
    raise NotImplementedError("never")

never = Implementation("never", {"rope": refusing}, supports={"head_dim": lambda d: False})
painted = Implementation("\\x1b[31mred\\nname", {"rope": rope})
class Rope:
    tables = {}  # of the class

    def __init__(self, base):
        self.base = base

    def __call__(self, x, start_pos=0):
        key = start_pos, *x.shape[-2:]
        if key not in self.tables:
            frequencies = self.base ** (-(np.arange(key[2]) // 2 * 2) / max(key[2], 1))
            angle = np.arange(start_pos, start_pos + key[1])[:, None] * frequencies
            self.tables[key] = np.cos(angle), np.sin(angle)
        cos, sin = self.tables[key]
        return x * cos + rotated(x) * sin

two_bases = [
    Implementation("base 10000", {"rope": Rope(10000.0)}),
    Implementation("base 100", {"rope": Rope(100.0)}, conventions=Conventions(rope_base=100.0)),
]
hundreds = [right] * 300
one_aborts = [Implementation("right", right), Implementation("aborts", {"rope": lambda x, start_pos=0: os.abort()})]
groups = {"two\\nlines\\x07": [Implementation("first", right), Implementation("second", right)]}
"""


@pytest.fixture
def adapters(tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text(ADAPTERS)
    (tmp_path / "forks_early.py").write_text("import os\nos.fork()\nfrom hostile import right\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- Where it writes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--json", "."], ". cannot be written: it is a folder."),
        (["--json", ""], "--json has an empty name, but should have the name of a file."),
        (["--json", "nowhere/report.json"], "nowhere/report.json cannot be written: the folder "),
        (["--json", "x" * 300], f"{'x' * 300} cannot be written: File name too long."),
        (["--html", ""], "--html has an empty name, but should have the name of a folder."),
        (["--html", "hostile.py"], "hostile.py cannot be created: File exists."),
        (["--html", "/dev/full"], "/dev/full cannot be created: File exists."),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work_begins(adapters, capsys, options, sentence):
    assert main(["verify", "hostile:right", *FEW, *options]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"attnspec: {sentence}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_place_that_turns_out_to_be_full_is_a_sentence_below_the_verdict(adapters, capsys, monkeypatch):
    def full(reports, folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(page, "write", full)
    assert main(["verify", "hostile:right", *FEW, "--json", "/dev/full", "--html", "page"]) == 2
    printed = capsys.readouterr()
    assert re.search(r"\n2 pass, 0 fail \(\d+\.\d s\)\n$", printed.out)
    told = (
        "attnspec: /dev/full cannot be written: No space left on device. "
        "page cannot be written to: No space left on device.\n"
    )
    assert printed.err.endswith(told)


def shell(line, **options):
    """A command line as a shell runs it: its exit status, and what it wrote to standard error."""
    python = f"{sys.executable} -P -m attnspec"
    ran = subprocess.run(
        ["bash", "-c", line.replace("attnspec", python)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        ("attnspec verify {} >/dev/full", 2, "No space left on device. The verdict was: 2 pass, 0 fail"),
        ("attnspec verify {} | true; exit ${{PIPESTATUS[0]}}", 2, "Broken pipe. The verdict was: 2 pass, 0 fail"),
        ("attnspec verify {} >&-", 2, "attnspec: Standard output is closed, but should be open."),
        ("attnspec laws | true; exit ${{PIPESTATUS[0]}}", 141, ""),
    ],
)
def test_standard_output_that_is_full_or_closed_is_a_sentence_with_the_verdict(adapters, line, status, sentence):
    found, told = shell(line.format(" ".join(["hostile:right", *(f"'{word}'" for word in FEW)])))
    assert found == status
    assert sentence in told
    assert "Traceback" not in told


def test_a_full_folder_of_temporary_files_is_no_violation(adapters):
    def without_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    status, told = shell(
        f"attnspec verify hostile:right {' '.join(map(repr, FEW))} </dev/null", preexec_fn=without_room
    )
    assert status == 2
    assert (
        "attnspec: The processes cannot be run: attnspec cannot record the call in the folder of temporary files: "
        in told
    )


def test_no_folder_for_temporary_files_is_a_sentence(adapters, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    assert main(["verify", "hostile:right", *FEW]) == 2
    assert capsys.readouterr().err == "attnspec: The processes cannot be run: No such file or directory.\n"


def test_two_gigabytes_of_memory_are_enough_and_what_wants_more_is_a_violation(adapters):
    def within_two_gigabytes():
        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))

    ran = shell(
        f"attnspec verify hostile:right hostile:hungry {' '.join(map(repr, FEW))}", preexec_fn=within_two_gigabytes
    )
    assert ran[0] == 1
    assert "right: 2 pass (" in ran[1]
    assert "hungry: 2 fail (" in ran[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="The superuser may write everywhere.")
def test_a_folder_that_is_read_only_is_said_before_the_work_begins(adapters, capsys):
    (adapters / "closed").mkdir(0o500)
    assert main(["verify", "hostile:right", *FEW, "--json", "closed/report.json"]) == 2
    assert (
        capsys.readouterr().err
        == f"attnspec: closed/report.json cannot be written: {adapters / 'closed'} is read-only.\n"
    )


READ_ONLY = """
set -e
mkdir disk && mount -t tmpfs tmpfs disk && cp hostile.py disk && mount -o remount,ro disk && cd disk
! touch x 2>/dev/null
{}
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode != 0,
    reason="No file system can be mounted here.",
)
@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        ("", 0, "right: 2 pass ("),
        ("--json report.json", 2, "attnspec: report.json cannot be written: {}/disk is read-only.\n"),
        ("--html page", 2, "attnspec: page cannot be created: Read-only file system.\n"),
    ],
)
def test_on_a_read_only_file_system_it_verifies_and_says_what_cannot_be_written(adapters, options, status, sentence):
    line = f"attnspec verify hostile:right {' '.join(map(repr, FEW))} {options}"
    found, told = shell(f"unshare --map-root-user --mount bash -c {shlex.quote(READ_ONLY.format(line))}")
    assert (found, "Traceback" in told) == (status, False), told
    assert sentence.format(adapters) in told


def test_a_program_that_cannot_be_started_is_not_called_standard_output():
    sentence = r"^/nowhere cannot be used: No such file or directory\. The verdict was: right$"
    with pytest.raises(ValueError, match=sentence), printing("right"):
        subprocess.run(["/nowhere"], check=True)


def test_a_page_may_lie_where_a_name_is_not_utf_8(adapters):
    assert main(["verify", "hostile:right", *FEW, "--html", "page\udcff"]) == 0
    assert Path("page\udcff/index.html").is_file()


def test_a_list_may_have_hundreds_of_implementations(adapters, capsys):
    assert main(["verify", "hostile:hundreds", "--laws", TWO[1], "--max-examples", "1", "--jobs", "2"]) == 0
    printed = capsys.readouterr()
    assert re.search(r"\n300 pass, 0 fail \(\d+\.\d s\)\n$", printed.out)
    assert len({line.partition(":")[0] for line in printed.err.splitlines() if line.startswith("hundreds[")}) == 300


def test_after_a_kill_no_process_lives_on(tmp_path):
    """It is killed while a call hangs."""
    (tmp_path / "hostile.py").write_text(ADAPTERS)
    command = [sys.executable, "-P", "-m", "attnspec", "verify", "hostile:hangs", *FEW]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environment
    )
    wait_for((tmp_path / "hangs").exists)
    assert len(processes_in(tmp_path)) > 1
    started.kill()
    started.wait()
    wait_for(lambda: not processes_in(tmp_path))


# -- What it runs ------------------------------------------------------------------------------------


def outcomes(capsys, target, *options):
    status = main(["verify", target, *(options or FEW), "--json", "-"])
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    return status, {o["law"]: o for o in report["outcomes"]}, printed.err


def test_a_fork_that_returns_from_the_call_ends_there_and_is_a_violation(adapters, capsys):
    status, found, told = outcomes(capsys, "hostile:forks")
    assert (status, [o["status"] for o in found.values()]) == (1, ["held", "violated"])
    violation = found["a call prints nothing and leaves process-wide state unchanged"]["violation"]
    assert (
        violation["summary"] == "returned twice, the second time in a process that it forked, but should return once."
    )
    assert told.startswith("forks: 1 passes, 1 fails (")


def test_a_fork_at_import_that_goes_on_changes_nothing(adapters, capsys):
    status, found, _ = outcomes(capsys, "forks_early:right")
    assert (status, {o["status"] for o in found.values()}) == (0, {"held"})


def test_an_operation_that_no_case_is_compared_on_is_not_ok_and_says_why(adapters, capsys):
    status, found, _ = outcomes(capsys, "hostile:never", "--max-examples", "8", "--jobs", "1")
    assert status == 3
    assert [law for law, o in found.items() if o["status"] == "vacuous"] == ["rope is within its error limit"]
    agreement = found["rope is within its error limit"]
    why = "attnspec compared no result of rope with the oracle, so never has no verdict: never supports no "
    assert agreement["reason"].startswith(why)
    never = Implementation("never", {"rope": lambda x, start_pos=0: 1 // 0}, supports={"head_dim": lambda d: False})
    with pytest.raises(pytest.fail.Exception, match=re.escape(why)):
        Check(find("rope is within its error limit[rope]")[0], never)()


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.thorough), "2"])
def test_instances_that_share_their_tables_are_seen_whatever_the_jobs_and_shown_again_by_the_script(
    adapters, capsys, monkeypatch, jobs
):
    law = ["--laws", "calls of other sizes or implementations do not change later results", "--max-examples", "8"]
    assert main(["verify", "hostile:two_bases", *law, "--jobs", jobs, "--json", "-"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {o["status"] for o in report["outcomes"]} == {"violated"}
    example = report["causes"][-1]["example"]
    other = "base 100" if example["implementation"] == "base 10000" else "base 10000"
    assert example["summary"].endswith(
        f"That would be right for {other}, which had been called on the same numbers before."
    )
    monkeypatch.syspath_prepend(adapters)
    monkeypatch.delitem(sys.modules, "hostile", raising=False)
    with pytest.raises(BrokenError, match=f"That would be right for {other}"):
        exec(example["script"], {})


def test_another_of_the_list_that_ends_the_process_says_nothing_about_this_one(adapters, capsys):
    law = [
        "--laws",
        "calls of other sizes or implementations do not change later results",
        "a second call gives the same result",
        "--max-examples",
        "8",
        "--jobs",
        "1",
    ]
    assert main(["verify", "hostile:one_aborts", *law, "--json", "-"]) == 1
    found = {(o["implementation"], o["law"]): o for o in json.loads(capsys.readouterr().out)["outcomes"]}
    outcome = found["right", "calls of other sizes or implementations do not change later results"]
    assert outcome["status"] == "not applicable"
    assert outcome["reason"].startswith(
        "Another implementation of the list, which was called alternately with this one, killed the process: SIGABRT"
    )
    assert found["right", "a second call gives the same result"]["status"] == "held"


@pytest.mark.parametrize("target", ["attributes", "keys"])
def test_an_adapter_that_raises_when_it_is_looked_at_is_a_sentence_with_the_place(adapters, capsys, target):
    assert main(["verify", f"hostile:{target}", *FEW]) == 2
    line = 1 + ADAPTERS[
        : ADAPTERS.index('raise OSError("no disk")', ADAPTERS.index("class Keys") if target == "keys" else 0)
    ].count("\n")
    place = f'{adapters / "hostile.py"}:{line}: `raise OSError("no disk")`'
    sentence = f"attnspec: hostile:{target} could not be read: OSError: no disk, at {place}.\n"
    assert capsys.readouterr().err == sentence


def test_a_name_reaches_the_terminal_and_the_report_with_escapes_written_out(adapters, capsys):
    assert main(["verify", "hostile:painted", "hostile:groups", *FEW, "--all", "--json", "report.json"]) == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "\\x1b[31mred\\nname" in printed.out
    assert "two\\nlines\\x07\n" in printed.out
    report = json.loads((adapters / "report.json").read_text())
    assert [i["name"] for i in report["settings"]["implementations"]] == ["\\x1b[31mred\\nname", "first", "second"]


# -- What it says ------------------------------------------------------------------------------------


def test_of_a_message_the_last_line_is_told_and_not_more_than_300_characters_of_it():
    assert (
        said(RuntimeError("File kernel.cc, line 3\n\nhead_dim is 3, not a multiple of 8.\n\n"))
        == "head_dim is 3, not a multiple of 8."
    )
    assert said(RuntimeError("x" * 301)) == "x" * 300 + " …"
    assert said(RuntimeError("\x1b[2J")) == "\\x1b[2J"

    class WithoutWordsError(Exception):
        def __str__(self):
            raise ValueError

    assert said(WithoutWordsError()) == ""


def test_what_is_shown_is_one_line_that_a_terminal_does_not_obey():
    assert printable("ok ÷ é\n\x1b\u202e\udc80") == "ok ÷ é\\n\\x1b\\u202e\\udc80"
    assert len(shown("x" * 10**6)) < 400
