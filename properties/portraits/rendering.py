"""Renders what is printed in a terminal as plain text, and as HTML for a notebook."""

import io
from collections.abc import Callable

from rich.console import Console

__all__ = ["fragment", "text"]

_WIDTH = 100


def text(print_on: Callable[[Console], None]) -> str:
    """Return what a function prints as plain text, without spaces at the ends of lines."""
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
    with console.capture() as captured:
        print_on(console)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def fragment(print_on: Callable[[Console], None]) -> str:
    """Return what a function prints as HTML for a notebook: text in colours."""
    console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_jupyter=False)
    print_on(console)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
