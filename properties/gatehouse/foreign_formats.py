"""Reads problems and solutions of KernelBench, flashinfer-bench and SOL-ExecBench as submissions to the gate.

Only the process of the untrusted kernel runs their code. In KernelBench a problem is a file with
Model, get_inputs and get_init_inputs. A solution defines ModelNew. It gets the result of the same
get_init_inputs, and is called on tensors. In flashinfer-bench and SOL-ExecBench a problem is a JSON
file, the definition, and a solution is another one, with definition, spec and sources.
"""

import ast
import json
from pathlib import Path
from typing import Any

from properties.gatehouse.definitions import CONVENTIONS, read
from properties.gatehouse.problem_sizes import shapes_of_inputs, sizes_of_workloads
from properties.gatehouse.submission import Submission, of_file, parsed, text_of

__all__ = ["defined", "kernelbench"]

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

_SOLUTION = """
import torch
from {module} import {function}

INPUTS, IN_PLACE, HAS_LSE, PAGE_SIZE = {inputs}, {in_place}, {has_lse}, {page_size}


def solved(given, queries, width):
    # The output and the log-sum-exp of the solution, whose inputs are given by name.
    outputs = [queries.new_empty(*queries.shape[:2], width)]
    if HAS_LSE:
        outputs.append(queries.new_empty(queries.shape[:2], dtype=torch.float32))
    passed = [given[name] for name in INPUTS]
    if IN_PLACE:
        {function}(*passed, *outputs)
        return outputs
    returned = {function}(*passed)
    if isinstance(returned, dict):
        returned = [returned[name] for name in ("output", "lse")[: len(outputs)]]
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def in_pages(pages, lengths, starts, scale):
    # The inputs about pages: those of each sequence, and how full its last page is.
    size = PAGE_SIZE
    counts = -(-lengths // size)
    return {{
        "kv_indptr": torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int(),
        "kv_indices": torch.cat([counts[:0], *(row[:count] for row, count in zip(pages, counts.tolist()))]).int(),
        "kv_last_page_len": torch.where(counts == 0, 0, (lengths - 1) % size + 1).int(),
        "qo_indptr": starts,
        "sm_scale": float(scale),
    }}


def as_results(results):
    return tuple(results) if HAS_LSE else results[0]


def packed_attention(q, k, v, cu_q, cu_k, *, causal, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    given = {{"q": q, "k": k, "v": v, "qo_indptr": cu_q, "kv_indptr": cu_k, "sm_scale": scale}}
    return as_results(solved(given, q, v.shape[-1]))


def paged_attention(q, k_pages, v_pages, block_table, lengths, *, cu_q=None, scale=None):
    queries = q[:, 0] if cu_q is None else q
    given = in_pages(block_table, lengths, cu_q, q.shape[-1] ** -0.5 if scale is None else scale)
    results = solved({{"q": queries, "k_cache": k_pages, "v_cache": v_pages, **given}}, queries, v_pages.shape[-1])
    return as_results(results if cu_q is not None else [results[0][:, None], *(x[..., None] for x in results[1:])])


def latent_attention(q, latent, value_dim, scale, *, causal=None):
    # Each problem is a sequence, whose keys are in pages in falling order. Before it comes a sequence of one query and
    # one key, so that lengths differ. Slots behind a length hold a large number.
    lead, (heads, n_q, width), n_k = q.shape[:-3], q.shape[-3:], latent.shape[-2]
    problems = list(zip(q.reshape(-1, heads, n_q, width), latent.reshape(-1, n_k, width)))
    sequences = [each for pair in problems for each in ((q.new_zeros(heads, 1, width), q.new_zeros(1, width)), pair)]
    lengths = torch.tensor([len(keys) for _, keys in sequences])
    counts = (-(-lengths // PAGE_SIZE)).tolist()
    pages = torch.arange(sum(counts)).flip(0).split(counts)
    cache = q.new_full((sum(counts), PAGE_SIZE, width), 64.0)
    for numbers, (_, keys) in zip(pages, sequences):
        slots = torch.arange(len(keys))
        cache[numbers[slots // PAGE_SIZE], slots % PAGE_SIZE] = keys
    queries = torch.cat([rows.transpose(0, 1) for rows, _ in sequences])
    starts = torch.tensor([0, *[1, n_q] * len(problems)]).cumsum(0).int()
    given = in_pages(pages, lengths, starts, scale)
    given |= {{"q_nope": queries[..., :value_dim].contiguous(), "q_pe": queries[..., value_dim:].contiguous()}}
    given |= {{"ckv_cache": cache[..., :value_dim].contiguous(), "kpe_cache": cache[..., value_dim:].contiguous()}}
    own = [x.unflatten(0, (len(problems), 1 + n_q))[:, 1:] for x in solved(given, queries, value_dim)]
    return as_results([x.transpose(1, 2).reshape(*lead, heads, n_q, *x.shape[3:]) for x in own])
"""


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


def defined(
    definition: Path, solution: Path, libraries: tuple[str, ...] = (), workloads: Path | None = None
) -> Submission:
    """Return the submission for a solution of a definition of flashinfer-bench or SOL-ExecBench, in
    Python. The solution is a JSON, or a Python file with a function run that returns its results.

    The gate calls it with the scale, and with sequences of different lengths, of which none has more
    queries than keys. The sizes of the `workloads` of ragged attention, a file of JSON lines, are
    judged first; those of pages do not state lengths, and are refused. Raises ValueError for another
    definition, and for files that cannot be read.
    """
    try:
        told = read(json.loads(text_of(definition)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{definition} cannot be judged. {error}") from error
    is_packed, is_prefill = told.operation == "packed_attention", "qo_indptr" in told.inputs
    if solution.suffix == ".py":
        candidate = of_file(solution, {"run": told.operation})
        sources, broken, module, function, in_place = candidate.sources, candidate.broken, solution.stem, "run", False
    else:
        (sources, module, function, in_place), broken = _of_json(solution, told.name), ""
    if workloads is not None and not is_packed:
        raise ValueError(f"{workloads} has workloads of {told.name}, which do not state lengths of sequences.")
    names = {"inputs": told.inputs, "page_size": told.sizes.get("page_size"), "has_lse": told.has_lse}
    code = _SOLUTION.format(module=module, function=function, in_place=in_place, **names)
    is_paged = told.operation == "paged_attention"
    sizes = {name: [size] for name, size in told.sizes.items() if is_paged or name != "page_size"}
    order = {"n_k_minus_n_q": lambda n: n >= 0} if is_prefill else {"n_q": [1]}
    features = (
        *(() if told.operation == "latent_attention" else ("scale",)),
        *(("cu_q",) if is_paged else ("causal",)) * is_prefill,
    )
    words = ("ragged queries", "no padding rows") if is_paged else ("causal only", "no padding rows")
    return Submission(
        solution.name,
        {**sources, f"{_ENTRY}.py": code},
        {told.operation: (_ENTRY, told.operation)},
        "torch",
        {
            "arithmetic": told.arithmetic,
            "conventions": CONVENTIONS,
            "features": features,
            "supports": [
                {**sizes, **order},
                "positive scale",
                *words * is_prefill,
                *["no log-sum-exp"] * (not told.has_lse),
            ],
            "shapes": sizes_of_workloads(workloads, told) if workloads else [],
        },
        libraries,
        broken,
    )


def _of_json(solution: Path, definition: str) -> tuple[dict[str, str], str, str, bool]:
    """Return the sources of a solution in JSON, the module and the function to call, and whether it
    writes into arrays that it is given.
    """
    try:
        fields = json.loads(text_of(solution))
        solves, specification = fields["definition"], fields["spec"]
        sources = {source["path"]: source["content"] for source in fields["sources"]}
        file, function = specification["entry_point"].split("::")
        texts = [solves, *sources, *sources.values()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        texts = [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{solution} should be a solution of flashinfer-bench's: a JSON with definition, spec and sources."
        )
    if solves != definition:
        raise ValueError(f"{solution} solves {solves}, but should solve {definition}.")
    module = file.removesuffix(".py").replace("/", ".")
    if not file.endswith(".py") or not all(map(str.isidentifier, (*module.split("."), function))):
        raise ValueError(f"{solution} has the entry point {file}::{function}, but should have a function in Python.")
    return sources, module, function, bool(specification.get("destination_passing_style", True))


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
