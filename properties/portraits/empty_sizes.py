"""Finds the sizes of 0 at which an operation returns something else than its definition says.

Many kernels that check nothing return 0 or memory there. A portrait declares them as kernels that
take positive sizes, and says so.
"""

from collections.abc import Iterator

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
    are then outside their error limits.
    """
    number_type = implementation.resolved_arithmetic.inputs.name
    known = [made for made in calls.made if made.number_type == number_type]
    for name in _NAMES:
        made = next((made for made in known if operation.sizes(made.arguments).get(name) == 0), None)
        arguments = made.arguments if made else plain_call(operation, implementation, {name: 0})
        if arguments is None or operation.sizes(arguments).get(name) != 0 or not (made or calls.left):
            continue
        caller = Caller(implementation, operation.name, calls.count)
        try:
            if made is None:
                caller.watch(operation.name, arguments)
            call = Call(operation.name, arguments, "contiguous", made.results) if made else caller.calls[-1]
            expected = caller.expected(operation, arguments)
        except (BrokenError, ValueError):  # the kernel or the definition refuses the call
            continue
        if not is_right(call, expected):
            yield name
