"""Latent attention in NumPy: a part of the reference. `properties.bugs.reference` explains steps."""

from typing import Any

from oracles.ball import Array
from properties.bugs.reference_attention import attention

__all__ = ["latent_attention", "latent_keys", "latent_values"]


def latent_keys(latent: Array, value_dim: int) -> Array:
    """Return the keys of the only key head: all channels of the latent rows."""
    return latent[..., None, :, :]


def latent_values(latent: Array, value_dim: int) -> Array:
    """Return the values of the only key head: the first channels of the latent rows."""
    return latent[..., None, :, :value_dim]


def latent_attention(q: Array, latent: Array, value_dim: int, scale: float, **options: Any) -> tuple[Array, Array]:
    """Return attention's output and log-sum-exp over latent rows."""
    keys, values = latent_keys(latent, value_dim), latent_values(latent, value_dim)
    return attention(q, keys, values, scale=scale, **options)
