"""A share of the fuzz, which is found to find what is planted."""

import numpy as np
import pytest

from research.fuzz import TARGETS, Target, fuzz

EXAMPLES, FEW = 12, 6  # `make fuzz` draws thousands


@pytest.mark.parametrize("name", TARGETS)
def test_nonsense_is_refused_in_a_sentence(name):
    fuzz(TARGETS[name], FEW if name == "attnspec" else EXAMPLES)


def halves(x):
    if isinstance(x, str):
        raise ValueError("no")
    return np.asarray(x)[0]


def forever(x):
    while True:
        pass


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (halves, r"planted: ValueError: 'no' is no sentence\.|planted raised \w+Error: "),
        (forever, r"planted raised _SlowError: took more than"),
    ],
)
def test_a_function_that_is_no_match_for_nonsense_is_found(function, found, monkeypatch):
    monkeypatch.setattr("research.fuzz._LONGEST", 0.05)
    with pytest.raises(AssertionError, match=found):
        fuzz(Target("planted", function), 50)
