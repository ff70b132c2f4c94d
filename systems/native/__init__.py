"""Native runtimes under test: ggml, OpenVINO, PaddlePaddle and onnxruntime's own operators."""

from properties.contract.implementation import Implementation
from systems.native import ggml_attention, ggml_rope, onnxruntime_operators, openvino_attention, paddle_attention

__all__ = ["GROUPS"]

GROUPS: dict[str, list[Implementation]] = {
    "ggml": [*ggml_attention.IMPLEMENTATIONS, *ggml_rope.IMPLEMENTATIONS],
    "OpenVINO": openvino_attention.IMPLEMENTATIONS,
    "onnxruntime": onnxruntime_operators.IMPLEMENTATIONS,
    "PaddlePaddle": paddle_attention.IMPLEMENTATIONS,
}
