"""Reads conventions from the command line, such as rope_pairing=half."""

from collections.abc import Iterable
from typing import Any

from oracles import Conventions
from oracles.spelling import did_you_mean

__all__ = ["parsed"]


def parsed(texts: Iterable[str]) -> dict[str, Any]:
    """Return fields of `Conventions` with their values from texts such as "rope_pairing=half".

    If a field occurs twice, the last value counts. Raises ValueError, with a sentence, for an
    unknown field or value.
    """
    default = vars(Conventions())
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        field = name.strip().replace("-", "_")
        if field not in default:
            listed = f"The conventions are {', '.join(default)}."
            raise ValueError(f"Unknown convention {name!r}.{did_you_mean(name, default, listed)}")
        found[field] = _number(field, value) if isinstance(default[field], float) else value.strip().replace("-", "_")
    Conventions(**found)
    return found


def _number(field: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(
            f"{field}={value!r}, but should be a number, as {field}={vars(Conventions())[field]:g}."
        ) from None
