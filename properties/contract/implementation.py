"""What is put under test: functions for some of the operations, and what they promise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from oracles import Arithmetic, Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.formats import Format
from oracles.formats import resolve as resolve_arithmetic
from properties.contract.operations import BATCH, OPERATIONS, Operation

__all__ = ["EVERY_SIZE", "LAYOUTS", "SIZES", "Implementation", "implementation_of"]

SIZES = (
    *("batch", "n_q", "n_k", "n_k_minus_n_q", "seq_len", "start_pos"),
    *("head_dim", "value_dim", "value_dim_minus_head_dim", "embed_dim"),
    *("num_heads", "kv_heads", "model_dim", "model_dim_minus_heads_width"),
)
"""The sizes, differences of sizes, and positions that `supports` may restrict."""

EVERY_SIZE = "every size"
"""The name under which `supports` restricts all sizes at once, but neither differences nor positions."""

_NO_SIZES = (*(name for name in SIZES if "_minus_" in name), "start_pos")

LAYOUTS = ("transposed", "strided", "offset", "reversed", "read-only")
"""The layouts in memory of an argument, besides contiguous and writable ones: its last two axes exchanged in memory; every second row of
a buffer; a buffer that begins one element late; its rows from last to first, by a negative stride; and memory that may not be written."""

_DTYPES = {"binary64": "float64", "binary32": "float32", "binary16": "float16", "bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Implementation:
    """A named implementation of some operations, and its promises.

    name              as it appears in reports
    operations        a function for each operation that is offered, called by position as the operation is written
    arithmetic        what it rounds, a preset's name or an `oracles.Arithmetic`: results are held to its budget
    conventions       the readings that it follows; it is handed masks in its polarity and compared in its layout
    arrays            what it takes: "numpy", "torch", or a function that makes its arrays from NumPy ones
    dtype             the type of its numbers, by default that of the arithmetic's inputs
    device            where torch's arrays are
    batch_ranks       how many leading axes it takes
    supports          sizes that it takes, as predicates: {"head_dim": lambda d: d % 2 == 0}; the names are those of `SIZES`, and
                      "every size" is about all of them; the word "positive sizes" alone says that it takes no size of 0
    refuses           the exceptions that it raises on sizes that it does not support
    deterministic     whether equal calls give equal results, to the last bit
    layouts           the layouts of `LAYOUTS` that it takes; None promises nothing: it may refuse them, but not misread them
    known_deviations  {"law" or "law[operation]": reason}: laws that it is known to break; each must really be broken
    unavailable       why it cannot be run here, a sentence: its laws are shown as "not run", and none of its functions is called

    Raises TypeError and ValueError, in a sentence, for names that there are not and values of another type.
    """

    name: str
    operations: Mapping[str, Callable[..., Any]]
    arithmetic: Arithmetic | str = "float64"
    conventions: Conventions | None = None
    arrays: Literal["numpy", "torch"] | Callable[[Any], Any] = "numpy"
    dtype: str | None = None
    device: str = "cpu"
    batch_ranks: tuple[int, ...] = (0, 1, 2)
    supports: Mapping[str, Callable[[int], bool]] | Literal["positive sizes"] = field(default_factory=lambda: MappingProxyType({}))
    refuses: tuple[type[BaseException], ...] = (ValueError, TypeError, NotImplementedError)
    deterministic: bool = True
    layouts: tuple[str, ...] | None = None
    known_deviations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unavailable: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Implementation.name has type {type(self.name).__name__}, but should be a str.")
        if not isinstance(self.operations, Mapping):
            raise TypeError(f"Implementation.operations has type {type(self.operations).__name__}, but should be a mapping.")
        if not self.operations:
            raise ValueError(f"{self.name} offers no operation, but should offer some of {', '.join(OPERATIONS)}.")
        for name, function in self.operations.items():
            _require_member(name, tuple(OPERATIONS), "An operation is")
            if not callable(function):
                raise TypeError(f"operations[{name!r}] has type {type(function).__name__}, but should be a function.")
        if self.supports == "positive sizes":
            object.__setattr__(self, "supports", MappingProxyType({EVERY_SIZE: _is_positive}))
        if not isinstance(self.supports, Mapping):
            raise TypeError(f"Implementation.supports={self.supports!r}, but should be a mapping of predicates, or 'positive sizes'.")
        for name, predicate in self.supports.items():
            _require_member(name, (*SIZES, EVERY_SIZE), "A size in supports is")
            if not callable(predicate):
                raise TypeError(f"supports[{name!r}]={predicate!r}, but should be a predicate, a function of a size.")
        for name in self.layouts or ():
            _require_member(name, LAYOUTS, "A layout is")
        if not (isinstance(self.batch_ranks, tuple) and self.batch_ranks and all(type(r) is int and r >= 0 for r in self.batch_ranks)):
            raise ValueError(f"Implementation.batch_ranks={self.batch_ranks!r}, but should be a tuple of natural numbers.")
        if not callable(self.arrays) and self.arrays not in ("numpy", "torch"):
            raise ValueError(f"Implementation.arrays={self.arrays!r}, but should be 'numpy', 'torch', or a function of an array.")
        for name, reason in self.known_deviations.items():
            if not (isinstance(name, str) and isinstance(reason, str) and reason):
                raise TypeError(f"known_deviations[{name!r}]={reason!r}, but should be a reason, a str.")
        if not isinstance(self.unavailable, str):
            raise TypeError(f"Implementation.unavailable has type {type(self.unavailable).__name__}, but should be a sentence, a str.")
        arithmetic = resolve_arithmetic(self.arithmetic)
        if arithmetic is None:
            raise TypeError("Implementation.arithmetic is None, but should be an oracles.Arithmetic or a preset's name.")
        object.__setattr__(self, "arithmetic", arithmetic)
        object.__setattr__(self, "conventions", resolve_conventions(self.conventions))

    @property
    def resolved_arithmetic(self) -> Arithmetic:
        """The arithmetic itself, where a name may have been given."""
        assert isinstance(self.arithmetic, Arithmetic)
        return self.arithmetic

    @property
    def resolved_conventions(self) -> Conventions:
        """The conventions, each decided."""
        assert isinstance(self.conventions, Conventions)
        return self.conventions

    def dtype_of(self, target: Format) -> str:
        """The name of the type that holds numbers of a format: the declared one, or the format's own."""
        if self.dtype is not None:
            return self.dtype
        if target.name not in _DTYPES:
            raise ValueError(f"{self.name} has numbers of {target.name}, for which no dtype is known: declare dtype.")
        return _DTYPES[target.name]

    @property
    def restricted(self) -> Mapping[str, Callable[[int], bool]]:
        """The predicates on sizes, resolved."""
        assert isinstance(self.supports, Mapping)
        return self.supports

    def allows(self, **sizes: int) -> bool:
        """Whether it supports the given sizes."""
        return all(self._allows(name, size) for name, size in sizes.items())

    def takes(self, operation: Operation, arguments: tuple[Any, ...]) -> bool:
        """Whether it supports the sizes of a call, their differences, its position, and its leading axes."""
        sizes, lead = operation.sizes(arguments), operation.lead(arguments)
        sizes |= {
            name: sizes[a] - sizes[b] for name in SIZES if "_minus_" in name for a, b in [name.split("_minus_")] if {a, b} <= sizes.keys()
        }
        if "heads_width" in sizes:
            sizes["head_dim"] = sizes["heads_width"] // max(sizes["num_heads"], 1)
        sizes.pop("batch", None)
        rank = len(lead) + ("num_heads" in operation.axes.get("q", ()))
        ranked = rank in self.batch_ranks or not any(BATCH in operation.axes[p] for p in operation.arrays)
        return ranked and self.allows(**sizes) and all(self.allows(batch=n) for n in lead)

    def _allows(self, name: str, size: int) -> bool:
        own, every = self.restricted.get(name), self.restricted.get(EVERY_SIZE)
        return (own is None or bool(own(size))) and (every is None or name in _NO_SIZES or bool(every(size)))


def implementation_of(
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    known_deviations: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Implementation:
    """The implementation that a mapping, a module or an object with functions of the operations' names is; or the `Implementation` itself.

    Arguments that are not None replace what an `Implementation` declares. A mapping, module or object promises: NumPy arrays of the
    arithmetic's format in and out, unbatched and batched, any legal size, nothing about strides, blocked values finite.
    Raises TypeError and ValueError for what offers no operation, and TypeError for a class.
    """
    changes: dict[str, Any] = {"arithmetic": arithmetic, "conventions": conventions, "known_deviations": known_deviations, "name": name}
    changes = {key: value for key, value in changes.items() if value is not None}
    if isinstance(target, Implementation):
        return replace(target, **changes)
    if isinstance(target, Mapping):
        return Implementation(**{"name": "implementation", "operations": dict(target), **changes})
    if isinstance(target, type):
        raise TypeError(f"{target.__name__} is a class, but should be an object of it.")
    operations = {o: getattr(target, o) for o in OPERATIONS if callable(getattr(target, o, None))}
    if not operations:
        given = getattr(target, "__name__", None) or f"an object of type {type(target).__name__}"
        raise TypeError(
            f"{given} offers no operation, but should be a mapping or an object with some of {', '.join(OPERATIONS)}, "
            "or a properties.Implementation."
        )
    default = getattr(target, "__name__", type(target).__name__)
    return Implementation(**{"name": default, "operations": operations, **changes})


def _is_positive(size: int) -> bool:
    return size > 0


def _require_member(name: object, names: tuple[str, ...], what: str) -> None:
    if name not in names:
        raise ValueError(f"{what} {name!r}, but should be one of {', '.join(names)}.")
