"""The catalogue of known bugs: executable, cited, and explained. It scores the laws, and it diagnoses who fails them."""

from properties.bugs import attention, conduct, layout, learned, memory, offsets, positional, rope, rotary
from properties.bugs.bug import Bug

__all__ = ["CATALOGUE", "Bug"]

_MODULES = (attention, positional, learned, rope, offsets, rotary, conduct, memory, layout)

CATALOGUE: dict[str, Bug] = {bug.id: bug for module in _MODULES for bug in module.bug.bugs}
