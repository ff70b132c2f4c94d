"""What an implementation takes: sizes, by predicates or lists; masks of some kind; so many shapes. Said in a mapping, or in words."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from properties.contract.operations import Operation
from properties.contract.wording import shown

__all__ = ["EVERY_SIZE", "SIZES", "WORDS", "Listed", "OutsideError", "Shapes", "Support", "read"]

SIZES = (
    *("batch", "n_q", "n_k", "n_k_minus_n_q", "seq_len", "start_pos"),
    *("head_dim", "value_dim", "value_dim_minus_head_dim", "embed_dim"),
    *("num_heads", "kv_heads", "model_dim", "model_dim_minus_heads_width"),
)
"""The sizes, differences of sizes, and positions that `supports` may restrict."""

EVERY_SIZE = "every size"
"""The name under which `supports` restricts all sizes at once, but neither differences nor positions."""

WORDS = {
    "positive sizes": "It takes no size of 0.",
    "no batch axes": "It takes no leading axes.",
    "full masks": "It takes masks of the full shape only, none with axes of size 1 or with fewer axes.",
    "key masks": "It takes masks of keys only, of shape (…, 1, n_k).",
    "no log-sum-exp": "It returns the output of attention without its log-sum-exp.",
    "at most N shapes": "It takes N different shapes of arguments in a process, for each operation.",
}
"""The words that `supports` may hold, and what each says."""

Predicate = Callable[[int], bool]


class OutsideError(ValueError):
    """A call is outside of what an implementation takes; the message says why in a sentence."""


@dataclass(frozen=True)
class Listed:
    """The predicate of being one of some sizes, from which cases are drawn."""

    sizes: tuple[int, ...]

    def __call__(self, size: int) -> bool:
        """Whether a size is one of them."""
        return size in self.sizes


@dataclass(frozen=True)
class Shapes:
    """At most so many shapes of the arguments of each operation: those that come first, as long as this object is there.

    A shape is that of all arrays, with which masks are None, and with the sizes that are arguments; positions and numbers do not count.
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
    """What is taken: sizes by predicates, masks that are "any", "full" or of "keys", how many shapes, and whether leading axes; and whether
    attention returns its log-sum-exp."""

    sizes: Mapping[str, Predicate] = field(default_factory=dict)
    masks: Literal["any", "full", "keys"] = "any"
    shapes: Shapes | None = None
    batches: bool = True
    sums: bool = True

    def listed(self, size: str) -> tuple[int, ...]:
        """The sizes to draw from, where a list of them is what is taken."""
        predicate = self.sizes.get(size)
        return predicate.sizes if isinstance(predicate, Listed) else ()

    def without(self, o: Operation, kind: str) -> str:
        """Why cases with masks of a kind, "loose" or "keys", are left out; "" where they are not."""
        taken = kind == "" or self.masks == "any" or (self.masks, kind) == ("keys", "keys") or not any(map(o.is_mask, o.parameters))
        return "" if taken else WORDS[_OF_MASKS[self.masks]]

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
            replace(e, **{part: np.full(e.mid.shape, x) for part, x in anything.items()}, judged=False) if name in untold else e
            for name, e in zip(o.returned(arguments), found, strict=True)
        )

    def mask_shape(self, o: Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that masks for an array of scores have."""
        return (*shape[:-2], 1, shape[-1]) if self.masks == "keys" and o.name != "combine_masks" else shape

    def promised(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call as they are handed over. Raises OutsideError where its masks or its shapes are not taken."""
        found = self.written(o, arguments)
        if self.shapes is not None and not self.shapes.admit(o, found):
            raise OutsideError(f"It takes {self.shapes.most} different shapes of {o.name}'s arguments, and this would be another one.")
        return found

    def written(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call with its masks written out as is promised. Raises OutsideError for masks that cannot be."""
        return arguments if self.masks == "any" else tuple(self._masks(o, arguments))

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
            shape = self.mask_shape(o, full)
            if shape != full and not (x.ndim < 2 or x.shape[-2] == 1 or (x == x[..., :1, :]).all()):
                raise OutsideError(WORDS["key masks"])
            yield np.broadcast_to(x if shape == full or x.ndim < 2 else x[..., :1, :], shape).copy()


_OF_MASKS = {"full": "full masks", "keys": "key masks"}


def read(supports: Any) -> Support:
    """What is taken, as a mapping of predicates or lists of sizes says it, a word of `WORDS`, or a list of words and mappings.

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
        elif isinstance(part, str) and part in _OF_MASKS.values():
            (kind,) = (kind for kind, word in _OF_MASKS.items() if word == part)
            if rest.setdefault("masks", kind) != kind:
                raise ValueError("supports says 'full masks' and 'key masks', but should say one of them.")
        elif isinstance(part, str) and (most := re.fullmatch(r"at most ([1-9]\d*) shapes?", part)):
            rest["shapes"] = Shapes(int(most[1]))
        else:
            words = ", ".join(map(repr, WORDS))
            raise TypeError(f"supports={shown(part)}, but should be a mapping from sizes to predicates or lists, or a word: {words}.")
    return Support(sizes, **rest)


def _predicate(name: str, given: Any) -> Predicate:
    if not isinstance(name, str) or name not in (*SIZES, EVERY_SIZE):
        raise ValueError(f"A size in supports is {shown(name)}, but should be one of {', '.join((*SIZES, EVERY_SIZE))}.")
    if callable(given):
        return given  # type: ignore[no-any-return]
    listed = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
    if not (listed and given and all(type(n) is int for n in given)):
        raise TypeError(f"supports[{shown(name)}]={shown(given)}, but should be a predicate, a function of a size, or a list of sizes.")
    return Listed(tuple(given))


def _is_positive(size: int) -> bool:
    return size > 0
