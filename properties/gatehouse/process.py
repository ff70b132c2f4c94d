"""Talks to a process that runs untrusted code: asks a question, and gets an answer in time or ends
the process.

The parent trusts no byte from the process. A byte that does not belong to the answer to the last
question ends the process.
"""

import json
import math
import os
import secrets
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

from properties.gatehouse import wire
from properties.gatehouse.sandbox import Sandbox
from properties.gatehouse.watch import Watch
from properties.processes.clock import Clock

__all__ = ["EndedError", "Process"]

_BOOT = """
import json, os, sys, types
stream = open(os.dup(0), "rb")
settings, texts = json.loads(stream.readline())
def load(name):
    module = types.ModuleType(name)
    exec(compile(texts[name], name, "exec"), vars(module))
    return module
if settings["supervised"]:
    load("supervisor").supervise()
limits = load("limits")
limits.limit(settings["memory"], settings["processes"])
confined = {"files": limits.enclose(settings["readable"], settings["writable"]) > 0}
confined["syscalls"] = load("system_calls").forbid()
sys.path.append(settings["libraries"])
if settings["interpret"]:
    load("settings").apply(load)
wire = load("wire")
load("server").main(settings, stream, wire, confined, load("recorder").Recorder(settings["arrays"]))
"""
"""The program of the process, which its command line shows: it does not mention attnspec. Its modules come as text
and cannot be imported, so the kernel may have modules of the same names.
"""
_FILES = [
    Path(__file__).with_name(f"{name}.py")
    for name in ("supervisor", "limits", "system_calls", "wire", "recorder", "server")
]
_OF_INTERPRETERS = [
    Path(__file__).parents[1] / "interpreters" / f"{name}.py"
    for name in ("settings", "after_import", "cuda_guards", "triton_numbers", "triton_on_cpu", "pallas_on_cpu")
]
_PIECE = 2**16  # bytes that are read or written at once
_SECONDS_TO_DIE = 5.0  # after SIGKILL
_FAR = 10  # times the time limit of a call: how long a call may take if it waits for a processor


class EndedError(Exception):
    """Raised when the process has ended. The message says why, and completes a sentence that begins
    with "it".
    """


class Process:
    """A process that runs untrusted code, in a new session.

    `ended` says why it has ended, and is "" while it runs. `seconds` is the time that its answers
    took, of at most `all_seconds`; time for which the machine gave it no processor does not count.
    `starved` says whether it has ended because it got almost no processor. `apart` says whether it
    has a new namespace of processes.
    """

    def __init__(self, sandbox: Sandbox, watch: Watch, arrays: str, memory: int, interpret: bool) -> None:
        self.ended, self.starved, self.apart, self._first_child = "", False, sandbox.apart, 0
        self.seconds, self.all_seconds = 0.0, math.inf
        self._process = subprocess.Popen(
            [*sandbox.command, "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=sandbox.work,
            env=sandbox.environment,
            start_new_session=True,
            bufsize=0,
        )
        watch.guard(self._process.pid)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._to, self._from):
            os.set_blocking(pipe, False)
        settings = {
            "arrays": arrays,
            "memory": memory,
            "interpret": interpret,
            "processes": sandbox.processes,
            "supervised": sandbox.supervised,
            "libraries": str(sandbox.libraries),
            "readable": sandbox.readable,
            "writable": sandbox.writable,
        }
        texts = {file.stem: file.read_text("utf-8") for file in (*_FILES, *(_OF_INTERPRETERS if interpret else ()))}
        self._first = json.dumps([settings, texts]).encode() + b"\n"

    def ask(
        self, header: dict[str, Any], chunks: list[bytes], seconds: float, doing: str
    ) -> tuple[dict[str, Any], memoryview]:
        """Ask the process, and return the header and the arrays of its answer. Raises EndedError
        without a correct answer in time.

        `doing` says in the message what the process was doing.
        """
        if self.ended:
            raise EndedError(self.ended)
        token, clock = secrets.token_bytes(16), Clock(self._worker())
        question, self._first = self._first + wire.message(token, header, chunks), b""
        limit = min(seconds, self.all_seconds - self.seconds)
        try:
            answer = self._answer(memoryview(question), token, clock, (limit, _FAR * seconds))
            place = wire.START.size
            header_size, _ = wire.sizes(answer[:place])
            return wire.header_of(answer[place : place + header_size]), memoryview(answer)[place + header_size :]
        except wire.NonsenseError:
            raise self.end(f"wrote something else than an answer, {doing}") from None
        except TimeoutError:
            raise self._late(clock, seconds, limit, doing) from None
        except EOFError:
            raise self.end(f"{self._death()}, {doing}") from None
        finally:
            self.seconds += clock.taken()

    def _late(self, clock: Clock, seconds: float, limit: float, doing: str) -> EndedError:
        """End the process after its time, and return the error. If it got little of a processor, it is
        starved: it might have been in time on another machine.
        """
        self.starved = clock.taken() < limit
        if self.starved:
            waited = clock.elapsed() - clock.taken()
            return self.end(f"waited for a processor for {waited:.3g} s of {clock.elapsed():.3g} s, {doing}")
        if limit < seconds:
            return self.end(f"took more than {self.all_seconds:.3g} s for all calls together, {doing}")
        return self.end(f"did not return within {seconds:.3g} s, {doing}")

    def _worker(self) -> int:
        """Return the id of the process that runs the code: the first child of `unshare` or of the
        supervisor, once there is one.
        """
        self._first_child = self._first_child or next(iter(self._children()), 0)
        return self._first_child or self._process.pid

    def _answer(self, question: memoryview, token: bytes, clock: Clock, limits: tuple[float, float]) -> bytes:
        """Return the bytes of one message. `limits` are two: the seconds that the process may take, and
        the seconds that may pass. Raises TimeoutError, EOFError, and NonsenseError for bytes that are not
        exactly one message.
        """
        if select([self._from], (), (), 0)[0]:  # it has written before the question, or is dead
            if os.read(self._from, 1):
                raise wire.NonsenseError
            raise EOFError
        answer, size = bytearray(), wire.START.size
        while True:
            seconds_left = limits[0] - clock.elapsed()
            if seconds_left <= 0 and clock.elapsed() < limits[1]:  # has it waited for a processor?
                seconds_left = limits[0] - clock.taken()
            if seconds_left <= 0:
                raise TimeoutError
            readable, writable, _ = select([self._from], [self._to] if question else (), (), seconds_left)
            if writable:
                try:
                    question = question[os.write(self._to, question[:_PIECE]) :]
                except BrokenPipeError:
                    raise EOFError from None
            if not readable:
                continue
            piece = os.read(self._from, _PIECE)
            if not piece:
                raise EOFError
            answer += piece
            if size == wire.START.size and len(answer) >= size:
                size += sum(wire.sizes(bytes(answer[:size]), token))
            if len(answer) > size or (len(answer) == size and question):
                raise wire.NonsenseError
            if len(answer) == size > wire.START.size:
                return bytes(answer)

    def _death(self) -> str:
        """Return how the process ended, as the end of a sentence that begins with "it"."""
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return "closed the pipe"
        if status < 0:
            with suppress(ValueError):
                return f"died by {signal.Signals(-status).name}"
        return f"ended the process with status {status}"

    def _children(self) -> list[int]:
        """Return the ids of the children of the process: of `unshare` or of the supervisor. They have
        sessions of their own.
        """
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            return [int(child) for child in listed.read_text().split()] if self._process.poll() is None else []
        except OSError:
            return []

    def end(self, why: str) -> EndedError:
        """End the process and everything that it started. Return the error that says why."""
        self.ended = self.ended or why
        if children := self._children():  # when the first one ends, the others end with it
            for child in children:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_DIE)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return EndedError(self.ended)
