"""What is put under test: functions for some of the operations, and what they promise."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from oracles import Arithmetic, Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.formats import Format
from oracles.formats import resolve as resolve_arithmetic
from oracles.spelling import did_you_mean
from properties.contract.caches import CACHES, admitted
from properties.contract.features import NEEDS
from properties.contract.operations import BATCH, FEATURES, OPERATIONS, Operation
from properties.contract.support import EVERY_SIZE, SIZES, Support, read
from properties.contract.twins import admitted as admitted_twins
from properties.contract.twins import path
from properties.contract.wording import printable, shown

__all__ = ["LAYOUTS", "Implementation", "implementation_of"]

_DIFFERENCES = [(name, *name.split("_minus_")) for name in SIZES if "_minus_" in name]
_NO_SIZES = (*(name for name in SIZES if "_minus_" in name), "start_pos", "scale")

LAYOUTS = ("transposed", "heads-inside", "strided", "offset", "reversed", "read-only")
"""The layouts in memory of an argument, besides contiguous and writable ones: its last two axes
exchanged in memory; its rows and the axis before them, as where channels are split into heads;
every second row of a buffer; a buffer that begins one element late; its rows from last to first, by
a negative stride; and memory that may not be written."""

_DTYPES = {"binary64": "float64", "binary32": "float32", "binary16": "float16", "bfloat16": "bfloat16"}

_NAMES = tuple(_DTYPES.values())
_PROMISES: dict[str, tuple[type[Exception], Callable[[Any], bool], str]] = {
    "name": (TypeError, lambda x: isinstance(x, str) and bool(x.strip()), "a str that is not empty"),
    "operations": (TypeError, lambda x: isinstance(x, Mapping), "a mapping"),
    "arrays": (
        ValueError,
        lambda x: callable(x) or (isinstance(x, str) and x in ("numpy", "torch")),
        "'numpy', 'torch', or a function of an array",
    ),
    "dtype": (
        ValueError,
        lambda x: x is None or (isinstance(x, str) and x in _DTYPES.values()),
        f"None or one of {', '.join(_DTYPES.values())}",
    ),
    "device": (TypeError, lambda x: isinstance(x, str) and bool(x), "the name of a device, a str"),
    "batch_ranks": (
        ValueError,
        lambda x: isinstance(x, tuple) and bool(x) and all(type(rank) is int and rank >= 0 for rank in x),
        "a tuple of natural numbers",
    ),
    "refuses": (
        TypeError,
        lambda x: (
            isinstance(x, tuple) and all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in x)
        ),
        "a tuple of exceptions' types",
    ),
    "features": (
        TypeError,
        lambda x: isinstance(x, Collection) and not isinstance(x, str),
        f"some of {', '.join(FEATURES)}",
    ),
    "caches": (
        TypeError,
        lambda x: x is None or (isinstance(x, Collection) and not isinstance(x, str)),
        f"some of {', '.join(CACHES)}",
    ),
    "deterministic": (TypeError, lambda x: isinstance(x, bool), "a bool"),
    "layouts": (TypeError, lambda x: x is None or isinstance(x, tuple), "None, or a tuple of layouts' names"),
    "known_deviations": (TypeError, lambda x: isinstance(x, Mapping), "a mapping from laws to reasons"),
    "unavailable": (TypeError, lambda x: isinstance(x, str), "a sentence, a str"),
    "twins": (TypeError, lambda x: isinstance(x, Mapping), "a mapping from names of paths to mappings of functions"),
    "beside": (
        TypeError,
        lambda x: isinstance(x, tuple) and all(isinstance(other, Implementation) for other in x),
        "a tuple of implementations",
    ),
}
"""Of promises what else is refused: the error, whether a value is one, and what it should be."""


@dataclass(frozen=True)
class Implementation:
    """A named implementation of some operations, and its promises.

    name              as it appears in reports
    operations        a function for each operation that is offered, called by position as the operation is written, and of `attention`
                      by keyword where features are given; of `decode` a class of caches
    arithmetic        what it rounds, a preset's name or an `oracles.Arithmetic`: results are held to its budget
    conventions       the readings that it follows; it is handed masks in its polarity and compared in its layout
    arrays            what it takes: "numpy", "torch", or a function that makes its arrays from NumPy ones
    dtype             the type of its numbers, by default that of the arithmetic's inputs
    device            where torch's arrays are
    batch_ranks       how many leading axes it takes
    supports          what it takes. Sizes, as predicates or lists: {"head_dim": lambda d: d % 2 == 0, "n_q": (128, 256)}; the names are
                      those of `SIZES`, "scale" among them, and "every size" is about all sizes. Or
                      words, one or a list of them with mappings: "positive sizes", "no batch axes",
                      "full masks", "key masks", "no log-sum-exp", "at most 8 shapes"
    refuses           the exceptions that it raises on sizes that it does not support
    features          what its attention takes besides q, k and v, its rope besides x, and which kinds of frequencies it has with which
                      parameters, names of `FEATURES`: others are never passed
    caches            what its caches offer besides append and attend, names of `CACHES`; None is what their class shows
    deterministic     whether equal calls give equal results, to the last bit
    layouts           the layouts of `LAYOUTS` that it takes; None promises nothing: it may refuse them, but not misread them
    known_deviations  {"law" or "law[operation]": reason}: laws that it is known to break; each must really be broken
    unavailable       why it cannot be run here, a sentence: its laws are shown as "not run", and none of its functions is called
    twins             other paths that must agree with it, by name: {"compiled": {"rope": function}}, within the sum of both budgets; a
                      `Twin` says that it is exact, or what the path promises otherwise
    beside            others between whose calls it is called too; where several are verified together, these are its neighbours
    paths             its twins, each as an implementation by itself; it is not given

    Raises TypeError and ValueError, in a sentence, for names that there are not and values of
    another type.
    """

    name: str
    operations: Mapping[str, Callable[..., Any]]
    arithmetic: Arithmetic | str = "float64"
    conventions: Conventions | None = None
    arrays: Literal["numpy", "torch"] | Callable[[Any], Any] = "numpy"
    dtype: str | None = None
    device: str = "cpu"
    batch_ranks: tuple[int, ...] = (0, 1, 2)
    supports: Mapping[str, Any] | str | Collection[str | Mapping[str, Any]] | Support = ()
    refuses: tuple[type[BaseException], ...] = (ValueError, TypeError, NotImplementedError)
    features: Collection[str] = ()
    caches: Collection[str] | None = None
    deterministic: bool = True
    layouts: tuple[str, ...] | None = None
    known_deviations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unavailable: str = ""
    twins: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    beside: tuple["Implementation", ...] = field(default=(), repr=False, compare=False)
    paths: Mapping[str, "Implementation"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, (kind, holds, wanted) in _PROMISES.items():
            if not holds(getattr(self, name)):
                raise kind(f"Implementation.{name}={shown(getattr(self, name))}, but should be {wanted}.")
        object.__setattr__(self, "name", printable(self.name))
        if not self.operations:
            raise ValueError(f"{self.name} offers no operation, but should offer some of {', '.join(OPERATIONS)}.")
        for name, function in self.operations.items():
            _require_member(name, tuple(OPERATIONS), "operation")
            if not callable(function):
                raise TypeError(
                    f"operations[{shown(name)}] has type {type(function).__name__}, but should be a function."
                )
        object.__setattr__(self, "supports", read(self.supports))
        for name in self.features:
            _require_member(name, FEATURES, "feature")
        object.__setattr__(self, "features", frozenset(self.features))
        for name, needed in NEEDS.items():
            if name in self.features and needed not in self.features:
                raise ValueError(
                    f"features has {name!r} alone, but should have {needed!r} too: without it no call would show the feature."
                )
        self._admit_caches()
        for name in self.layouts or ():
            _require_member(name, LAYOUTS, "layout")
        for name, reason in self.known_deviations.items():
            if not (isinstance(name, str) and isinstance(reason, str) and reason):
                raise TypeError(f"known_deviations[{shown(name)}]={shown(reason)}, but should be a reason, a str.")
        arithmetic = resolve_arithmetic(self.arithmetic)
        if arithmetic is None:
            raise TypeError(
                "Implementation.arithmetic is None, but should be an oracles.Arithmetic or a preset's name."
            )
        object.__setattr__(self, "arithmetic", arithmetic)
        object.__setattr__(self, "conventions", resolve_conventions(self.conventions))
        object.__setattr__(self, "twins", admitted_twins(self.twins, self.operations))
        object.__setattr__(self, "paths", {name: path(self, name) for name in self.twins})

    def _admit_caches(self) -> None:
        """A class of caches becomes the operation that runs programs on them; what it offers is
        what is declared, or what it shows.
        """
        decode, offers = (
            admitted(self.operations["decode"]) if "decode" in self.operations else (None, frozenset[str]())
        )
        if decode is not None:
            object.__setattr__(self, "operations", {**self.operations, "decode": decode})
        object.__setattr__(self, "caches", offers if self.caches is None else frozenset(self.caches))
        for name in self.of_caches:
            _require_member(name, CACHES, "feature of caches")

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
    def of_caches(self) -> frozenset[str]:
        """What its caches offer, where their class may have shown it."""
        assert isinstance(self.caches, frozenset)
        return self.caches

    def lacks_of_caches(self, *names: str) -> str:
        """What its caches do not offer among some things, in a sentence; "" where they offer all."""
        missing = [name for name in names if name not in self.of_caches]
        return f"Its caches offer no {' and no '.join(missing)}." if missing else ""

    @property
    def support(self) -> Support:
        """What it takes, where words may have been given."""
        assert isinstance(self.supports, Support)
        return self.supports

    @property
    def restricted(self) -> Mapping[str, Callable[[Any], bool]]:
        """The predicates on sizes."""
        return self.support.sizes

    def lacks(self, *features: str) -> str:
        """The features among some that it does not declare, in a sentence; "" where it declares them all."""
        missing = [name for name in features if name not in self.features]
        return f"It does not declare the feature{'s' * (len(missing) > 1)} {' and '.join(missing)}." if missing else ""

    def ranks(self, operation: Operation) -> list[int]:
        """How many leading axes an operation may have besides those that it names, as heads."""
        heads = int("num_heads" in operation.axes.get("q", ()))
        return sorted(r - heads for r in self.batch_ranks if r >= heads) if self.support.batches else [0]

    def allows(self, **sizes: float) -> bool:
        """Whether it supports the given sizes, or a scale."""
        own = self.restricted
        every = own.get(EVERY_SIZE)
        return all(
            (name not in own or bool(own[name](size))) and (every is None or name in _NO_SIZES or bool(every(size)))
            for name, size in sizes.items()
        )

    def takes(self, operation: Operation, arguments: tuple[Any, ...]) -> bool:
        """Whether it supports the sizes of a call, their differences, its position, its scale, and its leading axes."""
        sizes: dict[str, Any] = operation.sizes(arguments)
        lead, scale = operation.lead(arguments), operation.named(arguments).get("scale")
        sizes |= {} if scale is None else {"scale": scale}
        if not operation.is_played:  # of which no call has all keys
            sizes |= {name: sizes[a] - sizes[b] for name, a, b in _DIFFERENCES if a in sizes and b in sizes}
        if "heads_width" in sizes:
            sizes["head_dim"] = sizes["heads_width"] // max(sizes["num_heads"], 1)
        sizes.pop("batch", None)
        ranked = len(lead) in self.ranks(operation) or not any(BATCH in operation.axes[p] for p in operation.arrays)
        return (
            ranked
            and self.allows(**sizes)
            and all(self.allows(batch=n) for n in lead)
            and not self.lacks(*operation.given(arguments))
        )


def implementation_of(
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    known_deviations: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Implementation:
    """The implementation that a mapping, a module or an object with functions of the operations'
    names is, or a class of caches; or the `Implementation` itself.

    Arguments that are not None replace what an `Implementation` declares. A mapping, module or
    object promises: NumPy arrays of the arithmetic's format in and out, unbatched and batched, any
    legal size, nothing about strides, masked values finite. Raises TypeError and ValueError for
    what offers no operation, and TypeError for another class.
    """
    changes: dict[str, Any] = {
        "arithmetic": arithmetic,
        "conventions": conventions,
        "known_deviations": known_deviations,
        "name": name,
    }
    changes = {key: value for key, value in changes.items() if value is not None}
    if isinstance(target, Implementation):
        return replace(target, **changes)
    if isinstance(target, Mapping):
        return Implementation(**{"name": "implementation", "operations": dict(target), **changes})
    if isinstance(target, type) and {"append", "attend"} <= set(dir(target)):
        return Implementation(**{"name": target.__name__, "operations": {"decode": target}, **changes})
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


def _require_member(name: object, names: tuple[str, ...], kind: str) -> None:
    if not isinstance(name, str) or name not in names:
        listed = f"Known are {', '.join(names)}."
        raise ValueError(f"Unknown {kind} {shown(name)}.{did_you_mean(name, names, listed)}")
