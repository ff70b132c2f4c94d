"""Running the checks in several processes. Each worker imports what it checks: functions do not travel between processes."""

import importlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from properties.implementation import Implementation
from properties.laws import LAWS
from properties.verifier import Outcome, check, plan

__all__ = ["load", "run"]


def load(where: str) -> dict[str, list[Implementation]]:
    """The groups of implementations at "module:name"."""
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


def _check(where: str, group: str, law: int, implementation: int, examples: int, seed: int) -> Outcome:
    return check(LAWS[law], load(where)[group][implementation], examples, seed)


def run(where: str, examples: int, seed: int, jobs: int) -> Iterator[tuple[str, int, Outcome]]:
    """(group, the check's place in it, outcome) as the checks finish."""
    tasks = [
        (group, place, (where, group, LAWS.index(law), implementations.index(implementation), examples, seed))
        for group, implementations in load(where).items()
        for place, (law, implementation) in enumerate(plan(LAWS, implementations))
    ]
    if jobs == 1:
        for group, place, task in tasks:
            yield group, place, _check(*task)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_check, *task): (group, place) for group, place, task in tasks}
        try:
            for future in as_completed(futures):
                yield *futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)
