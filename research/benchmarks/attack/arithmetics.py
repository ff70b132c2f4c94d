"""The arithmetics that are attacked: every preset, and single fields that no preset has."""

from dataclasses import replace

from oracles import Arithmetic
from oracles.formats import BINARY16, BRAIN16, PRESETS, preset

__all__ = ["ARITHMETICS", "FEATURED"]


def _also(name: str, what: str, **fields: object) -> Arithmetic:
    base = next(arithmetic for arithmetic in PRESETS if arithmetic.name == name)
    return replace(base, name=f"{name}, {what}", **fields)  # type: ignore[arg-type]


_SUFFIXED = (
    "float16-stored-gradients-fast-exponential",
    "bfloat16-fast-exponential",
    "bfloat16-tensor-core-flash",
    "bfloat16-tensor-core-flash-flushing",
    "bfloat16-eager-stored-differences",
    "float16-stored-parts",
    "bfloat16-stored-parts",
    "float32-float16-bias",
)

ARITHMETICS = {
    a.name: a
    for a in (
        *PRESETS,
        *(_also(name, "a rescaling for each key", rescale_block=1) for name in ("float64", "float32", "bfloat16")),
        *(_also(name, "no rescaling", rescale_block=None) for name in ("float32", "float16")),
        *(_also(name, "one pass", shared_weights=True) for name in ("float32", "bfloat16")),
        *(_also(name, "one pass, no rescaling", shared_weights=True, rescale_block=None)
          for name in ("float64", "float32")),
        *(_also("float32", f"delta of {of}", delta=of) for of in ("output", "weights")),
        *(_also("float32", f"blocks of {n}", sum_block=n) for n in (8, 64)),
        _also("float32", "one pass, blocks of 16, no rescaling, delta of weights",
              shared_weights=True, sum_block=16, rescale_block=None, delta="weights"),
        _also("float32", "flushing", flush_to_zero=True),
        _also("bfloat16", "flushing", flush_to_zero=True),
        _also("bfloat16", "saved in 16 bits", saved_lse=BRAIN16, saved_weights=BRAIN16, grad_weights=BRAIN16),
        _also("float16", "scores stored", scores=BINARY16),
        *map(preset, _SUFFIXED),
    )
}  # fmt: skip
"""Every preset, presets with suffixes, and single fields that no preset has."""

FEATURED = (
    *(a.name for a in PRESETS),
    "bfloat16, a rescaling for each key",
    "float32, one pass, no rescaling",
    "float32, flushing",
    "float16, scores stored",
    *_SUFFIXED,
)
"""Those that attention is attacked in with features: the others differ in what features have no part in."""
