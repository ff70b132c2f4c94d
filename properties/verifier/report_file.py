"""Reports read from JSON: what `attnspec verify --json` wrote, validated by report.schema.json, and
by a sentence refused otherwise.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator, ValidationError

__all__ = ["SCHEMA", "array", "read"]

SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("report.schema.json").read_text("utf-8"))
"""The JSON Schema of a report."""

_LARGEST = (
    2**28
)  # bytes that are read: the reports of all implementations that come with attnspec have a twentieth of them
_WRITTEN = "but should be what `attnspec verify --json` writes"
_TYPES = {
    **{"object": "an object", "array": "an array", "string": "a string", "boolean": "true or false"},
    **{"number": "a number", "integer": "a whole number", "null": "null"},
}


def read(file: Path) -> dict[str, Any]:
    """A report that `attnspec verify --json` wrote. Raises ValueError, a sentence, for anything else."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST + 1)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
    if len(text) > _LARGEST:
        raise ValueError(f"{file} has more than {_LARGEST >> 20} MiB, {_WRITTEN}.")
    try:
        report: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is no JSON, {_WRITTEN}.") from error
    if wrong := next(_wrong(report), ""):
        raise ValueError(f"{file} is no report of version {SCHEMA['properties']['version']['const']}: {wrong}.")
    return report  # type: ignore[no-any-return]


def array(x: Any) -> Any:
    """The array that JSON has as lists, with NaN and ±∞ as strings; anything else as it is, a
    window with an open side as a pair. Raises ValueError for lists that are none."""
    if not isinstance(x, list):
        return x
    if len(x) == 2 and None in x and all(side is None or type(side) is int for side in x):
        return tuple(x)
    found = np.array(x)
    if found.dtype.kind not in "biufU":
        raise ValueError("Its entries are no numbers.")
    return found.astype(np.float64) if found.dtype.kind == "U" else found


def _wrong(report: Any) -> Iterator[str]:
    """What is wrong with a report, the version first, then what is nearest to the top."""
    errors = _validator().iter_errors(report)
    yield from map(
        _said, sorted(errors, key=lambda e: (list(e.path) != ["version"], e.validator != "required", len(e.path)))[:1]
    )
    told = [(f"causes[{place}].example", cause["example"]) for place, cause in enumerate(report["causes"])]
    told += [
        (f"outcomes[{place}].violation", o["violation"])
        for place, o in enumerate(report["outcomes"])
        if "violation" in o
    ]
    for where, violation in told:
        for name, x in violation["counterexample"].items():
            try:
                array(x)
            except ValueError:
                yield f"{_path([where, 'counterexample', name])} is no array of numbers"


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(SCHEMA)


def _said(error: ValidationError) -> str:
    """An error of jsonschema as the end of a sentence, which shows little of what was given."""
    value: Any = error.validator_value
    given: Any = error.instance
    place = _path(["it", *error.absolute_path])
    if error.validator == "required":
        missing = next(key for key in value if key not in given)
        return f"{place} has no {missing!r}"
    if error.validator == "type":
        should = " or ".join(_TYPES[name] for name in ([value] if isinstance(value, str) else value))
    elif error.validator == "enum":
        should = "one of " + ", ".join(value)
    elif error.validator in ("minimum", "maximum"):
        should = f"at {'least' if error.validator == 'minimum' else 'most'} {value:.17g}"
    elif error.validator == "minItems":
        should = f"longer: it has fewer than {value}"
    elif error.validator == "pattern":
        should = "a number, " + value.strip("^()$").replace("|", " or ")
    else:  # "const"
        should = f"{value}"
    return f"{place} is {_shown(given)}, but should be {should}"


def _path(keys: Any) -> str:
    """Where something is: "outcomes[3].status"; "it" is the report."""
    first, *rest = keys
    found = "".join(
        f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"
        for key in rest
    )
    return found.removeprefix(".") if first == "it" and rest else f"{first}{found}"


def _shown(x: Any) -> str:
    """A value in short."""
    if isinstance(x, dict | list):
        return _TYPES["object" if isinstance(x, dict) else "array"]
    text = json.dumps(x)
    return text if len(text) <= 60 else f"{text[:56]} …"
