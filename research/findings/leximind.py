"""LexiMind: its modules against their docstrings."""

import numpy as np
import torch

import oracles
from research.findings.finding import Findings, Seen, outcome, shown
from systems.leximind import LearnedPositionalEncoding, PositionalEncoding

__all__ = ["finding"]

finding = Findings("LexiMind")
_FILE = "OliverPerrin/LexiMind, src/models/positional_encoding.py"


@finding("d_model is the dimension of the embeddings.", _FILE)
def an_odd_width_fails_but_for_one() -> Seen:
    """There is a column of cosines too many."""
    return Seen("PositionalEncoding(3)", "an encoding, or a refusal that says what is wrong", outcome(lambda: PositionalEncoding(3).pe))


@finding("max_len is the number of positions that are computed.", _FILE)
def a_table_of_one_position_gives_every_token_position_zero() -> Seen:
    """Every other table refuses a longer sequence; one row is broadcast."""
    module = PositionalEncoding(2, max_len=1).eval()
    return Seen("max_len=1, zeros of shape (1, 3, 2)", "a refusal", shown(module(torch.zeros(1, 3, 2))))


@finding("Input of shape (batch, seq_len, d_model).", _FILE)
def an_unbatched_token_becomes_as_many_as_it_has_entries() -> Seen:
    """Positions are counted along the second axis, and the sum broadcasts."""
    return Seen("zeros of shape (1, 4)", "a refusal", f"shape {tuple(PositionalEncoding(4).eval()(torch.zeros(1, 4)).shape)}")


@finding("padding_idx is the index of the padding token, used to mask out padding positions if needed.", _FILE)
def padding_idx_is_not_used() -> Seen:
    """Row 1 is trained as the others are."""
    module = LearnedPositionalEncoding(2, max_len=3, padding_idx=1).eval()
    module(torch.zeros(1, 3, 2)).sum().backward()
    return Seen("padding_idx=1: the gradient of row 1 of the table", "[0., 0.]", shown(module.embeddings.weight.grad[1]))  # type: ignore[index]


@finding("PE(pos, 2i) = sin(pos / 10000^(2i/d_model)).", _FILE)
def angles_of_single_precision_lose_digits_with_the_position() -> Seen:
    """Positions and frequencies are multiplied in single precision; the budget of such code allows it."""
    table = PositionalEncoding(512).pe[0].numpy()
    error = np.abs(table - oracles.sinusoidal_positional_encoding(5000, 512, method="fast").mid)
    row, column = np.unravel_index(error.argmax(), error.shape)
    return Seen("d_model=512, max_len=5000", "within 6e-8 of the formula", f"{error.max():.1e} from it at position {row}, column {column}")
