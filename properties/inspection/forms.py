"""How a function can be called as an operation: a record, and the code that follows from it.

`properties.inspection.form_search` finds the record by trial calls. The record is written as code:
a wrapper of the function, and the fields of an `Implementation`. The implementation is made from
the same code, so that a written adapter does what was tried.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import oracles
from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.contract.operations import BATCH, OPERATIONS, Arguments, Operation
from properties.inspection.array import Array
from properties.inspection.array_libraries import LIBRARIES
from properties.inspection.size_rules import predicate_of

__all__ = [
    "HEADS_FIRST",
    "ROWS_FIRST",
    "Form",
    "Made",
    "Refusal",
    "has_movable_rows",
    "reasons",
    "refusals_as_code",
    "required",
    "results_of",
]

HEADS_FIRST, ROWS_FIRST = "b h s d", "b s h d"
"""The orders of axes: batch, heads, sequence, width, as the contract has them; or heads after the
sequence.
"""


_MASK_SHAPES = {
    "q": "(*q.shape[:-1], k.shape[-2])",
    "x": "(*x.shape[:-1], x.shape[-2])",
    "scores": "scores.shape",
}
"""Code for the shape of a full mask, by the array that shows the shape."""

_MASK_WORDS = ("full masks", "padding masks", "additive masks")
"""The words of `supports` that say what a mask is."""

_ADJUSTED = {
    "window": """\
    if "window" in options:
        longest = max(q.shape[-2], k.shape[-2])
        options["window"] = tuple(longest if side is None else side for side in options["window"])
""",
    "bias": """\
    if "bias" in options:
        bias = options["bias"]
        options["bias"] = bias.reshape((1,) * (q.ndim - bias.ndim) + bias.shape)
""",
}
"""Code that changes the value of an option: an open side of a window gets a number, and a bias gets
all axes.
"""

_USUAL_REFUSALS = tuple(kind.__name__ for kind in USUAL_REFUSALS)
_DEFAULTS = {
    "conventions": "oracles.Conventions()",
    "arrays": '"numpy"',
    "batch_ranks": "(0, 1, 2)",
    "refuses": f"({', '.join(_USUAL_REFUSALS)})",
    "features": "()",
    "layouts": "None",
}
"""The values of fields that a declaration leaves out."""


@dataclass(frozen=True)
class Refusal:
    """Something that was tried and failed, and the exception or the fault of the result."""

    what: str
    error: str


@dataclass(frozen=True)
class Made:
    """A trial call that worked: its arguments, its results, the number type of its arrays, and its time."""

    arguments: Arguments
    results: tuple[Array, ...]
    number_type: str
    seconds: float


@dataclass(frozen=True)
class Form:
    """How a function can be called as an operation.

    operation     the name of the operation
    arrays        the library of the arrays: "numpy", "torch" or "jax"
    dtypes        the number types that work, the widest first
    batch_ranks   how many axes before the last two work. An axis of heads counts
    axes          the order of the axes: `HEADS_FIRST` or `ROWS_FIRST`
    positional    the parameters that are passed by position, in order
    keywords      the parameters that are passed by keyword, with the function's name for each
    switches      further keyword arguments of every call
    results       code for each result, which takes it from the return value `found`
    fills_mask    whether a call without a mask must pass a mask that hides no key
    adjusted      the options whose values the wrapper changes to values that the function takes
    features      the names of `FEATURES` that the function takes
    words         the words of `supports`
    sizes         the rule of each restricted size, as code: see `size_rules`
    conventions   the fields of `Conventions` that say what a call may pass
    refuses       the names of built-in exceptions, next to the default ones, that refused a size
    layouts       () if the function misreads arrays that are not contiguous, else None
    refusals      what failed, and why
    assumed       sentences on what is declared beyond what was tried
    is_cut        whether the search ended early. Then a form without words and sizes declares no `supports`
    calls         the number of calls that were made
    made          the calls of this form that worked and returned small arrays
    """

    operation: str
    arrays: str
    dtypes: tuple[str, ...]
    batch_ranks: tuple[int, ...]
    axes: str = HEADS_FIRST
    positional: tuple[str, ...] = ()
    keywords: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    fills_mask: bool = False
    adjusted: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)
    conventions: Mapping[str, str] = field(default_factory=dict)
    refuses: tuple[str, ...] = ()
    layouts: tuple[str, ...] | None = None
    refusals: tuple[Refusal, ...] = ()
    assumed: tuple[str, ...] = ()
    is_cut: bool = False
    calls: int = 0
    made: tuple[Made, ...] = field(default=(), repr=False, compare=False)

    @property
    def dtype(self) -> str:
        """The widest number type that works."""
        return self.dtypes[0]

    @property
    def predicates(self) -> dict[str, Callable[[int], bool]]:
        """The predicate of each restricted size."""
        return {name: predicate_of(rule) for name, rule in self.sizes.items()}

    def passes(self, other: "Form", arguments: Arguments) -> bool:
        """Whether a call of another form is a call of this form, with the same arguments."""
        names = ("arrays", "axes", "positional", "switches", "results", "fills_mask")
        has_mask = self._operation.named(arguments).get("mask") is not None
        return (
            all(getattr(self, name) == getattr(other, name) for name in names)
            and other.keywords.items() <= self.keywords.items()
            and not (has_mask and ({*self.words} ^ {*other.words}) & {*_MASK_WORDS})
        )

    @property
    def is_direct(self) -> bool:
        """Whether the function takes and returns what the contract says, without a wrapper."""
        return (
            self.axes == HEADS_FIRST
            and self.positional == required(self._operation)
            and self.results in (results_of(self._operation)[0], ("found",))
            and not (self.switches or self._renamed or self.fills_mask or self.adjusted or self._drops_causal)
        )

    @property
    def declarations(self) -> dict[str, str]:
        """The fields of an `Implementation` that differ from their defaults, as code."""
        sizes = ", ".join(f'"{name}": {rule}' for name, rule in self.sizes.items())
        supports = ", ".join([*map(_quoted, self.words), *([f"{{{sizes}}}"] if sizes else [])])
        conventions = ", ".join(f'{name}="{value}"' for name, value in self.conventions.items())
        written = {
            "arithmetic": _quoted(self.dtype),
            "conventions": f"oracles.Conventions({conventions})",
            "arrays": LIBRARIES[self.arrays].arrays,
            "batch_ranks": repr(self.batch_ranks),
            "supports": f"[{supports}]",
            "refuses": refusals_as_code(self.refuses),
            "features": _quoted(self.features),
            "layouts": repr(self.layouts),
        }
        defaults = _DEFAULTS | ({"supports": "[]"} if self.is_cut else {})
        return {name: code for name, code in written.items() if code != defaults.get(name)}

    @property
    def imports(self) -> tuple[str, ...]:
        """The import statements that the declarations and the wrapper need."""
        statements = ("from attnspec import oracles", LIBRARIES[self.arrays].imports)
        used = "".join([*self.declarations.values(), *([] if self.is_direct else [self.code()])])
        return tuple(statement for statement in statements if f"{statement.split()[-1]}." in used)

    def implementation(self, name: str, function: Callable[..., Any]) -> Implementation:
        """Return the implementation that offers the function as the operation."""
        namespace = self._namespace(function)
        fields = {field_name: eval(code, namespace) for field_name, code in self.declarations.items()}
        return Implementation(name, {self.operation: self.wrapped(function)}, **fields)

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as the contract calls it: itself, or the wrapper of `code`."""
        if self.is_direct:
            return function
        namespace = self._namespace(function)
        exec(self.code(), namespace)
        wrapper: Callable[..., Any] = namespace[self.operation]
        return wrapper

    def code(self, kernel: str = "kernel") -> str:
        """Return the wrapper as code: a function with the operation's name that calls `kernel`."""
        always = ["causal=True"] if self._drops_causal else []
        parameters = [*required(self._operation), *always, *(["**options"] if self._option_names else [])]
        lines = [
            f"def {self.operation}({', '.join(parameters)}):",
            *self._mask_lines(),
            *(_ADJUSTED[name].rstrip() for name in self.adjusted),
            *self._axes_lines(),
            *self._names_lines(),
            f"    found = {kernel}({', '.join(self._arguments())})",
            f"    return {', '.join(self._returned())}",
        ]
        return "\n".join(lines) + "\n"

    @property
    def _operation(self) -> Operation:
        return OPERATIONS[self.operation]

    @property
    def _drops_causal(self) -> bool:
        """Whether every call has causal=True, and the function has no such parameter."""
        return "causal only" in self.words and "causal" not in self.keywords

    @property
    def _option_names(self) -> dict[str, str]:
        """The function's name of each option that it takes."""
        return {name: keyword for name, keyword in self.keywords.items() if name in self._operation.options}

    @property
    def _renamed(self) -> dict[str, str]:
        """The function's name of each option that has another name in the contract."""
        return {name: keyword for name, keyword in self._option_names.items() if name != keyword}

    def _namespace(self, function: Callable[..., Any]) -> dict[str, Any]:
        namespace: dict[str, Any] = {"kernel": function, "oracles": oracles}
        exec(LIBRARIES[self.arrays].imports, namespace)
        return namespace

    def _mask_lines(self) -> list[str]:
        if not self.fills_mask:
            return []
        array = next(name for name in _MASK_SHAPES if name in self._operation.parameters)
        ones = LIBRARIES[self.arrays].ones.format(shape=_MASK_SHAPES[array], array=array)
        return ["    if mask is None:", f"        mask = {ones}"]

    def _axes_lines(self) -> list[str]:
        if self.axes == HEADS_FIRST:
            return []
        copied = LIBRARIES[self.arrays].copied
        arrays = [name for name in required(self._operation) if has_movable_rows(self._operation, name)]
        return [f"    {name} = {name}.swapaxes(-2, -3){copied}" for name in arrays]

    def _names_lines(self) -> list[str]:
        if not self._renamed:
            return []
        return [
            f"    names = {_quoted(self._renamed)}",
            "    options = {names.get(name, name): option for name, option in options.items()}",
        ]

    def _arguments(self) -> list[str]:
        """The arguments of the call of the function, as code."""
        by_keyword = [
            f'**({{}} if mask is None else {{"{keyword}": mask}})' if name == "mask" else f"{keyword}={name}"
            for name, keyword in self.keywords.items()
            if name not in self._option_names
        ]
        switches = [f"{keyword}={switch!r}" for keyword, switch in self.switches.items()]
        options = ["**options"] if self._option_names else []
        return [*self.positional, *switches, *by_keyword, *options]

    def _returned(self) -> list[str]:
        """The results, as code."""
        return [
            f"{code}.swapaxes(-2, -3)"
            if self.axes == ROWS_FIRST and code != "None" and has_movable_rows(self._operation, name)
            else code
            for name, code in zip(self._operation.outputs, self.results, strict=False)
        ]


def reasons(refusals: Iterable[Refusal]) -> list[str]:
    """Return a clause for each reason: all that failed for it, and the reason."""
    failed: dict[str, list[str]] = {}
    for refusal in refusals:
        failed.setdefault(refusal.error.rstrip("."), []).append(refusal.what)
    return [f"{', '.join(dict.fromkeys(named))}: {reason}" for reason, named in failed.items()]


def refusals_as_code(others: Iterable[str]) -> str:
    """Return the field `refuses` as code: the usual exceptions, and the names of others."""
    return f"({', '.join(dict.fromkeys([*_USUAL_REFUSALS, *others]))})"


def required(operation: Operation) -> tuple[str, ...]:
    """Return the parameters that every call passes, in order."""
    return tuple(name for name in operation.parameters if name not in operation.options)


def results_of(operation: Operation) -> tuple[tuple[str, ...], ...]:
    """Return the ways in which results may be found in a return value, the contract's way first."""
    if len(operation.outputs) == 1:
        return (("found",), ("found[0]",))
    several = tuple(f"found[{place}]" for place in range(len(operation.outputs)))
    if operation.name == "attention_vjp":  # the function may return no gradients of bias and sinks
        return (several, (*several[:3], "None", "None"))
    if operation.outputs in (("out", "lse"), ("dout", "dlse")):
        return (several, ("found[0]", "found[1].swapaxes(-1, -2)"), ("found",), ("found[0]",))
    return (several,)


def has_movable_rows(operation: Operation, name: str) -> bool:
    """Return whether an array has rows of channels behind leading axes. Libraries disagree about
    the order of the axes of rows and of heads.
    """
    axes = operation.axes.get(name, ())
    return axes[:1] == (BATCH,) and axes[-1] in ("head_dim", "value_dim") and not operation.broadcasts(name)


def _quoted(value: object) -> str:
    """Return code for names and containers of names, in double quotes."""
    return repr(value).replace("'", '"')
