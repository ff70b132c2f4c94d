"""Fifty faults that can be planted in five kernels of this repository, ten in each.

A fault replaces a text, which its kernel's file has once, by a wrong text. `truth` is a regular expression
that a true description of the fault contains. It was written before any verdict was read, except the word
"minus" of one row.
"""

from dataclasses import dataclass
from pathlib import Path

from systems import pallas_attention, triton_attention, triton_paged, triton_rotary, triton_softmax

__all__ = ["FAULTS", "Fault"]

_FILES = {
    Path(str(module.__file__)).stem: Path(str(module.__file__))
    for module in (triton_attention, triton_paged, triton_rotary, triton_softmax, pallas_attention)
}


@dataclass(frozen=True)
class Fault:
    """A text of a kernel's file, the wrong text in its place, and what a true description says. `only`
    selects the implementation or the operation that is verified.
    """

    kernel: str
    name: str
    right: str
    wrong: str
    truth: str
    only: str

    @property
    def source(self) -> str:
        """The source of the kernel with the fault. Raises ValueError if the right text is not there once."""
        text = _FILES[self.kernel].read_text("utf-8")
        if text.count(self.right) != 1:
            raise ValueError(
                f"{self.kernel} has {self.right!r} {text.count(self.right)} times, but should have it once."
            )
        return text.replace(self.right, self.wrong)


def _faults(kernel: str, only: str, *rows: tuple[str, ...]) -> list[Fault]:
    """The faults of a kernel. A row may end with what is verified for it instead of `only`."""
    return [
        Fault(kernel, name, right, wrong, truth, own[0] if own else only) for name, right, wrong, truth, *own in rows
    ]


FAULTS = [
    *_faults(
        *("triton_attention", "CUDA float32[attention]"),
        ("tile", "range(0, n_k, block)", "range(0, n_k // block * block, block)", r"last|tail|block|tile|multiple of"),
        ("stride", "key_places[:, None] * k_row", "key_places[:, None] * d", r"stride|layout|contiguous|in memory"),
        (
            *("dtype", "output = output * shrink[:, None] +", "output = output.to(values.dtype) * shrink[:, None] +"),
            *(r"bfloat16|accumul|running output|partial sum", "CUDA bfloat16[attention]"),
        ),
        (
            *("mask", "mask + (head * n_q + rows[:, None])", "mask + (rows[:, None])"),
            r"mask.*(head|batch)|(head|batch).*mask",
        ),
        ("scale", "(d**-0.5 if", "(power_of_two(d)**-0.5 if", r"scale|temperature|padded|head_dim"),
        (
            *("lse", "(highest + tl.log2(total)) * 0.6931471805599453", "highest + tl.log2(total)"),
            r"lse_base|base 2|log₂|log2|binary log",
        ),
        ("window", "ahead >= -left", "ahead > -left", r"window|left"),
        (
            *("groups", "k + head // group * k_head", "k + head % group * k_head"),
            r"group|key head|kv.head|head.* keys|repeat",
        ),
        ("causal", "visible & (ahead <= 0)", "visible & (ahead < 0)", r"causal|diagonal|own key|itself|strict"),
        (
            *("rescale", "total = total * shrink +", "total = total +"),
            r"rescal|running (maximum|sum)|online|denominator|sum",
        ),
    ),
    *_faults(
        *("triton_paged", "pages float32"),
        ("page", "(page * page_size + places % page_size)", "(page * block + places % page_size)", r"page"),
        (
            *("split", "tl.cdiv(tl.cdiv(length, parts), block)", "tl.cdiv(length // parts, block)"),
            r"split|part|last|tail",
        ),
        ("table row", "table + sequence * table_row + places", "table + places", r"table|page|sequence|batch"),
        ("positions", "length - n_q + query % n_q", "query % n_q", r"top.left|align|causal|position|offset"),
        (
            *("groups", "kv_heads + head // (heads // kv_heads)", "kv_heads + head % kv_heads"),
            r"group|key head|kv.head|repeat",
        ),
        ("window", "ahead <= right", "ahead < right", r"window|right"),
        ("scale", "in_base_2 = (d**-0.5", "in_base_2 = (d_v**-0.5", r"scale|d_v|value_dim|width of (the )?values"),
        (
            *("lse", "(highest + tl.log2(total)) * 0.6931471805599453", "highest + tl.log2(total)"),
            r"lse_base|base 2|log₂|log2",
        ),
        (
            *("merge", "merged = tl.sum(weights[:, None] * values, 0)", "merged = tl.sum(values, 0)"),
            r"merg|split|part|weight",
        ),
        ("length", "tl.load(lengths + sequence)", "tl.load(lengths)", r"length|sequence"),
    ),
    *_faults(
        *("triton_rotary", "[apply_rotary]"),
        ("pairing", "low, high = pairs, pairs + half", "low, high = 2 * pairs, 2 * pairs + 1", r"adjacent|interleav"),
        (
            *("direction", "if backward:", "if not backward:"),
            r"direction|sign|minus|negative|opposite|-θ|invers|transpose",
        ),
        (
            *("table row", "table = rows * half + pairs", "table = tl.maximum(rows - 1, 0) * half + pairs"),
            r"row|position",
        ),
        ("batch", "sequence * x_sequence", "0 * x_sequence", r"batch|first (entry|sequence)|(entry|sequence) 0"),
        ("stride", "rows * x_row", "rows * d", r"stride|layout|contiguous|in memory|view"),
        (
            *("tile", "-(-n // _BLOCK), len(rows)", "max(n // _BLOCK, 1), len(rows)"),
            r"last|tail|block|tile|multiple|written|\bn\b",
        ),
        (
            "dtype",
            "c = tl.load(cos + table, mask=exists, other=0.0)",
            "c = tl.load(cos + table, mask=exists, other=0.0).to(tl.float16)",
            r"(?<!b)float16|half precision",
        ),
        (
            "accumulate",
            "second * c + first * s",
            "second * c + (first * c - second * s) * s",
            r"in place|overwrit|already|second|upper|i \+ d/2",
        ),
        (
            *("half", "out_row + high, second * c + first * s", "out_row + high, second"),
            r"second|upper|half|partial|pass|not rotated",
        ),
        ("tables", "rows, cos, sin, out, *", "rows, sin, cos, out, *", r"cos|sin|swap|exchang"),
    ),
    *_faults(
        *("triton_softmax", "[hard_masked_softmax]"),
        ("mask", "other=0) != 0", "other=0) == 0", r"mask"),
        ("mask row", "mask + row * n_k + columns", "mask + columns", r"mask"),
        (
            "maximum",
            'numbers - tl.where(highest == float("-inf"), 0.0, highest)',
            "numbers",
            r"maximum|overflow|large|underflow|shift|subtract",
        ),
        ("masked value", 'tl.where(visible, given, float("-inf"))', "tl.where(visible, given, -1e4)", r"mask"),
        (
            "tile",
            "rows.stride(0), power_of_two(n_k))",
            "rows.stride(0), power_of_two(n_k) // 2)",
            r"last|tail|block|tile|column|written|keys|power",
        ),
        ("stride", "row * scores_row", "row * n_k", r"stride|layout|contiguous|in memory|view"),
        (
            "dtype",
            "total = tl.sum(powers, 0)",
            "total = tl.sum(powers.to(tl.float16), 0).to(tl.float32)",
            r"(?<!b)float16|half precision",
        ),
        ("base", "tl.exp(", "tl.exp2(", r"exp2|base|2\^|log|temperature|scale|factor"),
        ("row sum", "w * (g - tl.sum(w * g, 0))", "w * g", r"row|Σ|sum|δ|delta", "[hard_masked_softmax_vjp]"),
        ("accumulate", "tl.sum(w * g, 0)", "tl.sum(g, 0)", r"row|Σ|sum|δ|delta|weight", "[hard_masked_softmax_vjp]"),
    ),
    *_faults(
        *("pallas_attention", "Pallas"),
        (
            *("sink", "total = jnp.where(jnp.isneginf(highest), 0.0, 1.0)", "total = jnp.zeros((len(queries), 1))"),
            r"sink",
        ),
        ("softcap", "cap * jnp.tanh(scores / cap)", "jnp.tanh(scores / cap)", r"softcap"),
        ("groups", "(head // group, 0, 0)", "(head % len(keys), 0, 0)", r"group|key head|kv.head|repeat"),
        ("causal", "places <= rows", "places < rows", r"causal|diagonal|own key|itself|strict"),
        ("alignment", "(places <= rows)", "(places <= rows + n_k - len(queries))", r"bottom.right|align|causal"),
        ("scale", "scale=d**-0.5 if", "scale=1 / d if", r"scale|temperature|1/d|√d"),
        ("rescale", "output * shrink", "output", r"rescal|running (maximum|output)|online|block"),
        (
            *("tile", "visible = places < n_k", "visible = places <= n_k"),
            r"pad|beyond|extra|zero key|one (more )?key|last|block",
        ),
        ("lse", "(highest + jnp.log(total))", "(jnp.log(total))", r"log-sum-exp|lse|maximum"),
        (
            "dtype",
            "shrink + weights @ values",
            "shrink + (weights.astype(jnp.bfloat16) @ values.astype(jnp.bfloat16))",
            r"bfloat16",
        ),
    ),
]
"""The faults, by kernel."""
