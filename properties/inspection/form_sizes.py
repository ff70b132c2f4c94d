"""Finds the numbers of axes, the memory layouts, and the sizes that a function takes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from properties.contract.operations import BATCH, Operation
from properties.inspection.form_arguments import OPTIONS, Trial, heads_of
from properties.inspection.form_trials import RefusedError, Trials, alike
from properties.inspection.forms import required
from properties.inspection.size_rules import predicate_of, rule_of, sentence_of

__all__ = ["find_places", "find_sizes"]

_MOST_AXES = 3  # before the last two

_WIDTHS = ((1, 3, 64, 128), (6, 8, 16, 96))
_LENGTHS = ((1, 7), (16, 48, 256, 384))
_SIZES: Mapping[tuple[str, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {
    ("head_dim", "value_dim"): _WIDTHS,
    ("embed_dim",): _WIDTHS,
    ("n_q", "n_k"): _LENGTHS,
    ("seq_len",): _LENGTHS,
}
"""The sizes that are equal in trials, and their values. The second values are tried if one of the
first values fails.
"""

_DIFFERENCES = (("value_dim", "head_dim"), ("n_k", "n_q"), ("model_dim", "heads_width"))
_COMPARISONS = {(True, False): ">= 0", (False, True): "<= 0", (False, False): "== 0"}
"""What is true of a difference, by whether positive and negative differences work."""

_MAY_BE_EMPTY = ("n_k", "n_q", "head_dim", "seq_len", "embed_dim", "batch")


def find_places(trials: Trials) -> None:
    """Find the memory layouts and the numbers of axes that the function takes. A few calls try all
    numbers of axes and all usual sizes; they are tried one by one where such a call fails.
    """
    _find_layouts(trials)
    ranks = [trials.trial.rank, *_other_ranks(trials)]
    with suppress(RefusedError):
        for trial in _mixed(trials, ranks[1:]):
            trials.results(trials.form, trial)
        trials.takes_all = True
    if trials.takes_all:
        _adopt_ranks(trials, ranks)
    else:
        _find_ranks(trials)


def find_sizes(trials: Trials) -> None:
    """Find the sizes that the function takes. One call tries a size of each group, and one call all
    differences; they are tried one by one where this call fails.
    """
    if "start_pos" in trials.measured and not trials.trial.size("start_pos"):
        trials.restrict("start_pos", rule="(0,)")
    groups = {
        tuple(name for name in group if name in trials.measured): values
        for group, values in _SIZES.items()
        if trials.measured & set(group)
    }
    firsts = {names: values[0] for names, values in groups.items()}
    known = _working(trials, firsts) if trials.takes_all else _tried_together(trials, firsts)
    for names, values in groups.items():
        _find_rule(trials, names, values, known[names])
    if not trials.takes_all:
        _find_differences(trials, [pair for pair in _DIFFERENCES if trials.measured.issuperset(pair)])
    _find_empty_sizes(trials)


def _mixed(trials: Trials, ranks: Sequence[int]) -> list[Trial]:
    """The trials that have each number of axes, each of the first sizes, and both signs of each difference."""
    columns: dict[str, Sequence[int]] = {}
    for group, (firsts, _) in _SIZES.items():
        for place, name in enumerate(name for name in group if name in trials.measured):
            sizes = [size for size in firsts if size not in {each.size(name) for each in (trials.first, trials.trial)}]
            columns[name] = [*sizes[place:], *sizes[:place]]
    for pair in _DIFFERENCES:
        if trials.measured.issuperset(pair) and not columns.keys() & pair and (ends := _two_sizes(trials, pair[0])):
            columns |= {pair[0]: ends, pair[1]: ends[::-1]}
    mixed = []
    for row in range(max([len(ranks), *map(len, columns.values())])):
        trial = trials.trial.sized(**{name: sizes[row % len(sizes)] for name, sizes in columns.items() if sizes})
        mixed.append(_with_mask(trials, replace(trial, rank=ranks[row % len(ranks)] if ranks else trial.rank)))
    return mixed


def _working(trials: Trials, groups: Mapping[tuple[str, ...], Sequence[int]]) -> dict[tuple[str, ...], dict[int, bool]]:
    """The sizes of each group. All of them work."""
    usual = (trials.first, trials.trial)
    return {
        names: dict.fromkeys((*(trial.size(names[0]) for trial in usual), *sizes), True)
        for names, sizes in groups.items()
    }


def _tried_together(
    trials: Trials, groups: Mapping[tuple[str, ...], Sequence[int]]
) -> dict[tuple[str, ...], dict[int, bool]]:
    """The sizes of each group that work, from calls with one size of each group."""
    working = _working(trials, dict.fromkeys(groups, ()))
    rounds = zip_longest(
        *([(names, size) for size in sizes if size not in working[names]] for names, sizes in groups.items())
    )
    for chosen in (dict(filter(None, pairs)) for pairs in rounds):
        trial = trials.trial.sized(**{name: size for names, size in chosen.items() for name in names})
        with suppress(RefusedError):
            if len(chosen) > 1:
                trials.results(trials.form, trial)
                for names, size in chosen.items():
                    working[names][size] = True
    return working


def _other_ranks(trials: Trials) -> list[int]:
    """The numbers of axes other than that of the usual call; [] for an operation without a batch."""
    operation = trials.operation
    if not _has_batch(operation):
        return []
    return [rank for rank in range(heads_of(operation), _MOST_AXES + 1) if rank != trials.trial.rank]


def _has_batch(operation: Operation) -> bool:
    return any(BATCH in operation.axes.get(name, ()) for name in operation.arrays)


def _with_mask(trials: Trials, trial: Trial) -> Trial:
    """The trial with a mask, if the function takes masks."""
    operation, form = trials.operation, trials.form
    takes_mask = "mask" in form.features or ("mask" in required(operation) and "no masks" not in form.words)
    return trial.with_arguments(mask=OPTIONS["mask"](trial, operation, "mask")) if takes_mask else trial


def _find_ranks(trials: Trials) -> None:
    """Find the numbers of axes that work."""
    trial = _with_mask(trials, trials.trial)
    working = [rank for rank in _other_ranks(trials) if trials.works(f"{rank + 2} axes", replace(trial, rank=rank))]
    _adopt_ranks(trials, [trial.rank, *working])


def _adopt_ranks(trials: Trials, ranks: Sequence[int]) -> None:
    """Go on with the numbers of axes that work. The calls that follow are cheaper with the fewest."""
    ranks = sorted(ranks) if _has_batch(trials.operation) else (0, 1, 2)
    trials.change(batch_ranks=tuple(ranks))
    if _has_batch(trials.operation):
        trials.trial = replace(trials.trial, rank=ranks[0])


def _find_layouts(trials: Trials) -> None:
    """Find whether the function misreads arrays that are not contiguous."""
    if trials.form.arrays == "jax" or not trials.operation.arrays:
        return
    with suppress(RefusedError):
        results = trials.results(trials.form, trials.trial, "transposed")
        if not all(map(alike, trials.base, results)):
            trials.refuse("transposed arrays", "The results differ from those of contiguous arrays.")
            trials.change(layouts=())


def _find_rule(
    trials: Trials, names: Sequence[str], values: tuple[tuple[int, ...], ...], tried: dict[int, bool]
) -> None:
    """Find a rule for sizes that are equal. Some are known to work."""
    label = " = ".join(names)
    for sizes in values:
        for size in sizes:
            if size not in tried:
                trial = trials.trial.sized(**dict.fromkeys(names, size))
                tried[size] = trials.works(f"{label} = {size}", trial)
        if all(tried.values()):
            break
    rule = rule_of(tried)
    trials.restrict(*names, rule=rule)
    trials.assumed += filter(None, [sentence_of(label, rule, tried)])


def _find_differences(trials: Trials, pairs: Sequence[tuple[str, str]]) -> None:
    """Find which of two sizes may be the larger one, for each pair."""
    ends = {pair: two_sizes for pair in pairs if (two_sizes := _two_sizes(trials, pair[0]))}
    if len(ends) > 1:
        more = {
            name: size for pair, (least, most) in ends.items() for name, size in zip(pair, (most, least), strict=True)
        }
        less = {name: size for pair, two_sizes in ends.items() for name, size in zip(pair, two_sizes, strict=True)}
        with suppress(RefusedError):
            for sizes in (more, less):
                trials.results(trials.form, trials.trial.sized(**sizes))
            return
    for (larger, smaller), (least, most) in ends.items():
        _find_difference(trials, larger, smaller, least, most)


def _two_sizes(trials: Trials, name: str) -> tuple[int, int] | None:
    """Two sizes that work, the smaller one first; None if one is known."""
    present, predicate = trials.trial.size(name), predicate_of(trials.form.sizes.get(name, ""))
    other = next((size for size in (present // 2, 2 * present) if predicate(size)), None)
    return None if other is None else (min(present, other), max(present, other))


def _find_difference(trials: Trials, larger: str, smaller: str, least: int, most: int) -> None:
    """Find which of two sizes may be the larger one."""
    works_more, works_less = (
        trials.works(f"{larger} = {size}, {smaller} = {rest}", trials.trial.sized(**{larger: size, smaller: rest}))
        for size, rest in ((most, least), (least, most))
    )
    if not (works_more and works_less):
        comparison = _COMPARISONS[works_more, works_less]
        trials.restrict(f"{larger}_minus_{smaller}", rule=f"lambda difference: difference {comparison}")


def _find_empty_sizes(trials: Trials) -> None:
    """Find whether sizes may be 0. One that fails is taken for all."""
    form = trials.form
    tied = {name: pair for pair in _DIFFERENCES for name in pair if "_minus_".join(pair) in form.sizes}
    most = form.batch_ranks[-1]
    possible = trials.measured | ({"batch"} if most > heads_of(trials.operation) else set())
    for name in _MAY_BE_EMPTY:
        if name in possible and predicate_of(form.sizes.get(name, ""))(0):
            empty = trials.trial.sized(**dict.fromkeys(tied.get(name, (name,)), 0))
            trial = replace(trials.trial, rank=most, batch=0) if name == "batch" else empty
            if not trials.works(f"{name} = 0", trial):
                trials.change(words=(*form.words, "positive sizes"))
                return
