"""Rotary frequencies of released libraries: the page has all rows, declared deviations have
findings, and what else deviates is noted.
"""

import re

import pytest

from research import rotary_peers
from research.peers import FINDINGS
from research.rotary_peers import layer_row, model_row, rows
from spec.extended.released import RELEASED
from systems.peers.rotary_layers import LAYERS
from systems.peers.transformers_rotary import parameters_of


def test_the_page_has_a_row_for_each_length_of_a_model_and_for_each_layer(monkeypatch):
    monkeypatch.setattr(rotary_peers, "rows", lambda name, *rest: (name,))
    page = rotary_peers.markdown([])
    expected = [*(model.name for model in RELEASED for _ in model.lengths), *(layer.name for layer in LAYERS)]
    assert re.findall(r"^\| (.+?) (?:\|  )+\|$", page, re.MULTILINE) == expected


def test_a_layer_that_deviates_names_its_finding():
    deviating = [layer.deviates for layer in LAYERS if layer.deviates]
    assert deviating
    assert set(deviating) <= {found.title for found in FINDINGS}


def test_what_is_not_as_declared_is_noted():
    wrong = []
    assert rows("a", lambda: (("a", "0.5"), 0.5), False, wrong) == ("a", "0.5")
    assert rows("b", lambda: (("b", "2"), 2.0), True, wrong) == ("b", "2")
    assert wrong == []
    rows("c", lambda: (("c", "2"), 2.0), False, wrong)
    rows("d", lambda: (("d", "0.5"), 0.5), True, wrong)
    assert wrong == ["c is 2 times its budget away", "d is 0.5 times its budget away, but is declared to be outside"]


def test_a_library_that_is_not_installed_is_told():
    def judge():
        raise ModuleNotFoundError("No module named 'keras_hub'", name="keras_hub")

    assert rows("keras", judge, False, []) == ("keras", "not run here: No module named 'keras_hub'")


def test_parameters_have_the_names_of_configurations():
    models = {model.name: model for model in RELEASED}
    assert parameters_of(models["Pythia 160M"]) == {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    }
    assert parameters_of(models["Qwen2-VL"])["mrope_section"] == [16, 24, 24]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", RELEASED, ids=lambda model: model.name)
def test_transformers_agrees_on_released_models(model):
    pytest.importorskip("transformers", reason="transformers is in the environment of `make peers` alone")
    assert max(model_row(model, length)[1] for length in model.lengths) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", [x for x in LAYERS if x.library == "x-transformers"], ids=lambda layer: layer.name)
def test_x_transformers_agrees(layer):
    pytest.importorskip("x_transformers", reason="x-transformers is in the environment of `make peers` alone")
    assert layer_row(layer)[1] <= 1
