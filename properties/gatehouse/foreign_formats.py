"""Reads problems and solutions of KernelBench and flashinfer-bench as submissions to the gate.

Only the process of the untrusted kernel runs their code. In KernelBench a problem is a file with
Model, get_inputs and get_init_inputs. A solution defines ModelNew. It gets the result of the same
get_init_inputs, and is called on tensors. In flashinfer-bench a solution is a JSON file with
definition, spec and sources.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

from oracles import Conventions
from properties.gatehouse.problem_sizes import shapes_of_inputs, sizes_of_workloads
from properties.gatehouse.submission import Submission, of_file, parsed, text_of

__all__ = ["flashinfer_bench", "kernelbench"]

_ENTRY = "entry_of_the_candidate"
_CALLED = "scaled_dot_product_attention"

_MODEL = """
from {module} import ModelNew

model = ModelNew(*{init_inputs!r})


def entry(q, k, v):
    group = q.shape[1] // k.shape[1]  # in KernelBench each query head has its own keys
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    return model(q, k, v)
"""

_RAGGED = """
import torch
from {module} import {function}

HEADS, KV_HEADS = {heads}, {kv_heads}


def entry(q, k, v):
    # Problem p is part of sequence p // KV_HEADS. It has the keys of head p % KV_HEADS, and the queries of one head
    # that reads these keys.
    lead, (n_q, width), n_k, group = q.shape[:-2], q.shape[-2:], k.shape[-2], HEADS // KV_HEADS
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    problems = torch.arange(len(q))
    sequence, kv_head = problems // KV_HEADS, problems % KV_HEADS
    head = kv_head * group + sequence % group
    sequences = -(-len(q) // KV_HEADS)
    queries = q.new_zeros(sequences, n_q, HEADS, width)
    keys, values = (x.new_zeros(sequences, n_k, KV_HEADS, width) for x in (k, v))
    queries[sequence, :, head], keys[sequence, :, kv_head], values[sequence, :, kv_head] = q, k, v
    starts = [torch.arange(sequences + 1, dtype=torch.int32) * n for n in (n_q, n_k)]
    given = [x.reshape(-1, *x.shape[2:]) for x in (queries, keys, values)]
    log_sums = given[0].new_empty(given[0].shape[:2], dtype=torch.float32)
    outputs = [torch.empty_like(given[0]), log_sums] if {in_place} else []
    returned = {function}(*given, *starts, width**-0.5, *outputs)
    out = outputs[0] if outputs else returned[0] if isinstance(returned, (tuple, list)) else returned
    return out.reshape(sequences, n_q, HEADS, width)[sequence, :, head].reshape(*lead, n_q, width)
"""


_PAGED = """
import torch
from {module} import {function}


def entry(q, k_pages, v_pages, block_table, lengths, *, cu_q=None):
    size, queries = k_pages.shape[1], q[:, 0] if cu_q is None else q
    counts = -(-lengths // size)
    kv_indptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    pages = [row[:count] for row, count in zip(block_table, counts.tolist())]
    kv_indices = torch.cat([block_table.new_zeros(0), *pages])
    last = [torch.where(counts == 0, 0, (lengths - 1) % size + 1).int()] if size > 1 else []
    starts = [kv_indptr] if cu_q is None else [cu_q, kv_indptr]
    given = [queries, k_pages, v_pages, *starts, kv_indices, *last, q.shape[-1] ** -0.5]
    log_sums = queries.new_empty(queries.shape[:2], dtype=torch.float32)
    outputs = [torch.empty_like(queries), log_sums] if {in_place} else []
    returned = {function}(*given, *outputs)
    out, lse = outputs or returned
    return (out, lse) if cu_q is not None else (out[:, None], lse[..., None])
"""

_SIZES = r"h([1-9]\d*)_kv([1-9]\d*)_d([1-9]\d*)"
_RAGGED_NAME = re.compile(rf"gqa_ragged_prefill_causal_{_SIZES}")
_PAGED_NAME = re.compile(rf"gqa_paged_(decode|prefill_causal)_{_SIZES}_ps([1-9]\d*)")
"""The names of the definitions whose solutions the gate judges. They state the sizes that are constant."""


def kernelbench(problem: Path, solution: Path, libraries: tuple[str, ...] = ()) -> Submission:
    """Return the submission for a solution of a KernelBench problem.

    The problem's Model must call scaled_dot_product_attention(Q, K, V) once, on tensors (B, H, S,
    D). It may pass is_causal too. The sizes of its get_inputs are judged first. The problem is read,
    but its code is not run. Raises ValueError for another problem, and for files that cannot be
    read.
    """
    candidate = of_file(solution, {"ModelNew": "attention"}, arrays="torch", libraries=libraries)
    tree = parsed(text_of(problem)) or ast.Module([], [])
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_CALLED)]
    options = [(len(call.args), {option.arg: ast.unparse(option.value) for option in call.keywords}) for call in calls]
    if options not in ([(3, {})], [(3, {"is_causal": "False"})], [(3, {"is_causal": "True"})]):
        raise ValueError(f"{problem} should have a Model that calls {_CALLED}(Q, K, V) once, with is_causal at most.")
    causal = options[0][1].get("is_causal") == "True"
    given = shapes_of_inputs(tree, problem)
    if len(given) != 3 or any(len(shape) != 4 for shape in given):
        raise ValueError(f"{problem} should have inputs Q, K and V with four axes, but has shapes {given}.")
    (batch, heads, n_q, width), (_, _, n_k, _), (*_, value_dim) = given
    sizes = {"batch": batch, "num_heads": heads, "n_q": n_q, "n_k": n_k, "head_dim": width, "value_dim": value_dim}
    return Submission(
        candidate.name,
        {
            **candidate.sources,
            f"{_ENTRY}.py": _MODEL.format(module=solution.stem, init_inputs=_init_inputs(tree, problem)),
        },
        {"causal_attention" if causal else "attention": (_ENTRY, "entry")},
        "torch",
        {
            "arithmetic": "float32",
            "batch_ranks": (2,),
            "supports": ["positive sizes"] if causal else ["positive sizes", "no log-sum-exp"],
            "shapes": [sizes],
        },
        libraries,
        candidate.broken,
    )


def flashinfer_bench(solution: Path, libraries: tuple[str, ...] = (), workloads: Path | None = None) -> Submission:
    """Return the submission for a flashinfer-bench solution of gqa_ragged_prefill_causal_h…_kv…_d…, or
    of gqa_paged_decode_… or gqa_paged_prefill_causal_h…_kv…_d…_ps…, in Python.

    The gate judges ragged prefill as causal attention: all sequences have equal lengths, each call
    has one query head of each group, and the output comes without its log-sum-exp. The sizes of the
    `workloads` of the definition, a file of JSON lines, are judged first. It judges paged decoding
    and paged prefill as paged attention, with the log-sum-exp in base 2; their workloads do not
    state lengths, and are refused. Raises ValueError for another definition or language, and for a
    file that does not hold a solution.
    """
    text = text_of(solution)
    try:
        fields = json.loads(text)
        definition, specification = fields["definition"], fields["spec"]
        sources = {source["path"]: source["content"] for source in fields["sources"]}
        file, function = specification["entry_point"].split("::")
        texts = [definition, specification["language"], *sources, *sources.values()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        texts = [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{solution} should be a solution of flashinfer-bench's: a JSON with definition, spec and sources."
        )
    size_match, paged_match = _RAGGED_NAME.fullmatch(definition), _PAGED_NAME.fullmatch(definition)
    module = file.removesuffix(".py").replace("/", ".")
    if (
        (size_match or paged_match) is None
        or specification["language"] != "python"
        or not all(map(str.isidentifier, (*module.split("."), function)))
    ):
        raise ValueError(
            f"{solution} solves {definition} in {specification['language']}, "
            "but should solve gqa_ragged_prefill_causal_h…_kv…_d…, or gqa_paged_…_ps…, in python."
        )
    in_place = bool(specification.get("destination_passing_style", True))
    if paged_match is not None:
        if workloads is not None:
            raise ValueError(f"{workloads} has workloads of {definition}, which do not state lengths of sequences.")
        entry_code = _PAGED.format(module=module, function=function, in_place=in_place)
        sources = {**sources, f"{_ENTRY}.py": entry_code}
        return _of_pages(solution.name, sources, libraries, paged_match.group(1), *map(int, paged_match.groups()[1:]))
    assert size_match is not None
    heads, kv_heads, width = (int(n) for n in size_match.groups())
    shapes, untried = sizes_of_workloads(workloads, definition, kv_heads, width) if workloads else ([], {})
    adapter_code = _RAGGED.format(module=module, function=function, heads=heads, kv_heads=kv_heads, in_place=in_place)
    return Submission(
        solution.name,
        {**sources, f"{_ENTRY}.py": adapter_code},
        {"causal_attention": (_ENTRY, "entry")},
        "torch",
        {
            "arithmetic": "bfloat16",
            "conventions": Conventions(causal="bottom_right"),
            "supports": [
                "positive sizes",
                {"head_dim": [width], "value_dim": [width], "n_k_minus_n_q": lambda n: n >= 0},
            ],
            "shapes": shapes,
        },
        libraries,
        untried=untried,
    )


def _of_pages(name: str, sources: dict[str, str], libraries: tuple[str, ...], stage: str, *constant: int) -> Submission:
    """Return the submission for a solution with keys in pages. `constant` are the numbers of heads and
    of key heads, the width, and the page size.
    """
    heads, kv_heads, width, page_size = ([number] for number in constant)
    sizes = {"num_heads": heads, "kv_heads": kv_heads, "head_dim": width, "value_dim": width, "page_size": page_size}
    is_decode = stage == "decode"
    return Submission(
        name,
        sources,
        {"paged_attention": (_ENTRY, "entry")},
        "torch",
        {
            "arithmetic": "bfloat16",
            "conventions": Conventions(lse_base="2", packed_lse="rows_first"),
            "features": () if is_decode else ("cu_q",),
            "supports": [{**sizes, **({"n_q": [1]} if is_decode else {})}, *([] if is_decode else ["ragged queries"])],
        },
        libraries,
    )


def _init_inputs(tree: ast.Module, problem: Path) -> list[Any]:
    """Return the list that get_init_inputs returns. It must be written out in the source, because
    the code is not run.
    """
    for node in tree.body:
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == "get_init_inputs"
            and isinstance(node.body[-1], ast.Return)
        ):
            try:
                return list(ast.literal_eval(node.body[-1].value or ast.List([], ast.Load())))
            except (ValueError, TypeError):
                break
    raise ValueError(f"{problem} should have a function get_init_inputs that returns a list, written out.")
