"""Writes the cases as ONNX's node tests: `python materialise.py FOLDER`, a folder for each case and opset."""

import json
import sys
from pathlib import Path

import numpy as np
from onnx import checker, helper, numpy_helper

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "?"}


def main(folder):
    """Write all folders."""
    here = Path(__file__).parent
    raw = (here / "cases.safetensors").read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    arrays = {
        name: np.frombuffer(raw[begin:][slice(*told["data_offsets"])], TYPES[told["dtype"]]).reshape(told["shape"])
        for name, told in json.loads(raw[8:begin]).items()
    }
    for case in json.loads((here / "cases.json").read_text("utf-8")):
        given, wanted = ({name: arrays[x] for name, x in case[part].items() if x} for part in ("inputs", "outputs"))
        names = [name if x else "" for name, x in case["inputs"].items()]
        while not names[-1]:
            names.pop()
        node = helper.make_node(case["operator"], names, list(wanted), **case["attributes"])
        infos = [
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                for name, x in part.items()
            ]
            for part in (given, wanted)
        ]
        for opset in case["opsets"]:
            place = Path(folder, f"{case['name']}_opset{opset}")
            (place / "test_data_set_0").mkdir(parents=True, exist_ok=True)
            imports = [helper.make_opsetid("", opset)]
            graph = helper.make_graph([node], place.name, *infos)
            model = helper.make_model(graph, producer_name="attnspec", opset_imports=imports, ir_version=10)
            checker.check_model(model, full_check=True)
            (place / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
            (place / "data.json").write_text(
                json.dumps({name: case[name] for name in ("rtol", "atol")}) + "\n", "utf-8"
            )
            for kind, part in (("input", given), ("output", wanted)):
                for number, (name, x) in enumerate(part.items()):
                    text = numpy_helper.from_array(x, name).SerializeToString(deterministic=True)
                    (place / "test_data_set_0" / f"{kind}_{number}.pb").write_bytes(text)


if __name__ == "__main__":
    main(sys.argv[1])
