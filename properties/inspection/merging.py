"""The weights that merging gives to two parts of the keys, measured from outside.

The outputs of the first part are 1 in channel 0 and 0 elsewhere, the outputs of the second part
1 in channel 1. So a row of the result has the weights of the parts,

    out[row] = e^(lse_a − lse) e₀ + e^(lse_b − lse) e₁,   lse = log(e^lse_a + e^lse_b)       (1)

Each row has another pair of log-sum-exps. A part without keys has the log-sum-exp −∞.
"""

from dataclasses import dataclass

import numpy as np

from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading
from properties.inspection.shapes import Shape

__all__ = ["Merging", "merging", "sentences_of_merging"]

_PAIRS = (
    *((0.0, 0.0), (3.0, 0.0), (0.0, 5.0), (-16.0, 16.0), (64.0, 56.0), (1024.0, 1016.0), (-1024.0, -1016.0)),
    *((0.0, -np.inf), (-np.inf, 0.0), (-np.inf, -np.inf)),
)
"""Log-sum-exps of two parts, as far as the format reaches."""


@dataclass(frozen=True)
class Merging:
    """What merging returns for each pair of log-sum-exps.

    pairs     the two log-sum-exps of each row, `[row, part]`
    weights   the weights of the two parts, `[..., row, part]`
    sums      the merged log-sum-exps, `[..., row]`
    """

    pairs: Array
    weights: Reading
    sums: Reading


def merging(probe: Probe, shape: Shape) -> Merging:
    """Measure the weights of the parts, in one call. Raises as `Probe.results`."""
    operation, largest = probe.operation, probe.caller.largest_harmless
    taken = [pair for pair in _PAIRS if not np.isfinite(pair).all() or max(map(abs, pair)) <= largest]
    pairs = np.resize(np.array(taken), (shape.sizes["n_q"], 2))
    parts: dict[str, Array] = {}
    for part, name in enumerate("ab"):
        parts[f"out_{name}"] = shape.zeros(operation, f"out_{name}")
        parts[f"out_{name}"][..., part : part + 1] = 1.0
        parts[f"lse_{name}"] = shape.zeros(operation, f"lse_{name}") + pairs[:, part]
    results = probe.results(shape, **parts)
    return Merging(pairs, results["out"].changed(lambda out: out[..., :2]), results["lse"])


def sentences_of_merging(found: Merging) -> tuple[str, ...]:
    """What merging returns otherwise than it should for the first such pair of log-sum-exps, in a
    sentence; () if all is right.
    """
    wrong = found.weights.wrong.any(-1) | found.sums.wrong
    if not wrong.any():
        return ()
    index = tuple(np.argwhere(wrong)[0])
    lengths = _listed(found.pairs[index[-1]])
    if found.weights.wrong[index].any():
        actual, correct = (_listed(side[index]) for side in found.weights[:2])
        return (f"Parts with the log-sum-exps {lengths} get the weights {actual}, should get {correct}.",)
    actual, correct = (f"{side[index]:.4g}" for side in found.sums[:2])
    return (f"The merged log-sum-exp of {lengths} is {actual}, should be {correct}.",)


def _listed(numbers: Array) -> str:
    return " and ".join(f"{number:.4g}" for number in numbers).replace("-inf", "−∞").replace("nan", "NaN")
