"""Known bugs of rotary encodings as models use them: given positions, frequencies and channels,
sections, attention factors, and cached tables.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Memory, Register
from properties.bugs.kernels import rounded_to
from properties.bugs.reference_frequencies import rotary_frequencies

ROPE, VJP, TABLES, _EMBEDDING = "rope", "rope_vjp", "rotary_tables", "rotary_embedding"
bug = Register(seen=ROPE)
_HALVES = {"conventions": Conventions(rope_pairing="half")}

# -- Positions -------------------------------------------------------------------------------------


@bug.in_step(
    "row_positions",
    law="reordering rows reorders their results in the same way",
    effect="The mask restarts with each sequence, but the angles do not.",
    repair="Use the given positions.",
    citations="allenai/OLMo-core#591",
)
def rope_positions_not_reset(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """The code ignores the given positions and counts through packed sequences."""
    if positions is None:
        return right.row_positions(shape, start_pos, None, sections)
    counted = np.arange(positions.shape[-1])
    return np.broadcast_to(counted, positions.shape)


@bug.in_step(
    "row_positions",
    law="batch elements are computed independently",
    effect="Sequences with left padding or another length are rotated by the positions of another sequence.",
    repair="Use the positions of each batch element.",
    origin="tests of decoding have batches of one length",
)
def rope_positions_of_the_first_problem(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """All batch elements use the positions of the first one."""
    at = right.row_positions(shape, start_pos, positions, sections)
    batch = at.ndim - 2 - (sections is not None)
    return at if batch < 0 else np.broadcast_to(np.take(at, [0], -2), at.shape)


@bug.in_step(
    "pair_angles",
    law="frequencies are radians per position",
    effect="Every position except 0 is wrong, and so are references captured from the same code.",
    repair="Use a scale of 1.",
    citations="lablup/mlxcel#1324",
)
def rope_positions_doubled(at: Any, f: Array, sections: Any) -> Array:
    """The scale of positions is 2 if none is given."""
    return right.pair_angles(2 * np.asarray(at), f, sections)


@bug.in_step(
    "row_positions",
    law="rope is within its error limit",
    effect="From position 256 on, neighbours share positions.",
    repair="Store positions as integers or in float32.",
    origin="autocast and conversions of modules change positions like weights; compare huggingface/transformers#29285",
)
def rope_given_positions_in_16_bits(shape: tuple[int, ...], start_pos: int, positions: Any, sections: Any) -> Any:
    """The code stores positions in bfloat16, the type of the model."""
    return rounded_to(8, np.asarray(right.row_positions(shape, start_pos, positions, sections), np.float64))


# -- Frequencies -----------------------------------------------------------------------------------


@bug.in_step(
    "pair_frequencies",
    law="frequencies are radians per position",
    effect="Scaling has no effect, and beyond the original length generated text is nonsense.",
    repair="Pass the frequencies to the rotation.",
    citations="unslothai/unsloth#6197; lablup/mlxcel#1355",
)
def rope_given_frequencies_ignored(r: int, inv_freq: Any) -> Array:
    """The code ignores the given frequencies and uses the frequencies of the base."""
    return right.inv_freq(r)


@bug.in_step(
    "pair_frequencies",
    law="frequencies are radians per position",
    effect="Angles at far positions are wrong by whole radians.",
    repair="Keep the buffer in float32.",
    citations="sgl-project/sglang-jax#1472; EleutherAI/gpt-neox#1003",
)
def rope_frequencies_converted_with_the_module(r: int, inv_freq: Any) -> Array:
    """A conversion of the module rounds its buffer of frequencies to bfloat16."""
    return rounded_to(8, right.pair_frequencies(r, inv_freq))


@bug.in_step(
    "pair_frequencies",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect=(
        "After dynamic or longrope switches, or with a second model in the process, keys and queries use "
        "different frequencies."
    ),
    repair="Rotate by the frequencies of the call, or rotate cached keys again.",
    citations="huggingface/transformers#25104; vllm-project/vllm#27431",
)
def rope_frequencies_of_an_earlier_length(memory: Memory, r: int, inv_freq: Any) -> Any:
    """The code caches the frequencies of the first call by width, for all later calls."""
    return memory.setdefault(r, right.pair_frequencies(r, inv_freq).copy())


@bug.in_step(
    "scaled_tables",
    seen=TABLES,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="After a change of frequencies, old rows have the old frequencies.",
    repair="Rebuild the table when frequencies change.",
    origin="code extends a table by the missing rows; compare lucidrains/rotary-embedding-torch#11",
)
def rotary_table_that_grows_keeps_its_rows(
    memory: Memory, theta: Array, attention_factor: float | None
) -> tuple[Array, Array]:
    """A table that grows keeps its old rows for every new set of angles."""
    cos, sin = right.scaled_tables(theta, attention_factor)
    old_tables = memory.get(theta.shape[-1])
    if old_tables is not None and cos.ndim == old_tables[0].ndim and cos.shape[:-2] == old_tables[0].shape[:-2]:
        rows = min(cos.shape[-2], old_tables[0].shape[-2])
        cos[..., :rows, :], sin[..., :rows, :] = (x[..., :rows, :] for x in old_tables)
    memory[theta.shape[-1]] = cos.copy(), sin.copy()
    return cos, sin


# -- Attention factors -----------------------------------------------------------------------------


@bug.in_step(
    "scaled_tables",
    law="an attention factor multiplies the rotated channels",
    effect="Scores are wrong by the square of the factor.",
    repair="Multiply once.",
    citations="sgl-project/sglang#33558, where one was given and one computed",
)
def rope_attention_factor_twice(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """The code multiplies the tables by the attention factor, and the rotated channels again."""
    return right.scaled_tables(theta, None if attention_factor is None else attention_factor**2)


@bug.in_step(
    "scaled_tables",
    law="an attention factor multiplies the rotated channels",
    effect="The softmax of long sequences is too flat.",
    repair="Multiply cosines and sines by the factor.",
    origin="kernels take tables without a factor",
)
def rope_attention_factor_ignored(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """The code ignores the attention factor."""
    return right.scaled_tables(theta, None)


@bug.in_step(
    "scaled_tables",
    law="only the attention factor changes the norm of a pair",
    effect="The norms of pairs depend on the position; position 0 is correct.",
    repair="Multiply both.",
    origin="only one of two lines was changed",
)
def rope_attention_factor_of_cosines_alone(theta: Array, attention_factor: float | None) -> tuple[Array, Array]:
    """The code multiplies cosines but not sines by the attention factor."""
    return right.scaled_tables(theta, attention_factor)[0], right.scaled_tables(theta, None)[1]


@bug.in_step(
    "beside",
    law="channels that do not rotate are returned unchanged",
    effect="A part of every head is lost.",
    repair="Copy the channels that do not rotate.",
    origin="the code allocates the output and writes only its first channels",
)
def rope_channels_that_pass_are_zeros(turned: Array, x: Array) -> Array:
    """Channels that do not rotate become zeros."""
    return right.beside(turned, np.zeros_like(x))


# -- Channels and axes -----------------------------------------------------------------------------


@bug.in_operation(
    ROPE,
    law="channels that do not rotate are returned unchanged",
    promises=_HALVES,
    effect=(
        "Channels rotate that should pass through, and others have the wrong partner; frequencies and tables are "
        "correct."
    ),
    repair="First take the channels that rotate, then split them in halves.",
    citations="apple/coreai-models#66, the other way round",
)
def rope_pairs_at_half_the_head(
    x: Array, start_pos: int = 0, *, rotary_dim: int | None = None, **options: Any
) -> Array:
    """Pairs are the channels i and i + head_dim/2 instead of i and i + rotary_dim/2."""
    r, half = right.rotating_channels(x.shape[-1], rotary_dim), x.shape[-1] // 2
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim is {x.shape[-1]}, but should be even.")
    cos, sin = (table[..., ::2] for table in right.model_tables(x, start_pos, rotary_dim=rotary_dim, **options))
    output, first, second = x.copy(), x[..., : r // 2], x[..., half : half + r // 2]
    output[..., : r // 2], output[..., half : half + r // 2] = first * cos - second * sin, second * cos + first * sin
    return output


@bug.in_operation(
    ROPE,
    law="reordering pairs reorders their results in the same way",
    promises=_HALVES,
    effect="Channels i and i + r/2 rotate instead of i and i + head_dim/2; frequencies are correct.",
    repair="Split the whole head in halves.",
    citations="apple/coreai-models#66",
)
def rope_pairs_within_the_share(
    x: Array, start_pos: int = 0, *, inv_freq: Any = None, rotary_dim: int | None = None, **options: Any
) -> Array:
    """If frequencies end in zeros, as in proportional rotation, the code makes pairs only within
    the channels of the other frequencies."""
    if x.shape[-1] % 2:
        raise ValueError(f"head_dim is {x.shape[-1]}, but should be even.")
    pairs = right.rotating_channels(x.shape[-1], rotary_dim) // 2
    if inv_freq is not None and options.get("sections") is None:
        pairs = int(np.count_nonzero(inv_freq))
    f = None if inv_freq is None else inv_freq[:pairs]
    cos, sin = (
        table[..., ::2] for table in right.model_tables(x, start_pos, inv_freq=f, rotary_dim=2 * pairs, **options)
    )
    output, first, second = x.copy(), x[..., :pairs], x[..., pairs : 2 * pairs]
    output[..., :pairs], output[..., pairs : 2 * pairs] = first * cos - second * sin, second * cos + first * sin
    return output


@bug.in_step(
    "rotating_channels",
    "pair_frequencies",
    "pair_axes",
    law="channels that do not rotate are returned unchanged",
    making=True,
    without=(TABLES, _EMBEDDING),
    effect="Channels rotate that should pass through.",
    repair="Pass rotary_dim on every path.",
    citations="AI-Hypercomputer/maxtext#4615, on the path of M-RoPE",
)
def rope_all_channels_rotate() -> tuple[Callable[..., Any], ...]:
    """The code ignores rotary_dim and rotates all channels, with repeated frequencies and axes."""

    def axes(pairs: int, sections: Any) -> Any:
        return np.resize(right.pair_axes(sum(sections), sections), pairs)

    return (
        lambda dim, rotary_dim: dim,
        lambda r, f: right.inv_freq(r) if f is None else np.resize(f, (r + 1) // 2),
        axes,
    )


@bug.in_step(
    "pair_axes",
    without=(_EMBEDDING,),
    law="each pair rotates by the position of the axis that it belongs to",
    effect="The model misreads images; text is correct.",
    repair="Put time first.",
    origin="image sizes have the width first in some libraries and last in others",
)
def rope_axes_in_reverse(pairs: int, sections: Any) -> Any:
    """The blocks of axes are width, height, time instead of time, height, width."""
    return np.repeat(np.arange(len(sections))[::-1], sections[::-1])[:pairs]


@bug.in_step(
    "pair_axes",
    without=(_EMBEDDING,),
    law="each pair rotates by the position of the axis that it belongs to",
    effect="All tokens of an image look the same; text is correct.",
    repair="Rotate each pair by the position on its axis.",
    origin="tests use equal positions in time, height and width",
)
def rope_time_alone(pairs: int, sections: Any) -> Any:
    """All pairs rotate by the position in time."""
    return np.zeros(pairs, int)


def _along(axis_of: Callable[[Any, Any], Any], x: Array, start_pos: int, options: dict[str, Any]) -> Array:
    """Return x rotated by the position of an axis for each pair, where `axis_of` gives the axes of
    pairs, from their numbers and the sections.
    """
    sections = options.get("sections")
    if sections is None:
        return right.rope(x, start_pos, **options)
    f = right.pair_frequencies(right.rotating_channels(x.shape[-1], options.get("rotary_dim")), options.get("inv_freq"))
    at = np.asarray(right.row_positions(x.shape, start_pos, options.get("positions"), sections))
    axes = axis_of(np.arange(len(f)), np.array(sections))
    tables = right.scaled_tables(np.moveaxis(at, 0, -1)[..., axes] * f, options.get("attention_factor"))
    return right.beside(right.apply_rotary(x[..., : 2 * len(f)], *tables), x)


@bug.in_operation(
    ROPE,
    law="each pair rotates by the position of the axis that it belongs to",
    promises={"conventions": Conventions(mrope="interleaved")},
    effect="The last pairs of an image rotate by height and width instead of time.",
    repair="Take every third pair up to three times the section.",
    citations="XPU-Forces/mojo_opset#276",
)
def rope_interleaved_to_the_end(x: Array, start_pos: int = 0, **options: Any) -> Array:
    """The code interleaves the axes over all pairs, whatever the sections of height and width are."""
    return _along(lambda pair, sections: pair % len(sections), x, start_pos, options)


@bug.in_operation(
    ROPE,
    law="each pair rotates by the position of the axis that it belongs to",
    promises={"conventions": Conventions(mrope="interleaved")},
    effect="Saturated sections rotate some pairs of time by height and width.",
    repair="Give time the pairs that the loop of every third pair leaves.",
    origin="sections of 8, 12 and 12 among 32 pairs are counted out, but the loop that models run gives 11, 11 and "
    "10; compare mflux-community/mflux#483",
)
def rope_saturated_sections_counted_out(x: Array, start_pos: int = 0, **options: Any) -> Array:
    """The code takes axes in turn until each has as many pairs as its section says."""

    def axis_of(pair: Any, sections: Any) -> Any:
        left, axes = sections.tolist(), list[int]()
        while len(axes) < len(pair):
            axes += [axis for axis, number in enumerate(left) if number]
            left = [max(number - 1, 0) for number in left]
        return np.array(axes[: len(pair)], int)

    return _along(axis_of, x, start_pos, options)


@bug.in_operation(
    ROPE,
    law="each pair rotates by the position of the axis that it belongs to",
    promises={"conventions": Conventions(mrope="interleaved")},
    effect="The model misreads images; text is correct.",
    repair="Read the flag, and interleave the axes.",
    citations="alibaba/MNN#4133; vllm-project/vllm-gaudi#1437",
)
def rope_blocks_where_axes_interleave(x: Array, start_pos: int = 0, **options: Any) -> Array:
    """The code uses blocks of time, height and width for a model that interleaves the axes."""
    return right.rope(x, start_pos, **options)


# -- Queries and keys rotated by a kind of frequencies ---------------------------------------------

_BY_KIND = "queries and keys rotated by a kind are within their error limit"


@bug.in_step(
    "divided",
    seen=_EMBEDDING,
    law=_BY_KIND,
    effect="Beyond the original context, slow pairs rotate too fast, and the model forgets the prompt.",
    repair="Pass the factors to the rotation.",
    citations="ikawrakow/ik_llama.cpp#2291; ollama/ollama#5924",
)
def embedding_without_freq_factors(f: Array, freq_factors: Any) -> Array:
    """The code loads the factors of the frequencies, and never uses them."""
    return f


@bug.in_step(
    "divided",
    seen=_EMBEDDING,
    law=_BY_KIND,
    effect="Slow pairs rotate faster instead of slower.",
    repair="Divide the frequencies by the factors.",
    origin="factors are divisors in ggml and multipliers elsewhere; compare InfiniTensor/InfiniCore#1200",
)
def embedding_times_freq_factors(f: Array, freq_factors: Any) -> Array:
    """The code multiplies the frequencies by the factors."""
    return f if freq_factors is None else f * freq_factors


@bug.in_operation(
    _EMBEDDING,
    law=_BY_KIND,
    effect="Scores of YaRN and LongRoPE are too small: the factor acts once instead of twice.",
    repair="Multiply the rotated keys by the attention factor too.",
    origin="one call rotates queries and keys, and the factor is folded into the queries",
)
def embedding_factor_of_queries_alone(q: Array, k: Array, positions: Any, kind: str, **given: Any) -> Any:
    """The code multiplies only the queries by the attention factor."""
    rotated_q, rotated_k = right.rotary_embedding(q, k, positions, kind, **given)
    _, factor = rotary_frequencies(
        kind, q.shape[-1], **{name: value for name, value in given.items() if name != "freq_factors"}
    )
    r = given.get("rotary_dim") or k.shape[-1]
    return rotated_q, np.concatenate([rotated_k[..., :r] / factor, rotated_k[..., r:]], -1)
