"""Reads the sizes at which a user wants an operation tested, such as "batch=4,n_q=1,n_k=8192".

Two sizes follow from another one unless they are named: value_dim from head_dim, and kv_heads from
num_heads. An operation without an axis of heads has heads as a leading axis after the batch.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

from oracles.spelling import did_you_mean
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.contract.parameters import Kind
from properties.contract.wording import shown

__all__ = ["NAMES", "Wanted", "as_text", "checked", "concerns", "in_words", "parsed", "require_concerned", "sizes_of"]

Wanted = Mapping[str, int]
"""Sizes by name."""

NAMES = (
    *("batch", "num_heads", "kv_heads", "n_q", "n_k", "seq_len", "start_pos"),
    *("head_dim", "value_dim", "embed_dim", "model_dim", "max_len", "sequences", "total_q", "total_k"),
)
_MOST = 2**46  # numbers: no machine has so much memory
_TYPICAL = {"batch": 2, "n_q": 1, "n_k": 4096, "seq_len": 4096, "head_dim": 64, "embed_dim": 64, "max_len": 64}
_EXAMPLE = "batch=2,n_q=1,n_k=4096"


def parsed(text: str) -> dict[str, int]:
    """Return the sizes that a text names, such as "batch=2,n_q=1,n_k=4096". Raises ValueError."""
    sizes = [re.fullmatch(r"\s*(\w+)\s*=\s*(-?\d{1,9})\s*", part) for part in text.split(",")]
    names = [size[1] for size in sizes if size]
    if len(set(names)) < len(sizes):
        raise ValueError(f"{text!r} should be sizes, such as {_EXAMPLE}")
    return {size[1]: int(size[2]) for size in sizes if size}


def checked(shapes: Any) -> tuple[Wanted, ...]:
    """Return the sizes of a list, whose members are texts or mappings.

    Raises TypeError for anything else. Raises ValueError, a sentence, for a name that is not a size,
    and for a size that is not a whole number from 1 (a position: from 0).
    """
    is_list = isinstance(shapes, Collection) and not isinstance(shapes, str | Mapping)
    if not is_list or not all(isinstance(shape, str) or (isinstance(shape, Mapping) and shape) for shape in shapes):
        raise TypeError(f'shapes={shown(shapes)}, but should be a list of texts or mappings, as ["{_EXAMPLE}"].')
    mappings = [parsed(shape) if isinstance(shape, str) else shape for shape in shapes]
    for shape in mappings:
        for name, size in shape.items():
            if name not in NAMES:
                listed = f"Sizes are {', '.join(NAMES)}."
                raise ValueError(f"Unknown size {shown(name)}.{did_you_mean(str(name), NAMES, listed)}")
            lowest = int(name != "start_pos")
            if type(size) is not int or size < lowest:
                raise ValueError(f"{name} is {shown(size)}, but should be a whole number from {lowest}.")
        if prod(shape.values()) > _MOST:
            raise ValueError(f"{as_text(shape)} are more numbers than a memory has. Name smaller sizes.")
    return tuple({name: shape[name] for name in NAMES if name in shape} for shape in mappings)


def sizes_of(operation: Operation) -> tuple[str, ...]:
    """Return the names of the sizes that a user can choose for an operation. Programs of caches, keys in
    pages and operations on whole numbers have no such sizes.
    """
    required = [parameter for parameter in operation.takes if not parameter.optional]
    kinds = {parameter.kind for parameter in required}
    if operation.is_played or operation.is_paged or Kind.INTEGERS in kinds:
        return ()
    names = {name for one in required for name in (one.axes or ([one.name] if one.kind is Kind.SIZE else []))}
    names |= {"batch", "num_heads"} if BATCH in names else set()
    names |= {"sequences"} if operation.is_packed else set()
    names |= {size for factors in operation.widths.values() for size in factors}
    return tuple(name for name in NAMES if name in names)


def concerns(shape: Wanted, operation: Operation) -> bool:
    """Return whether an operation has all sizes that a user names."""
    return set(shape) <= set(sizes_of(operation))


def require_concerned(shapes: Iterable[Wanted], operations: Collection[str]) -> None:
    """Raise ValueError for sizes if each operation lacks one of them. The sentence names the sizes, the
    sizes that the nearest operation has, and a text to type.
    """
    for shape in shapes:
        if any(concerns(shape, OPERATIONS[name]) for name in operations):
            continue
        known = {name: sizes_of(OPERATIONS[name]) for name in operations}
        nearest = max(known, key=lambda name: len(set(shape) & set(known[name])))
        missing = [name for name in shape if name not in known[nearest]]
        suggested = {name: shape[name] for name in known[nearest] if name in shape}
        suggested = suggested or {name: _TYPICAL[name] for name in known[nearest] if name in _TYPICAL}
        others = (
            f"Its sizes are {', '.join(known[nearest])}. Type {as_text(suggested)}."
            if suggested
            else "It has no sizes."
        )
        raise ValueError(f"{as_text(shape)}: {nearest} has no {' and no '.join(missing)}. {others}")


def as_text(shape: Wanted) -> str:
    """Return sizes as the text that `parsed` reads."""
    return ",".join(f"{name}={size}" for name, size in shape.items())


def in_words(shape: Wanted) -> str:
    """Return sizes in words: "batch 2, n_k 4096"."""
    return ", ".join(f"{name} {size}" for name, size in shape.items())
