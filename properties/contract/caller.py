"""Calls an implementation with float64 arrays, guards and records every call, and returns each
result in float64 together with the oracle's enclosure (an interval that contains the exact value).
"""

import contextlib
import inspect
import io
import mmap
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array
from properties import interpreters
from properties.contract import conversion, packing, process_state, quantising
from properties.contract.implementation import Implementation
from properties.contract.mask_kinds import ENTRIES
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.restricted_options import one_column
from properties.contract.results import BrokenError, Call, RaisedError, Result, Watched
from properties.contract.support import OutsideError
from properties.contract.wording import raised

__all__ = ["LIKELY", "Caller", "Observer"]

Observer = Callable[[str, Arguments, str], None]
"""What is told the name of an operation, the arguments and the memory layout before each call."""

LIKELY = 8.4
"""λ of the statistical line: an error beyond the line has a probability of about 10⁻¹⁵ if roundings
are independent.
"""

_SHORTEST = 64  # sums up to this length have a statistical line equal to the proved bound

_RETURNED = mmap.mmap(-1, 1)
"""1 if a call has returned in a forked process, which ended there. Forks share this memory."""


class Caller:
    """An implementation, as laws (properties to check) call it.

    `caller(q, k, v, mask)` calls the operation that the law is about. `caller.rope(x, 3)` calls
    another operation. A mask is always true where a key is visible, also if the implementation
    declares the opposite. A call returns a `Result`, or a tuple of them.

    `calls` are the calls since `begin`. `answers` are the results of each of these calls. `vacuous`
    counts the requested error limits that accept any value. `arithmetic` and `conventions` are the
    implementation's, except for the masks. `keeps_sizes` says that instruments measure only at
    the sizes of the case. `seconds` is the time that all calls took. `original` is the
    process-wide state before the first call.
    """

    def __init__(
        self,
        implementation: Implementation,
        operation: str,
        observe: Observer | None = None,
        seconds_per_call: float = 60.0,
    ) -> None:
        self.implementation, self.operation, self.seconds_per_call = implementation, operation, seconds_per_call
        self._observe = observe
        self.arithmetic = implementation.resolved_arithmetic
        self.conventions = implementation.conventions_of_laws
        self.original = process_state.states()
        self.seconds = 0.0
        self.keeps_sizes = False
        _RETURNED[0] = 0
        self.begin()

    def begin(self) -> None:
        """Forget the last case (the arguments of one test) and its calls."""
        self.calls: list[Call] = []
        self.answers: list[tuple[Any, ...]] = []
        self.vacuous = 0
        self._case: tuple[Any, ...] = ()
        self._base: tuple[Watched, Call, tuple[Any, ...]] | None = None

    def turn(self) -> None:
        """Prepare for another law on the same case (the arguments of one test). The result of the
        operation on this case is kept.
        """
        case, base = self._case, self._base
        self.begin()
        self._case, self._base = case, base

    def about(self, arguments: Arguments) -> None:
        """Set the case: the arguments of one test. The first law that needs the operation's result
        on the case calls the operation. Later laws get the same result.
        """
        self._case, self._base = arguments, None

    def seen(self, arguments: Arguments) -> Watched:
        """Return the call of the operation on the case (the arguments of one test), with everything
        that can be observed.

        The call is made only once for all laws. Other arguments make a new call.
        """
        if not self._case or [*map(id, arguments)] != [*map(id, self._case)]:
            return self.watch(self.operation, arguments)
        if self._base is None:
            watched = self.watch(self.operation, arguments)
            self._base = watched, self.calls[-1], self.answers[-1]
        else:
            watched, call, answers = self._base
            self.calls.append(call)
            self.answers.append(answers)
        return watched

    @property
    def largest_harmless(self) -> float:
        """The largest power of two that is harmless as a factor: its products with inputs of common
        size stay finite in the narrowest format of the arithmetic.
        """
        arithmetic = self.arithmetic
        largest_number = min(arithmetic.inputs.largest, arithmetic.output.largest, arithmetic.elementwise.largest)
        return float(2.0 ** (np.floor(np.log2(largest_number)) // 2))

    def takes(self, *arguments: Any) -> bool:
        """Return whether the implementation supports a call of the law's operation with arguments
        of these sizes.
        """
        return self.implementation.takes(OPERATIONS[self.operation], arguments)

    def offers(self, operation: str) -> bool:
        """Return whether the implementation has an operation."""
        return operation in self.implementation.operations

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation not in OPERATIONS:
            raise AttributeError(f"Unknown operation {operation!r}.")
        return lambda *arguments, layout="contiguous": self.call(operation, arguments, layout)

    def __call__(self, *arguments: Any, layout: str = "contiguous") -> Any:
        """Call the operation that the law is about, and return its result, or a tuple of results."""
        return (self.seen(arguments) if layout == "contiguous" else self.watch(self.operation, arguments, layout)).found

    def call(self, operation: str, arguments: Arguments, layout: str = "contiguous") -> Any:
        """Call an operation, and return its result, or a tuple of results. Raises BrokenError if
        the operation raises, or if it returns something that is not a result.
        """
        return self.watch(operation, arguments, layout).found

    def watch(self, operation: str, arguments: Arguments, layout: str = "contiguous") -> Watched:
        """Make a call, and return it with its results and everything else that can be observed.
        Raises BrokenError as `call` does.

        An argument may be the result of another call. If such a result contains a NaN, this call is
        not made and BrokenError is raised, because the other call was wrong.
        """
        called, implementation = OPERATIONS[operation], self.implementation
        arguments = tuple(argument.handed_on if isinstance(argument, Result) else argument for argument in arguments)
        is_restricted = implementation.restricted or implementation.support.options
        if is_restricted and not implementation.takes(called, arguments):
            raise OutsideError(
                f"The law calls {operation} with sizes, a position or options that the implementation does not support."
            )
        arguments = implementation.support.promised(called, arguments)
        try:
            values, given, returned, side_effect = self.run(called, arguments, layout)
        except BrokenError as broken:
            self.calls.append(Call(operation, arguments, layout, (), str(broken)))
            self.answers.append(())
            raise
        blocks = (
            self.implementation.resolved_conventions.mask_polarity == "true_blocks"
            and not self.implementation.support.entries
        )
        if called.returns_booleans and blocks:
            values = (np.logical_not(values[0]),)
        self.calls.append(Call(operation, arguments, layout, values))
        results = values if called.is_exact else self._results(called, arguments, values)
        self.answers.append(results)
        return Watched(tuple(given), tuple(returned), results, side_effect)

    def _results(self, operation: Operation, arguments: Arguments, values: tuple[Array, ...]) -> tuple[Result, ...]:
        """Return the results, each with the oracle's enclosures. The oracle runs at most once, and
        only if a law needs the enclosures.
        """
        enclosures, lines = (
            cache(lambda: self.expected(operation, arguments)),
            cache(lambda: self.likely(operation, arguments)),
        )

        def result(position: int) -> Result:
            def budget() -> Enclosure:
                enclosure: Enclosure = enclosures()[position]
                self.vacuous += enclosure.vacuous
                return enclosure

            def line() -> Enclosure | None:
                enclosure = lines()
                return None if enclosure is None else enclosure[position]

            return Result(names[position], values[position], budget, line)

        names = operation.returned(arguments)
        return tuple(result(position) for position in range(len(values)))

    def beside(self, path: Implementation) -> "Caller":
        """Return a caller of another code path of the implementation, such as compiled code, with
        the same observer.
        """
        return Caller(path, self.operation, self._observe, self.seconds_per_call)

    def call_another(self, other: Implementation, arguments: Arguments) -> None:
        """Call the law's operation in another implementation, if that implementation takes the
        arguments.

        The result, or the exception, is ignored.
        """
        operation = OPERATIONS[self.operation]
        if other.takes(operation, arguments):
            with np.errstate(all="ignore"), contextlib.suppress(BrokenError, conversion.UngivenError):
                Caller(other, operation.name).run(operation, arguments)

    def expected(self, operation: Operation, arguments: Arguments) -> tuple[Any, ...]:
        """Return the oracle's enclosures of an operation's results in the implementation's
        arithmetic and conventions. For an operation that returns a mask or integers, return these.
        """
        return self.implementation.support.promises(
            operation, arguments, operation.expected(arguments, self.arithmetic, self.conventions)
        )

    def likely(self, operation: Operation, arguments: Arguments) -> tuple[Enclosure, ...] | None:
        """Return enclosures of the results with the radii of the statistical line: errors that
        independent roundings almost never exceed.

        Return None if no axis is longer than 64, because the line then equals the proved error
        limit. Also return None if the declared arithmetic uses the line as its error limit.
        """
        arithmetic = self.arithmetic
        longest_axis = max(
            (length for argument in arguments if isinstance(argument, np.ndarray) for length in argument.shape),
            default=0,
        )
        if longest_axis <= _SHORTEST or arithmetic.likely is not None:
            return None
        enclosures = operation.expected(arguments, replace(arithmetic, likely=LIKELY), self.conventions)
        return self.implementation.support.promises(operation, arguments, enclosures)

    def run(
        self, operation: Operation, arguments: Arguments, layout: str = "contiguous"
    ) -> tuple[tuple[Array, ...], list[Any], list[Any], str]:
        """Make one guarded call. Return the results in float64, the arguments after the call, the
        returned arrays, and a sentence about a side effect, or "".

        Arguments are fresh copies, so that calls cannot change each other's arguments.
        """
        arguments = self.implementation.support.promised(operation, arguments)
        if self._observe is not None:
            self._observe(operation.name, arguments, layout)
        given, before = self.given(operation, arguments, layout), self.seconds
        try:
            raw_results, side_effect = self._guarded(operation, given)
        finally:
            if (costs := self.implementation.support.costs) is not None:
                costs.add(operation, arguments, self.seconds - before)
        returned = (
            list(raw_results) if isinstance(raw_results, tuple | list) and len(operation.outputs) > 1 else [raw_results]
        )
        missing = self.implementation.support.untold(operation)
        returned = self._placed(operation, arguments, returned)
        if len(returned) != len(operation.outputs):
            described = (
                f"{len(returned)} values"
                if isinstance(raw_results, tuple | list)
                else f"a {type(raw_results).__name__}"
            )
            raise BrokenError(
                f"returned {described}, but should return {len(operation.outputs)}: {', '.join(operation.outputs)}."
            )
        names = operation.returned(arguments)
        for result, absent in zip(operation.outputs, returned, strict=True):
            if result not in names and absent is not None:
                raise BrokenError(f"{result} is an array, but should be None, since no {result[1:]} is given.")
        if operation.is_played and returned[-1] is None:  # caches may omit the log-sum-exp, the last result
            names = names[:-1]
        returned = [x for result, x in zip(operation.outputs, returned, strict=True) if result in names]
        values = tuple(
            np.full(shape, np.nan) if result in missing else self._received(operation, result, x, shape)
            for result, x, shape in zip(names, returned, operation.shapes(*arguments), strict=False)
        )
        if operation.has_sequences and self.conventions.padding_rows == "unspecified":
            values = packing.settled(operation.named(arguments), operation.axes, names, values)
        return values, given, returned, side_effect

    def _placed(self, operation: Operation, arguments: Arguments, returned: list[Any]) -> list[Any]:
        """Return the results of a call at their places, with None for those that may be left out: the
        log-sum-exp that the adapter declares as missing, the gradients of options that are not among
        its features, or the gradients of all options that the call does not give.
        """
        of_features = self.implementation.features
        declared = [name for name in operation.outputs if name[1:] not in operation.options or name[1:] in of_features]
        missing = self.implementation.support.untold(operation)
        for explained in (operation.outputs, declared, operation.returned(arguments)):
            names = [name for name in explained if name not in missing]
            if len(returned) in (len(names), len(explained)):
                found = dict(zip(explained if len(returned) == len(explained) else names, returned, strict=True))
                return [found.get(name) for name in operation.outputs]
        return returned

    def _guarded(self, operation: Operation, given: list[Any]) -> tuple[Any, str]:
        """Return the return value of an operation, and a sentence about its side effect, or "".

        Printed text is discarded. Warning filters and NumPy's error state are restored.
        """
        printed, process = io.StringIO(), os.getpid()
        error_state = np.geterr()
        clock = time.process_time if interpreters.is_interpreting() else time.perf_counter  # other programs run too
        started = clock()
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                # Nobody else adds this filter. A filter that is there already would hide an added one.
                warnings.filterwarnings("ignore", message=".*")
                filters = list(warnings.filters)
                returned = operation.call(self.implementation.operations[operation.name], given)
                changed = warnings.filters != filters
        except (KeyboardInterrupt, BrokenError):  # the decoder names the broken step itself
            raise
        except BaseException as error:
            raise RaisedError(
                raised(error) + (self._misfit(operation, given) if isinstance(error, TypeError) else "")
            ) from error
        finally:
            if os.getpid() != process:  # a forked child came back: two processes would go on
                _RETURNED[0] = 1
                os._exit(0)
            seconds, errors_after = clock() - started, np.geterr()
            np.seterr(**error_state)
            self.seconds += seconds
        if seconds > self.seconds_per_call:
            raise BrokenError(
                f"took {seconds:.3g} s for a call, but should take at most {self.seconds_per_call:.3g} s."
            )
        side_effect = (
            "returned twice, the second time in a process that it forked, but should return once." if _RETURNED[0]
            else f"printed {printed.getvalue()[:60]!r}, but should print nothing." if printed.getvalue()
            else "changed the interpreter's warning filters, but should leave them." if changed
            else f"changed NumPy's error state from {error_state} to {errors_after}, but should leave it."
            if errors_after != error_state
            else ""
        )  # fmt: skip
        return returned, side_effect

    def _misfit(self, operation: Operation, given: list[Any]) -> str:
        """Return a sentence with the expected call, if the signature of an operation's function
        does not accept the arguments; else "".
        """
        try:
            operation.call(inspect.signature(self.implementation.operations[operation.name]).bind, given)
        except TypeError:
            return f". It is called as {operation.name}({', '.join(operation.parameters)})."
        except ValueError:  # it has no signature
            pass
        return ""

    def given(self, operation: Operation, arguments: Arguments, layout: str = "contiguous") -> list[Any]:
        """Return the arguments of a call as new arrays of the implementation's kind. In the layouts
        "aliased" and "packed", arrays share memory.
        """
        if self.arithmetic.is_quantised:
            conventions = self.implementation.resolved_conventions
            arguments = tuple(quantising.handed(operation.named(arguments), conventions).values())
        shared = layout in ("aliased", "packed")
        given = [
            self._given(operation, parameter, argument, "contiguous" if shared else layout)
            for parameter, argument in zip(operation.parameters, arguments, strict=False)
        ]
        return conversion.gathered(given, arguments, layout) if shared else given

    def _given(self, operation: Operation, parameter: str, x: Any, layout: str) -> Any:
        if x is None or not isinstance(x, np.ndarray):
            return int(x) if isinstance(x, np.integer) else x
        layout, _, only = layout.partition(" ")
        if only and only != parameter:
            layout = "contiguous"
        if operation.is_mask(parameter):
            return self._given_mask(operation, parameter, x, layout)
        if operation.is_integer(parameter):
            return conversion.given(x, self.implementation, None, layout)
        if parameter in ("cos", "sin") and "half tables" in self.implementation.support.options:
            x = one_column(x, self.conventions.rope_pairing)
        if parameter == "grad_lse" and self._has_rows_first(operation, x.ndim):
            x = x.T
        heads_first = self.implementation.resolved_conventions.page_layout == "heads_first"
        if heads_first and operation.is_paged and parameter[0] in "kv" and x.ndim > 2:  # pages, and scales of slots
            x = np.ascontiguousarray(np.swapaxes(x, 1, 2))
        return conversion.given(x, self.implementation, operation.stored(parameter, self.arithmetic), layout)

    def _given_mask(self, operation: Operation, parameter: str, mask: Array, layout: str) -> Any:
        """Return a mask of the kind that the implementation takes: booleans in its polarity, whole
        numbers, or numbers that it adds to the scores.
        """
        implementation = self.implementation
        handed = implementation.support.handed(operation, parameter, mask)
        if implementation.support.entries and handed.dtype == bool:
            target = self.arithmetic.inputs
            return conversion.given(
                ENTRIES[implementation.support.entries].given(handed, target), implementation, target, layout
            )
        blocks = handed.dtype == bool and implementation.resolved_conventions.mask_polarity == "true_blocks"
        return conversion.given(~handed if blocks else handed, implementation, None, layout)

    def _has_rows_first(self, operation: Operation, axes: int) -> bool:
        """Return whether log-sum-exps with a number of axes have rows before heads."""
        is_packed = operation.has_sequences and axes == 2
        return is_packed and self.implementation.resolved_conventions.packed_lse == "rows_first"

    def _received(self, operation: Operation, name: str, raw: Any, shape: tuple[int, ...]) -> Array:
        entries = self.implementation.support.entries if operation.returns_booleans else ""
        target = (
            self.arithmetic.inputs
            if entries
            else None
            if operation.returns_booleans
            else operation.stored(name, self.arithmetic, result=True)
        )
        try:
            if operation.is_number(name):
                return conversion.number(raw)
            if name == "lse" and self._has_rows_first(operation, len(shape)):
                return np.ascontiguousarray(conversion.received(raw, self.implementation, target, shape[::-1]).T)
            values: Array = conversion.received(
                raw, self.implementation, target, shape, integers=operation.is_integer(name)
            )
            return ENTRIES[entries].received(values, self.arithmetic.inputs) if entries else values
        except conversion.ReturnedError as wrong:
            raise BrokenError(f"{name} {wrong}") from None
        except ValueError as wrong:  # a mask has a wrong entry
            raise BrokenError(f"{name}{wrong}") from None
        except BaseException as error:
            # NumPy's own arrays do not raise; arrays of the implementation's kind may.
            if type(raw) is np.ndarray or isinstance(error, KeyboardInterrupt):
                raise
            raise BrokenError(f"{name} cannot be read: it {raised(error).rstrip('.')}.") from error
