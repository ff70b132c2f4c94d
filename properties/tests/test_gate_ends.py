"""The gate ends what it started, however it ends itself; and it does not take a busy machine, or a
source that is no Python, for a wrong kernel.
"""

import errno
import json
import math
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.command.cli import main
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.gatehouse import limits, process, submission, system_calls
from properties.gatehouse.checks import _in_fives, _large
from properties.gatehouse.gate import gate
from properties.gatehouse.isolated_kernel import Limits
from properties.gatehouse.process import Process
from properties.gatehouse.source_names import names_in
from properties.gatehouse.submission import Submission
from properties.processes.clock import Clock
from properties.tests.candidates import OPERATION, RIGHT, candidate
from properties.tests.processes import processes_in, wait_for
from properties.tests.test_gate import LASTING, PATIENT, SCHEMA, SIGNATURE, said

MOMENTS = [random.Random(seed).uniform(0.0, 1.5) for seed in range(20)]
"""Seconds after the first folder is there, at which the gate is killed."""


@pytest.mark.parametrize(
    "seconds", [pytest.param(x, marks=[pytest.mark.thorough] * (place > 1)) for place, x in enumerate(MOMENTS)]
)
def test_nothing_is_left_of_a_gate_that_is_killed(seconds, tmp_path):
    """Neither processes nor folders: the kernel ignores the end of its pipe, and its parent's death."""
    made = tmp_path / "made"
    made.mkdir()
    (tmp_path / "kernel.py").write_text(f"{LASTING}{RIGHT['plain'].text}\ntime.sleep(1)\n")
    kernel = str(tmp_path / "kernel.py")
    script = f"import properties, tempfile; tempfile.tempdir = {str(made)!r}; properties.gate({kernel!r})"
    parent = subprocess.Popen([sys.executable, "-c", script])
    wait_for(lambda: [*made.iterdir()])
    time.sleep(seconds)
    parent.kill()
    parent.wait()
    wait_for(lambda: not processes_in(made) and not [*made.iterdir()], seconds=20)


# -- Time on a busy machine ----------------------------------------------------------------------------

BUSY = "import os\nwhile True: pass\n"
SLOW = (
    f"import time\n{RIGHT['plain'].text}\nright = {OPERATION}\n{SIGNATURE}\n    BODY\n    return right(q, k, v, mask)"
)
HALF_A_SECOND = "start = time.thread_time()\n    while time.thread_time() < start + 0.5: pass"


@pytest.fixture
def busy():
    """Six processes that want the processors all the time."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(6)]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
def test_seconds_without_a_processor_do_not_count():
    """A process that has one processor for half a second has taken half a second, on a machine that
    works for six others: at most twice that, and no less than nine tenths.
    """
    busy = HALF_A_SECOND.replace("\n    ", "\n")
    program = f"import time\nprint(flush=True)\ninput()\n{busy}\nprint(flush=True)\nimport sys\nsys.stdin.read()"
    for _ in range(3):
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            clock = Clock(process.pid)
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            taken, elapsed = clock.taken(), clock.elapsed()
        assert 0.45 < taken < 1.0
        assert elapsed > 1.0


def test_a_sleep_counts():
    process = subprocess.Popen(["sleep", "60"])
    clock = Clock(process.pid)
    time.sleep(0.3)
    assert 0.9 * clock.elapsed() <= clock.taken() + 0.1 <= clock.elapsed() + 0.1
    process.kill()
    process.wait()


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("body", ["time.sleep(30)", "while True: pass"])
def test_a_kernel_that_takes_its_time_is_refused_on_a_busy_machine_too(body, monkeypatch):
    monkeypatch.setattr("properties.gatehouse.process._FAR", 1000)  # however busy this machine is
    verdict = gate(candidate(SLOW.replace("BODY", body)), quick=True, seed=0, limits=Limits(call=1.0, calls=100.0))
    assert not verdict.accepted
    assert verdict.judged
    assert "did not return within 1 s, in a call of" in verdict.cause


def test_a_kernel_that_gets_no_processor_is_not_judged(monkeypatch, tmp_path, capsys):
    """The exit status is 3, and the sentence has the numbers."""
    monkeypatch.setattr(Clock, "taken", lambda clock: 0.25 * clock.elapsed())
    monkeypatch.setattr("properties.gatehouse.process._FAR", 2)
    (tmp_path / "kernel.py").write_text(SLOW.replace("BODY", "time.sleep(30)"))
    command = ["gate", str(tmp_path / "kernel.py"), "--quick", "--timeout", "0.5", "--json", str(tmp_path / "x")]
    assert main(command) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"kernel\.py is not judged: out of time\. It waited for a processor for [\d.]+ s of [\d.]+ s", printed
    )
    assert "cause" not in printed
    verdict = json.loads((tmp_path / "x").read_text())
    jsonschema.validate(verdict, SCHEMA)
    assert (verdict["accepted"], verdict["judged"]) == (False, False)


def test_what_remains_of_the_time_of_all_calls_is_called_so():
    text = SLOW.replace("BODY", "time.sleep(0.3)")
    verdict = gate(candidate(text), quick=True, limits=Limits(call=10.0, calls=1.0))
    assert verdict.cause.startswith("It took more than 1 s for all calls together, in a call of")


def test_the_clock_is_asked(monkeypatch):
    """Time that the clock does not count is not part of the seconds of a process."""
    seen = []
    ended = Process.end
    monkeypatch.setattr(Process, "end", lambda process, why: (seen.append(process.seconds), ended(process, why))[1])
    monkeypatch.setattr(Clock, "taken", lambda clock: 0.0)
    verdict = gate(candidate(RIGHT["plain"].text), quick=True, seed=0, limits=PATIENT)
    assert verdict.accepted, said(verdict)
    assert set(seen) == {0.0}


# -- Disks and folders --------------------------------------------------------------------------------


def test_a_kernel_is_not_judged_without_a_folder(monkeypatch, tmp_path, capsys):
    (tmp_path / "kernel.py").write_text(RIGHT["plain"].text)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert main(["gate", str(tmp_path / "kernel.py"), "--quick"]) == 2
    assert f"A folder cannot be made in {tmp_path / 'none'}: is the disk full, or" in capsys.readouterr().err


def test_a_kernel_is_not_judged_if_the_disk_is_full(monkeypatch, tmp_path, capsys):
    def write_text(path, *arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "kernel.py").write_text(RIGHT["plain"].text)
    monkeypatch.setattr("properties.gatehouse.sandbox.Path.write_text", write_text)
    assert main(["gate", str(tmp_path / "kernel.py"), "--quick"]) == 2
    assert re.search(r"The kernel cannot be copied to \S+: No space left on device\.", capsys.readouterr().err)


# -- Sources ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\n\ndef f(:\n    pass\n", "It is not Python, at line 3: "),
        ("x = 1\n\n" + "(" * 300, "It is not Python, at line 3: "),
        ("-" * 200_000 + "1", "It cannot be parsed"),
    ],
    ids=["syntax", "parentheses", "levels"],
)
def test_a_source_that_is_no_python_is_refused(source, words, tmp_path, capsys):
    (tmp_path / "kernel.py").write_text(source)
    assert main(["gate", str(tmp_path / "kernel.py"), "--quick"]) == 1
    assert f"kernel.py is not accepted. {words}" in " ".join(capsys.readouterr().out.split())


def test_a_source_of_more_than_a_million_bytes_is_not_read(tmp_path, capsys):
    (tmp_path / "kernel.py").write_text("#" * 2**20 + "\n")
    assert main(["gate", str(tmp_path / "kernel.py"), "--quick"]) == 2
    assert "kernel.py cannot be read: it has more than 1,048,576 bytes." in capsys.readouterr().err


def test_a_source_is_parsed_in_a_process_of_its_own_with_little_memory(tmp_path, monkeypatch, capsys):
    """A source of a million bytes can need a gigabyte. Here the process has an eighth of that."""
    tight = submission._NAMES.replace("(2**30, 2**30)", "(2**27, 2**27)")
    monkeypatch.setattr(submission, "_NAMES", tight)
    monkeypatch.setattr("ast.parse", lambda *arguments: pytest.fail("The gate's own process parses the source."))
    (tmp_path / "kernel.py").write_text("-a\n" * 300_000)
    assert main(["gate", str(tmp_path / "kernel.py"), "--quick"]) == 1
    assert "kernel.py is not accepted. It cannot be parsed" in " ".join(capsys.readouterr().out.split())


# -- Confinement --------------------------------------------------------------------------------------


def test_where_nothing_confines_a_kernel_a_warning_and_the_verdict_say_so(tmp_path, monkeypatch, capsys):
    enclosed, forbidden = 'limits.enclose(settings["readable"], settings["writable"]) > 0', ".forbid()"
    unconfined = process._BOOT.replace(enclosed, "False").replace(f'load("system_calls"){forbidden}', "False")
    monkeypatch.setattr(process, "_BOOT", unconfined)
    monkeypatch.setattr("properties.gatehouse.sandbox._can_be_apart", lambda: False)
    (tmp_path / "kernel.py").write_text(f"{ROTATE.replace('NUMPY', 'np')}\nimport numpy as np\n")
    command = ["gate", str(tmp_path / "kernel.py"), "--quick", "--timeout", "20", "--time-limit", "200"]
    assert main([*command, "--json", str(tmp_path / "verdict")]) == 0
    assert json.loads((tmp_path / "verdict").read_text())["held"] == []
    assert "Warning: this system did not confine files, processes, syscalls." in capsys.readouterr().err
    assert main([*command, "--require", "files"]) == 2
    assert "This system cannot confine files (by Landlock), which is required." in capsys.readouterr().err


def _runs_for_others(python):
    """Whether an ordinary user can run an interpreter with attnspec's libraries."""
    if python is None:
        return False
    line = [python, "-c", "import numpy, rich, flint"]
    try:
        return not subprocess.run(line, capture_output=True, user=65534, env=OF_OTHERS, check=False).returncode
    except OSError:
        return False


OF_OTHERS = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": "/"}


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="Only root can become another user.")
def test_a_kernel_of_an_ordinary_user_is_confined_as_that_of_root():
    installed = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")
    python = next(filter(_runs_for_others, (sys.executable, installed)), None)
    if python is None:
        pytest.skip("No interpreter with attnspec's libraries can be run by another user.")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "kernel.py").write_text(f"{ROTATE}\nraise LookupError\n")
        line = [python, "-P", "-m", "attnspec", "gate", f"{folder}/kernel.py", "--quick", "--json", "-"]
        ordinary = {"user": 65534, "group": 65534, "extra_groups": [], "env": OF_OTHERS, "cwd": folder}
        ended = subprocess.run(line, capture_output=True, text=True, check=False, **ordinary)
        assert ended.returncode == 1, ended.stderr
        verdict = json.loads(ended.stdout)
        assert verdict["cause"] == "It raised LookupError when it was imported: "
        assert verdict["held"] == [*gate(f"{folder}/kernel.py", quick=True).held]


def test_a_kernel_is_not_run_where_the_system_cannot_confine_what_is_required(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("properties.gatehouse.sandbox._can_be_apart", lambda: False)
    (tmp_path / "kernel.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nraise LookupError")
    functions = ["--function", f"f={OPERATION}"]
    command = ["gate", str(tmp_path / "kernel.py"), *functions, "--quick"]
    assert main([*command, "--require", "files,processes"]) == 2
    assert "This system cannot confine processes (by unshare, with namespaces of users)" in capsys.readouterr().err
    assert main([*command, "--require", "disks"]) == 2
    assert "require=('disks',), but should be a tuple of files, processes, syscalls." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    main(command)
    assert "Warning: this system did not confine" in capsys.readouterr().err


VICTIM = "import sys\nprint(flush=True)\nsys.stdin.read()"
ATTACKS = {
    "permissions of a file": "os.chmod(PATH, 0o600)",
    "owner of a file": "os.chown(PATH, os.getuid(), os.getgid())",
    "times of a file": "os.utime(PATH, (1, 1))",
    "attributes of a file": "os.setxattr(PATH, 'user.note', b'1')",
    "limits of another process": "resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (9, 9))",
    "a signal to another process": "os.kill(VICTIM, 0)",
    "a signal to all processes": "os.kill(-1, 0)",
    "priority of another process": "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)",
    "processors of another process": "os.sched_setaffinity(VICTIM, os.sched_getaffinity(VICTIM))",
    "tracing": "call('ptrace', 17, VICTIM, 0, 0)",
    "memory of another process": "call('process_vm_readv', VICTIM, None, 0, None, 0, 0)",
    "rings of input and output": "call('syscall', 425, 1, ctypes.create_string_buffer(120))",
    "a socket of datagrams": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a socket that is a file": "socket.socket(socket.AF_UNIX)",
    "memory that processes share": "call('shmget', 0, 4096, 0o1600)",
}
HARMLESS = {
    "its own limits": "resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)",
    "a signal to itself": "os.kill(os.getpid(), 0)",
    "a signal to its thread": "signal.pthread_kill(threading.get_ident(), 0)",
    "its own processors": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    "a pair of sockets": "socket.socketpair()",
    "another program": "subprocess.run(['true'], check=True)",
}
TRIALS = """
import ctypes, json, os, resource, signal, socket, subprocess, sys, threading
PATH, VICTIM = sys.argv[1], int(sys.argv[2])
def call(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
def outcome(statement):
    try:
        exec(statement)
    except PermissionError:
        return "refused"
    except OSError:  # there is no such tracing
        pass
    return "done"
print(json.dumps({name: outcome(statement) for name, statement in json.loads(sys.argv[3]).items()}))
"""
FORBIDDEN = f"{Path(system_calls.__file__).read_text()}\nassert forbid()\n"
OF_LINUX = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="The numbers of calls differ.")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What a process says of each attack and of each harmless call, with the rules and without."""
    file = tmp_path_factory.mktemp("outside") / "file"
    file.touch()
    statements = json.dumps(ATTACKS | HARMLESS)
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as victim:
        victim.stdout.readline()
        commands = ([sys.executable, "-c", before + TRIALS] for before in (FORBIDDEN, ""))
        arguments = [str(file), str(victim.pid), statements]
        ran = [subprocess.run([*line, *arguments], capture_output=True, text=True, check=True) for line in commands]
        victim.stdin.close()
    return [json.loads(each.stdout) for each in ran]


@OF_LINUX
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_system_call_that_harms_others_is_refused(attack, outcomes):
    """Without the rules it is done, unless the system refuses it anyway."""
    with_rules, without = outcomes
    assert with_rules[attack] == "refused"
    if without[attack] == "refused":
        pytest.skip("This system refuses it anyway.")


@OF_LINUX
@pytest.mark.parametrize("statement", HARMLESS)
def test_a_harmless_system_call_is_done(statement, outcomes):
    assert outcomes[0][statement] == "done"


def test_a_kernel_is_confined_to_harmless_system_calls(tmp_path):
    """The rules hold in the process that runs the kernel: it changes no file outside, and has no socket."""
    file = tmp_path / "file"
    file.touch()
    text = (
        f"import os, socket\ntry:\n    os.utime({str(file)!r}, (1, 1))\nexcept PermissionError:\n"
        "    try:\n        socket.socket(type=socket.SOCK_DGRAM)\n    except PermissionError:\n"
        "        raise LookupError('refused')\n"
    )
    verdict = gate(candidate(text), quick=True, limits=PATIENT)
    if "syscalls" not in verdict.held:
        pytest.skip("This system has no seccomp.")
    assert verdict.cause == "It raised LookupError when it was imported: refused"


FORKS = """
import os, sys, time
if os.geteuid() == 0:  # whom the limit does not hold
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
limit(2**32, 30)
children = []
try:
    for _ in range(100):
        if not (child := os.fork()):
            time.sleep(60)
        children.append(child)
    print("unlimited")
except BlockingIOError:
    print("limited")
for child in children:
    os.kill(child, 9)
"""


def test_a_kernel_cannot_start_processes_without_end():
    command = [sys.executable, "-c", Path(limits.__file__).read_text() + FORKS]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "limited\n"


ORPHAN = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        os.fork()
        time.sleep(600)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has a supervisor.")
def test_an_orphan_does_not_outlive_the_verdict(tmp_path, monkeypatch):
    """Where a process has no namespace of its own: the supervisor ends what has left its session."""
    monkeypatch.setattr("properties.gatehouse.sandbox._can_be_apart", lambda: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verdict = gate(candidate(f"{ORPHAN}raise LookupError"), quick=True, limits=PATIENT)
    assert "processes" not in verdict.held
    assert verdict.cause == "It raised LookupError when it was imported: "
    assert not processes_in(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has a supervisor.")
def test_an_orphan_does_not_outlive_a_gate_that_is_killed(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    (tmp_path / "kernel.py").write_text(f"{ORPHAN}open('began', 'w').close()\ntime.sleep(600)\ndef f(): pass\n")
    settings = f"import properties, tempfile; tempfile.tempdir = {str(made)!r}"
    alone = "from properties.gatehouse import sandbox; sandbox._can_be_apart = lambda: False"
    called = f"properties.gate({str(tmp_path / 'kernel.py')!r}, {{'f': {OPERATION!r}}})"
    parent = subprocess.Popen([sys.executable, "-c", f"{settings}\n{alone}\n{called}"])
    wait_for(lambda: len([*made.glob("*/work/began")]) == 2)
    parent.kill()
    parent.wait()
    wait_for(lambda: not processes_in(made) and not [*made.iterdir()], seconds=20)


# -- Delegation and replaced functions -----------------------------------------------------------------

ROTATE = """
def rotate_half(x):
    first, second = NUMPY.split(x, 2, axis=-1)
    return NUMPY.concatenate([-second, first], axis=-1)
"""
HIDDEN = """
import torch
functions = getattr(torch.nn, "func" + "tional")


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return functions.dropout(torch.cat([-second, first], dim=-1), 0.0)
"""


def verdict_on(source, arrays, **limits):
    """The quick verdict on a function rotate_half."""
    submission = Submission("kernel.py", {"kernel.py": source}, {"rotate_half": ("kernel", "rotate_half")}, arrays)
    return gate(submission, quick=True, seed=0, limits=replace(PATIENT, **limits))


def test_a_busy_machine_takes_no_test_input_away(monkeypatch):
    """A kernel can make the machine busy, so that its calls take long. Its time limits are the gate's."""
    supervisions = []

    def examine(*arguments, supervision):
        supervisions.append(supervision)
        raise StopIteration

    monkeypatch.setattr("properties.gatehouse.gate.examine", examine)
    with pytest.raises(StopIteration):
        gate(candidate(RIGHT["plain"].text), quick=True, seed=0, limits=PATIENT)
    assert [supervision.seconds_of_points for supervision in supervisions] == [math.inf]


def test_test_inputs_of_equal_shapes_differ_in_half_of_an_array_in_one_number_and_slightly():
    right = Implementation("right", {"table_lookup": REFERENCE["table_lookup"]})
    changes = {name: set() for name in ("table", "indices")}
    for seed in range(4):
        case, _, *others = _in_fives(OPERATIONS["table_lookup"], right, 1, random.Random(seed))
        for place, name in enumerate(changes):
            changed = [np.flatnonzero(other[place] != case[place]).size for other in others]
            changes[name] |= {tuple(size > 0 for size in changed)} if any(changed) else set()
            assert changed[1] <= 1
    assert (True, True, True) in changes["table"]


def test_trees_are_among_the_test_inputs_of_equal_shapes():
    right = Implementation("right", {"tree_mask": REFERENCE["tree_mask"]})
    for (parents,) in _in_fives(OPERATIONS["tree_mask"], right, 3, random.Random(0)):
        assert (parents < np.arange(len(parents))).all()


@pytest.mark.parametrize("seed", range(6))
def test_large_widths_of_pairs_are_even(seed):
    rotate = Implementation("right", {"rotate_half": REFERENCE["rotate_half"]})
    (x,) = next(iter(_large(OPERATIONS["rotate_half"], rotate, random.Random(seed))))[:1]
    assert x.shape[-1] > 250
    assert x.shape[-1] % 2 == 0


def test_a_forbidden_function_that_the_source_hides_is_seen_when_it_is_called():
    verdict = verdict_on(HIDDEN, "torch", forbid=("torch.nn.functional", "scipy"))
    assert (
        verdict.cause == "it uses nothing that is forbidden: It uses torch.nn.functional.dropout, which is forbidden."
    )
    assert {"torch.cat", "torch.nn.functional.dropout"} <= {*verdict.used}
    jsonschema.validate(verdict.to_dict(), SCHEMA)


@pytest.mark.thorough
def test_a_forbidden_function_is_seen_in_a_thread_of_the_kernel():
    source = f"""
import threading
{HIDDEN}
here = rotate_half

def rotate_half(x):
    results = []
    thread = threading.Thread(target=lambda: results.append(here(x)))
    thread.start()
    thread.join()
    return results[0]
"""
    verdict = verdict_on(source, "torch", forbid=("torch.nn.functional",))
    assert "It uses torch.nn.functional.dropout, which is forbidden." in said(verdict)


@pytest.mark.thorough
def test_what_is_called_is_in_the_verdict_if_nothing_is_forbidden():
    verdict = verdict_on(HIDDEN, "torch")
    assert verdict.accepted, said(verdict)
    assert {"torch.cat", "torch.nn.functional.dropout"} <= {*verdict.used}


def test_a_forbidden_name_in_the_source_is_seen(tmp_path, capsys):
    """Also where the function is never called. Other names of the same module are not forbidden."""
    (tmp_path / "kernel.py").write_text(f"import numpy as NUMPY\nfrom numpy import linalg\n{ROTATE}")
    command = ["gate", str(tmp_path / "kernel.py"), "--quick", "--seed", "0", "--timeout", "20", "--time-limit", "200"]
    assert main([*command, "--forbid", "numpy.linalg"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "It uses numpy.linalg, which is forbidden." in printed
    assert "Used: numpy, numpy.concatenate, numpy.linalg, numpy.split" in printed
    assert main([*command, "--forbid", "numpy.lin,torch"]) == 0


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch.nn.functional as F\nF.relu(x)", ["torch.nn.functional", "torch.nn.functional.relu"]),
        ("from torch import nn\nnn.functional.x", ["torch.nn", "torch.nn.functional", "torch.nn.functional.x"]),
        ("import torch.ops\ntorch.ops.aten", ["torch.ops", "torch.ops.aten"]),
        ("from scipy.special import softmax as s\ns(x).y", ["scipy.special.softmax"]),
        ("def f():\n    import scipy\n    return x.scipy", ["scipy"]),
    ],
)
def test_the_names_in_a_source_are_those_of_modules(source, names):
    assert names_in([source]) == names


def test_sources_that_cannot_be_parsed_have_no_names():
    with pytest.raises(ValueError, match="cannot be parsed"):
        names_in(["def f("])


@pytest.mark.parametrize("replaces", [False, True])
def test_a_kernel_that_replaces_a_timer_is_refused_unless_that_is_allowed(replaces):
    """A later benchmark in the same process would read the replaced timer."""
    source = f"import time\nimport numpy as NUMPY\n{ROTATE}\ntime.perf_counter = lambda: 0.0\n"
    verdict = verdict_on(source, "numpy", replaces=replaces)
    assert verdict.accepted is replaces
    assert verdict.replaced == ("time.perf_counter",)
    name = "it replaces no function of Python's library, NumPy and torch"
    assert verdict.cause == ("" if replaces else f"{name}: It replaced time.perf_counter.")


REPLACING = """
import datetime, math, random, sys, timeit, types
import numpy as np
import numpy.testing

class Date(datetime.datetime):
    pass

timeit.Timer.timeit = lambda self, number=1: 0.0
timeit.repeat.__code__ = (lambda *arguments: [0.0]).__code__
timeit.Timer.repeat.__defaults__ = (1, 1)
np.allclose.__wrapped__.__code__ = (lambda *arguments: True).__code__
np.testing.assert_allclose = np.random.default_rng = lambda *arguments: None
math.isclose = random.random = lambda *arguments: True
datetime.datetime = Date
sys.modules["time"] = types.ModuleType("time")
rotate_half = abs
"""


def test_functions_that_a_kernel_replaces_are_seen_wherever_they_are():
    verdict = verdict_on(REPLACING, "numpy")
    assert {
        *("datetime.datetime", "math.isclose", "numpy.allclose", "numpy.random.default_rng", "random.random", "time"),
        *("numpy.testing.assert_allclose", "timeit.Timer.repeat", "timeit.Timer.timeit", "timeit.repeat"),
    } <= {*verdict.replaced}


@pytest.mark.thorough
def test_a_replaced_method_of_tensors_is_seen():
    """A method that tensors inherit is replaced by one of their own."""
    source = HIDDEN + "\nbefore = torch.Tensor.__neg__\ntorch.Tensor.__neg__ = lambda x: before(x)\n"
    assert verdict_on(source, "torch").replaced == ("torch.Tensor.__neg__",)


def test_what_is_forbidden_is_a_name():
    with pytest.raises(ValueError, match=r"^forbid=\('torch\.',\), but should be a tuple of names"):
        Limits(forbid=("torch.",))
