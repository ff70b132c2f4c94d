"""The catalogue of known bugs. Each bug is executable, explained, and has a citation or an origin.
The catalogue shows how many bugs the laws detect, and names likely causes of a failure.
"""

from properties.bugs import (  # isort: skip
    scores, softmax, masking, tiles, multi_head, layer, features, alibi, dropout, packed, paged, latent, quantised,
    wrappers, caches, batched_caches, gradients, tangents, positions, position_ids, angles, frequencies, rotary,
    rotations, sinusoid, lookups, sequence_masks, conduct, promises, twins, edges,
)  # fmt: skip
from properties.bugs.bug import Bug

__all__ = ["CATALOGUE", "GROUPS", "Bug"]

_MODULES = (
    scores, softmax, masking, tiles, multi_head, layer, features, alibi, dropout, packed, paged, latent, quantised,
    wrappers, caches, batched_caches, gradients, tangents, positions, position_ids, angles, frequencies, rotary,
    rotations, sinusoid, lookups, sequence_masks, conduct, promises, twins, edges,
)  # fmt: skip

GROUPS: dict[str, tuple[Bug, ...]] = {module.__name__.rpartition(".")[2]: tuple(module.bug.bugs) for module in _MODULES}
"""The known bugs by topic, which is the name of their module."""

CATALOGUE: dict[str, Bug] = {bug.id: bug for bugs in GROUPS.values() for bug in bugs}
