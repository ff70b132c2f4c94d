"""The planted faults are faults of source that runs, and a verdict on one is told from the others."""

import ast
import re
from collections import Counter

import pytest

from research import planted
from systems.planted_faults import FAULTS


def test_ten_faults_of_each_kernel_change_source_that_stays_python():
    assert set(Counter(fault.kernel for fault in FAULTS).values()) == {10}
    for fault in FAULTS:
        ast.parse(fault.source)
        assert fault.right != fault.wrong


def report(mechanism="", measured=(), notes=()):
    diagnosis = [{"id": "a bug", "mechanism": mechanism}] if mechanism else []
    return {"causes": [{"diagnosis": diagnosis, "example": {"measured": measured, "notes": notes, "summary": "wrong"}}]}


@pytest.mark.parametrize(
    ("report", "result"),
    [
        ({"causes": []}, planted.NOT_SEEN),
        (report("The strides of k are ignored."), planted.DESCRIBED),
        (report("The softcap is left out.", measured=["The strides of k are ignored."]), planted.MISDESCRIBED),
        (report(notes=["Arrays that are not contiguous are read wrongly."]), planted.DESCRIBED),
        (report(measured=["scale is 2"]), planted.MEASURED),
    ],
)
def test_a_description_counts_only_if_it_was_written_before(report, result):
    fault = next(fault for fault in FAULTS if fault.name == "stride")
    assert planted.judged(fault, report)[0] == result


def test_the_format_of_a_call_describes_no_mistake():
    fault = next(fault for fault in FAULTS if fault.name == "dtype" and "bfloat16" in fault.truth)
    assert planted.judged(fault, report(notes=["The call got the numbers as bfloat16."]))[0] == planted.MEASURED
    assert planted.judged(fault, report(notes=["The output is rounded to bfloat16."]))[0] == planted.DESCRIBED


def test_words_of_one_format_do_not_describe_another():
    of_float16 = [fault.truth for fault in FAULTS if "tl.float16" in fault.wrong]
    assert len(of_float16) == 2
    for truth in of_float16:
        assert re.search(truth, "The cosines are rounded to float16.")
        assert not re.search(truth, "The cosines are rounded to bfloat16.")
