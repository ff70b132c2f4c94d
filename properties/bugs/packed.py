"""Known bugs of packed sequences: which rows belong to a sequence, where its queries stand among its
keys, and where its results go.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference_packed as right
from properties.bugs.bug import Register
from properties.bugs.quantised import scaled
from properties.bugs.reference_packed import Packing

PACKED, VJP = "packed_attention", "packed_attention_vjp"
bug = Register(seen=PACKED)
in_key_rows = partial(bug.in_step, "key_rows")
ALONE, ORDER = "a sequence gives the same result alone", "the order of sequences does not matter"
UNUSED, AGREES = (
    "rows that no sequence uses do not matter",
    "attention over packed sequences is within its error limit",
)
_LAST_QUERY: dict[str, Any] = {
    "promises": {"conventions": Conventions(causal="bottom_right")},
    "only_under": {"causal": "bottom_right"},
}
"""The last query has the position of the last key."""


def _among(rows: Any, total: int) -> Any:
    """Return the rows that exist."""
    return rows[(rows >= 0) & (rows < total)]


# -- Which keys belong to a sequence ---------------------------------------------------------------


@in_key_rows(
    law=ALONE,
    effect="In cross attention, sequences see keys of other sequences.",
    repair="Find the keys by cu_k.",
    citations="vllm-project/vllm-omni#3525",
)
def packed_keys_by_the_boundaries_of_queries(packing: Packing, sequence: int) -> Any:
    """The code finds the keys of a sequence by the boundaries of the queries."""
    return _among(np.arange(packing.cu_q[sequence], packing.cu_q[sequence + 1]), packing.total_k)


@in_key_rows(
    law=ALONE,
    effect="Short sequences see the keys of the sequences behind them.",
    repair="Use the length of the sequence.",
    citations="Dao-AILab/flash-attention#1192; vllm-project/flash-attention#18",
)
def packed_keys_of_the_longest_length(packing: Packing, sequence: int) -> Any:
    """The code takes max_seqlen_k as the number of keys of each sequence."""
    return _among(packing.cu_k[sequence] + np.arange(packing.longest_k), packing.total_k)


@in_key_rows(
    law=UNUSED,
    effect="Queries attend to keys that are not valid.",
    repair="Stop at seqused_k.",
    citations="jax-ml/jax#23349",
)
def packed_used_keys_ignored(packing: Packing, sequence: int) -> Any:
    """The code ignores seqused_k and reads all keys that a sequence owns."""
    return np.arange(packing.cu_k[sequence], packing.cu_k[sequence + 1])


@in_key_rows(
    seen=VJP,
    without=(PACKED,),
    law=UNUSED,
    effect="The forward is right, and gradients are wrong where sequences use a part of their keys.",
    repair="Use seqused_k in the backward too.",
    citations="Dao-AILab/flash-attention#2167",
)
def packed_used_keys_ignored_by_the_backward(packing: Packing, sequence: int) -> Any:
    """The backward ignores seqused_k and reads all keys that a sequence owns."""
    return np.arange(packing.cu_k[sequence], packing.cu_k[sequence + 1])


@in_key_rows(
    law=ALONE,
    effect="Sequences miss keys, or see keys of the next sequence.",
    repair="Read the length at the index of the sequence.",
    origin="the start is at index b and the end at index b + 1, and the length has one index for both",
)
def packed_key_length_of_the_sequence_before(packing: Packing, sequence: int) -> Any:
    """The code takes the number of keys from the sequence before."""
    return _among(packing.cu_k[sequence] + np.arange(packing.lengths_k[max(sequence - 1, 0)]), packing.total_k)


@in_key_rows(
    law=ALONE,
    effect="Each sequence sees the first key of the next one.",
    repair="End before cu_k[b + 1].",
    origin="some libraries give the last index of a range, others the one behind it",
)
def packed_first_key_of_the_next_sequence(packing: Packing, sequence: int) -> Any:
    """The code reads one key more than the sequence has."""
    return _among(packing.cu_k[sequence] + np.arange(packing.lengths_k[sequence] + 1), packing.total_k)


@in_key_rows(
    law=ALONE,
    effect="The last block of a sequence reaches into the next sequence.",
    repair="Mask the keys of the last block by the length of the sequence.",
    citations="tile-ai/tilelang#2010",
)
def packed_keys_in_whole_blocks(packing: Packing, sequence: int, tile: int = 16) -> Any:
    """The code reads whole blocks of {tile} keys, with no limit at the end of a sequence."""
    return _among(packing.cu_k[sequence] + np.arange(-(-packing.lengths_k[sequence] // tile) * tile), packing.total_k)


@in_key_rows(
    law=ALONE,
    effect="Documents attend to each other.",
    repair="Mask by the boundaries.",
    citations="Tencent-Hunyuan/HunyuanVideo#310; axolotl-ai-cloud/axolotl#3796",
)
def packed_boundaries_ignored(packing: Packing, sequence: int) -> Any:
    """The code ignores the boundaries: each query sees the keys of all sequences."""
    return np.arange(packing.cu_k[-1])


@in_key_rows(
    law=ALONE,
    effect="Two sequences are right; of more, all but the first merge.",
    repair="Go through all boundaries.",
    citations="Tencent-Hunyuan/HunyuanVideo#310",
)
def packed_one_boundary_for_all(packing: Packing, sequence: int) -> Any:
    """The code uses only the first boundary inside: all later sequences are one."""
    return right.key_rows(packing, sequence) if sequence == 0 else np.arange(packing.cu_k[1], packing.cu_k[-1])


@in_key_rows(
    law=ALONE,
    effect="Sequences of equal lengths are right; others read the keys of their neighbours.",
    repair="Begin at cu_k[b].",
    citations="NVIDIA/Megatron-LM#351",
)
def packed_keys_at_equal_distances(packing: Packing, sequence: int) -> Any:
    """The code computes where the keys begin as if all sequences had the longest length."""
    return _among(sequence * packing.longest_k + np.arange(packing.lengths_k[sequence]), packing.total_k)


@in_key_rows(
    law=ALONE,
    effect="Behind an empty sequence, queries see the keys of another sequence.",
    repair="Keep empty sequences on both sides.",
    citations="fla-org/flash-linear-attention#103; NVIDIA/Megatron-LM#5298",
)
def packed_sequences_without_queries_removed(packing: Packing, sequence: int) -> Any:
    """The code removes sequences without queries from cu_q, but leaves their keys in cu_k."""
    return right.key_rows(packing, int((packing.lengths_q[:sequence] > 0).sum()))


@in_key_rows(
    law=ALONE,
    effect="A sequence of one token is joined to the next sequence.",
    repair="Pass the lengths of sequences.",
    citations="modelscope/ms-swift#9904",
)
def packed_sequences_of_one_token_merge(packing: Packing, sequence: int) -> Any:
    """The code finds boundaries where positions fall, and misses the end of a sequence of one token."""
    before = right.key_rows(packing, sequence - 1) if sequence and packing.lengths_k[sequence - 1] == 1 else []
    return np.array([*before, *right.key_rows(packing, sequence)], int)


@in_key_rows(
    law=UNUSED,
    effect="The last sequence attends to padding.",
    repair="End at the last boundary.",
    origin="the end of a sequence is the start of the next one, and the last one has no next one",
)
def packed_last_sequence_to_the_end_of_the_array(packing: Packing, sequence: int) -> Any:
    """The last sequence has all keys up to the end of the array."""
    is_last = sequence == len(packing.cu_k) - 2
    return np.arange(packing.cu_k[sequence], packing.total_k) if is_last else right.key_rows(packing, sequence)


# -- Which queries are computed --------------------------------------------------------------------


@bug.in_step(
    "sequence_numbers",
    law=ALONE,
    effect="The last sequence has no result.",
    repair="There are len(cu_q) − 1 sequences.",
    origin="cu_q has one entry more than there are sequences, and some code subtracts 1 twice",
)
def packed_last_sequence_dropped(packing: Packing) -> Iterator[int]:
    """The code computes one sequence less than there are."""
    return iter(range(len(packing.cu_q) - 2))


@bug.in_step(
    "query_rows",
    law=AGREES,
    effect="With one query for each sequence, empty sequences shift the results of all later ones.",
    repair="Compare the number of queries with the number of sequences.",
    citations="Dao-AILab/flash-attention#1537; Dao-AILab/flash-attention#1619",
)
def packed_one_query_for_each_sequence(packing: Packing, sequence: int) -> Any:
    """If max_seqlen_q is 1, the code takes row b as the query of sequence b, also if sequences are empty."""
    if packing.longest_q != 1:
        return right.query_rows(packing, sequence)
    return _among(np.array([sequence]), min(packing.total_q, packing.cu_q[-1]))


@bug.in_step(
    "query_rows",
    seen=VJP,
    without=(PACKED,),
    law=UNUSED,
    effect="Padding adds to the gradients of keys and values.",
    repair="Stop at seqused_q.",
    citations="pytorch/pytorch#188933",
)
def packed_cotangents_of_unused_queries(packing: Packing, sequence: int) -> Any:
    """The backward reads the cotangents of queries that a sequence owns but does not use."""
    return np.arange(packing.cu_q[sequence], packing.cu_q[sequence + 1])


# -- Positions and options -------------------------------------------------------------------------


@bug.in_step(
    "query_offset",
    law=ALONE,
    effect="Shorter sequences see too many keys or too few.",
    repair="Use the lengths of the sequence.",
    origin="in a padded batch the longest lengths are the sizes of the array",
    **_LAST_QUERY,
)
def packed_alignment_by_the_longest(packing: Packing, sequence: int) -> int:
    """The code aligns the causal mask of each sequence by max_seqlen_k − max_seqlen_q."""
    return packing.longest_k - packing.longest_q


@bug.in_step(
    "query_offset",
    law=UNUSED,
    effect="With a part of the keys in use, queries see the wrong keys.",
    repair="Use seqused_q and seqused_k.",
    origin="used lengths were added for inference, where the mask of one query does not show it",
    **_LAST_QUERY,
)
def packed_alignment_by_owned_rows(packing: Packing, sequence: int) -> int:
    """The code aligns the causal mask by the rows that a sequence owns instead of those that it uses."""
    return int(np.diff(packing.cu_k)[sequence] - np.diff(packing.cu_q)[sequence])


@bug.in_step(
    "query_offset",
    law=ALONE,
    effect="Masks and windows are right in the first sequence alone.",
    repair="Count positions from the start of the sequence.",
    origin="in self attention the starts of queries and keys are equal",
)
def packed_positions_of_the_whole_array(packing: Packing, sequence: int) -> int:
    """The code compares row numbers in the packed arrays instead of positions in the sequence."""
    return int(packing.cu_q[sequence] - packing.cu_k[sequence])


@bug.in_step(
    "options_of_sequence",
    law=ALONE,
    effect="Only the first sequence has sinks.",
    repair="Add the sink to each sequence.",
    origin="the block that adds the sink is chosen by its number in the whole grid",
)
def packed_sink_of_the_first_sequence(packing: Packing, sequence: int, options: dict[str, Any]) -> dict[str, Any]:
    """The code adds the sinks in the first sequence only."""
    sink = options.get("sink")
    lost = None if sink is None else np.full(sink.shape, -np.inf)
    return right.options_of_sequence(packing, sequence, options if sequence == 0 else {**options, "sink": lost})


@bug.in_step(
    "sequence_of",
    law=ALONE,
    effect="The first sequence is right, and later ones use the keys of other heads.",
    repair="Divide the number of the query head inside its sequence.",
    citations="XunhaoLai/native-sparse-attention-triton#27",
)
def packed_key_head_of_the_whole_grid(
    q: Array, k: Array, v: Array, packing: Packing, sequence: int
) -> tuple[Array, ...]:
    """The code finds the key head from the number of the block, which counts the heads of all sequences."""
    queries, keys, values = right.sequence_of(q, k, v, packing, sequence)
    return queries, *(np.roll(x, sequence % max(len(x), 1), 0) for x in (keys, values))


# -- Where results go ------------------------------------------------------------------------------


@bug.in_step(
    "lse_layout",
    without=(VJP,),
    law=ORDER,
    effect="Each row has the log-sum-exp of another row and head.",
    repair="Transpose the array; a view of another shape does not move numbers.",
    citations="vllm-project/vllm#57012; vllm-project/vllm-xpu-kernels#479",
)
def packed_lse_in_another_layout(lse: Array) -> Array:
    """The code writes the log-sum-exps with the rows first, and returns them as if heads were first."""
    return lse.reshape(right.lse_layout(lse).shape).copy()


@bug.in_step(
    "sequence_numbers",
    "put",
    without=(VJP,),
    law=ALONE,
    making=True,
    effect="The first rows of a sequence are overwritten.",
    repair="Mask the store by the length of the sequence.",
    citations="tile-ai/tilelang#2010",
)
def packed_store_in_whole_blocks() -> tuple[Any, Any]:
    """The code stores whole blocks of 16 rows, and so writes zeros behind the end of a sequence."""

    def put(whole: Array, rows: Any, part: Array) -> None:
        right.put(whole, rows, part)
        if len(rows):
            whole[rows[-1] + 1 : rows[-1] + 1 + -len(rows) % 16] = 0.0

    return lambda packing: iter(range(len(packing.cu_q) - 1)[::-1]), put


@bug.in_operation(
    VJP,
    law=AGREES,
    effect="Keys without queries have gradients from an earlier call.",
    repair="Write zeros for sequences without queries.",
    citations="Dao-AILab/flash-attention#2568; Dao-AILab/flash-attention#1713",
)
def packed_gradients_without_queries_not_written(*arrays: Any, **options: Any) -> tuple[Any, ...]:
    """The backward writes nothing to dk and dv where a sequence has no queries."""
    q, k, _, cu_q, cu_k, _ = arrays
    packing = right.packing_of(q, k, cu_q, cu_k, dict(options))
    dq, dk, dv, dsink = right.packed_attention_vjp(*arrays, **options)
    for sequence in right.sequence_numbers(packing):
        if not packing.lengths_q[sequence]:
            dk[right.key_rows(packing, sequence)] = dv[right.key_rows(packing, sequence)] = 1.0
    return dq, dk, dv, dsink


@bug.in_step(
    "sink_total",
    seen=VJP,
    law=ALONE,
    effect="Sinks learn from one sequence of the pack.",
    repair="Add the parts of all sequences.",
    origin="each sequence writes its part instead of adding it",
)
def packed_sink_gradient_of_the_last_sequence(parts: list[Any], sink: Any) -> Any:
    """The gradient of the sinks is the part of the last sequence."""
    return right.sink_total(parts[-1:], sink)


@bug.in_step(
    "query_rows",
    "key_rows",
    law="row numbers beyond 16 bits are right",
    requires=("large sizes",),
    making=True,
    effect="From row 32768 on, results are those of other rows.",
    repair="Compute row numbers in 32 bits, and addresses in 64.",
    citations="sgl-project/sglang#20389; Knowledgator/FlashDeBERTa#11",
)
def packed_row_numbers_of_16_bits() -> tuple[Any, Any]:
    """The code keeps row numbers in 16 bits."""
    return tuple(  # type: ignore[return-value]
        lambda packing, sequence, rows=rows: rows(packing, sequence).astype(np.uint16).astype(int)
        for rows in (right.query_rows, right.key_rows)
    )


# -- Scales of codes -------------------------------------------------------------------------------


@bug.in_step(
    "packed_scales_of",
    **scaled("token", ALONE),
    effect="All sequences have the scales of the first rows.",
    repair="Add the start of the sequence to the position.",
    origin="codes are read at an address that has the start of the sequence, and scales at the position in it",
)
def packed_scale_by_position(packing: Packing, sequence: int, name: str, scale: Array) -> Array:
    """The code reads the scale of a row at the position of the row in its sequence."""
    rows = right.packed_scales_of(packing, sequence, name, scale).shape[1]
    return right.heads_first(scale[:rows])


@bug.in_operation(
    PACKED,
    **scaled(law="k_scale acts as a factor of scale"),
    effect="Outputs are right, and parts of the keys are merged with wrong weights.",
    repair="Multiply the maximum and the scores in the log-sum-exp by the scales.",
    origin="maxima and sums are kept in units of codes; compare local-inference-lab/b12x#119",
)
def packed_lse_without_scales(*arrays: Any, **options: Any) -> tuple[Array, Array]:
    """The log-sum-exp is that of the codes, without q_scale and k_scale."""
    out, _ = right.packed_attention(*arrays, **options)
    return out, right.packed_attention(*arrays, **options | {"q_scale": None, "k_scale": None})[1]
