"""Causal attention of queries and keys that are rotated by their positions first: of a cache that
rotates what it is given.

The rotation's enclosure, or its budget, is an operand with a radius: what attention makes of any
numbers within it is enclosed.
"""

from typing import Any

from oracles.arguments import Given
from oracles.attention_arguments import Window, checked
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.error_analysis import ball_attention
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.scores import operand
from oracles.judging import Balls
from oracles.rotary.embeddings import rope


def rotated_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    offset: int = 0,
    window: Window = (None, None),
    arithmetic: Given = None,
    conventions: Conventions | None = None,
) -> tuple[Enclosure, Enclosure]:
    """The output and the log-sum-exp of causal attention with key j rotated by position j and query
    i by position offset + i, enclosed.

    Shapes, edge cases and errors: as `oracles.attention`; the offset is an int from 0, and the
    rotation as `oracles.rope` has it.
    """
    p = checked(
        q, k, v, mask=mask, causal=True, scale=None, rows=None, offset=offset, window=window, arithmetic=arithmetic,
        conventions=conventions, method="fast",
    )  # fmt: skip

    def fast(setting: Setting) -> Balls:
        query, key = (
            rope(x, start, arithmetic=arithmetic, conventions=conventions) for x, start in ((q, offset), (k, 0))
        )
        queries = operand(p.heads.fold(query.mid), p.heads.fold(query.rad))
        return ball_attention.forward(queries, operand(key.mid, key.rad), operand(p.v), setting)

    out, lse = p.evaluated(fast, lambda: fast(p.setting), of_rows=2, averages=True)
    return out, p.of_lse(lse)
