"""The catalogue of known bugs: executable, cited, and explained. It scores the laws, and it diagnoses who fails them."""

from properties.bugs import (
    attention,
    backward,
    common_mistakes,
    conduct,
    gradients,
    grouped,
    layout,
    learned,
    lookups,
    masked_tiles,
    masks,
    memory,
    multi_head,
    multi_head_derivatives,
    offsets,
    other_promises,
    positional,
    rope,
    rotary,
    softmax,
    softmax_gradients,
    tables,
    tangents,
    tiles,
)
from properties.bugs.bug import Bug

__all__ = ["CATALOGUE", "Bug"]

_MODULES = (
    *(attention, masks, tiles, masked_tiles, grouped, softmax, softmax_gradients, multi_head),
    *(multi_head_derivatives, gradients, backward, tangents),
    *(positional, learned, rope, common_mistakes, offsets, rotary, tables, lookups, conduct, memory, layout, other_promises),
)

CATALOGUE: dict[str, Bug] = {bug.id: bug for module in _MODULES for bug in module.bug.bugs}
