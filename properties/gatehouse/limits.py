"""What a process gives up for itself and all that it starts, before it runs foreign code: memory,
files, other processes, the network.

It stands by itself, and is run in the process by its text.
"""

import ctypes
import os
import resource
from collections.abc import Iterable
from typing import Any

__all__ = ["enclose", "limit"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the system calls of Landlock, which have these numbers on every architecture
_READ, _EVERYTHING = 0b1101, (1 << 13) - 1  # rights to files: execute, read, list; and all of Landlock's first version
_MOVE, _TRUNCATE = 1 << 13, 1 << 14  # … and of its second and third
_OF_A_FILE = 0b111 | _TRUNCATE  # which has no list, and nothing in it
_NO_NEW_PRIVILEGES = 38


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scope", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("place", ctypes.c_int32))


def limit(memory: int) -> None:
    """At most so many bytes of address space, files of 64 MiB, and no dump of a crash."""
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 2**26), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def enclose(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Let this process open what is at some paths to read, and what is at others to write, and
    nothing else; trace no other process, and, where the system knows how, signal none, and neither
    connect by TCP nor to a socket without a path. The version of Landlock that holds it; 0 where
    nothing is held, for want of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    call: Any = getattr(libc, "syscall", None)
    version = int(call(_CREATE, None, ctypes.c_size_t(0), 1)) if call and hasattr(os, "O_PATH") else 0
    if version < 1:
        return 0
    every = _EVERYTHING | (_MOVE if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Rules(every, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    ruleset = int(
        call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8), 0)
    )
    for paths, rights in ((readable, _READ), (writable, every)):
        for path in filter(os.path.exists, paths):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            granted = rights & every & (-1 if os.path.isdir(path) else _OF_A_FILE)
            call(_ADD, ruleset, 1, ctypes.byref(_Beneath(granted, place)), 0)
            os.close(place)
    held = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and call(_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return version if held else 0
