"""The rotary layers of torchtune, x-transformers, rotary-embedding-torch, keras-hub, LitGPT and
IBM's foundation-model-stack, each with the parameters of its frequencies.

Each function takes rows of channels, (rows, head_dim) in float32, with positions that count from a
first position, and rotates them by its library.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spec.extended.released import RELEASED

__all__ = ["LAYERS", "Layer"]

MODELS = {model.name: model for model in RELEASED}
LONGEST = 8192
LITGPT_YARN = "YaRN slows the fast frequencies and keeps the slow ones"
KERAS_DYNAMIC = "The dynamic kind divides all frequencies by one number, at every length"
Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    """A layer under test: its library, its name there, its frequencies, its pairing, and the call.

    `length` is the length of the sequence, for kinds that depend on it. `deviates` is the title of
    the finding that says why the layer does not agree; "" for a layer that agrees.
    """

    library: str
    name: str
    arguments: dict[str, Any]
    rope_pairing: Literal["adjacent", "half"]
    rotate: Callable[[Rows, int], Any]
    length: int | None = None
    deviates: str = ""

    @property
    def frequencies(self) -> dict[str, Any]:
        """The arguments of `oracles.rotary_frequencies`."""
        return self.arguments | {"seq_len": self.length}


def _torchtune(layer: str, x: Rows, start: int, **options: Any) -> Any:
    import torch
    from torchtune.models.llama3_1 import _position_embeddings as llama3
    from torchtune.models.phi3 import _position_embeddings as phi3
    from torchtune.modules import position_embeddings as plain

    make = next(getattr(module, layer) for module in (plain, llama3, phi3) if hasattr(module, layer))
    positions = torch.arange(start, start + len(x))[None]
    rotate = make(x.shape[-1], max_seq_len=LONGEST, **options)
    return rotate(torch.from_numpy(x)[None, :, None], input_pos=positions)[0, :, 0]


def _x_transformers(x: Rows, start: int, **options: Any) -> Any:
    import torch
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    freqs, scale = RotaryEmbedding(x.shape[-1], **options)(torch.arange(start, start + len(x)))
    return apply_rotary_pos_emb(torch.from_numpy(x)[None], freqs, scale)[0]


def _rotary_embedding_torch(x: Rows, start: int, **options: Any) -> Any:
    import torch
    from rotary_embedding_torch import RotaryEmbedding

    return RotaryEmbedding(x.shape[-1], **options).rotate_queries_or_keys(torch.from_numpy(x), offset=start).detach()


def _keras_hub(x: Rows, start: int, **options: Any) -> Any:
    from keras import ops
    from keras_hub.layers import RotaryEmbedding

    return ops.convert_to_numpy(RotaryEmbedding(**options)(x[None], start_index=start)[0])


def _keras_hub_phi3(x: Rows, start: int, *, short: list[float], long: list[float]) -> Any:
    from keras import ops
    from keras_hub.src.models.phi3.phi3_rotary_embedding import Phi3SuScaledRotaryEmbedding

    layer = Phi3SuScaledRotaryEmbedding(short, long, max_sequence_length=131072, pretraining_sequence_length=4096)
    return ops.convert_to_numpy(layer(x[None], start_index=start)[0])


def _litgpt(x: Rows, start: int, **options: Any) -> Any:
    import torch
    from litgpt.model import apply_rope, build_rope_cache

    cos, sin = (table[None, start:] for table in build_rope_cache(start + len(x), x.shape[-1], **options))
    return apply_rope(torch.from_numpy(x)[None], cos, sin)[0]


def _fms(x: Rows, start: int, **options: Any) -> Any:
    import torch
    from fms.modules.positions import RotaryEmbedding

    rows = torch.from_numpy(x)[None, :, None]
    positions = torch.arange(start, start + len(x))[None]
    return RotaryEmbedding(x.shape[-1], max_seq_len=LONGEST, **options).adjusted_qk(rows, rows, positions)[0][0, :, 0]


def _layers() -> list[Layer]:
    default, llama = {"kind": "default", "head_dim": 128}, MODELS["Llama 3.1 8B"].arguments
    linear = default | {"kind": "linear", "factor": 3.0}
    yarn, phi = MODELS["DeepSeek-V3"].arguments, MODELS["Phi-3-vision 128k"].arguments
    lists = {"short": phi["short_factor"], "long": phi["long_factor"]}
    ntk = default | {"kind": "dynamic", "factor": 2.0, "max_position_embeddings": 4096}
    sharp = {name: x for name, x in yarn.items() if not name.startswith("mscale")}
    ends = {name: llama[name] for name in ("factor", "low_freq_factor", "high_freq_factor")}
    length = "original_max_position_embeddings"
    of_yarn = {name: yarn[name] for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")}
    litgpt_llama: dict[str, Any] = {"base": 500_000, "extra_config": ends | {"original_max_seq_len": llama[length]}}
    litgpt_yarn: dict[str, Any] = {"extra_config": of_yarn | {"original_max_seq_len": yarn[length]}}
    fms_llama: dict[str, Any] = {"ratio": 500_000.0, "scaling": ends | {"rope_type": "llama3", length: llama[length]}}
    keras_yarn = {"rope_type": "yarn", "scaling_factor": yarn["factor"]}
    return [
        Layer(
            "torchtune",
            "RotaryPositionalEmbeddings",
            default,
            "adjacent",
            partial(_torchtune, "RotaryPositionalEmbeddings"),
        ),
        Layer(
            "torchtune", "Llama3ScaledRoPE", llama, "adjacent", partial(_torchtune, "Llama3ScaledRoPE", base=500_000)
        ),
        Layer(
            "torchtune",
            "Phi3RotaryPositionalEmbeddings",
            default,
            "half",
            partial(_torchtune, "Phi3RotaryPositionalEmbeddings"),
        ),
        Layer("x-transformers", "RotaryEmbedding", default, "adjacent", _x_transformers),
        Layer(
            "x-transformers",
            "RotaryEmbedding, interpolation_factor",
            linear,
            "adjacent",
            partial(_x_transformers, interpolation_factor=3.0),
        ),
        Layer(
            "x-transformers",
            "RotaryEmbedding, base_rescale_factor",
            ntk,
            "adjacent",
            partial(_x_transformers, base_rescale_factor=3.0),
            8192,
        ),
        Layer("rotary-embedding-torch", "RotaryEmbedding", default, "adjacent", _rotary_embedding_torch),
        Layer(
            "rotary-embedding-torch",
            "RotaryEmbedding, interpolate_factor",
            linear,
            "adjacent",
            partial(_rotary_embedding_torch, interpolate_factor=3.0),
        ),
        Layer("keras-hub", "RotaryEmbedding", default, "half", _keras_hub),
        Layer("keras-hub", "RotaryEmbedding, linear", linear, "half", partial(_keras_hub, scaling_factor=3.0)),
        Layer(
            "keras-hub",
            "RotaryEmbedding, dynamic",
            ntk,
            "half",
            partial(_keras_hub, rope_type="dynamic", scaling_factor=2.0),
            8192,
            KERAS_DYNAMIC,
        ),
        Layer("keras-hub", "RotaryEmbedding, yarn", sharp, "half", partial(_keras_hub, **keras_yarn)),
        Layer("keras-hub", "Phi3SuScaledRotaryEmbedding, short", phi, "half", partial(_keras_hub_phi3, **lists), 4096),
        Layer("litgpt", "build_rope_cache", default, "half", _litgpt),
        Layer("litgpt", "build_rope_cache, linear", linear, "half", partial(_litgpt, extra_config={"factor": 3.0})),
        Layer("litgpt", "build_rope_cache, llama3", llama, "half", partial(_litgpt, **litgpt_llama)),
        Layer("litgpt", "build_rope_cache, YaRN", yarn, "half", partial(_litgpt, **litgpt_yarn), None, LITGPT_YARN),
        Layer("ibm-fms", "RotaryEmbedding", default, "adjacent", _fms),
        Layer("ibm-fms", "RotaryEmbedding, llama3", llama, "adjacent", partial(_fms, **fms_llama)),
    ]


LAYERS = _layers()
"""Each layer, with each kind of frequencies that it has."""
