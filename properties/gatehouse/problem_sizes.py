"""Reads the sizes of a problem of another project: the shapes of KernelBench's inputs from the source of
get_inputs, and the axes of flashinfer-bench's workloads. No code of the problem is run.
"""

import ast
import json
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from properties.gatehouse.submission import text_of

__all__ = ["shapes_of_inputs", "sizes_of_workloads"]

_MAKERS = ("rand", "randn", "zeros", "ones", "empty", "full")
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
        _assign(node, names)
        if isinstance(node, ast.Return) and node.value is not None:
            found = [shape for shape in _tensors(node.value, names) if shape is not None]
            if found and len(found) == len(_tensors(node.value, names)):
                return found
    raise ValueError(
        f"{problem} should have a function get_inputs that returns tensors with shapes written out, such as "
        "torch.rand(2, 8, 128, 64)."
    )


def _assign(node: ast.AST, names: dict[str, Any]) -> None:
    """Add the whole numbers and the shapes of tensors that a statement assigns to names."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
        return
    target, value = node.targets[0], node.value
    targets, values = [target], [value]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        targets, values = target.elts, value.elts
    for one, given in zip(targets, values, strict=False):
        if isinstance(one, ast.Name):
            found = _number(given, names)
            names[one.id] = _tensor(given, names) if found is None else found


def _number(node: ast.AST, names: Mapping[str, Any]) -> int | None:
    """The whole number that an expression means; None if it is not one."""
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name) if isinstance(names.get(name), int):
            return int(names[name])
        case ast.BinOp(left, kind, right) if type(kind) in _OPERATORS:
            first, second = _number(left, names), _number(right, names)
            if first is None or second is None or (isinstance(kind, ast.FloorDiv) and not second):
                return None
            return _OPERATORS[type(kind)](first, second)
    return None


def _tensor(node: ast.AST, names: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of the tensor that an expression means; None if the source does not show it."""
    match node:
        case ast.Name(name) if isinstance(names.get(name), tuple):
            return tuple(names[name])
        case ast.BinOp(left, _, right):
            return _tensor(left, names) or _tensor(right, names)
        case ast.Call(ast.Attribute(value, name)) if name in _SAME_SHAPE:
            return _tensor(value, names)
        case ast.Call(ast.Attribute(_, name), arguments) if name in _MAKERS:
            lengths = arguments
            if arguments and isinstance(arguments[0], ast.Tuple | ast.List):
                lengths = arguments[0].elts
            found = [_number(length, names) for length in lengths]
            return None if None in found else tuple(length for length in found if length is not None)
    return None


def _tensors(node: ast.AST, names: Mapping[str, Any]) -> list[tuple[int, ...] | None]:
    """The shapes of the tensors of a list; None for a shape that the source does not show."""
    match node:
        case ast.List(members) | ast.Tuple(members):
            return [_tensor(member, names) for member in members]
        case ast.ListComp(member, [ast.comprehension(iter=ast.Call(ast.Name("range"), [count]), ifs=[])]):
            return [_tensor(member, names)] * (_number(count, names) or 0)
    return []


def sizes_of_workloads(
    file: Path, definition: str, kv_heads: int, width: int
) -> tuple[list[dict[str, int]], list[str]]:
    """Return the sizes of the workloads of a definition of ragged attention, and the workloads that
    have no such sizes, each as "workload: reason". `file` has a JSON value in each line.

    The gate gives all sequences of a call the same length. Raises ValueError for another file.
    """
    shapes, untried = list[dict[str, int]](), list[str]()
    try:
        found = [json.loads(line) for line in text_of(file).splitlines() if line.strip()]
        workloads = [
            (one["definition"], *(operator.index(one["workload"]["axes"][axis]) for axis in _AXES)) for one in found
        ]
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        should = "workloads of flashinfer-bench's: a JSON with definition and workload in each line"
        raise ValueError(f"{file} should be {should}.") from error
    for name, starts, queries, keys in workloads:
        sequences = starts - 1
        if name != definition:
            raise ValueError(f"{file} has a workload of {name}, but should have those of {definition}.")
        if sequences < 1 or queries < 1 or keys < queries or queries % sequences or keys % sequences:
            said = f"{queries} queries and {keys} keys of {sequences} sequences"
            untried.append(f"{said}: the gate gives all sequences of a call the same length.")
            continue
        lengths = {"n_q": queries // sequences, "n_k": keys // sequences}
        shapes.append({"batch": sequences, "num_heads": kv_heads, **lengths, "head_dim": width})
    return shapes, untried
