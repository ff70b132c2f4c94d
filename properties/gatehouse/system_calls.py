"""Forbids the system calls by which an untrusted process could harm other processes or files, or
reach the network.

The untrusted process does so before it runs untrusted code. It gets this module as text, so the
module imports only the standard library. Linux's seccomp enforces the rules, in the process and in
all processes that it starts. The rules are a program for the kernel, which is written here: a
library for it would need a shared library, which the process cannot read.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["forbid"]

_NO_NEW_PRIVILEGES, _SECCOMP, _BY_A_PROGRAM = 38, 22, 2  # of prctl
_LOAD, _IS, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # instructions
_PERMIT, _REFUSE = 0x7FFF0000, 0x00050001  # a call that is refused raises PermissionError
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # places in what the program reads
_OTHER_NUMBERS = 0x40000000  # x86-64 has the same calls again from here on

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_FORBIDDEN = {
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272)},
    **{"pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130)},
    **{"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140)},
    **{"sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "ioprio_set": (251, 30)},
    **{"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54)},
    **{"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466)},
    **{"file_setattr": (469, 469), "unshare": (272, 97), "setns": (308, 268), "socket": (41, 198)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    **{"shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    **{"bpf": (321, 280), "perf_event_open": (298, 241)},
}
"""Calls that are refused, with their numbers on x86-64 and on AArch64."""

_OF_ITSELF = {"prlimit64": (302, 261), "kill": (62, 129), "tgkill": (234, 131), "sched_setaffinity": (203, 122)}
"""Calls that are refused unless their first argument is 0 or this process."""


def forbid() -> bool:
    """Forbid this process, and all that it starts, the calls of both tables. Return whether the
    system enforces this.

    Calls of other architectures, such as those of 32-bit programs, are refused too.
    """
    prctl: Any = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    machine = platform.machine()
    if prctl is None or machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return False
    instructions = [*_program(machine)]
    instruction_buffer = ctypes.create_string_buffer(b"".join(instructions))
    program = struct.pack("HP", len(instructions), ctypes.addressof(instruction_buffer))
    enforced = prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and prctl(_SECCOMP, _BY_A_PROGRAM, program, 0, 0) == 0
    return bool(enforced)


def _program(machine: str) -> Iterator[bytes]:
    """Yield the instructions of the program that decides on each call."""
    column = [*_ARCHITECTURES].index(machine)
    refused, permitted = _instruction(_RETURN, _REFUSE), _instruction(_RETURN, _PERMIT)
    yield from (_instruction(_LOAD, _ARCHITECTURE), _instruction(_IS, _ARCHITECTURES[machine], 1), refused)
    yield from (_instruction(_LOAD, _NUMBER), _instruction(_IS_AT_LEAST, _OTHER_NUMBERS, 0, 1), refused)
    for numbers in _FORBIDDEN.values():
        if (number := numbers[column]) is not None:
            yield from (_instruction(_IS, number, 0, 1), refused)
    for numbers in _OF_ITSELF.values():
        yield from (_instruction(_IS, numbers[column], 0, 5), _instruction(_LOAD, _FIRST_ARGUMENT))
        yield from (_instruction(_IS, 0, 2), _instruction(_IS, os.getpid(), 1), refused, permitted)
    yield permitted


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction. A comparison skips the given numbers of instructions."""
    return struct.pack("HBBI", code, if_true, if_false, operand)
