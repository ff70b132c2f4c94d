"""What libraries over PyTorch round in 16 bits on the CPU, by the name of the type; any other name is a preset's."""

from dataclasses import replace

from oracles import BFLOAT16, BINARY32, FLOAT16, Angle, Arithmetic

__all__ = ["KERNEL", "ROTATION"]

KERNEL: dict[str, Arithmetic] = {"float16": FLOAT16, "bfloat16": replace(BFLOAT16, flush_to_zero=True)}
"""scaled_dot_product_attention, by either backend: in bfloat16 x86's dot products take subnormal numbers for 0."""

_TABLES = Angle(frequency=2.0**-24, product=2.0**-24, table=BINARY32)
ROTATION: dict[str, Arithmetic] = {each.name: replace(each, angle=_TABLES) for each in (FLOAT16, BFLOAT16)}
"""Rows that are rotated in float32, by tables of float32, and rounded once at the end."""
