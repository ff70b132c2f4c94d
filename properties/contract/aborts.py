"""A refusal that ends its process: the assertions of C libraries call abort()."""

import faulthandler
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["AbortedError", "aborts"]

_SECONDS = 60


class AbortedError(Exception):
    """A call ended its process with SIGABRT.

    No call raises it. An adapter names it in `refuses`, and declares that its kernels refuse a size
    in this way.
    """


def aborts(call: Callable[[], Any]) -> bool:
    """Make a call in a forked process, which prints nothing. Return whether SIGABRT ended the process.

    Another signal, an exception and a result all give False. A call that does not end is killed
    after a minute.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns if the process has threads
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGABRT
    try:
        faulthandler.disable()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        signal.alarm(_SECONDS)
        call()
    finally:
        os._exit(0)
