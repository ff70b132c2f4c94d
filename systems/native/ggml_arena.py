"""ggml through ctypes. An arena holds the tensors of one call, which are copies of NumPy's arrays.

ggml allocates every tensor in an arena, describes the operators as a graph, and then computes the
graph. A shape has at most four sizes, the last axis of NumPy's array first. ggml checks shapes by
assertions that end the process, so adapters declare `outside="undefined"`.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems.native.recipes import GGML

__all__ = ["Arena"]

os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # ggml would start a debugger before it ends the process

Array = NDArray[Any]
_SIZE = 2**28  # bytes: memory that no tensor uses is never touched
_KINDS = {"float32": 0, "float16": 1, "q8_0": 8, "int32": 26}
_BLOCK = 32  # numbers of q8_0 that share a scale
_SIGNATURES = {
    "ggml_mul_mat": "TT",
    "ggml_soft_max_ext": "TTff",
    "ggml_flash_attn_ext": "TTTTfff",
    "ggml_rope_ext": "TTTiiiffffff",
    "ggml_rope_ext_back": "TTTiiiffffff",
    "ggml_rope_multi": "TTTiSiiffffff",
    "ggml_rope_multi_back": "TTTiSiiffffff",
}
"""The parameters of each operator after the arena: a tensor T, a float f, an int i, four ints S."""
_TYPES: dict[str, Any] = {"T": ctypes.c_void_p, "f": ctypes.c_float, "i": ctypes.c_int, "S": ctypes.c_int * 4}


class _Memory(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


@cache
def _library() -> Any:
    """ggml's functions, with the types of their arguments and results."""
    pointer, integer, numbers = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)
    base, cpu = (ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL) for file in GGML)
    types: dict[str, tuple[Any, ...]] = {
        name: (pointer, *map(_TYPES.__getitem__, letters)) for name, letters in _SIGNATURES.items()
    }
    types |= {
        "ggml_init": (_Memory,),
        "ggml_new_tensor": (pointer, integer, integer, numbers),
        "ggml_get_data": (pointer,),
        "ggml_new_graph": (pointer,),
        "ggml_build_forward_expand": (pointer, pointer),
        "ggml_soft_max_add_sinks": (pointer, pointer),
        "ggml_flash_attn_ext_add_sinks": (pointer, pointer),
        "ggml_quantize_chunk": (integer, pointer, pointer, *3 * (ctypes.c_int64,), pointer),
        "ggml_free": (pointer,),
    }
    for name, arguments in types.items():
        function = getattr(base, name)
        function.argtypes, function.restype = arguments, pointer
    cpu.ggml_graph_compute_with_ctx.argtypes = (pointer, pointer, integer)
    base.compute = cpu.ggml_graph_compute_with_ctx  # type: ignore[attr-defined]
    cpu.ggml_cpu_init()  # it fills the tables of float16
    return base


class Arena:
    """The memory of one call: `tensor` copies an array into it, `apply` adds an operator to the graph,
    and `computed` returns the result of the last operator.
    """

    def __init__(self) -> None:
        self._library = _library()
        self._arena = self._library.ggml_init(_Memory(_SIZE, None, False))

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *error: object) -> None:
        self._library.ggml_free(self._arena)

    def tensor(self, x: Array | None, kind: str | None = None) -> Any:
        """A tensor with the numbers of an array, which may be quantised as `kind`; None for None."""
        if x is None:
            return None
        x = np.ascontiguousarray(x)
        tensor = self._library.ggml_new_tensor(
            self._arena, _KINDS[kind or x.dtype.name], x.ndim, (ctypes.c_int64 * x.ndim)(*reversed(x.shape))
        )
        place = self._library.ggml_get_data(tensor)
        if kind:
            x = x.astype(np.float32)
            rows = (0, x.size // x.shape[-1], x.shape[-1])
            self._library.ggml_quantize_chunk(_KINDS[kind], x.ctypes.data, place, *rows, None)
        else:
            ctypes.memmove(place, x.ctypes.data, x.nbytes)
        return tensor

    def apply(self, operator: str, *arguments: Any) -> Any:
        """The tensor of an operator's result, which is not computed yet."""
        given = [_TYPES["S"](*one) if isinstance(one, Sequence) else one for one in arguments]
        return getattr(self._library, operator)(self._arena, *given)

    def add_sinks(self, operator: str, tensor: Any, sinks: Array | None) -> None:
        """Give the sinks of all heads to a softmax or to flash attention."""
        if sinks is not None:
            getattr(self._library, f"{operator}_add_sinks")(tensor, self.tensor(sinks.astype(np.float32)))

    def computed(self, tensor: Any, shape: Sequence[int], threads: int, dtype: Any = np.float32) -> Array:
        """The numbers of a tensor, computed by a number of threads."""
        graph = self._library.ggml_new_graph(self._arena)
        self._library.ggml_build_forward_expand(graph, tensor)
        self._library.compute(self._arena, graph, threads)
        out = np.empty(shape, dtype)
        ctypes.memmove(out.ctypes.data, self._library.ggml_get_data(tensor), out.nbytes)
        return out
