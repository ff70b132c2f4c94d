"""Released libraries under test, in the environment that `make peers` makes from `constraints.txt`,
which pins each version.

    library               the version of a library, and the reason if it cannot run here
    jax_arrays            helpers that the adapters of JAX's libraries share
    narrow                the roundings of PyTorch's kernels and of float32 rotations in 16 bits
    transformers_models   whole decoders: paths of one model that must agree
    transformers_rotary   the frequencies and the rotations of transformers' models
    transformers_laws     these frequencies and rotations as implementations under the laws
    rotary_layers         the rotary layers of six libraries, with all their kinds of frequencies

Each other module is the adapter of the library, or of the part of it, that its name says.

`attnspec verify systems.peers:GROUPS --only jax` checks the laws of some of them. The first
call of an adapter imports its library. If the library is not installed, the report shows its laws
as not run, and all other laws run.
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
"""The libraries, each with its implementations under test."""
