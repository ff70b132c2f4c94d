"""Reads definitions of flashinfer-bench and SOL-ExecBench: which operation of attnspec a definition is,
and a judge of its outputs on given inputs.

A definition is recognised by the names of its inputs, so a `definition.json` needs no change. Lengths
follow from `kv_indptr`, and from `kv_last_page_len` where the pages have more than one slot. The
log-sum-exp is in base 2, with the rows first.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import attnspec

__all__ = ["ARITHMETICS", "family_of", "judge_of"]

Inputs = Mapping[str, Any]

ARITHMETICS = {
    "bfloat16": "bfloat16-tensor-core-flash",
    "float16": "float16-tensor-core-flash",
    "float32": "float32",
}
"""The arithmetic of a kernel on tensor cores, by the dtype of its queries."""


class Family(NamedTuple):
    """The definitions whose inputs have some names: the operation, its arguments, and the order of the outputs."""

    inputs: frozenset[str]
    operation: str
    arguments: Callable[[Inputs], dict[str, Any]]


def _numpy(x: Any) -> Any:
    """Return integers as an array of NumPy."""
    return np.asarray(x.cpu() if hasattr(x, "cpu") else x, np.int64)


def _pages(given: Inputs, page_size: int) -> dict[str, Any]:
    """Return the table of pages and the lengths of the sequences."""
    starts, indices = _numpy(given["kv_indptr"]), _numpy(given["kv_indices"])
    counts = np.diff(starts)
    table = np.full((len(counts), max(1, counts.max(initial=0))), -1)
    for row, begin, count in zip(table, starts, counts, strict=False):
        row[:count] = indices[begin : begin + count]
    last = _numpy(given["kv_last_page_len"]) if "kv_last_page_len" in given else page_size
    return {"block_table": table, "lengths": np.where(counts == 0, 0, (counts - 1) * page_size + last)}


def _rows(given: Inputs, number: int) -> dict[str, Any]:
    """Return the boundaries of the queries: one query for each sequence if they are not given."""
    return {"cu_q": _numpy(given.get("qo_indptr", np.arange(number + 1)))}


def _ragged(given: Inputs) -> dict[str, Any]:
    arrays = {name: given[name] for name in ("q", "k", "v")}
    return {**arrays, "cu_q": _numpy(given["qo_indptr"]), "cu_k": _numpy(given["kv_indptr"]), "causal": True}


def _paged(given: Inputs) -> dict[str, Any]:
    pages = {"k_pages": given["k_cache"], "v_pages": given["v_cache"]}
    return {"q": given["q"], **pages, **_pages(given, given["k_cache"].shape[1]), **_rows(given, len(given["q"]))}


def _latent(given: Inputs) -> dict[str, Any]:
    """The latent is the value of each key, and the first part of the key; all heads share it."""
    import torch

    queries = torch.cat([given["q_nope"], given["q_pe"]], -1)
    keys = torch.cat([given["ckv_cache"], given["kpe_cache"]], -1)
    pages = {"k_pages": keys[:, :, None], "v_pages": given["ckv_cache"][:, :, None]}
    return {"q": queries, **pages, **_pages(given, keys.shape[1]), **_rows(given, len(queries))}


_INDICES = {"kv_indptr", "kv_indices", "sm_scale"}
FAMILIES = (
    Family(frozenset({"q", "k", "v", "qo_indptr", "kv_indptr", "sm_scale"}), "packed_attention", _ragged),
    Family(frozenset({"q", "k_cache", "v_cache", *_INDICES}), "paged_attention", _paged),
    Family(frozenset({"q_nope", "q_pe", "ckv_cache", "kpe_cache", *_INDICES}), "paged_attention", _latent),
)
_OPTIONAL = {"qo_indptr", "kv_last_page_len"}
_CONVENTIONS = attnspec.Conventions(causal="bottom_right", lse_base="2", packed_lse="rows_first")


def family_of(definition: Mapping[str, Any]) -> Family | None:
    """Return the family of a definition, or None for one that attnspec does not judge."""
    names, outputs = {*definition["inputs"]}, list(definition["outputs"])
    found = [family for family in FAMILIES if family.inputs <= names <= family.inputs | _OPTIONAL]
    is_causal = "causal" in definition["name"] or "qo_indptr" not in names
    return found[0] if found and outputs in (["output"], ["output", "lse"]) and is_causal else None


def judge_of(definition: Mapping[str, Any], inputs: Inputs, arithmetic: str | None = None) -> Any:
    """Return a judge of the outputs of a definition on some inputs, which are given by name. Raises
    ValueError for a definition that attnspec does not judge, and for inputs that it refuses.
    """
    family = family_of(definition)
    if family is None:
        raise ValueError(f"attnspec does not judge {definition['name']}.")
    dtype = next(iter(definition["inputs"].values()))["dtype"]
    arguments = {**family.arguments(inputs), "scale": float(inputs["sm_scale"])}
    return attnspec.judge(family.operation, arguments, arithmetic or ARITHMETICS[dtype], _CONVENTIONS)
