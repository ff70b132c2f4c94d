"""Lists the operations, in a terminal and as Markdown: how each is called, the shapes of its
arrays, and the conventions that change it.
"""

import re
from dataclasses import fields
from typing import Any, get_args

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from oracles import Conventions
from properties.bugs import CATALOGUE
from properties.contract.features import QUANTISED
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.laws import LAWS

__all__ = ["markdown", "print_operations", "print_page", "readings", "shapes", "signature", "summary"]

_NOTES = (
    "Functions are called by position, as written. … stands for any number of leading batch axes, the same for all "
    "arrays.",
    "A mask is boolean and broadcasts: each of its axes may have size 1, and leading axes may be missing. mask=None "
    "masks no key. attention_mask is an array of int64: 1 at tokens, 0 at padding.",
    "Arguments after * are passed by keyword, and only those that an implementation declares, for instance "
    'features=["bias", "window"].',
    "Sizes and positions are whole numbers; start_pos is the position of the first row. causal_mask gets n_k=None for "
    "n_k = n_q.",
    "decode is offered as a class, Cache(d, d_v, window=None, capacity=None) with append(k, v) and attend(q); steps "
    "lists such calls. The class of batched_decode is Cache(batch, kv_heads, d, d_v, num_heads) with "
    "append(k, v, rows=None) and attend(q, rows=None).",
    "heads_width is num_heads × head_dim, pairs is head_dim / 2, rounded up. wq, wk, wv and wo have no batch axes.",
    "query_width is num_heads × head_dim, key_width kv_heads × head_dim, values_width kv_heads × value_dim, and "
    "joined_width num_heads × value_dim.",
)


def signature(operation: Operation) -> str:
    """Return how an operation is called, and what it returns, as one line of code."""
    required = [name for name in operation.parameters if name not in operation.options]
    options = ["*", *(f"{name}=None" for name in operation.options)] if operation.options else []
    return f"{operation.name}({', '.join([*required, *options])}) -> {', '.join(operation.outputs)}"


def summary(operation: Operation) -> str:
    """Return a sentence that says what an operation computes: the first words of its oracle's
    docstring.
    """
    paragraph = " ".join((operation.oracle.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"[.:;](?:\s|$)", paragraph)[0]


def shapes(operation: Operation) -> dict[str, str]:
    """Return the names of the parameters and results that are arrays, by their shape. A convention
    says the shape of scales of quantised arrays.
    """
    by_shape: dict[str, list[str]] = {}
    for name in (*operation.parameters, *operation.outputs):
        if name in QUANTISED:
            by_shape.setdefault("by scale_shape", []).append(name)
        elif name in operation.axes:
            axes = ["…" if axis == BATCH else axis for axis in operation.axes[name]]
            comma = "," if len(axes) == 1 and axes != ["…"] else ""
            by_shape.setdefault(f"({', '.join(axes)}{comma})", []).append(name)
    return {shape: ", ".join(names) for shape, names in by_shape.items()}


def readings(name: str) -> tuple[Any, ...]:
    """Return the values that a convention may have, the default first. If the convention is a
    number, return only the default.
    """
    (field,) = (field for field in fields(Conventions) if field.name == name)
    return (field.default, *(value for value in get_args(field.type) if value != field.default))


def _convention(name: str) -> str:
    return f"{name}={'|'.join(map(str, readings(name)))}"


def print_operations(console: Console) -> None:
    """Print all operations."""
    for operation in OPERATIONS.values():
        _print_operation(console, operation)
        console.print()
    for note in _NOTES:
        console.print(note, highlight=False)
    console.print(f"{len(OPERATIONS)} operations; `attnspec new FILE` writes an adapter to fill in.", highlight=False)


def print_page(console: Console, operation: Operation) -> None:
    """Print an operation, its laws and its known bugs."""
    _print_operation(console, operation)
    console.print()
    for note in _NOTES:
        console.print(note, highlight=False)
    for title, names in (
        ("laws", [law.name for law in LAWS if law.operation == operation.name]),
        ("known bugs", [bug.id for bug in CATALOGUE.values() if operation.name in bug.mutants]),
    ):
        console.print()
        console.print(Text(title, style="bold underline"))
        for name in names:
            console.print(f"  {name}", highlight=False, markup=False)


def _print_operation(console: Console, operation: Operation) -> None:
    """Print the signature of an operation, what it computes, its shapes, and its conventions."""
    console.print(Text(signature(operation), style="bold"), soft_wrap=True)
    arrays = "  ".join(f"{names} {shape}" for shape, names in shapes(operation).items())
    for line in (f"{summary(operation)}.", arrays, ", ".join(map(_convention, operation.conventions))):
        if line:
            shown = Padding(Text(line), (0, 0, 0, 4), expand=False) if console.is_terminal else Text(f"    {line}")
            console.print(shown, soft_wrap=not console.is_terminal)


def markdown() -> str:
    """Return the text of the page docs/guide/operations.md."""
    conventions = [f"- `{_convention(field.name)}`" for field in fields(Conventions)]
    return "\n".join(
        [
            *("# Operations", "", "`attnspec operations --markdown` writes this page."),
            *("", *(f"- {note}" for note in _NOTES), ""),
            *("| operation | what it is | shapes | conventions |", "|---|---|---|---|"),
            *(_row(operation) for operation in OPERATIONS.values()),
            "",
            "Conventions are fields of `oracles.Conventions`, or `--convention NAME=VALUE`. The first value is the "
            "default:",
            *("", *conventions, ""),
        ]
    )


def _row(operation: Operation) -> str:
    arrays = "; ".join(f"{names} `{shape}`" for shape, names in shapes(operation).items())
    conventions = ", ".join(f"`{name}`" for name in operation.conventions)
    return f"| `{signature(operation)}` | {_cell(summary(operation))} | {arrays} | {conventions} |"


def _cell(text: str) -> str:
    return re.sub(r"([|*_])", r"\\\1", text)
