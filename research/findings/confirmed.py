"""Twenty findings about released libraries, drawn by chance, whose expected numbers are computed once more by mpmath, without the oracles.

Drawn are those whose digests come first, among the findings that expect numbers: not that two runs agree, a type, a shape or an error. A
finding that is added is drawn instead of one of them at most. Each has a row here, by its name, of what its script should print.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import mpmath
from mpmath import mpf

from research.findings.shown import Shown

__all__ = ["REFERENCES", "confirmed", "drawn"]

_SEED, _MANY = 15, 20
_NUMBER = re.compile(r"-?(?:\d+\.\d+|\binf\b|\bnan\b)")
_DIGITS = 4
"""Findings show numbers to so many digits after the point: half a unit of the last one is what rounding may take."""


def _mean(values: Sequence[float], scores: Sequence[Any]) -> Any:
    """Values weighted by the exponentials of the scores of the keys that are seen; 0 of no keys, as the page has it."""
    weights = [mpmath.exp(s) for s in scores]
    return mpmath.fsum(w * v for w, v in zip(weights, values, strict=True)) / mpmath.fsum(weights) if weights else mpf(0)


def _turned(angle: Any) -> list[Any]:
    """The pair (1, 0) after a rotation by an angle."""
    return [mpmath.cos(angle), mpmath.sin(angle)]


REFERENCES: dict[str, Callable[[], Iterable[Any]]] = {
    "jax: The residual of a query without keys is −2.38·10³⁸": lambda: [mpmath.log(mpmath.fsum([]))],
    "openai-whisper: A mask is causal, whatever is in it, unless attention is written out": lambda: [_mean([5], [0])] * 2,
    "dm-haiku: A visible key with a score below −10³⁰ loses to a masked one": lambda: [_mean([1], [mpf(-(10**16)) * 10**15])],
    "x-transformers: Under flash the argument `causal` of a call is not read": lambda: [
        _mean([1], [0]),
        mpf(0),
        *[_mean([1, 0], [0, 0])] * 2,
    ],
    "x-transformers: l2_distance has another scale under flash, where none is given": lambda: (
        [_mean([1, 0], [0, -(1 + 1) / mpmath.sqrt(2)])] * 2
    ),
    "torch-geometric: TemporalEncoding is not the formula of its documentation": lambda: [
        mpmath.cos(1 / mpf(2) ** (mpf(i) / 2)) for i in range(4)
    ],
    "flax: nnx: is_causal beside a mask of keys raises where the weights are kept, and not where they are not": lambda: (
        [_mean([1], [0])] * 4
    ),
    "tinygrad: A query without keys is NaN": lambda: [_mean([], [])],
    "equinox: Two rotations of one width share the tables of whichever is called first": lambda: [
        turn(100 ** (-mpf(i) / 2)) for turn in (mpmath.cos, mpmath.sin) for i in range(2)
    ],
    "mlx-lm: SuScaledRoPE has the long factors at every length": lambda: _turned(1),
    "transformers: Falcon with ALiBi adds it twice on the eager path": lambda: [mpf(2) ** (-mpf(8) / 2)],
    "jax: NaN in a value behind the mask is NaN in every row": lambda: [_mean([1], [0])] * 2,
    "mlx: ALiBi's matrix for one query behind a cache is empty": lambda: [-(mpf(2) ** -8) * abs(1 - j) for j in range(2)],
    "ibm-fms: A sequence that is longer than max_seq_len raises, behind a shorter one": lambda: _turned(2),
    "mlx-lm: ConcatenateKVCache.trim takes nothing away": lambda: [mpf(1), mpf(3)],
    "positional-encodings: What a caller adds to the result in place is in all later results": lambda: [mpmath.sin(0), mpmath.cos(0)],
    "rotary-embedding-torch: Positions are counted in the type of the queries: in bfloat16, 257 is 256": lambda: [
        mpf(round(float(x), 2)) for x in _turned(257)
    ],
    "jax: In bfloat16 attention of some sizes raises on a CPU, under jit alone": lambda: [_mean([1], [1])] * 2,
    "x-transformers: sparse_topk raises where there are fewer keys than that": lambda: [_mean([1], [0])],
    "flax: nnx: with is_causal, a module that decodes sees the first key alone": lambda: [_mean([1], [0]), _mean([1, 3], [0, 0])],
}
"""{library and title: the numbers that its script should print, one after the other}, of each finding that is drawn."""


def drawn(findings: Iterable[Shown]) -> list[Shown]:
    """The findings that are drawn among some."""
    numeric = [found for found in findings if _NUMBER.search(found.wanted()) and found.wanted() != "0.0"]
    return sorted(numeric, key=lambda found: sha256(f"{_SEED} {found.name}".encode()).hexdigest())[:_MANY]


def confirmed(found: Shown) -> str:
    """What mpmath says of a finding that is drawn, to twelve digits; "" of another one. Raises ValueError where that is not what the
    finding expects."""
    if found.name not in REFERENCES:
        return ""
    with mpmath.workdps(40):
        exact = list(REFERENCES[found.name]())
        expected = [mpf(x) for x in _NUMBER.findall(found.wanted())]
        told = ", ".join(mpmath.nstr(x, 12) for x in exact)
        half = mpf(10) ** -_DIGITS / 2
        if len(exact) != len(expected) or any(x != y and not abs(x - y) <= half for x, y in zip(exact, expected, strict=True)):
            raise ValueError(f"{found.name}: {found.wanted()} is expected, but mpmath gives {told}.")
        return told
