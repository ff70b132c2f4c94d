"""The decorator of a definition: it links the definition to Lean, checks the types of its
arguments, and sets its scalar.

    lean = LeanFile("NN/Spec/Layers/Attention.lean")

    @lean(line=160)
    def hard_masked_softmax_spec(
        scores: Tensor[Array, "nQ nK"], mask: Bool[Array, "nQ nK"], scalar: Context | None = None
    ) -> Tensor[Array, "nQ nK"]:
        return stack(scores.shape, lambda i: hard_masked_softmax_vec_spec(scores[i], mask[i]))

As in Lean, the body holds only the mathematics, because the signature is enforced:

- Types. A letter, such as nK above, is one size throughout a signature. A tensor is over a scalar,
  a mask holds booleans, and an `int` is a natural number. An argument that does not fit raises
  ValueError for a size and TypeError for a type, with a sentence (`spec.signature`).
- `[Context α]`. α is `scalar` if it is given, else the scalar of a structure among the arguments,
  else the scalar of the calling definition, else the scalar of the elements. All tensors are
  converted to α, exactly, and in the body `alpha` is α (`spec.scope`).

This module states the revision of Lean that is transcribed. A definition's docstring ends with the
link to its line, in `help` too.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, TypeVar

from spec.scope import in_scope, scope
from spec.signature import Stated, conformed, stated

__all__ = ["LITERAL", "REPOSITORY", "REVISED", "LeanFile", "definition"]

REPOSITORY = "lean-dojo/TorchLean"
LITERAL = "411682f6c3d913e5cdbc27d4546b3ab7ac0e3e9c"
"""The revision that `spec` transcribes to the letter, called the seed revision."""
REVISED = "0f845313599795032960d487708c309e1fb2f40e"
"""A later revision, which corrects most errata of `spec.errata`; `spec.corrected` follows it."""

Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class LeanFile:
    """A file of TorchLean at a revision. Calling it gives the decorator of a declaration in the
    file: that decorator is `definition`, and it adds the link to the declaration's line.

    >>> url = LeanFile("NN/Spec/Layers/Attention.lean").url(line=101)
    >>> url.removeprefix(f"https://github.com/{REPOSITORY}/blob/{LITERAL}/")
    'NN/Spec/Layers/Attention.lean#L101'
    """

    path: str
    revision: str = LITERAL

    def url(self, line: int | None = None) -> str:
        """Return the address at which the file can be read, from the given line on."""
        return f"https://github.com/{REPOSITORY}/blob/{self.revision}/{self.path}" + (f"#L{line}" if line else "")

    def __call__(
        self, line: int | None = None, nonzero: Mapping[str, str] | None = None
    ) -> Callable[[Definition], Definition]:
        """Return the decorator of the declaration on that line. For `nonzero` see `definition`. A
        structure checks its own types (`conform`).
        """

        def transcription(declared: Definition) -> Definition:
            linked = declared if isinstance(declared, type) else definition(nonzero)(declared)
            linked.__doc__ = f"{inspect.cleandoc(declared.__doc__ or '')}, {self.url(line)}"
            return linked

        return transcription


def definition(nonzero: Mapping[str, str] | None = None) -> Callable[[Definition], Definition]:
    """Return the decorator of a definition. It refuses arguments that do not fit the signature,
    converts them to one scalar, and runs the body over that scalar.

    `nonzero` holds Lean's hypotheses n ≠ 0. It maps a letter to the reason why its size should not
    be 0. A body with `**options` passes them to other definitions, which check them.

    >>> import numpy as np
    >>> from spec.context import Context
    >>> from spec.tensor_core import Array, Tensor
    >>> @definition()
    ... def dot(a: Tensor[Array, "n"], b: Tensor[Array, "n"], scalar: Context | None = None): ...
    >>> dot(np.ones(2), np.ones(3))
    Traceback (most recent call last):
    ValueError: b has shape (3,), but should have shape (2,), the shape of a.
    """

    def decorator(body: Definition) -> Definition:
        every = inspect.signature(body).parameters
        parameters = {name: each for name, each in every.items() if each.kind is not each.VAR_KEYWORD}
        takes_options = len(parameters) < len(every)
        defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not parameter.empty
        }

        @wraps(body)
        def evaluated(*positional: Any, **named: Any) -> Any:
            placed = dict(zip(parameters, positional, strict=False))
            given = defaults | placed | named
            names = parameters.keys() | (given.keys() if takes_options else ())
            if given.keys() != names or placed.keys() & named.keys() or len(placed) != len(positional):
                return body(*positional, **named)  # raises Python's own TypeError
            alpha, arguments = conformed(_statements(body), given, nonzero or {})
            if alpha is None or alpha is in_scope():
                return body(**arguments)
            with scope(alpha):
                return body(**arguments)

        return evaluated  # type: ignore[return-value]

    return decorator


@cache
def _statements(body: Callable[..., Any]) -> dict[str, Stated]:
    """Return the statement of a definition's signature about each parameter. About a method's
    `self` it states the class.
    """
    parameters = inspect.signature(body).parameters.values()
    annotations = {each.name: each.annotation for each in parameters if each.kind is not each.VAR_KEYWORD}
    if "self" in annotations:
        annotations["self"] = getattr(sys.modules[body.__module__], body.__qualname__.partition(".")[0])
    return {name: stated(annotation) for name, annotation in annotations.items()}
