"""Writes certified test vectors as `#eval` checks of TorchLean's definitions over `Float`:
`python lean_checks.py FOLDER > CertifiedVectors.lean`, where FOLDER has the vectors.

A check calls one definition with the inputs of a test. It prints `pass` with the largest error ÷
error limit, or throws at the first entry that is outside, and then `lean` ends with an error. TorchLean
takes one sequence: the check has the first one of a batch. TorchLean's values are as wide as its
queries, so narrower values get columns of zeros.
"""

import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vectors import chosen, inputs, opened

__all__ = ["CALLS", "Call", "lean"]

CONVENTIONS = {"odd_lane": "passthrough"}
"""Where TorchLean differs from the vectors' conventions: the last channel of an odd width stays as it is."""

BOUNDS = "lower", "upper", "budget"

CONTEXT = """
      ({{ Q := q, K := k, V := v, mask := {mask} }} :
        Spec.AttentionContext Float {n_q} {n_k} {head_dim} (by decide) (by decide))"""
HEADS = """
      ({{ queryWeight := wq, keyWeight := wk, valueWeight := wv, outputWeight := wo }} :
        Spec.MultiHeadAttention Float {num_heads} {model_dim} {head_dim})"""
TANGENTS = HEADS.replace(":= w", ":= dw")
ENCODING = """
      ({{ pos := pos }} : Spec.PositionalEncodingSpec {seq_len} {embed_dim} Float)"""


class Call(NamedTuple):
    """The call of an operation in Lean, which part of its result `out` each output is, and the tests.

    The call names arrays of a test. Braces stand for a size, a number, or the mask, which is optional.
    """

    text: str
    outputs: Mapping[str, str]
    tests: str


CALLS = {
    "hard_masked_softmax": Call("hardMaskedSoftmaxSpec scores mask", {"weights": "out"}, "000 001 004"),
    "scaled_dot_product_attention": Call(f"scaledDotProductAttention{CONTEXT}", {"out": "out"}, "001"),
    "scaled_dot_product_attention_vjp": Call(
        f"scaledDotProductAttentionBackward{CONTEXT} grad_out",
        {"dq": "out.1", "dk": "out.2.1", "dv": "out.2.2"},
        "000 001",
    ),
    "scaled_dot_product_attention_jvp": Call(
        f"scaledDotProductAttentionJvp{CONTEXT} dq dk dv", {"dout": "out"}, "000 006"
    ),
    "multi_head_attention": Call(
        f"MultiHeadAttention.forward {{seq_len}} (by decide){HEADS} x {{mask}}", {"out": "out"}, "000 001"
    ),
    "multi_head_attention_vjp": Call(
        f"multiHeadAttentionBackward (by decide){HEADS} x {{mask}} grad_out",
        {
            "dx": "out.input",
            "dwq": "out.parameters.queryWeight",
            "dwk": "out.parameters.keyWeight",
            "dwv": "out.parameters.valueWeight",
            "dwo": "out.parameters.outputWeight",
        },
        "004",
    ),
    "multi_head_attention_jvp": Call(
        f"multiHeadAttentionJvp (by decide){HEADS}{TANGENTS} x dx {{mask}}", {"dout": "out"}, "009"
    ),
    "add_positional_encoding": Call(f"addPositionalEncodingSpec{ENCODING} x", {"out": "out"}, "001"),
    "sinusoidal_positional_encoding": Call(
        "sinusoidalPositionalEncodingSpec (α := Float) {seq_len} {embed_dim} {start_pos}",
        {"encoding": "out"},
        "000 001",
    ),
    "rope": Call("ropeApplySpec x {start_pos}", {"out": "out"}, "001 012"),
}
"""The tests have large scores, fully masked rows, one row, no mask, several heads, far positions and odd widths."""

HEAD = """\
/-
Certified test vectors of attention and positional encodings, as checks of TorchLean's definitions
over `Float`. `lean_checks.py` of attnspec writes this file. The numbers are dedicated to the public
domain (CC0 1.0); the rest has the MIT licence.
-/
import NN.Spec.Layers.Attention
import NN.Spec.Layers.PositionalEncoding

open Spec TorchLean

namespace CertifiedVectors

/-- The matrix with these entries, row by row. An entry is the bits of a number, which are exact. -/
def numbers (rows columns : Nat) (bits : Array UInt64) : Tensor Float [rows, columns] :=
  Tensor.dim fun i => Tensor.dim fun j =>
    Tensor.scalar (Float.ofBits bits[i.val * columns + j.val]!)

/-- The mask with these entries, row by row. True means that the query sees the key. -/
def booleans (rows columns : Nat) (entries : Array Bool) : Tensor Bool [rows, columns] :=
  Tensor.dim fun i => Tensor.dim fun j => Tensor.scalar entries[i.val * columns + j.val]!

/-- Print the largest error ÷ error limit of a result, or throw at the first entry that is outside.

The exact value of an entry is between `lower` and `upper`. Correct code is outside by its limit at
most. -/
def check {rows columns : Nat} (name : String) (out : Tensor Float [rows, columns])
    (lower upper limits : Array UInt64) : IO Unit := do
  let mut largest : Float := 0
  for i in List.finRange rows do
    for j in List.finRange columns do
      let index := i.val * columns + j.val
      let entry := Tensor.getScalar (Tensor.unstack out i) j
      let low := Float.ofBits lower[index]!
      let high := Float.ofBits upper[index]!
      let limit := Float.ofBits limits[index]!
      let distance := max (low - entry) (entry - high)
      unless low - limit ≤ entry ∧ entry ≤ high + limit do
        throw <| IO.userError <| s!"fail {name}[{i.val}, {j.val}] = {entry}: " ++
          s!"the distance from [{low}, {high}] is {distance}, but should be at most {limit}"
      if distance > 0 then
        largest := max largest (distance / limit)
  IO.println s!"pass {name}: the largest error is {largest} of its limit"
"""


@dataclass
class Test:
    """A test of the vectors: its comment, its numbers, and its arrays with the names of their axes.

    The arrays are the inputs, and `OUTPUT.lower`, `OUTPUT.upper` and `OUTPUT.budget`: the bounds of
    the exact value of an output, and its error limit.
    """

    comment: str
    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray]
    axes: dict[str, list[str]]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis. The axis of an array may have the size 1, and a mask may lack an axis."""
        sizes: dict[str, int] = {}
        for name, x in self.arrays.items():
            for axis, size in zip(reversed(self.axes[name]), reversed(x.shape), strict=False):
                sizes[axis] = max(size, sizes.get(axis, 0))
        return sizes

    @property
    def matrices(self) -> dict[str, np.ndarray]:
        """The arrays of the first sequence of the batch, with all their rows and columns."""
        sizes = self.sizes
        shapes = {name: tuple(sizes[axis] for axis in self.axes[name][-2:]) for name in self.arrays}
        first = {name: x.reshape(-1, *x.shape[-2:])[0] if x.ndim > 2 else x for name, x in self.arrays.items()}
        return {name: np.broadcast_to(x, shapes[name]) for name, x in first.items()}


def read(identifier: str, folder: Path) -> Test:
    """Return a test of the vectors in a folder. Its values are as wide as its queries."""
    told, known = opened(folder / f"{identifier.partition('/')[0]}.json")
    group, test = next((group, test) for group in told["groups"] for test in group["tests"] if test["id"] == identifier)
    reading, _ = chosen(group, test, CONVENTIONS)
    axes, found = dict(told["inputs"]), inputs(test, known, "float64")
    for output, parts in reading["outputs"].items():
        axes |= {f"{output}.{bound}": told["outputs"][output] for bound in BOUNDS}
        found |= {f"{output}.{bound}": known[parts[bound]].astype(float) for bound in BOUNDS}
    for name, x in found.items():
        if axes[name] and axes[name][-1] == "value_dim":
            missing = found["q"].shape[-1] - x.shape[-1]
            found[name] = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    arrays = {name: x for name, x in found.items() if axes[name]}
    return Test(test["comment"], {name: x for name, x in found.items() if name not in arrays}, arrays, axes)


def entries(x: np.ndarray) -> str:
    """Return the entries of a matrix in Lean, row by row: a number as its bits."""
    flat = np.ravel(x)
    words = [str(e).lower() for e in flat] if x.dtype == bool else [f"0x{e:x}" for e in flat.view("<u8")]
    return f"#[{', '.join(words)}]"


def broken(line: str) -> str:
    """Return a line of a check, broken at 100 columns."""
    return textwrap.fill(line, 100, initial_indent="  ", subsequent_indent="    ")


def checks(identifier: str, call: Call, folder: Path) -> Iterator[str]:
    """Yield the lines of a test: its inputs, the call, and a check for each output."""
    test = read(identifier, folder)
    values = test.sizes | test.numbers | {"mask": "(some mask)" if "mask" in test.arrays else "none"}
    if "num_heads" in values:
        values["head_dim"] = values["heads_width"] // values["num_heads"]
        values["heads_width"] = f"({values['num_heads']} * {values['head_dim']})"
    matrices = test.matrices
    yield f"\n-- {test.comment.partition('. ')[0]}.\n#eval show IO Unit from do"
    for name, x in matrices.items():
        if "." not in name:
            kind = "booleans" if x.dtype == bool else "numbers"
            rows, columns = (values[axis] for axis in test.axes[name][-2:])
            yield broken(f"let {name} := {kind} {rows} {columns} {entries(x)}")
    yield f"  let out := Spec.{call.text.format(**values)}"
    for output, part in call.outputs.items():
        yield broken(f'check "{identifier} {output}" {part}')
        yield from (broken(f"  {entries(matrices[f'{output}.{bound}'])}") for bound in BOUNDS)


def lean(folder: Path) -> str:
    """Return the Lean file with the checks of all tests."""
    identifiers = [(f"{name}/float64/{test}", call) for name, call in CALLS.items() for test in call.tests.split()]
    lines = [line for identifier, call in identifiers for line in checks(identifier, call, folder)]
    return "\n".join([HEAD.rstrip(), *lines, "", "end CertifiedVectors", ""])


if __name__ == "__main__":
    print(lean(Path(sys.argv[1])), end="")
