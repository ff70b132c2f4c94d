"""Cases of ONNX's Attention and RotaryEmbedding with certified results, for runtimes that load ONNX's
node tests.

`cases.json` has a row for each case, `cases.safetensors` the arrays, and `materialise.py` beside them
writes the folders of node tests. Inputs are on a grid, and so told that a wrong mask, scale or head is
off by a tenth and more, while error limits are below a thousandth, or below a hundredth in float16.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.operations import OPERATIONS
from properties.vectors.container import packed
from properties.vectors.expectation import Expected, expected, tolerances
from properties.vectors.formulas import Formula

__all__ = ["CASES", "Attention", "Rotary", "write_onnx"]

_BATCH, _N = 2, 6
Arrays = dict[str, Any]
_ARITHMETICS = {"float32": "float32", "float16": "float16-elementwise"}


def _certified(operation: str, given: Mapping[str, Any], dtype: str, conventions: Conventions) -> Expected:
    """The first result of a call in the arithmetic of a dtype: ONNX's text rounds each step."""
    of = OPERATIONS[operation]
    arguments = tuple(given.get(parameter) for parameter in of.parameters)
    return expected(of, arguments, _ARITHMETICS[dtype], conventions)[0]


def _written(x: Any, dtype: str, packs_heads: bool) -> Any:
    """An array (batch, heads, rows, width) as ONNX has it: with three axes, the heads are in the last one."""
    return np.ascontiguousarray(
        (np.swapaxes(x, 1, 2).reshape(len(x), x.shape[2], -1) if packs_heads else x).astype(dtype)
    )


@dataclass(frozen=True)
class Attention:
    """A case of Attention: our arguments by keyword, and the ONNX attributes that mean the same.

    n_k, value_dim   the number of keys and the width of the values; 6 and 8 by default
    past             how many of the keys are in the cache
    lengths          how many keys of each element of the batch are no padding
    packs_heads      whether arrays have three axes
    """

    name: str
    heads: int = 2
    kv_heads: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opsets: tuple[int, ...] = (23, 24, 25)
    n_k: int = _N
    value_dim: int = 8
    past: int = 0
    lengths: tuple[int, ...] = ()
    packs_heads: bool = False
    operator = "Attention"
    dtype = "float32"  # in 16 bits the limits of ONNX's text are as wide as the mistakes

    @property
    def folder(self) -> str:
        """The name of the folder, without the opset."""
        return f"test_attention_{3 if self.packs_heads else 4}d_{self.name}_certified"

    @property
    def all_attributes(self) -> Mapping[str, Any]:
        """The attributes of the node."""
        heads = {"q_num_heads": self.heads, "kv_num_heads": self.kv_heads} if self.packs_heads else {}
        return {**self.attributes, **heads}

    def arrays(self) -> Arrays:
        """Q, K and V with the heads before the rows, where all keys are."""
        shapes = {
            "Q": (self.heads, _N, 8),
            "K": (self.kv_heads, self.n_k, 8),
            "V": (self.kv_heads, self.n_k, self.value_dim),
        }
        factors = {"Q": (17, 29, 3), "K": (59, 31, 7), "V": (71, 13, 11)}
        made = {name: Formula((_BATCH, *shape), factors[name]).array() for name, shape in shapes.items()}
        return {**made, "Q": made["Q"] / 8}

    def inputs(self) -> Arrays:
        """The inputs of the node, in its order; an absent one is None."""
        written = {name: _written(x, self.dtype, self.packs_heads) for name, x in self.arrays().items()}
        mask = self.options.get("mask", self.options.get("bias"))
        written["attn_mask"] = mask if mask is None or mask.dtype == bool else mask.astype(self.dtype)
        past: Arrays = {"past_key": None, "past_value": None}
        if self.past:
            for name, cache in (("K", "past_key"), ("V", "past_value")):
                x = self.arrays()[name].astype(self.dtype)
                past[cache], rest = np.ascontiguousarray(x[:, :, : self.past]), x[:, :, self.past :]
                written[name] = _written(rest, self.dtype, self.packs_heads)
        return {**written, **past, "nonpad_kv_seqlen": np.array(self.lengths, np.int64) if self.lengths else None}

    def expected(self) -> Expected:
        """The certified output, with the heads before the rows."""
        x = self.arrays()
        given = {"q": x["Q"], "k": x["K"], "v": x["V"]}
        given |= {name: value.astype(float) if name == "bias" else value for name, value in self.options.items()}
        if self.lengths:
            given["mask"] = np.arange(self.n_k) < np.array(self.lengths)[:, None, None, None]
        return _certified("attention", given, self.dtype, Conventions())

    def outputs(self, wanted: Expected) -> Arrays:
        """The outputs of the node: with a cache, the keys and values that follow it too."""
        found = {"Y": _written(wanted.value, self.dtype, self.packs_heads)}
        cache = {"present_key": "K", "present_value": "V"} if self.past else {}
        return found | {name: self.arrays()[source].astype(self.dtype) for name, source in cache.items()}


@dataclass(frozen=True)
class Rotary:
    """A case of RotaryEmbedding.

    rotates          how many channels of a row rotate
    has_positions    whether the tables have a row for each position, which position_ids choose;
                     otherwise they have the rows of each element of the batch
    late             how much later all positions are, for a wrong case
    """

    is_interleaved: bool
    rotates: int = 8
    has_positions: bool = True
    packs_heads: bool = False
    dtype: str = "float32"
    late: int = 0
    opsets = (23, 24, 25)
    operator = "RotaryEmbedding"

    @property
    def folder(self) -> str:
        """The name of the folder, without the opset."""
        words = ["interleaved"] * self.is_interleaved + ["partial"] * (self.rotates < 8)
        words += ["no_position_ids"] * (not self.has_positions) + ["fp16"] * (self.dtype == "float16")
        axes = f"{3 if self.packs_heads else 4}d"
        return "_".join(["test_rotary_embedding", axes, *words, "certified"])

    @property
    def all_attributes(self) -> Mapping[str, Any]:
        """The attributes of the node."""
        heads = {"num_heads": 3} if self.packs_heads else {}
        partial = {"rotary_embedding_dim": self.rotates} if self.rotates < 8 else {}
        return {"interleaved": int(self.is_interleaved), **partial, **heads}

    def arrays(self) -> Arrays:
        """X with the heads before the rows, the positions of its rows, and tables with a row for each position."""
        angles = np.arange(16)[:, None] * 4.0 ** -np.arange(self.rotates // 2)
        positions = np.array([np.arange(_N), 3 + 2 * np.arange(_N)])
        tables = {"cos": np.cos(angles).astype(self.dtype), "sin": np.sin(angles).astype(self.dtype)}
        return {"X": Formula((_BATCH, 3, _N, 8), (17, 29, 3)).array(), "at": positions + self.late, **tables}

    def inputs(self) -> Arrays:
        """The inputs of the node, in its order; an absent one is None."""
        x = self.arrays()
        tables = {f"{name}_cache": x[name] if self.has_positions else x[name][x["at"]] for name in ("cos", "sin")}
        ids = x["at"].astype(np.int64) if self.has_positions else None
        return {"X": _written(x["X"], self.dtype, self.packs_heads), **tables, "position_ids": ids}

    def expected(self) -> Expected:
        """The certified output, with the heads before the rows; the other channels are copied."""
        x, conventions = self.arrays(), Conventions(rope_pairing="adjacent" if self.is_interleaved else "half")
        found = []
        for rows, at in zip(x["X"], x["at"], strict=True):
            tables = {name: self._columns(x[name][at].astype(float)) for name in ("cos", "sin")}
            rotated = _certified("apply_rotary", {"x": rows[..., : self.rotates], **tables}, self.dtype, conventions)
            found.append(_followed_by(rotated, rows[..., self.rotates :]))
        parts: Arrays = {part: np.stack([getattr(of, part) for of in found]) for part in _PARTS}
        return replace(found[0], **parts, vacuous=any(of.vacuous for of in found))

    def _columns(self, table: Any) -> Any:
        """A table with a column for each channel, where ONNX has one for each pair."""
        return np.repeat(table, 2, -1) if self.is_interleaved else np.concatenate([table, table], -1)

    def outputs(self, wanted: Expected) -> Arrays:
        """The output of the node."""
        return {"Y": _written(wanted.value, self.dtype, self.packs_heads)}


_PARTS = tuple(part.name for part in fields(Expected) if part.name not in ("name", "format", "vacuous"))


def _followed_by(of: Expected, copied: Any) -> Expected:
    """A result with further channels that are copies."""
    exact = {"lower": copied, "upper": copied, "value": copied, "budget": 0.0 * copied, "decided": copied == copied}
    parts: Arrays = {part: np.concatenate([getattr(of, part), exact[part]], -1) for part in _PARTS}
    return replace(of, **{**parts, "value": parts["value"].astype(of.value.dtype)})


def _mask(n_k: int) -> Any:
    return np.array([[(3 * i + 2 * j) % 4 != 0 or i == j for j in range(n_k)] for i in range(_N)])


def _bias(n_k: int) -> Any:
    return (((np.arange(_N)[:, None] * 5 + np.arange(n_k) * 3) % 9 - 4) / 2).astype(np.float32)


def _of_sizes(n_k: int, value_dim: int) -> Iterator[Attention]:
    """The cases of Attention whose meaning does not depend on how the last query and the last key are aligned."""
    mask, bias = _mask(n_k), _bias(n_k)
    per_batch = np.stack([mask, np.roll(mask, 1, -1)])[:, None]
    rows: tuple[tuple[str, int, int, dict[str, Any], dict[str, Any]], ...] = (
        ("plain", 2, 2, {}, {}),
        ("bool_mask", 2, 2, {"mask": mask}, {}),
        ("bool_mask_of_each_batch", 2, 2, {"mask": per_batch}, {}),
        ("float_mask", 2, 2, {"bias": bias}, {}),
        ("float_mask_blocks", 2, 2, {"bias": np.where(mask, bias, -np.inf).astype(np.float32)}, {}),
        ("gqa", 4, 2, {}, {}),
        ("scaled", 2, 2, {"scale": 2.0}, {"scale": 2.0}),
        ("softcap", 2, 2, {"softcap": 0.25}, {"softcap": 0.25}),
        ("dead_row", 2, 2, {"mask": mask & (np.arange(_N) != 2)[:, None]}, {}),
    )
    for name, heads, kv_heads, options, attributes in rows:
        yield Attention(name, heads, kv_heads, options, attributes, n_k=n_k, value_dim=value_dim)


def _aligned() -> Iterator[Attention]:
    """The cases with as many queries as keys, or with a cache of the first keys, or with padding."""
    causal = {"causal": True}, {"is_causal": 1}
    yield Attention("causal", 2, 2, *causal)
    yield Attention("gqa_causal", 6, 2, *causal)
    yield Attention("mqa_causal", 4, 1, *causal)
    yield Attention("window", 2, 2, {"window": (1, 1)}, {"left_window_size": 1, "right_window_size": 1}, (25,))
    window = {"window": (2, None), **causal[0]}, {"left_window_size": 2, **causal[1]}
    yield Attention("causal_window", 2, 2, *window, (25,))
    yield Attention("past_causal", 2, 2, {**causal[0], "offset": 3}, causal[1], n_k=9, past=3)
    yield Attention("past_gqa_causal", 4, 2, {**causal[0], "offset": 3}, causal[1], n_k=9, past=3)
    yield Attention("past_plain", 2, 2, n_k=9, past=3)
    yield Attention("padded_keys", 2, 2, opsets=(24, 25), lengths=(6, 3))


def _attention() -> Iterator[Attention]:
    usual = [*_of_sizes(_N, 8), *_aligned()]
    yield from usual
    yield from (replace(case, name=f"cross_{case.name}") for case in _of_sizes(9, 4))
    yield from (replace(case, packs_heads=True) for case in usual if not case.lengths)


CASES: tuple[Attention | Rotary, ...] = (
    *_attention(),
    *(
        Rotary(is_interleaved, rotates, has_positions, packs_heads, dtype)
        for dtype in ("float32", "float16")
        for packs_heads in (False, True)
        for is_interleaved in (False, True)
        for rotates in (8, 4)
        for has_positions in (True, False)
    ),
)
"""The cases, each a test for each of its opsets."""


def write_onnx(folder: Path) -> Iterator[Path]:
    """Write the cases and their arrays. Equal arrays are stored once."""
    tensors, names, rows = Arrays(), dict[tuple[str, tuple[int, ...], bytes], str](), []

    def stored(case: str, arrays: Arrays) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name, x in arrays.items():
            key = None if x is None else (x.dtype.name, x.shape, x.tobytes())
            found[name] = None if key is None else names.setdefault(key, f"{case}/{name}")
            if key is not None and names[key] == f"{case}/{name}":
                tensors[f"{case}/{name}"] = x
        return found

    for case in CASES:
        wanted = case.expected()
        rtol, atol = tolerances(wanted)
        head = {"name": case.folder, "operator": case.operator, "attributes": dict(case.all_attributes)}
        given = {"inputs": stored(case.folder, case.inputs()), "outputs": stored(case.folder, case.outputs(wanted))}
        rows.append({**head, "opsets": case.opsets, "rtol": rtol, "atol": atol, **given})
    folder.mkdir(parents=True, exist_ok=True)
    ordered = dict(sorted(tensors.items(), key=lambda entry: (-entry[1].dtype.itemsize, entry[0])))
    (folder / "cases.safetensors").write_bytes(packed(ordered))
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (folder / "cases.json").write_text(f"[\n{lines}\n]\n", "utf-8")
    yield folder / "cases.json"
