"""The adapters of the libraries around PyTorch, and whole decoders by their paths."""

from importlib import import_module

import pytest

from properties.contract.implementation import Implementation
from research.peers import FINDINGS
from systems.peers import transformers_models
from systems.peers.transformers_models import DEVIATIONS, MODELS, PATHS, Compared, Model, compared

MODULES = (
    *(
        "diffusers",
        "local_attention",
        "positional_encodings",
        "rotary_embedding_torch",
        "torch_geometric",
        "torch_paths",
        "torchtune",
    ),
    *("transformers_attention", "transformers_caches", "x_transformers"),
)


@pytest.mark.parametrize("module", MODULES)
def test_an_adapter_is_there_without_its_library_and_says_so(module):
    implementations = import_module(f"systems.peers.{module}").IMPLEMENTATIONS
    assert implementations
    for one in implementations:
        assert isinstance(one, Implementation)
        assert one.unavailable == "" or one.unavailable.endswith("is not installed: make peers.")
    assert len({one.name for one in implementations}) == len(implementations)


def test_declared_deviations_name_a_model_a_path_and_a_finding():
    titles = {found.title for found in FINDINGS if found.family == "whole models"}
    for (model, path), title in DEVIATIONS.items():
        assert model in {each.name for each in MODELS}
        assert path in PATHS
        assert title in titles


def test_paths_are_held_to_their_bound(monkeypatch):
    assert Compared(1.0, 1.0).agree
    assert not Compared(1.1, 1.0).agree
    assert not Compared(float("nan"), 1.0).agree
    assert Compared(2.0, 1.0, missing="It has none.").agree


@pytest.mark.filterwarnings("ignore")
def test_a_causal_model_that_is_not_is_seen(monkeypatch):
    pytest.importorskip("transformers", reason="transformers is in the environment of `make peers` alone")
    llama = Model("Llama", "LlamaConfig", {"intermediate_size": 32, "num_key_value_heads": 1})

    def refused(model: Model) -> None:
        raise ValueError("It has none.\nAt all.")

    wrong = {"later": lambda model: model.make("eager")(transformers_models._ids().flip(0)).logits, "none": refused}
    monkeypatch.setattr(transformers_models, "PATHS", {"sdpa": PATHS["sdpa"], **wrong})
    found = dict(compared(llama))
    assert found["sdpa"].agree
    assert not found["later"].agree
    assert found["none"].missing == "It has none."
