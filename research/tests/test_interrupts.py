"""A run of the command that a signal ends leaves nothing wrong behind."""

import signal

import pytest

from research.interrupts import run


def test_after_a_kill_no_process_lives_on():
    """It is killed while it runs: earlier, where it had ended by then."""
    for moment in (1.5, 1.0, 0.75, 0.5):
        ended = run(signal.SIGKILL, moment, page=False)
        assert ended.wrong == ()
        if ended.status == 128 + signal.SIGKILL:
            return
    pytest.fail("It had ended before each kill.")
