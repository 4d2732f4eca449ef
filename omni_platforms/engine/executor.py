"""`MultiprocExecutor`: a worker class, run by one process a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from omni_platforms.engine.crew import start_processes
from omni_platforms.engine.interface import Executor
from omni_platforms.engine.lifecycle import Engine
from omni_platforms.engine.messages import Setup
from omni_platforms.engine.parameters import check_choice, check_counts, for_each_rank, seconds
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.stats import Mode
from omni_platforms.platform.interface import OmniPlatform


class MultiprocExecutor(Executor):
    """Runs a worker class in processes of its own, and brings their outputs here without a copy.

    Parameters:
        worker: "package.module:Class" or "path/to/file.py:Class" (docs/engine.md says what it
            must have).
        num_workers: how many processes, each with a rank and a device.
        platform: its name, or the platform; what the workers' environment says when `None`.
        config: any object that pickles; every worker gets it.
        mode: "data_parallel": each request goes to the least busy worker; "lockstep": every
            rank gets every request, in the same order, and `output_rank`'s outputs are
            delivered.
        window: requests that are at a worker before the current one has ended.
        devices: the device's index for each rank; the rank itself when `None`.
        environment: variables of the workers beside this process's.
        start_timeout: seconds for a worker to come up; `OMNI_WORKER_START_TIMEOUT` when `None`.
        output_timeout: seconds to wait for an output, and for the other ranks of a lockstep when
            one has failed; `OMNI_ASYNC_OUTPUT_TIMEOUT` when `None`.
        arena_cap, arena_segment_bytes, arena_initial_bytes: bytes of each worker's shared memory,
            as of `Arena`.
        when_full: "block": an output waits in the worker for room; "raise": it fails.
        max_in_flight: outputs that a worker's device may be computing or copying before the next
            hand-over waits: each holds device memory, and a block of shared memory.

    Making one blocks until every worker is up. Any thread of this process may call the
    methods. Use it as a context manager, or call `shutdown()`.

    Raises `WorkerStartError`, `SettingError` for a bad variable, `UnsendableError` for a config
    that does not pickle, and `ValueError` for other bad parameters.
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
        devices: Sequence[int] | None = None,
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
        check_counts(num_workers, output_rank, window, max_in_flight, devices)
        timeout = seconds("output_timeout", output_timeout, "OMNI_ASYNC_OUTPUT_TIMEOUT")
        start = seconds("start_timeout", start_timeout, "OMNI_WORKER_START_TIMEOUT")
        lockstep = mode == "lockstep"
        first = Setup(
            worker,
            Pickled.of(config),
            world_size=num_workers,
            arena_cap=arena_cap,
            arena_segment_bytes=arena_segment_bytes,
            arena_initial_bytes=arena_initial_bytes,
            block_when_full=when_full == "block",
            max_in_flight=max_in_flight,
        )
        setups = for_each_rank(first, devices, output_rank if lockstep else None)
        name = platform.name if isinstance(platform, OmniPlatform) else platform
        processes, started = start_processes(setups, name, environment, start)
        super().__init__(
            Engine(
                processes,
                started,
                window=window,
                lockstep=lockstep,
                output_rank=output_rank,
                output_timeout=timeout,
            )
        )
