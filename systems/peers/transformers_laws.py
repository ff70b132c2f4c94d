"""transformers under the laws: its `ROPE_INIT_FUNCTIONS`, and the rotation of each model's file,
forward and by autograd.

The command is `attnspec verify systems.peers.transformers_laws:IMPLEMENTATIONS`, in the environment
of `make peers`. A function that takes a configuration gets a configuration of one head.
Frequencies, positions and factors from a law replace the module's values.
"""

from functools import partial
from math import prod
from typing import Any

from oracles import Conventions
from properties.contract.features import KINDS
from properties.contract.implementation import Implementation
from spec.extended.released import Released
from systems.peers.library import Library
from systems.peers.transformers_rotary import found, rotary

__all__ = ["IMPLEMENTATIONS"]

TRANSFORMERS = Library("transformers")
_EVEN = {"head_dim": lambda d: d > 0 and d % 2 == 0}
_PARAMETERS = ("beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "attention_factor")


def _frequencies(kind: str, head_dim: int, *, base: float = 10000.0, **parameters: Any) -> Any:
    """(inv_freq, attention_factor) of the function for a kind.

    The default kind takes the function of GPT-NeoX, which reads the share of channels that rotate.
    """
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rotary_dim, seq_len = parameters.pop("rotary_dim", None), parameters.pop("seq_len", None)
    share = {} if rotary_dim is None else {"partial_rotary_factor": rotary_dim / head_dim}
    most = parameters.pop("max_position_embeddings", 2048)
    given = {"rope_type": kind, "rope_theta": base} | share | parameters
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=most,
        rope_parameters=given,
    )
    plain = found("gpt_neox", "GPTNeoXRotaryEmbedding")
    function = (
        plain.compute_default_rope_parameters
        if kind == "default"
        else partial(ROPE_INIT_FUNCTIONS[kind], seq_len=seq_len)
    )
    return function(config)


def _rope(module: str, mrope: Any, x: Any, start_pos: int = 0, **options: Any) -> Any:
    """x rotated by the module and the `apply_rotary_pos_emb` of a model's file."""
    import torch

    *lead, n, d = x.shape
    batch, sections = prod(lead), options.get("sections")
    r = options.get("rotary_dim", d)
    shares = (r // 2, 0, 0) if mrope and sections is None else sections
    model = Released("", module, "", "default", r, 10000.0, 2048, sections=shares, mrope=mrope)
    layer = rotary(model)
    if "inv_freq" in options:
        layer.inv_freq = torch.nn.Buffer(options["inv_freq"], persistent=False)
    layer.attention_scaling = options.get("attention_factor", 1.0)
    positions = torch.as_tensor(options.get("positions", torch.arange(start_pos, start_pos + n)))
    if mrope:
        by_axis = positions if sections is not None and "positions" in options else positions[None]
        positions = by_axis.expand(3, *lead, n).reshape(3, batch, n)
    else:
        positions = positions.expand(*lead, n).reshape(batch, n)
    cos, sin = layer(x.reshape(batch, n, d), positions)
    rows = x.reshape(batch, 1, n, d)
    if module != "deepseek_v3":
        return found(module, "apply_rotary_pos_emb")(rows, rows, cos, sin)[0].reshape(x.shape)
    halves = found(module, "apply_rotary_pos_emb_interleave")(rows, rows, cos, sin)[0].chunk(2, -1)
    return torch.stack(halves, -1).reshape(x.shape)


def _vjp(module: str, mrope: Any, x: Any, grad_out: Any, start_pos: int = 0, **options: Any) -> Any:
    import torch

    inputs = x.requires_grad_()
    return torch.autograd.grad(_rope(module, mrope, inputs, start_pos, **options), inputs, grad_out)[0]


def _family(module: str, *features: str, mrope: Any = None, pairing: Any = "half") -> Implementation:
    return Implementation(
        name=TRANSFORMERS.called(module),
        operations={"rope": partial(_rope, module, mrope), "rope_vjp": partial(_vjp, module, mrope)},
        arithmetic="float32",
        arrays="torch",
        conventions=Conventions(rope_pairing=pairing, odd_lane="reject", mrope=mrope or "sectioned"),
        supports=_EVEN,
        refuses=(Exception,),  # configurations raise their own exceptions
        unavailable=TRANSFORMERS.unavailable,
        features=("positions", "inv_freq", "attention_factor", *features),
    )


IMPLEMENTATIONS = [
    Implementation(
        name=TRANSFORMERS.called("ROPE_INIT_FUNCTIONS"),
        operations={"rotary_frequencies": _frequencies},
        arithmetic="float32",
        arrays="torch",
        supports=_EVEN,
        refuses=(Exception,),  # configurations raise their own exceptions
        unavailable=TRANSFORMERS.unavailable,
        known_deviations={
            "unsupported sizes are refused": "An odd head has a pair less by the kind `proportional` than by all others"
        },
        features=("base", "rotary_dim", "seq_len", *(kind for kind in KINDS if kind != "default"), *_PARAMETERS),
    ),
    _family("llama"),
    _family("gemma"),
    _family("gpt_oss"),
    _family("deepseek_v3", pairing="adjacent"),
    _family("phi3", "rotary_dim"),
    _family("qwen2_vl", "sections", mrope="sectioned"),
    _family("qwen3_vl", "sections", mrope="interleaved"),
]
