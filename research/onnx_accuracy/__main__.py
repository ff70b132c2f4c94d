"""Writes the tables of vectors/onnx/accuracy.md: `python -m research.onnx_accuracy`."""

import re
from collections.abc import Iterator

from oracles import Enclosure
from research.onnx_accuracy.bounds import EXACT_ROOTS, FORMATS, Row, propagated
from research.onnx_accuracy.measured import Problem, Shape, constructed, largest, root_of_scale
from research.stamp import ROOT

__all__ = ["PAGE", "tables"]

PAGE = ROOT / "vectors/onnx/accuracy.md"
SHAPES = (Shape(128, 128, 64), Shape(256, 256, 64, True), Shape(1, 4096, 128), Shape(64, 512, 256))
TYPES = (("float", None), ("float16", None), ("float16", "float"), ("bfloat16", "float"), ("double", None))
"""T1 and softmax_precision."""


def _propagated() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of propagated errors: each input is off by one rounding."""
    for shape in SHAPES:
        for t1 in ("float", "bfloat16"):
            given, u = Problem(shape, t1), FORMATS[t1].unit_roundoff
            off = [(row, Row(*(u * x for x in row.sizes))) for row in given.rows()]
            bounds = largest(given.scale, [(row, propagated(given.scale, row, error)) for row, error in off])
            numbers = (max(constructed(given.scale, *both) for both in off), *bounds)
            yield (str(shape), f"`{t1}`", *map(_number, numbers))


def _introduced() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of introduced errors. The table of scales has the rest of double."""
    for shape in SHAPES:
        for t1, softmax_precision in TYPES:
            if t1 != "double" or shape.d in EXACT_ROOTS:
                given = Problem(shape, t1, softmax_precision)
                errors = map(_number, (given.certified.rad.max(), given.error))
                words = (str(shape), f"`{t1}`", f"`{softmax_precision or t1}`")
                yield (*words, *errors, _limit(given.limit), *map(_number, given.bounds))


def _scales() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table of scales in double."""
    for d in (64, 128, 256):
        given = Problem(Shape(64, 128, d), "double")
        of_scale = abs(float(root_of_scale(d)) ** 2 / given.scale - 1)
        yield (str(d), _number(of_scale), _number(given.error), _limit(given.limit), _number(given.bounds[0]))


def _number(x: float) -> str:
    return f"{x:.1e}"


def _limit(limit: Enclosure) -> str:
    return _number(limit.rad.max()) + ", vacuous" * limit.vacuous


_TABLES = {
    "queries × keys × head size | inputs in | constructed error | bound (2) | bound (1)": _propagated,
    "queries × keys × head size | T1 | softmax in | certified radius | measured error | error limit | bound (2) | "
    "bound (1)": _introduced,
    "head size | error of the scale | measured error | limit of `float64` | bound (2)": _scales,
}


def tables() -> Iterator[tuple[str, str]]:
    """Yield the head of each table of the page, and its rows."""
    for head, rows in _TABLES.items():
        yield f"| {head} |\n", "".join(f"| {' | '.join(cells)} |\n" for cells in rows())


def main() -> None:
    """Write the tables into the page."""
    page = PAGE.read_text("utf-8")
    for head, rows in tables():
        shown = re.search(re.escape(head) + r"(\|[-: |]+\|\n)(?:\|.*\n)*", page)
        assert shown is not None, head
        page = page.replace(shown[0], head + shown[1] + rows)
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
