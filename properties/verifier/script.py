"""Writes the Python script that shows a violation (failed law) again. The script needs NumPy,
attnspec and the implementation.
"""

import base64
import keyword
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from oracles import Arithmetic, Conventions, preset
from oracles.formats import PRESETS, resolve
from properties import interpreters
from properties.laws import find
from properties.verifier.call_record import RecordedCall
from properties.verifier.location import location_of
from properties.verifier.report import Violation

__all__ = ["literal", "script", "script_of_call"]

_IN_FULL = 64  # entries: a smaller array is written with all its entries
_LONG = 1200  # characters: beyond that, compressed bytes are shorter than numbers
_WIDTH = 120


def script(
    violation: Violation,
    target: str = "",
    pick: str = "",
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    beside: Sequence[str] = (),
) -> str:
    """Return a Python script that shows a violation again: it makes the earlier calls that the
    violation needs, and raises the violation's summary as an AssertionError. The script is "" if no
    case shows the violation, or if the case is too large to be written.

    target                    where the implementation is, as `location_of` reads it; without it, the
                              script has a line to fill in
    pick                      the Python that picks the implementation out of the attribute
    arithmetic, conventions   replace what the implementation declares
    beside                    the Python that picks other implementations, which some laws call in turn
    """
    case = violation.told
    if not case or violation.is_large:
        return ""
    options = _replaced(arithmetic, conventions)
    setup, before = _earlier_calls(violation.earlier_calls, case)
    options += [f"before=[{', '.join(before)}]"] if before else []
    if beside and any(law.interleaves for law in find(violation.law_id)):
        options.append(f"beside=[{', '.join(beside)}]")
    return _text("replay", violation.law_id, _implementation(target, pick, case), case, options, setup)


def script_of_call(
    noted: RecordedCall,
    target: str = "",
    pick: str = "",
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
) -> str:
    """Return a Python script that makes one call again. It is for an implementation that ends the
    process or never returns.
    """
    case = noted.given
    options = [f"layout={literal(noted.layout)}"] if noted.layout != "contiguous" else []
    options += _replaced(arithmetic, conventions)
    return _text("call", noted.operation, _implementation(target, pick, case), case, options)


def _replaced(arithmetic: Arithmetic | str | None, conventions: Conventions | None) -> list[str]:
    """Return the Python of the arguments that replace declarations of the implementation."""
    resolved = resolve(arithmetic)
    options = [f"arithmetic={_preset(resolved)}"] if resolved is not None else []
    if conventions is not None:
        default = vars(Conventions())
        given = (f"{name}={literal(value)}" for name, value in vars(conventions).items() if value != default[name])
        options.append(f"conventions=oracles.Conventions({', '.join(given)})")
    return options


def _preset(arithmetic: Arithmetic) -> str:
    """Return Python for an arithmetic: the preset that differs in the fewest fields, with these
    fields replaced. The name does not count as a field.
    """

    def differing(known: Arithmetic) -> dict[str, str]:
        return {
            name: literal(value)
            for name, value in vars(arithmetic).items()
            if name != "name" and value != getattr(known, name)
        }

    with suppress(ValueError):
        if preset(arithmetic.name) == arithmetic:
            return literal(arithmetic.name)
    nearest = min(PRESETS, key=lambda each: len(differing(each)))
    changed = ", ".join(f"{name}={value}" for name, value in differing(nearest).items())
    name = literal(nearest.name)
    return f"dataclasses.replace(oracles.preset({name}), {changed})" if changed else name


def _text(
    function: str,
    first: str,
    implementation: tuple[list[str], list[str], str],
    case: Mapping[str, Any],
    options: list[str],
    more_setup: Sequence[str] = (),
) -> str:
    """The whole script: the imports, the implementation, the arrays of the case, other lines, and the
    call of a function of `properties` whose first argument is a law or an operation.
    """
    imports, bound, name = implementation
    setup, given = _case(case)
    arguments = [literal(first), name, *(f"{key}={value}" for key, value in given.items()), *options]
    call = f"properties.{function}({', '.join(arguments)})"
    text = "\n".join([*setup, *more_setup, call])
    standard = [f"import {name}" for name in ("base64", "dataclasses", "zlib") if f"{name}." in text]
    arrays = ["import numpy as np", ""] if "np." in text else []
    ours = ", ".join(
        [
            *(["kernels"] if interpreters.is_interpreting() else []),
            *(["oracles"] if "oracles." in call else []),
            "properties",
        ]
    )
    begin = ["", "kernels.interpret()  # before kernels are imported"] if interpreters.is_interpreting() else []
    blank = [""] if standard else []
    lines = [*standard, *blank, *arrays, f"from attnspec import {ours}", *begin, *imports, "", *bound, text, ""]
    return "\n".join(lines)


def _implementation(target: str, pick: str, case: Mapping[str, Any]) -> tuple[list[str], list[str], str]:
    """Return the lines that import the implementation, the lines that assign it to a variable, and
    the expression for it.
    """
    if not target:
        return [], ["implementation = ...  # the implementation under test"], "implementation"
    location = location_of(target)
    attribute, first = location.attribute, location.attribute.split(".")[0]
    imports = location.statements(first, "implementation")
    name = pick or attribute or "implementation"
    if not pick and first not in {*case, "np", "properties", "base64", "zlib"}:
        return imports, [], name
    return imports, [f"implementation = {name}"], "implementation"


def _case(case: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the lines that make the arrays of a case (the arguments), and the expression for each
    argument.
    """
    setup: list[str] = []
    given: dict[str, str] = {}
    for key, value in case.items():
        if not isinstance(value, np.ndarray) or keyword.iskeyword(key) or not key.isidentifier():
            given[key] = literal(value)
            continue
        setup += _array(key, value)
        given[key] = key
    return setup, given


def _earlier_calls(calls: Sequence[RecordedCall], case: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The lines that make the arrays of earlier calls, and the expression for each call. An array
    that the case has too is not made again.
    """
    names = {name: _bits(value) for name, value in case.items() if isinstance(value, np.ndarray)}
    setup, expressions = list[str](), list[str]()
    for number, call in enumerate(calls, 1):
        prefix = f"earlier_{number}_" if len(calls) > 1 else "earlier_"
        given = {"layout": literal(call.layout)} if call.layout != "contiguous" else {}
        for key, value in call.given.items():
            if not isinstance(value, np.ndarray):
                given[key] = literal(value)
                continue
            same = [name for name, bits in names.items() if bits == _bits(value)]
            if not same:
                same = [f"{prefix}{key}"]
                names[same[0]] = _bits(value)
                setup += _array(same[0], value)
            given[key] = key if key in same else same[0]
        arguments = ", ".join(f"{literal(key)}: {value}" for key, value in given.items())
        expressions.append(f"({literal(call.operation)}, {{{arguments}}})")
    return setup, expressions


def _bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """What makes an array the same as another one: its type, its shape and its numbers."""
    return array.dtype.str, array.shape, array.tobytes()


def _array(name: str, array: Any) -> list[str]:
    """Return the lines that make an array. They list all entries, or only those that differ from
    the most common one, or compressed bytes.
    """
    written = literal(array) if array.size <= _IN_FULL else ""
    if written and "\n" not in written:
        return [f"{name} = {written}"]
    values, counts = np.unique(array, return_counts=True)
    common = values[counts.argmax()]
    differ = ~((array == common) | ((array != array) & (common != common))) | (
        np.signbit(array) != np.signbit(common) if array.dtype.kind == "f" else False
    )
    few = written.count("\n") if written else _IN_FULL + 1
    if 4 * differ.sum() <= array.size and differ.sum() < few:
        return [
            f"{name} = np.full({array.shape}, {literal(common)}{_dtype(array)})",
            *(
                f"{name}[{', '.join(map(str, index))}] = {literal(array[tuple(index)])}"
                for index in np.argwhere(differ)
            ),
        ]
    if written:
        return [f"{name} = {written}"]
    if array.size <= _LONG and len(written := literal(array)) <= _LONG:
        return [f"{name} = {written}"]
    return _compressed(name, array)


def _compressed(name: str, array: Any) -> list[str]:
    packed = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
    lines = [f'    b"{packed[start : start + _WIDTH]}"' for start in range(0, len(packed), _WIDTH)]
    unpacked = f"zlib.decompress(base64.b85decode({name}))"
    return [
        f"{name} = (",
        *lines,
        ")",
        f"{name} = np.frombuffer({unpacked}, {str(array.dtype)!r}).reshape({array.shape}).copy()",
    ]


def literal(value: Any) -> str:
    """Return Python code for exactly this value, in which NumPy is `np`. Each row of an array
    stands on its own line.
    """
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return f"np.zeros({value.shape}{_dtype(value)})"
        return f"np.array({_rows(value.tolist())}{_dtype(value)})"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return "np.nan" if value != value else "np.inf" if value > 0 else "-np.inf"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(entry)}' for key, entry in value.items())}}}"
    if is_dataclass(value):
        fields = ", ".join(f"{field}={literal(entry)}" for field, entry in vars(value).items())
        return f"oracles.{type(value).__name__}({fields})"
    is_plain = isinstance(value, str) and value.isprintable() and '"' not in value and "\\" not in value
    return f'"{value}"' if is_plain else repr(value)


def _dtype(array: Any) -> str:
    is_default = array.dtype == np.float64 or (array.dtype == np.bool_ and array.size)
    return "" if is_default else f", dtype={str(array.dtype)!r}"


def _rows(nested: Any, indent: str = "    ") -> str:
    """Return the text of nested lists: on one line if they fit, else with one row on each line."""
    flat = literal(nested)
    if len(flat) <= _WIDTH - len(indent) or not isinstance(nested, list):
        return flat
    if not isinstance(nested[0], list):
        lines = textwrap.wrap(flat[1:-1], _WIDTH - len(indent), break_long_words=False)
        return "[\n" + "".join(f"{indent}{line}\n" for line in lines) + indent[4:] + "]"
    return "[\n" + "".join(f"{indent}{_rows(row, indent + '    ')},\n" for row in nested) + indent[4:] + "]"
