"""Known bugs of implementations whose declarations are not the default ones: another convention,
another format, refused sizes.
"""

from collections.abc import Callable

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_positions
from properties.bugs.bug import SDPA, Register
from properties.bugs.reference import Mask
from properties.contract.implementation import Implementation

bug = Register()
_EVEN = {"head_dim": lambda d: d % 2 == 0}


@bug.in_operation(
    SDPA,
    law="outputs are infinite only where the exact value is too large",
    promises={"arithmetic": "float16"},
    effect="Values near the largest number become NaN, not ±∞.",
    repair="Normalize the weights before the product with the values, or accumulate in a wider format.",
    origin="sums in float16 that are not normalized overflow where averages do not, and ∞ − ∞ follows",
)
def sdpa_overflow_becomes_nan(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """In float16, outputs above half of the largest number become NaN."""
    output = right.scaled_dot_product_attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), mask)
    return np.where(np.abs(output) > 32752, np.nan, output).astype(np.float16)


@bug.in_operation(
    SDPA,
    law="a single visible key has weight 1, however low its score",
    promises={"arithmetic": "float16-eager"},
    effect="Products above 65504 are ∞ although the scores are not, and rows become NaN.",
    repair="Scale queries or keys before the product.",
    citations="philipturner/metal-flash-attention#8; ultralytics/ultralytics#24990",
)
def sdpa_products_overflow_before_they_are_scaled(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code stores products of queries and keys in float16 before it scales them."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = (q.astype(np.float64) @ k.astype(np.float64).mT).astype(np.float16).astype(np.float64)
        return (right.hard_masked_softmax(right.scaled(products, q.shape[-1]), mask) @ v.astype(np.float64)).astype(
            np.float16
        )


@bug.in_operation(
    SDPA,
    law="NaN and infinity in masked keys and values do not matter",
    promises={"conventions": Conventions(blocked_values="unread")},
    effect="NaN and ±∞ in padding reach every row, although they are masked for every query.",
    repair="Set masked values to 0 before the product, or skip them.",
    citations="pytorch/pytorch#101967",
)
def sdpa_blocked_nan_reaches_the_output(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code multiplies masked values by weights of 0, and 0 times NaN is NaN."""
    with np.errstate(invalid="ignore"):
        return right.scaled_dot_product_attention(q, k, v, mask)


@bug.in_operation(
    "rope",
    law="scores depend on relative positions only",
    promises={"conventions": Conventions(rope_pairing="half"), "supports": _EVEN},
    effect=(
        "Channels i and i + d/2 are rotated by different angles, so the rotation changes norms and relative positions."
    ),
    repair="Use tables in the layout of the pairs.",
    origin="code combines tables of adjacent pairs (repeat_interleave) with rotate_half of the half-split layout",
)
def rope_half_with_interleaved_tables(x: Array, start_pos: int = 0) -> Array:
    """Pairs are (i, i + d/2), but the tables belong to pairs (2i, 2i + 1)."""
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim is {x.shape[-1]}, but should be even.")
    cos, sin = reference_positions.chunk_tables(start_pos, *x.shape[-2:])
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


_TABLES: dict[tuple[int, ...], tuple[Array, Array]] = {}


def _of_base(base: float) -> Callable[..., Array]:
    """Return RoPE for a base. All instances share its tables, by start position, length and width."""

    def rotating(x: Array, start_pos: int = 0) -> Array:
        cache_key = start_pos, *x.shape[-2:]
        if cache_key not in _TABLES:
            angle = np.arange(start_pos, start_pos + cache_key[1])[:, None] * base ** (
                -(np.arange(cache_key[2]) // 2 * 2) / max(cache_key[2], 1)
            )
            _TABLES[cache_key] = np.cos(angle), np.sin(angle)
        return x * _TABLES[cache_key][0] + reference_positions.rotated(x) * _TABLES[cache_key][1]

    return rotating


_BESIDE = Implementation("base 100", {"rope": _of_base(100.0)}, conventions=Conventions(rope_base=100.0))


@bug.in_operation(
    "rope",
    law="calls of other sizes or implementations do not change later results",
    requires=("two calls in a row",),
    making=True,
    promises={"beside": (_BESIDE,)},
    effect="Two models with different bases in one process both rotate by the base of the first.",
    repair="Keep tables in the instance, or add the base to the key.",
    origin="a cache of a class or module outlives the instance that filled it",
)
def rope_instances_share_their_tables() -> Callable[..., Array]:
    """The class caches tables by position and shape, without the base of the instance."""
    _TABLES.clear()
    return _of_base(10000.0)


@bug.in_operation(
    "rope",
    law="unsupported sizes are refused",
    promises={"supports": _EVEN},
    effect="An input that should be refused gives numbers that no document defines.",
    repair="Raise an error for an unsupported width.",
    citations="huggingface/transformers#35233, as a model: odd rotary sizes were neither refused nor right",
)
def rope_answers_odd_widths(x: Array, start_pos: int = 0) -> Array:
    """The code declares that it refuses odd widths, but returns a result with 0 in the last
    channel."""
    output = reference_positions.rope(x, start_pos)
    output[..., x.shape[-1] // 2 * 2 :] = 0.0
    return output


@bug.in_operation(
    SDPA,
    law="declared contracts in bits are kept",
    promises={"bits": ("batch size",)},
    effect="The output of a problem depends on the number of problems in the batch, in its last bits.",
    repair="Choose the blocks of keys by the length of the problem alone.",
    citations="Dao-AILab/flash-attention#1897; deepseek-ai/FlashMLA#212; flashinfer-ai/flashinfer#1675",
)
def sdpa_splits_by_batch_size(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code splits the keys for a small batch, which has too few problems for all processors."""
    output = right.scaled_dot_product_attention(q, k, v, mask)
    if q.ndim < 3 or len(q) < 2:
        return output
    half = np.arange(k.shape[-2]) < k.shape[-2] // 2
    parts = [right.scaled_dot_product_attention(q, k, v * keys[:, None], mask) for keys in (half, ~half)]
    return np.where(np.isfinite(parts[0] + parts[1]), parts[0] + parts[1], output)
