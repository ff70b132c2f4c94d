"""What the instruments read otherwise than it should be under the declared conventions."""

import numpy as np

from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operation import Operation
from properties.inspection.measurements import measured, sentences_at
from properties.inspection.probe import Probe
from properties.inspection.shapes import shape_of
from properties.portraits.inference import Calls
from properties.strategies.plain_calls import Options, Sizes, plain_call

__all__ = ["anomalies"]

_NARROW = {"head_dim": 2, "value_dim": 2}
_SQUARE, _WIDE, _HIGH = ({**_NARROW, "n_q": n_q, "n_k": n_k} for n_q, n_k in ((6, 6), (3, 7), (7, 3)))

_MOST_CALLS = 60

_POINTS: tuple[tuple[str, Sizes, Options], ...] = (
    ("causal", _WIDE, lambda sizes: {"causal": True}),
    ("causal", _HIGH, lambda sizes: {"causal": True}),
    ("causal and an offset of 2", _WIDE, lambda sizes: {"causal": True, "offset": 2}),
    ("causal and window=(2, None)", _SQUARE, lambda sizes: {"causal": True, "window": (2, None)}),
    ("window=(2, 1)", _SQUARE, lambda sizes: {"window": (2, 1)}),
    ("causal and scale=0", _WIDE, lambda sizes: {"causal": True, "scale": 0.0}),
    ("causal and scale=-0.5", _WIDE, lambda sizes: {"causal": True, "scale": -0.5}),
    ("a sink", _WIDE, lambda sizes: {"sink": np.zeros(sizes["num_heads"])}),
    ("a bias", _WIDE, lambda sizes: {"bias": np.zeros((sizes["num_heads"], sizes["n_q"], sizes["n_k"]))}),
)
"""Options in words, the sizes, and the options: where the instruments read the operation besides its
plain calls.
"""


def anomalies(implementation: Implementation, operation: Operation, calls: Calls, until: float) -> tuple[str, ...]:
    """Return sentences on what an operation does otherwise than it should. The plain calls come
    first. Calls with options are made while some of 60 calls are left, until a sentence is found.
    """
    plain = plain_call(operation, implementation, {})
    if plain is None or not operation.takes_arrays:
        return ()
    said = measured(implementation, operation.name, plain, calls.count, until)
    for words, sizes, options in _POINTS:
        arguments = plain_call(operation, implementation, sizes, options)
        if arguments is None or said:
            continue
        probe = Probe(Caller(implementation, operation.name, calls.count), max(_MOST_CALLS - calls.number, 0), until)
        said = tuple(f"With {words}: {told}" for told in sentences_at(probe, shape_of(operation, arguments)))
    return said
