"""The Python that shows a violation again, with nothing but NumPy, attnspec and what is under test."""

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
from properties.contract.operations import OPERATIONS
from properties.laws import find
from properties.verifier.call_record import RecordedCall
from properties.verifier.location import location_of
from properties.verifier.report import Violation

__all__ = ["literal", "script", "script_of_call"]

_IN_FULL = 64  # entries that are written out, however many differ
_LONG = 1200  # characters beyond which bytes are shorter than numbers
_WIDTH = 120


def script(
    violation: Violation,
    target: str = "",
    pick: str = "",
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    beside: Sequence[str] = (),
) -> str:
    """Python that raises a violation's summary again, as an AssertionError; "" where no case shows
    it.

    `target` is where the implementation is, as `place` reads it; without it a line is left to be
    filled in. `pick` is the Python that picks it out of the attribute; `arithmetic` and
    `conventions` replace what it declares. `beside` picks others between whose calls it is called,
    where the law calls them.
    """
    case = violation.told
    if not case:
        return ""
    named = _replaced(arithmetic, conventions)
    named += (
        [f"beside=[{', '.join(beside)}]"] if beside and any(law.interleaves for law in find(violation.law_id)) else []
    )
    return _text("replay", violation.law_id, _implementation(target, pick, case), case, named)


def script_of_call(
    noted: RecordedCall,
    target: str = "",
    pick: str = "",
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
) -> str:
    """Python that makes one call again: for an implementation that ends the process, or never returns."""
    o = OPERATIONS[noted.operation]
    case = {p: x for p, x in zip(o.parameters, noted.arguments, strict=False) if x is not None or p not in o.options}
    named = [f"layout={literal(noted.layout)}"] if noted.layout != "contiguous" else []
    named += _replaced(arithmetic, conventions)
    return _text("call", noted.operation, _implementation(target, pick, case), case, named)


def _replaced(arithmetic: Arithmetic | str | None, conventions: Conventions | None) -> list[str]:
    """The arguments that replace what the implementation declares."""
    meant = resolve(arithmetic)
    found = [f"arithmetic={_preset(meant)}"] if meant is not None else []
    if conventions is not None:
        default = vars(Conventions())
        given = (f"{name}={literal(value)}" for name, value in vars(conventions).items() if value != default[name])
        found.append(f"conventions=oracles.Conventions({', '.join(given)})")
    return found


def _preset(a: Arithmetic) -> str:
    """An arithmetic as the preset that differs in the fewest fields, with those replaced; its name does not matter."""

    def differing(known: Arithmetic) -> dict[str, str]:
        return {name: literal(x) for name, x in vars(a).items() if name != "name" and x != getattr(known, name)}

    with suppress(ValueError):
        if preset(a.name) == a:
            return literal(a.name)
    known = min(PRESETS, key=lambda each: len(differing(each)))
    changed = ", ".join(f"{name}={x}" for name, x in differing(known).items())
    return f"dataclasses.replace(oracles.preset({literal(known.name)}), {changed})" if changed else literal(known.name)


def _text(
    function: str,
    what: str,
    implementation: tuple[list[str], list[str], str],
    case: Mapping[str, Any],
    named: list[str],
) -> str:
    """The whole of it: what is imported, the implementation, the arrays of the case, and the call
    of a function of `properties`.
    """
    imports, bound, name = implementation
    setup, given = _case(case)
    call = f"properties.{function}({', '.join([literal(what), name, *(f'{key}={x}' for key, x in given.items()), *named])})"
    text = "\n".join([*setup, call])
    usual = [f"import {name}" for name in ("base64", "dataclasses", "zlib") if f"{name}." in text]
    arrays = ["import numpy as np", ""] if "np." in text else []
    ours = "oracles, properties" if "oracles." in call else "properties"
    return "\n".join(
        [*usual, *([""] if usual else []), *arrays, f"from attnspec import {ours}", *imports, "", *bound, text, ""]
    )


def _implementation(target: str, pick: str, case: Mapping[str, Any]) -> tuple[list[str], list[str], str]:
    """The lines that import the implementation, those that make it, and the expression that it then is."""
    if not target:
        return [], ["implementation = ...  # the implementation under test"], "implementation"
    at = location_of(target)
    attribute, first = at.attribute, at.attribute.split(".")[0]
    imports = ["import sys", "", f"sys.path.insert(0, {literal(at.folder)})"] if at.folder else []
    imports += [f"from {at.module} import {first}" if attribute else f"import {at.module} as implementation"]
    name = pick or attribute or "implementation"
    if not pick and first not in {*case, "np", "properties", "base64", "zlib"}:
        return imports, [], name
    return imports, [f"implementation = {name}"], "implementation"


def _case(case: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The lines that build a case's arrays, and the expression that each entry then is."""
    setup: list[str] = []
    given: dict[str, str] = {}
    for key, x in case.items():
        if not isinstance(x, np.ndarray) or keyword.iskeyword(key) or not key.isidentifier():
            given[key] = literal(x)
            continue
        setup += _array(key, x)
        given[key] = key
    return setup, given


def _array(name: str, x: Any) -> list[str]:
    """The lines that build an array: in full, by the entries that differ from most, or packed."""
    written = literal(x) if x.size <= _IN_FULL else ""
    if written and "\n" not in written:
        return [f"{name} = {written}"]
    values, counts = np.unique(x, return_counts=True)
    common = values[counts.argmax()]
    differ = ~((x == common) | ((x != x) & (common != common))) | (
        np.signbit(x) != np.signbit(common) if x.dtype.kind == "f" else False
    )
    if 4 * differ.sum() <= x.size and differ.sum() < (written.count("\n") if written else _IN_FULL + 1):
        return [
            f"{name} = np.full({x.shape}, {literal(common)}{_dtype(x)})",
            *(f"{name}[{', '.join(map(str, index))}] = {literal(x[tuple(index)])}" for index in np.argwhere(differ)),
        ]
    if written:
        return [f"{name} = {written}"]
    if x.size <= _LONG and len(written := literal(x)) <= _LONG:
        return [f"{name} = {written}"]
    packed = base64.b85encode(zlib.compress(np.ascontiguousarray(x).tobytes(), 9)).decode()
    lines = [f'    b"{packed[start : start + _WIDTH]}"' for start in range(0, len(packed), _WIDTH)]
    unpacked = f"zlib.decompress(base64.b85decode({name}))"
    return [
        f"{name} = (",
        *lines,
        ")",
        f"{name} = np.frombuffer({unpacked}, {str(x.dtype)!r}).reshape({x.shape}).copy()",
    ]


def literal(x: Any) -> str:
    """A value as Python with `np`, exactly; arrays row by row."""
    if isinstance(x, np.ndarray):
        if x.size == 0:
            return f"np.zeros({x.shape}{_dtype(x)})"
        return f"np.array({_rows(x.tolist())}{_dtype(x)})"
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float) and not np.isfinite(x):
        return "np.nan" if x != x else "np.inf" if x > 0 else "-np.inf"
    if isinstance(x, list):
        return f"[{', '.join(map(literal, x))}]"
    if isinstance(x, tuple):
        return f"({', '.join(map(literal, x))}{',' if len(x) == 1 else ''})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(value)}' for key, value in x.items())}}}"
    if is_dataclass(x):
        return (
            f"oracles.{type(x).__name__}({', '.join(f'{field}={literal(value)}' for field, value in vars(x).items())})"
        )
    return f'"{x}"' if isinstance(x, str) and x.isprintable() and '"' not in x and "\\" not in x else repr(x)


def _dtype(x: Any) -> str:
    return "" if x.dtype == np.float64 or (x.dtype == np.bool_ and x.size) else f", dtype={str(x.dtype)!r}"


def _rows(nested: Any, indent: str = "    ") -> str:
    """Nested lists on one line where they fit, else one row on each."""
    flat = literal(nested)
    if len(flat) <= _WIDTH - len(indent) or not isinstance(nested, list):
        return flat
    if not isinstance(nested[0], list):
        lines = textwrap.wrap(flat[1:-1], _WIDTH - len(indent), break_long_words=False)
        return "[\n" + "".join(f"{indent}{line}\n" for line in lines) + indent[4:] + "]"
    return "[\n" + "".join(f"{indent}{_rows(row, indent + '    ')},\n" for row in nested) + indent[4:] + "]"
