"""The parent of the child processes reads each of their messages, however late it looks."""

import os
import time

from properties.processes.runner import Runner
from properties.processes.signals import Signals
from properties.tests.test_first_contact import order

LAW = "rope is within its error limit"
ADAPTER = """
import time
from properties.bugs.reference import REFERENCE

def slow(x, start_pos=0):
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    return REFERENCE["rope"](x, start_pos)

adapter = {"rope": slow}
"""


def test_a_message_that_comes_with_another_one_is_read_too(tmp_path):
    (tmp_path / "slow.py").write_text(ADAPTER)
    start, looks = time.monotonic(), []

    def look_late(runner):
        """Come back when the child has nothing more to do: it has told its progress and its answer."""
        assert time.monotonic() - start < 100, "The parent waits for a message that has come."
        if not looks and (busy := [child._process.pid for child in runner._children if child.task]):
            used = -1.0
            while used < (used := seconds_of(*busy)):
                time.sleep(1)
            looks.append(used)

    asked = order(targets=(f"{tmp_path}/slow.py:adapter",), laws=(LAW,), max_examples=40)
    with Signals(listens=False) as signals, Runner(asked, 1, signals, look_late) as runner:
        (outcome,) = [found for _, found in runner.outcomes()]
    assert outcome.status == "held"
    assert looks


def seconds_of(process):
    """The processor seconds that a process has used."""
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
