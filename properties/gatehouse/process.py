"""A process that runs foreign code, as the parent sees it: a question, and within a time an answer,
or the end of it.

Nothing that comes from it is trusted: each byte is a part of an answer to the question that was
asked, or the process is over.
"""

import json
import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

from properties.gatehouse import wire
from properties.gatehouse.sandbox import Sandbox

__all__ = ["EndedError", "Process"]

_BOOT = """
import json, os, sys, types
stream = open(os.dup(0), "rb")
settings, texts = json.loads(stream.readline())
def load(name):
    module = types.ModuleType(name)
    exec(compile(texts[name], name, "exec"), vars(module))
    return module
limits = load("limits")
limits.limit(settings["memory"])
enclosed = limits.enclose(settings["readable"], settings["writable"])
sys.path.append(settings["libraries"])
wire = load("wire")
load("server").main(settings, stream, wire, enclosed)
"""
"""What runs first, as the command line shows it: no word says who asks. Its modules cannot be
imported: others may have their names.
"""
_PIECE = 2**16
_DYING = 5.0  # seconds for what is killed to be gone


class EndedError(Exception):
    """The process is over; the message says why, and completes the sentence "it …"."""


class Process:
    """One process, in a session of its own; `ended` says why it is over, "" while it runs;
    `seconds` is how long its answers took; `apart` that it has a namespace of its own."""

    def __init__(self, around: Sandbox, arrays: str, memory: int) -> None:
        self.ended, self.seconds, self.apart = "", 0.0, around.apart
        self._process = subprocess.Popen(
            [*around.command, "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=around.work,
            env=around.environment,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._to, self._from):
            os.set_blocking(pipe, False)
        settings = {
            "arrays": arrays,
            "memory": memory,
            "libraries": str(around.libraries),
            "readable": around.readable,
            "writable": around.writable,
        }
        texts = {
            name: Path(__file__).with_name(f"{name}.py").read_text("utf-8") for name in ("limits", "wire", "server")
        }
        self._first = json.dumps([settings, texts]).encode() + b"\n"

    def ask(
        self, header: dict[str, Any], chunks: list[bytes], seconds: float, doing: str
    ) -> tuple[dict[str, Any], memoryview]:
        """The header and the arrays of the answer. Raises EndedError where there is none within so
        many seconds, or something else.
        """
        if self.ended:
            raise EndedError(self.ended)
        token, start = secrets.token_bytes(16), time.monotonic()
        question, self._first = self._first + wire.message(token, header, chunks), b""
        try:
            answer = self._answer(memoryview(question), token, start + seconds)
            place = wire.START.size
            told, _ = wire.sizes(answer[:place])
            return wire.header_of(answer[place : place + told]), memoryview(answer)[place + told :]
        except wire.NonsenseError:
            raise self.end(f"wrote something else than an answer, {doing}") from None
        except TimeoutError:
            raise self.end(f"did not return within {seconds:.3g} s, {doing}") from None
        except EOFError:
            raise self.end(f"{self._death()}, {doing}") from None
        finally:
            self.seconds += time.monotonic() - start

    def _answer(self, question: memoryview, token: bytes, until: float) -> bytes:
        """The bytes of one message. Raises TimeoutError, EOFError, and NonsenseError for what is
        none, or more than one.
        """
        if select([self._from], (), (), 0)[0]:  # it speaks before it is asked, or is dead
            if os.read(self._from, 1):
                raise wire.NonsenseError
            raise EOFError
        answer, size = bytearray(), wire.START.size
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            readable, writable, _ = select([self._from], [self._to] if question else (), (), left)
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
        """How it ended, as far as can be seen."""
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return "closed the pipe"
        if status < 0:
            with suppress(ValueError):
                return f"died by {signal.Signals(-status).name}"
        return f"ended the process with status {status}"

    def _children(self) -> list[int]:
        """What it has started itself, where it has a namespace: another session of theirs would not
        be ended with its own.
        """
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            return (
                [int(child) for child in listed.read_text().split()]
                if self.apart and self._process.poll() is None
                else []
            )
        except OSError:
            return []

    def end(self, why: str) -> EndedError:
        """End it and all that it started; the error that says why."""
        self.ended = self.ended or why
        for child in (
            self._children()
        ):  # the first of its namespace, without which nothing in it lives, and which ends as the last of it
            with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                os.kill(child, signal.SIGKILL)
                self._process.wait(_DYING)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return EndedError(self.ended)
