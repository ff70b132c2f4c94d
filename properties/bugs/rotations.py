"""Slips in rope as models use it: positions, frequencies and channels that are given, axes,
attention factors, and tables that are kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Memory, Register
from properties.bugs.kernels import rounded_to

bug = Register()
ROPE, VJP, TABLES = "rope", "rope_vjp", "rotary_tables"
_HALVES = {"conventions": Conventions(rope_pairing="half")}

# -- Positions -------------------------------------------------------------------------------------


@bug.in_step(
    "row_positions",
    seen=ROPE,
    law="the order of rows does not matter",
    effect="The mask is right, and the angles run on.",
    repair="Read the positions.",
    citations=("allenai/OLMo-core#591",),
)
def rope_positions_not_reset(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """Positions run on through sequences that are packed side by side: what is given is not read."""
    if positions is None:
        return right.row_positions(shape, start_pos, None, sections)
    counted = np.arange(positions.shape[-1])
    return np.broadcast_to(counted, positions.shape)


@bug.in_step(
    "row_positions",
    seen=ROPE,
    law="batch elements are computed independently",
    effect="Sequences that are padded on the left, or longer, are rotated by another one's positions.",
    repair="Take positions for each element of the batch.",
    origin="tests of decoding have batches of one length",
)
def rope_positions_of_the_first_problem(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """All problems of a batch have the positions of the first one."""
    at = right.row_positions(shape, start_pos, positions, sections)
    batch = at.ndim - 2 - (sections is not None)
    return at if batch < 0 else np.broadcast_to(np.take(at, [0], -2), at.shape)


@bug.in_step(
    "pair_angles",
    seen=ROPE,
    law="frequencies are radians per position",
    effect="Wrong at every position but 0, and so are references that were captured from the same code.",
    repair="Let it be 1.",
    citations=("lablup/mlxcel#1324",),
)
def rope_positions_doubled(at: Any, f: Array, sections: Any) -> Array:
    """The scale of positions is 2 where none is given: every position is doubled."""
    return right.pair_angles(2 * np.asarray(at), f, sections)


@bug.in_step(
    "row_positions",
    seen=ROPE,
    law="scores depend on differences of positions",
    effect="Beyond 256 neighbours share positions.",
    repair="Hold positions as integers, or in float32.",
    origin=(
        "autocast and conversions of modules reach positions as they reach weights; compare "
        "huggingface/transformers#29285"
    ),
)
def rope_given_positions_in_16_bits(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """Positions are held in bfloat16, the type of the model."""
    return rounded_to(8, np.asarray(right.row_positions(shape, start_pos, positions, sections), np.float64))


# -- Frequencies -----------------------------------------------------------------------------------


@bug.in_step(
    "pair_frequencies",
    seen=ROPE,
    law="frequencies are radians per position",
    effect="Scaling is dropped, and texts fall apart beyond the original length.",
    repair="Hand the frequencies on.",
    citations=("unslothai/unsloth#6197", "lablup/mlxcel#1355"),
)
def rope_given_frequencies_ignored(r: int, inv_freq: Any) -> Array:
    """The frequencies that are given are not read: those of the base stand in for them."""
    return right.inv_freq(r)


@bug.in_step(
    "pair_frequencies",
    seen=ROPE,
    law="frequencies are radians per position",
    effect="Angles far out are off by whole radians.",
    repair="Keep the buffer in float32.",
    citations=("sgl-project/sglang-jax#1472", "EleutherAI/gpt-neox#1003"),
)
def rope_frequencies_converted_with_the_module(r: int, inv_freq: Any) -> Array:
    """The buffer of the frequencies is rounded to bfloat16, since the module was converted after it
    was built."""
    return rounded_to(8, right.pair_frequencies(r, inv_freq))


@bug.in_step(
    "pair_frequencies",
    seen=ROPE,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect=(
        "After the switch of dynamic or longrope, or for a second model in the process, keys are rotated by other "
        "frequencies than queries."
    ),
    repair="Rotate by the frequencies at hand, or rotate kept keys anew.",
    citations=("huggingface/transformers#25104", "vllm-project/vllm#27431"),
)
def rope_frequencies_of_an_earlier_length(memory: Memory, r: int, inv_freq: Any) -> Any:
    """Frequencies are kept with the cache: those of the first call of a width serve all later ones."""
    return memory.setdefault(r, right.pair_frequencies(r, inv_freq).copy())


@bug.in_step(
    "scaled_tables",
    seen=TABLES,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="After a change of frequencies, rows of earlier calls are those of the old ones.",
    repair="Fill the table anew when frequencies change.",
    origin="a table is made longer by the rows that are missing; compare lucidrains/rotary-embedding-torch#11",
)
def rotary_table_that_grows_keeps_its_rows(
    memory: Memory, theta: Array, attention_factor: float | None
) -> tuple[Array, Array]:
    """A table that grows keeps the rows that it has, whatever their angles were."""
    cos, sin = right.scaled_tables(theta, attention_factor)
    old = memory.get(theta.shape[-1])
    if old is not None and cos.ndim == old[0].ndim and cos.shape[:-2] == old[0].shape[:-2]:
        rows = min(cos.shape[-2], old[0].shape[-2])
        cos[..., :rows, :], sin[..., :rows, :] = (x[..., :rows, :] for x in old)
    memory[theta.shape[-1]] = cos.copy(), sin.copy()
    return cos, sin


# -- Attention factors -----------------------------------------------------------------------------


@bug.in_step(
    "scaled_tables",
    seen=ROPE,
    law="an attention factor multiplies what rotates",
    effect="Scores are off by the square of the factor.",
    repair="Multiply once.",
    citations=("sgl-project/sglang#33558, where one was given and one computed",),
)
def rope_attention_factor_twice(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """The attention factor multiplies the tables, and then again what they rotate."""
    return right.scaled_tables(theta, None if attention_factor is None else attention_factor**2)


@bug.in_step(
    "scaled_tables",
    seen=ROPE,
    law="an attention factor multiplies what rotates",
    effect="The softmax of long sequences is too flat.",
    repair="Multiply cosines and sines by it.",
    origin="kernels take tables without one",
)
def rope_attention_factor_ignored(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """The attention factor is not read."""
    return right.scaled_tables(theta, None)


@bug.in_step(
    "scaled_tables",
    seen=ROPE,
    law="pairs are stretched by the attention factor alone",
    effect="Pairs change their lengths with their positions; at position 0 all is right.",
    repair="Multiply both.",
    origin="two lines, of which one was changed",
)
def rope_attention_factor_of_cosines_alone(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """The attention factor multiplies cosines, and not sines."""
    return right.scaled_tables(theta, attention_factor)[0], right.scaled_tables(theta, None)[1]


@bug.in_step(
    "beside",
    seen=ROPE,
    law="channels that do not rotate pass",
    effect="A part of every head is lost.",
    repair="Copy what does not rotate.",
    origin="the output is allocated, and its first channels are written",
)
def rope_channels_that_pass_are_zeros(turned: Array, x: Array) -> Array:
    """Channels that do not rotate come back as zeros."""
    return right.beside(turned, np.zeros_like(x))


# -- Channels and axes -----------------------------------------------------------------------------


@bug.in_operation(
    ROPE,
    law="channels that do not rotate pass",
    promises=_HALVES,
    effect="Channels rotate that should pass, and others with the wrong partner; frequencies and tables agree.",
    repair="Cut the channels that rotate off first, and halve them.",
    citations=("apple/coreai-models#66, the other way round",),
)
def rope_pairs_at_half_the_head(
    x: Array, start_pos: int = 0, *, rotary_dim: int | None = None, **options: Any
) -> Array:
    """Pairs are the channels i and i + head_dim/2, where i and i + rotary_dim/2 should be."""
    r, half = right.rotating_channels(x.shape[-1], rotary_dim), x.shape[-1] // 2
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim is {x.shape[-1]}, but should be even.")
    cos, sin = (t[..., ::2] for t in right.model_tables(x, start_pos, rotary_dim=rotary_dim, **options))
    out, first, second = x.copy(), x[..., : r // 2], x[..., half : half + r // 2]
    out[..., : r // 2], out[..., half : half + r // 2] = first * cos - second * sin, second * cos + first * sin
    return out


@bug.in_operation(
    ROPE,
    law="the order of pairs does not matter",
    promises=_HALVES,
    effect="Frequencies agree, and channels i and i + r/2 rotate where i and i + head_dim/2 should.",
    repair="Halve the whole head.",
    citations=("apple/coreai-models#66",),
)
def rope_pairs_within_the_share(
    x: Array, start_pos: int = 0, *, inv_freq: Any = None, rotary_dim: int | None = None, **options: Any
) -> Array:
    """Where frequencies are 0 from some pair on, as those of proportional rotation, pairs are made
    within the channels of the others."""
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim is {x.shape[-1]}, but should be even.")
    n = right.rotating_channels(x.shape[-1], rotary_dim) // 2
    if inv_freq is not None and options.get("sections") is None:
        n = int(np.count_nonzero(inv_freq))
    f = None if inv_freq is None else inv_freq[:n]
    cos, sin = (t[..., ::2] for t in right.model_tables(x, start_pos, inv_freq=f, rotary_dim=2 * n, **options))
    out, first, second = x.copy(), x[..., :n], x[..., n : 2 * n]
    out[..., :n], out[..., n : 2 * n] = first * cos - second * sin, second * cos + first * sin
    return out


@bug.in_step(
    "rotating_channels",
    "pair_frequencies",
    "pair_axes",
    seen=ROPE,
    law="channels that do not rotate pass",
    making=True,
    without=(TABLES,),
    effect="Channels rotate that should pass.",
    repair="Hand rotary_dim on, on every path.",
    citations=("AI-Hypercomputer/maxtext#4615, on the path of M-RoPE",),
)
def rope_all_channels_rotate() -> tuple[Callable[..., Any], ...]:
    """The number of channels that rotate is not read: all rotate, by frequencies and axes that go
    on from those that there are."""

    def axes(pairs: int, sections: Any) -> Any:
        return np.resize(right.pair_axes(sum(sections), sections), pairs)

    return (
        lambda dim, rotary_dim: dim,
        lambda r, f: right.inv_freq(r) if f is None else np.resize(f, (r + 1) // 2),
        axes,
    )


@bug.in_step(
    "pair_axes",
    seen=ROPE,
    law="each pair rotates by its own axis",
    effect="Images are misread, and text is right.",
    repair="Time comes first.",
    origin="sizes of images are written width first, or last",
)
def rope_axes_in_reverse(pairs: int, sections: Any) -> Any:
    """Blocks are of width, height and time."""
    return np.repeat(np.arange(3)[::-1], sections[::-1])[:pairs]


@bug.in_step(
    "pair_axes",
    seen=ROPE,
    law="each pair rotates by its own axis",
    effect="Images are rows of equal tokens, and text is right.",
    repair="Rotate each pair by its own axis.",
    origin="tests have equal positions in time, height and width",
)
def rope_time_alone(pairs: int, sections: Any) -> Any:
    """All pairs rotate by the position in time."""
    return np.zeros(pairs, int)


@bug.in_operation(
    ROPE,
    law="each pair rotates by its own axis",
    promises={"conventions": Conventions(mrope="interleaved")},
    effect="Images are misread, and text is right.",
    repair="Read the flag, and interleave.",
    citations=("alibaba/MNN#4133", "vllm-project/vllm-gaudi#1437"),
)
def rope_blocks_where_axes_interleave(x: Array, start_pos: int = 0, **options: Any) -> Array:
    """Pairs of time, height and width come in blocks where the model interleaves them."""
    return right.rope(x, start_pos, **options)
