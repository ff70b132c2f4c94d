"""Points at which results are compared with the oracle, as tables: decoding, prefills, chunks and
ragged pasts in the sizes of models. A row is one call, whose arrays an input family fills.
"""

from types import MappingProxyType
from typing import Any

import numpy as np

from properties.strategies.operating_points import Point, padding
from properties.strategies.plain_calls import Options, Sizes, numbers

__all__ = ["BORDERS", "LAYERS", "NUMBERS", "ROTATIONS", "SHORT_BORDERS", "SHORT_NUMBERS", "SOFTMAX", "TILES", "TOKENS"]


def _pasts(sizes: Sizes) -> Any:
    """A past for each sequence: no key, about half of the other keys, and all of them."""
    longest = sizes["n_k"] - sizes["n_q"]
    return np.array([0, longest // 2 + 1, longest])[: sizes["batch"]]


def _ragged(**others: Any) -> Options:
    """A past for each sequence, and other options."""
    return {"causal": True, "offset": _pasts, **others}


def _last(**others: Any) -> Options:
    """Queries that are the last ones of their sequence, and other options."""
    return {"causal": True, "offset": lambda sizes: sizes["n_k"] - sizes["n_q"], **others}


def _chunk(sizes: Sizes) -> Any:
    """The causal mask of the last queries, the same for all batch entries and heads."""
    return np.tri(sizes["n_q"], sizes["n_k"], sizes["n_k"] - sizes["n_q"], dtype=bool)[None]


def _gap(sizes: Sizes) -> Any:
    """A causal mask, but the second half of the queries, except the last one, do not see the first key. It
    has the corners of a causal mask.
    """
    mask = np.tri(sizes["n_q"], sizes["n_k"], dtype=bool)
    mask[sizes["n_q"] // 2 : -1, 0] = False
    return mask[None]


def _of_heads(sizes: Sizes) -> Any:
    """A mask for each head, the same for all batch entries: no query sees one key in three."""
    query, key = np.arange(sizes["n_q"])[:, None], np.arange(sizes["n_k"])
    return np.stack([(query + key + head) % 3 > 0 for head in range(sizes["num_heads"])])[None]


def _sinks(sizes: Sizes) -> Any:
    """A sink for each head, from −1 on in steps of 1/2."""
    return np.arange(sizes["num_heads"]) / 2 - 1


_HEADS: Sizes = {"batch": 2, "num_heads": 8, "kv_heads": 2}


def _few(n_q: int, n_k: int, **others: int) -> Sizes:
    """The sizes of a call with few heads, and other sizes."""
    few = {"batch": 3, "num_heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16}
    return {**few, "n_q": n_q, "n_k": n_k, **others}


def _decoding(batch: int, kv_heads: int, n_q: int, n_k: int, width: int = 16, heads: int = 8) -> Point:
    """A point of many heads with few queries and many keys."""
    sizes = {"batch": batch, "num_heads": heads, "kv_heads": kv_heads, "n_q": n_q, "n_k": n_k}
    name = f"{'1 query' if n_q == 1 else f'{n_q} queries'}, {n_k} keys"
    return Point(name, {**sizes, "head_dim": width, "value_dim": width})


def _prefill(tokens: int, width: int, batch: int = 2) -> Point:
    """A point of as many queries as keys, with 8 heads on 2 key heads."""
    sizes = {**_HEADS, "batch": batch, "n_q": tokens, "n_k": tokens, "head_dim": width, "value_dim": width}
    return Point(f"{tokens} tokens of width {width}", sizes)


_LEADS = ((130,), (1, 12), (1, 16), (1, 32), (1, 64), (4, 12), (5, 8), (33, 2), (2, 40))
"""Numbers of problems, or numbers of sequences and of heads, as models have them."""


def _problems(lead: tuple[int, ...]) -> Point:
    """A point of a batch of small problems."""
    heads = {"num_heads": lead[1], "kv_heads": max(lead[1] // 4, 1)} if len(lead) > 1 else {}
    sizes = {"batch": lead[0], "n_q": 3, "n_k": 4, "head_dim": 8, "value_dim": 4}
    return Point(f"a batch of {' × '.join(map(str, lead))}", {**sizes, **heads})


NUMBERS = (
    *map(_problems, _LEADS),
    *(_decoding(2, 2, 1, 257, 64, heads=16), _decoding(3, 1, 1, 1025)),
    *(_decoding(1, 8, 8, 2049), _decoding(1, 2, 2, 4097)),
    *(_prefill(64, 64), _prefill(65, 128), _prefill(129, 96, 1), _prefill(64, 256, 1), _prefill(192, 64, 1)),
    Point("512 tokens", _few(512, 512, batch=1, num_heads=2, kv_heads=1)),
    Point("130 small problems", {"batch": 13, "num_heads": 10, "kv_heads": 5, "n_q": 3, "n_k": 4}),
    Point("3 batch axes", _few(3, 5, outermost=2, outer=3)),
    Point("wider values", _few(17, 33, head_dim=64, value_dim=128)),
    Point("narrower values", _few(17, 33, head_dim=192, value_dim=128)),
    Point("70 queries, 40 keys", _few(70, 40)),
    Point("64 masked queries, 192 keys", _few(64, 192), {"mask": _chunk}),
    Point("a causal mask of 130 tokens", {"n_q": 130, "n_k": 130, "head_dim": 16, "value_dim": 16}, {"mask": _chunk}),
    Point("a causal mask with a gap", {"n_q": 40, "n_k": 40, "head_dim": 16, "value_dim": 16}, {"mask": _gap}),
    Point("a mask for each head", _few(5, 50), {"mask": _of_heads}),
    Point("a mask of keys for 130 keys", _few(9, 130), {"mask": padding}),
    Point("a chunk of 130 queries, 300 keys", _few(130, 300, batch=1, num_heads=2)),
    Point("130 causal tokens", _few(130, 130), {"causal": True}),
    Point("64 causal queries, 40 keys", _few(64, 40), {"causal": True}),
    Point("a chunk of 64 queries", _few(64, 256), _last()),
    Point("a chunk with a window", _few(64, 256), _last(window=(63, None))),
    Point("1 causal query, 1025 keys", _few(1, 1025), _last()),
    Point("pasts of sequences", _few(4, 320), _ragged()),
    Point("pasts of sequences with a window", _few(4, 320), _ragged(window=(40, None))),
    Point("1 query, pasts of sequences, a window", _few(1, 600), _ragged(window=(127, None))),
    Point("pasts of sequences with a softcap", _few(4, 320), _ragged(softcap=2.0)),
    Point(
        "pasts of sequences with window, softcap and sinks", _few(4, 320),
        _ragged(window=(40, None), softcap=2.0, sink=_sinks),
    ),
    Point("70 tokens with sinks", _few(70, 70), {"sink": _sinks}),
    Point("70 tokens with a softcap", _few(70, 70), {"softcap": 2.0}),
)  # fmt: skip
"""Where results on ordinary numbers are compared with the oracle."""

_SLOW = ("129 tokens of width 96", "192 tokens of width 64", "512 tokens", "2 queries, 4097 keys")
SHORT_NUMBERS = tuple(point for point in NUMBERS if point.name not in _SLOW)
"""The points of derivatives, whose oracle takes longer."""

BORDERS = (
    *(_decoding(1, 8, 1, 255), _decoding(3, 1, 1, 256), _decoding(2, 2, 2, 257, heads=16)),
    *(_decoding(2, 1, 1, 511), _decoding(1, 2, 8, 512), _decoding(3, 8, 1, 513)),
    *(_decoding(2, 2, 1, 1023), _decoding(2, 8, 1, 1024), _decoding(3, 1, 2, 1025)),
    *(_decoding(1, 2, 1, 2047), _decoding(1, 1, 8, 2048), _decoding(2, 2, 1, 2049)),
    *(_decoding(1, 1, 2, 4095), _decoding(1, 8, 1, 4096), _decoding(2, 2, 1, 4097)),
    Point("64 tokens, 256 keys", {**_HEADS, "batch": 1, "n_q": 64, "n_k": 256, "head_dim": 64, "value_dim": 64}),
    Point("257 tokens", _few(257, 257, batch=2, num_heads=2, kv_heads=1)),
    Point("a chunk of 64 queries", _few(64, 256), _last()),
    Point("1 causal query, 1024 keys", _few(1, 1024), _last()),
    Point("1 query, pasts of sequences", _few(1, 1025), _ragged()),
)
"""Where keys at the borders of blocks have large scores."""

SHORT_BORDERS = tuple(point for point in BORDERS if point.sizes["n_k"] in (256, 257, 513, 1024))
"""The points of derivatives, whose oracle takes longer."""

SOFTMAX = tuple(
    Point(f"{n_k} keys", {"batch": 2 + place % 2, "n_q": 3, "n_k": n_k})
    for place, n_k in enumerate((255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097))
)
"""Where rows of a softmax are compared with the oracle."""


def _rotation(name: str, options: Options = MappingProxyType({}), **sizes: int) -> Point:
    """A point of 2 sequences with 8 heads: 16384 rows if no length is given."""
    usual = {"batch": 2, "num_heads": 8, "seq_len": 1024, "head_dim": 8, "start_pos": 3}
    return Point(name, {**usual, **sizes}, options)


ROTATIONS = (
    _rotation("16384 rows"),
    _rotation("1024 rows of width 128", head_dim=128, seq_len=64),
    *(
        _rotation(f"positions to {end}", batch=1, num_heads=2, seq_len=7, start_pos=end - 4)
        for end in (2048, 4096, 8192, 32768, 131072)
    ),
    _rotation("16384 rows, a part of the channels", {"rotary_dim": 4}),
    _rotation("16384 rows, positions", {"positions": lambda sizes: np.arange(sizes["seq_len"]) % 700}, start_pos=0),
    _rotation("16384 rows, frequencies", {"inv_freq": lambda sizes: 1.0 / (1 + np.arange(sizes["head_dim"] // 2))}),
    _rotation("16384 rows, an attention factor", {"attention_factor": 1.25}),
    _rotation(
        "16384 rows, sections",
        {"positions": lambda sizes: np.arange(sizes["seq_len"]) % np.array([[64], [5], [3]]), "sections": (2, 1, 1)},
        start_pos=0,
    ),
)
"""Where rotations of many rows are compared with the oracle."""

TOKENS = (
    Point("64 tokens", {"batch": 2, "num_heads": 8, "head_dim": 16, "model_dim": 64, "seq_len": 64}),
    Point("130 small problems", {"batch": 13, "num_heads": 10, "head_dim": 4, "model_dim": 40, "seq_len": 3}),
    Point("257 tokens", {"batch": 2, "num_heads": 4, "head_dim": 8, "model_dim": 32, "seq_len": 257}),
)
"""Where results of multi-head attention on ordinary numbers are compared with the oracle."""


def _layer(name: str, n_q: int, n_k: int, options: Options = MappingProxyType({}), **others: int) -> Point:
    """A point of a layer with 4 heads of width 16, whose model, context and output are as wide as the heads."""
    widths = {"head_dim": 16, "value_dim": 16, "model_dim": 64, "context_dim": 64, "out_dim": 64}
    sizes = {"batch": 2, "num_heads": 4, "kv_heads": 4, "n_q": n_q, "n_k": n_k, **widths}
    return Point(name, {**sizes, **others}, options)


_BIASES: Options = {
    "bq": lambda sizes: numbers((sizes["num_heads"] * sizes["head_dim"],)),
    "bo": lambda sizes: numbers((sizes["out_dim"],)),
}

LAYERS = (
    _layer("64 tokens", 64, 64),
    _layer("130 causal tokens", 130, 130, {"causal": True}, kv_heads=2),
    _layer("1 query, 257 keys", 1, 257, batch=3),
    _layer("1 query, 1025 keys", 1, 1025, kv_heads=1),
    _layer("8 causal queries, 513 keys", 8, 513, {"causal": True}, batch=1),
    _layer("77 keys of another width", 40, 77, context_dim=96, kv_heads=2),
    _layer("2 biases", 33, 65, _BIASES),
    _layer("a mask of keys for 130 keys", 9, 130, {"mask": padding}, kv_heads=2),
    _layer("wide values", 17, 33, kv_heads=1, head_dim=8, value_dim=32, out_dim=40),
    _layer("260 small problems", 3, 4, batch=65),
)
"""Where results of a layer on ordinary numbers are compared with the oracle."""

TILES = tuple(Point(f"tiles of {tile} keys", {"n_q": 1, "n_k": 8 * tile}) for tile in (32, 128, 16, 64))
"""Where sums over tiles of keys are compared with the oracle."""
