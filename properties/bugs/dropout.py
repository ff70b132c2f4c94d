"""Known bugs of dropout inside attention, with a given mask."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_attention as right
from properties.bugs.bug import Register

_ATTENTION, _VJP = "attention", "attention_vjp"
bug = Register(seen=_ATTENTION)
_ALL, _PARTS = "dropout that keeps all weights changes nothing", "parts of a dropout mask add up"
_AGREES = "attention with options is within its error limit"


@bug.in_step(
    "thinned",
    seen=_VJP,
    without=(_ATTENTION,),
    law=_AGREES,
    effect="Gradients have another size than the loss implies, and training diverges slowly.",
    repair="Divide by 1 − p in the backward pass, as in the forward pass.",
    citations="NVIDIA/apex#816",
)
def attention_dropout_times_p_in_the_backward(x: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """The backward pass multiplies the kept weights by p instead of 1/(1 − p)."""
    return x if dropout_mask is None else np.where(dropout_mask, x * (dropout or 0.0), 0.0)


@bug.in_step(
    "thinned_forward",
    law=_AGREES,
    effect="Outputs are 1 − p times as large in training as in evaluation.",
    repair="Divide the kept weights by 1 − p.",
    origin="a mask of 0 and 1 replaces a library's dropout, which divides by 1 − p",
)
def attention_dropout_without_the_division(w: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """The code leaves out weights, and does not divide the others by 1 − p."""
    return right.thinned(w, dropout_mask, 0.0)


@bug.in_step(
    "thinned_forward",
    law=_ALL,
    effect="A mask that keeps everything gives an output of 0.",
    repair="Keep the weights where the mask is True.",
    origin="a mask of what is dropped is read as a mask of what is kept; compare ooples/AiDotNet.Tensors#732",
)
def attention_dropout_mask_inverted(w: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """The code keeps the weights where the mask is False."""
    return right.thinned(w, None if dropout_mask is None else ~np.asarray(dropout_mask), dropout)


@bug.in_step(
    "thinned_forward",
    law=_PARTS,
    effect="The kept weights of each row add up to 1, so dropout scales each row by another number.",
    repair="Divide by the sum of all exponentials, before dropout.",
    origin="the mask acts on the exponentials, and the sum of the row is taken after it",
)
def attention_dropout_before_the_sum(w: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """The code applies dropout to the exponentials, and divides by the sum of those that are kept."""
    kept = right.thinned(w, dropout_mask, 0.0)
    total = kept.sum(-1, keepdims=True)
    return w if dropout_mask is None else kept / np.where(total == 0, 1.0, total)


@bug.in_step(
    "thinned",
    seen=_VJP,
    without=(_ATTENTION,),
    law=_AGREES,
    effect="Gradients belong to a network without dropout.",
    repair="Save the mask, or the state of the random generator, for the backward pass.",
    origin="the forward and the backward pass do not share the mask; compare Dao-AILab/flash-attention#612",
)
def attention_dropout_forgotten_in_the_backward(x: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """The backward pass has no dropout."""
    return x


@bug.in_step(
    "thinned_forward",
    law=_AGREES,
    effect="The network trains without dropout.",
    repair="Choose the dropout in each call; do not overwrite it in evaluation.",
    citations="NVIDIA/Megatron-LM#411; deepspeedai/Megatron-DeepSpeed#295",
)
def attention_dropout_ignored(w: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """After an evaluation, which sets the dropout to 0, the code never applies dropout again."""
    return w
