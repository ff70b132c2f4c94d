"""LexiMind's port: dropout, limits and quirks of the modules.

The laws notice a change of one line.
"""

import math
import re
from types import SimpleNamespace

import pytest
import torch

from properties.verifier.plan import grouped, plan
from properties.verifier.verify import examine
from systems import leximind as port
from systems.leximind import IMPLEMENTATIONS, LearnedPositionalEncoding, PositionalEncoding

BY_NAME = {i.name.removeprefix("LexiMind "): i for i in IMPLEMENTATIONS}


@pytest.mark.parametrize("name", BY_NAME)
def test_it_agrees_with_the_oracles(name):
    for law in plan(BY_NAME[name]):
        if law.agreement:
            (found,) = examine([law], BY_NAME[name], 10, 0)
            assert found.status == "held", law.id


def test_the_table_is_a_buffer_and_no_parameter():
    module = PositionalEncoding(4, max_len=3)
    assert list(module.parameters()) == []
    assert {name: (tuple(x.shape), x.dtype) for name, x in module.state_dict().items()} == {
        "pe": ((1, 3, 4), torch.float32)
    }
    assert torch.equal(module.pe[0, 0], torch.tensor([0.0, 1.0, 0.0, 1.0]))


@pytest.fixture
def tokens():
    """Numbers (2, 5, 4) that are not 0, plus their encoding."""
    return torch.arange(3.0, 43.0).reshape(2, 5, 4)


@pytest.mark.parametrize("make", [PositionalEncoding, LearnedPositionalEncoding])
def test_evaluation_adds_the_same_encoding_to_every_sequence(make, tokens):
    torch.manual_seed(0)
    module = make(4, max_len=6, dropout=0.5).eval()
    table = module.pe[0] if make is PositionalEncoding else module.embeddings.weight
    assert torch.equal(module(tokens), tokens + table[:5])
    assert torch.equal(module(tokens), module(tokens))
    assert module(tokens.double()).dtype == torch.float64


@pytest.mark.parametrize("make", [PositionalEncoding, LearnedPositionalEncoding])
def test_training_drops_entries_of_the_sum_and_doubles_the_others(make, tokens):
    """With dropout 1/2 the remaining numbers are divided by 1/2, which is exact."""
    torch.manual_seed(0)
    module = make(4, max_len=6, dropout=0.5)
    whole, out = module.eval()(tokens), module.train()(tokens)
    assert ((out == 0) | (out == 2 * whole)).all()
    assert 0 < (out == 0).sum() < out.numel()
    assert not torch.equal(out, module(tokens))


def test_an_odd_width_fails_in_the_cosines_but_for_one():
    message = "The expanded size of the tensor (1) must match the existing size (2) at non-singleton dimension 1."
    with pytest.raises(RuntimeError, match=re.escape(message)):
        PositionalEncoding(3)
    assert torch.equal(PositionalEncoding(1, max_len=2).pe, torch.tensor([[[0.0], [math.sin(1.0)]]]))


def test_a_width_of_zero_is_divided_by():
    with pytest.raises(ZeroDivisionError):
        PositionalEncoding(0)


def test_a_longer_sequence_than_the_table_is_refused():
    with pytest.raises(RuntimeError, match=re.escape("The size of tensor a (5) must match the size of tensor b (4)")):
        PositionalEncoding(2, max_len=4).eval()(torch.zeros(1, 5, 2))
    with pytest.raises(IndexError):
        LearnedPositionalEncoding(2, max_len=4).eval()(torch.zeros(1, 5, 2))


def test_a_table_of_one_position_gives_every_token_position_zero():
    assert torch.equal(PositionalEncoding(2, max_len=1).eval()(torch.zeros(1, 3, 2)), torch.tensor([[[0.0, 1.0]] * 3]))


def test_a_token_without_a_batch_axis_becomes_as_many_as_it_has_entries():
    """Positions count along the second axis, so one token of width 4 comes back as four tokens."""
    module = PositionalEncoding(4).eval()
    assert torch.equal(module(torch.zeros(1, 4)), module(torch.zeros(1, 4, 4)))


def test_padding_idx_is_accepted_and_not_used():
    """With nn.Embedding's padding_idx, row 1 would begin as zeros and have no gradient."""
    torch.manual_seed(0)
    module = LearnedPositionalEncoding(2, max_len=3, padding_idx=1).eval()
    assert module.embeddings.padding_idx is None
    assert (module.embeddings.weight[1] != 0).all()
    module(torch.zeros(1, 3, 2)).sum().backward()
    assert torch.equal(module.embeddings.weight.grad, torch.ones(3, 2))


def test_a_start_position_is_refused():
    with pytest.raises(
        ValueError, match=re.escape("start_pos=1, but should be 0: the module counts positions from the first token.")
    ):
        BY_NAME["learned float32 eval"].operations["learned_positional_encoding"](torch.zeros(3, 2), 1, 1)


def _late(self, x):
    return self.dropout(x + self.pe[:, 1 : x.size(1) + 1])


def _always_dropping(self, x):
    return torch.dropout(x + self.pe[:, : x.size(1)], 0.1, True)


def _clipped(self, x):
    return self.dropout(
        x + self.embeddings(torch.arange(1, x.size(1) + 1).clamp(max=self.embeddings.num_embeddings - 1))
    )


def _without_padding(self, x):
    positions = torch.arange(x.size(1))
    return self.dropout(x + self.embeddings(positions) * (positions != 1)[:, None])


CORRUPTIONS = {
    "another base": ("sinusoidal float32 eval", port, "math", SimpleNamespace(log=lambda x: math.log(x - 1))),
    "positions from 1": ("sinusoidal float64 eval", PositionalEncoding, "forward", _late),
    "dropout in evaluation": ("sinusoidal float32 eval", PositionalEncoding, "forward", _always_dropping),
    "rows from 1": ("learned float32 eval", LearnedPositionalEncoding, "forward", _clipped),
    "a padding row of zeros": (
        "learned float64 train without dropout",
        LearnedPositionalEncoding,
        "forward",
        _without_padding,
    ),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_laws_notice_a_change_of_one_line(name, monkeypatch):
    which, place, attribute, changed = CORRUPTIONS[name]
    monkeypatch.setattr(place, attribute, changed)
    assert any(
        found.status == "violated"
        for laws in grouped(plan(BY_NAME[which]))
        for found in examine(laws, BY_NAME[which], 10, 0)
    )
