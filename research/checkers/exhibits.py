"""Three candidates that do not compute attention: averaged values, zeros, and a window that is off
by one key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import oracles
from oracles.ball import Array
from oracles.formats import BINARY32, BRAIN16, Format
from properties.bugs import CATALOGUE
from properties.bugs.bug import Bug
from properties.bugs.reference import REFERENCE
from properties.bugs.reference_attention import group_sums, key_heads
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from properties.strategies.choices import rounded
from properties.verifier.plan import QUICKLY, plan
from properties.verifier.verify import examine
from research.checkers.comparisons import beyond_both
from research.checkers.draws import kernelbench
from research.checkers.rows import ROWS
from research.checkers.trial import FORWARD, SDPA, posed

__all__ = ["LENGTHS", "POSERS", "Poser", "exhibits", "windows"]

LENGTHS = tuple(2**e for e in range(8, 15))
_ALL = tuple(f"{name}{suffix}" for name in FORWARD for suffix in ("", "_vjp", "_jvp") if f"{name}{suffix}" in REFERENCE)


@dataclass(frozen=True)
class Poser:
    """A function that replaces attention, with its own derivatives: the weight of each value,
    independent of q, k and the mask.
    """

    name: str
    says: str
    share: float

    def implementation(self) -> Implementation:
        """All operations that are attention, and their derivatives."""
        return Implementation(self.name, REFERENCE | {name: self._of(name) for name in _ALL}, features=FEATURES)

    def _of(self, operation: str) -> Any:
        kind = operation.rpartition("_")[2]

        def value(q: Array, k: Array, v: Array, *_: Any, **__: Any) -> Any:
            out = self.share * np.repeat(_spread(v, q).mean(-2, keepdims=True), q.shape[-2], -2)
            return (out, np.zeros(q.shape[:-1])) if operation.startswith("attention") else out

        def vjp(q: Array, k: Array, v: Array, *others: Any, **options: Any) -> tuple[Any, ...]:
            g = others[-1].sum(-2, keepdims=True) * self.share / v.shape[-2]
            g = (
                g
                if v.ndim < 3 or v.shape[-3] == q.shape[-3]
                else group_sums(g, key_heads(q.shape[-3], v.shape[-3]), v.shape[-3])
            )
            results = np.zeros(q.shape), np.zeros(k.shape), np.repeat(g, v.shape[-2], -2)
            features = (options.get("bias"), options.get("sink"))
            further = tuple(None if x is None else np.zeros(x.shape) for x in features)
            return (*results, *further) if operation.startswith("attention") else results

        def jvp(q: Array, k: Array, v: Array, *others: Any, **__: Any) -> Any:
            return value(q, k, others[-1])

        return {"vjp": vjp, "jvp": jvp}.get(kind, value)


def _spread(v: Array, q: Array) -> Array:
    """The values of each query head."""
    return v if v.ndim < 3 or v.shape[-3] == q.shape[-3] else v.take(key_heads(q.shape[-3], v.shape[-3]), -3)


POSERS = (
    Poser("V.mean(dim=-2)", "the mean of all values, which reads neither q nor k", 1.0),
    Poser("zeros", "zeros", 0.0),
)


def exhibits() -> dict[str, Any]:
    """All that is shown of them."""
    return {"posers": {poser.name: _poser(poser) for poser in POSERS}, "windows": list(windows())}


def _poser(poser: Poser) -> dict[str, Any]:
    implementation = poser.implementation()
    answer = {checker.name: "accepted" if checker.takes(implementation, _ALL) else "refused" for checker in ROWS}
    errors = {name: _error(implementation, target) for name, target in (("float32", BINARY32), ("bfloat16", BRAIN16))}
    return {"says": poser.says, "checkers": answer, "errors": errors, "laws": _laws(implementation)}


def _error(implementation: Implementation, target: Format) -> dict[str, float]:
    """The largest error of the output over as many of KernelBench's heads as a batch has, and the
    least t for which all errors are at most t·(1 + |right|)."""
    results: dict[str, float] = {"error": 0.0, "least": 0.0}
    for trial in (t for t in kernelbench(target, trials=32, heads=1) if t.operation == SDPA):
        out = trial.of(implementation)
        assert out is not None
        error = np.abs(out[0] - trial.right[0])
        results["error"] = max(results["error"], float(error.max()))
        results["least"] = max(results["least"], float((error / (1 + np.abs(trial.right[0]))).max()))
    return results


def _laws(implementation: Implementation) -> dict[str, str]:
    """What the laws of the quick plan about plain attention say: how many are violated, and how the
    first of them puts it.
    """
    results = examine(
        [law for law in plan(implementation, quick=True) if law.operation == SDPA], implementation, QUICKLY, 0
    )
    violated = [
        definition.violation
        for definition in results
        if definition.status == "violated" and definition.violation is not None
    ]
    return {"violated": f"{len(violated)} of {len(results)}", "first": violated[0].law, "summary": violated[0].summary}


_SLACK = 64  # keys before the window
_WINDOWS = {
    "one too many": ("attention-window-one-key-too-many", -1),
    "one short": ("attention-window-one-key-short", 0),
}
"""Bugs, and which key they are about, counted from the first of the window."""


def windows(lengths: tuple[int, ...] = LENGTHS) -> Iterator[dict[str, Any]]:
    """One query in bfloat16, with 32 heads over 8 of width 128, whose window of `window` keys is
    off by one, in both directions; and the same with a value 2¹⁰ times as large at the key in
    question.
    """
    for n in lengths:
        for side, (bug, key) in _WINDOWS.items():
            plain, laws_told = _window(n, bug, key, 1.0), _window(n, bug, key, 2.0**10)
            yield {"keys": n, "side": side, **plain, "budget, told": laws_told["budget"]}


def _window(n: int, bug: str, key: int, factor: float) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    q, k, v = (
        rounded(rng.standard_normal(shape), BRAIN16)
        for shape in ((32, 1, 128), (8, n + _SLACK, 128), (8, n + _SLACK, 128))
    )
    v[:, _SLACK + key] *= factor
    options: dict[str, Any] = {"causal": True, "offset": n + _SLACK - 1, "window": (n - 1, None)}
    (trial,) = (t for t in posed((q, k, v), BRAIN16, options=options) if t.operation == "attention")
    budget, _ = oracles.attention(q, k, v, **options, arithmetic="bfloat16")
    results = trial.of(_implementation(CATALOGUE[bug]))
    assert results is not None
    out, right = results[0], trial.right[0]
    beyond = beyond_both(out, right, 1e-2, 1e-2)
    excess = float(budget.excess(out).max())
    return {
        "error": float(np.abs(out - right).max()),
        "beyond": int(beyond.sum()),
        "entries": out.size,
        "budget": excess,
    }


def _implementation(bug: Bug) -> Implementation:
    return Implementation(bug.id, REFERENCE | {"attention": bug.mutants["attention"]()}, features=FEATURES)
