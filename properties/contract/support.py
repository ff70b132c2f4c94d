"""Reads and applies the declaration of what an implementation takes: sizes and scales (predicates
or lists), kinds of masks, and a number of shapes.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from oracles.spelling import did_you_mean
from properties.contract.costs import Costs
from properties.contract.mask_kinds import ENTRIES, EXTENTS, Extent
from properties.contract.operations import Arguments, Operation
from properties.contract.packing import has_padding, names_pages
from properties.contract.restricted_options import RESTRICTIONS, Restriction, is_causal
from properties.contract.wording import shown, told

__all__ = [
    "EVERY_SIZE",
    "SIZES",
    "WORDS",
    "Listed",
    "NotTakenError",
    "OutsideError",
    "Shapes",
    "Support",
    "SupportsError",
    "read",
]

SIZES = (
    *("batch", "n_q", "n_k", "n_k_minus_n_q", "seq_len", "start_pos", "sequences", "total_q", "total_k"),
    *("page_size", "num_pages", "max_pages"),
    *("head_dim", "value_dim", "value_dim_minus_head_dim", "embed_dim"),
    *("num_heads", "kv_heads", "num_heads_minus_kv_heads", "num_heads_modulo_kv_heads"),
    *("model_dim", "model_dim_minus_heads_width", "context_dim", "out_dim"),
    *("model_dim_minus_query_width", "out_dim_minus_model_dim", "context_dim_minus_model_dim"),
    *("rotary_dim", "scale"),
)
"""The names that `supports` may restrict: sizes, differences and remainders of sizes, positions, the
number of rotated channels, and scales of scores.
"""

EVERY_SIZE = "every size"
"""The name under which `supports` restricts all sizes at once, but not differences, positions or
scales.
"""

Predicate = Callable[[Any], bool]


@dataclass(frozen=True)
class Listed:
    """A predicate that accepts the sizes of a list. Test inputs get their sizes from this list."""

    sizes: tuple[Any, ...]

    def __call__(self, size: float) -> bool:
        """Return whether the list contains a size."""
        return size in self.sizes


@dataclass(frozen=True)
class OfSizes:
    """A word of `supports` that restricts sizes: what it says, and the predicates."""

    says: str
    sizes: Mapping[str, Predicate]


def _is_positive(size: float) -> bool:
    return size > 0


OF_SIZES = {
    "positive sizes": OfSizes("It takes no size of 0.", {EVERY_SIZE: _is_positive}),
    "self attention": OfSizes("It takes as many queries as keys.", {"n_k_minus_n_q": Listed((0,))}),
    "value_dim = head_dim": OfSizes(
        "It takes values as wide as queries and keys.", {"value_dim_minus_head_dim": Listed((0,))}
    ),
    "no grouped heads": OfSizes(
        "It takes as many key heads as query heads.", {"num_heads_minus_kv_heads": Listed((0,))}
    ),
    "heads divide": OfSizes(
        "It takes numbers of query heads that are multiples of the number of key heads.",
        {"num_heads_modulo_kv_heads": Listed((0,))},
    ),
    "positive scale": OfSizes("It takes no scale of 0 and no negative one.", {"scale": _is_positive}),
}
"""The words that restrict sizes."""

OF_OPTIONS = {
    "left windows": "It takes windows that are open on the right, such as (2, None).",
    "causal only": "Every call has causal=True.",
    "ragged queries": "Every call of paged attention has cu_q.",
    "valid table entries": "Entries of a table of pages beyond a length name pages too.",
    "no padding rows": "Each row belongs to a packed sequence, and sequences use all their rows.",
    **{word: row.says for word, row in RESTRICTIONS.items()},
}
"""The words that restrict options."""

WORDS = {
    **{word: row.says for word, row in OF_SIZES.items()},
    "n % N == 0": "It takes lengths (n_q, n_k, seq_len) that are multiples of N.",
    **OF_OPTIONS,
    "no batch axes": "It takes no leading axes.",
    **{word: extent.says for word, extent in EXTENTS.items()},
    **{word: entries.says for word, entries in ENTRIES.items()},
    "no log-sum-exp": "It returns the output of attention without its log-sum-exp.",
    "at most N shapes": "It takes at most N shapes of the arguments of each operation in a process.",
}
"""The words that `supports` may hold, with their meanings."""


class OutsideError(ValueError):
    """Raised when an implementation does not take a call. The message is a sentence that says why."""


class NotTakenError(OutsideError):
    """Raised when an implementation that declares nothing about what it takes raised an exception. The
    message is the clause "raised ValueError: ...".
    """


class SupportsError(ValueError):
    """Raised when a predicate of `supports` raised an exception: the adapter cannot be used. The
    message is a sentence.
    """


@dataclass(frozen=True)
class Guarded:
    """A predicate for a size that the adapter gives. If the predicate raises, SupportsError is
    raised.
    """

    name: str
    predicate: Predicate

    def __call__(self, size: float) -> bool:
        """Return whether the adapter says that a size is supported."""
        try:
            return bool(self.predicate(size))
        except Exception as error:
            raise SupportsError(f"supports[{self.name!r}]({size}) raised {told(error)}.") from error


@dataclass(frozen=True)
class Multiples:
    """A predicate that accepts the multiples of a number."""

    of: int

    def __call__(self, size: int) -> bool:
        """Return whether a size is a multiple."""
        return size % self.of == 0


@dataclass(frozen=True)
class Shapes:
    """The shapes that were accepted for each operation: at most `most`. The first shapes that come
    are accepted, and stay accepted as long as this object lives.

    A shape here consists of the shapes of all arrays, of the sizes that are arguments, and of
    whether each mask and each setting is present. Positions and the values of settings do not
    count.
    """

    most: int
    seen: dict[str, set[Any]] = field(default_factory=dict, compare=False)

    def admit(self, operation: Operation, arguments: Arguments) -> bool:
        """Return whether the shape of a call is accepted. A new shape is accepted as long as there
        are fewer than `most`.
        """
        shape = tuple(
            argument.shape
            if isinstance(argument, np.ndarray)
            else None
            if parameter == "start_pos"
            else argument is None
            if operation.is_setting(parameter)
            else argument
            for parameter, argument in zip(operation.parameters, arguments, strict=False)
        )
        known_shapes = self.seen.setdefault(operation.name, set())
        if len(known_shapes) < self.most:
            known_shapes.add(shape)
        return shape in known_shapes


@dataclass(frozen=True)
class Support:
    """What an implementation takes: predicates for sizes, kinds of masks (words of `EXTENTS` and
    `ENTRIES`, or "" for all masks), the number of shapes, whether arrays have leading axes, whether
    attention returns its log-sum-exp, and the words of `OF_OPTIONS`. `costs` leaves out calls that
    would take too long, whether the implementation takes them or not.

    `declared` is false if the adapter does not state what the implementation takes. Then a call that
    raises is not taken: it does not fail.
    """

    sizes: Mapping[str, Predicate] = field(default_factory=dict)
    masks: str = ""
    entries: str = ""
    shapes: Shapes | None = None
    batches: bool = True
    sums: bool = True
    options: frozenset[str] = frozenset()
    declared: bool = True
    costs: Costs | None = field(default=None, compare=False)

    @property
    def plain(self) -> "Support":
        """The same support as the reference has it: declared, masks are booleans with all named axes, and
        tables have a column for each channel.
        """
        mask_kind = "key masks" if self.masks and EXTENTS[self.masks].of_sequences else self.masks
        options = self.options - {"half tables"}
        return replace(self, masks=mask_kind, entries="", options=options, declared=True, costs=None)

    def listed(self, size: str) -> tuple[Any, ...]:
        """Return the list of sizes that `supports` gives for one size; () if it gives no list. Test
        inputs get this size from the list.
        """
        predicate = self.sizes.get(size)
        return predicate.sizes if isinstance(predicate, Listed) else ()

    @property
    def restrictions(self) -> list[Restriction]:
        """The restrictions of options that the implementation declares."""
        return [row for word, row in RESTRICTIONS.items() if word in self.options]

    def takes_options(self, given: Mapping[str, Any], pairing: str = "adjacent") -> bool:
        """Return whether the arguments of a call, by name, have the options that the implementation
        takes. `pairing` says which channels are pairs.
        """
        window = given.get("window")
        is_open = not isinstance(window, tuple) or window[1] is None  # a cache's window is its left side
        is_paged = "block_table" in given
        return (
            (is_open or "left windows" not in self.options)
            and (is_causal(given) or "causal only" not in self.options)
            and all(row.takes(given, pairing) for row in self.restrictions)
            and not ("no padding rows" in self.options and "cu_q" in given and has_padding(given))
            and not ("ragged queries" in self.options and is_paged and given["cu_q"] is None)
            and not ("valid table entries" in self.options and is_paged and not names_pages(given))
        )

    def without(self, operation: Operation, kind: str, flows: bool = False) -> str:
        """Return why test inputs with a kind of masks ("loose", "keys", "dead" or "any") are left
        out; "" if they are not left out.

        `flows` says whether gradients flow through the equal weights of a fully masked row.
        """
        if not kind or not any(map(operation.is_mask, operation.parameters)):
            return ""
        if kind == "dead" and self.entries == "finite masks" and operation.name != operation.forward and not flows:
            return _FLOWS
        is_supported = not self.masks or (
            self._extent(operation).of_keys if kind == "keys" else kind != "loose" and self.masks != "no masks"
        )
        return "" if is_supported else WORDS[self.masks]

    def untold(self, operation: Operation) -> tuple[str, ...]:
        """Return the names of the results that the implementation does not return: log-sum-exps and
        their derivatives, if the adapter declares "no log-sum-exp".
        """
        return () if self.sums else tuple(result for result in operation.outputs if result in ("lse", "dlse"))

    def promises(self, operation: Operation, arguments: Arguments, found: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the oracle's enclosures of a call's results. A result that the implementation does
        not return gets an enclosure that accepts any value.
        """
        missing = self.untold(operation)
        if not missing:
            return found
        anything = {"rad": np.inf, "mid": np.nan}
        return tuple(
            replace(
                enclosure,
                **{field_name: np.full(enclosure.mid.shape, number) for field_name, number in anything.items()},
                judged=False,
            )
            if result in missing
            else enclosure
            for result, enclosure in zip(operation.returned(arguments), found, strict=True)
        )

    def _extent(self, operation: Operation) -> Extent:
        """Return which masks an operation's argument can express. `combine_masks` takes masks of
        every extent.
        """
        return EXTENTS[self.masks] if self.masks and operation.name != "combine_masks" else _ANY

    def mask_shape(self, operation: Operation, parameter: str, full: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a mask whose written-out size is `full`."""
        return self._extent(operation).shape(operation.axes[parameter], full)

    def drawn(self, operation: Operation, mask: Any) -> Any:
        """Return a drawn mask, changed to a mask that the implementation takes."""
        return (
            None
            if self.masks == "no masks" and operation.name != "combine_masks"
            else self._extent(operation).drawn(mask)
        )

    def handed(self, operation: Operation, parameter: str, mask: Any) -> Any:
        """Return a mask in the form in which it is passed: booleans, or whole numbers."""
        return self._extent(operation).handed(mask, operation.axes[parameter])

    def promised(self, operation: Operation, arguments: Arguments) -> tuple[Any, ...]:
        """Return the arguments of a call as the implementation gets them. Raises OutsideError if
        the implementation does not take these masks or these shapes, and if the call would take too
        long.
        """
        if self.costs is not None and (reason := self.costs.refusal(operation, arguments)):
            raise OutsideError(reason)
        written = self.written(operation, arguments)
        if self.shapes is not None and not self.shapes.admit(operation, written):
            raise OutsideError(
                f"It takes at most {self.shapes.most} shapes of {operation.name}'s arguments, "
                "and this call has another one."
            )
        return written

    def written(self, operation: Operation, arguments: Arguments) -> tuple[Any, ...]:
        """Return the arguments of a call, with the masks in the declared shape. Raises OutsideError
        for a mask that cannot have this shape.
        """
        return tuple(self._masks(operation, arguments)) if self.masks else arguments

    def _masks(self, operation: Operation, arguments: Arguments) -> Iterator[Any]:
        sizes = operation.sizes(arguments)
        for parameter, argument in zip(operation.parameters, arguments, strict=False):
            if argument is None or not operation.is_mask(parameter):
                yield argument
                continue
            if operation.name == "combine_masks":
                full_shape = np.broadcast_shapes(*(mask.shape for mask in arguments))
            else:
                full_shape = (*operation.lead(arguments), *(sizes[axis] for axis in operation.axes[parameter][1:]))
            written = (
                None
                if self.drawn(operation, argument) is None
                else self._extent(operation).written(argument, self.mask_shape(operation, parameter, full_shape))
            )
            if written is None:
                raise OutsideError(WORDS[self.masks])
            yield written


_FLOWS = (
    "With finite masks, gradients may flow through the equal weights of a fully masked row. If they do, declare "
    "Conventions(dead_rows='uniform', dead_gradients='flow')."
)
_ANY = Extent("It takes masks that broadcast.")


def read(supports: Any) -> Support:
    """Return the `Support` for a declaration: a mapping of predicates or lists of sizes, a word of
    `WORDS`, or a list of words and mappings. None declares nothing.

    Raises TypeError and ValueError, with a sentence, for anything else.
    """
    if isinstance(supports, Support):
        return supports
    if supports is None:
        return Support(declared=False)
    sizes: dict[str, Predicate] = {}
    options: dict[str, Any] = {}
    for part in [supports] if isinstance(supports, str | Mapping) or not isinstance(supports, Collection) else supports:
        if isinstance(part, Mapping):
            sizes = _with(sizes, {size_name: _predicate(size_name, predicate) for size_name, predicate in part.items()})
        elif isinstance(part, str) and part in OF_SIZES:
            sizes = _with(sizes, OF_SIZES[part].sizes)
        elif isinstance(part, str) and part in OF_OPTIONS:
            options["options"] = options.get("options", frozenset()) | {part}
            if part in RESTRICTIONS:
                sizes = _with(sizes, dict.fromkeys(RESTRICTIONS[part].equal, Listed((0,))))
        elif isinstance(part, str) and (match := re.fullmatch(r"n % ([1-9]\d*) == 0", part)):
            sizes = _with(sizes, dict.fromkeys(("n_q", "n_k", "seq_len"), Multiples(int(match[1]))))
        elif isinstance(part, str) and part == "no batch axes":
            options["batches"] = False
        elif isinstance(part, str) and part == "no log-sum-exp":
            options["sums"] = False
        elif isinstance(part, str) and (kind := "masks" if part in EXTENTS else "entries" if part in ENTRIES else ""):
            if options.setdefault(kind, part) != part:
                raise ValueError(f"supports says {options[kind]!r} and {part!r}, but should say only one of them.")
        elif isinstance(part, str) and (match := re.fullmatch(r"at most ([1-9]\d*) shapes?", part)):
            options["shapes"] = Shapes(int(match[1]))
        else:
            words = ", ".join(map(repr, WORDS))
            raise TypeError(
                f"supports={shown(part)}, but should be a mapping from sizes to predicates or lists, "
                f"or a word: {words}.{did_you_mean(part, WORDS)}"
            )
    return Support(sizes, **options)


def _with(sizes: Mapping[str, Predicate], more: Mapping[str, Predicate]) -> dict[str, Predicate]:
    """Return the predicates of sizes with more of them. Two predicates of one size must both be true."""
    return {**sizes, **{name: _both(sizes[name], one) if name in sizes else one for name, one in more.items()}}


def _both(first: Predicate, second: Predicate) -> Predicate:
    """Return the predicate that both predicates are true. It is a list if one of them is a list."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Listed):
            return Listed(tuple(filter(other, one.sizes)))
    return lambda size: first(size) and second(size)


def _predicate(name: str, given: Any) -> Predicate:
    if not isinstance(name, str) or name not in (*SIZES, EVERY_SIZE):
        known = (*SIZES, EVERY_SIZE)
        all_sizes = f"The sizes are {', '.join(known)}."
        raise ValueError(f"Unknown size {shown(name)} in supports.{did_you_mean(name, known, all_sizes)}")
    if callable(given):
        return Guarded(name, given)
    listed = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
    if not (
        listed
        and given
        and all(type(size) is int or (name == "scale" and type(size) is float and isfinite(size)) for size in given)
    ):
        raise TypeError(
            f"supports[{shown(name)}]={shown(given)}, but should be a predicate, a function of a size, "
            "or a list of sizes."
        )
    return Listed(tuple(given))
