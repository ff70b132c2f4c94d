"""The law of contracts in bits: what an adapter declares about the bits of its outputs is true."""

from typing import Any

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.inspection.bits import bits
from properties.inspection.probe import Probe
from properties.inspection.shapes import shape_of
from properties.laws.law import Laws

law = Laws(lambda operation: ("operating points",))

_MOST_CALLS = 100


def _declares_none(implementation: Implementation) -> str:
    return "" if implementation.bits else "It declares no contract in bits (bits=)."


@law(
    *("scaled_dot_product_attention", "causal_attention", "grouped_query_attention", "attention"),
    measures=True,
    exempts=_declares_none,
    exact=True,
)
def declared_contracts_in_bits_are_kept(subject: Subject, *arguments: Any) -> None:
    """At every operating point and for each declared contract: the output of a problem has the same
    bits alone as in a larger batch, at another place of the batch, with masked keys behind its own,
    with half of its queries, with its last query alone, or in an equal call. No contract is kept if
    equal calls differ.

    The calls are not recorded: their results may be right, so no known bug explains them.
    """
    declared, probe = subject.implementation.bits, Probe(subject, _MOST_CALLS)
    shape = shape_of(OPERATIONS[subject.operation], arguments)
    changes = bits(probe, shape, declared).changes
    broken = [(contract, change) for contract, change in changes.items() if change is not None]
    for contract, change in broken:
        if contract in declared or contract == "run to run":  # no contract is kept if equal calls differ
            subject.calls.clear()
            raise BrokenError(f"{change.sentence}. The adapter declares bits={', '.join(declared)!r}.")
    if not changes.keys() & {*declared}:
        raise OutsideError("No declared contract can be tried at these sizes.")
    subject.require(True, "")
