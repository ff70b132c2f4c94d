"""Laws of batches, and of sizes that are not supported, about every operation."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Ball
from properties.implementation import Implementation
from properties.law import Cases, Laws
from properties.laws.conduct import results_of
from properties.laws.lanes import refused
from properties.operations import OPERATIONS
from properties.strategies.arrays import UnsupportedError, live_masks
from properties.strategies.cases import CASES
from properties.strategies.unsupported import unsupported
from properties.subject import Subject

law = Laws()
_SHARED = {"wq", "wk", "wv", "wo", "dwq", "dwk", "dwv", "dwo", "table", "cos", "sin"}
"""What a batch has in common. Its gradient is the sum over the batch."""

_BATCHED = tuple(name for name, o in OPERATIONS.items() if not _SHARED.issuperset(o.arrays))


def _heads(operation: str) -> int:
    """How many leading axes are not the batch's."""
    return int(operation == "grouped_query_attention")


def _batched(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """Everyday cases with a batch of at least one axis, of several elements where that is supported."""
    ranks = tuple(r for r in i.batch_ranks if r > _heads(operation))
    if not ranks:
        raise UnsupportedError(f"{i.name} takes no batch.")
    several = {"batch": lambda n: n > 1 and i.allows(batch=n)} if i.allows(batch=2) or i.allows(batch=3) else {}
    cases = CASES[operation](replace(i, batch_ranks=ranks, supports={**i.restricted, **several}))
    return cases.flatmap(partial(_masked, operation)) if "mask" in OPERATIONS[operation].parameters else cases


def _masked(operation: str, case: tuple[Any, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    """The case with its own mask, or with one for each problem, or one that an axis shares: all sequences, or the heads of each."""
    place = OPERATIONS[operation].parameters.index("mask")
    keys = case[0].shape[-1] if operation.startswith("hard") else case[0 if operation.startswith("multi") else 1].shape[-2]
    lead = case[0].shape[:-2]

    def chosen(each: Any) -> st.SearchStrategy[Any]:
        return st.sampled_from([each, *(each.take([0], axis) for axis in range(len(lead))), case[place]])

    masks = live_masks(case[0].shape[-2], keys, lead).flatmap(chosen)
    return masks.map(lambda mask: (*case[:place], mask, *case[place + 1 :]))


def _problems(o: Any, arguments: tuple[Any, ...], index: tuple[slice | int, ...]) -> tuple[Any, ...]:
    """The arguments of a part of the batch; masks of fewer axes, and encodings, are for all of it."""
    full = next(x.ndim for p, x in zip(o.parameters, arguments, strict=True) if p in o.arrays and p not in _SHARED)

    def part(parameter: str, x: Any) -> Any:
        if not isinstance(x, np.ndarray) or parameter in _SHARED or x.ndim < full:
            return x
        if parameter != "mask":
            return x[index]
        return x[tuple(k if n > 1 else slice(None) if isinstance(k, slice) else 0 for k, n in zip(index, x.shape, strict=False))]

    return tuple(part(p, x) for p, x in zip(o.parameters, arguments, strict=True))


def _one_by_one(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    if _heads(operation) not in i.batch_ranks and not i.allows(batch=1):
        raise UnsupportedError(f"{i.name} takes neither single problems nor batches of one.")
    return _batched(operation, i)


@law(
    *_BATCHED,
    cases={o: partial(_one_by_one, o) for o in _BATCHED},
    effort=0.25,
    kills="rope-along-heads",
    purpose="A batch is a way to write many problems down, and nothing else.",
)
def batches_are_computed_one_by_one(subject: Subject, *arguments: Any) -> None:
    """For every batch: each of its elements gives what it gives alone, or, where no single problems are taken, as a batch of one. What the
    batch shares gets the sum of its gradients.

    Informative from two elements on. Within budget.
    """
    o, i = OPERATIONS[subject.operation], subject.implementation
    x, heads = arguments[0], _heads(o.name)
    lead = x.shape[: x.ndim - 2 - heads]
    subject.informative_if(np.prod(lead) > 1)
    whole = results_of(subject(*arguments))
    alone = heads in i.batch_ranks
    sums: dict[str, Ball] = {}
    for problem in np.ndindex(*lead):
        index = tuple(problem) if alone else tuple(slice(k, k + 1) for k in problem)
        for name, batch, single in zip(o.outputs, whole, results_of(subject(*_problems(o, arguments, index))), strict=True):
            if name in _SHARED:
                sums[name] = sums[name] + single.ball if name in sums else single.ball
                continue
            subject.finite(batch)
            subject.finite(single)
            if np.array_equal(batch.value[index], single.value, equal_nan=True):
                subject.same(batch.value[index], single.value, name)
            else:
                subject.close(batch.ball[index], single, name)
    for name, batch in zip(o.outputs, whole, strict=True):
        if name in sums:
            subject.close(batch, sums[name], name)


def _emptied(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    if not i.allows(batch=0):
        raise UnsupportedError(f"{i.name} supports no empty batch.")
    o = OPERATIONS[operation]
    return _batched(operation, i).map(lambda case: _problems(o, case, (slice(0, 0),)))


@law(*_BATCHED, cases={o: partial(_emptied, o) for o in _BATCHED}, effort=0.05, kills="sdpa-empty-batch-raises")
def an_empty_batch_is_empty(subject: Subject, *arguments: Any) -> None:
    """For every batch without elements: so is the result; gradients of what the batch shares are 0. Exact."""
    for name, result in zip(OPERATIONS[subject.operation].outputs, results_of(subject(*arguments)), strict=True):
        subject.same(result.value, np.zeros(result.value.shape), name)


def _tensor2tensor(operation: str, i: Implementation) -> Implementation:
    """The implementation with what its conventions do not support declared as well."""
    if operation != "sinusoidal_positional_encoding" or i.reading.sinusoid_layout != "tensor2tensor":
        return i
    declared: Callable[[int], bool] = i.restricted.get("embed_dim", lambda d: True)
    return replace(i, supports={**i.restricted, "embed_dim": lambda d: d % 2 == 0 and d != 2 and declared(d)})


def _refused(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return unsupported(operation, _tensor2tensor(operation, i))


_REFUSED: dict[str, Cases] = {o: partial(_refused, o) for o in OPERATIONS}


@law(*OPERATIONS, cases=_REFUSED, effort=0.2, purpose="What is not supported, and not refused either, returns wrong numbers.")
def what_is_not_supported_is_refused(subject: Subject, *arguments: Any) -> None:
    """For every size that the implementation declares not to support, the others being supported: the call raises one of the exceptions
    that it declares to refuse with, or returns what is right all the same, within budget. Exact but for that.
    """
    refused(subject, arguments, "sizes that are not supported")
