"""transformers: the attention functions of its models, and the masks of `masking_utils`.

`eager_attention_forward` of Llama, Gemma 2 (with a cap) and GPT-OSS (with sinks), and `sdpa` of
`ALL_ATTENTION_FUNCTIONS`. A boolean mask is for sdpa, and one of 0 and the least number for eager:
a query without keys is 0, and the mean of all values. Causality, windows and offsets are made of
`sdpa_mask`; a window counts keys, the query's own included.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from oracles import BFLOAT16, Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.peers.library import Library
from systems.peers.narrow import KERNEL

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("transformers")


def _masked(kind: str, q: Any, k: Any, mask: Any, causal: bool, offset: int | None, window: Any) -> Any:
    """The mask of a kind, "sdpa" or "eager", made by masking_utils of causality and a window, of
    which the right side is the bidirectional one beside the whole past; another one beside it must
    hold too."""
    import torch
    from transformers import masking_utils as utils

    shape = *q.shape[:-1], k.shape[-2]
    full = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    patterns = [utils.causal_mask_function] if causal else []
    if window[0] is not None:
        patterns.append(utils.sliding_window_overlay(window[0]))
    if window[1] is not None:
        patterns.append(
            utils.or_masks(utils.causal_mask_function, utils.sliding_window_bidirectional_overlay(window[1]))
        )
    if patterns:
        pattern = utils.and_masks(*patterns)
        full = full & utils.sdpa_mask(
            len(q), q.shape[-2], k.shape[-2], q_offset=offset or 0, mask_function=pattern, allow_is_causal_skip=False
        )  # fmt: skip
    if kind == "sdpa":
        return full
    return torch.where(full, torch.zeros((), dtype=q.dtype), torch.finfo(q.dtype).min)


def _attend(
    module: str, q: Any, k: Any, v: Any, *, mask: Any = None, scale: Any = None, causal: bool = False, offset: int | None = None,
    window: Any = (None, None), softcap: Any = None, sink: Any = None,
) -> Any:  # fmt: skip
    """By the function of a model's file, or "sdpa"."""
    from importlib import import_module

    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    eager = module != "sdpa"
    if eager:
        function = import_module(f"transformers.models.{module}.modeling_{module}").eager_attention_forward
    if sink is None:
        sink = q.new_full((q.shape[1],), -float("inf"))
    given = SimpleNamespace(
        num_key_value_groups=q.shape[1] // k.shape[1], training=False, is_causal=False, head_dim=q.shape[-1], sinks=sink
    )
    scaling = max(q.shape[-1], 1) ** -0.5 if scale is None else scale
    plain = mask is None and not causal and window == (None, None)
    made = None if plain else _masked("eager" if eager else "sdpa", q, k, mask, causal, offset, window)
    options = {} if softcap is None else {"softcap": softcap}
    out, _ = (function if eager else sdpa_attention_forward)(given, q, k, v, made, scaling=scaling, **options)
    return out.transpose(1, 2)


def _flex(q: Any, k: Any, v: Any, *, causal: bool = False, **options: Any) -> Any:
    """By flex attention, which it compiles for each size: as many programs as there are shapes are allowed."""
    import torch
    from transformers import masking_utils as utils
    from transformers.integrations.flex_attention import flex_attention_forward

    given = SimpleNamespace(training=False)
    with torch._dynamo.config.patch(recompile_limit=_PROGRAMS):
        mask = utils.flex_attention_mask(len(q), q.shape[-2], k.shape[-2]) if causal else None
        return flex_attention_forward(given, q, k, v, mask, scaling=q.shape[-1] ** -0.5, **options)[0].transpose(1, 2)


def _mask(sides: Any, n_q: int, n_k: int | None = None) -> Any:
    """`sdpa_mask` of queries that stand at the end of the keys, as with a cache."""
    from transformers import masking_utils as utils

    keys = n_q if n_k is None else n_k
    return utils.sdpa_mask(
        1, n_q, keys, q_offset=keys - n_q, mask_function=utils.causal_mask_function, allow_is_causal_skip=False
    )[0, 0]


def _implementation(
    name: str,
    arithmetic: str,
    *features: str,
    module: str = "sdpa",
    twins: dict[str, Any] | None = None,
    **conventions: Any,
) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        operations={"attention": partial(_attend, module)},
        arithmetic=arithmetic,
        conventions=Conventions(window="count", **conventions),
        arrays="torch",
        batch_ranks=(2,),
        supports=["no log-sum-exp", "positive sizes"],
        features=features,
        refuses=(Exception,),
        unavailable=_LIBRARY.unavailable,
        twins=twins or {},
    )


_PROGRAMS = 64  # 8 by default, beyond which it is not compiled, and a warning says so
_SDPA = {"attention": partial(_attend, "sdpa")}

IMPLEMENTATIONS = [
    _implementation("eager_attention_forward, llama", "float32", "scale", module="llama", twins={"sdpa": _SDPA}),
    _implementation(
        "eager_attention_forward, llama, causal masks",
        "float32",
        *("scale", "causal", "offset", "window"),
        module="llama",
        dead_rows="uniform",
    ),
    _implementation(
        "eager_attention_forward, llama",
        "bfloat16-eager",
        "scale",
        module="llama",
        twins={"sdpa": Twin(_SDPA, promises={"arithmetic": replace(BFLOAT16, flush_to_zero=True)})},
    ),
    _implementation("eager_attention_forward, gemma2", "float32", "scale", "softcap", module="gemma2"),
    _implementation("eager_attention_forward, gpt_oss", "float32", "scale", "sink", module="gpt_oss"),
    _implementation("eager_attention_forward, masks", "float32", "scale", "mask", module="llama", dead_rows="uniform"),
    _implementation("sdpa_attention_forward", "float32", "scale", "mask", "causal", "offset", "window"),
    replace(
        _implementation("flex_attention_forward", "float32", "causal"),
        operations={"attention": _flex},
        supports=["no log-sum-exp", "positive sizes", "at most 8 shapes"],
        twins={"sdpa": _SDPA},
    ),
    Implementation(
        name=_LIBRARY.called("sdpa_mask float32"),
        operations={"causal_mask": partial(_mask, None)},
        arithmetic="float32",
        conventions=Conventions(causal="bottom_right"),
        arrays="torch",
        supports="positive sizes",
        refuses=(Exception,),
        unavailable=_LIBRARY.unavailable,
    ),
    *(
        replace(
            _implementation("sdpa_attention_forward", name, "scale", "mask", "causal", "offset"), arithmetic=arithmetic
        )
        for name, arithmetic in KERNEL.items()
    ),
]
