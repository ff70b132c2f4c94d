"""TorchLean's definitions of attention and positional encodings, transcribed literally into Python
that runs.

One module per Lean file, in the file's order, under Lean's names in snake_case:

    context                  the scalars a definition runs over: REAL64, REAL32, FLOAT64, FLOAT32, MPF, ARB, ARB_SERIES
    lean                     the transcribed revision, and the part of a definition that Lean's types state
    scope                    the scalar that a definition is being evaluated over
    signature                how annotations state shapes and types, and what is refused
    tensor_core              tensors, and how definitions make them
    tensor_ops               elementwise operations
    tensor_linalg            the product of matrices
    tensor_reduction_shape   sums, transposes, reshapes
    activation               softmax
    positional_encoding      learned, sinusoidal and rotary encodings
    attention                masks, attention, its derivatives, multi-head attention
    corrected                the definitions as a revision corrects them
    errata                   where a literal definition breaks a law of its own page, with a witness and a correction
    extended                 our definitions, not TorchLean's, of attention with today's features and rotary frequencies

Start at `attention`. Every definition links to its declaration in Lean. A definition takes one
sequence at a time, and may be slow. It evaluates the same operations as Lean, in Lean's order.
"""

from spec.context import ARB, ARB_SERIES, FLOAT32, FLOAT64, MPF, REAL32, REAL64, SCALARS, Context
from spec.tensor_core import derivative, taylor, tensor, value

__all__ = [
    "ARB",
    "ARB_SERIES",
    "FLOAT32",
    "FLOAT64",
    "MPF",
    "REAL32",
    "REAL64",
    "SCALARS",
    "Context",
    "derivative",
    "taylor",
    "tensor",
    "value",
]
