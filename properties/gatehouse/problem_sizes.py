"""Reads the sizes of a problem of another project: the shapes of KernelBench's inputs from the source of
get_inputs, and the axes of flashinfer-bench's workloads. No code of the problem is run.
"""

import ast
import json
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from properties.gatehouse.definitions import Definition
from properties.gatehouse.submission import text_of

__all__ = ["shapes_of_inputs", "sizes_of_workloads"]

_MAKERS = ("rand", "randn", "zeros", "ones", "empty")
_SAME_SHAPE = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "contiguous", "requires_grad_", "clone")
_AXES = ("len_indptr", "total_q", "total_kv")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def shapes_of_inputs(tree: ast.Module, problem: Path) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that get_inputs returns. Raises ValueError if the source does
    not show them.
    """
    names: dict[str, Any] = {}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    for node in (*tree.body, *(node for function in functions for node in function.body)):
        with suppress(LookupError, TypeError):
            match node:
                case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                    names |= {
                        ast.unparse(variable): _value(x, names) for variable, x in zip(targets, values, strict=True)
                    }
                case ast.Assign([target], value):
                    names.pop(ast.unparse(target), None)
                    names[ast.unparse(target)] = _value(value, names)
                case ast.Return(value):
                    return list(map(tuple, _value(value, names)))
    raise ValueError(
        f"{problem} should have a function get_inputs that returns tensors with shapes written out, such as "
        "torch.rand(2, 8, 128, 64)."
    )


def _value(node: Any, names: Mapping[str, Any]) -> Any:
    """The number, the shape of a tensor, or the list of these that an expression means. Raises
    LookupError or TypeError if the source does not show it.
    """
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return names[name]
        case ast.List(members) | ast.Tuple(members):
            return [_value(member, names) for member in members]
        case ast.ListComp(member, [ast.comprehension(iter=ast.Call(ast.Name("range"), [count]))]):
            return [_value(member, names)] * _value(count, names)
        case ast.BinOp(left, kind, right):
            first = _value(left, names)
            return first if isinstance(first, tuple) else _OPERATORS[type(kind)](first, _value(right, names))
        case ast.Call(ast.Attribute(value, name)) if name in _SAME_SHAPE:
            return _value(value, names)
        case ast.Call(ast.Attribute(_, name), arguments) if name in _MAKERS:
            lengths = [_value(argument, names) for argument in arguments]
            return tuple(lengths[0] if isinstance(lengths[0], list) else lengths)
    raise LookupError


def sizes_of_workloads(file: Path, definition: Definition) -> list[dict[str, int]]:
    """Return the sizes of the workloads of a definition of ragged attention. `file` has a JSON value in
    each line. Raises ValueError for another file.
    """
    try:
        entries = [json.loads(line) for line in text_of(file).splitlines() if line.strip()]
        workloads = [
            (workload["definition"], *(operator.index(workload["workload"]["axes"][axis]) for axis in _AXES))
            for workload in entries
        ]
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        should = "workloads of flashinfer-bench's: a JSON with definition and workload in each line"
        raise ValueError(f"{file} should be {should}.") from error
    for name, *_ in workloads:
        if name != definition.name:
            raise ValueError(f"{file} has a workload of {name}, but should have those of {definition.name}.")
    return [
        {"sequences": starts - 1, "total_q": queries, "total_k": keys, **definition.sizes}
        for _, starts, queries, keys in workloads
    ]
