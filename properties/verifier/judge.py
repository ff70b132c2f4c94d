"""Judges the outputs of one call by their error limits, for harnesses that call the kernel themselves."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, get_args

import numpy as np

from oracles import Arithmetic, Conventions, Enclosure, assert_within
from oracles.arrays import as_numpy
from oracles.conventions import DEFAULT
from oracles.spelling import did_you_mean
from properties.contract.operations import OPERATIONS, Arguments, Operation

__all__ = ["Judge", "Judgement", "judge"]

_SEARCHED = 1 << 16
"""The largest number of entries of wrong outputs for which other conventions are tried."""


@dataclass(frozen=True)
class Judgement:
    """What a judge says of the outputs of a call. Its truth value is `passes`, its text the sentence.

    passes     whether each entry is within its error limit, and the limits are narrow enough to show
               a mistake
    error      the largest error ÷ error limit; ∞ for outputs of another shape or type
    sentence   the entry that is farthest outside, and each other convention under which the outputs
               are right
    """

    passes: bool
    error: float
    sentence: str

    def __bool__(self) -> bool:
        return self.passes

    def __str__(self) -> str:
        return self.sentence


class Judge:
    """Judges outputs of an operation on given inputs. `judge` makes it."""

    def __init__(
        self, operation: Operation, arguments: Arguments, arithmetic: Arithmetic | str, conventions: Conventions
    ) -> None:
        self._call = operation, arguments, arithmetic
        self._conventions = conventions
        self._wanted = self._expected(conventions)

    def __call__(self, out: Any) -> Judgement:
        """Return the judgement of an output, or of a tuple or a list of outputs, in the order of the
        operation's results. Results that are None or left out at the end are not judged. Raises
        ValueError for no results, and for results that the operation does not have.
        """
        outs = self._named(tuple(out) if isinstance(out, tuple | list) else (out,))
        error, sentence = _compared(outs, self._wanted)
        if error > 1 and sum(prod(np.shape(x)) for x in outs.values()) <= _SEARCHED:
            sentence += "".join(f" It is right under Conventions({name})." for name in self._otherwise(outs))
        passed = f"Each result is within its error limit: the largest error is {error:.3g} times the limit."
        return Judgement(not sentence, error, sentence or passed)

    def _named(self, outs: tuple[Any, ...]) -> dict[str, Any]:
        """Return outputs by the names of their results."""
        outputs, wanted = self._call[0].outputs, tuple(self._wanted)
        names = outputs if len(outs) == len(outputs) else wanted
        found = {name: x for name, x in zip(names, outs, strict=False) if x is not None}
        if not found or len(outs) > len(names) or not found.keys() <= self._wanted.keys():
            raise ValueError(f"out has {len(outs)} results, but should have {', '.join(wanted)}, or the first of them.")
        return found

    def _expected(self, conventions: Conventions) -> dict[str, Any]:
        """Return the enclosure of each result, or the mask, by the names of the results."""
        operation, arguments, arithmetic = self._call
        with np.errstate(all="ignore"):
            enclosures = operation.expected(arguments, arithmetic, conventions)
        return dict(zip(operation.returned(arguments), enclosures, strict=True))

    def _otherwise(self, outs: Mapping[str, Any]) -> Iterator[str]:
        """Yield each other value of a convention under which the outputs are right."""
        for field in fields(Conventions):
            declared = getattr(self._conventions, field.name)
            for value in get_args(field.type) if field.name in self._call[0].conventions else ():
                with suppress(ValueError):  # the oracle refuses the call under this convention
                    other = replace(self._conventions, **{field.name: value})
                    if value != declared and _compared(outs, self._expected(other))[0] <= 1:
                        yield f"{field.name}={value!r}"


def judge(
    operation: str,
    inputs: Mapping[str, Any],
    arithmetic: Arithmetic | str,
    conventions: Conventions | None = None,
) -> Judge:
    """Return a function that judges outputs of an operation on some inputs.

        verdict = attnspec.judge("rope", {"x": x, "start_pos": 0}, "bfloat16")(my_rope(x))
        assert verdict, verdict.sentence

    `inputs` has the arguments by their names: NumPy arrays, torch tensors, or anything with DLPack or
    `__array__`. They are read now, so the kernel may overwrite them later. Raises ValueError for an
    unknown operation or input, a missing input, and inputs that the operation refuses.
    """
    if operation not in OPERATIONS or OPERATIONS[operation].is_played:
        known = [name for name, record in OPERATIONS.items() if not record.is_played]
        raise ValueError(f"Unknown operation {operation!r}.{did_you_mean(operation, known)}")
    record = OPERATIONS[operation]
    for name in inputs:
        if name not in record.parameters:
            hint = did_you_mean(name, record.parameters, f"Its inputs are {', '.join(record.parameters)}.")
            raise ValueError(f"{operation} has no input {name!r}.{hint}")
    defaults = {name: parameter.default for name, parameter in inspect.signature(record.oracle).parameters.items()}
    defaults = {name: defaults.get(name, inspect.Parameter.empty) for name in record.parameters}
    given = {**defaults, **dict.fromkeys(record.options), **inputs}
    missing = [name for name, value in given.items() if value is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"inputs lacks {', '.join(missing)}, which {operation} needs.")
    arguments = (_plain(given[name], name) for name in record.parameters)
    return Judge(record, tuple(arguments), arithmetic, conventions or DEFAULT)


def _plain(value: Any, name: str) -> Any:
    """Return an input as the oracles take it: a copy as an array of NumPy, or a value that is not an array."""
    if isinstance(value, np.generic):
        return value.item()
    return np.array(as_numpy(value, name)) if hasattr(value, "shape") else value


def _compared(outs: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[float, str]:
    """Return the largest error ÷ error limit, and a sentence about the first wrong result, or ""."""
    judged = [_of_result(name, wanted[name], out) for name, out in outs.items()]
    return max(error for error, _ in judged), next((sentence for _, sentence in judged if sentence), "")


def _of_result(name: str, expected: Any, out: Any) -> tuple[float, str]:
    """Return the largest error ÷ error limit of one result, and a sentence, or "". The error is ∞ for
    another shape or type, and for a wrong mask.
    """
    try:
        if not isinstance(expected, Enclosure):
            return _of_mask(name, expected, as_numpy(out, name))
        assert_within(out, expected, name=name)
        return float(expected.excess(out).max(initial=0.0)), ""
    except (AssertionError, TypeError) as wrong:
        try:
            return float(expected.excess(out).max(initial=0.0)), str(wrong)
        except (TypeError, ValueError):
            return np.inf, str(wrong)


def _of_mask(name: str, expected: Any, mask: Any) -> tuple[float, str]:
    """Return 0 and "" for the expected mask, else ∞ and a sentence."""
    if mask.shape != expected.shape:
        return np.inf, f"{name}.shape={mask.shape}, but should be {expected.shape}."
    if not (differs := mask != expected).any():
        return 0.0, ""
    place = np.unravel_index(int(differs.argmax()), differs.shape)
    index, count = ", ".join(map(str, place)), f"{differs.sum()} of {differs.size} entries differ"
    return np.inf, f"{name}[{index}]={mask[place]}, but should be {expected[place]}; {count}."
