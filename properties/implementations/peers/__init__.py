"""Released libraries under test, in the environment that `make peers` makes of `constraints.txt`, where each version is pinned.

    library               a library's version, and why it cannot be run here
    jax_arrays            what the adapters of JAX' libraries share
    jax_attention, flax_attention, equinox_layers, haiku_attention, keras_attention, keras_hub_positions, mlx_fast, onnx_rotary,
    tinygrad_attention
    transformers_rotary   transformers: the frequencies and the rotations of its models
    transformers_laws     the same, as implementations that are put to the laws
    rotary_layers         the rotary layers of torchtune, x-transformers, rotary-embedding-torch and keras-hub

`attnspec verify properties.implementations.peers:GROUPS --only jax` puts some of them to the laws. A library is imported when its adapter
is called: where it is not installed, its laws are shown as not run, and nothing else fails.
"""

from properties.contract.implementation import Implementation
from properties.implementations.peers import (
    equinox_layers,
    flax_attention,
    haiku_attention,
    jax_attention,
    keras_attention,
    keras_hub_positions,
    mlx_fast,
    onnx_rotary,
    tinygrad_attention,
    transformers_laws,
)

__all__ = ["GROUPS"]

GROUPS: dict[str, list[Implementation]] = {
    "JAX": jax_attention.IMPLEMENTATIONS,
    "Flax": flax_attention.IMPLEMENTATIONS,
    "Equinox": equinox_layers.IMPLEMENTATIONS,
    "Haiku": haiku_attention.IMPLEMENTATIONS,
    "Keras": keras_attention.IMPLEMENTATIONS,
    "keras-hub": keras_hub_positions.IMPLEMENTATIONS,
    "MLX": mlx_fast.IMPLEMENTATIONS,
    "ONNX": onnx_rotary.IMPLEMENTATIONS,
    "tinygrad": tinygrad_attention.IMPLEMENTATIONS,
    "transformers": transformers_laws.IMPLEMENTATIONS,
}
"""The libraries, and what of each is put to the laws."""
