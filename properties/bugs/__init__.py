"""The catalogue of known bugs: executable, cited, and explained. It scores the laws, and it diagnoses who fails them."""

from properties.bugs import attention
from properties.bugs.bug import Bug

__all__ = ["CATALOGUE", "Bug"]

CATALOGUE: dict[str, Bug] = {bug.id: bug for module in (attention,) for bug in module.bug.bugs}
