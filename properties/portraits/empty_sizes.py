"""Finds the sizes of 0 at which an operation returns something else than its definition says.

Many kernels that check nothing return 0 or memory there. A portrait declares them as kernels that
take positive sizes, and says so.
"""

from collections.abc import Iterator
from contextlib import suppress

from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operation import Operation
from properties.contract.results import BrokenError, Call, is_right
from properties.portraits.inference import Calls
from properties.strategies.plain_calls import plain_call

__all__ = ["wrong_empty_sizes"]

_NAMES = ("head_dim", "n_k", "n_q", "seq_len")


def wrong_empty_sizes(implementation: Implementation, operation: Operation, calls: Calls) -> Iterator[str]:
    """Yield the names of the sizes that the implementation takes to be 0, and for which its results
    are then outside their error limits. A trial call whose results are right needs no other call.
    """
    caller = Caller(implementation, operation.name, calls.count)
    number_type = implementation.resolved_arithmetic.inputs.name
    known = [made for made in calls.made if made.number_type == number_type]

    def returns(call: Call) -> bool | None:
        """Whether the results of a call are right; None if the definition refuses it."""
        with suppress(ValueError):
            return is_right(call, caller.expected(operation, call.arguments))
        return None

    for name in _NAMES:
        made = (one for one in known if operation.sizes(one.arguments).get(name) == 0)
        if any(returns(Call(operation.name, one.arguments, "contiguous", one.results)) for one in made):
            continue
        arguments = plain_call(operation, implementation, {name: 0})
        if arguments is None or operation.sizes(arguments).get(name) != 0 or not calls.left:
            continue
        with suppress(BrokenError):
            caller.watch(operation.name, arguments)
            if returns(caller.calls[-1]) is False:
                yield name
