"""ONNX's own layout of test cases: a model and its tensors as protocol buffers, and tolerances
beside them, for any runtime's loader.

Inputs are on a grid, and so told that a wrong mask, scale or head is off by a tenth and more, while
budgets are below a thousandth.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.operations import OPERATIONS
from properties.vectors.expectation import Expected, expected, tolerances
from properties.vectors.formulas import Formula

__all__ = ["CASES", "OnnxCase", "write_onnx"]

_OPSETS = (23, 24, 25)
_N, _WIDTH = 6, 8


@dataclass(frozen=True)
class OnnxCase:
    """A case of Attention: our arguments by keyword, the ONNX attributes, and the opsets that have
    them.
    """

    name: str
    heads: int
    kv_heads: int
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opsets: tuple[int, ...] = _OPSETS

    def tensors(self) -> dict[str, Any]:
        """Q, K, V, and the mask if the case has one."""
        shapes = {
            "Q": (2, self.heads, _N, _WIDTH),
            "K": (2, self.kv_heads, _N, _WIDTH),
            "V": (2, self.kv_heads, _N, _WIDTH),
        }
        factors = {"Q": (17, 29, 3), "K": (59, 31, 7), "V": (71, 13, 11)}
        named_arrays: dict[str, Any] = {
            name: Formula(shape, factors[name]).array().astype(np.float32) for name, shape in shapes.items()
        }
        named_arrays["Q"] /= 8
        mask = self.options.get("mask", self.options.get("bias"))
        return named_arrays if mask is None else named_arrays | {"attn_mask": mask}

    def expected(self) -> Expected:
        """What must come of it, in float32."""
        definition, x = OPERATIONS["attention"], self.tensors()
        given = {"q": x["Q"].astype(float), "k": x["K"].astype(float), "v": x["V"].astype(float)}
        given |= {name: value.astype(float) if name == "bias" else value for name, value in self.options.items()}
        return expected(
            definition, tuple(given.get(parameter) for parameter in definition.parameters), "float32", Conventions()
        )[0]


_MASK = np.array([[(3 * i + 2 * j) % 4 != 0 or i == j for j in range(_N)] for i in range(_N)])
_BIAS = (((np.arange(_N)[:, None] * 5 + np.arange(_N) * 3) % 9 - 4) / 2).astype(np.float32)
CASES: tuple[OnnxCase, ...] = (
    OnnxCase("plain", 2, 2),
    OnnxCase("causal", 2, 2, {"causal": True}, {"is_causal": 1}),
    OnnxCase("bool_mask", 2, 2, {"mask": _MASK}),
    OnnxCase("float_mask", 2, 2, {"bias": _BIAS}),
    OnnxCase("float_mask_blocks", 2, 2, {"bias": np.where(_MASK, _BIAS, -np.inf).astype(np.float32)}),
    OnnxCase("gqa", 4, 2),
    OnnxCase("gqa_causal", 6, 2, {"causal": True}, {"is_causal": 1}),
    OnnxCase("scaled", 2, 2, {"scale": 2.0}, {"scale": 2.0}),
    OnnxCase("softcap", 2, 2, {"softcap": 0.25}, {"softcap": 0.25}),
    OnnxCase("dead_row", 2, 2, {"mask": _MASK & (np.arange(_N) != 2)[:, None]}),
    OnnxCase("window", 2, 2, {"window": (1, 1)}, {"left_window_size": 1, "right_window_size": 1}, (25,)),
    OnnxCase(
        "causal_window", 2, 2, {"window": (2, None), "causal": True}, {"left_window_size": 2, "is_causal": 1}, (25,)
    ),
)
"""The cases, each a test for each of its opsets."""


def write_onnx(folder: Path) -> Iterator[Path]:
    """Write the cases, a folder each, as onnx.backend.test's loader reads them. Raises ValueError
    where onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise ValueError(
            "ONNX's layout is written by onnx, which is not installed: pip install 'attnspec[onnx]'."
        ) from error
    helper, arrays = onnx.helper, onnx.numpy_helper
    for case in CASES:
        wanted, tensors = case.expected(), case.tensors()
        values = {**tensors, "Y": wanted.value.astype(np.float32)}
        written_case = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in values.items()
        ]
        node = helper.make_node("Attention", list(tensors), ["Y"], **case.attributes)
        rtol, atol = tolerances(wanted)
        for opset in case.opsets:
            place = folder / f"test_attention_4d_{case.name}_certified_opset{opset}"
            (place / "test_data_set_0").mkdir(parents=True, exist_ok=True)
            graph = helper.make_graph([node], place.name, written_case[:-1], written_case[-1:])
            model = helper.make_model(
                graph, producer_name="attnspec", opset_imports=[helper.make_opsetid("", opset)], ir_version=10
            )
            onnx.checker.check_model(model, full_check=True)
            (place / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
            (place / "data.json").write_text(json.dumps({"rtol": rtol, "atol": atol}) + "\n", "utf-8")
            for number, (name, x) in enumerate(values.items()):
                file = "output_0.pb" if name == "Y" else f"input_{number}.pb"
                (place / "test_data_set_0" / file).write_bytes(
                    arrays.from_array(x, name).SerializeToString(deterministic=True)
                )
            yield place
