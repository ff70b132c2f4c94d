"""Writes bundles of certified golden data for hipDNN's integration tests: `python certified_bundles.py FOLDER`.

A bundle of scaled dot-product attention has a graph, its metadata, an empty sidecar of support claims, and
its tensors, in the documented layout: quick/SdpaFwd/bhsd/{dtype}/{Name}/{Name}.json, .meta.json,
.support.json and .tensor{uid}.bin. Each output is the number of its dtype that is nearest to the exact
value, which interval arithmetic proves. `config` in the metadata has the tolerance that follows from the
error limit of a kernel on matrix cores.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import attnspec

__all__ = ["BUNDLES", "Bundle", "write"]

DTYPES = {"bf16": (torch.bfloat16, "bfloat16"), "fp16": (torch.float16, "half"), "fp32": (torch.float32, "float")}
"""The dtype of a folder: torch's, and the name in a graph."""

ARITHMETICS = {"bf16": "bfloat16-tensor-core-flash", "fp16": "float16-tensor-core-flash", "fp32": "float32-flash"}

_INPUTS = (
    "attn_mask scale seq_len_q seq_len_kv seed offset dropout_mask dropout_scale page_table_k page_table_v block_mask"
)
_INPUTS += " sink_token descale_q descale_k descale_v descale_s scale_s scale_o"
_OUTPUTS = "max sum_exp rng_dump amax_s amax_o"


class Bundle(NamedTuple):
    """A graph: its name, the sizes of q and of the keys and values, and its attributes."""

    name: str
    q_dims: tuple[int, int, int, int]
    v_dims: tuple[int, int, int, int]
    causal: str = ""
    scale: float | None = None


BUNDLES = (
    Bundle("CertifiedPlain", (2, 4, 65, 128), (2, 4, 65, 128)),
    Bundle("CertifiedGrouped", (1, 8, 33, 128), (1, 2, 129, 128)),
    Bundle("CertifiedCausal", (1, 4, 128, 128), (1, 4, 128, 128), "TOP_LEFT"),
    Bundle("CertifiedCausalBottomRight", (1, 4, 33, 128), (1, 2, 130, 128), "BOTTOM_RIGHT"),
    Bundle("CertifiedScaled", (1, 2, 17, 64), (1, 2, 31, 128), "", 0.5),
    Bundle("CertifiedOneKey", (1, 2, 9, 128), (1, 1, 1, 128)),
)


def graph_of(bundle: Bundle, dtype: str, dims: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return the graph: one node, and the tensors Q, K, V, O and the log-sum-exps."""
    uids = {name: uid for uid, name in enumerate(dims)}
    types = {name: "float" if name == "Stats" else dtype for name in dims}
    strides = {name: [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))] for name, shape in dims.items()}
    tensors = [
        {
            "uid": uid,
            "name": name,
            "dims": dims[name],
            "strides": strides[name],
            "data_type": types[name],
            "virtual": False,
        }
        for name, uid in uids.items()
    ]
    inputs = {f"{name.lower()}_tensor_uid": uids[name] for name in "QKV"}
    inputs |= {f"{name}_tensor_uid": None for name in _INPUTS.split()}
    outputs = {"o_tensor_uid": uids["O"], "stats_tensor_uid": uids["Stats"]}
    outputs |= {f"{name}_tensor_uid": None for name in _OUTPUTS.split()}
    attributes = {
        "generate_stats": True,
        "alibi_mask": False,
        "padding_mask": False,
        "causal_mask": bundle.causal == "TOP_LEFT",
        "causal_mask_bottom_right": bundle.causal == "BOTTOM_RIGHT",
        "dropout_probability": None,
        "attn_scale_value": bundle.scale or bundle.q_dims[-1] ** -0.5,
        "left_bound": None,
        "right_bound": None,
        "max_seq_len_kv": None,
        "diagonal_alignment": bundle.causal or "TOP_LEFT",
        "mma_core_mode": "float",
        "implementation": "AUTO",
    }
    node = {"type": "SdpaAttributes", "compute_data_type": "float", "name": ""}
    node |= {"inputs": inputs, "outputs": outputs, "attributes": attributes}
    types = {"io_data_type": dtype, "compute_data_type": "float", "intermediate_data_type": "float"}
    return {"nodes": [node], "tensors": tensors, **types, "name": ""}


def certified(bundle: Bundle, dtype: str) -> tuple[dict[str, Any], float]:
    """Return the tensors by name, and the largest error limit ÷ largest output. Raises ValueError if the
    bounds of an output leave more than one nearest number.
    """
    generator, kind = torch.Generator().manual_seed(42), DTYPES[dtype][0]
    (batch, _, _, width), (_, kv_heads, keys, _) = bundle.q_dims, bundle.v_dims
    shapes = {"Q": bundle.q_dims, "K": (batch, kv_heads, keys, width), "V": bundle.v_dims}
    arrays = {name: (2 * torch.rand(shape, generator=generator) - 1).to(kind) for name, shape in shapes.items()}
    conventions = attnspec.Conventions(causal="bottom_right" if bundle.causal == "BOTTOM_RIGHT" else "top_left")
    options = {"causal": bool(bundle.causal), "scale": bundle.scale, "conventions": conventions}
    found = attnspec.oracles.attention(*arrays.values(), **options, method="arb")
    limits = attnspec.oracles.attention(*arrays.values(), **options, arithmetic=ARITHMETICS[dtype])
    for name, exact, to in zip(("O", "Stats"), found, (kind, torch.float32), strict=True):
        low, high = (torch.from_numpy(exact.mid + side * exact.rad).to(to) for side in (-1, 1))
        if not torch.equal(low, high):
            raise ValueError(
                f"{bundle.name}: the bounds of {name} leave more than one number of {to}; take another seed."
            )
        arrays[name] = low[..., None] if name == "Stats" else low
    return arrays, float(limits[0].rad.max() / np.abs(found[0].mid).max())


def write(bundle: Bundle, dtype: str, folder: Path) -> Path:
    """Write a bundle, and return the path of its graph."""
    place = folder / "quick" / "SdpaFwd" / "bhsd" / dtype / bundle.name
    place.mkdir(parents=True, exist_ok=True)
    arrays, tolerance = certified(bundle, dtype)
    graph = graph_of(bundle, DTYPES[dtype][1], {name: list(x.shape) for name, x in arrays.items()})
    config = {"q_dims": bundle.q_dims, "v_dims": bundle.v_dims, "tolerance_of_the_largest_output": tolerance}
    source = f"attnspec {attnspec.__version__}, interval arithmetic"
    meta = {"format_version": 1, "operation": "SdpaFwd", "generator": Path(__file__).name, "reference_source": source}
    meta |= {"seed": 42, "notes": "Each output is the nearest number to the exact value.", "config": config}
    parts = {".json": graph, ".meta.json": meta, ".support.json": {"claims": {}, "version": 1}}
    for suffix, content in parts.items():
        (place / f"{bundle.name}{suffix}").write_text(json.dumps(content, indent=4) + "\n", "utf-8")
    for uid, x in enumerate(arrays.values()):
        (place / f"{bundle.name}.tensor{uid}.bin").write_bytes(x.contiguous().view(torch.uint8).numpy().tobytes())
    return place / f"{bundle.name}.json"


def main(folder: str) -> Iterator[Path]:
    """Write all bundles in all dtypes."""
    for bundle in BUNDLES:
        for dtype in DTYPES:
            yield write(bundle, dtype, Path(folder))


if __name__ == "__main__":
    for path in main(sys.argv[1]):
        print(path)
