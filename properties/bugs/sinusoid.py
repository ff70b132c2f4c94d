"""Known bugs of the sinusoidal encoding: which entry is in which column."""

from functools import partial

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import SINUSOID, Register

bug = Register()
in_sinusoid = partial(bug.in_operation, SINUSOID)


def _with_exponents(factor: float, seq_len: int, embed_dim: int, start_pos: int) -> Array:
    """Return sines and cosines where the exponent of column j is factor·j/dim."""
    columns = np.arange(embed_dim)
    theta = right.positions(start_pos, seq_len)[:, None] * 10000.0 ** (-factor * columns / max(embed_dim, 1))
    return np.asarray(np.where(columns % 2, np.cos(theta), np.sin(theta)))


@in_sinusoid(
    law="position 0 rotates by angle 0",
    public=True,
    effect="Weights trained with interleaved columns read the wrong frequencies.",
    repair="Put the sine of pair i into column 2i, and its cosine into column 2i + 1.",
    citations="facebookresearch/fairseq#4648; tensorflow/tensor2tensor#1925; allenai/allennlp#2993",
)
def sin_concatenated_layout(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """All sines come first, then all cosines."""
    table = right.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)


@in_sinusoid(
    law="at position p the first pair rotates by p radians",
    public=True,
    effect="The two columns of a pair have different frequencies, and frequencies fall twice as fast.",
    repair="Divide the index of the column by 2 and round down, then double it.",
    citations=(
        "jadore801120/attention-is-all-you-need-pytorch#32; shenweichen/DeepCTR#379; SamLynnEvans/Transformer#25; "
        "DongjunLee/transformer-tensorflow#6"
    ),
)
def sin_doubled_exponent(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The exponent is 2j/dim for column j instead of the pair."""
    return _with_exponents(2.0, seq_len, embed_dim, start_pos)


@in_sinusoid(
    law="at position p the first pair rotates by p radians",
    public=True,
    effect="A cosine has a lower frequency than its sine, so a pair is not a point on a circle.",
    repair="In column j use the exponent of the sine, (j − 1)/dim.",
    citations="maxjcohen/transformer#62",
)
def sin_cos_next_exponent(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The cosine in column j has the exponent j/dim instead of (j − 1)/dim."""
    return _with_exponents(1.0, seq_len, embed_dim, start_pos)


@in_sinusoid(
    law="at position p the first pair rotates by p radians",
    effect="Nearly all entries are 0.",
    repair="Give the encoding a floating-point type.",
    citations="huggingface/transformers#47674; huggingface/transformers#47985",
)
def sin_cast_to_integers(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The code casts the encoding to the integer type of the positions."""
    return np.trunc(right.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos))


@in_sinusoid(
    law="pair 2i at width 2d has the same angle as pair i at width d",
    effect="An odd width raises an error.",
    repair="Drop the last cosine: cos(theta[:, : dim // 2]).",
    citations="codertimo/BERT-pytorch#78; gc-os-ai/pyaptamer#526; gc-os-ai/pyaptamer#607",
)
def sin_odd_width_raises(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The code computes as many cosines as sines, which do not fit into an odd width."""
    theta, output = right.angles(start_pos, seq_len, embed_dim), np.empty((seq_len, embed_dim))
    output[:, 0::2], output[:, 1::2] = np.sin(theta), np.cos(theta)
    return output


@in_sinusoid(
    law="pair 2i at width 2d has the same angle as pair i at width d",
    effect="The last column of an odd width carries no position.",
    repair="Compute (dim + 1) // 2 sines.",
    origin="the padding silences an error",
)
def sin_odd_width_padded(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The code computes whole pairs only, and fills the last column of an odd width with zeros."""
    table = right.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos)
    table[:, embed_dim // 2 * 2 :] = 0.0
    return table


@in_sinusoid(
    law="all results have the declared types and shapes, and are finite",
    effect="Positions have 7 digits in a model that has 16.",
    repair="Compute and return the type of the model.",
    origin="float32 is the default of most libraries, and code builds tables before it knows the type of the model",
)
def sin_returns_float32(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The encoding is float32."""
    return right.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos).astype(np.float32)


@in_sinusoid(
    law="a chunk of positions equals the slice of the whole",
    effect="Rows leave the circle, and the error grows with every row.",
    repair="Compute each row from its own angle.",
    origin="a product is cheaper than a sine",
)
def sin_rows_by_recurrence(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The code computes each row by rotating the previous row, with a cosine and a sine in float32."""
    step = np.exp(1j * right.inv_freq(embed_dim)).astype(np.complex64).astype(np.complex128)
    rotated = np.exp(1j * right.angles(start_pos, 1, embed_dim)) * step ** np.arange(seq_len)[:, None]
    return np.stack([rotated.imag, rotated.real], axis=-1).reshape(seq_len, 2 * rotated.shape[1])[:, :embed_dim]


@in_sinusoid(
    law="position 0 rotates by angle 0",
    effect="At position 0, the even columns are 1.",
    repair="Put the sine first.",
    origin="exp(iθ) is cos θ + i sin θ, with the cosine first",
)
def sin_cosine_first(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The even columns hold cosines, and the odd columns hold sines."""
    theta = right.channels(right.angles(start_pos, seq_len, embed_dim), embed_dim)
    return np.where(np.arange(embed_dim) % 2, np.sin(theta), np.cos(theta))
