"""Sets limits for this process and its children: memory, files, other processes, the network.

The process sets them before it runs untrusted code. The process gets this module as text, so the
module imports only the standard library.
"""

import ctypes
import os
import resource
from collections.abc import Iterable
from typing import Any

__all__ = ["enclose", "limit"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls of Landlock, the same on every architecture
_READ, _EVERYTHING = 0b1101, (1 << 13) - 1  # rights: execute, read, list; all rights of Landlock 1
_MOVE, _TRUNCATE = 1 << 13, 1 << 14  # rights of Landlock 2 and 3
_OF_A_FILE = 0b111 | _TRUNCATE  # the rights that a file, unlike a folder, can have
_NO_NEW_PRIVILEGES = 38


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scope", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("place", ctypes.c_int32))


def limit(memory: int, processes: int) -> None:
    """Limit the address space to `memory` bytes, each written file to 64 MiB, core files to 0 bytes,
    and the processes of this user to a number. The superuser may start more.
    """
    for resource_kind, largest in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 2**26),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, processes),
    ):
        _, hard_limit = resource.getrlimit(resource_kind)
        largest = largest if hard_limit == resource.RLIM_INFINITY else min(largest, hard_limit)
        resource.setrlimit(resource_kind, (largest, largest))


def enclose(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Forbid this process all files except the readable and the writable paths. Linux's Landlock
    enforces this.

    The process can then trace no other process. Newer versions of Landlock also forbid signals to
    other processes, TCP connections, and sockets without a path. Returns the version of Landlock
    that enforces this, or 0 if the system cannot enforce it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    call: Any = getattr(libc, "syscall", None)
    version = int(call(_CREATE, None, ctypes.c_size_t(0), 1)) if call and hasattr(os, "O_PATH") else 0
    if version < 1:
        return 0
    all_rights = _EVERYTHING | (_MOVE if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Rules(all_rights, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    ruleset = int(
        call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8), 0)
    )
    for paths, rights in ((readable, _READ), (writable, all_rights)):
        for path in filter(os.path.exists, paths):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            granted = rights & all_rights & (-1 if os.path.isdir(path) else _OF_A_FILE)
            call(_ADD, ruleset, 1, ctypes.byref(_Beneath(granted, descriptor)), 0)
            os.close(descriptor)
    enforced = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and call(_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return version if enforced else 0
