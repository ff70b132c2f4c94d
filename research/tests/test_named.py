"""What diagnosis names from outputs alone, measured again on a small share."""

import pytest

from research.named import LEAST, Row, bugs, markdown, named, readings, share

SEED = 3


@pytest.mark.parametrize("planted", [readings, bugs], ids=["conventions", "bugs"])
def test_nine_tenths_are_named(planted):
    """Every sixth, with one seed: the page is of all, with ten."""
    rows = [Row(each.name, each.operation, (named(each, SEED),)) for each in [*planted()][::6]]
    assert len(rows) > 9
    assert share(rows) >= LEAST, [(row.name, row.operation, row.instead) for row in rows if row.instead]


def test_what_was_told_instead_is_counted():
    row = Row("a=b", "rope", (("a=b", "c"), ("c", "a=b"), ("c",), (), ("held",)))
    assert (row.among(1), row.among(2), row.instead) == (1, 2, "c 1, nothing 1, no law broken 1")
    assert "Of the conventions, in 5 runs, 40.0% are named: 20.0% first." in markdown([row], [row])
