"""The catalogue of known bugs: executable, cited, and explained. It scores the laws, and it diagnoses who fails them."""

from properties.bugs import (
    attention,
    backward,
    conduct,
    first_versions,
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
    positional,
    promised,
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
    *(positional, learned, rope, first_versions, offsets, rotary, tables, lookups, conduct, memory, layout, promised),
)

CATALOGUE: dict[str, Bug] = {bug.id: bug for module in _MODULES for bug in module.bug.bugs}
