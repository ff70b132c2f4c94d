"""Which changes of a call around a problem change the bits of its result, measured from outside.

A problem is one element of the batch: all its heads and queries, and random numbers. It is computed
alone, and then beside other problems, at another place of the batch, with masked keys behind its
own, with half of its queries, and with its last query alone. Floating-point arithmetic may round
differently there, so a changed bit is a fact about a kernel. It is a mistake only where the adapter
promises that these bits are equal.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from properties.contract.bit_contracts import BIT_CONTRACTS
from properties.contract.results import entry
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["Bits", "Change", "bits", "sentences_of_bits", "with_long_sums"]

_PROBLEMS = 4  # of a batch
_PADDING = 16  # masked keys
_EQUAL_CALLS = 3
_FEWEST = {"n_q": 4, "n_k": 64}

_Problem = Mapping[str, Array]
"""The arrays of one problem by their names, without axes of the batch."""


class Change(NamedTuple):
    """One problem's output in two calls, each with a phrase: "alone" and "in a batch of 4"."""

    before: str
    out: Array
    after: str
    other: Array

    @property
    def differs(self) -> Array:
        """Which numbers differ in some bit; two NaNs count as equal."""
        return np.asarray((self.out != self.other) & ~(np.isnan(self.out) & np.isnan(self.other)))

    @property
    def sentence(self) -> str:
        """The first entry that differs, and how many do."""
        wrong = self.differs
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{entry('out', index)} is {float(self.out[index])!r} {self.before} and "
            f"{float(self.other[index])!r} {self.after}: {int(wrong.sum())} of {wrong.size} entries differ"
        )


@dataclass(frozen=True)
class Bits:
    """Whether a contract in bits is kept, by the names of `BIT_CONTRACTS`.

    changes            an example of each contract that is broken; None for one that is kept.
                       Contracts that were not measured are missing
    is_deterministic   whether the implementation is declared deterministic
    """

    changes: Mapping[str, Change | None]
    is_deterministic: bool


def bits(probe: Probe, shape: Shape, contracts: Collection[str] = tuple(BIT_CONTRACTS)) -> Bits:
    """Measure which contracts in bits attention keeps at the sizes of a shape, without masks and options
    other than the scale and, for its last query, causality. If equal calls differ, nothing else is
    measured. Raises as `Probe.results`.
    """
    plain = probe.plain(shape, "scale")
    alone = _taken(probe, plain, ((), (1,))) or plain
    problems = _problems(probe, alone)
    around = _Around(probe, alone, _taken(probe, plain, ((_PROBLEMS,),)), problems, _out(probe, alone, problems))
    changes = {"run to run": _first(_MEASURES["run to run"](around))}
    if changes["run to run"] is None:
        for contract in (each for each in contracts if each not in changes):
            with suppress(OutsideError):
                changes[contract] = _first(_MEASURES[contract](around))
    return Bits(changes, probe.caller.implementation.deterministic)


def with_long_sums(probe: Probe, shape: Shape) -> Shape:
    """The shape with at least 4 queries and 64 keys, if the implementation takes it: the sum of a few
    numbers has few orders.
    """
    sizes = {name: max(size, shape.sizes[name]) for name, size in _FEWEST.items()}
    larger = shape.changed(probe.operation, None, **sizes)
    return larger if probe.takes(larger) else shape


def _first(changes: Iterator[Change]) -> Change | None:
    """The first of some calls that changes a bit."""
    return next((change for change in changes if change.differs.any()), None)


def _taken(probe: Probe, shape: Shape, batches: Sequence[tuple[int, ...]]) -> Shape | None:
    """The shape with the first of some batches that the implementation takes; None if it takes no batch of these."""
    shapes = (shape.changed(probe.operation, batch) for batch in batches)
    return next(filter(probe.takes, shapes), None)


# -- Calls -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Around:
    """A problem alone, its output, and what may stand around it: a shape of several problems, None if
    the implementation takes no batch of that size.
    """

    probe: Probe
    alone: Shape
    several: Shape | None
    problems: Sequence[_Problem]
    out: Array

    def change(self, after: str, other: Array) -> Change:
        """The problem's output alone, and in another call."""
        return Change("alone", self.out, after, other.reshape(self.out.shape))

    @cached_property
    def together(self) -> Array:
        """The outputs of a batch of problems. The problem is the first one and the last one."""
        if self.several is None:
            raise OutsideError("The implementation takes no such batch.")
        return _out(self.probe, self.several, [*self.problems[: _PROBLEMS - 1], self.problems[0]])


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


# -- What is changed -------------------------------------------------------------------------------


def _again(around: _Around) -> Iterator[Change]:
    """The same call again."""
    for _ in range(_EQUAL_CALLS - 1):
        yield around.change("in an equal call", _out(around.probe, around.alone, around.problems))


def _beside_others(around: _Around) -> Iterator[Change]:
    """Other problems behind it in the batch."""
    if around.alone.batch not in ((), (1,)):
        raise OutsideError("The implementation takes no single problem.")
    yield around.change(f"in a batch of {_PROBLEMS}", around.together[0])


def _moved(around: _Around) -> Iterator[Change]:
    """The last place of the batch instead of the first one."""
    yield Change("at the first place of a batch", around.together[0], "at the last place", around.together[-1])


def _padded(around: _Around) -> Iterator[Change]:
    """Masked keys behind its own."""
    probe, shape = around.probe, around.alone
    if "mask" not in probe.operation.parameters:
        raise OutsideError("The operation has no mask.")
    if _is_causal(probe, shape) and probe.caller.conventions.causal == "bottom_right":
        raise OutsideError("The last key would be another one.")
    n_k = shape.sizes["n_k"]
    longer = shape.changed(probe.operation, n_k=n_k + _PADDING)
    padding = {name: (0, _PADDING) if name in "kv" else (0, 0) for name in "qkv"}
    padded = [
        {name: np.pad(x, [*[(0, 0)] * (x.ndim - 2), padding[name], (0, 0)], mode="wrap") for name, x in problem.items()}
        for problem in around.problems
    ]
    visible = np.arange(n_k + _PADDING) < n_k
    mask = np.broadcast_to(visible, (*longer.rows(probe.operation, "q"), len(visible)))
    yield around.change(f"with {_PADDING} masked keys behind its own", _out(probe, longer, padded, mask=mask))


def _in_chunks(around: _Around) -> Iterator[Change]:
    """A call with the second half of its queries."""
    n_q = around.alone.sizes["n_q"]
    if n_q < 2:
        raise OutsideError("One query cannot be split.")
    half = _some_queries(around, around.alone, range(n_q // 2, n_q))
    yield Change(f"with {n_q} queries", around.out[..., n_q // 2 :, :], f"with the last {n_q - n_q // 2} of them", half)


def _decoded(around: _Around) -> Iterator[Change]:
    """Its last query alone, as in decoding, instead of all queries of a causal call."""
    probe, n_q = around.probe, around.alone.sizes["n_q"]
    shape = around.alone
    if "causal" in probe.operation.options and "causal" in probe.caller.implementation.features:
        shape = replace(shape, arguments={**shape.arguments, "causal": True})
    if n_q < 2 or not _is_causal(probe, shape):
        raise OutsideError("There is no causal call of several queries.")
    prefill = _out(probe, shape, around.problems)[..., -1:, :]
    yield Change(
        "as the last of several queries",
        prefill,
        "as the only query",
        _some_queries(around, shape, range(n_q - 1, n_q)),
    )


def _is_causal(probe: Probe, shape: Shape) -> bool:
    """Whether the calls of a shape are causal."""
    return probe.operation.name == "causal_attention" or "causal" in shape.arguments


def _some_queries(around: _Around, shape: Shape, rows: range) -> Array:
    """The output of some queries. In a causal call they keep their positions: the last keys are cut
    off, or an offset is passed, as the alignment needs it.
    """
    probe, n_q, n_k = around.probe, shape.sizes["n_q"], shape.sizes["n_k"]
    options, keys = dict[str, int](), n_k
    if _is_causal(probe, shape):
        if probe.caller.conventions.causal == "bottom_right":
            keys = n_k - n_q + rows.stop
        elif rows.start:
            if "offset" not in probe.caller.implementation.features:
                raise OutsideError("Its queries count from the first one.")
            options = {"offset": rows.start}
    chunk = shape.changed(probe.operation, n_q=len(rows), n_k=keys)
    chunk = replace(chunk, arguments={**chunk.arguments, **options})
    problems = [
        {"q": each["q"][..., rows, :], "k": each["k"][..., :keys, :], "v": each["v"][..., :keys, :]}
        for each in around.problems
    ]
    return _out(probe, chunk, problems)


_MEASURES: dict[str, Callable[[_Around], Iterator[Change]]] = {
    "run to run": _again,
    "batch size": _beside_others,
    "place in the batch": _moved,
    "padding": _padded,
    "chunked prefill": _in_chunks,
    "decode equals prefill": _decoded,
}
assert _MEASURES.keys() == BIT_CONTRACTS.keys()


def sentences_of_bits(found: Bits) -> tuple[str, ...]:
    """The sentence that equal calls differ, of an implementation that is declared deterministic; else
    ().
    """
    said = "Equal calls give different bits, but the implementation is declared deterministic."
    return (said,) if found.changes.get("run to run") and found.is_deterministic else ()
