"""Makes the checks that only the gate makes: test inputs after all other calls, in another process,
and in two threads.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.gatehouse.isolated_kernel import IsolatedKernel
from properties.laws.call_contract import another
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.choices import rounded
from properties.strategies.domains import DOMAINS
from properties.strategies.sizes import PAIRED
from properties.verifier.report import Outcome, Violation, broken

__all__ = ["STATEMENTS", "checked", "finished"]

_AFTERWARDS = "what it has done is done when it returns"
_REPLACES = "it replaces no function of Python's library, NumPy and torch"
_USES = "it uses nothing that is forbidden"

STATEMENTS = {
    "it is right after all other calls": "After the calls of the laws, further test inputs are within their "
    "error limits; some are longer or wider than all before, or in larger batches.",
    "another process gives the same": "A fresh process returns the same, to the last bit, for the same test inputs in "
    "reverse order.",
    "two threads give the same": "It returns the same, to the last bit, while another thread makes another call.",
    _AFTERWARDS: "Results have not changed at the end, and no fork of the process has answered.",
    _REPLACES: "At the end, the functions of Python's library, NumPy and torch are those from before its import.",
    _USES: "It imports no module, and calls no function, that is forbidden, and its source names none.",
}
"""The statements of the checks, by name. "The same" means within the error limit for a kernel that is not
deterministic.
"""

_CALLING = tuple(name for name in STATEMENTS if name not in (_AFTERWARDS, _REPLACES, _USES))
_MOST_NAMES = 8  # that a sentence lists
_SEEDS = 2**24
_LARGE: tuple[dict[str, tuple[int, int]], ...] = (
    {"head_dim": (257, 1024)},
    {"n_k": (512, 1100)},
    {"n_q": (512, 1100)},
    {"seq_len": (512, 1100)},
    {"value_dim": (257, 1024)},
    {"max_len": (300, 1100)},
    {"n": (300, 1100)},
    {"n_q": (1024, 1100), "n_k": (1024, 1100), "head_dim": (2, 8), "value_dim": (1, 8), "kv_heads": (1, 1)},
    {"batch": (9, 24), "n_q": (1, 3), "n_k": (2, 5), "seq_len": (1, 3)},
)
"""The smallest and the largest size of axes. An operation needs the first axis of a row."""


@dataclass(frozen=True)
class _Judged:
    """A test input, its results, and a sentence that says why they are wrong; "" if they are right."""

    case: tuple[Any, ...]
    outputs: tuple[Array, ...]
    wrong: str

    def differs(self, other: "_Judged") -> str:
        """Return a sentence if the results of two calls differ; "" if they are equal."""
        are_equal = len(self.outputs) == len(other.outputs) and all(
            np.array_equal(output, other_output, equal_nan=output.dtype.kind == "f")
            for output, other_output in zip(self.outputs, other.outputs, strict=True)
        )
        return "" if are_equal else "The same input gave another result before."


def checked(
    implementation: Implementation, first: IsolatedKernel, second: IsolatedKernel, number: int, seed: int
) -> Iterator[Outcome]:
    """Yield the outcomes of the checks that call the kernel.

    Each operation gets `number` further test inputs, and inputs of large sizes. `first` and
    `second` are two processes of the same kernel.
    """
    random = Random(f"{seed} afterwards")
    for operation in implementation.operations:
        outcome = partial(_outcome, implementation.name, operation)
        unasked = partial(Outcome, operation=operation, implementation=implementation.name)
        if ended := first.process.ended or second.process.ended:
            yield from (unasked(name, status="not run", reason=f"It {ended}.") for name in _CALLING)
            continue
        try:
            cases = [
                *_in_fives(OPERATIONS[operation], implementation, number // 3, random),
                *_large(OPERATIONS[operation], implementation, random),
            ]
        except UnsupportedError as unsupported:
            yield from (unasked(name, status="not applicable", reason=str(unsupported)) for name in _CALLING)
            continue
        again = partial(_judged, implementation, operation=operation, compares=not implementation.deterministic)
        in_second_process = again(second, cases=cases[::-1])[::-1]
        one_by_one = _judged(implementation, first, cases, operation)
        first.in_two_threads = True
        beside = again(first, cases=cases)
        first.in_two_threads = False
        for name, results in zip(_CALLING, (one_by_one, in_second_process, beside), strict=True):
            exactly = results is not one_by_one and implementation.deterministic
            yield outcome(
                name,
                [
                    (result.case, result.differs(first_result) if exactly else result.wrong)
                    for result, first_result in zip(results, one_by_one, strict=True)
                ],
            )


def _in_fives(
    operation: Operation, implementation: Implementation, number: int, random: Random
) -> Iterator[tuple[Any, ...]]:
    """Yield test inputs in groups of five with the same shapes.

    The second of a group has other numbers in all arrays. The last three have other numbers in one
    array, which changes from group to group. A kernel that keeps results by shapes, or by some of
    the numbers, by their magnitudes or by rounded numbers, then returns wrong results.
    """
    cases, first_array = Cases(operation, DOMAINS[operation.name]["everyday"], implementation), random.randrange(_SEEDS)
    for position in range(number):
        case = cases.draw(random.randint(1, _SEEDS))
        yield case
        yield another(operation, implementation, case)
        names = [
            name
            for name, array in operation.named(case).items()
            if isinstance(array, np.ndarray) and array.size > 1 and not operation.is_length(name) and name != "parents"
        ]
        for change in (_reversed_middle, _one_changed, _slightly_changed):
            given = operation.named(case)
            if names:
                name = names[(first_array + position) % len(names)]
                target = operation.stored(name, implementation.resolved_arithmetic)
                numbers = given[name].copy()
                change(numbers.reshape(-1), random)
                given[name] = rounded(numbers, target) if numbers.dtype.kind == "f" else numbers
            changed = tuple(given.values())
            yield changed if implementation.takes(operation, changed) else case


def _reversed_middle(numbers: Array, random: Random) -> None:
    """Reverse the order of the middle half."""
    middle = slice(quarter := numbers.size // 4, numbers.size - quarter)
    numbers[middle] = numbers[middle][::-1].copy()


def _one_changed(numbers: Array, random: Random) -> None:
    """Change the sign of one number, or make one masked key visible. Whole numbers stay."""
    is_mask = numbers.dtype.kind == "b"
    places = np.flatnonzero(numbers == 0 if is_mask else np.isfinite(numbers) & (numbers != 0))
    if places.size and numbers.dtype.kind in "bf":
        place = places[random.randrange(places.size)]
        numbers[place] = is_mask or -numbers[place]


def _slightly_changed(numbers: Array, random: Random) -> None:
    """Round all numbers to 11 bits, and multiply them by 1 + 1/8192. Half precision sees no change."""
    if numbers.dtype.kind == "f":
        mantissas, exponents = np.frexp(numbers)
        numbers[...] = np.ldexp(np.round(mantissas * 2**11) * 2.0**-11 * (1 + 2.0**-13), exponents)


def _large(operation: Operation, implementation: Implementation, random: Random) -> Iterator[tuple[Any, ...]]:
    """Yield a test input for each row of `_LARGE` that the kernel supports. Its axes are longer than in
    the laws, or there are more batch entries.
    """
    everyday = DOMAINS[operation.name]["everyday"]
    axes = {"batch" if axis == BATCH else axis for axes in operation.axes.values() for axis in axes}
    for ranges in _LARGE:
        if next(iter(ranges)) not in axes:
            continue
        sizes = {axis: (random.randint(*ranges[axis]),) for axis in ranges if axis in axes}
        if "head_dim" in sizes and operation.forward in PAIRED:
            sizes["head_dim"] = (sizes["head_dim"][0] // 2 * 2,)
        rank = min(2, max(implementation.ranks(operation), default=0)) if "batch" in sizes else everyday.rank
        large_domain = replace(everyday, sizes={**everyday.sizes, **sizes}, rank=rank)
        with suppress(UnsupportedError):
            yield Cases(operation, large_domain, implementation).draw(random.randint(1, _SEEDS))


def finished(implementation: Implementation, candidates: Sequence[IsolatedKernel]) -> Iterator[Outcome]:
    """Yield the outcomes of the checks at the end. These checks rely on what the untrusted process
    says, and the process could lie.
    """
    limits, first_operation = candidates[0].limits, next(iter(implementation.operations))
    outcome = partial(_outcome, implementation.name, first_operation)
    mistakes = [((), sentence) for candidate in candidates for sentence in candidate.finish()]
    yield outcome(_AFTERWARDS, mistakes or [((), "")])
    replaced_names = {function for candidate in candidates for function in candidate.replaced}
    replaced = "" if limits.replaces else _listed(sorted(replaced_names))
    yield outcome(_REPLACES, [((), f"It replaced {replaced}." if replaced else "")])
    if limits.forbid:
        forbidden_names = {used for candidate in candidates for used in limits.forbidden(candidate.used)}
        forbidden = _listed(sorted(forbidden_names))
        yield outcome(_USES, [((), f"It uses {forbidden}, which is forbidden." if forbidden else "")])


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _judged(
    implementation: Implementation,
    candidate: IsolatedKernel,
    cases: Sequence[tuple[Any, ...]],
    operation: str,
    compares: bool = True,
) -> list[_Judged]:
    """Return the results of a kernel's process on some test inputs, each compared with the oracle if
    `compares` is true.
    """
    subject = Subject(replace(implementation, operations=candidate.functions), operation)
    judged = []
    for case in cases:
        subject.begin()
        mistake = ""
        try:
            subject.watch(operation, case)
            if compares:
                subject.judge(0)
        except BrokenError as broken:
            mistake = str(broken)
        judged.append(_Judged(case, subject.calls[-1].outputs, mistake))
    return judged


def _outcome(implementation: str, operation: str, name: str, found: Sequence[tuple[tuple[Any, ...], str]]) -> Outcome:
    """Return the outcome of a check from pairs: a test input, and a sentence that says what was
    wrong with it, or "".
    """
    first_mistake = next(((case, sentence) for case, sentence in found if sentence), None)
    if first_mistake is None:
        return Outcome(name, operation, implementation, "held", len(found), len(found))
    case = dict(zip(OPERATIONS[operation].parameters, first_mistake[0], strict=False))
    violation = Violation(name, operation, implementation, first_mistake[1], case, inf, shrunk=False)
    return broken(violation, examples=len(found))
