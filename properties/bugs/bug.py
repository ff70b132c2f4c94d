"""Defines a known bug: a small executable change of the reference, with its effect, its repair and
public reports of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Literal

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs.reference import operations, users_of

__all__ = ["Bug", "Memory", "Mutant", "Register", "Requirement"]

SDPA, GQA, CAUSAL = "scaled_dot_product_attention", "grouped_query_attention", "causal_attention"
SDPA_VJP, SDPA_JVP = f"{SDPA}_vjp", f"{SDPA}_jvp"
MULTI_HEAD = MHA, MHA_VJP, MHA_JVP = "multi_head_attention", "multi_head_attention_vjp", "multi_head_attention_jvp"
OPTIONS = "attention", "attention_vjp", "attention_jvp"
PACKED = "packed_attention", "packed_attention_vjp", "paged_attention"
SOFTMAX, SOFTMAX_VJP, SINUSOID = "hard_masked_softmax", "hard_masked_softmax_vjp", "sinusoidal_positional_encoding"
BACKWARD = (SDPA_VJP, MHA_VJP, SOFTMAX_VJP)

Gradients = tuple[Array, ...]
Mutant = Callable[..., Any]
Mutants = Callable[[Callable[[], Any]], dict[str, Callable[[], Mutant]]]  # makes mutants, by operation, from a maker
Memory = dict[Any, Any]
_RESCALING = {"references", "exponentials_of_logits", "sum_of_exponentials"}
_OF_PACKED = {
    "in_window",
    "not_after",
    "key_heads",
    "scale_of",
    "softcapped",
    "softcap_slope",
    "sinks_of",
    "largest_logit",
    *_RESCALING,
    "slopes_added",
    "key_distances",
}
"""The steps of attention whose bugs packed sequences and keys in pages have too. Bugs of other steps need
options that these do not take.
"""
LAYER = "attention_layer"
_OF_LAYER = {"key_heads", "not_after"}
"""The steps of attention whose bugs a layer has too."""
LATENT = "latent_attention"
_OF_LATENT = {"in_window", "not_after", "softcapped", "sinks_of", "largest_logit", *_RESCALING}
"""The steps of attention whose bugs latent attention has too: its scale is given, it has one key head and
no bias.
"""
_TILE_SIZES = (8, 16, 32, 64, 128)  # the sizes that kernels use
Requirement = Literal[
    "strided views", "two calls in a row", "tables that are not rotations", "long positions", "large sizes"
]


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A known bug of one operation, or of all operations that contain one step.

    `operation` is the operation in which the bug was seen. `mutants` has a maker for each operation
    that can have the bug. A maker returns a new mutant: a function of the operation's arguments in
    NumPy float64 that has the bug, and has no memory of earlier calls.

    `mechanism`, `effect` and `repair` are sentences: what the code does wrong, what a user sees,
    and what to change. `citations` names public reports (owner/repo#1; owner/repo#2). Where nobody
    has reported the bug, `origin` says how code gets it. `law` names the law that should detect the
    bug.

    `requires` says what a test must do in addition to calling the mutant on arrays. `public` marks
    the thirty bugs on which the suite was tuned. `promises` replaces the default declarations of an
    implementation with the bug. `tiles` has the mechanism and a maker of the same mutant for each
    other size of a tile.
    `only_under` has the conventions without which the mechanism has no meaning.
    """

    id: str
    operation: str
    mutants: Mapping[str, Callable[[], Mutant]]
    mechanism: str
    effect: str = ""
    repair: str = ""
    law: str
    citations: str = ""
    origin: str = ""
    requires: tuple[Requirement, ...] = ()
    public: bool = False
    promises: Mapping[str, Any] = field(default_factory=dict)
    tiles: Mapping[int, tuple[str, Callable[[], Mutant]]] = field(default_factory=dict)
    only_under: Mapping[str, str] = field(default_factory=dict)

    @property
    def fresh(self) -> Callable[[], Mutant]:
        """The maker of mutants (functions with the bug) of the operation in which the bug was seen."""
        return self.mutants[self.operation]

    def has_meaning(self, conventions: Conventions) -> bool:
        """Return whether the bug is one under these conventions."""
        return all(getattr(conventions, name) == value for name, value in self.only_under.items())

    @property
    def remembers(self) -> bool:
        """Whether results depend on earlier calls."""
        return "two calls in a row" in self.requires

    @property
    def citation(self) -> str:
        """The public reports in one line. A bug without a report has "none: " and its origin."""
        return self.citations or f"none: {self.origin}"


def _takes_options(function: Mutant) -> bool:
    return any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in signature(function).parameters.values())


def _mutant_operation(operation: str, make: Callable[[], Mutant]) -> Mutant:
    """Return a mutant (a function with the bug) of one operation. If a call has options that the
    mutant does not take, the reference answers it.
    """
    mutant, right = make(), operations()[operation]
    if _takes_options(mutant) or not _takes_options(right):
        return mutant
    return lambda *arguments, **options: right(*arguments, **options) if options else mutant(*arguments)


def _mutant_steps(steps: tuple[str, ...], operation: str, make: Callable[[], Any]) -> Mutant:
    """Return an operation of the reference in which other functions replace these steps."""
    others = make()
    replaced = operations(**dict(zip(steps, others if isinstance(others, tuple) else (others,), strict=True)))
    return np.errstate(all="ignore")(replaced[operation])


def _with_tile(function: Mutant, tile: int) -> Mutant:
    return lambda *arguments: function(*arguments, tile=tile)


def _bug(
    function: Mutant,
    mutants: Mutants,
    make: Callable[[], Any],
    entry: Mapping[str, Any],
) -> Bug:
    """Return the bug that a decorated function defines, for the catalogue. If the function has an
    argument `tile`, its docstring says {tile} for the size, and the bug has mutants with the other
    sizes of a tile too.
    """
    each, usual = mutants(make), signature(function).parameters.get("tile")
    operation, mechanism = next(iter(each)), " ".join((function.__doc__ or "").split())
    sizes = [size for size in _TILE_SIZES if size != usual.default] if usual else []

    def of_tile(size: int) -> tuple[str, Callable[[], Mutant]]:
        return mechanism.format(tile=size), mutants(partial(_with_tile, function, size))[operation]

    return Bug(
        id=function.__name__.replace("_", "-"),
        operation=operation,
        mutants=each,
        mechanism=mechanism.format(tile=usual.default) if usual else mechanism,
        tiles={size: of_tile(size) for size in sizes},
        **entry,
    )


class Register:
    """Decorators that add a function with a bug to the catalogue. The function's name is the bug's id,
    and its docstring is a sentence that says what the code does wrong:

        @bug.in_step("row_term", seen="scaled_dot_product_attention_vjp", law="…", effect="…", repair="…",
                     citations="owner/repo#1; owner/repo#2")
        def vjp_missing_rowdot(weights, grad_weights):
            \"\"\"The backward leaves out the term of each row.\"\"\"
            return np.zeros(())

    `in_step` replaces a step of the reference by the function, in all operations that contain the step.
    `in_operation` replaces one operation. Options change what the function takes:

    remembers   its first argument is a memory, a dict, which is empty before the first of two calls in
                a row
    making      it takes no argument, and returns the replacement
    record      its argument is this record of the operation's arguments

    A function with an argument `tile` is also added with other sizes of the tile. Its docstring names
    the size as {tile}. A module with many bugs of one step gives their decorator a name, such as
    in_key_rows = partial(bug.in_step, "key_rows").
    """

    def __init__(self, seen: str = "", law: str = "") -> None:
        """Bugs that name no operation and no law have `seen` and `law`."""
        self.seen, self.law, self.bugs = seen, law, list[Bug]()

    def in_operation(self, operation: str, **entry: Any) -> Callable[[Mutant], Mutant]:
        """Return the decorator for a bug in one operation. The other arguments are fields of `Bug`."""
        return self._decorator(lambda make: {operation: partial(_mutant_operation, operation, make)}, **entry)

    def in_step(
        self, *steps: str, seen: str = "", without: tuple[str, ...] = (), **entry: Any
    ) -> Callable[[Mutant], Mutant]:
        """Return the decorator for a bug in a step, or in several steps at once.

        `seen` names the operation in which the bug was seen: by default, the operation of the
        register, or the step if the register has none. `without` names operations that stay correct
        with the bug, or in which the same change is another bug.
        """
        first = seen or self.seen or steps[0]
        packed = () if first in PACKED or _OF_PACKED.issuperset(steps) else PACKED
        latent = () if first == LATENT or _OF_LATENT.issuperset(steps) else (LATENT,)
        layer = () if first == LAYER or _OF_LAYER.issuperset(steps) else (LAYER,)
        left_out = (first, *without, *packed, *latent, *layer)
        names = [first, *(name for name in users_of(*steps) if name not in left_out)]
        return self._decorator(
            lambda make: {name: partial(_mutant_steps, steps, name, make) for name in names}, **entry
        )

    def _decorator(
        self,
        mutants: Mutants,
        *,
        remembers: bool = False,
        making: bool = False,
        record: Callable[..., Any] | None = None,
        **entry: Any,
    ) -> Callable[[Mutant], Mutant]:
        """Return the decorator for a function that replaces something. `mutants` makes the
        functions with the bug from a maker of this replacement.
        """
        entry = {"law": self.law, **entry}
        if remembers:
            entry["requires"] = ("two calls in a row",)

        def register(function: Mutant) -> Mutant:
            of_arguments = (lambda *arguments: function(record(*arguments))) if record else function
            make = function if making else lambda: partial(function, {}) if remembers else of_arguments
            self.bugs.append(_bug(function, mutants, make, entry))
            return function

        return register
