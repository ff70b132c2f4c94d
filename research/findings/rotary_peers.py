"""Rotary layers of released libraries: where what comes out is not what their parameters say, each with a script that shows it."""

from typing import Any

import numpy as np

import oracles
from research.findings.shown import Shown, shown

__all__ = ["FINDINGS"]


def _frequencies(*kind: Any, **parameters: Any) -> Any:
    return oracles.rotary_frequencies(*kind, **parameters)[0].mid


def _pair(position: int, frequency: float = 1.0) -> Any:
    cos, sin = oracles.rotary_tables(np.array([position]), np.array([frequency]))
    return [cos.mid[0, 0], sin.mid[0, 0]]


_DYNAMIC = {"base": 100.0, "factor": 2.0, "max_position_embeddings": 8}
_YARN = {"factor": 4.0, "base": 100.0, "original_max_position_embeddings": 64, "beta_fast": 4.0}

FINDINGS = [
    Shown(
        "transformers",
        "rotary",
        "YaRN by type of layer rounds the ramp although `truncate` is false",
        "defect",
        "`truncate` is read from all rope_parameters and not from those of the layer's type, as every other parameter is. Where parameters "
        "are given by type of layer the key is not there, and the default, true, is taken. gpt-oss gives them once, and is not concerned.",
        "transformers.modeling_rope_utils",
        'config.rope_parameters.get("truncate"',
        "none found",
        """from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ends = {"original_max_position_embeddings": 64, "beta_fast": 4.0, "truncate": False}
yarn = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, **ends}
config = LlamaConfig(hidden_size=16, num_attention_heads=1, head_dim=16, max_position_embeddings=256)
config.rope_parameters = {"full_attention": yarn}
inv_freq, _ = ROPE_INIT_FUNCTIONS["yarn"](config, layer_type="full_attention")
print([round(x, 4) for x in inv_freq.tolist()])""",
        lambda: _frequencies("yarn", 16, truncate=False, **_YARN),
    ),
    Shown(
        "transformers",
        "rotary",
        "Dynamic NTK keeps the base of the longest sequence seen, at the trained length too",
        "convention",
        "After 16 positions a module of 8 keeps the base of 16 for 12 positions and for exactly 8, and goes back only below 8. What a "
        "sequence gets depends on those before it, and a batch on its longest member.",
        "transformers.modeling_rope_utils",
        "if seq_len < self.original_max_seq_len and",
        "huggingface/transformers#27227 (closed), #46624",
        """import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

dynamic = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}
config = LlamaConfig(hidden_size=4, num_attention_heads=1, head_dim=4, max_position_embeddings=8, rope_parameters=dynamic)
module = LlamaRotaryEmbedding(config)
for length in (16, 8):
    module(torch.zeros(1), torch.arange(length)[None])
print([round(x, 4) for x in module.inv_freq.tolist()])""",
        lambda: _frequencies("dynamic", 4, seq_len=8, **_DYNAMIC),
    ),
    Shown(
        "transformers",
        "rotary",
        "A module converted to bfloat16 rotates by frequencies of 8 bits",
        "defect",
        "`inv_freq` is a buffer, which `model.to(torch.bfloat16)` rounds; the product that follows is in float32. A model that is made in "
        "bfloat16 keeps it in float32. Here 0.01 becomes 0.010009765625, which is 0.0098 radians at position 1000.",
        "transformers.models.llama.modeling_llama",
        "self.inv_freq = nn.Buffer(",
        "huggingface/transformers#25681, #29496, #30709 (closed)",
        """import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

module = LlamaRotaryEmbedding(LlamaConfig(hidden_size=4, num_attention_heads=1, head_dim=4)).to(torch.bfloat16)
cos, sin = module(torch.zeros(1), torch.tensor([[1000]]))
print([round(x, 4) for x in (cos[0, 0, 1].item(), sin[0, 0, 1].item())])""",
        lambda: _pair(1000, 0.01),
    ),
    Shown(
        "transformers",
        "rotary",
        "A share of rotating channels is read by every kind but the default",
        "convention",
        "`partial_rotary_factor` in rope_parameters halves the channels under `linear`, and is not read under `default`; a factor of "
        "1 should be the default. Models that have such a share (GPT-NeoX, Phi-3) read it under both.",
        "transformers.models.llama.modeling_llama",
        'dim = getattr(config, "head_dim", None) or',
        "none found",
        """from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding


def pairs(**kind):
    share = {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, **kind}
    config = LlamaConfig(hidden_size=8, num_attention_heads=1, head_dim=8, rope_parameters=share)
    return len(LlamaRotaryEmbedding(config).inv_freq)


print([pairs(rope_type="linear", factor=1.0), pairs(rope_type="default")])""",
        lambda: "[2, 2]",
    ),
    Shown(
        "transformers",
        "rotary",
        "An odd head has a pair less by the kind `proportional` than by all others",
        "defect",
        "Its documentation says that the encoding always has the size of head_dim. An odd share is rounded up elsewhere, as the validation "
        "of configurations says, and head_dim // 2 frequencies are one too few for that.",
        "transformers.modeling_rope_utils",
        "nope_angles = head_dim // 2 - rope_angles",
        "none found",
        """from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

found = []
for kind in ("linear", "proportional"):
    given = {"rope_type": kind, "rope_theta": 10000.0, "factor": 1.0}
    config = LlamaConfig(hidden_size=3, num_attention_heads=1, head_dim=3, rope_parameters=given)
    found.append(len(ROPE_INIT_FUNCTIONS[kind](config)[0]))
print(found)""",
        lambda: "[2, 2]",
    ),
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "Positions are counted in the type of the queries: in bfloat16, 257 is 256",
        "defect",
        "bfloat16 has 8 bits: odd positions above 256 are rounded to even ones, and above 2048 to multiples of 16.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "seq = self.get_seq_pos(seq_len, device = device, dtype = dtype, offset = offset)",
        "none found",
        """import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.bfloat16)
out = RotaryEmbedding(dim=4).rotate_queries_or_keys(x, offset=257)
print([round(v, 2) for v in out[0, :2].tolist()])""",
        lambda: shown([round(float(v), 2) for v in _pair(257)]),
    ),
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "A call in bfloat16 spoils the table for later calls in float32",
        "defect",
        "The angles of the first call are kept, whatever type they were counted in, and given to each later call that is not longer.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "self.cached_freqs[:seq_len] = freqs.detach()",
        "none found",
        """import torch
from rotary_embedding_torch import RotaryEmbedding

layer, x = RotaryEmbedding(dim=4), torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(258, 4)
layer.rotate_queries_or_keys(x.bfloat16())
print([round(v, 4) for v in layer.rotate_queries_or_keys(x)[257, :2].tolist()])""",
        lambda: _pair(257),
    ),
    *(
        Shown(
            library,
            "rotary",
            "A head of two channels cannot be built",
            "defect",
            "The exponent d/(d − 2) of a factor that is 1 divides by zero. Two channels are one pair, of frequency 1.",
            module,
            line,
            "none found",
            f"from {package} import RotaryEmbedding\n\nprint([round(x, 4) for x in RotaryEmbedding(dim=2).{name}.tolist()])",
            lambda: [1.0],
        )
        for library, module, package, line, name in (
            *(
                (
                    "x-transformers",
                    "x_transformers.x_transformers",
                    "x_transformers.x_transformers",
                    "base *= base_rescale_factor",
                    "inv_freq",
                ),
            ),
            (
                "rotary-embedding-torch",
                "rotary_embedding_torch.rotary_embedding_torch",
                "rotary_embedding_torch",
                "theta *= theta_re",
                "freqs",
            ),
        )
    ),
    Shown(
        "x-transformers",
        "rotary",
        "A layer converted to bfloat16 counts positions in bfloat16",
        "defect",
        "Positions take the type of `inv_freq`, a buffer, and so does the angle, which is rounded besides.",
        "x_transformers.x_transformers",
        "self.inv_freq) / self.interpolation_factor",
        "none found",
        """import torch
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

freqs, scale = RotaryEmbedding(dim=4).to(torch.bfloat16)(torch.tensor([257]))
out = apply_rotary_pos_emb(torch.tensor([[[1.0, 0.0, 0.0, 0.0]]]), freqs.float(), scale)
print([round(v, 4) for v in out[0, 0, :2].tolist()])""",
        lambda: _pair(257),
    ),
    Shown(
        "keras-hub",
        "rotary",
        "The dynamic kind divides all frequencies by one number, at every length",
        "defect",
        "They are divided by factor^(r/(r − 2)), which is how the base should grow: pair i should fall by the share 2i/r of that exponent, "
        "pair 0 not at all, and none up to the trained length, which the layer is not told. Already position 1 is at 1/4.",
        "keras_hub.src.layers.modeling.rotary_embedding",
        'elif self.rope_type == "dynamic":',
        "none found",
        """import os

os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
from keras_hub.layers import RotaryEmbedding

layer = RotaryEmbedding(max_wavelength=100, rope_type="dynamic", scaling_factor=2.0)
x = np.array([[[1.0, 1.0, 0.0, 0.0]]], dtype="float32")
out = layer(x, start_index=1).detach().numpy()[0, 0]
print([round(float(v), 4) for v in np.arctan2(out[2:], out[:2])])""",
        lambda: _frequencies("dynamic", 4, seq_len=2, **_DYNAMIC),
    ),
]
"""What was found, library by library."""
