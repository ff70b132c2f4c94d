"""The rotary frequencies and rotations of transformers, by the rotary modules of its models, which
need a configuration and no weights.

A module keeps `inv_freq` and `attention_scaling`, and computes tables from position_ids. The
function `apply_rotary_pos_emb` of its file rotates by these tables.
"""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spec.extended.released import Released

__all__ = ["found", "frequencies", "parameters_of", "rotary", "rotated"]

Array = NDArray[np.float64]
NAMES = {
    "llama": "Llama",
    "gemma": "Gemma",
    "gpt_neox": "GPTNeoX",
    "gemma3": "Gemma3Text",
    "deepseek_v3": "DeepseekV3",
    "qwen2": "Qwen2",
    "gpt_oss": "GptOss",
    "phi3": "Phi3",
    "gemma4": "Gemma4Text",
    "qwen2_vl": "Qwen2VLText",
    "qwen3_vl": "Qwen3VLText",
}
"""The names of the models' configuration classes without the suffix `Config`."""
ROTARY = NAMES | {"gemma3": "Gemma3", "qwen2_vl": "Qwen2VL"}
"""The names of the rotary modules' classes without the suffix `RotaryEmbedding`."""
LAYER = "full_attention"
BY_LAYER = ("gemma3", "gemma4")
"""The models with separate rotary parameters for each type of layer."""


def parameters_of(model: Released) -> dict[str, Any]:
    """The `rope_parameters` of a model's configuration."""
    share = {} if model.rotary_dim is None else {"partial_rotary_factor": model.rotary_dim / model.head_dim}
    axes = {} if model.sections is None else {"mrope_section": list(model.sections)}
    return {"rope_type": model.kind, "rope_theta": model.base} | share | axes | model.parameters


def rotary(model: Released) -> Any:
    """The model's rotary module, for a configuration of one layer and one head."""
    parameters = parameters_of(model)
    widths = {"head_dim": model.head_dim, "qk_rope_head_dim": model.head_dim, "global_head_dim": model.head_dim}
    kept = {"deepseek_v3": ("qk_rope_head_dim",), "gemma4": ("head_dim", "global_head_dim")}.get(
        model.module, ("head_dim",)
    )
    if model.kind == "longrope":
        kept = (*kept, "original_max_position_embeddings")
    config = getattr(import_module(f"transformers.models.{model.module}"), f"{NAMES[model.module]}Config")(
        hidden_size=model.head_dim,
        num_attention_heads=1,
        num_key_value_heads=1,
        num_hidden_layers=1,
        layer_types=[LAYER],
        max_position_embeddings=model.max_position_embeddings,
        rope_parameters={LAYER: parameters} if model.module in BY_LAYER else parameters,
        **{name: value for name, value in (widths | model.parameters).items() if name in kept},
    )
    return found(model.module, f"{ROTARY[model.module]}RotaryEmbedding")(config)


def frequencies(model: Released, length: int) -> tuple[Array, float]:
    """(inv_freq, attention_factor) of the module after a call with a sequence of that length."""
    module, prefix = rotary(model), f"{LAYER}_" if model.module in BY_LAYER else ""
    _tables(model, module, np.array([length - 1]))
    return getattr(module, f"{prefix}inv_freq").double().numpy(), float(getattr(module, f"{prefix}attention_scaling"))


def rotated(model: Released, x: NDArray[np.float32], positions: NDArray[np.int64]) -> Array:
    """x, (rows, head_dim), rotated at positions (rows,), or (3, rows) for a model with three axes.

    DeepSeek pairs adjacent channels, and returns the first channels of all pairs before the second
    channels; this function puts them back in their places.
    """
    import torch

    cos, sin = _tables(model, rotary(model), positions)
    batch = torch.from_numpy(x)[None, None]
    name = "apply_rotary_pos_emb_interleave" if model.module == "deepseek_v3" else "apply_rotary_pos_emb"
    apply = found(model.module, name)
    out = apply(batch, cos, sin) if model.module == "gemma4" else apply(batch, batch, cos, sin)[0]
    rows: Array = out[0, 0].double().numpy()
    return np.stack(np.split(rows, 2, axis=-1), axis=-1).reshape(rows.shape) if model.module == "deepseek_v3" else rows


def _tables(model: Released, module: Any, positions: NDArray[np.int64]) -> Any:
    """(cos, sin) of the module for a batch of one sequence."""
    import torch

    by_layer = (LAYER,) if model.module in BY_LAYER else ()
    ids = torch.from_numpy(positions)[None] if positions.ndim == 1 else torch.from_numpy(positions)[:, None]
    if model.sections is not None and positions.ndim == 1:
        ids = ids.expand(3, 1, -1)
    return module(torch.zeros(1), ids, *by_layer)


def found(module: str, name: str) -> Any:
    """The object of this name in a model's file."""
    return getattr(import_module(f"transformers.models.{module}.modeling_{module}"), name)
