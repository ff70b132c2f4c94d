"""ONNX Runtime on the CPU, in 16 bits: what was found besides `docs/findings.md`, which has both engines in float32."""

from research.findings.shown import Shown

__all__ = ["FINDINGS"]

FINDINGS = [
    Shown(
        "onnxruntime",
        "attention",
        "Attention in float16: a softcap above 65504 is NaN",
        "arithmetic",
        "The attribute is a number of float32, and is rounded to the type of the scores, where it is ∞: ∞·tanh(s/∞) is NaN. onnx' "
        "reference evaluator, and onnxruntime in float32, take it as a cap that does nothing.",
        "microsoft/onnxruntime, onnxruntime/core/providers/cpu/llm/attention.cc (compiled)",
        "",
        "none found",
        """import numpy as np
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

found, x = [], np.ones((1, 1, 1, 1), np.float16)
for softcap in (65504.0, 65520.0):
    node = helper.make_node("Attention", ["Q", "K", "V"], ["Y"], softcap=softcap)
    *given, out = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 1, 1, 1]) for name in "QKVY"]
    graph = helper.make_graph([node], "attention", given, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found.append(float(session.run(None, {"Q": x, "K": x, "V": x})[0].item()))
print(found)""",
        lambda: [1.0, 1.0],
    )
]
