"""Engines: what hands chunks to benches, so many at once, in threads of this process or in actors of Ray's."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from properties.campaign.bench import Bench, Broken, Lost, Result
from properties.campaign.chunks import Chunk
from properties.command.messages import Entry, Order
from properties.command.signals import Signals
from properties.contract.names import parts_of
from properties.verifier.report import Violation, broken, reason_for

__all__ = ["ENGINES", "Engine", "Local", "OnRay"]

Done = tuple[Chunk, Result | Lost]
_TICK = 0.5  # seconds between two looks at signals
_AGAIN = 3  # times that Ray gives out a chunk again whose worker died


class Engine(Protocol):
    """Runs chunks, at most as many at once as there are `workers`; `running` of them are under way."""

    @property
    def workers(self) -> int:
        """How many chunks may be under way now."""

    @property
    def running(self) -> int:
        """How many chunks are under way."""

    def entries(self, signals: Signals) -> list[Entry]:
        """What there is to verify, as a worker finds it. Raises ValueError, a sentence, and
        StoppedError where a signal comes first.
        """

    def submit(self, chunk: Chunk) -> None:
        """Give out a chunk; one of the workers should be free."""

    def finished(self, seconds: float) -> Sequence[Done]:
        """Chunks that are finished, each told once; waits for one, so many seconds at most."""

    def close(self) -> None:
        """End all workers, and what they are at."""


class Local:
    """Benches in this process, a thread for each, which waits for its child process. `gpus` are
    each worker's, or a share of one.
    """

    def __init__(self, order: Order, workers: int, gpus: float = 0.0, address: str = "") -> None:
        if address:
            raise ValueError(f"--address {address} is where Ray is, and needs --engine ray.")
        self.workers = workers
        self._benches = [
            Bench(replace(order, environment={**order.environment, **_devices(n, gpus, workers)}))
            for n in range(workers)
        ]
        self._free: SimpleQueue[Bench] = SimpleQueue()
        for bench in self._benches:
            self._free.put(bench)
        self._threads = ThreadPoolExecutor(workers)
        self._running: dict[Future[Result | Lost], Chunk] = {}

    @property
    def running(self) -> int:
        """How many chunks are under way."""
        return len(self._running)

    def entries(self, signals: Signals) -> list[Entry]:
        """What there is to verify, as the first bench finds it."""
        return self._benches[0].entries(signals)

    def submit(self, chunk: Chunk) -> None:
        """Give out a chunk."""
        self._running[self._threads.submit(self._run, chunk)] = chunk

    def _run(self, chunk: Chunk) -> Result | Lost:
        bench = self._free.get()
        try:
            return bench.run(chunk)
        finally:
            self._free.put(bench)

    def finished(self, seconds: float) -> Sequence[Done]:
        """Chunks that are finished."""
        done, _ = wait(self._running, seconds, FIRST_COMPLETED)
        return [(self._running.pop(future), future.result()) for future in done]

    def close(self) -> None:
        """End all workers."""
        for bench in self._benches:
            bench.stop()
        self._threads.shutdown(cancel_futures=True)
        for bench in self._benches:
            bench.close()


class OnRay:
    """Benches in actors of Ray's, which gives each its processor and its devices, starts those
    again that died, and gives out their chunk again. The `workers` are those that Ray has started
    by now. At an `address` of a cluster, "auto" for the one that this machine is part of; without
    one Ray is started here."""

    def __init__(self, order: Order, workers: int, gpus: float = 0.0, address: str = "") -> None:
        try:
            import ray
        except ImportError:
            raise ValueError("--engine ray needs Ray, which `pip install 'attnspec[ray]'` installs.") from None
        self._ray = ray
        here = (
            {"num_cpus": workers, "num_gpus": _whole(gpus * workers), "include_dashboard": False} if not address else {}
        )
        try:
            with _handlers_kept():
                ray.init(address=address or "local", log_to_driver=False, logging_level="error", **here)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(f"There is no Ray at {address or 'this machine'}: {error}") from error
        order = replace(order, targets=tuple(map(_whole_path, order.targets)))
        needs: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": _AGAIN}
        if order.memory < float("inf"):
            needs["memory"] = int(order.memory)
        actor = ray.remote(**needs)(Bench)
        self._actors = [actor.remote(order, os.getcwd()) for _ in range(workers)]
        self._starting = {each.__ray_ready__.remote(): each for each in self._actors}
        self._free: list[Any] = []
        self._running: dict[Any, tuple[Any, Chunk]] = {}
        self._entries: list[Entry] = []

    @property
    def workers(self) -> int:
        """How many actors there are by now, at work or not."""
        return len(self._free) + len(self._running)

    @property
    def running(self) -> int:
        """How many chunks are under way."""
        return len(self._running)

    def entries(self, signals: Signals) -> list[Entry]:
        """What there is to verify, as the actor finds it that is there first."""
        while not self._free:
            self._welcome(self._ray.wait(list(self._starting), timeout=_TICK)[0])
            signals.obey()
        asked = self._free[0].entries.remote()
        while not self._ray.wait([asked], timeout=_TICK)[0]:
            signals.obey()
        try:
            self._entries = self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ValueError) else error from None
        except self._ray.exceptions.RayError as error:
            raise ValueError(
                f"The first worker was lost by Ray, {_AGAIN + 1} times: {type(error).__name__}."
            ) from error
        return self._entries

    def _welcome(self, ready: Sequence[Any]) -> None:
        """Those actors are free that have been started. Raises ValueError where Ray can start none."""
        for reference in ready:
            actor = self._starting.pop(reference)
            try:
                self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                if not (self._starting or self.workers):
                    raise ValueError(f"Ray can start no worker: {type(error).__name__}.") from error
            else:
                self._free.append(actor)

    def submit(self, chunk: Chunk) -> None:
        """Give out a chunk."""
        actor = self._free.pop()
        self._running[actor.run.remote(chunk)] = actor, chunk

    def finished(self, seconds: float) -> Sequence[Done]:
        """Chunks that are finished."""
        ready, _ = self._ray.wait([*self._running, *self._starting], num_returns=1, timeout=seconds)
        self._welcome([each for each in ready if each in self._starting])
        done: list[Done] = []
        for reference in (each for each in ready if each in self._running):
            actor, chunk = self._running.pop(reference)
            self._free.append(actor)
            try:
                done.append((chunk, self._ray.get(reference)))
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                done.append((chunk, self._dead(chunk, error)))
        return done

    def _dead(self, chunk: Chunk, error: Exception) -> Result:
        """What it means that each worker died that a chunk was given to."""
        entry = next(entry for entry in self._entries if entry.name == chunk.implementation)
        law = entry.laws[entry.groups[chunk.operation][0]]
        summary = f"ended each worker of Ray's that it was given to, {_AGAIN + 1} of them: {type(error).__name__}."
        outcome = broken(
            Violation(*parts_of(law), entry.name, summary, {}, inf), reason_for(entry.deviations, law), chunk.cases
        )
        return Result(
            {outcome.status: 1},
            cases=chunk.cases,
            lost=_AGAIN,
            broken=(Broken(outcome.law, outcome.status, inf, summary),),
        )

    def close(self) -> None:
        """End all actors, and this process' part of Ray."""
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor)
        self._ray.shutdown()


ENGINES: dict[str, Callable[[Order, int, float, str], Engine]] = {"local": Local, "ray": OnRay}
"""The engines by their names."""


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """What signals do is the same after it: Ray has ideas of its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _devices(worker: int, gpus: float, workers: int) -> dict[str, str]:
    """The variable that gives a worker its NVIDIA devices, of those that this process has. Raises
    ValueError where they are too few.
    """
    if not gpus:
        return {}
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    drivers = Path("/proc/driver/nvidia/gpus").glob("*")
    there = (
        [str(n) for n, _ in enumerate(drivers)] if named is None else [device for device in named.split(",") if device]
    )
    shared = max(1, int(1 / gpus))  # workers of one device
    each = max(1, _whole(gpus))
    first = worker // shared if gpus < 1 else worker * each
    needed = -(-workers // shared) if gpus < 1 else workers * each
    if needed > len(there):
        raise ValueError(f"{workers} workers with --gpus {gpus:g} need {needed} devices, but there are {len(there)}.")
    return {"CUDA_VISIBLE_DEVICES": ",".join(there[first : first + each])}


def _whole(gpus: float) -> int:
    return int(-(-gpus // 1))


def _whole_path(target: str) -> str:
    """A target that another process, in another folder, finds: files by their whole path."""
    name, mark, attribute = target.partition(":")
    return f"{Path(name).resolve()}{mark}{attribute}" if name.endswith(".py") else target
