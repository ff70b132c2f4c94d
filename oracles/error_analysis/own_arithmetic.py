"""The arithmetic of the oracle itself: a blocked online softmax in float64."""

from dataclasses import replace

from oracles.ball import ELEMENTARY, UNDERFLOW
from oracles.formats import BINARY64, FLOAT64, Elementary

KEY_TILE = 512
"""The number of keys that the oracle reads at a time: the scores of 256 rows take 1 MiB and stay in
the second-level cache.
"""

OWN = replace(
    FLOAT64,
    name="the oracle's own",
    elementwise=replace(BINARY64, smallest_subnormal=UNDERFLOW),
    output=replace(BINARY64, smallest_subnormal=UNDERFLOW),
    exp=Elementary(ELEMENTARY, 0.0, UNDERFLOW),
    log=ELEMENTARY,
    saved_output=None,
    scale_on_inputs=None,
    rescale_block=KEY_TILE,
    rescale_slack=0.0,
    shared_weights=True,
    delta="output",
)
