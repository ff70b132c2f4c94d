"""What a known bug is: a small executable slip in the reference, with where it was seen, what it
does and how it is mended.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Literal

import numpy as np

from oracles.ball import Array
from properties.bugs.reference import operations, users_of

__all__ = ["Bug", "Memory", "Register", "Requirement", "named"]

SDPA, GQA, CAUSAL = "scaled_dot_product_attention", "grouped_query_attention", "causal_attention"
SDPA_VJP, SDPA_JVP = f"{SDPA}_vjp", f"{SDPA}_jvp"
MULTI_HEAD = MHA, MHA_VJP, MHA_JVP = "multi_head_attention", "multi_head_attention_vjp", "multi_head_attention_jvp"
SOFTMAX, SOFTMAX_VJP, SINUSOID = "hard_masked_softmax", "hard_masked_softmax_vjp", "sinusoidal_positional_encoding"
BACKWARD = (SDPA_VJP, MHA_VJP, SOFTMAX_VJP)

Gradients = tuple[Array, ...]
Mutant = Callable[..., Any]
Memory = dict[Any, Any]
_TILES = (8, 16, 32, 64, 128)  # sizes that kernels have
Requirement = Literal[
    "strided views", "two calls in a row", "tables that are not rotations", "long positions", "large sizes"
]


@dataclass(frozen=True)
class Bug:
    """A known mistake, in one operation or in all that take the step in which it is made.

    `operation` is where it was seen. `mutants` has for each operation with the mistake a maker of a
    new instance: a function of the operation's arguments in NumPy float64, with no memory of
    earlier calls. `mechanism` says what the mistake does, `effect` what a user sees, `repair` what
    to change; each is a sentence. `citation` names public reports (owner/repo#number), or says
    "none" and why it is here. `law` names the law that is expected to see it; `requires` what a
    harness must do besides calling it on arrays. `public` bugs are the thirty that the suite was
    tuned on; of the others some are documented in the open too. `promises` are those of an
    implementation that has the bug, where they are not the usual ones; `tiles` has makers of the
    same mistake in tiles of other sizes than the usual one.
    """

    id: str
    operation: str
    mutants: Mapping[str, Callable[[], Mutant]]
    mechanism: str
    effect: str
    repair: str
    citation: str
    law: str
    requires: tuple[Requirement, ...] = ()
    public: bool = False
    promises: Mapping[str, Any] = field(default_factory=dict)
    tiles: Mapping[int, Callable[[], Mutant]] = field(default_factory=dict)

    @property
    def fresh(self) -> Callable[[], Mutant]:
        """The maker of a new instance of the mutant of the operation in which it was seen."""
        return self.mutants[self.operation]


def _plainly(operation: str, make: Callable[[], Mutant]) -> Mutant:
    """A mutant of a whole operation; one of calls without options, where it takes none: others the
    reference answers.
    """
    mutant, right = make(), operations()[operation]
    takes_options = any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in signature(mutant).parameters.values())
    if takes_options or not any(
        p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in signature(right).parameters.values()
    ):
        return mutant
    return lambda *arguments, **options: right(*arguments, **options) if options else mutant(*arguments)


def _of_tiles(function: Mutant, tile: int) -> Mutant:
    return lambda *arguments: function(*arguments, tile=tile)


class Register:
    """Decorators that turn a function into an entry of a catalogue. Its name is the id, its
    docstring what there is to say about it:

        @bug.slip("row_term", seen="scaled_dot_product_attention_vjp", law="…")
        def vjp_missing_rowdot(weights, grad_weights):
            \"\"\"The row's own term is left out.
            Effect: … Repair: … Seen: owner/repo#1; owner/repo#2\"\"\"
            return np.zeros(())

    `bug.slip` puts the function in the place of a step of the reference, in all operations that
    take the step; `bug` in the place of one operation. With `remembers=True` its first argument is
    the memory of a mutant, empty before the first of two calls in a row; with `making=True` it
    takes no argument and returns what takes the place. What has an argument `tile`, a size, is made
    with others too.
    """

    def __init__(self) -> None:
        self.bugs: list[Bug] = []

    def __call__(self, operation: str, **entry: Any) -> Callable[[Mutant], Mutant]:
        """The decorator for a mutant of an operation; the other arguments are fields of `Bug`."""
        return lambda function: self._registered(function, [operation], _plainly, **entry)

    def slip(
        self, *steps: str, seen: str = "", without: tuple[str, ...] = (), **entry: Any
    ) -> Callable[[Mutant], Mutant]:
        """The decorator for a slip in a step, or in several at once.

        `seen` names the operation where it was seen, if it is not the step; `without` those in
        which it is nothing, or another bug.
        """
        first = seen or steps[0]
        among = [first, *(name for name in users_of(*steps) if name not in (first, *without))]

        def mutant(operation: str, make: Callable[[], Any]) -> Mutant:
            others = make()
            replaced = operations(**dict(zip(steps, others if isinstance(others, tuple) else (others,), strict=True)))
            return np.errstate(all="ignore")(replaced[operation])

        return lambda function: self._registered(function, among, mutant, **entry)

    def _registered(
        self,
        function: Mutant,
        among: list[str],
        mutant: Mutant,
        *,
        remembers: bool = False,
        making: bool = False,
        **entry: Any,
    ) -> Mutant:
        make = function if making else lambda: partial(function, {}) if remembers else function
        if remembers:
            entry["requires"] = ("two calls in a row",)
        text = " ".join((function.__doc__ or "").split())
        mechanism, *told = re.split(r" (?=Effect:|Repair:|Seen:)", text)
        labelled = dict(part.split(": ", 1) for part in told)
        sentences = mechanism, labelled.get("Effect", ""), labelled.get("Repair", ""), labelled["Seen"]
        mutants = {operation: partial(mutant, operation, make) for operation in among}
        if usual := signature(function).parameters.get("tile"):
            sizes = [n for n in _TILES if n != usual.default]
            entry["tiles"] = {n: partial(mutant, among[0], partial(_of_tiles, function, n)) for n in sizes}
        self.bugs.append(Bug(function.__name__.replace("_", "-"), among[0], mutants, *sentences, **entry))
        return function


def named(function: Mutant, name: str, told: str) -> Mutant:
    """A function of a table, with its name, and what there is to say about it."""
    function.__name__, function.__doc__ = name, told
    return function
