"""The exact results of latent attention: those of attention with one key head."""

from research.benchmarks.exact import attention
from research.benchmarks.exact.reading import Given
from spec.tensor_core import Array as Balls

__all__ = ["latent_attention"]


def latent_attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse)."""
    shared = {name: value for name, value in given.items() if name not in ("latent", "value_dim")}
    keys = given["latent"][..., None, :, :]
    return attention.attention({**shared, "k": keys, "v": keys[..., : int(given["value_dim"])]})
