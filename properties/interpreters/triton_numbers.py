"""Gives Triton's interpreter the narrow numbers that a GPU has: bfloat16, and two types of 8 bits.

The interpreter of Triton 3.9 keeps bfloat16 as whole numbers. It adds and multiplies their bits, and
its casts truncate. Here a narrow tensor is an array of ml_dtypes' numbers instead:

- A sum, difference, product or quotient is computed in binary32 and rounded to nearest, ties to
  even. With significands of p bits this equals one rounding of the exact result if 24 ≥ 2p + 2
  (Figueroa, 1995): p is 8 for bfloat16, and 11 for float16, whose arithmetic NumPy has.
- A cast rounds to nearest, ties to even, as `cvt.rn` does, unless the kernel asks for truncation.
  Numbers beyond the range of a type of 8 bits become its largest number, as by `cvt.rn.satfinite`.
- A matrix product has operands in binary32. A product of two bfloat16, two float16 or two numbers of 8
  bits has at most 22 significant bits, so it is exact unless it underflows. Sums are in binary32.
- A matrix product of float32 with input_precision="tf32", Triton's default, omits the last 13 bits of
  its operands, as tensor cores do (PTX ISA, `mma` with .tf32).

Differences from a GPU: sums have the order of NumPy, tensor cores may truncate sums, `tl.sum` of
float16 keeps binary32 in between, and functions such as exp2 are NumPy's.
"""

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["widen"]

_BFLOAT16, _E4M3, _E5M2 = (np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"))
_NARROW = _BFLOAT16, _E4M3, _E5M2
_MOST = {_E4M3: 448.0, _E5M2: 57344.0}  # their largest numbers
_TF32_BITS = np.uint32(0xFFFFE000)  # the sign, 8 bits of the exponent, and 10 of the significand


def widen() -> None:
    """Replace the arithmetic of narrow numbers in the interpreter."""
    import triton.language as tl
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    usual_dtype, usual_dot = interpreter._get_np_dtype, builder.create_dot
    usual_conversion, memory = builder.create_fp_to_fp, interpreter._interpreter
    usual_load, usual_store = memory.load, memory.store
    narrow = {tl.bfloat16: _BFLOAT16, tl.float8e4nv: _E4M3, tl.float8e5: _E5M2}

    def dtype(kind: Any) -> Any:
        return usual_dtype(kind) if isinstance(kind, tl.pointer_type) else narrow.get(kind.scalar) or usual_dtype(kind)

    def load(pointers: Any, mask: Any, other: Any, kind: Any) -> Any:
        return usual_load(pointers, mask, _bits(other), _whole(kind)).view(kind)

    def store(pointers: Any, data: Any, mask: Any) -> Any:
        return usual_store(pointers, _bits(data), mask)

    def cast(self: Any, source: Any, kind: Any) -> Any:
        data, target = source.data, dtype(kind)
        if most := _MOST.get(target):
            data = np.clip(data.astype(np.float32), -most, most)
        return handle(data.astype(target), kind.scalar)

    def convert(self: Any, source: Any, kind: Any, rounding: Any) -> Any:
        truncates = rounding == ir.ROUNDING_MODE.RTZ
        return usual_conversion(self, source, kind, rounding) if truncates else cast(self, source, kind)

    def dot(self: Any, a: Any, b: Any, total: Any, precision: Any, *rest: Any) -> Any:
        rounds = precision == ir.INPUT_PRECISION.TF32 and a.dtype == b.dtype == tl.float32
        wide = (
            handle(_operand(x.data, rounds), tl.float32) if rounds or x.data.dtype in _NARROW else x for x in (a, b)
        )
        return usual_dot(self, *wide, total, precision, *rest)

    interpreter._get_np_dtype, memory.load, memory.store = dtype, load, store
    builder.cast_impl, builder.create_fp_to_fp, builder.create_dot = cast, convert, dot


def _whole(kind: Any) -> Any:
    """Return the type of whole numbers that the interpreter moves instead of a type of ml_dtypes."""
    return np.dtype(f"u{kind.itemsize}") if kind in _NARROW else kind


def _bits(data: Any) -> Any:
    """Return an array of narrow numbers as whole numbers with the same bits."""
    return np.ascontiguousarray(data).view(_whole(data.dtype))


def _operand(data: Any, is_tf32: bool) -> Any:
    """Return an operand of a matrix product in binary32, for TF32 without its last bits."""
    data = data.astype(np.float32)
    return (data.view(np.uint32) & _TF32_BITS).view(np.float32) if is_tf32 else data
