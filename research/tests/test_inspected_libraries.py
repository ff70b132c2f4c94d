"""The page of inspected libraries compares what is inferred with what the documentation says."""

from dataclasses import replace

from research.inspected_libraries import FUNCTIONS, Function, markdown, row_of


def test_an_inferred_convention_is_compared_with_the_documented_one():
    torch = next(function for function in FUNCTIONS if function.distribution == "torch")
    documented = {**torch.documented, "causal": ["bottom_right"], "window": ["bound"]}
    row = row_of(replace(torch, documented=documented), 60.0)
    assert row.wrong == ("causal",)
    assert row.documented == (
        "scale_default, mask_polarity, causal_with_mask, kv_heads: the same; causal: says 'bottom_right'; "
        "window: not inferred (docstring, with its equivalent code)"
    )
    page = markdown([row])
    assert "Conventions of 1 functions of 1 libraries are inferred. 1 of them contradicts the documentation." in page


def test_a_library_that_is_not_installed_is_left_out():
    assert row_of(Function("nothing", "import nothing_at_all", "nothing_at_all.attention", "attention"), 1.0) is None
