"""Call the functions of a module as a pipe says, message by message. It stands by itself, and is
run in a process by its text.

What this process says of itself is as honest as the code that it runs, which can make it say
anything.
"""

import importlib
import mmap
import os
import select
import sys
import threading
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

_LONGEST = 300  # characters of what an exception says


def main(settings: dict[str, Any], requests: BinaryIO, wire: Any, enclosed: int) -> None:
    """Answer until the pipe is closed. All other streams lead nowhere; `enclosed` is told first,
    before any module is imported.
    """
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    threading.Thread(target=_end_with, args=(requests.fileno(),), daemon=True).start()
    sys.path[:0] = [os.getcwd()]
    Server(settings, requests, answers, wire).run(enclosed)


class Server:
    """The functions of a module, and what they have returned that is looked at again."""

    def __init__(self, settings: dict[str, Any], requests: BinaryIO, answers: BinaryIO, wire: Any) -> None:
        self.settings, self.requests, self.answers, self.wire = settings, requests, answers, wire
        self.home, self.forked = os.getpid(), mmap.mmap(-1, 1)  # memory that forks share
        self.kept: list[Any] = []
        self.memory: dict[
            int, Any
        ] = {}  # of the arrays of one call, which the next one has again: no array is known by where it lies

    def run(self, enclosed: int) -> None:
        """Answer each request: what this process has given up, an import, calls, and at last what
        became of results that were kept.
        """
        while start := self.requests.read(self.wire.START.size):
            header, arrays = self.wire.sizes(start)
            asked = self.wire.header_of(self.requests.read(header))
            data = memoryview(self.requests.read(arrays))
            chunks: list[bytes] = []
            if "begin" in asked:
                answer: dict[str, Any] = {"enclosed": enclosed}
            elif "import" in asked:
                answer = self.imported(asked["import"])
            elif "calls" in asked:
                values = self.wire.unlisted([[call["arguments"], call["options"]] for call in asked["calls"]], data)
                calls = list(zip(asked["calls"], values, strict=True))
                answer = {"answers": [self.told(found, asked["keep"], chunks) for found in self.together(calls)]}
            else:
                answer = {"kept": self.wire.listed(self.kept, chunks), "forked": bool(self.forked[0])}
            self.stay_alone()
            self.answers.write(self.wire.message(start[:16], answer, chunks))
            self.answers.flush()

    def stay_alone(self) -> None:
        """End this process if it is a fork that came back, and leave word of it."""
        if os.getpid() != self.home:
            self.forked[0] = 1
            os._exit(0)

    def imported(self, functions: dict[str, list[str]]) -> dict[str, Any]:
        """Import modules, and find the functions in them that do what is asked for by a name."""
        try:
            self.functions = {
                name: getattr(importlib.import_module(module), function)
                for name, (module, function) in functions.items()
            }
        except BaseException as error:
            return {"raised": _said(error)}
        return {"imported": True}

    def together(self, calls: list[Any]) -> list[Any]:
        """What comes of several calls, each in a thread of its own, or of one."""
        if len(calls) == 1:
            return [self.call(self.memory, *calls[0])]
        found: list[Any] = [None] * len(calls)
        at_once = threading.Barrier(len(calls))

        def run(place: int) -> None:
            at_once.wait()
            found[place] = self.call({}, *calls[place])

        threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def call(self, memory: dict[int, Any], asked: dict[str, Any], values: Any) -> dict[str, Any]:
        """One call, whose arrays take what memory there is: what it returned or raised, the arrays
        that it was given, and what they held before."""
        places = [*asked["arguments"], *asked["options"]]
        laid = [
            _laid(x, told, memory, place)
            for place, (x, told) in enumerate(zip((*values[0], *values[1]), places, strict=True))
        ]
        before = [x.copy() if isinstance(x, np.ndarray) else x for x in laid]
        number = len(asked["arguments"])
        try:
            handed = [self.handed(x) for x in laid]
            positional, named = handed[:number], dict(zip(asked["names"], handed[number:], strict=True))
            returned = self.functions[asked["function"]](*positional, **named)
        except BaseException as error:
            self.stay_alone()
            return {"raised": _said(error)}
        self.stay_alone()
        return {"returned": returned, "given": laid, "before": before}

    def told(self, found: dict[str, Any], keep: bool, chunks: list[bytes]) -> dict[str, Any]:
        """What is answered of a call; results are copied, and then overwritten, or kept until the end."""
        if "raised" in found:
            return found
        several = type(found["returned"]) in (tuple, list)
        items = [self.taken(x) for x in (found["returned"] if several else [found["returned"]])]
        copies: list[bytes] = []
        try:
            results = self.wire.listed([x for x, _ in items], copies)
        except TypeError as error:
            return {"other": str(error)}
        chunks += copies
        shares = [
            [i, j] for i, (x, _) in enumerate(items) for j, y in enumerate(found["given"])
            if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.may_share_memory(x, y)
        ]  # fmt: skip
        written = [
            j for j, (x, y) in enumerate(zip(found["before"], found["given"], strict=True)) if _bytes(x) != _bytes(y)
        ]
        after = self.wire.listed([found["given"][j] for j in written], chunks)
        for x, _ in items:
            if isinstance(x, np.ndarray):
                if keep:
                    self.kept.append(x)
                else:
                    with suppress(ValueError):  # of memory that may not be written
                        x[...] = 1 if x.dtype.kind in "bi" else np.nan
        return {
            "results": results,
            "kinds": [kind for _, kind in items],
            "several": several,
            "shares": shares,
            "written": written,
            "after": after,
        }

    def handed(self, x: Any) -> Any:
        """A value as a function takes it, with the same memory."""
        if self.settings["arrays"] == "numpy" or not isinstance(x, np.ndarray):
            return x
        import torch

        return (
            torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
            if x.dtype.name == "bfloat16"
            else torch.from_numpy(x)
        )

    def taken(self, x: Any) -> tuple[Any, str]:
        """A result as an array of NumPy's, with the same memory, and which kind of array it was."""
        torch = sys.modules.get("torch") if self.settings["arrays"] == "torch" else None
        if torch is not None and type(x) is torch.Tensor:
            x = x.detach().cpu().resolve_conj().resolve_neg()
            if x.dtype == torch.bfloat16:
                import ml_dtypes

                return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16), "torch"
            return x.numpy(), "torch"
        return x, "numpy" if type(x) is np.ndarray else ""


def _end_with(pipe: int) -> None:
    """End this process when nobody is left to ask it, even in the middle of a call."""
    hung_up = select.poll()
    hung_up.register(pipe, 0)
    hung_up.poll()
    os._exit(0)


def _laid(x: Any, told: Any, kept: dict[int, Any], place: int) -> Any:
    """An array in the layout that is told, in the memory that is kept for its place if that is as
    large; anything else as it is.
    """
    if not isinstance(x, np.ndarray):
        return x
    spans = [stride * (n - 1) for stride, n in zip(told["strides"], x.shape, strict=True)]
    first, late = -sum(span for span in spans if span < 0), int(told["late"])
    if x.size:
        size = sum(map(abs, spans)) + 1 + late
        if place not in kept or (kept[place].dtype, kept[place].size) != (x.dtype, size):
            kept[place] = np.empty(size, x.dtype)
        laid = np.lib.stride_tricks.as_strided(
            kept[place][first + late :], x.shape, [stride * x.itemsize for stride in told["strides"]]
        )
        laid[...] = x
        x = laid
    if not told["writeable"]:
        x.flags.writeable = False
    return x


def _bytes(x: Any) -> Any:
    return x.tobytes() if isinstance(x, np.ndarray) else x


def _said(error: BaseException) -> list[str]:
    """The type of an exception and what it says, in short."""
    try:
        return [type(error).__name__, str(error)[:_LONGEST]]
    except BaseException:
        return [type(error).__name__, ""]
