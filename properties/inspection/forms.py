"""How a function can be called as an operation: a record, and the declaration that follows from it.

`properties.inspection.trials` finds the record by calls. The record is written as code: a wrapper
of the function, and the fields of an `Implementation`. The implementation is made from that code,
so that the written adapter does what was tried.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.inspection.size_rules import predicate_of

__all__ = ["KERNEL", "LIBRARIES", "Form", "Refusal", "results_of"]

KERNEL = "kernel"
"""The name of the user's function in the wrapper, unless another one is given."""


@dataclass(frozen=True)
class _Library:
    """How code makes and copies the arrays of a library.

    module         what the code imports
    imports        the import statement
    arrays         the field `arrays` of an `Implementation`, as code
    copied         code that makes an array contiguous after its axes were exchanged
    ones           code that makes a mask of a shape that hides no key
    """

    module: str
    imports: str
    arrays: str
    copied: str
    ones: str


LIBRARIES = {
    "numpy": _Library("numpy", "import numpy as np", "'numpy'", ".copy()", "np.ones({shape}, bool)"),
    "torch": _Library(
        "torch",
        "import torch",
        "'torch'",
        ".contiguous()",
        "torch.ones({shape}, dtype=torch.bool, device={array}.device)",
    ),
    "jax": _Library("jax.numpy", "import jax.numpy as jnp", "jnp.asarray", "", "jnp.ones({shape}, bool)"),
}
"""The libraries whose arrays are tried, in order."""

_MASK_SHAPES = {
    "q": "(*q.shape[:-1], k.shape[-2])",
    "x": "(*x.shape[:-1], x.shape[-2])",
    "scores": "scores.shape",
}
"""The shape of a full mask, as code, by the array that shows it."""


@dataclass(frozen=True)
class Refusal:
    """Something that was tried and failed, and the exception or the fault of the result."""

    what: str
    error: str


@dataclass(frozen=True)
class Form:
    """How a function can be called as an operation.

    operation     the name of the operation
    arrays        the library of the arrays: "numpy", "torch" or "jax"
    dtypes        the number types that work, the widest first
    batch_ranks   how many axes before the last two work. Axes of heads count
    axes          the order of the axes: "b h s d", or "b s h d"
    positional    the parameters that are passed by position, in order
    keywords      the parameters that are passed by keyword, with the function's name for each
    switches      further keyword arguments of every call
    results       for each result the code that takes it from the return value `found`
    fills_mask    whether the function needs a mask: a call without one passes a mask that hides no
                  key
    features      the names of `FEATURES` that the function takes
    words         the words of `supports`
    sizes         the rule of each restricted size: source text, see `size_rules`
    layouts       () if the function misreads arrays that are not contiguous, else None
    refusals      what failed, and why
    assumed       sentences on what is declared beyond what was tried
    calls         the number of calls that were made
    """

    operation: str
    arrays: str
    dtypes: tuple[str, ...]
    batch_ranks: tuple[int, ...]
    axes: str = "b h s d"
    positional: tuple[str, ...] = ()
    keywords: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    fills_mask: bool = False
    features: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)
    layouts: tuple[str, ...] | None = None
    refusals: tuple[Refusal, ...] = ()
    assumed: tuple[str, ...] = ()
    calls: int = 0

    @property
    def dtype(self) -> str:
        """The widest number type that works."""
        return self.dtypes[0]

    @property
    def returns_lse(self) -> bool:
        """Whether all results of the operation are returned, the log-sum-exp among them."""
        return len(self.results) == len(self._operation.outputs)

    @property
    def is_direct(self) -> bool:
        """Whether the function can be called as the contract calls it, without a wrapper."""
        operation = self._operation
        same_names = all(name == keyword for name, keyword in self.keywords.items())
        return (
            (self.axes, self.fills_mask, dict(self.switches)) == ("b h s d", False, {})
            and self.positional == _required(operation)
            and same_names
            and self.results in (*results_of(operation)[:1], ("found",))
        )

    @property
    def imports(self) -> tuple[str, ...]:
        """The import statements that the declarations and the wrapper need."""
        used = " ".join([*self.declarations.values(), "" if self.is_direct else self.code()])
        statement = LIBRARIES[self.arrays].imports
        return (statement,) if f"{statement.split()[-1]}." in used else ()

    @property
    def predicates(self) -> dict[str, Callable[[int], bool]]:
        """The predicate of each restricted size."""
        return {name: predicate_of(rule) for name, rule in self.sizes.items()}

    @property
    def declarations(self) -> dict[str, str]:
        """The fields of an `Implementation` that differ from their defaults, as code."""
        sizes = ", ".join(f"{name!r}: {rule}" for name, rule in self.sizes.items())
        supports = ", ".join([*map(repr, self.words), *([f"{{{sizes}}}"] if sizes else [])])
        written = {
            "arithmetic": repr(self.dtype),
            "arrays": LIBRARIES[self.arrays].arrays,
            "batch_ranks": repr(self.batch_ranks),
            "supports": f"[{supports}]",
            "features": repr(self.features),
            "layouts": repr(self.layouts),
        }
        return {name: code for name, code in written.items() if code != _DEFAULTS.get(name)}

    def implementation(self, name: str, function: Callable[..., Any]) -> Implementation:
        """Return the implementation that offers the function as the operation."""
        namespace = self._namespace(function)
        fields = {field_name: eval(code, namespace) for field_name, code in self.declarations.items()}
        return Implementation(name, {self.operation: self.wrapped(function)}, **fields)

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as the contract calls it: itself, or the wrapper that `code` writes."""
        if self.is_direct:
            return function
        namespace = self._namespace(function)
        exec(self.code(), namespace)
        wrapper: Callable[..., Any] = namespace[self.operation]
        return wrapper

    def _namespace(self, function: Callable[..., Any]) -> dict[str, Any]:
        namespace: dict[str, Any] = {KERNEL: function}
        exec(LIBRARIES[self.arrays].imports, namespace)
        return namespace

    @property
    def _operation(self) -> Operation:
        return OPERATIONS[self.operation]

    def code(self, kernel: str = KERNEL) -> str:
        """Return the wrapper as code: a function with the operation's name that calls `kernel`."""
        parameters = [*_required(self._operation), *(["**options"] if self._passed_options else [])]
        lines = [
            f"def {self.operation}({', '.join(parameters)}):",
            f'    """Return what `{kernel}` returns, called in its own way."""',
            *self._mask_lines,
            *self._axes_lines,
            f"    found = {kernel}({', '.join(self._arguments)})",
            f"    return {self._returned}",
        ]
        return "\n".join(lines) + "\n"

    @property
    def _passed_options(self) -> dict[str, str]:
        """The function's name of each option that it takes."""
        return {name: keyword for name, keyword in self.keywords.items() if name in self._operation.options}

    @property
    def _mask_lines(self) -> list[str]:
        if not self.fills_mask:
            return []
        array = next(name for name in _MASK_SHAPES if name in self._operation.parameters)
        ones = LIBRARIES[self.arrays].ones.format(shape=_MASK_SHAPES[array], array=array)
        return ["    if mask is None:", f"        mask = {ones}"]

    @property
    def _axes_lines(self) -> list[str]:
        arrays = [name for name in _required(self._operation) if _has_heads_before_rows(self._operation, name)]
        if self.axes == "b h s d":
            return []
        copied = LIBRARIES[self.arrays].copied
        return [f"    {name} = {name}.swapaxes(-2, -3){copied}" for name in arrays]

    @property
    def _arguments(self) -> list[str]:
        """The arguments of the call of the function, as code."""
        required = [
            f"**({{}} if mask is None else {{{keyword!r}: mask}})" if name == "mask" else f"{keyword}={name}"
            for name, keyword in self.keywords.items()
            if name not in self._operation.options
        ]
        names = self._passed_options
        renamed = f"{{{names!r}[name]: option for name, option in options.items()}}"
        same = all(name == keyword for name, keyword in names.items())
        options = ["**options" if same else f"**{renamed}"] if names else []
        return [
            *self.positional,
            *(f"{keyword}={switch!r}" for keyword, switch in self.switches.items()),
            *required,
            *options,
        ]

    @property
    def _returned(self) -> str:
        """The results, as code."""
        swapped = self.axes != "b h s d"
        results = [
            f"{code}.swapaxes(-2, -3)"
            if swapped and code != "None" and _has_heads_before_rows(self._operation, name)
            else code
            for name, code in zip(self._operation.outputs, self.results, strict=False)
        ]
        return ", ".join(results)


_DEFAULTS = {"arrays": "'numpy'", "supports": "[]", "features": "()", "layouts": "None"}
"""The values of fields that a declaration leaves out."""


def _required(operation: Operation) -> tuple[str, ...]:
    return tuple(name for name in operation.parameters if name not in operation.options)


def _has_heads_before_rows(operation: Operation, name: str) -> bool:
    """Whether an array has rows of channels behind leading axes, so that libraries disagree about
    the place of its axis of heads.
    """
    axes = operation.axes.get(name, ())
    return bool(axes) and axes[0] == BATCH and axes[-1] in ("head_dim", "value_dim") and not operation.broadcasts(name)


def results_of(operation: Operation) -> tuple[tuple[str, ...], ...]:
    """Return the ways in which the results may be found in a return value, the contract's first."""
    if len(operation.outputs) == 1:
        return (("found",), ("found[0]",))
    several = tuple(f"found[{place}]" for place in range(len(operation.outputs)))
    if operation.name == "attention_vjp":  # without the gradients of the bias and of the sinks
        return (several, (*several[:3], "None", "None"))
    if operation.outputs[-1] in ("lse", "dlse") and len(operation.outputs) == 2:
        return (several, ("found[0]", "found[1].swapaxes(-1, -2)"), ("found",), ("found[0]",))
    return (several,)
