"""rotary-embedding-torch and local-attention: tables that outlive what they were made for, and tokens that are not in the sequence."""

from research.findings.shown import Shown

__all__ = ["FINDINGS"]

FINDINGS = [
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "With xpos, queries against cached keys get another scale than together with them",
        "defect",
        "A scale is centred on the middle of the positions that it is made for: those of all keys, and those of the queries alone. "
        "One query against "
        "ten keys is off by (10 // 2 − 1 // 2) / 512 in the exponent.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "q_scale = self.get_scale(seq[-q_len:]).type(dtype)",
        "none found; related: lucidrains/rotary-embedding-torch#27 (closed)",
        """import torch
from rotary_embedding_torch import RotaryEmbedding

q = k = torch.ones(1, 1, 10, 4)
whole, keys = RotaryEmbedding(4, use_xpos=True).rotate_queries_and_keys(q, k)
one, same = RotaryEmbedding(4, use_xpos=True).rotate_queries_with_cached_keys(q[:, :, -1:], k)
print([round(float(x[0, 0, -1] @ y[0, 0, -1]), 4) for x, y in ((whole, keys), (one, same))])""",
        lambda: "[4.0, 4.0]",
    ),
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "get_axial_freqs gives later axes the offset of the first",
        "defect",
        "Angles of the positions with the offset are kept as those of the first positions, and handed out for the next axis, "
        "whatever its offset.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "freqs = self.forward(pos, seq_len = dim)",
        "none found",
        """from rotary_embedding_torch import RotaryEmbedding

angles = RotaryEmbedding(4).get_axial_freqs(2, 2, offsets=(0, 10))
print(angles[0, :, 4].tolist())""",
        lambda: "[10.0, 11.0]",
    ),
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "After get_axial_freqs with an offset, rows are rotated from that offset",
        "defect",
        "The same table serves `rotate_queries_or_keys`, whose row 0 then stands at position 5.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "self.cached_freqs[:seq_len] = freqs.detach()",
        "none found; related: lucidrains/rotary-embedding-torch#11 (closed)",
        """import torch
from rotary_embedding_torch import RotaryEmbedding

layer = RotaryEmbedding(4)
layer.get_axial_freqs(1, offsets=(5,))
print([round(x, 4) for x in layer.rotate_queries_or_keys(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))[0, :2].tolist()])""",
        lambda: "[1.0, 0.0]",
    ),
    *(
        Shown(
            "rotary-embedding-torch",
            "rotary",
            title,
            "defect",
            "The table that keeps angles is as wide as `dim`, and angles of another width do not fit into it. With "
            "cache_if_possible=False it works.",
            "rotary_embedding_torch.rotary_embedding_torch",
            line,
            "none found",
            f"""import torch
from rotary_embedding_torch import RotaryEmbedding

out = RotaryEmbedding(4, {option}).rotate_queries_or_keys(torch.tensor([[1.0, 0.0, 2.0, 3.0]] * 2))
print([round(x, 4) for x in out[1].tolist()])""",
            lambda: "[0.5403, 0.8415, 2.0, 3.0]",
        )
        for title, option, line in (
            ("freqs_for='constant' cannot rotate", 'freqs_for="constant"', "freqs = torch.ones(num_freqs).float()"),
            ("custom_freqs for a part of the channels cannot rotate", "custom_freqs=torch.ones(1)", "freqs = custom_freqs"),
        )
    ),
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "Angles for each sequence of a batch are cut along the batch",
        "defect",
        "For rows of three axes the last n of the angles' first axis are taken, which is that of the batch where each sequence has "
        "angles of its "
        "own: with one row each, all get those of the last.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "freqs = slice_at_dim(freqs, slice(-seq_len, None), dim = freqs_seq_dim)",
        "none found",
        """import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

x = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(2, 1, 4)
angles = RotaryEmbedding(4)(torch.tensor([[0.0], [1.0]]))
print([round(v, 4) for v in apply_rotary_emb(angles, x)[:, 0, 0].tolist()])""",
        lambda: "[1.0, 0.5403]",
    ),
    Shown(
        "rotary-embedding-torch",
        "rotary",
        "seq_before_head_dim and xpos together cannot rotate queries against cached keys",
        "defect",
        "The scale gets no axis for the heads, as the angles do, and as it does in `rotate_queries_and_keys`.",
        "rotary_embedding_torch.rotary_embedding_torch",
        "k_scale = self.get_scale(seq).type(dtype)",
        "none found",
        """import torch
from rotary_embedding_torch import RotaryEmbedding

x = torch.ones(1, 3, 2, 4)
print(list(RotaryEmbedding(4, use_xpos=True, seq_before_head_dim=True).rotate_queries_with_cached_keys(x, x)[0].shape))""",
        lambda: "[1, 3, 2, 4]",
    ),
    Shown(
        "local-attention",
        "attention",
        "With autopad and without causality, tokens attend to the padding",
        "defect",
        "Queries, keys and values are padded to whole buckets by zeros. Without a mask the padded keys keep their place in the softmax.",
        "local_attention.local_attention",
        "(needed_pad, q), (_, k), (_, v) = map(",
        "none found",
        """import torch
from local_attention import LocalAttention

x = torch.ones(1, 1, 2, 1)
print(LocalAttention(4, autopad=True, use_rotary_pos_emb=False)(0 * x, 0 * x, x)[0, 0, :, 0].tolist())""",
        lambda: "[1.0, 1.0]",
    ),
    Shown(
        "local-attention",
        "rotary",
        "Where buckets look forward, rotary embeddings put a query a bucket after its own key",
        "defect",
        "Queries take the last angles of those of their keys, which are the forward bucket's; looking back alone, they are their "
        "own. So a token that "
        "seeks what is like it finds the one a bucket later. Without causality looking forward is the default.",
        "local_attention.rotary",
        "q_freqs = freqs[..., -q_len:, :]",
        "none found",
        """import torch
from local_attention import LocalAttention

x = torch.tensor([10.0, 0.0]).expand(1, 1, 3, 2)
weights = LocalAttention(1, dim=2)(x, x, torch.eye(3)[None, None])[0, 0]
print(weights.argmax(-1).tolist())""",
        lambda: "[0, 1, 2]",
    ),
    Shown(
        "local-attention",
        "attention",
        "A query that its mask leaves no key averages values of −1 that are in no sequence",
        "defect",
        "Values beyond the ends are padded by −1, as positions are, and a row of masked scores, all alike, is the mean of all values "
        "of the buckets.",
        "local_attention.local_attention",
        "bv = look_around(bv, **look_around_kwargs)",
        "none found",
        """import torch
from local_attention import LocalAttention

x, mask = torch.ones(1, 1, 2, 1), torch.tensor([[False, True]])
print(LocalAttention(1, causal=True, use_rotary_pos_emb=False)(x, x, 3 * x, mask=mask)[0, 0, 0].tolist())""",
        lambda: "[0.0]",
    ),
    *(
        Shown(
            "local-attention",
            "caches",
            title,
            "defect",
            detail,
            "local_attention.transformer",
            line,
            "none found",
            f"""import torch
from local_attention.transformer import LocalMHA

torch.manual_seed(0)
layer, x = LocalMHA(dim=16, window_size=2, dim_head=8, heads=2, causal=True, {option}), torch.randn(1, 4, 16)
with torch.no_grad():
    _, cache = layer(x[:, :-1], return_cache=True)
    print(round(float((layer(x[:, -1:], cache=cache) - layer(x)[:, -1:]).abs().max()), 4))""",
            lambda: 0.0,
        )
        for title, detail, line, option in (
            (
                "LocalMHA with qk_rmsnorm has another scale with its cache",
                "Scores of normalised queries and keys are multiplied by qk_scale, 8 by default; with a cache by 1/√dim_head.",
                "q = q * (q.shape[-1] ** -0.5)",
                "qk_rmsnorm=True",
            ),
            (
                "LocalMHA without exact_windowsize loses a bucket of its cache where a bucket is full",
                "Of n keys the last look_backward·w + n mod w are kept. Where n mod w is 0 the own bucket's w are missing.",
                "kv_start_index = -(effective_window_size + (seq_len % self.window_size))",
                "exact_windowsize=False",
            ),
        )
    ),
]
"""What was found, library by library."""
