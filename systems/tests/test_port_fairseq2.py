"""The port of fairseq2's encoders follows the page and the code, and laws notice changes of it."""

import math
from dataclasses import replace

import pytest
import torch

import properties
from properties.laws import find
from properties.verifier.verify import examine
from systems import fairseq2
from systems.fairseq2 import (
    IMPLEMENTATIONS,
    LearnedPositionEncoder,
    ReferenceRotaryEncoder,
    RotaryEncoder,
    SinusoidalPositionEncoder,
)

BY_NAME = {i.name: i for i in IMPLEMENTATIONS}
SINUSOID = "the sinusoidal encoding is within its error limit[sinusoidal_positional_encoding]"
ROPE = "rope is within its error limit[rope]"
LEARNED = "a lookup in a table of row numbers returns the requested numbers[learned_positional_encoding]"

# The page's example: SinusoidalPositionEncoder(encoding_dim=4, max_seq_len=16) on ones of shape (3,
# 4).
PRINTED = [[1.0, 1.0, 2.0, 2.0], [9.4147e-1, 2.0e-4, 6.4030e-1, 2.0], [1.0930e-2, 3.0e-4, -5.1615e-1, 2.0]]


def encoded(frequencies):
    """Ones of shape (3, 4) and the sines, then the cosines, of positions 0, 1 and 2."""
    angles = [[p * f for f in frequencies] for p in range(3)]
    return [[1 + math.sin(a), 1 + math.sin(b), 1 + math.cos(c), 1 + math.cos(d)] for a, b, c, d in angles]


@pytest.mark.parametrize(
    ("frequencies", "distance", "entries"),
    [
        ([1.0, 1e-4, 1.0, 1e-4], 1.8984, 6),  # the code: exponents i/(d/2 − 1)
        ([10000 ** (-i / 4) for i in range(4)], 2.5160, 6),  # the page's formula to the letter: i/d, i from 0 to d − 1
        ([1.0, 0.1, 1.0, 0.1], 1.8984, 8),  # i/d, counted from 0 in each half
        ([1.0, 0.01, 1.0, 0.01], 1.8984, 7),  # section 3.5 of the paper, 2i/d, in two halves
    ],
)
def test_the_printed_example_follows_from_no_reading_of_the_page(frequencies, distance, entries):
    rows = zip(PRINTED, encoded(frequencies), strict=True)
    differences = [abs(a - b) for printed, row in rows for a, b in zip(printed, row, strict=True)]
    assert max(differences) == pytest.approx(distance, abs=1e-4)
    assert sum(d > 1e-4 for d in differences) == entries


def test_no_angle_gives_the_printed_sine_and_cosine_with_or_without_the_ones():
    for first, _, third, _ in PRINTED[1:]:
        norms = [(first - a) ** 2 + (third - b) ** 2 for a in (0.0, 1.0) for b in (0.0, 1.0)]
        assert min(abs(norm - 1) for norm in norms) > 0.01


def test_what_the_example_computes_is_what_the_code_says():
    found = SinusoidalPositionEncoder(4, 16)(torch.ones(3, 4))
    assert torch.allclose(found, torch.tensor(encoded([1.0, 1e-4, 1.0, 1e-4])), atol=2.0**-22, rtol=0)


def test_row_zero_of_every_table_is_padding():
    padding = torch.tensor([-1, 0, 1])
    x = torch.ones(3, 4)
    assert SinusoidalPositionEncoder(4, 8)(x, padding)[0].tolist() == [1.0] * 4
    assert LearnedPositionEncoder(4, 8)(x, padding)[0].tolist() == [1.0] * 4
    for encoder in (RotaryEncoder(4, 8), ReferenceRotaryEncoder(4, 8)):
        assert encoder(x, padding)[:2].tolist() == [[0.0] * 4, [1.0] * 4]


def test_padding_moves_with_the_step():
    encoder = SinusoidalPositionEncoder(4, 8).eval()
    assert torch.equal(encoder(torch.zeros(1, 4), torch.tensor([-1]), step=3), encoder(torch.zeros(1, 4), step=2))


def test_a_step_shifts_positions_but_not_in_training():
    for encoder in (
        SinusoidalPositionEncoder(4, 8),
        LearnedPositionEncoder(4, 8),
        RotaryEncoder(4, 8),
        ReferenceRotaryEncoder(4, 8),
    ):
        whole = encoder(torch.ones(5, 4))
        assert torch.equal(encoder.eval()(torch.ones(2, 4), step=3), whole[3:])
        assert torch.equal(encoder.train()(torch.ones(2, 4), step=3), whole[:2])


def test_position_p_reads_row_p_plus_one_of_the_learned_weights():
    encoder = LearnedPositionEncoder(3, 5)
    assert encoder.weight.shape == (6, 3)
    assert torch.equal(encoder(torch.zeros(5, 3)), encoder.weight[1:])


def test_padding_has_no_gradient():
    encoder = LearnedPositionEncoder(2, 3)
    encoder(torch.zeros(3, 2), torch.tensor([0, -1, -1])).sum().backward()
    assert encoder.weight.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_the_legacy_padding_index_is_an_offset():
    legacy, plain = SinusoidalPositionEncoder(4, 4, legacy_pad_idx=1), SinusoidalPositionEncoder(4, 6)
    assert torch.equal(legacy.freqs[1:], plain.freqs[3:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_are_rounded_to_sixteen_bits_once(dtype):
    x = torch.full((3, 4), 1.0 / 3).to(dtype)
    found = SinusoidalPositionEncoder(4, 16)(x)
    assert found.dtype == dtype
    assert torch.equal(found, (x.double() + SinusoidalPositionEncoder(4, 16).freqs[1:4].double()).to(dtype))


def test_sixty_four_bits_are_summed_in_thirty_two():
    x = torch.full((1, 4), 1.0 + 2.0**-40, dtype=torch.float64)
    assert SinusoidalPositionEncoder(4, 16)(x).tolist() == [[1.0, 1.0, 2.0, 2.0]]


@pytest.mark.parametrize("encoder", [SinusoidalPositionEncoder, RotaryEncoder, ReferenceRotaryEncoder])
def test_an_odd_width_is_refused(encoder):
    with pytest.raises(ValueError, match=r"^encoding_dim=3, but should be even\.$"):
        encoder(3, 4)


@pytest.mark.parametrize(
    "encoder", [SinusoidalPositionEncoder, LearnedPositionEncoder, RotaryEncoder, ReferenceRotaryEncoder]
)
def test_a_sequence_that_is_too_long_is_refused(encoder):
    assert encoder(4, 3).eval()(torch.ones(2, 4), step=1).shape == (2, 4)
    with pytest.raises(
        ValueError, match=r"^The longest sequence ends after 4 positions, but should end after at most 3\.$"
    ):
        encoder(4, 3).eval()(torch.ones(2, 4), step=2)


def test_width_two_is_nan_without_a_word_and_a_law_notices():
    assert SinusoidalPositionEncoder(2, 3).freqs[1:].isnan().all()

    def bare(seq_len, embed_dim, start_pos=0):
        return SinusoidalPositionEncoder(embed_dim, start_pos + seq_len).eval()(
            torch.zeros(seq_len, embed_dim), step=start_pos
        )

    silent = replace(
        BY_NAME["fairseq2 sinusoidal float32"],
        operations={"sinusoidal_positional_encoding": bare},
        supports={
            "embed_dim": lambda d: d % 2 == 0 and d != 2,
            "seq_len": lambda n: n < 64,
            "start_pos": lambda p: p < 2**10,
        },
    )
    (law,) = find("unsupported sizes are refused[sinusoidal_positional_encoding]")
    assert examine([law], silent, 100, 0)[0].status == "violated"


def test_the_reference_rotary_encoder_turns_shuffled_lanes():
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    order = torch.arange(8).view(2, 4).T.reshape(-1)
    halves, pairs = ReferenceRotaryEncoder(8, 5)(x)[:, order], RotaryEncoder(8, 5)(x[:, order])
    assert (halves - pairs).abs().max() < 2.0**-18  # angles to 4, in float32


def test_both_rotary_encoders_turn_the_first_pair_by_its_position():
    assert RotaryEncoder(4, 2)(torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2))[1, :2].tolist() == pytest.approx(
        [math.cos(1), math.sin(1)]
    )
    assert ReferenceRotaryEncoder(4, 2)(torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2))[1, ::2].tolist() == pytest.approx(
        [math.cos(1), math.sin(1)]
    )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda i: i.name)
def test_the_port_keeps_its_laws(implementation):
    laws = [law for law in (SINUSOID, ROPE, LEARNED) if find(law)[0].operation in implementation.operations]
    report = properties.verify(implementation, laws=laws, max_examples=15)
    assert report.ok, report.violations


# Corruptions, each of one line.


def broken(name, law):
    (chosen,) = find(law)
    return examine([chosen], BY_NAME[name], 30, 0)[0].status == "violated"


def test_another_offset_is_caught(monkeypatch):
    plain = SinusoidalPositionEncoder
    monkeypatch.setattr(
        fairseq2, "SinusoidalPositionEncoder", lambda dim, longest: plain(dim, longest, legacy_pad_idx=0)
    )
    assert broken("fairseq2 sinusoidal float32", SINUSOID)
    assert broken("fairseq2 sinusoidal bfloat16", "position 0 rotates by angle 0[sinusoidal_positional_encoding]")


def test_the_papers_exponents_are_caught(monkeypatch):
    monkeypatch.setattr(fairseq2.math, "log", lambda x: math.log2(x) * math.log(2) * 0.75)
    assert broken("fairseq2 sinusoidal float32", SINUSOID)


def test_another_base_is_caught(monkeypatch):
    plain = RotaryEncoder.frequencies
    monkeypatch.setattr(RotaryEncoder, "frequencies", lambda encoder: plain(encoder) ** 1.01)
    assert broken("fairseq2 rotary float32", ROPE)
    assert broken("fairseq2 rotary float32", "frequencies are within their error limit[inv_freq]")


def test_halves_of_one_sign_are_caught(monkeypatch):
    monkeypatch.setattr(fairseq2, "rotate_half", lambda x: x.roll(x.shape[-1] // 2, -1))
    assert broken("fairseq2 reference rotary float16", ROPE)


def test_a_row_early_is_caught(monkeypatch):
    plain = fairseq2.PositionEncoder.rows
    monkeypatch.setattr(fairseq2.PositionEncoder, "rows", lambda *arguments: plain(*arguments) - 1)
    assert broken("fairseq2 learned float32", LEARNED)
    assert broken("fairseq2 rotary float32", ROPE)
