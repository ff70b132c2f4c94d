"""Reads definitions of flashinfer-bench and SOL-ExecBench: which attention a definition is, and its sizes.

A definition is recognised by the names of its inputs, so a `definition.json` needs no change. Lengths
follow from `kv_indptr`, and from `kv_last_page_len` where pages have more than one slot.
"""

from typing import Any, NamedTuple

from oracles import Conventions

__all__ = ["ARITHMETICS", "CONVENTIONS", "Definition", "read"]

ARITHMETICS = {
    "bfloat16": "bfloat16-tensor-core-flash",
    "float16": "float16-tensor-core-flash",
    "float32": "float32",
}
"""The arithmetic of a kernel on tensor cores, by the dtype of its arrays."""

CONVENTIONS = Conventions(causal="bottom_right", lse_base="2", packed_lse="rows_first")
"""The log-sum-exp is in base 2, with the rows first. The last query of a sequence sees all its keys."""

_PAGES = "; kv_indptr; kv_indices; sm_scale"
_INPUTS = {
    operation: {name: axes for name, *axes in map(str.split, text.split(";"))}
    for operation, text in {
        "packed_attention": "q num_heads head_dim; k kv_heads head_dim; v kv_heads value_dim; "
        "qo_indptr; kv_indptr; sm_scale",
        "paged_attention": "q num_heads head_dim; k_cache page_size kv_heads head_dim; "
        "v_cache page_size kv_heads value_dim" + _PAGES,
        "latent_attention": "q_nope num_heads value_dim; q_pe num_heads rotated; "
        "ckv_cache page_size value_dim; kpe_cache page_size rotated" + _PAGES,
    }.items()
}
"""The inputs of the definitions of each operation. Arrays have their axes after the first, which must be
constant.
"""
_OPTIONAL = {"qo_indptr", "kv_last_page_len"}


class Definition(NamedTuple):
    """A definition of attention: its name, the operation of attnspec, the names of its inputs in the
    order of a call, its constant sizes by their names in `supports`, the arithmetic of its kernels,
    and whether the log-sum-exp is an output.

    A definition of latent attention has its keys in pages too.
    """

    name: str
    operation: str
    inputs: tuple[str, ...]
    sizes: dict[str, int]
    arithmetic: str
    has_lse: bool


def read(fields: Any) -> Definition:
    """Return a definition, given the value of its JSON. Raises ValueError, a sentence, for a value that
    is not a definition, and for a definition that attnspec does not judge.
    """
    try:
        name, inputs, outputs = str(fields["name"]), dict(fields["inputs"]), [*fields["outputs"]]
        operation = next((each for each, least in _INPUTS.items() if {*least} <= {*inputs} <= {*least} | _OPTIONAL), "")
        arrays = {key: axes for key, axes in _INPUTS.get(operation, {}).items() if axes}
        lengths = {axis: entry.get("value") for axis, entry in fields["axes"].items()}
        given = {
            (axis, lengths[of])
            for key, named in arrays.items()
            for axis, of in zip(named, inputs[key]["shape"][1:], strict=True)
        }
        dtypes = {inputs[key]["dtype"] for key in arrays}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("A definition should have a name, axes, inputs and outputs.") from error
    is_causal = "causal" in name or "qo_indptr" not in inputs
    if not operation or outputs not in (["output"], ["output", "lse"]) or not is_causal:
        raise ValueError(f"attnspec does not judge {name}, but ragged, paged and latent causal attention.")
    sizes = dict(given)
    if len(sizes) < len(given) or not all(type(size) is int and size > 0 for size in sizes.values()):
        raise ValueError(f"{name} should have one constant for each of {', '.join(sorted(sizes))}.")
    if not dtypes < {*ARITHMETICS} or len(dtypes) > 1:
        raise ValueError(
            f"{name} has arrays in {', '.join(sorted(dtypes))}, but should have one of {', '.join(ARITHMETICS)}."
        )
    if sizes.get("page_size", 1) > 1 and "kv_last_page_len" not in inputs:
        raise ValueError(f"{name} should have the input kv_last_page_len, since its pages have several slots.")
    if "rotated" in sizes:
        sizes["head_dim"] = sizes["value_dim"] + sizes.pop("rotated")
    return Definition(name, operation, (*inputs,), sizes, ARITHMETICS[dtypes.pop()], "lse" in outputs)
