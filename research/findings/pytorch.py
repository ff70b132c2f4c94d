"""PyTorch on the CPU: what its attention does where its documentation says another thing, or nothing."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from research.findings.finding import Findings, Seen, outcome, shown

__all__ = ["finding"]

finding = Findings("PyTorch")
_SDPA = "torch.nn.functional.scaled_dot_product_attention"
_MHA = "torch.nn.MultiheadAttention"


def _zeros(n_q: int, n_k: int, d: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q and k are zeros, and v shows the weights."""
    return torch.zeros(1, 1, n_q, d), torch.zeros(1, 1, n_k, d), torch.eye(n_k)[None, None]


@finding("is_causal applies a top-left causal mask.", f"{_SDPA}; pytorch/pytorch#108108")
def is_causal_is_aligned_top_left() -> Seen:
    """As documented, and unlike kernels that align it at the end: one query against a cache sees the first key only."""
    with sdpa_kernel(SDPBackend.MATH):
        found = scaled_dot_product_attention(*_zeros(1, 3), is_causal=True)
    return Seen("one query, three keys, scores 0: the weights", "[1, 0, 0]; aligned at the end [1/3, 1/3, 1/3]", shown(found[0, 0]))


@finding("attn_mask is broadcastable to the shape of the weights.", f"{_SDPA}; pytorch/pytorch#120810")
def a_mask_of_one_axis_raises() -> Seen:
    """The flash kernel is chosen and asks for a second axis; the math backend accepts it."""
    q = torch.ones(1, 2, 3, 4)
    return Seen(
        "x = ones(1, 2, 3, 4), mask = ones(3), True",
        "an output",
        outcome(lambda: scaled_dot_product_attention(q, q, q, torch.ones(3, dtype=torch.bool))),
    )


@finding("An error is thrown if both attn_mask and is_causal are set.", _SDPA)
def a_mask_beside_is_causal_is_an_error_by_the_backend() -> Seen:
    """The math backend throws; the flash kernel of the CPU, which is chosen by default, lets both hold, with a mask of numbers too."""
    (q, k, v), mask = _zeros(2, 2, 2), torch.tensor([[True, True], [False, True]])

    def attend(backend: SDPBackend) -> str:
        with sdpa_kernel(backend):
            return outcome(lambda: scaled_dot_product_attention(q, k, v, mask, is_causal=True)[0, 0]).partition(":")[0]

    told = f"math: {attend(SDPBackend.MATH)}; flash: {attend(SDPBackend.FLASH_ATTENTION)}"
    return Seen("two queries, two keys of scores 0, mask [[1, 1], [0, 1]]: the weights", "math: RuntimeError; flash: RuntimeError", told)


@finding("scale is the scaling factor applied prior to softmax.", f"{_SDPA}; compare NVIDIA/cudnn-frontend#804")
def is_causal_makes_nan_of_scales_of_0_and_below() -> Seen:
    """The flash kernel of the CPU, which is chosen by default, sets what is masked to −∞ before it scales: 0·−∞ is NaN, and below 0 it
    becomes +∞. The math backend, and a mask that says the same, are right."""
    weights = [scaled_dot_product_attention(*_zeros(2, 2, 2), is_causal=True, scale=scale)[0, 0] for scale in (0.0, -0.5)]
    return Seen(
        "two queries, two keys of scores 0, is_causal, scale = 0 and scale = −0.5: the weights",
        "[[1, 0], [1/2, 1/2]] for both",
        " and ".join(map(shown, weights)),
    )


@finding("torch.func.jvp differentiates in forward mode.", f"{_SDPA}; pytorch/pytorch#128971")
def the_flash_kernel_has_no_forward_derivative() -> Seen:
    """The default backend for such inputs on the CPU; the math backend has one."""

    def derivative() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            inputs = tuple(torch.ones(3, 1, 1, 2, 4))
            tangent: torch.Tensor = torch.func.jvp(scaled_dot_product_attention, inputs, inputs)[1]
        return tangent

    return Seen("the derivative of attention of ones (1, 1, 2, 4)", "a tangent", outcome(derivative))


def _heads(num_heads: int, need_weights: bool, grad: bool = False, batched: bool = True) -> torch.Tensor:
    """The first output of ones, where token 0 may attend to nothing, by weights of 1/4."""
    module = torch.nn.MultiheadAttention(4, num_heads, batch_first=True).eval()
    with torch.set_grad_enabled(grad):
        for weight in module.parameters():
            weight.data.fill_(0.25 if weight.ndim > 1 else 0.0)
        x = torch.ones(*([1] * batched), 2, 4)
        mask = torch.tensor([[True, True], [False, False]])
        out: torch.Tensor = module(x, x, x, attn_mask=mask, need_weights=need_weights)[0]
    return out.reshape(-1, 4)[0]


@finding("True in attn_mask blocks; nothing is said of a row that is all blocked.", f"{_MHA}; pytorch/pytorch#41508, #160064, #190486")
def a_token_with_nothing_to_attend_to_is_zero_or_not_a_number_by_the_path_taken() -> Seen:
    """In evaluation without gradients, by the number of heads, whether weights are asked for, and whether there is a batch."""
    cases = {
        "1 head": _heads(1, False),
        "2 heads": _heads(2, False),
        "2 heads, unbatched": _heads(2, False, batched=False),
        "2 heads, with gradients": _heads(2, False, grad=True),
        "2 heads, with weights": _heads(2, True),
    }
    told = "; ".join(f"{name}: {shown(out[0])}" for name, out in cases.items())
    return Seen("ones (1, 2, 4), token 0 blocked from both", "one answer on every path", told)


@finding("An empty batch is legal, as without a mask.", f"{_MHA}; related: pytorch/pytorch#192651")
def an_empty_batch_with_a_mask_raises() -> Seen:
    """Without weights; with a mask for each of the batch."""
    module = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    x, mask = torch.ones(0, 3, 4), torch.zeros(0, 3, 3, dtype=torch.bool)
    plain = outcome(lambda: module(x, x, x, need_weights=False)[0].shape)
    masked = outcome(lambda: module(x, x, x, attn_mask=mask, need_weights=False)[0].shape)
    return Seen("x of shape (0, 3, 4), attn_mask of shape (0, 3, 3)", f"shape {plain}", masked)


@finding("Queries and keys of shape (B, H, L, E).", "torch.nn.attention.flex_attention")
def flex_attention_divides_by_a_width_of_zero() -> Seen:
    """scaled_dot_product_attention takes the mean of the values there."""
    q, k, v = _zeros(1, 2, 0)
    return Seen(
        "q (1, 1, 1, 0), k (1, 1, 2, 0)", shown(scaled_dot_product_attention(q, k, v)[0, 0]), outcome(lambda: flex_attention(q, k, v))
    )
