"""Options are written once: help shows them, and a misspelt one is refused with the nearest name."""

import inspect
import re

import numpy as np
import pytest

import oracles
from oracles.options import AttentionOptions, defaults

ONES = np.ones((2, 3, 4))
WITH_OPTIONS = [name for name in oracles.__all__ if "Options, by keyword:" in (getattr(oracles, name).__doc__ or "")]


def test_a_misspelt_option_is_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match=r"^attention\(\) has no option 'softcaps'\. Did you mean 'softcap'\?$"):
        oracles.attention(ONES, ONES, ONES, softcaps=2.0)


def test_an_option_of_another_function_is_refused_with_the_options_there_are():
    known = "num_heads, arithmetic, conventions, method"
    with pytest.raises(TypeError, match=rf"^alibi_slopes\(\) has no option 'window'\. It takes {known}\.$"):
        oracles.alibi_slopes(4, window=(1, 1))


def test_arguments_may_be_named_as_well():
    named, placed = oracles.attention(k=ONES, v=ONES, q=ONES), oracles.attention(ONES, ONES, ONES)
    assert np.array_equal(named[0].mid, placed[0].mid)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_help_shows_and_explains_each_option(name):
    function = getattr(oracles, name)
    by_keyword = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert {"arithmetic", "conventions", "method"} <= {p.name for p in by_keyword}
    explained = function.__doc__.split("Options, by keyword:")[1]
    for parameter in inspect.signature(inspect.unwrap(function)).parameters.values():
        by_keyword = [p for p in by_keyword if p.name != parameter.name]
    assert all(re.search(rf"^ +{p.name} +\S", explained, re.MULTILINE) for p in by_keyword)


def test_the_defaults_of_attention():
    given = {name: value for name, value in defaults(AttentionOptions).items() if value is not None}
    assert given == {"causal": False, "window": (None, None), "dropout": 0.0, "method": "auto"}
