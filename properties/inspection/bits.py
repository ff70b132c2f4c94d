"""Which changes of a call around a problem change the bits of its result, measured from outside.

A problem is one element of the batch: all its heads and queries, and random numbers. It is computed
alone, and then beside other problems, at another place of the batch, with masked keys behind its
own, and with half of its queries. Floating-point arithmetic may round differently there, so
a changed bit is a fact about a kernel. It is a mistake only where equal calls differ, and the
implementation is declared deterministic.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["Bits", "bits", "sentences_of_bits"]

_PROBLEMS = 4  # of a batch
_PADDING = 16  # masked keys
_EQUAL_CALLS = 3
_FEWEST = {"n_q": 4, "n_k": 64}  # if they are taken: the sum of a few numbers has few orders

_Problem = Mapping[str, Array]
"""The arrays of one problem by their names, without axes of the batch."""


@dataclass(frozen=True)
class Bits:
    """Which of these change some bit of a problem's output; None for what was not measured.

    repetition         the same call again
    batch_size         other problems behind it in the batch
    place_in_batch     the last place of the batch instead of the first one
    padding            masked keys behind its own
    chunks_of_queries  a call with the second half of its queries
    is_deterministic   whether the implementation is declared deterministic
    """

    repetition: bool
    batch_size: bool | None
    place_in_batch: bool | None
    padding: bool | None
    chunks_of_queries: bool | None
    is_deterministic: bool


def bits(probe: Probe, shape: Shape) -> Bits:
    """Measure what changes the bits of attention, without masks and options other than the scale.
    Raises as `Probe.results`.
    """
    plain = probe.plain(shape, "scale")
    larger = plain.changed(
        probe.operation, None, **{name: max(size, plain.sizes[name]) for name, size in _FEWEST.items()}
    )
    plain = larger if probe.takes(larger) else plain
    one, several = (_taken(probe, plain, batches) for batches in (((), (1,)), ((_PROBLEMS,),)))
    alone = one or plain
    problems = _problems(probe, alone)
    first = _out(probe, alone, problems)
    is_deterministic = probe.caller.implementation.deterministic
    if any(_differ(first, _out(probe, alone, problems)) for _ in range(_EQUAL_CALLS - 1)):
        return Bits(True, None, None, None, None, is_deterministic)
    twice = problems[: _PROBLEMS - 1] + problems[:1]
    batched = None if several is None else _attempted(lambda: _out(probe, several, twice))
    n_q = plain.sizes["n_q"]
    return Bits(
        repetition=False,
        batch_size=None if one is None or batched is None else _differ(batched[0], first),
        place_in_batch=None if batched is None else _differ(batched[0], batched[-1]),
        padding=_differ(_attempted(lambda: _padded(probe, alone, problems)), first),
        chunks_of_queries=_differ(_attempted(lambda: _second_half(probe, alone, problems)), first[..., n_q // 2 :, :]),
        is_deterministic=is_deterministic,
    )


def _taken(probe: Probe, shape: Shape, batches: Sequence[tuple[int, ...]]) -> Shape | None:
    """The shape with the first of some batches that the implementation takes; None if it takes no batch of these."""
    shapes = (shape.changed(probe.operation, batch) for batch in batches)
    return next(filter(probe.takes, shapes), None)


def _problems(probe: Probe, shape: Shape) -> list[_Problem]:
    """Random problems, at least as many as the batch has elements."""
    random, single = np.random.default_rng(0), replace(shape, batch=())
    sizes = {name: single.zeros(probe.operation, name).shape for name in "qkv"}
    number = max(_PROBLEMS, int(np.prod(shape.batch)))
    return [{name: _numbers(random, size) for name, size in sizes.items()} for _ in range(number)]


def _numbers(random: np.random.Generator, size: tuple[int, ...]) -> Array:
    """Random numbers of at most 8 bits, which all formats hold."""
    return random.integers(-255, 256, size) / 2.0 ** random.integers(6, 12, size)


def _out(probe: Probe, shape: Shape, problems: Sequence[_Problem], **options: Array) -> Array:
    """The output of a batch of the first problems."""
    given = replace(shape, arguments={**shape.arguments, **options})
    if not probe.takes(given):
        raise OutsideError("The implementation does not take the call.")
    number = int(np.prod(shape.batch))
    arrays = {
        name: np.stack([problem[name] for problem in problems[:number]]).reshape(*shape.batch, *problems[0][name].shape)
        for name in "qkv"
    }
    return probe.results(given, **arrays)["out"].measured


def _differ(out: Array | None, other: Array | None) -> bool | None:
    """Whether two outputs of the same problems differ; None if one is missing."""
    if out is None or other is None:
        return None
    return not np.array_equal(out, other.reshape(out.shape), equal_nan=True)


def _attempted(out: Callable[[], Array]) -> Array | None:
    """An output, or None if the implementation does not take the call."""
    with suppress(OutsideError):
        return out()
    return None


def _padded(probe: Probe, shape: Shape, problems: Sequence[_Problem]) -> Array:
    """The output with masked keys behind the others."""
    if "mask" not in probe.operation.parameters:
        raise OutsideError("The operation has no mask.")
    if _is_causal(probe, shape) and probe.caller.conventions.causal == "bottom_right":
        raise OutsideError("The last key would be another one.")
    n_k = shape.sizes["n_k"]
    longer = shape.changed(probe.operation, n_k=n_k + _PADDING)
    padding = {name: (0, _PADDING) if name in "kv" else (0, 0) for name in "qkv"}
    padded = [
        {name: np.pad(x, [*[(0, 0)] * (x.ndim - 2), padding[name], (0, 0)], mode="wrap") for name, x in problem.items()}
        for problem in problems
    ]
    visible = np.arange(n_k + _PADDING) < n_k
    mask = np.broadcast_to(visible, (*longer.rows(probe.operation, "q"), len(visible)))
    return _out(probe, longer, padded, mask=mask)


def _is_causal(probe: Probe, shape: Shape) -> bool:
    """Whether the calls of a shape are causal."""
    return probe.operation.name == "causal_attention" or "causal" in shape.arguments


def _second_half(probe: Probe, shape: Shape, problems: Sequence[_Problem]) -> Array:
    """The output of the second half of the queries."""
    n_q = shape.sizes["n_q"]
    if n_q < 2 or _is_causal(probe, shape):  # its queries count from the first one
        raise OutsideError("The queries cannot be split.")
    half = shape.changed(probe.operation, n_q=n_q - n_q // 2)
    return _out(probe, half, [{**problem, "q": problem["q"][..., n_q // 2 :, :]} for problem in problems])


def sentences_of_bits(found: Bits) -> tuple[str, ...]:
    """The sentence that equal calls differ, of an implementation that is declared deterministic; else
    ().
    """
    said = "Equal calls give different bits, but the implementation is declared deterministic."
    return (said,) if found.repetition and found.is_deterministic else ()
