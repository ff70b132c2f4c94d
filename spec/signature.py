"""Signatures as types: arguments that do not fit their annotations are refused with a sentence.

    x: Tensor[Array, "n dModel"]         a tensor over α; a letter is one size throughout the signature
    mask: Bool[Array, "n n"] | None      an array of booleans, or None
    num_heads: int                       a natural number
    Wq: Tensor[Array, "dModel {num_heads*head_dim}"]      a size that is a product of natural numbers

A letter means the same size in the signature and in a structure among the arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from math import prod
from types import UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np

from spec.context import Context
from spec.scope import in_scope
from spec.tensor_core import Array, expect_mask, expect_type, nat, over

__all__ = ["Stated", "conform", "conformed", "stated"]


# -- What an annotation states ---------------------------------------------------------------------


@dataclass(frozen=True)
class Stated:
    """The statement of an annotation about an argument: the letters of its shape, its class, and
    the kinds of value that it may be.

    The kinds are a tensor, a mask, a natural number, a structure with a scalar (`over_scalar`), and
    None (`optional`).
    """

    letters: tuple[str, ...] | None = None
    instance: type | None = None
    tensor: bool = False
    mask: bool = False
    natural: bool = False
    over_scalar: bool = False
    optional: bool = False


def stated(annotation: Any) -> Stated:
    """Return the statement of an annotation. It is empty for a kind of annotation that this module
    does not list.
    """
    if get_origin(annotation) is Sequence:
        return Stated(tuple(get_args(annotation)[0].dim_str.split()), Sequence)
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    shaped = [member for member in members if hasattr(member, "dim_str")]
    structure = next(
        (member for member in members if isinstance(member, type) and is_dataclass(member) and member is not Context),
        None,
    )
    return Stated(
        letters=tuple(shaped[0].dim_str.split()) if shaped else None,
        instance=structure,
        tensor=any("bool" not in member.dtypes for member in shaped),
        mask=any("bool" in member.dtypes for member in shaped),
        natural=annotation is int,
        over_scalar=structure is not None and "scalar" in _fields(structure),
        optional=type(None) in members,
    )


@cache
def _fields(structure: Any) -> dict[str, Stated]:
    return {field.name: stated(field.type) for field in fields(structure)}


# -- Whether arguments fit -------------------------------------------------------------------------


def conform(structure: Any, nonzero: Mapping[str, str] | None = None) -> None:
    """Check that a structure's fields fit their annotations, and convert them to one scalar. The
    structure's `__post_init__` calls this function.
    """
    alpha, values = conformed(_fields(structure.__class__), vars(structure), nonzero or {})
    for name, value in (values | {"scalar": alpha}).items():
        object.__setattr__(structure, name, value)


def conformed(
    statements: Mapping[str, Stated], given: Mapping[str, Any], nonzero: Mapping[str, str]
) -> tuple[Context | None, dict[str, Any]]:
    """Return the scalar of a call, and the arguments converted to it. The scalar is None if no
    argument is over a scalar. An argument that does not fit raises ValueError or TypeError.
    """
    arguments = dict(given)
    tensors: dict[str, Array] = {}
    scalar = given.get("scalar")
    for name, what in statements.items():
        value = given[name]
        if value is None and what.optional:
            continue
        if what.natural:
            arguments[name] = nat(value, name)
        elif what.instance:
            expect_type(value, name, what.instance)
            if what.instance is Sequence:
                tensors |= {f"{name}[{i}]": part for i, part in enumerate(value)}
            elif what.over_scalar and scalar is None:
                scalar = value.scalar
        elif what.mask and (not what.tensor or (type(value) is Array and value.dtype == np.bool_)):
            expect_mask(value, name)
        elif what.tensor:
            tensors[name] = value
    alpha = None
    if tensors or scalar is not None or "scalar" in statements:
        alpha, *converted = over(in_scope() if scalar is None else scalar, **tensors)
        tensors = dict(zip(tensors, converted, strict=True))
    sizes = _Sizes()
    for name, what in statements.items():
        if what.instance is Sequence:
            arguments[name] = [tensors[f"{name}[{i}]"] for i in range(len(given[name]))]
        elif what.over_scalar:
            arguments[name] = given[name] if given[name].scalar is alpha else replace(given[name], scalar=alpha)
        elif name in tensors:
            arguments[name] = tensors[name]
        sizes.measure(name, what, arguments)
    sizes.expect_nonzero(nonzero)
    return alpha, arguments


@dataclass
class _Sizes:
    """The size of each letter so far, with the name of the argument that determined it, and the
    shape of each argument.
    """

    letters: dict[str, tuple[Any, str]] = field(default_factory=dict)
    shapes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = field(default_factory=dict)

    def measure(self, name: str, what: Stated, beside: Mapping[str, Any], within: str = "") -> None:
        """Record the sizes of an argument, or of the fields of a structure, by name. Refuse a size
        that differs from the recorded one.
        """
        value = beside[name]
        if what.over_scalar:
            for part, of_part in _fields(value.__class__).items():
                self.measure(part, of_part, vars(value), f"{name}.")
        elif what.instance is Sequence:
            for i, part in enumerate(value):
                self._fit(f"{name}[{i}]", what.letters or (), part.shape, beside)
        elif what.letters is not None and value is not None:
            self._fit(within + name, what.letters, value.shape, beside)
        elif what.natural and within:
            before, other = self.letters.setdefault(name, (value, within + name))
            if value != before:
                raise ValueError(f"{within}{name}={value}, but should be {before}, as {other}.")

    def expect_nonzero(self, nonzero: Mapping[str, str]) -> None:
        """Refuse a size of 0 for each letter that has a reason why it should not be 0."""
        for letter, reason in nonzero.items():
            size, name = self.letters[letter]
            if size == 0:
                raise ValueError(f"{name} has shape {self.shapes[name][1]}, but {letter} should not be 0: {reason}.")

    def _fit(self, name: str, letters: tuple[str, ...], shape: tuple[int, ...], beside: Mapping[str, Any]) -> None:
        sizes = _by_letter(letters, shape)
        if len(sizes) != len(letters):
            shown = ", ".join("…" if letter.startswith("*") else _shown(letter) for letter in letters)
            raise ValueError(f"{name} has shape {shape}, but should have shape ({shown}).")
        expected = [self._expected(letter, size, name, beside) for letter, size in zip(letters, sizes, strict=True)]
        if sizes != expected:
            misfits = (
                letter for letter, size, required in zip(letters, sizes, expected, strict=True) if size != required
            )
            same_shaped = next(
                (other for other, (other_letters, _) in self.shapes.items() if other_letters == letters), None
            )
            reason = (
                f", the shape of {same_shaped}"
                if same_shaped
                else f": {', '.join(dict.fromkeys(self._source(x, beside) for x in misfits))}"
            )
            expected_shape = tuple(n for size in expected for n in (size if isinstance(size, tuple) else (size,)))
            nothing = ": nothing broadcasts" if any(isinstance(size, tuple) for size in expected) else ""
            raise ValueError(f"{name} has shape {shape}, but should have shape {expected_shape}{reason}{nothing}.")
        self.shapes[name] = letters, shape

    def _expected(self, letter: str, size: Any, name: str, beside: Mapping[str, Any]) -> Any:
        """Return the size that a letter should have: the recorded one, or for {a*b} the product of
        the arguments a and b.
        """
        if letter.startswith("{"):
            return prod(beside[factor] for factor in _factors(letter))
        return self.letters.setdefault(letter, (size, name))[0]

    def _source(self, letter: str, beside: Mapping[str, Any]) -> str:
        """Return the words of a message that say where an expected size comes from."""
        if letter.startswith("{"):
            return f"{_shown(letter)} is {'·'.join(str(beside[factor]) for factor in _factors(letter))}"
        size, name = self.letters[letter]
        return f"{_shown(letter)} is {size} in {name}"


def _by_letter(letters: tuple[str, ...], shape: tuple[int, ...]) -> list[Any]:
    """Return the size of each letter. A letter with a star, such as *s, gets all sizes that the
    other letters leave.
    """
    star = _star(letters)
    if star is None or len(shape) < len(letters) - 1:
        return list(shape) if star is None else []
    after = len(shape) - (len(letters) - 1 - star)
    return [*shape[:star], shape[star:after], *shape[after:]]


@cache
def _star(letters: tuple[str, ...]) -> int | None:
    return next((i for i, letter in enumerate(letters) if letter.startswith("*")), None)


def _factors(letter: str) -> list[str]:
    return letter[1:-1].split("*")


def _shown(letter: str) -> str:
    return letter.strip("{}").replace("*", "·")
