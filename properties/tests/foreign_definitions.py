"""Definitions in the documented form of flashinfer-bench and SOL-ExecBench."""

__all__ = ["CONSTANT", "DEFINITIONS", "VARIABLE", "definition", "tensor"]


def tensor(dtype, *shape):
    return {"shape": list(shape), "dtype": dtype}


_INDPTR, _SCALE = tensor("int32", "len_indptr"), {"shape": None, "dtype": "float32"}
_INDICES = {"kv_indptr": _INDPTR, "kv_indices": tensor("int32", "num_kv_indices"), "sm_scale": _SCALE}
VARIABLE = ("batch_size", "total_q", "total_kv", "num_pages", "len_indptr", "num_kv_indices")
CONSTANT = {"heads": 4, "kv_heads": 2, "d": 16, "ckv": 16, "kpe": 8, "page_size": 1}
_CACHE = tensor("bfloat16", "num_pages", "page_size", "kv_heads", "d")


def _latent(rows):
    return {
        "q_nope": tensor("bfloat16", rows, "heads", "ckv"),
        "q_pe": tensor("bfloat16", rows, "heads", "kpe"),
        "ckv_cache": tensor("bfloat16", "num_pages", "page_size", "ckv"),
        "kpe_cache": tensor("bfloat16", "num_pages", "page_size", "kpe"),
    }


DEFINITIONS = {
    "gqa_ragged_prefill_causal_h4_kv2_d16": {
        "q": tensor("bfloat16", "total_q", "heads", "d"),
        "k": tensor("bfloat16", "total_kv", "kv_heads", "d"),
        "v": tensor("bfloat16", "total_kv", "kv_heads", "d"),
        "qo_indptr": _INDPTR,
        "kv_indptr": _INDPTR,
        "sm_scale": _SCALE,
    },
    "gqa_paged_decode_h4_kv2_d16_ps1": {
        "q": tensor("bfloat16", "batch_size", "heads", "d"), "k_cache": _CACHE, "v_cache": _CACHE, **_INDICES,
    },
    "gqa_paged_prefill_causal_h4_kv2_d16_ps1": {
        **{"q": tensor("bfloat16", "total_q", "heads", "d"), "k_cache": _CACHE, "v_cache": _CACHE},
        **{"qo_indptr": _INDPTR, **_INDICES},
    },
    "mla_paged_decode_h4_ckv16_kpe8_ps1": {**_latent("batch_size"), **_INDICES},
    "mla_paged_prefill_causal_h4_ckv16_kpe8_ps1": {**_latent("total_q"), "qo_indptr": _INDPTR, **_INDICES},
}  # fmt: skip
"""The inputs of each definition."""


def definition(name, page_size=1):
    """Return a definition of `DEFINITIONS`, or one with larger pages: its name ends with their size."""
    inputs = dict(DEFINITIONS[name])
    if page_size > 1:
        name = name.replace("_ps1", f"_ps{page_size}")
        scale = inputs.pop("sm_scale")
        inputs |= {"kv_last_page_len": tensor("int32", "batch_size"), "sm_scale": scale}
    rows = "total_q" if "qo_indptr" in inputs else "batch_size"
    width = "ckv" if "ckv_cache" in inputs else "d"
    used = {axis for spec in inputs.values() for axis in spec["shape"] or ()}
    constant = {**CONSTANT, "page_size": page_size}
    axes = {axis: {"type": "const", "value": value} for axis, value in constant.items() if axis in used}
    axes |= {axis: {"type": "var"} for axis in VARIABLE if axis in used}
    outputs = {"output": tensor("bfloat16", rows, "heads", width), "lse": tensor("float32", rows, "heads")}
    code = "def run(*inputs):\n    raise NotImplementedError\n"
    head = {"name": name, "op_type": name[:9], "axes": axes, "inputs": inputs, "outputs": outputs}
    return {**head, "reference": code, "custom_inputs_entrypoint": "make"}
