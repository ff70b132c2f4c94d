"""Causal attention of queries and keys that are first rotated by their positions, for caches that
rotate their inputs.

The rotated queries and keys are intervals value ± radius. Their radius is the error of the
certified value, or the error limit if an arithmetic is given. The result encloses the attention of
all numbers in these intervals.
"""

from typing import Any, Unpack

from oracles.attention_arguments import checked
from oracles.enclosure import Enclosure
from oracles.error_analysis import ball_attention
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.scores import Inputs, operand
from oracles.judging import Balls
from oracles.options import AnswerOptions, FeatureOptions, takes
from oracles.rotary.embeddings import rope


@takes(FeatureOptions)
def rotated_attention(q: Any, k: Any, v: Any, **options: Unpack[FeatureOptions]) -> tuple[Enclosure, Enclosure]:
    """Return the output and the log-sum-exp of causal attention, after key j is rotated by position
    j and query i by position offset + i. The results are `Enclosure`s (value ± radius), computed in
    float64.

    Shapes, edge cases and errors are as in `oracles.attention`, and the rotation is as in
    `oracles.rope`. The offset is an int of at least 0.
    """
    offset = options["offset"] or 0
    given = AnswerOptions(arithmetic=options["arithmetic"], conventions=options["conventions"])
    call = checked(q, k, v, {**options, "offset": offset, "causal": True, "method": "fast"})

    def fast(setting: Setting) -> Balls:
        query, key = rope(q, offset, **given), rope(k, 0, **given)
        queries = operand(call.heads.fold(query.mid), call.heads.fold(query.rad))
        inputs = Inputs(queries, operand(key.mid, key.rad), operand(call.v))
        return ball_attention.forward(inputs, setting)

    out, lse = call.evaluated(fast, lambda: fast(call.setting), of_rows=2, averages=True)
    return out, call.of_lse(lse)
