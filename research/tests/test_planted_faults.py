"""Faults that are planted in the kernels in Triton and Pallas are found by `--quick --interpret`, without a
GPU. `python -m research.planted` measures how the verdict describes each.
"""

import importlib.util
from collections import Counter

import pytest

from research.planted import DESCRIBED, MEASURED, MISDESCRIBED, NOT_SEEN, Row, judged, markdown, measured
from systems.planted_faults import FAULTS

_FIRST = [fault for number, fault in enumerate(FAULTS) if number % 10 == 0]
"""The first fault of each kernel."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kernel} {fault.name}")
def test_the_right_text_of_a_fault_is_in_its_kernel_once(fault):
    assert fault.wrong in fault.source


def test_each_kernel_has_ten_faults():
    assert [*Counter(fault.kernel for fault in FAULTS).values()] == [10] * 5
    assert len({(fault.kernel, fault.name) for fault in FAULTS}) == 50


@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("triton", "jax"))), reason="Triton or JAX is not installed.")
@pytest.mark.parametrize("fault", _FIRST, ids=lambda fault: f"{fault.kernel} {fault.name}")
def test_a_planted_fault_is_found_and_not_misdescribed(fault):
    assert measured(fault).result in (DESCRIBED, MEASURED)


_OF_THE_GUIDE = {
    "triton_attention": ("tile", "stride", "mask", "scale", "lse", "window", "groups"),
    "triton_paged": ("page", "split"),
}
"""The mistakes of which the guide says that they are found."""


@pytest.mark.thorough
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed.")
@pytest.mark.parametrize(
    ("kernel", "name"), [(kernel, name) for kernel, names in _OF_THE_GUIDE.items() for name in names]
)
def test_the_mistakes_that_the_guide_names_are_found(kernel, name):
    (fault,) = (each for each in FAULTS if (each.kernel, each.name) == (kernel, name))
    assert measured(fault).result != NOT_SEEN


def test_the_first_diagnosis_decides_and_then_what_was_measured():
    fault = FAULTS[0]
    example = {"measured": ["Every second row is wrong."], "notes": ["Only the last tile."], "summary": "out[0]=1."}
    named = {"diagnosis": [{"id": "sign", "mechanism": "The sign is wrong."}], "example": example}
    assert judged(fault, {"causes": []})[0] == NOT_SEEN
    assert judged(fault, {"causes": [named]}) == (MISDESCRIBED, "sign: The sign is wrong.")
    assert judged(fault, {"causes": [{"diagnosis": [], "example": example}]}) == (DESCRIBED, "Only the last tile.")
    silent = {"diagnosis": [], "example": {**example, "notes": []}}
    assert judged(fault, {"causes": [silent]}) == (MEASURED, "Every second row is wrong. out[0]=1.")


def test_the_page_counts_and_escapes():
    page = markdown([Row("a", "tile", DESCRIBED, "1 | 2", 3.0), Row("a", "lse", NOT_SEEN, "", 4.0)])
    assert "Of 2 faults, 1 are seen, 1 are described truly, and 0 are misdescribed." in page
    assert "| a | tile | described truly | 1 \\| 2 | 3.0 |" in page
