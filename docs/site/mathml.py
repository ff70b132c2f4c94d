"""Equations as MathML, which browsers typeset without a script or a picture."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

__all__ = ["mathml", "setup"]


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def mathml(latex: str, display: str) -> str:
    """An equation as MathML.

    A function's name becomes an identifier: browsers put a space between an operator and its
    argument.
    """
    return re.sub(r"<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>", str(convert(latex, display=display)))


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math" tabindex="0">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode
