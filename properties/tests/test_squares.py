"""Maps know their transposes, domains draw legal cases that reach what they say, and the reference keeps every law."""

from dataclasses import replace

import numpy as np
import pytest

import properties
from oracles.ball import exact
from oracles.formats import BINARY16, BINARY32
from properties.bugs import reference
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.laws.linear_maps import Back, Butterfly, Pad, Plus, Put, Take, Times
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices, rounded
from properties.strategies.domains import DOMAINS, QUIRKS
from properties.strategies.operating_points import taken_at

NUMPY = Implementation("NumPy", reference.REFERENCE, features=FEATURES)
MAPS = {
    "permuted": Take(-1, np.array([2, 0, 3, 1]), 4),
    "a part": Take(-2, np.array([1, 2]), 3),
    "repeated": Take(-2, np.array([0, 0, 2, 1, 2, 0]), 3),
    "put back": Back(Take(-1, np.arange(4)[::-1], 4)),
    "scaled": Times(np.array([4.0, 0.0, -0.25, 1.0])),
    "padded": Pad(-2, 2, 3.0),
    "a part taken": Back(Pad(-1, 2)),
    "butterfly": Butterfly(0.5),
    "shifted": Plus(np.arange(4.0)),
    "replaced": Put(np.array([True, False, False, True]), 5.0),
}
X = np.arange(24.0).reshape(2, 3, 4) - 7


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_affine_and_knows_its_derivative_and_its_transpose(name):
    m, dx = MAPS[name], np.cos(X)
    moved, pushed = m.apply(exact(X)).mid, m.push(exact(dx)).mid
    assert np.allclose(m.apply(exact(X + dx)).mid - moved, pushed)
    g = np.sin(np.arange(float(pushed.size))).reshape(pushed.shape)
    assert np.isclose((g * pushed).sum(), (m.pull(exact(g)).mid * dx).sum())


@pytest.mark.parametrize(
    ("operation", "name"), [(o, name) for o, domains in DOMAINS.items() for name in domains if "131072" not in name]
)
def test_a_domain_draws_cases_that_are_supported_the_same_from_the_same_seed(operation, name):
    odd = {
        "features": FEATURES,
        "supports": {"head_dim": lambda d: d != 3, "n_k_minus_n_q": lambda n: n % 3 != 1},
        "batch_ranks": (1, 2),
    }
    for implementation in (NUMPY, Implementation("some", reference.REFERENCE, **odd)):
        domain = DOMAINS[operation][name]
        if domain.points and not taken_at(domain.points, OPERATIONS[operation], implementation)[0]:
            continue  # it takes none of the fixed cases
        cases = Cases(OPERATIONS[operation], domain, implementation)
        drawn = [cases.draw(seed) for seed in range(10)]
        for case in drawn:
            assert implementation.takes(OPERATIONS[operation], case), [getattr(x, "shape", x) for x in case]
            shapes = OPERATIONS[operation].shapes(*case)
            may_be_empty = name in (*QUIRKS, "no keys", "exact probes") or OPERATIONS[operation].has_sequences
            assert may_be_empty or all(0 not in shape for shape in shapes)
        for seed in (3, 9):
            assert all(np.array_equal(x, y) for x, y in zip(drawn[seed], cases.draw(seed), strict=True))


def test_the_simplest_case_is_the_one_of_seed_0():
    q, k, v, mask = Cases(
        OPERATIONS["scaled_dot_product_attention"], DOMAINS["scaled_dot_product_attention"]["everyday"], NUMPY
    ).draw(0)
    assert mask is None
    assert not any(x.any() for x in (q, k, v))
    assert Choices(0).among([1, 2, 3]) == 1


def test_extreme_scores_reach_every_order_of_magnitude_of_the_format():
    cases = Cases(OPERATIONS["hard_masked_softmax"], DOMAINS["hard_masked_softmax"]["extreme scores"], NUMPY)
    largest = [np.abs(cases.draw(seed)[0]).max() for seed in range(200)]
    for power in (3, 6, 9, 12, 30):
        assert any(10.0**power < x < 10.0 ** (power + 3) for x in largest), power


def test_one_mistake_has_one_cause():
    def no_scale(q, k, v, mask=None):
        return reference.scaled_dot_product_attention(q * np.sqrt(max(q.shape[-1], 1)), k, v, mask)

    report = properties.verify({"scaled_dot_product_attention": no_scale}, max_examples=30)
    assert len(report.causes) == 1
    (cause,) = report.causes
    assert cause.diagnosis[0].id == "sdpa-scale-missing"
    assert len(cause.laws) > 2


@pytest.mark.parametrize("target", [BINARY32, BINARY16], ids=lambda target: target.name)
def test_rounding_by_a_type_of_numpy_is_rounding_by_the_definition(target):
    """Of every size, subnormal ones, ties and numbers beyond the largest; a format of another name
    is rounded by the definition.
    """
    rng, u = np.random.default_rng(0), target.unit_roundoff
    sizes = 2.0 ** rng.integers(np.log2(target.smallest_subnormal) - 2, np.log2(target.largest) + 2, 4000)
    near = rng.integers(1, 2 / u, 4000) * u * sizes  # of one bit more than the format has: half of them are ties
    x = np.concatenate(
        [
            near,
            -near,
            near * (1 + u / 8),
            [0.0, np.inf, -np.inf, target.largest * (1 + u / 2), target.largest * (1 + u)],
        ]
    )
    np.testing.assert_array_equal(rounded(x, target), rounded(x, replace(target, name="another")))
