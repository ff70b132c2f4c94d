"""Released libraries under test, in the environment that `make peers` makes of `constraints.txt`,
where each version is pinned.

    library               a library's version, and why it cannot be run here
    jax_arrays            what the adapters of JAX' libraries share
    narrow                what PyTorch's kernels and float32 rotations round in 16 bits
    jax_attention, flax_attention, equinox_layers, haiku_attention, keras_attention, keras_hub_positions, mlx_fast, onnx_rotary,
    tinygrad_attention, x_transformers, rotary_embedding_torch, local_attention, torchtune, diffusers, torch_geometric,
    positional_encodings, torch_paths, litgpt, whisper, mlx_lm, monai, kornia, fair_esm, ibm_fms, memory_efficient_attention, ring_attention
    transformers_attention, transformers_caches
    transformers_models   whole decoders: paths of one model that must agree
    transformers_rotary   transformers: the frequencies and the rotations of its models
    transformers_laws     the same, as implementations that are put to the laws
    rotary_layers         the rotary layers of six libraries, with every kind of frequencies that they know

`attnspec verify systems.peers:GROUPS --only jax` puts some of them to the laws. A library is
imported when its adapter is called: where it is not installed, its laws are shown as not run, and
nothing else fails.
"""

from properties.contract.implementation import Implementation
from systems.peers import (
    diffusers,
    equinox_layers,
    fair_esm,
    flax_attention,
    haiku_attention,
    ibm_fms,
    jax_attention,
    keras_attention,
    keras_hub_positions,
    kornia,
    litgpt,
    local_attention,
    memory_efficient_attention,
    mlx_fast,
    mlx_lm,
    monai,
    onnx_rotary,
    positional_encodings,
    ring_attention,
    rotary_embedding_torch,
    tinygrad_attention,
    torch_geometric,
    torch_paths,
    torchtune,
    transformers_attention,
    transformers_caches,
    transformers_laws,
    whisper,
    x_transformers,
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
    "transformers": [
        *transformers_laws.IMPLEMENTATIONS,
        *transformers_attention.IMPLEMENTATIONS,
        *transformers_caches.IMPLEMENTATIONS,
    ],
    "x-transformers": x_transformers.IMPLEMENTATIONS,
    "rotary-embedding-torch": rotary_embedding_torch.IMPLEMENTATIONS,
    "local-attention": local_attention.IMPLEMENTATIONS,
    "torchtune": torchtune.IMPLEMENTATIONS,
    "diffusers": diffusers.IMPLEMENTATIONS,
    "torch_geometric": torch_geometric.IMPLEMENTATIONS,
    "positional-encodings": positional_encodings.IMPLEMENTATIONS,
    "PyTorch": torch_paths.IMPLEMENTATIONS,
    "LitGPT": litgpt.IMPLEMENTATIONS,
    "Whisper": whisper.IMPLEMENTATIONS,
    "mlx-lm": mlx_lm.IMPLEMENTATIONS,
    "MONAI": monai.IMPLEMENTATIONS,
    "kornia": kornia.IMPLEMENTATIONS,
    "ESM": fair_esm.IMPLEMENTATIONS,
    "foundation-model-stack": ibm_fms.IMPLEMENTATIONS,
    "memory-efficient-attention": memory_efficient_attention.IMPLEMENTATIONS,
    "ring-attention": ring_attention.IMPLEMENTATIONS,
}
"""The libraries, and what of each is put to the laws."""
