"""The bundles for hipDNN are read by their documented layout, and their graphs give their outputs."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

FILE = Path(__file__).parents[1] / "hipdnn" / "certified_bundles.py"
TYPES = {"bfloat16": torch.bfloat16, "half": torch.float16, "float": torch.float32}


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("certified_bundles", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["certified_bundles"] = module
    spec.loader.exec_module(module)
    return module


def read(path):
    """The graph and the tensors of a bundle, by name."""
    graph, tensors = json.loads(path.read_text()), {}
    for told in graph["tensors"]:
        raw = path.with_name(f"{path.stem}.tensor{told['uid']}.bin").read_bytes()
        flat = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).view(TYPES[told["data_type"]])
        assert flat.numel() == np.prod(told["dims"])
        tensors[told["uid"]] = flat.as_strided(told["dims"], told["strides"])
    return graph, tensors


def computed(graph, tensors):
    """The output and the statistics that the node describes, in float64."""
    (node,) = graph["nodes"]
    q, k, v = (tensors[node["inputs"][f"{name}_tensor_uid"]].double() for name in "qkv")
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * node["attributes"]["attn_scale_value"]
    if node["attributes"]["causal_mask"] or node["attributes"]["causal_mask_bottom_right"]:
        late = k.shape[2] - q.shape[2] if node["attributes"]["causal_mask_bottom_right"] else 0
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril(late).bool(), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_bundle_is_read_by_its_layout_and_gives_its_outputs(dtype, generator, tmp_path):
    for bundle in generator.BUNDLES:
        path = generator.write(bundle, dtype, tmp_path)
        assert path.relative_to(tmp_path).parts == (
            "quick",
            "SdpaFwd",
            "bhsd",
            dtype,
            bundle.name,
            f"{bundle.name}.json",
        )
        graph, tensors = read(path)
        outputs = graph["nodes"][0]["outputs"]
        for wanted, uid in zip(
            computed(graph, tensors), (outputs["o_tensor_uid"], outputs["stats_tensor_uid"]), strict=True
        ):
            stored = tensors[uid].double()
            of = torch.finfo(tensors[uid].dtype)
            spacing = of.eps * (wanted.abs() + of.smallest_normal)
            assert stored.shape == wanted.shape
            assert ((stored - wanted).abs() <= spacing).all()
        meta = json.loads(path.with_suffix(".meta.json").read_text())
        assert meta["format_version"] == 1
        assert meta["generator"]
        assert meta["reference_source"]
        assert json.loads(path.with_suffix(".support.json").read_text()) == {"claims": {}, "version": 1}


def test_bounds_that_leave_two_numbers_are_refused(generator, monkeypatch):
    import attnspec

    exact = attnspec.oracles.attention

    def wide(*arrays, method="auto", **options):
        found = exact(*arrays, method="fast", **options)
        return tuple(type(x)(x.mid, x.rad + 1e-3) for x in found)

    monkeypatch.setattr(attnspec.oracles, "attention", wide)
    with pytest.raises(ValueError, match=r"CertifiedPlain: the bounds of O leave more than one number"):
        generator.certified(generator.BUNDLES[0], "fp32")
