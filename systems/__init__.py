"""The implementations that come with attnspec, in groups that share a table."""

from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from systems import (
    batched_caches,
    caches,
    fairseq2,
    latent_attention,
    leximind,
    mpmath_witness,
    numpy_frequencies,
    numpy_tiled,
    onnx_engines,
    packed_sequences,
    paged_keys,
    positional_embeddings_jl,
    quantised_attention,
    torch_attention,
    torch_compiled,
    torch_cuda,
    torch_encoder_layer,
    torch_features,
    torch_flex,
    torch_frequencies,
    torch_multi_head,
    torch_positional,
    torch_sdpa_features,
    torchlean,
    triton_attention,
    triton_paged,
)

__all__ = ["GROUPS"]

GROUPS: dict[str, list[Implementation]] = {
    "NumPy": [Implementation("NumPy float64", REFERENCE, features=FEATURES), *numpy_tiled.IMPLEMENTATIONS],
    "mpmath": [mpmath_witness.ATTENTION, mpmath_witness.POSITIONAL],
    "PyTorch: attention": [
        *torch_attention.IMPLEMENTATIONS,
        *torch_flex.IMPLEMENTATIONS,
        *torch_compiled.IMPLEMENTATIONS,
        *torch_cuda.IMPLEMENTATIONS,
        *triton_attention.IMPLEMENTATIONS,
        *triton_paged.IMPLEMENTATIONS,
    ],
    "PyTorch: attention with its features": [*torch_features.IMPLEMENTATIONS, *torch_sdpa_features.IMPLEMENTATIONS],
    "ONNX": onnx_engines.IMPLEMENTATIONS,
    "Packed sequences": packed_sequences.IMPLEMENTATIONS,
    "Keys in pages": paged_keys.IMPLEMENTATIONS,
    "Latent attention": latent_attention.IMPLEMENTATIONS,
    "Quantised attention": quantised_attention.IMPLEMENTATIONS,
    "Caches": [*caches.IMPLEMENTATIONS, *batched_caches.IMPLEMENTATIONS],
    "PyTorch: multi-head attention": [*torch_multi_head.IMPLEMENTATIONS, *torch_encoder_layer.IMPLEMENTATIONS],
    "PyTorch: positional encodings": torch_positional.IMPLEMENTATIONS,
    "Rotations as models use them": [*torch_frequencies.IMPLEMENTATIONS, *numpy_frequencies.IMPLEMENTATIONS],
    "PositionalEmbeddings.jl": positional_embeddings_jl.IMPLEMENTATIONS,
    "LexiMind": leximind.IMPLEMENTATIONS,
    "fairseq2": fairseq2.IMPLEMENTATIONS,
    "TorchLean": torchlean.IMPLEMENTATIONS,
}
