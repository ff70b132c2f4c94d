"""The chunks of a campaign, one after another in one process, without an engine.

`python -m research.campaigns.loop DATABASE` prints the seconds that they took, with which the
engines' costs are compared.
"""

import sys
import time
from pathlib import Path

from properties.bugs.reference import REFERENCE
from properties.contract.implementation import implementation_of
from properties.verifier.plan import grouped, plan
from properties.verifier.verify import examine
from research.campaigns.commands import rows

__all__ = ["main"]

_CHUNKS = """
SELECT operation, seed, substr(chunk, instr(chunk, ' cases=') + 7) FROM chunk WHERE chunk LIKE 'draw %' ORDER BY seed
"""


def main(database: str) -> int:
    """Run the chunks that are in a database, of the operations in NumPy."""
    implementation = implementation_of(REFERENCE)
    laws = {group[0].operation: group for group in grouped(plan(implementation))}
    start = time.monotonic()
    for operation, seed, cases in rows(Path(database), _CHUNKS):
        examine(laws[operation], implementation, int(cases), seed)
    print(time.monotonic() - start)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
