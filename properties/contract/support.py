"""What an implementation takes: sizes and scales, by predicates or lists; masks of some kind; so
many shapes. In a mapping, or in words.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from oracles.spelling import did_you_mean
from properties.contract.masks import ENTRIES, EXTENTS, Extent
from properties.contract.operations import Operation
from properties.contract.wording import shown, told

__all__ = ["EVERY_SIZE", "SIZES", "WORDS", "Listed", "OutsideError", "Shapes", "Support", "SupportsError", "read"]

SIZES = (
    *("batch", "n_q", "n_k", "n_k_minus_n_q", "seq_len", "start_pos"),
    *("head_dim", "value_dim", "value_dim_minus_head_dim", "embed_dim"),
    *("num_heads", "kv_heads", "model_dim", "model_dim_minus_heads_width"),
    "scale",
)
"""The sizes, differences of sizes, positions, and scales of scores that `supports` may restrict."""

EVERY_SIZE = "every size"
"""The name under which `supports` restricts all sizes at once, but neither differences nor positions nor scales."""

WORDS = {
    "positive sizes": "It takes no size of 0.",
    "no batch axes": "It takes no leading axes.",
    **{word: extent.says for word, extent in EXTENTS.items()},
    **{word: entries.says for word, entries in ENTRIES.items()},
    "no log-sum-exp": "It returns the output of attention without its log-sum-exp.",
    "at most N shapes": "It takes N different shapes of arguments in a process, for each operation.",
}
"""The words that `supports` may hold, and what each says."""

Predicate = Callable[[Any], bool]


class OutsideError(ValueError):
    """A call is outside of what an implementation takes; the message says why in a sentence."""


class SupportsError(ValueError):
    """A predicate of `supports` raised an exception: the adapter cannot be used. The message is a sentence."""


@dataclass(frozen=True)
class Guarded:
    """A predicate of the adapter for a size; an exception in it is a SupportsError."""

    name: str
    predicate: Predicate

    def __call__(self, size: float) -> bool:
        """Whether a size is supported, as the adapter says."""
        try:
            return bool(self.predicate(size))
        except Exception as error:
            raise SupportsError(f"supports[{self.name!r}]({size}) raised {told(error)}.") from error


@dataclass(frozen=True)
class Listed:
    """The predicate of being one of some sizes, from which cases are drawn."""

    sizes: tuple[Any, ...]

    def __call__(self, size: float) -> bool:
        """Whether a size is one of them."""
        return size in self.sizes


@dataclass(frozen=True)
class Shapes:
    """At most so many shapes of the arguments of each operation: those that come first, as long as
    this object is there.

    A shape is that of all arrays, with which masks are None, and with the sizes that are arguments;
    positions and numbers do not count.
    """

    most: int
    seen: dict[str, set[Any]] = field(default_factory=dict, compare=False)

    def admit(self, o: Operation, arguments: tuple[Any, ...]) -> bool:
        """Whether a call has one of the shapes, which it may be the first to have."""
        shape = tuple(
            x.shape if isinstance(x, np.ndarray) else None if p == "start_pos" else x is None if o.is_setting(p) else x
            for p, x in zip(o.parameters, arguments, strict=False)
        )
        known = self.seen.setdefault(o.name, set())
        if len(known) < self.most:
            known.add(shape)
        return shape in known


@dataclass(frozen=True)
class Support:
    """What is taken: sizes by predicates, masks by words of `EXTENTS` and `ENTRIES`, or "" for all,
    how many shapes, and whether leading axes; and whether attention returns its log-sum-exp."""

    sizes: Mapping[str, Predicate] = field(default_factory=dict)
    masks: str = ""
    entries: str = ""
    shapes: Shapes | None = None
    batches: bool = True
    sums: bool = True

    @property
    def plain(self) -> "Support":
        """The same with masks of booleans, and of all named axes: what the reference takes."""
        named = "key masks" if self.masks and EXTENTS[self.masks].of_sequences else self.masks
        return replace(self, masks=named, entries="")

    def listed(self, size: str) -> tuple[Any, ...]:
        """The sizes to draw from, where a list of them is what is taken."""
        predicate = self.sizes.get(size)
        return predicate.sizes if isinstance(predicate, Listed) else ()

    def without(self, o: Operation, kind: str, flows: bool = False) -> str:
        """Why cases with masks of a kind, "loose", "keys", "dead" or "any", are left out; "" where
        they are not. `flows` says whether gradients are meant to flow through the equal weights of
        a query without keys."""
        if not kind or not any(map(o.is_mask, o.parameters)):
            return ""
        if kind == "dead" and self.entries == "finite masks" and o.name != o.forward and not flows:
            return _FLOWS
        taken = not self.masks or (
            self._extent(o).of_keys if kind == "keys" else kind != "loose" and self.masks != "no masks"
        )
        return "" if taken else WORDS[self.masks]

    def untold(self, o: Operation) -> tuple[str, ...]:
        """The results of an operation that are not returned: log-sum-exps and their derivatives, where they are not."""
        return () if self.sums else tuple(name for name in o.outputs if name in ("lse", "dlse"))

    def promises(self, o: Operation, arguments: tuple[Any, ...], found: tuple[Any, ...]) -> tuple[Any, ...]:
        """What an oracle says of a call's results, and nothing of those that are not returned."""
        untold = self.untold(o)
        if not untold:
            return found
        anything = {"rad": np.inf, "mid": np.nan}
        return tuple(
            replace(e, **{part: np.full(e.mid.shape, x) for part, x in anything.items()}, judged=False)
            if name in untold
            else e
            for name, e in zip(o.returned(arguments), found, strict=True)
        )

    def _extent(self, o: Operation) -> Extent:
        """What the masks of an operation can say: those that are combined are of any extent."""
        return EXTENTS[self.masks] if self.masks and o.name != "combine_masks" else _ANY

    def mask_shape(self, o: Operation, parameter: str, full: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a mask that is of size `full` if it is written out."""
        return self._extent(o).shape(o.axes[parameter], full)

    def drawn(self, o: Operation, mask: Any) -> Any:
        """A mask that is chosen, as one that is taken."""
        return None if self.masks == "no masks" and o.name != "combine_masks" else self._extent(o).drawn(mask)

    def handed(self, o: Operation, parameter: str, mask: Any) -> Any:
        """A mask, written out as is promised, as it is handed over: of booleans, or as whole numbers."""
        return self._extent(o).handed(mask, o.axes[parameter])

    def promised(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call as they are handed over. Raises OutsideError where its masks or
        its shapes are not taken.
        """
        found = self.written(o, arguments)
        if self.shapes is not None and not self.shapes.admit(o, found):
            raise OutsideError(
                f"It takes {self.shapes.most} different shapes of {o.name}'s arguments, and this would be another one."
            )
        return found

    def written(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call with its masks written out as is promised. Raises OutsideError
        for masks that cannot be.
        """
        return tuple(self._masks(o, arguments)) if self.masks else arguments

    def _masks(self, o: Operation, arguments: tuple[Any, ...]) -> Iterator[Any]:
        sizes = o.sizes(arguments)
        for p, x in zip(o.parameters, arguments, strict=False):
            if x is None or not o.is_mask(p):
                yield x
                continue
            if o.name == "combine_masks":
                full = np.broadcast_shapes(*(mask.shape for mask in arguments))
            else:
                full = (*o.lead(arguments), *(sizes[axis] for axis in o.axes[p][1:]))
            found = None if self.drawn(o, x) is None else self._extent(o).written(x, self.mask_shape(o, p, full))
            if found is None:
                raise OutsideError(WORDS[self.masks])
            yield found


_FLOWS = (
    "With finite masks gradients may flow through the equal weights of a query without keys: if they do, declare "
    "Conventions(dead_rows='uniform', dead_gradients='flow')."
)
_ANY = Extent("It takes masks that broadcast.")


def read(supports: Any) -> Support:
    """What is taken, as a mapping of predicates or lists of sizes says it, a word of `WORDS`, or a
    list of words and mappings.

    Raises TypeError and ValueError, in a sentence, for anything else.
    """
    if isinstance(supports, Support):
        return supports
    sizes: dict[str, Predicate] = {}
    rest: dict[str, Any] = {}
    for part in [supports] if isinstance(supports, str | Mapping) or not isinstance(supports, Collection) else supports:
        if isinstance(part, Mapping):
            sizes |= {name: _predicate(name, given) for name, given in part.items()}
        elif isinstance(part, str) and part == "positive sizes":
            sizes[EVERY_SIZE] = _is_positive
        elif isinstance(part, str) and part == "no batch axes":
            rest["batches"] = False
        elif isinstance(part, str) and part == "no log-sum-exp":
            rest["sums"] = False
        elif isinstance(part, str) and (kind := "masks" if part in EXTENTS else "entries" if part in ENTRIES else ""):
            if rest.setdefault(kind, part) != part:
                raise ValueError(f"supports says {rest[kind]!r} and {part!r}, but should say one of them.")
        elif isinstance(part, str) and (most := re.fullmatch(r"at most ([1-9]\d*) shapes?", part)):
            rest["shapes"] = Shapes(int(most[1]))
        else:
            words = ", ".join(map(repr, WORDS))
            raise TypeError(
                f"supports={shown(part)}, but should be a mapping from sizes to predicates or lists, or a word: {words}."
                f"{did_you_mean(part, WORDS)}"
            )
    return Support(sizes, **rest)


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
        and all(type(n) is int or (name == "scale" and type(n) is float and isfinite(n)) for n in given)
    ):
        raise TypeError(
            f"supports[{shown(name)}]={shown(given)}, but should be a predicate, a function of a size, or a list of sizes."
        )
    return Listed(tuple(given))


def _is_positive(size: int) -> bool:
    return size > 0
