"""Recipes for released GPU kernels: each module calls the functions of one file of a package, which is
installed without its dependencies, and declares what they promise.

    pip install --no-deps liger-kernel==0.8.5
    attnspec verify systems/kernels/liger_rope.py --interpret --quick

requirements.txt pins the packages. No source is copied. A recipe whose package is not on the import path
is shown as not run. `make kernels` runs all recipes and writes docs/kernels.md. `released`, `vendors`,
`paging` and `rotating` are what recipes share.
"""

__all__ = ["NO_FINDING", "RECIPES"]

NO_FINDING = " 0 fail"
"""What the verdict of a recipe has if no check fails."""

RECIPES = {
    "fla_attention": "✗ fla parallel_attn, sinks in bfloat16",
    "fla_rotary": NO_FINDING,
    "flag_gems_rotary": NO_FINDING,
    "jax_gpu_attention": NO_FINDING,
    "liger_rope": "rows are wrong",
    "liger_softmax": NO_FINDING,
    "lightllm_attention": NO_FINDING,
    "lightllm_rotary": NO_FINDING,
    "sglang_decode_attention": "✗ SGLang decode_attention, one query head for each key head",
    "sglang_extend_attention": "reads masked key",
    "sglang_merge_state": "likely cause: merge-of-two-empty-parts",
    "sglang_prefill_attention": NO_FINDING,
    "unsloth_rope": NO_FINDING,
    "vllm_decode_attention": "✗ vLLM decode_attention, one query head for each key head",
    "vllm_merge_attn_states": "✗ vLLM merge_attn_states, one head, transposed",
    "vllm_prefill_attention": "✗ vLLM prefill_attention, sinks in bfloat16",
    "vllm_prefix_prefill": NO_FINDING,
    "vllm_rotary": NO_FINDING,
    "vllm_unified_attention": "miss key",
}
"""Each recipe, and a text that its verdict has."""
