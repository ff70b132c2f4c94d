"""The operations as a table: how each is called, of which shapes, and which conventions change it.
In a terminal, and as Markdown.
"""

import re
from dataclasses import fields
from typing import Any, get_args

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from oracles import Conventions
from properties.bugs import CATALOGUE
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.laws import LAWS

__all__ = ["markdown", "print_operations", "print_page", "readings", "shapes", "signature", "summary"]

_NOTES = (
    "Functions are called by position, as written. … stands for any number of leading batch axes, the same for all arrays.",
    "A mask is boolean and broadcasts: any of its axes may have size 1, and leading ones may be missing. mask=None allows everything.",
    'Arguments after * are passed by keyword, and only those that an implementation declares: features=["bias", "window"], for instance.',
    "Sizes and positions are whole numbers; start_pos is the position of the first row. causal_mask gets n_k=None for n_k = n_q.",
    "decode is offered as a class, Cache(d, d_v, window=None, capacity=None) with append(k, v) and attend(q); steps lists such calls.",
    "heads_width is num_heads × head_dim, pairs is head_dim / 2, rounded up. wq, wk, wv and wo have no batch axes.",
)


def signature(o: Operation) -> str:
    """How an operation is called, and what it returns."""
    options = ["*", *(f"{p}=None" for p in o.options)] if o.options else []
    return (
        f"{o.name}({', '.join([*(p for p in o.parameters if p not in o.options), *options])}) -> {', '.join(o.outputs)}"
    )


def summary(o: Operation) -> str:
    """What an operation is, in the words of its oracle."""
    paragraph = " ".join((o.oracle.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r", enclosed|[.:;](?:\s|$)", paragraph)[0]


def shapes(o: Operation) -> dict[str, str]:
    """The names of the parameters and results that are arrays, by their shape."""
    found: dict[str, list[str]] = {}
    for name in (*o.parameters, *o.outputs):
        if name in o.axes:
            axes = ["…" if axis == BATCH else axis for axis in o.axes[name]]
            found.setdefault(f"({', '.join(axes)}{',' * (len(axes) == 1 and axes != ['…'])})", []).append(name)
    return {shape: ", ".join(names) for shape, names in found.items()}


def readings(name: str) -> tuple[Any, ...]:
    """The values that a convention may have, the one that holds unless another is declared first;
    of a number that one alone.
    """
    (field,) = (field for field in fields(Conventions) if field.name == name)
    return (field.default, *(value for value in get_args(field.type) if value != field.default))


def _convention(name: str) -> str:
    return f"{name}={'|'.join(map(str, readings(name)))}"


def print_operations(console: Console) -> None:
    """All operations."""
    for o in OPERATIONS.values():
        _print_operation(console, o)
        console.print()
    for note in _NOTES:
        console.print(note, highlight=False)
    console.print(f"{len(OPERATIONS)} operations; `attnspec new FILE` writes an adapter to fill in.", highlight=False)


def print_page(console: Console, o: Operation) -> None:
    """An operation, its laws and its known bugs."""
    _print_operation(console, o)
    console.print()
    for note in _NOTES:
        console.print(note, highlight=False)
    for title, names in (
        ("laws", [law.name for law in LAWS if law.operation == o.name]),
        ("known bugs", [bug.id for bug in CATALOGUE.values() if o.name in bug.mutants]),
    ):
        console.print()
        console.print(Text(title, style="bold underline"))
        for name in names:
            console.print(f"  {name}", highlight=False, markup=False)


def _print_operation(console: Console, o: Operation) -> None:
    """An operation: its signature, what it is, its shapes, and its conventions."""
    console.print(Text(signature(o), style="bold"), soft_wrap=True)
    arrays = "  ".join(f"{names} {shape}" for shape, names in shapes(o).items())
    for line in (f"{summary(o)}.", arrays, ", ".join(map(_convention, o.conventions))):
        if line:
            shown = Padding(Text(line), (0, 0, 0, 4), expand=False) if console.is_terminal else Text(f"    {line}")
            console.print(shown, soft_wrap=not console.is_terminal)


def markdown() -> str:
    """The page docs/guide/operations.md."""
    rows = [
        f"| `{signature(o)}` | {_cell(summary(o))} | {'; '.join(f'{names} `{shape}`' for shape, names in shapes(o).items())} "
        f"| {', '.join(f'`{name}`' for name in o.conventions)} |"
        for o in OPERATIONS.values()
    ]
    conventions = [f"- `{_convention(field.name)}`" for field in fields(Conventions)]
    return "\n".join(
        [
            *("# Operations", "", "`attnspec operations --markdown` writes this page."),
            *("", *(f"- {note}" for note in _NOTES), ""),
            *("| operation | what it is | shapes | conventions |", "|---|---|---|---|", *rows, ""),
            "Conventions are fields of `oracles.Conventions`, or `--convention NAME=VALUE`. The first value holds where none is declared:",
            *("", *conventions, ""),
        ]
    )


def _cell(text: str) -> str:
    return re.sub(r"([|*_])", r"\\\1", text)
