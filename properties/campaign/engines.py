"""Engines: what hands chunks to benches, so many at once, in threads of this process or in actors of Ray's."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from properties.campaign.bench import Bench, Lost, Result
from properties.campaign.chunks import Chunk
from properties.command.messages import Entry, Order
from properties.command.signals import Signals

__all__ = ["ENGINES", "Engine", "Local", "OnRay"]

Done = tuple[Chunk, Result | Lost]
_TICK = 0.5  # seconds between two looks at signals


class Engine(Protocol):
    """Runs chunks, at most as many at once as there are `workers`; `running` of them are under way."""

    workers: int

    @property
    def running(self) -> int:
        """How many chunks are under way."""

    def entries(self, signals: Signals) -> list[Entry]:
        """What there is to verify, as a worker finds it. Raises ValueError, a sentence, and StoppedError where a signal comes first."""

    def submit(self, chunk: Chunk) -> None:
        """Give out a chunk; one of the workers should be free."""

    def finished(self, seconds: float) -> Sequence[Done]:
        """Chunks that are finished, each told once; waits for one, so many seconds at most."""

    def close(self) -> None:
        """End all workers, and what they are at."""


class Local:
    """Benches in this process, a thread for each, which waits for its child process. `gpus` are each worker's, or a share of one."""

    def __init__(self, order: Order, workers: int, gpus: float = 0.0, address: str = "") -> None:
        if address:
            raise ValueError(f"--address {address} is where Ray is, and needs --engine ray.")
        self.workers = workers
        self._benches = [Bench(replace(order, environment={**order.environment, **_devices(n, gpus, workers)})) for n in range(workers)]
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
    """Benches in actors of Ray's, which gives each its processor and its devices, starts those again that died, and gives out their chunk
    again. At an `address` of a cluster, "auto" for the one that this machine is part of; without one Ray is started here."""

    def __init__(self, order: Order, workers: int, gpus: float = 0.0, address: str = "") -> None:
        try:
            import ray
        except ImportError:
            raise ValueError("--engine ray needs Ray, which `pip install 'attnspec[ray]'` installs.") from None
        self._ray, self.workers = ray, workers
        here = {"num_cpus": workers, "num_gpus": _whole(gpus * workers), "include_dashboard": False} if not address else {}
        try:
            with _handlers_kept():
                ray.init(address=address or "local", log_to_driver=False, logging_level="error", **here)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(f"There is no Ray at {address or 'this machine'}: {error}") from error
        order = replace(order, targets=tuple(map(_whole_path, order.targets)))
        needs: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": -1}
        if order.memory < float("inf"):
            needs["memory"] = int(order.memory)
        actor = ray.remote(**needs)(Bench)
        self._actors = [actor.remote(order, os.getcwd()) for _ in range(workers)]
        self._free = list(self._actors)
        self._running: dict[Any, tuple[Any, Chunk]] = {}

    @property
    def running(self) -> int:
        """How many chunks are under way."""
        return len(self._running)

    def entries(self, signals: Signals) -> list[Entry]:
        """What there is to verify, as the first actor finds it."""
        asked = self._actors[0].entries.remote()
        while not self._ray.wait([asked], timeout=_TICK)[0]:
            signals.obey()
        try:
            found: list[Entry] = self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ValueError) else error from None
        return found

    def submit(self, chunk: Chunk) -> None:
        """Give out a chunk."""
        actor = self._free.pop()
        self._running[actor.run.remote(chunk)] = actor, chunk

    def finished(self, seconds: float) -> Sequence[Done]:
        """Chunks that are finished."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        done = []
        for reference in ready:
            actor, chunk = self._running.pop(reference)
            self._free.append(actor)
            try:
                done.append((chunk, self._ray.get(reference)))
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                done.append((chunk, Lost(f"Ray lost it, by {type(error).__name__}")))
        return done

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
    """The variable that gives a worker its NVIDIA devices, of those that this process has. Raises ValueError where they are too few."""
    if not gpus:
        return {}
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    drivers = Path("/proc/driver/nvidia/gpus").glob("*")
    there = [str(n) for n, _ in enumerate(drivers)] if named is None else [device for device in named.split(",") if device]
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
