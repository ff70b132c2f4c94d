"""What `import oracles` offers, and what it imports."""

import subprocess
import sys
from pathlib import Path

import oracles

HOME = Path(oracles.__file__).resolve().parent.parent


def test_the_public_surface_is_sorted_and_documented() -> None:
    for name in oracles.__all__:
        thing = getattr(oracles, name)
        assert thing.__doc__, name


def test_the_design_s_operations_are_all_there() -> None:
    operations = {name for name in oracles.__all__ if name[0].islower()}
    assert operations == {
        *("scaled_dot_product_attention", "scaled_dot_product_attention_vjp", "scaled_dot_product_attention_jvp"),
        *("grouped_query_attention", "multi_head_attention", "multi_head_attention_vjp", "multi_head_attention_jvp"),
        *("hard_masked_softmax", "hard_masked_softmax_vjp", "causal_mask", "sinusoidal_positional_encoding"),
        *("add_positional_encoding", "learned_positional_encoding", "rope", "rope_vjp"),
        *("apply_rotary", "apply_rotary_vjp", "assert_within"),
        # Attention as it is used today:
        *("attention", "attention_vjp", "attention_jvp", "merge_attention", "alibi_slopes", "alibi_bias"),
        *("rotary_frequencies", "rotary_tables"),
        # What other systems than TorchLean have besides:
        *("tensor2tensor_sinusoidal", "inv_freq", "rope_angles", "rope_tables", "rotate_half"),
        *("padding_mask", "combine_masks", "table_lookup", "causal_attention"),
        "preset",
    }


def test_importing_it_imports_no_array_library_but_numpy() -> None:
    code = (
        "import sys, oracles; print(sorted({'torch', 'jax', 'cupy', 'mlx', 'ml_dtypes', 'mpmath'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOME)
    assert done.stdout == "[]\n"
