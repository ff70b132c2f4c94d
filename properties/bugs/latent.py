"""Known bugs of latent attention: wrong keys, wrong values, and a wrong scale."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_latent as right
from properties.bugs.bug import LATENT, Register

bug = Register(seen=LATENT, law="latent attention is within its error limit")


@bug.in_step(
    "latent_values",
    effect="Outputs mix rotated channels into the values.",
    repair="Take the first value_dim channels.",
    origin="some caches store the rotated channels before the compressed ones",
)
def latent_values_last(latent: Array, value_dim: int) -> Array:
    """The code takes the last channels of the rows for the values."""
    return latent[..., None, :, latent.shape[-1] - value_dim :]


@bug.in_step(
    "latent_keys",
    effect="Scores ignore the positions.",
    repair="Add the product of the rotated channels to the scores.",
    origin="kernels compute the scores of compressed and of rotated channels by two products",
)
def latent_keys_without_rotated_channels(latent: Array, value_dim: int) -> Array:
    """The code leaves the rotated channels out of the scores."""
    keys = np.zeros((*latent.shape[:-2], 1, *latent.shape[-2:]))
    keys[..., :value_dim] = latent[..., None, :, :value_dim]
    return keys


@bug.in_step(
    "latent_keys",
    effect="Scores ignore what the tokens say.",
    repair="Add the product of the compressed channels to the scores.",
    origin="kernels compute the scores of compressed and of rotated channels by two products",
)
def latent_keys_of_rotated_channels_only(latent: Array, value_dim: int) -> Array:
    """The code overwrites the scores of the compressed channels with those of the rotated ones."""
    keys = latent[..., None, :, :].copy()
    keys[..., :value_dim] = 0
    return keys


@bug.in_step(
    "latent_keys",
    effect="All elements of a batch attend to the keys of the first one.",
    repair="Advance the latent rows with the batch.",
    origin="the latent rows have no axis of heads, so their strides differ from those of q",
)
def latent_rows_of_the_first_problem(latent: Array, value_dim: int) -> Array:
    """The code reads the keys of the first element of the batch for all elements."""
    first = latent[(slice(0, 1),) * (latent.ndim - 2)]
    return np.broadcast_to(first, latent.shape)[..., None, :, :]


@bug.in_operation(
    LATENT,
    effect="The softmax is too flat, because the latent rows are wider than the heads of the model.",
    repair="Use the scale that is given: 1/√(d_nope + r).",
    citations="ollama/ollama#13893; vllm-project/vllm#48652; NVIDIA/Megatron-LM#1501",
)
def latent_scale_of_the_latent_width(
    q: Array, latent: Array, value_dim: int, scale: float, **options: Any
) -> tuple[Array, Array]:
    """The code computes the scale from the width of the latent rows."""
    return right.latent_attention(q, latent, value_dim, max(latent.shape[-1], 1) ** -0.5, **options)
