"""Defines engines, which run chunks (pieces of a campaign's work) on many workers: threads of this
process, or actors of Ray.
"""

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
from properties.contract.names import parts_of
from properties.processes.messages import Entry, Order
from properties.processes.signals import Signals
from properties.verifier.report import Violation, broken, reason_for

__all__ = ["ENGINES", "Engine", "Local", "OnRay"]

Done = tuple[Chunk, Result | Lost]
_TICK = 0.5  # seconds between two checks of signals
_AGAIN = 3  # how many times Ray gives out a chunk again after its worker died


class Engine(Protocol):
    """Runs at most `workers` chunks (pieces of work) at the same time. `running` is how many run
    now.
    """

    @property
    def workers(self) -> int:
        """How many chunks may run now."""

    @property
    def running(self) -> int:
        """How many chunks run now."""

    def entries(self, signals: Signals) -> list[Entry]:
        """Return the implementations to verify. Raises ValueError, with a sentence, if they cannot
        be found. Raises StoppedError if a signal comes first.
        """

    def submit(self, chunk: Chunk) -> None:
        """Give a chunk (piece of work) to a worker. At least one worker must be free."""

    def finished(self, seconds: float) -> Sequence[Done]:
        """Return the chunks that have finished since the last call, with their results. If no chunk
        has finished, wait for one, but not longer than `seconds`.
        """

    def close(self) -> None:
        """End all workers and their chunks."""


class Local:
    """An engine whose workers are threads of this process. Each thread waits for a child process.

    `gpus` is the number of devices of each worker, or a fraction of a device.
    """

    def __init__(self, order: Order, workers: int, gpus: float = 0.0, address: str = "") -> None:
        if address:
            raise ValueError(f"--address {address} is the address of Ray, and needs --engine ray.")
        self.workers = workers
        self._benches = [
            Bench(replace(order, environment={**order.environment, **_devices(number, gpus, workers)}))
            for number in range(workers)
        ]
        self._free: SimpleQueue[Bench] = SimpleQueue()
        for bench in self._benches:
            self._free.put(bench)
        self._threads = ThreadPoolExecutor(workers)
        self._running: dict[Future[Result | Lost], Chunk] = {}

    @property
    def running(self) -> int:
        """How many chunks run now."""
        return len(self._running)

    def entries(self, signals: Signals) -> list[Entry]:
        """Return the implementations to verify, as the first bench finds them."""
        return self._benches[0].entries(signals)

    def submit(self, chunk: Chunk) -> None:
        """Give a chunk to a worker."""
        self._running[self._threads.submit(self._run, chunk)] = chunk

    def _run(self, chunk: Chunk) -> Result | Lost:
        bench = self._free.get()
        try:
            return bench.run(chunk)
        finally:
            self._free.put(bench)

    def finished(self, seconds: float) -> Sequence[Done]:
        """Return the chunks that have finished since the last call."""
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
    """An engine whose workers are actors of Ray.

    Ray gives each actor its processor and devices. It starts a dead actor again, and gives out its
    chunk again. `workers` counts the actors that Ray has started so far. `address` names a cluster,
    "auto" the cluster of this machine. Without an address, Ray is started here.
    """

    def __init__(self, order: Order, workers: int, gpus: float = 0.0, address: str = "") -> None:
        try:
            import ray
        except ImportError:
            raise ValueError("--engine ray needs Ray, which `pip install 'attnspec[ray]'` installs.") from None
        self._ray = ray
        options = (
            {"num_cpus": workers, "num_gpus": _whole(gpus * workers), "include_dashboard": False} if not address else {}
        )
        try:
            with _handlers_kept():
                ray.init(address=address or "local", log_to_driver=False, logging_level="error", **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(f"Ray does not answer at {address or 'this machine'}: {error}") from error
        order = replace(order, targets=tuple(map(_whole_path, order.targets)))
        requirements: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": _AGAIN}
        if order.memory < float("inf"):
            requirements["memory"] = int(order.memory)
        actor_class = ray.remote(**requirements)(Bench)
        self._actors = [actor_class.remote(order, os.getcwd()) for _ in range(workers)]
        self._starting = {starting_actor.__ray_ready__.remote(): starting_actor for starting_actor in self._actors}
        self._free: list[Any] = []
        self._running: dict[Any, tuple[Any, Chunk]] = {}
        self._entries: list[Entry] = []

    @property
    def workers(self) -> int:
        """How many actors Ray has started so far."""
        return len(self._free) + len(self._running)

    @property
    def running(self) -> int:
        """How many chunks run now."""
        return len(self._running)

    def entries(self, signals: Signals) -> list[Entry]:
        """Return the implementations to verify, as the first actor finds them."""
        while not self._free:
            self._welcome(self._ray.wait(list(self._starting), timeout=_TICK)[0])
            signals.obey()
        entries_reference = self._free[0].entries.remote()
        while not self._ray.wait([entries_reference], timeout=_TICK)[0]:
            signals.obey()
        try:
            self._entries = self._ray.get(entries_reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ValueError) else error from None
        except self._ray.exceptions.RayError as error:
            raise ValueError(
                f"The first worker was lost by Ray, {_AGAIN + 1} times: {type(error).__name__}."
            ) from error
        return self._entries

    def _welcome(self, ready: Sequence[Any]) -> None:
        """Record that actors have started. Raises ValueError if Ray cannot start any."""
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
        """Give a chunk to a worker."""
        actor = self._free.pop()
        self._running[actor.run.remote(chunk)] = actor, chunk

    def finished(self, seconds: float) -> Sequence[Done]:
        """Return the chunks that have finished since the last call."""
        ready, _ = self._ray.wait([*self._running, *self._starting], num_returns=1, timeout=seconds)
        self._welcome([reference_ready for reference_ready in ready if reference_ready in self._starting])
        done: list[Done] = []
        for reference in (reference_ready for reference_ready in ready if reference_ready in self._running):
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
        """Return the result of a chunk (piece of work) under which every worker died: a violation."""
        entry = next(entry for entry in self._entries if entry.name == chunk.implementation)
        law = entry.laws[entry.groups[chunk.operation][0]]
        summary = f"ended each Ray worker that ran it, {_AGAIN + 1} of them: {type(error).__name__}."
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
        """End all actors, and Ray in this process."""
        for actor in self._actors:
            with suppress(Exception):
                self._ray.kill(actor)
        self._ray.shutdown()


ENGINES: dict[str, Callable[[Order, int, float, str], Engine]] = {"local": Local, "ray": OnRay}
"""The engines by their names."""


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Return a context that restores the signal handlers at its end, because Ray replaces them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _devices(worker: int, gpus: float, workers: int) -> dict[str, str]:
    """Return the environment variable that gives a worker its NVIDIA devices, among the devices of
    this process.

    Raises ValueError if there are too few devices.
    """
    if not gpus:
        return {}
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    drivers = Path("/proc/driver/nvidia/gpus").glob("*")
    devices = (
        [str(number) for number, _ in enumerate(drivers)]
        if visible_devices is None
        else [device for device in visible_devices.split(",") if device]
    )
    shared = max(1, int(1 / gpus))  # workers of one device
    per_worker = max(1, _whole(gpus))
    first_device = worker // shared if gpus < 1 else worker * per_worker
    needed = -(-workers // shared) if gpus < 1 else workers * per_worker
    if needed > len(devices):
        raise ValueError(f"{workers} workers with --gpus {gpus:g} need {needed} devices, but there are {len(devices)}.")
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices[first_device : first_device + per_worker])}


def _whole(gpus: float) -> int:
    return int(-(-gpus // 1))


def _whole_path(target: str) -> str:
    """Return the target with the full path of its file, so that a process in another folder can
    find it.
    """
    name, mark, attribute = target.partition(":")
    return f"{Path(name).resolve()}{mark}{attribute}" if name.endswith(".py") else target
