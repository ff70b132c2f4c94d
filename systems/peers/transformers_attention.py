"""transformers: the attention functions of its models, and the masks of `masking_utils`.

The functions are `eager_attention_forward` of Llama, Gemma 2 (with a softcap) and GPT-OSS (with
sinks), and `sdpa` of `ALL_ATTENTION_FUNCTIONS`. sdpa takes a boolean mask, and returns 0 for a
fully masked row. eager takes a mask of 0 and the smallest number, and returns the mean of all
values. Causality, windows and offsets become masks by `sdpa_mask`; a window counts keys and
includes the query's own key.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from oracles import BFLOAT16, Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import AttentionOptions
from systems.peers.library import Library
from systems.peers.narrow import KERNEL

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("transformers")


def _mask_of(kind: str, q: Any, k: Any, options: AttentionOptions) -> Any:
    """The mask for a kind of function, "sdpa" or "eager": `options.mask`, causality and the window
    together.

    masking_utils makes the masks of causality and of the window. The right side of a window is the
    bidirectional window together with all past keys.
    """
    import torch
    from transformers import masking_utils as utils

    shape = *q.shape[:-1], k.shape[-2]
    left, right = options.window
    visible = torch.ones(shape, dtype=torch.bool) if options.mask is None else options.mask.expand(shape)
    patterns = [utils.causal_mask_function] if options.causal else []
    if left is not None:
        patterns.append(utils.sliding_window_overlay(left))
    if right is not None:
        patterns.append(utils.or_masks(utils.causal_mask_function, utils.sliding_window_bidirectional_overlay(right)))
    if patterns:
        visible = visible & utils.sdpa_mask(
            len(q),
            q.shape[-2],
            k.shape[-2],
            q_offset=options.offset or 0,
            mask_function=utils.and_masks(*patterns),
            allow_is_causal_skip=False,
        )
    if kind == "sdpa":
        return visible
    return torch.where(visible, torch.zeros((), dtype=q.dtype), torch.finfo(q.dtype).min)


def _attend(module: str, q: Any, k: Any, v: Any, **given: Any) -> Any:
    """Attention by the function of a model's file, or by "sdpa"."""
    from importlib import import_module

    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    options = AttentionOptions(**given)
    if module == "sdpa":
        kind, function = "sdpa", sdpa_attention_forward
    else:
        file = import_module(f"transformers.models.{module}.modeling_{module}")
        kind, function = "eager", file.eager_attention_forward
    sinks = q.new_full((q.shape[1],), -float("inf")) if options.sink is None else options.sink
    layer = SimpleNamespace(
        num_key_value_groups=q.shape[1] // k.shape[1],
        training=False,
        is_causal=False,
        head_dim=q.shape[-1],
        sinks=sinks,
    )
    scaling = max(q.shape[-1], 1) ** -0.5 if options.scale is None else options.scale
    masks = options.mask is not None or options.causal or options.window != (None, None)
    mask = _mask_of(kind, q, k, options) if masks else None
    softcap = {} if options.softcap is None else {"softcap": options.softcap}
    out, _ = function(layer, q, k, v, mask, scaling=scaling, **softcap)
    return out.transpose(1, 2)


def _flex(q: Any, k: Any, v: Any, *, causal: bool = False, **options: Any) -> Any:
    """Attention by flex attention, with room for one compiled program for each shape."""
    import torch
    from transformers import masking_utils as utils
    from transformers.integrations.flex_attention import flex_attention_forward

    layer = SimpleNamespace(training=False)
    with torch._dynamo.config.patch(recompile_limit=_PROGRAMS):
        mask = utils.flex_attention_mask(len(q), q.shape[-2], k.shape[-2]) if causal else None
        return flex_attention_forward(layer, q, k, v, mask, scaling=q.shape[-1] ** -0.5, **options)[0].transpose(1, 2)


def _mask(sides: Any, n_q: int, n_k: int | None = None) -> Any:
    """`sdpa_mask` for queries at the end of the keys, as with a cache."""
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


_PROGRAMS = 64  # by default 8: PyTorch does not compile more, and warns
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
