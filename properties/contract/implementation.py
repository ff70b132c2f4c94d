"""Defines the record of an implementation under test: functions for some of the operations, and
declarations of what they support and how they round.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import sub
from types import MappingProxyType
from typing import Any, Literal

from oracles import Arithmetic, Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.formats import GRIDS, Format
from oracles.formats import resolve as resolve_arithmetic
from oracles.spelling import did_you_mean
from properties import interpreters
from properties.contract import packing, quantising
from properties.contract.bit_contracts import BIT_CONTRACTS
from properties.contract.caches import CACHES, OFFERS, admitted, operation_of
from properties.contract.features import NEEDS, QUANTISED
from properties.contract.operations import BATCH, FEATURES, OPERATIONS, Arguments, Operation
from properties.contract.quantising import BLOCKS
from properties.contract.support import EVERY_SIZE, SIZES, Support, read
from properties.contract.twins import admitted as admitted_twins
from properties.contract.twins import path
from properties.contract.wanted_shapes import Wanted, require_concerned
from properties.contract.wanted_shapes import checked as checked_shapes
from properties.contract.wording import printable, shown

__all__ = ["LAYOUTS", "USUAL_REFUSALS", "Implementation", "combined", "implementation_of"]

_WORDS: dict[str, Callable[[int, int], int]] = {
    "minus": sub,
    "modulo": lambda larger, smaller: larger % max(smaller, 1),
}
_COMBINED = [
    (name, larger, smaller, combine)
    for word, combine in _WORDS.items()
    for name in SIZES
    for larger, found, smaller in [name.partition(f"_{word}_")]
    if found
]
"""Numbers that follow from two sizes: the name, the names of both sizes, and the function of them."""
_NO_SIZES = (*(name for name, *_ in _COMBINED), "start_pos", "rotary_dim", "scale")

LAYOUTS = ("transposed", "heads-inside", "strided", "offset", "reversed", "read-only", "expanded", "packed")
"""The memory layouts of an argument, next to contiguous and writable arrays.

transposed     its last two axes are exchanged in memory
heads-inside   its rows and the axis before them are exchanged, as if channels were split into heads
strided        every second row of a buffer
offset         a buffer that begins one element late
reversed       its rows from last to first, by a negative stride
read-only      memory that may not be written
expanded       an axis along which the entries repeat has a stride of 0
packed         arrays of one shape share a buffer, row beside row, as the columns of a product that
               makes q, k and v at once
"""

USUAL_REFUSALS = (ValueError, TypeError, NotImplementedError)
"""The exceptions that kernels usually raise for sizes that they do not support."""

_DTYPES = {"binary64": "float64", "binary32": "float32", "binary16": "float16", "bfloat16": "bfloat16"}
_GRIDS = frozenset(grid.name for grid in GRIDS.values())

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
            x is None
            or (isinstance(x, tuple) and all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in x))
        ),
        "None, or a tuple of exceptions' types",
    ),
    "outside": (ValueError, lambda x: x in ("called", "undefined"), "'called' or 'undefined'"),
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
    "bits": (
        TypeError,
        lambda x: isinstance(x, Collection) and not isinstance(x, str),
        f"some of {', '.join(BIT_CONTRACTS)}",
    ),
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
"""The type check of each promise: the error, whether a value is valid, and what it should be."""


@dataclass(frozen=True)
class Implementation:
    """A named implementation of some operations, and declarations of what it supports.

    name              the name in reports
    operations        a function for each operation that your kernels offer. Arguments are passed by
                      position, and the options of `attention` by keyword. For `decode` and
                      `batched_decode`, a class of caches
    arithmetic        how your kernels round: the name of a preset, or an `oracles.Arithmetic`. It
                      gives the error limit of each result
    conventions       the conventions that your kernels follow. They get masks in their polarity,
                      and their results are compared in their layout
    arrays            what your kernels take and return: "numpy", "torch", or a function that
                      converts a NumPy array
    dtype             the number type of the arrays, except those on a grid; by default the type of the
                      arithmetic's inputs
    device            the device of torch's arrays
    batch_ranks       how many leading axes your kernels accept: a tuple of numbers. The axis of heads
                      counts: (2,) is one batch axis and the heads, so q has four axes in all
    supports          what your kernels take. Sizes, as predicates or lists:
                      {"head_dim": lambda d: d % 2 == 0, "n_q": (128, 256)}. The names are `SIZES`,
                      with "scale" among them; "every size" restricts all sizes. Or words, one or a
                      list of them with mappings: "positive sizes", "n % 128 == 0", "self attention",
                      "causal only", "full masks", "no log-sum-exp"; the glossary has them all. ()
                      declares that your kernels take everything. With None, a call that raises is
                      not taken: it does not fail
    refuses           the exceptions that your kernels raise for sizes that they do not support, and
                      `AbortedError` if they call abort(). With None, attnspec does not check that
                      they refuse these sizes
    outside           "undefined" if your kernels cannot check what they are given, as C code: attnspec
                      then makes no call that they do not support. Otherwise "called"
    features          names of `FEATURES`: the options of attention and rope that your kernels take,
                      and the kinds of frequencies with their parameters. Other options are never
                      passed
    caches            names of `CACHES`: the optional features of your caches; None means the
                      features that their class shows. A mapping has them for each operation
    deterministic     whether equal calls give equal results, to the last bit
    bits              names of `BIT_CONTRACTS`: changes of a call that leave each bit of a problem's
                      output unchanged, such as ("batch size", "padding"). A law checks them. Others
                      are measured by `inspect`, and never fail
    layouts           the layouts of `LAYOUTS` that your kernels take. With None, a kernel may
                      refuse a layout, but must not misread it
    known_deviations  {"law" or "law[operation]": reason}: laws that your kernels are known to
                      break. Each of them must fail
    unavailable       a sentence that says why your kernels cannot run here. Their laws are shown as
                      "not run", and no function is called
    twins             other paths to the same results, by name: {"compiled": {"rope": function}}.
                      The results of both paths must agree within the sum of both error limits. A
                      `Twin` says that a path is exact, or that it declares something else
    shapes            sizes at which your kernels run, such as ["batch=4,n_q=1,n_k=8192"]: laws of
                      readings, agreement and some symmetries are also checked at exactly these
    beside            other implementations, whose calls alternate with the calls of this one.
                      Implementations that are verified together are neighbours in this sense
    undeclared        which of "arrays" and "arithmetic" attnspec finds out by calls, because the
                      functions came without an `Implementation`
    paths             each twin as an implementation; derived from `twins`

    Raises TypeError and ValueError, with a sentence, for unknown names and values of another type.
    """

    name: str
    operations: Mapping[str, Callable[..., Any]]
    arithmetic: Arithmetic | str = "float64"
    conventions: Conventions | None = None
    arrays: Literal["numpy", "torch"] | Callable[[Any], Any] = "numpy"
    dtype: str | None = None
    device: str = "cpu"
    batch_ranks: tuple[int, ...] = (0, 1, 2)
    supports: Mapping[str, Any] | str | Collection[str | Mapping[str, Any]] | Support | None = None
    refuses: tuple[type[BaseException], ...] | None = None
    outside: Literal["called", "undefined"] = "called"
    features: Collection[str] = ()
    caches: Collection[str] | Mapping[str, Collection[str] | None] | None = None
    deterministic: bool = True
    bits: Collection[str] = ()
    layouts: tuple[str, ...] | None = None
    known_deviations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unavailable: str = ""
    twins: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    shapes: Collection[str | Wanted] = ()
    beside: tuple["Implementation", ...] = field(default=(), repr=False, compare=False)
    undeclared: tuple[str, ...] = field(default=(), repr=False, compare=False)
    paths: Mapping[str, "Implementation"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for field_name, (kind, holds, expected) in _PROMISES.items():
            if not holds(getattr(self, field_name)):
                raise kind(f"Implementation.{field_name}={shown(getattr(self, field_name))}, but should be {expected}.")
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "device", "cpu" if interpreters.is_interpreting() else self.device)
        if not self.operations:
            raise ValueError(f"{self.name} offers no operation, but should offer some of {', '.join(OPERATIONS)}.")
        for field_name, function in self.operations.items():
            _require_member(field_name, tuple(OPERATIONS), "operation")
            if not callable(function):
                raise TypeError(
                    f"operations[{shown(field_name)}] has type {type(function).__name__}, but should be a function."
                )
        object.__setattr__(self, "supports", read(self.supports))
        for field_name in self.features:
            _require_member(field_name, FEATURES, "feature")
        object.__setattr__(self, "features", frozenset(self.features))
        for field_name, needed in NEEDS.items():
            if field_name in self.features and needed not in self.features:
                raise ValueError(
                    f"features has {field_name!r} without {needed!r}. "
                    f"Add {needed!r}: no call shows the feature without it."
                )
        self._admit_caches()
        for field_name in self.layouts or ():
            _require_member(field_name, LAYOUTS, "layout")
        for field_name in self.bits:
            _require_member(field_name, tuple(BIT_CONTRACTS), "contract in bits")
        object.__setattr__(self, "bits", tuple(name for name in BIT_CONTRACTS if name in self.bits))
        for field_name, reason in self.known_deviations.items():
            if not (isinstance(field_name, str) and isinstance(reason, str) and reason):
                raise TypeError(
                    f"known_deviations[{shown(field_name)}]={shown(reason)}, but should be a str that gives a reason."
                )
        object.__setattr__(self, "shapes", checked_shapes(self.shapes))
        require_concerned(self.wanted_shapes, self.operations)
        arithmetic = resolve_arithmetic(self.arithmetic)
        if arithmetic is None:
            raise TypeError(
                "Implementation.arithmetic is None, but should be an oracles.Arithmetic or a preset's name."
            )
        object.__setattr__(self, "arithmetic", arithmetic)
        object.__setattr__(self, "conventions", resolve_conventions(self.conventions))
        object.__setattr__(self, "twins", admitted_twins(self.twins, self.operations))
        object.__setattr__(self, "paths", {field_name: path(self, field_name) for field_name in self.twins})

    def _admit_caches(self) -> None:
        """Replace each class of caches in `operations` by the operation that runs programs on such
        caches. Set `caches` to the declared features of each operation, or else to the features that
        its class shows.
        """
        found = {name: admitted(name, self.operations[name]) for name in OFFERS if name in self.operations}
        runners = {name: runner for name, (runner, _) in found.items()}
        object.__setattr__(self, "operations", {**self.operations, **runners})
        shown_features = {name: features for name, (_, features) in found.items()}
        declared = self.caches if isinstance(self.caches, Mapping) else dict.fromkeys(OFFERS, self.caches)
        for name in {feature for features in declared.values() for feature in features or ()}:
            _require_member(name, CACHES, "feature of caches")
        offers = {
            name: shown_features.get(name, ()) if (features := declared.get(name)) is None else features
            for name in OFFERS
        }
        object.__setattr__(
            self, "caches", {name: frozenset(features) & {*OFFERS[name]} for name, features in offers.items()}
        )

    @property
    def resolved_arithmetic(self) -> Arithmetic:
        """The arithmetic as an `Arithmetic`, also if a preset's name was given."""
        assert isinstance(self.arithmetic, Arithmetic)
        return self.arithmetic

    @property
    def resolved_conventions(self) -> Conventions:
        """The conventions, with a value for each field."""
        assert isinstance(self.conventions, Conventions)
        return self.conventions

    @property
    def conventions_of_laws(self) -> Conventions:
        """The conventions of the arguments and results that laws see: masks are true where a key is
        visible, log-sum-exps of packed sequences have the heads first, and pages the slots.
        """
        return replace(
            self.resolved_conventions, mask_polarity="true_allows", packed_lse="heads_first", page_layout="slots_first"
        )

    def dtype_of(self, target: Format) -> str:
        """Return the name of the number type of arrays in a format: the declared type, or else the
        format's own type. Codes have the type of their grid.
        """
        if target.name in _GRIDS:
            return target.name
        if self.dtype is not None:
            return self.dtype
        if target.name not in _DTYPES:
            raise ValueError(f"{self.name} has numbers of {target.name}, which has no known dtype: declare dtype.")
        return _DTYPES[target.name]

    def of_caches(self, operation: str) -> frozenset[str]:
        """Return the optional features of the caches of an operation."""
        assert isinstance(self.caches, Mapping)
        return frozenset(self.caches.get(operation, ()))

    def lacks_of_caches(self, operation: str, *names: str) -> str:
        """Return a sentence that names the cache features, among `names`, that the caches of an
        operation lack; "" if they have all of them.
        """
        missing = [feature for feature in names if feature not in self.of_caches(operation)]
        return f"Its caches offer no {' and no '.join(missing)}." if missing else ""

    @property
    def support(self) -> Support:
        """The sizes, masks and shapes that the implementation takes, read from the declaration
        `supports`.
        """
        assert isinstance(self.supports, Support)
        return self.supports

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:
        """The exceptions that count as a refusal: the declared ones, or else every exception."""
        return (Exception,) if self.refuses is None else self.refuses

    @property
    def wanted_shapes(self) -> tuple[Wanted, ...]:
        """The declared `shapes`, each as sizes by name."""
        assert isinstance(self.shapes, tuple)
        return self.shapes

    @property
    def restricted(self) -> Mapping[str, Callable[[Any], bool]]:
        """The predicates that restrict sizes, by the names of the sizes."""
        return self.support.sizes

    def lacks(self, *features: str) -> str:
        """Return a sentence that names the features, among the given ones, that the implementation
        does not declare; "" if it declares all of them.
        """
        missing = [feature for feature in features if feature not in self.features]
        possible = quantising.scales_of(self.resolved_arithmetic)
        without = [feature for feature in features if feature in QUANTISED and feature not in possible]
        if without and not missing:
            return f"Its arithmetic has no grid for {' and '.join(without)}."
        return f"It does not declare the feature{'s' * (len(missing) > 1)} {' and '.join(missing)}." if missing else ""

    def ranks(self, operation: Operation) -> list[int]:
        """Return how many leading (batch) axes an operation's arrays may have. Axes with a name,
        such as heads, do not count.
        """
        if not any(BATCH in axes for axes in operation.axes.values()):
            return [0]
        if operation.is_paged:  # the axis of sequences, or none with cu_q
            is_ragged, is_batch = "cu_q" in self.features, "ragged queries" not in self.support.options
            return [0] * is_ragged + [1] * is_batch
        heads = int("num_heads" in operation.axes.get("q", ()))
        return sorted(rank - heads for rank in self.batch_ranks if rank >= heads) if self.support.batches else [0]

    def allows(self, **sizes: float) -> bool:
        """Return whether the implementation supports the given sizes, or a scale."""
        predicates = self.restricted
        every_size = predicates.get(EVERY_SIZE)
        block = BLOCKS.get(self.resolved_conventions.scale_shape, 1) if self.resolved_arithmetic.is_quantised else 1
        if any(sizes.get(name, 0) % block for name in ("head_dim", "value_dim")):
            return False
        return all(
            (size_name not in predicates or bool(predicates[size_name](size)))
            and (every_size is None or size_name in _NO_SIZES or bool(every_size(size)))
            for size_name, size in sizes.items()
        )

    def takes(self, operation: Operation, arguments: Arguments) -> bool:
        """Return whether the implementation supports a call: its sizes, their differences and
        remainders, its position, its options, and its leading axes.
        """
        sizes, lead, given = self.sizes(operation, arguments), operation.lead(arguments), operation.named(arguments)
        sequences = packing.lengths(given) if operation.has_sequences else ()
        sizes.pop("batch", None)
        if operation.is_paged and bool(lead) != (given["cu_q"] is None):
            return False
        ranked = len(lead) in self.ranks(operation) or not any(
            BATCH in operation.axes[parameter] for parameter in operation.arrays
        )
        return (
            ranked
            and self.support.takes_options(given, self.resolved_conventions.rope_pairing)
            and self._takes_codes(given)
            and not (self.resolved_conventions.window == "count" and _counts_no_key(given.get("window")))
            and self.allows(**sizes)
            and all(self.allows(batch=length) for length in (*lead, *([given["batch"]] if "batch" in given else [])))
            and all(self.allows(**combined({"n_q": n_q, "n_k": n_k})) for n_q, n_k in set(sequences))
            and not self.lacks(*operation.given(arguments))
        )

    def _takes_codes(self, given: Mapping[str, Any]) -> bool:
        """Return whether the codes of a call are on their grids, and its scales have the declared
        shape.
        """
        arithmetic = self.resolved_arithmetic
        if not arithmetic.is_quantised or "steps" in given:
            return True
        return quantising.codes_fit(given, arithmetic) and quantising.scales_fit(given, self.resolved_conventions)

    def sizes(self, operation: Operation, arguments: Arguments) -> dict[str, Any]:
        """Return all numbers of a call that `supports` may restrict, by their names."""
        sizes: dict[str, Any] = operation.sizes(arguments)
        given = operation.named(arguments)
        sizes |= {name: given[name] for name in ("scale", "rotary_dim") if given.get(name) is not None}
        if not operation.is_played:  # a program has no call with all keys
            sizes = combined(sizes)
        return sizes


def combined(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes, and the differences and remainders that follow from them."""
    return {**sizes} | {
        name: combine(sizes[larger], sizes[smaller])
        for name, larger, smaller, combine in _COMBINED
        if larger in sizes and smaller in sizes
    }


def implementation_of(
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    known_deviations: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Implementation:
    """Return the `Implementation` that an adapter defines.

    The adapter is an `Implementation`; or a mapping, a module or an object with functions that are
    named after operations; or a class of caches.

    Arguments that are not None replace the declarations of an `Implementation`. The functions of a
    mapping, module or object come without declarations: attnspec finds out by calls which arrays they
    take, and a call that raises is not taken. They follow the default conventions, and no optional
    feature is passed to them.

    Raises TypeError and ValueError for an adapter without operations, and TypeError for a class
    that is not a class of caches.
    """
    changes: dict[str, Any] = {
        "arithmetic": arithmetic,
        "conventions": conventions,
        "known_deviations": known_deviations,
        "name": name,
    }
    changes = {field_name: value for field_name, value in changes.items() if value is not None}
    if isinstance(target, Implementation):
        return replace(target, **changes)
    changes["undeclared"] = ("arrays",) if arithmetic is not None else ("arrays", "arithmetic")
    if isinstance(target, Mapping):
        return Implementation(**{"name": "implementation", "operations": dict(target), **changes})
    if isinstance(target, type) and {"append", "attend"} <= set(dir(target)):
        return Implementation(**{"name": target.__name__, "operations": {operation_of(target): target}, **changes})
    if isinstance(target, type):
        raise TypeError(f"{target.__name__} is a class, but should be an instance of it.")
    operations = {
        offered: getattr(target, offered) for offered in OPERATIONS if callable(getattr(target, offered, None))
    }
    if not operations:
        described = getattr(target, "__name__", None) or f"an object of type {type(target).__name__}"
        raise TypeError(
            f"{described} offers no operation, but should be a mapping or an object with some of "
            f"{', '.join(OPERATIONS)}, or a properties.Implementation."
        )
    default_name = getattr(target, "__name__", type(target).__name__)
    return Implementation(**{"name": default_name, "operations": operations, **changes})


def _counts_no_key(window: Any) -> bool:
    """Return whether the left side of a window is 0: a window that counts keys has at least one."""
    return isinstance(window, tuple) and window[0] == 0


def _require_member(name: object, names: tuple[str, ...], kind: str) -> None:
    if not isinstance(name, str) or name not in names:
        listed = f"Known are {', '.join(names)}."
        raise ValueError(f"Unknown {kind} {shown(name)}.{did_you_mean(name, names, listed)}")
