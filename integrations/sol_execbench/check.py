"""Judges a solution of SOL-ExecBench by proved error limits: `python check.py PROBLEM SOLUTION.json`.

PROBLEM is a folder with an unchanged definition.json and workload.jsonl. For each
workload a JSON line is printed, a trace with the statuses of SOL-ExecBench. The exit status is 0 if
every workload passes, else 1. Solutions in Python and Triton are run; run only code that you trust.
"""

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "flashinfer_bench"))
from definitions import judge_of

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"


def axes_of(definition: Mapping[str, Any], workload: Mapping[str, Any]) -> dict[str, int]:
    """Return the length of each axis: constant, from the workload, or from an expression of other axes."""
    axes = {name: axis["value"] for name, axis in definition["axes"].items() if axis["type"] == "const"}
    axes |= workload["axes"]
    for name, axis in definition["axes"].items():
        if axis["type"] == "expr":
            axes[name] = int(eval(axis["expression"], {"__builtins__": {}}, axes))
    return axes


def inputs_of(definition: Mapping[str, Any], workload: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the inputs of a workload by name."""
    axes, told = axes_of(definition, workload), workload["inputs"]
    if any(source["type"] == "custom" for source in told.values()):
        names: dict[str, Any] = {}
        exec(definition["reference"], names)
        return dict(names[definition["custom_inputs_entrypoint"]](axes, torch.device(DEVICE)))
    return {
        name: _input(spec, told.get(name, {"type": "random"}), axes, folder)
        for name, spec in definition["inputs"].items()
    }


def _input(spec: Mapping[str, Any], source: Mapping[str, Any], axes: Mapping[str, int], folder: Path) -> Any:
    if source["type"] == "scalar":
        return source["value"]
    if source["type"] == "safetensors":
        from safetensors.torch import load_file

        return load_file(folder / source["path"])[source["tensor_key"]].to(DEVICE)
    dtype = getattr(torch, spec["dtype"])
    if not dtype.is_floating_point:
        raise ValueError(f"A random input of dtype {spec['dtype']} names no pages: use safetensors or custom.")
    return torch.randn([axes[name] for name in spec["shape"] or ()], device=DEVICE).to(dtype)


def function_of(solution: Mapping[str, Any], folder: Path) -> Any:
    """Return the entry point of a solution, whose sources are written into a folder."""
    file, name = solution["spec"]["entry_point"].split("::")
    for source in solution["sources"]:
        (folder / source["path"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / source["path"]).write_text(source["content"], "utf-8")
    sys.path.insert(0, str(folder))
    return getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)


def outputs_of(
    definition: Mapping[str, Any],
    solution: Mapping[str, Any],
    function: Any,
    given: dict[str, Any],
    axes: Mapping[str, int],
) -> list[Any]:
    """Return the outputs of a solution, in its calling style."""
    if not solution["spec"].get("destination_passing_style", True):
        returned = function(*given.values())
        return list(returned) if isinstance(returned, tuple | list) else [returned]
    outputs = [
        torch.empty([axes[name] for name in spec["shape"]], dtype=getattr(torch, spec["dtype"]), device=DEVICE)
        for spec in definition["outputs"].values()
    ]
    function(*given.values(), *outputs)
    return outputs


def traces(problem: Path, solution: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a trace for each workload of a problem."""
    definition = json.loads((problem / "definition.json").read_text("utf-8"))
    function = function_of(solution, folder)
    torch.manual_seed(0)
    for line in filter(str.strip, (problem / "workload.jsonl").read_text("utf-8").splitlines()):
        row = json.loads(line)
        workload = row.get("workload", row)
        given = inputs_of(definition, workload, problem)
        judge = judge_of(definition, given)
        try:
            outputs = outputs_of(definition, solution, function, given, axes_of(definition, workload))
            verdict = judge(outputs)
            status, sentence, error = "PASSED" if verdict else "INCORRECT_NUMERICAL", str(verdict), verdict.error
        except Exception as raised:
            status, sentence, error = "RUNTIME_ERROR", f"{type(raised).__name__}: {raised}", float("inf")
        evaluation = {"status": status, "log": sentence, "correctness": {"extra": {"error_over_limit": str(error)}}}
        yield {
            "definition": definition["name"],
            "workload": workload,
            "solution": solution["name"],
            "evaluation": evaluation,
        }


def main(problem: str, solution: str) -> int:
    """Print the traces, and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        found = list(traces(Path(problem), json.loads(Path(solution).read_text("utf-8")), Path(folder)))
    for trace in found:
        print(json.dumps(trace))
    return int(any(trace["evaluation"]["status"] != "PASSED" for trace in found))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
