"""Judges outputs of definitions of flashinfer-bench and SOL-ExecBench on given inputs. attnspec's gate reads
the same definitions: `attnspec.properties.gatehouse.definitions` says which ones.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attnspec.properties.gatehouse.definitions import ARITHMETICS, CONVENTIONS, read

import attnspec

__all__ = ["ARITHMETICS", "is_judged", "judge_of"]

Inputs = Mapping[str, Any]


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
    last = _numpy(given["kv_last_page_len"]) if page_size > 1 else 1
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


_CALLS: dict[str, tuple[str, Callable[[Inputs], dict[str, Any]]]] = {
    "packed_attention": ("packed_attention", _ragged),
    "paged_attention": ("paged_attention", _paged),
    "latent_attention": ("paged_attention", _latent),
}
"""The operation that judges a definition, and its arguments from the inputs."""


def is_judged(definition: Mapping[str, Any]) -> bool:
    """Return whether attnspec judges a definition."""
    try:
        return bool(read(definition))
    except ValueError:
        return False


def judge_of(definition: Mapping[str, Any], inputs: Inputs, arithmetic: str | None = None) -> Any:
    """Return a judge of the outputs of a definition on some inputs, which are given by name. Raises
    ValueError for a definition that attnspec does not judge, and for inputs that it refuses.
    """
    told = read(definition)
    operation, arguments = _CALLS[told.operation]
    given = {**arguments(inputs), "scale": float(inputs["sm_scale"])}
    return attnspec.judge(operation, given, arithmetic or told.arithmetic, CONVENTIONS)
