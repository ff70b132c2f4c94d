"""fairseq2: its page against its code."""

import numpy as np
import torch

from research.findings.finding import Findings, Seen, outcome, shown
from spec.tensor_core import Array
from systems.fairseq2 import SinusoidalPositionEncoder

__all__ = ["PRINTED", "finding", "readings"]

finding = Findings("fairseq2")
_PAGE = "fairseq2's documentation, page Position Encoders"

PRINTED = np.array([[1.0, 1.0, 2.0, 2.0], [9.4147e-1, 2.0e-4, 6.4030e-1, 2.0], [1.0930e-2, 3.0e-4, -5.1615e-1, 2.0]])
"""What the page prints for SinusoidalPositionEncoder(encoding_dim=4, max_seq_len=16) on ones of shape (3, 4)."""


def readings() -> dict[str, Array]:
    """The example under each reading of the page, sines of two columns and cosines of two, added to ones."""
    exponents = {
        "the code, i/(d/2 − 1)": [0, 1, 0, 1],
        "the page's formula, i/d": [0, 0.25, 0.5, 0.75],
        "i/d, counted in each half": [0, 0.25, 0, 0.25],
        "the paper's 2i/d, in halves": [0, 0.5, 0, 0.5],
    }
    angles = {name: np.arange(3)[:, None] * 10000.0 ** -np.array(e, float) for name, e in exponents.items()}
    return {name: 1 + np.concatenate([np.sin(a[:, :2]), np.cos(a[:, 2:])], axis=1) for name, a in angles.items()}


@finding("PE(pos, i) = sin(pos/10000^(i/d)) for i < d/2, and the cosine for i ≥ d/2.", _PAGE)
def the_formula_of_the_page_is_not_that_of_the_code() -> Seen:
    """The exponent is i/(d/2 − 1), counted from 0 in each half, as in tensor2tensor."""
    found = SinusoidalPositionEncoder(4, 16)(torch.zeros(3, 4))
    return Seen("dim 4, positions 0 to 2", shown(readings()["the page's formula, i/d"] - 1), shown(found))


@finding("The printed output of the example.", _PAGE)
def the_numbers_printed_in_the_example_follow_from_no_reading() -> Seen:
    """No angle has the printed sine and cosine of position 1, with or without the ones that they are added to: 0.94147² + (0.6403 − 1)² is
    1.0158."""
    wrong = {name: np.abs(PRINTED - table) for name, table in readings().items()}
    told = "; ".join(f"{name}: {int((d > 1e-4).sum())} of 12 entries, by up to {d.max():.4f}" for name, d in wrong.items())
    return Seen("SinusoidalPositionEncoder(encoding_dim=4, max_seq_len=16) on ones (3, 4)", shown(PRINTED), f"differs from {told}")


@finding("encoding_dim is the size of the encodings.", _PAGE)
def width_two_is_not_a_number() -> Seen:
    """The exponent divides by d/2 − 1. Nothing is raised."""
    return Seen("SinusoidalPositionEncoder(2, 3) on zeros (3, 2)", "[[0, 1], [0.84147, 0.5403], [0.9093, -0.41615]], or a refusal",
                outcome(lambda: SinusoidalPositionEncoder(2, 3)(torch.zeros(3, 2))))  # fmt: skip


@finding("Padding has the encoding 0.", "fairseq2 at 027bdeb, nn/position_encoder.py")
def padding_is_encoded_as_a_position_while_decoding() -> Seen:
    """Row 0 of the table is for padding, and the step is added to it: with step s it is row s, that of position s − 1."""
    encoder = SinusoidalPositionEncoder(4, 8).eval()
    return Seen("a padded token at step 1", "[[0., 0., 0., 0.]]", shown(encoder(torch.zeros(1, 4), torch.tensor([-1]), step=1)))


@finding("The encoding is added to the sequences.", "fairseq2 at 027bdeb, nn/position_encoder.py")
def double_precision_is_summed_in_single() -> Seen:
    """The sum is made in float32 whatever the input's type is, and cast back: right for 16 bits, and a loss for 64."""
    x = torch.full((1, 4), 1.0 + 2.0**-40, dtype=torch.float64)
    found = SinusoidalPositionEncoder(4, 16)(x)
    return Seen("1 + 2⁻⁴⁰ at position 0, in float64", f"1 + {2.0**-40:.3g}", f"1 + {float(found[0, 0] - 1):.3g}")
