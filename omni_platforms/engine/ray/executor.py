"""`RayExecutor`: a worker class, run on the nodes of a Ray cluster, one worker a device."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from omni_platforms.engine.crew import start_all
from omni_platforms.engine.elastic import ElasticEngine, OnLoss
from omni_platforms.engine.interface import Executor
from omni_platforms.engine.lifecycle import end_all_at_exit
from omni_platforms.engine.messages import Setup
from omni_platforms.engine.parameters import check_choice, check_counts, for_each_rank, seconds
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.ray.library import connect, load_ray
from omni_platforms.engine.ray.placement import STRATEGIES
from omni_platforms.engine.ray.site import Site
from omni_platforms.engine.ray.worker import RayWorker
from omni_platforms.engine.stats import Mode
from omni_platforms.platform.interface import OmniPlatform


class RayExecutor(Executor):
    """Runs a worker class on a Ray cluster. As `MultiprocExecutor`, and over several hosts.

    In data parallel mode a worker that is lost costs the requests that it had, which fail with
    `WorkerDiedError`, or are sent to another one `retries` times; the others serve on. The
    last worker's loss ends the executor, and in lockstep any worker's does.

    What is not among these parameters is as of `MultiprocExecutor`, which alone has `devices`.

    Parameters:
        platform: its name, or the platform; this process's own one when `None`. Name it where
            the driver's host has no device.
        retries: how often a request is sent again when its worker was lost: its forward may
            then have run before, in part or as a whole.
        address: of the cluster, as `ray.init` takes it; when `None`, the one of `RAY_ADDRESS`,
            one of this host, or a new one.
        ray_options: further arguments of `ray.init`, where this process is not connected yet.
        resources: what one worker takes of its node, by Ray's names: a processor and the
            platform's device when `None`.
        strategy: Ray's for the placement of the first workers: "PACK", "SPREAD", "STRICT_PACK" or
            "STRICT_SPREAD". They then keep their places until the end of the executor. When
            `None`, ranks in lockstep are packed, and others go one by one where there is room.
        outputs: "auto": workers of this host write into memory that this process maps, the
            outputs of others come by Ray's object store; "object_store": all do.
        store_cap: bytes that outputs may take in the object store of this node; half of it
            when `None`.

    Making one blocks until every worker is up. Any thread of this process may call the methods.
    Use it as a context manager, or call `shutdown()`. Where it has connected this process to
    the cluster, `shutdown()` disconnects it.

    Raises `MissingExtraError` without Ray, `ClusterError`, and as `MultiprocExecutor`.
    """

    def __init__(
        self,
        worker: str,
        num_workers: int = 1,
        platform: str | OmniPlatform | None = None,
        config: Any = None,
        *,
        mode: Mode = "data_parallel",
        output_rank: int = 0,
        window: int = 2,
        retries: int = 0,
        address: str | None = None,
        ray_options: Mapping[str, Any] | None = None,
        resources: Mapping[str, float] | None = None,
        strategy: str | None = None,
        outputs: Literal["auto", "object_store"] = "auto",
        store_cap: int | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout: float | None = None,
        output_timeout: float | None = None,
        arena_cap: int | None = None,
        arena_segment_bytes: int | None = None,
        arena_initial_bytes: int | None = None,
        when_full: Literal["block", "raise"] = "block",
        max_in_flight: int = 4,
    ) -> None:
        check_choice("mode", mode, ("data_parallel", "lockstep"))
        check_choice("when_full", when_full, ("block", "raise"))
        check_choice("outputs", outputs, ("auto", "object_store"))
        if strategy is not None:
            check_choice("strategy", strategy, STRATEGIES)
        check_counts(num_workers, output_rank, window, max_in_flight, None)
        if retries < 0 or (store_cap is not None and store_cap < 1):
            raise ValueError(f"retries ({retries}) and store_cap ({store_cap}) are not negative")
        timeout = seconds("output_timeout", output_timeout, "OMNI_ASYNC_OUTPUT_TIMEOUT")
        self._start_timeout = seconds("start_timeout", start_timeout, "OMNI_WORKER_START_TIMEOUT")
        lockstep = mode == "lockstep"
        self._setup = Setup(
            worker,
            Pickled.of(config),
            world_size=num_workers,
            arena_cap=arena_cap,
            arena_segment_bytes=arena_segment_bytes,
            arena_initial_bytes=arena_initial_bytes,
            block_when_full=when_full == "block",
            max_in_flight=max_in_flight,
        )
        setups = for_each_rank(self._setup, None, output_rank if lockstep else None)
        name = _platform_name(platform)
        load_ray()
        # Exit handlers run in reverse order: ours must come before the one that `import ray` has
        # registered, or workers would look as if they had died. Twice does no harm.
        atexit.unregister(end_all_at_exit)
        atexit.register(end_all_at_exit)
        undo = [connect(address, ray_options or {})]
        try:
            self._site = Site(
                name,
                num_workers,
                resources=resources,
                strategy="PACK" if lockstep and strategy is None else strategy,
                environment=environment,
                shares_memory=outputs == "auto",
                store_cap=store_cap,
            )
            undo.insert(0, self._site.close)
            makers = [functools.partial(RayWorker, setup, self._site) for setup in setups]
            workers, started = start_all(makers, self._start_timeout)
        except BaseException:
            for step in undo:
                step()
            raise
        self._elastic = ElasticEngine(
            workers,
            started,
            window=window,
            lockstep=lockstep,
            output_rank=output_rank,
            output_timeout=timeout,
            retries=retries,
            after_end=undo,
        )
        super().__init__(self._elastic)

    # Workers that come and leave ------------------------------------------------

    def add_worker(self, timeout: float | None = None) -> int:
        """Start a further worker where the cluster has room; return its rank.

        Requests flow meanwhile; it gets some as soon as it is up. Blocks until then, at most
        `timeout` seconds (`start_timeout` when `None`). Raises `WorkerStartError`, `ValueError` in
        lockstep, `WorkerAsleepError`, and what ended the executor.
        """
        rank = self._elastic.next_rank()
        count = len(self._elastic.asking.ranks()) + 1
        setup = replace(self._setup, rank=rank, world_size=count, arena_shares=count)
        worker = RayWorker(setup, self._site)
        started = worker.wait_started(self._start_timeout if timeout is None else timeout)
        try:
            self._elastic.add(rank, worker, started)
        except BaseException:
            worker.kill()
            worker.close()
            raise
        return rank

    def remove_worker(self, rank: int | None = None, timeout: float = 60.0) -> int:
        """Let a worker finish what it has, and end it; return its rank.

        Takes the one with the fewest requests when `rank` is `None`. Requests that wait go to the
        others; nothing is lost. Its place goes back to the cluster, but for a `strategy`'s. Blocks
        at most `timeout` seconds, and a few more while the process ends. Raises
        `DrainTimeoutError` when it was not done (it serves on), `ValueError` for a rank that
        is not there, for the last one and in lockstep, and what ended the executor.
        """
        return self._elastic.remove(rank, timeout)

    def on_worker_lost(self, callback: OnLoss) -> None:
        """Have `callback(rank, error)` called for each worker that is lost.

        On a thread of its own. It may call `add_worker`. Where the loss ends the executor,
        `on_failure` is called instead.
        """
        self._elastic.on_loss(callback)

    @property
    def hosts(self) -> dict[int, str]:
        """The address of each worker's node, by rank: where ranks that compute together meet."""
        workers = list(self._elastic.crew.workers.items())
        return {
            rank: worker.report.host
            for rank, worker in workers
            if isinstance(worker, RayWorker) and worker.report is not None
        }

    @property
    def ranks(self) -> list[int]:
        """The ranks of the workers that serve, in the order of `workers`' and of calls' results."""
        return self._elastic.asking.ranks()


def _platform_name(platform: str | OmniPlatform | None) -> str:
    if isinstance(platform, str):
        return platform
    if platform is None:
        from omni_platforms.platform.selection import current_platform

        platform = current_platform()
    return platform.name
