"""x-transformers: what its switches and its cache change that they should not."""

from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_ATTEND = """import torch
from x_transformers.attend import Attend

"""
_WEIGHTS = "print([[round(float(x), 4) for x in row] for row in {}[0, 0]])"


def _decoded(options: str) -> str:
    """The script of a decoder that is given its last token with a cache, and without."""
    return f"""import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, {options})
model = TransformerWrapper(num_tokens=32, max_seq_len=16, attn_layers=layers).eval()
ids = torch.arange(1, 9)[None]
with torch.no_grad():
    _, cache = model(ids[:, :-1], return_intermediates=True)
    last, _ = model(ids, cache=cache, return_intermediates=True)
    print(round(float((last[:, -1] - model(ids)[:, -1]).abs().max()), 4))"""


FINDINGS = [
    Shown(
        "x-transformers",
        "attention",
        "Under flash the argument `causal` of a call is not read",
        "defect",
        "`forward` takes it and hands it on to neither the kernel nor its own function, which has the parameter: what the object was "
        "made with "
        "holds. Written out, the argument wins.",
        "x_transformers.attend",
        "return self.flash_attn(q, k, v, mask = mask, attn_bias = attn_bias, flash_pack_seq_kwargs",
        "none found",
        _ATTEND
        + "q, v = torch.zeros(1, 1, 2, 1), torch.eye(2)[None, None]\n"
        + _WEIGHTS.format("Attend(flash=True)(q, q, v, causal=True)[0]"),
        lambda: "[[1.0, 0.0], [0.5, 0.5]]",
    ),
    Shown(
        "x-transformers",
        "attention",
        "Fewer keys than queries: causality is aligned at the last key, and under flash at the first",
        "defect",
        "The mask is made by hand where there are more keys than queries, and left to the kernel's flag otherwise, whose alignment "
        "is the other "
        "one. Of three queries the first two have no key of one, and are its mean when it is written out; the flash path lets all "
        "see it.",
        "x_transformers.attend",
        "if k_len > q_len and causal:",
        "none found",
        _ATTEND
        + """q, k, v = torch.zeros(1, 1, 3, 1), torch.zeros(1, 1, 2, 1), torch.eye(2)[None, None]
print([[round(float(x), 4) for x in row] for row in Attend(flash=True, causal=True)(q, k, v)[0][0, 0, 1:]])""",
        lambda: "[[1.0, 0.0], [0.5, 0.5]]",
    ),
    Shown(
        "x-transformers",
        "attention",
        "A query that a mask and causality together leave no key attends to the future",
        "defect",
        "Masked scores are minus the largest number, all alike, and a row of them is the mean of all values. A row is made 0 where "
        "the mask alone "
        "leaves it nothing; the flash path, which joins both first, makes it 0 here too.",
        "x_transformers.attend",
        "sim = sim.masked_fill(causal_mask, mask_value)",
        "none found",
        _ATTEND
        + """q, v, mask = torch.zeros(1, 1, 2, 1), torch.eye(2)[None, None], torch.tensor([[False, True]])
"""
        + _WEIGHTS.format("Attend(causal=True)(q, q, v, mask=mask)[0]"),
        lambda: "[[0.0, 0.0], [0.0, 1.0]]",
    ),
    Shown(
        "x-transformers",
        "attention",
        "Query heads share keys in turn, head h those of h mod kv_heads",
        "convention",
        "PyTorch, transformers, JAX and ONNX since 1.20 share them in groups, h // group. Weights of one are not those of the other.",
        "x_transformers.attend",
        "k, v = tuple(repeat(t, 'b kvh n d -> b (r kvh) n d', r = heads // kv_heads) for t in (k, v))",
        "none found",
        _ATTEND
        + """q, k, v = torch.zeros(1, 4, 1, 1), torch.zeros(1, 2, 1, 1), torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1)
print(Attend()(q, k, v)[0].flatten().tolist())""",
        lambda: "[0.0, 0.0, 1.0, 1.0]",
    ),
    Shown(
        "x-transformers",
        "attention",
        "sparse_topk raises where there are fewer keys than that",
        "defect",
        "The keys of a short sequence are all among its largest. A decoder with a cache cannot give its first tokens.",
        "x_transformers.attend",
        "top_values, _ = logits.topk(sparse_topk, dim = dim)",
        "none found",
        _ATTEND + "q, v = torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)\nprint(Attend(sparse_topk=2)(q, q, v)[0].item())",
        lambda: "1.0",
    ),
    Shown(
        "x-transformers",
        "attention",
        "l2_distance has another scale under flash, where none is given",
        "defect",
        "The squares of the norms are two more channels, and the kernel's own scale is of the width with them: 1/√(d + 2) and not 1/√d.",
        "x_transformers.attend",
        "q = F.pad(q, (0, 1), value = -1.)",
        "none found; related: lucidrains/x-transformers#190 (closed)",
        _ATTEND
        + """q, k, v = torch.zeros(1, 1, 1, 2), torch.tensor([[[[0.0, 0.0], [1.0, 1.0]]]]), torch.eye(2)[None, None]
print([round(Attend(l2_distance=True, flash=flash)(q, k, v)[0][0, 0, 0, 0].item(), 4) for flash in (False, True)])""",
        lambda: "[0.8044, 0.8044]",
    ),
    *(
        Shown(
            "x-transformers",
            "whole models",
            title,
            "defect",
            detail,
            "x_transformers." + module,
            line,
            "none found",
            _decoded(*options),
            lambda: 0.0,
        )
        for title, detail, module, line, options in (
            (
                "A decoder with shift_tokens gives another next token with its cache",
                "Channels are taken from the token before. With a cache the input is the last token alone, and zeros are what stands "
                "before it. Selective attention says that it cannot be cached; this does not.",
                "x_transformers",
                "splitted = x.split(feats_per_shift, dim = -1)",
                ("shift_tokens=1",),
            ),
            (
                "A decoder with data-dependent ALiBi gives another next token with its cache",
                "The forget gates are made of the tokens of the call, and those of the keys in the cache are not kept.",
                "x_transformers",
                "forget_gates = self.to_forget_gates(x) * self.post_log_scale",
                ("attn_data_dependent_alibi=True",),
            ),
        )
    ),
    Shown(
        "x-transformers",
        "whole models",
        "A decoder with orthog_projected_values is not causal",
        "defect",
        "The part along the values is taken over all tokens at once, as one vector for each sequence: another last token changes the "
        "first logits.",
        "x_transformers.x_transformers",
        "v_for_proj = repeat(orig_values,",
        "none found",
        """import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=16, depth=1, heads=2, attn_dim_head=8, attn_orthog_projected_values=True)
model = TransformerWrapper(num_tokens=32, max_seq_len=16, attn_layers=layers).eval()
with torch.no_grad():
    first, other = (model(torch.tensor([[1, 2, last]]))[:, :2] for last in (3, 4))
print(round(float((first - other).abs().max()), 4))""",
        lambda: 0.0,
    ),
]
"""What was found."""
