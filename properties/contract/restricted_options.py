"""Restrictions of options and tables that the declaration `supports` names by a word: which calls
they leave out, and how a drawn call is changed to one that an implementation takes.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["RESTRICTIONS", "in_pairing", "is_causal", "one_column"]

Given = Mapping[str, Any]
"""The arguments of a call, by name."""


@dataclass(frozen=True)
class Restriction:
    """A word of `supports`.

    says    what the word says
    takes   whether an implementation takes a call, by its arguments and the pairing of channels
    fit     changes the drawn arguments of a call, by the declared features and the pairing of channels
    equal   differences of sizes that are 0
    """

    says: str
    takes: Callable[[Given, str], bool]
    fit: Callable[[dict[str, Any], Collection[str], str], None]
    equal: Collection[str] = ()


def is_causal(given: Given) -> bool:
    """Return whether a call is causal. Paged attention is causal by default."""
    is_default = "block_table" in given and given["causal"] is None
    return given.get("causal", True) is True or is_default


def one_column(table: Any, pairing: str) -> Any:
    """Return the columns of a table, one for each pair of channels."""
    pairs = table.shape[-1] // 2
    return np.ascontiguousarray(table[..., :pairs] if pairing == "half" else table[..., : 2 * pairs : 2])


def in_pairing(table: Any, own: str, wanted: str) -> Any:
    """Return a table with the columns of the pairs of `own` at both channels of the pairs of `wanted`."""
    changed, pairs = table.copy(), table.shape[-1] // 2
    both = (
        (slice(pairs), slice(pairs, 2 * pairs))
        if wanted == "half"
        else (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    )
    for channels in both:
        changed[..., channels] = one_column(table, own)
    return changed


def _doubled(table: Any, pairing: str) -> Any:
    """Return a table in which the second channel of each pair has the column of the first one."""
    return in_pairing(table, pairing, pairing)


def _window(given: Given) -> Any:
    """Return the two sides of the window of a call; None without one. A cache's window is a length."""
    window = given.get("window")
    return window if isinstance(window, tuple) else None


def _equal_sides(given: dict[str, Any], features: Collection[str], pairing: str) -> None:
    if window := _window(given):
        given["window"] = (window[0], window[0])


def _causal_or_open(given: dict[str, Any], features: Collection[str], pairing: str) -> None:
    if not _window(given) or is_causal(given):
        return
    if "block_table" in given:
        given["causal"] = None
    elif "causal" in features:
        given["causal"] = True
    else:
        given["window"] = None


def _paired_tables(given: dict[str, Any], features: Collection[str], pairing: str) -> None:
    given |= {name: _doubled(given[name], pairing) for name in ("cos", "sin") if name in given}


def _own_context(given: dict[str, Any], features: Collection[str], pairing: str) -> None:
    given |= {"context": given["x"].copy()} if "context" in given else {}


RESTRICTIONS = {
    "equal windows": Restriction(
        "It takes windows with equal sides, such as (2, 2), and open ones.",
        lambda given, pairing: not (window := _window(given)) or window[0] == window[1],
        _equal_sides,
    ),
    "causal windows": Restriction(
        "It takes a window only together with causality.",
        lambda given, pairing: not _window(given) or is_causal(given),
        _causal_or_open,
    ),
    "half tables": Restriction(
        "It takes tables of cosines and sines with one column for each pair of channels.",
        lambda given, pairing: all(
            np.array_equal(given[name], _doubled(given[name], pairing)) for name in ("cos", "sin") if name in given
        ),
        _paired_tables,
    ),
    "context is x": Restriction(
        "It takes layers whose context is x.",
        lambda given, pairing: "context" not in given or np.array_equal(given["context"], given["x"], equal_nan=True),
        _own_context,
        equal=("n_k_minus_n_q", "context_dim_minus_model_dim"),
    ),
}
"""The restrictions, by their words."""
