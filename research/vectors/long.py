"""Long cases, given by formulas: 131072 keys with a few that share the weight, and positions to
2²⁰.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from properties.contract.operations import OPERATIONS
from properties.vectors.formulas import Formula

__all__ = ["LONG", "Long"]

_N = 131072
_SDPA, _ATTENTION = "scaled_dot_product_attention", "attention"


@dataclass(frozen=True)
class Long:
    """A long case of an operation: a comment, and its arguments by name; arrays are formulas."""

    operation: str
    comment: str
    given: Mapping[str, Any]

    def arguments(self) -> tuple[Any, ...]:
        """The arguments, in every format."""
        values_given = (self.given.get(parameter) for parameter in OPERATIONS[self.operation].parameters)
        return tuple(x.array() if isinstance(x, Formula) else x for x in values_given)


def _keys(width: int, places: tuple[int, ...], lead: tuple[int, ...] = ()) -> Formula:
    """Keys whose first channel puts them far below those at some places, for queries whose first channel is 8."""
    rows = {
        place: (0.0, *(((5 * place + 3 * channel) % 31 - 15) / 16 for channel in range(1, width))) for place in places
    }
    return Formula((*lead, _N, width), (59, 31, 7), -32.0, rows)


def _queries(n: int, width: int, lead: tuple[int, ...] = ()) -> Formula:
    return Formula((*lead, n, width), (17, 29, 3), 8.0)


def _values(width: int, lead: tuple[int, ...] = ()) -> Formula:
    return Formula((*lead, _N, width), (71, 13, 11))


_EDGES = (0, 1023, 32767, 32768, 65535, 65536, _N - 1)
LONG: tuple[Long, ...] = (
    Long(_SDPA, "Keys at both ends, and where indices of 15 and 16 bits end, share the weight.",
         {"q": _queries(2, 4), "k": _keys(4, _EDGES), "v": _values(3)}),
    Long(_SDPA, "The last key alone has all the weight.",
         {"q": _queries(1, 8), "k": _keys(8, (_N - 1,)), "v": _values(4)}),
    Long(f"{_SDPA}_jvp", "Keys at both ends share the weight; only values have a tangent.",
         {"q": _queries(1, 4), "k": _keys(4, _EDGES), "v": _values(2),
          "dq": Formula((1, 4), (0, 0, 63)), "dk": Formula((_N, 4), (0, 0, 63)), "dv": Formula((_N, 2), (23, 5, 1))}),
    Long(_ATTENTION, "Decoding: four queries after 131068 keys, causal; two heads share the keys.",
         {"q": _queries(4, 4, (2,)), "k": _keys(4, (0, 65536, _N - 4, _N - 3, _N - 2, _N - 1), (1,)),
          "v": _values(2, (1,)), "causal": True, "offset": _N - 4}),
    Long(_ATTENTION, "A window of 65537 keys ends beside a key with all the weight.",
         {"q": _queries(2, 4, (1,)), "k": _keys(4, (65534, 65535, 65536, _N - 1), (1,)), "v": _values(2, (1,)),
          "window": (65536, None), "causal": True, "offset": _N - 2}),
    Long(_ATTENTION, "Causal without an offset: of 131072 keys the first query reads one, the second two.",
         {"q": _queries(2, 4, (1,)), "k": _keys(4, (1, 2, _N - 1), (1,)), "v": _values(2, (1,)), "causal": True}),
    Long("rope", "Positions on both sides of 131072.", {"x": Formula((4, 8), (37, 11, 5)), "start_pos": _N - 2}),
    Long("rope", "Positions on both sides of 2²⁰.", {"x": Formula((4, 8), (41, 7, 9)), "start_pos": 2**20 - 2}),
    Long("sinusoidal_positional_encoding", "Positions on both sides of 131072.",
         {"seq_len": 4, "embed_dim": 8, "start_pos": _N - 2}),
)  # fmt: skip
"""The cases, in the order of their numbers within each operation."""
