"""Writes reports as `attnspec verify --json` does, and reads and validates them.

The schema report.schema.json says what a report contains. For a file that differs from it, the
error is one sentence.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # jsonschema loads slowly, and reports are written far more often than read
    from jsonschema import Draft202012Validator, ValidationError

__all__ = ["SCHEMA", "array", "read", "text_of"]

SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("report.schema.json").read_text("utf-8"))
"""The JSON Schema of a report."""

_MAX_BYTES = 2**28  # the report on all implementations that come with attnspec has a twentieth of that
_WRITTEN = "but should be what `attnspec verify --json` writes"
_TYPES = {
    **{"object": "an object", "array": "an array", "string": "a string", "boolean": "true or false"},
    **{"number": "a number", "integer": "a whole number", "null": "null"},
}


def text_of(data: Any, line: str = "\n") -> str:
    """Return data as JSON, with each array of numbers on one line. `line` begins a line of the value."""
    inner = f"{line} "
    if isinstance(data, dict) and data:
        items = (f"{json.dumps(key)}: {text_of(value, inner)}" for key, value in data.items())
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
    if isinstance(data, list) and data and all(isinstance(item, dict | str) for item in data):
        return f"[{inner}{f',{inner}'.join(text_of(item, inner) for item in data)}{line}]"
    return json.dumps(data, allow_nan=False)


def read(file: Path) -> dict[str, Any]:
    """Return the report in a file. Raises ValueError, with a sentence, for a file that is not a
    valid report.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
    if len(text) > _MAX_BYTES:
        raise ValueError(f"{file} has more than {_MAX_BYTES >> 20} MiB, {_WRITTEN}.")
    try:
        report: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON, {_WRITTEN}.") from error
    if mistake := next(_mistakes(report), ""):
        version = SCHEMA["properties"]["version"]["const"]
        raise ValueError(f"{file} is not a report of version {version}: {mistake}.")
    return report  # type: ignore[no-any-return]


def array(value: Any) -> Any:
    """Return the array that a report holds as nested lists, with strings for NaN and ±∞. A window
    with an open side becomes a pair. Anything else is returned unchanged.

    Raises ValueError for lists that hold something other than numbers.
    """
    if not isinstance(value, list):
        return value
    if len(value) == 2 and None in value and all(side is None or type(side) is int for side in value):
        return tuple(value)
    numbers = np.array(value)
    if numbers.dtype.kind not in "biufU":
        raise ValueError("The entries are not numbers.")
    return numbers.astype(np.float64) if numbers.dtype.kind == "U" else numbers


def _mistakes(report: Any) -> Iterator[str]:
    """Yield the mistakes in a report: first in its version, then those nearest to the top, then
    those in its arrays.
    """
    errors = _validator().iter_errors(report)
    yield from map(_sentence, sorted(errors, key=_order_of_errors)[:1])
    violations = [(f"causes[{place}].example", cause["example"]) for place, cause in enumerate(report["causes"])]
    violations += [
        (f"outcomes[{place}].violation", outcome["violation"])
        for place, outcome in enumerate(report["outcomes"])
        if "violation" in outcome
    ]
    for where, violation in violations:
        for name, value in violation["counterexample"].items():
            try:
                array(value)
            except ValueError:
                yield f"{_path([where, 'counterexample', name])} is not an array of numbers"


def _order_of_errors(error: "ValidationError") -> tuple[bool, bool, int]:
    return list(error.path) != ["version"], error.validator != "required", len(error.path)


@cache
def _validator() -> "Draft202012Validator":
    from jsonschema import Draft202012Validator

    return Draft202012Validator(SCHEMA)


def _sentence(error: "ValidationError") -> str:
    """Return the end of a sentence for an error of jsonschema. It shows only a short part of the
    file.
    """
    demanded: Any = error.validator_value
    given: Any = error.instance
    place = _path(["it", *error.absolute_path])
    if error.validator == "required":
        missing = next(key for key in demanded if key not in given)
        return f"{place} has no {missing!r}"
    if error.validator == "type":
        should = " or ".join(_TYPES[name] for name in ([demanded] if isinstance(demanded, str) else demanded))
    elif error.validator == "enum":
        should = "one of " + ", ".join(demanded)
    elif error.validator in ("minimum", "maximum"):
        should = f"at {'least' if error.validator == 'minimum' else 'most'} {demanded:.17g}"
    elif error.validator == "minItems":
        should = f"longer: it has fewer than {demanded}"
    elif error.validator == "pattern":
        should = "a number, " + demanded.strip("^()$").replace("|", " or ")
    else:  # "const"
        should = f"{demanded}"
    return f"{place} is {_shown(given)}, but should be {should}"


def _path(keys: Any) -> str:
    """Return the place of a value in a report, such as "outcomes[3].status". The report itself is
    "it".
    """
    first, *rest = keys
    path = "".join(
        f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"
        for key in rest
    )
    return path.removeprefix(".") if first == "it" and rest else f"{first}{path}"


def _shown(value: Any) -> str:
    """Return a short text for a value."""
    if isinstance(value, dict | list):
        return _TYPES["object" if isinstance(value, dict) else "array"]
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]} …"
