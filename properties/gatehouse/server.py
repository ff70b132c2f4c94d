"""Runs in the untrusted process: calls the functions of an untrusted module, when messages from a
pipe ask for it.

The process gets this module as text, so the module imports only NumPy and the standard library. The
untrusted code can change every answer.
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

_LONGEST = 300  # characters of the message of an exception


def main(settings: dict[str, Any], requests: BinaryIO, wire: Any, confined: dict[str, bool], recorder: Any) -> None:
    """Answer questions until the pipe is closed. All other streams are closed.

    The answer to the first question is `confined`. No untrusted module is imported before it.
    """
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    threading.Thread(target=_end_with, args=(requests.fileno(),), daemon=True).start()
    sys.path[:0] = [os.getcwd()]
    Server(settings, requests, answers, wire, recorder).run(confined)


class Server:
    """The functions of an untrusted module, and the results that are checked again at the end."""

    def __init__(
        self, settings: dict[str, Any], requests: BinaryIO, answers: BinaryIO, wire: Any, recorder: Any
    ) -> None:
        self.settings, self.requests, self.answers = settings, requests, answers
        self.wire, self.recorder = wire, recorder
        self.home, self.forked = os.getpid(), mmap.mmap(-1, 1)  # memory that forks share
        self.kept: list[Any] = []
        # The arrays of the next call are the same objects in the same memory: none can be recognised by its address.
        self.memory: dict[int, Any] = {}

    def run(self, confined: dict[str, bool]) -> None:
        """Answer each question. The questions ask for the limits of this process, for the import,
        for calls, and at the end for the kept results.
        """
        while start := self.requests.read(self.wire.START.size):
            header, arrays = self.wire.sizes(start)
            asked = self.wire.header_of(self.requests.read(header))
            data = memoryview(self.requests.read(arrays))
            chunks: list[bytes] = []
            if "begin" in asked:
                answer: dict[str, Any] = {"confined": confined}
            elif "import" in asked:
                answer = self.imported(asked["import"])
            elif "calls" in asked:
                values = self.wire.unlisted([[call["arguments"], call["options"]] for call in asked["calls"]], data)
                calls = list(zip(asked["calls"], values, strict=True))
                answer = {"answers": [self.told(found, asked["keep"], chunks) for found in self.together(calls)]}
            else:
                answer = {"kept": self.wire.listed(self.kept, chunks), "forked": bool(self.forked[0])}
                answer |= {"used": sorted(self.recorder.used), "replaced": self.recorder.replaced()}
            self.stay_alone()
            self.answers.write(self.wire.message(start[:16], answer, chunks))
            self.answers.flush()

    def stay_alone(self) -> None:
        """If this process is a fork, end it, and record that there was one."""
        if os.getpid() != self.home:
            self.forked[0] = 1
            os._exit(0)

    def imported(self, functions: dict[str, list[str]]) -> dict[str, Any]:
        """Import the modules, and find the function for each operation."""
        try:
            with self.recorder.watching():
                self.functions = {
                    name: getattr(importlib.import_module(module), function)
                    for name, (module, function) in functions.items()
                }
        except BaseException as error:
            return {"raised": _said(error)}
        return {"imported": True}

    def together(self, calls: list[Any]) -> list[Any]:
        """Make several calls, each in a new thread, and return their results. A single call is made
        in this thread.
        """
        if len(calls) == 1:
            return [self.call(self.memory, *calls[0])]
        outcomes: list[Any] = [None] * len(calls)
        at_once = threading.Barrier(len(calls))

        def run(place: int) -> None:
            at_once.wait()
            outcomes[place] = self.call({}, *calls[place])

        threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    def call(self, memory: dict[int, Any], asked: dict[str, Any], values: Any) -> dict[str, Any]:
        """Make one call. Return what it returned or raised, its arguments, and the contents of the
        arguments before the call.

        An array is placed in `memory` if the memory for its position has the right size. Arrays that
        share memory there share it here, and one array that is passed twice is one array here.
        """
        before = (*values[0], *values[1])
        described = zip(before, (*asked["arguments"], *asked["options"]), asked["memory"], strict=True)
        arguments = [_laid(value, description, where, memory) for value, description, where in described]
        number = len(asked["arguments"])
        try:
            handed = {id(value): self.handed(value) for value in arguments}
            function_arguments = [handed[id(value)] for value in arguments]
            positional = function_arguments[:number]
            options = dict(zip(asked["names"], function_arguments[number:], strict=True))
            with self.recorder.watching():
                returned = self.functions[asked["function"]](*positional, **options)
        except BaseException as error:
            self.stay_alone()
            return {"raised": _said(error)}
        self.stay_alone()
        return {"returned": returned, "given": arguments, "before": before}

    def told(self, outcome: dict[str, Any], keep: bool, chunks: list[bytes]) -> dict[str, Any]:
        """Return the answer to a call, with copies of the results. The results themselves are then
        overwritten, or kept until the end.
        """
        if "raised" in outcome:
            return outcome
        several = type(outcome["returned"]) in (tuple, list)
        arrays_and_libraries = [
            self.taken(result) for result in (outcome["returned"] if several else [outcome["returned"]])
        ]
        copies: list[bytes] = []
        try:
            results = self.wire.listed([result for result, _ in arrays_and_libraries], copies)
        except TypeError as error:
            return {"other": str(error)}
        chunks += copies
        shares = [
            [number, position]
            for number, (result, _) in enumerate(arrays_and_libraries)
            for position, argument in enumerate(outcome["given"])
            if _share_memory(result, argument)
        ]
        written = [
            position
            for position, (result, argument) in enumerate(zip(outcome["before"], outcome["given"], strict=True))
            if _bytes(result) != _bytes(argument)
        ]
        after = self.wire.listed([outcome["given"][position] for position in written], chunks)
        for result, _ in arrays_and_libraries:
            if isinstance(result, np.ndarray):
                if keep:
                    self.kept.append(result)
                else:
                    with suppress(ValueError):  # the memory is read-only
                        result[...] = 1 if result.dtype.kind in "bi" else np.nan
        return {
            "results": results,
            "kinds": [kind for _, kind in arrays_and_libraries],
            "several": several,
            "shares": shares,
            "written": written,
            "after": after,
        }

    def handed(self, value: Any) -> Any:
        """Return a value in the form that the function takes, such as a torch tensor, in the same
        memory.
        """
        if self.settings["arrays"] == "numpy" or not isinstance(value, np.ndarray):
            return value
        import torch

        return (
            torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
            if value.dtype.name == "bfloat16"
            else torch.from_numpy(value)
        )

    def taken(self, value: Any) -> tuple[Any, str]:
        """Return a result as a NumPy array in the same memory, and the name of the result's
        library.
        """
        torch = sys.modules.get("torch") if self.settings["arrays"] == "torch" else None
        if torch is not None and type(value) is torch.Tensor:
            value = value.detach().cpu().resolve_conj().resolve_neg()
            if value.dtype == torch.bfloat16:
                import ml_dtypes

                return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16), "torch"
            return value.numpy(), "torch"
        return value, "numpy" if type(value) is np.ndarray else ""


def _end_with(pipe: int) -> None:
    """End this process when the parent has closed the pipe, even in the middle of a call."""
    hung_up = select.poll()
    hung_up.register(pipe, 0)
    hung_up.poll()
    os._exit(0)


def _laid(value: Any, description: Any, where: Any, kept: dict[int, Any]) -> Any:
    """Return an array in the given memory layout. `where` says which of the kept buffers it lies in,
    where in it, and how long the buffer is. Arrays of the same layout there are one object, also in a
    later call. Return any other value unchanged.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.size:
        buffer, start, size = where
        if buffer not in kept or kept[buffer][0].size != size * value.itemsize:
            kept[buffer] = np.empty(size * value.itemsize, np.uint8), {}
        room, arrays = kept[buffer]
        strides = tuple(stride * value.itemsize for stride in description["strides"])
        layout = value.shape, strides, value.dtype, start
        placed = arrays.get(layout)
        if placed is None or (placed.shape, placed.strides, placed.dtype) != layout[:3]:  # changed by the function
            placed = np.ndarray(value.shape, value.dtype, room, start * value.itemsize, strides)
        arrays[layout] = placed
        placed.flags.writeable = True
        placed[...] = value
        value = placed
    if not description["writeable"]:
        value.flags.writeable = False
    return value


def _share_memory(first: Any, second: Any) -> bool:
    are_arrays = isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
    return are_arrays and np.may_share_memory(first, second)


def _bytes(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _said(error: BaseException) -> list[str]:
    """Return the type of an exception, and its message, cut short."""
    try:
        return [type(error).__name__, str(error)[:_LONGEST]]
    except BaseException:
        return [type(error).__name__, ""]
