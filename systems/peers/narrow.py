"""The arithmetics of PyTorch libraries in 16 bits on the CPU, by the name of the type.

A name that these tables do not have is the name of a preset.
"""

from dataclasses import replace

from oracles import BFLOAT16, BINARY32, FLOAT16, Angle, Arithmetic

__all__ = ["KERNEL", "ROTATION"]

KERNEL: dict[str, Arithmetic] = {"float16": FLOAT16, "bfloat16": replace(BFLOAT16, flush_to_zero=True)}
"""scaled_dot_product_attention in both backends; x86's dot products of bfloat16 flush subnormal numbers to 0."""

_TABLES = Angle(frequency=2.0**-24, product=2.0**-24, table=BINARY32)
ROTATION: dict[str, Arithmetic] = {each.name: replace(each, angle=_TABLES) for each in (FLOAT16, BFLOAT16)}
"""Rotation in float32, with tables of float32, and one rounding at the end."""
