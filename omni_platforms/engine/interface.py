"""`Executor`: what callers may do with workers, wherever these run."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from omni_platforms.engine import aio
from omni_platforms.engine.future import EngineFuture
from omni_platforms.engine.lifecycle import Engine, OnFailure
from omni_platforms.engine.messages import TRIM, AsyncOutput, Started
from omni_platforms.engine.pending_state import PendingState
from omni_platforms.engine.previews import Preview
from omni_platforms.engine.rpc import call_all, put_to_sleep, wake_up
from omni_platforms.engine.stats import EngineStats
from omni_platforms.engine.waits import drop_and_wait, show_previews, wait_computed

E = TypeVar("E", bound="Executor")


class Executor:
    """The methods of `MultiprocExecutor` and `RayExecutor`. Any thread may call them.

    `engine` has the workers, which are up. Letting go of the executor ends them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ask = engine.asking
        weakref.finalize(self, engine.abandon).atexit = False

    @property
    def workers(self) -> Sequence[Started]:
        """What each worker said about itself: platform, device, NUMA node, shared memory."""
        return list(self._engine.started.values())

    # Requests -----------------------------------------------------------------

    def submit(self, request: Any, *, stepwise: bool = False, previews: int = 0) -> EngineFuture:
        """Queue one request; return the future of its COMPUTE_DONE. Does not block.

        Its `async_output_id` is known at once. `previews` is how many previews of a
        stepwise request may be untaken at once (`EngineFuture.previews` iterates over them).

        Raises `UnsendableError`, `WorkerAsleepError`, `ExecutorForkedError`, and
        `ExecutorClosedError` after the end, with what ended it as its cause.
        """
        return self._ask.submit(request, stepwise=stepwise, previews=previews)

    def submit_batch(self, requests: Mapping[str, Any]) -> EngineFuture:
        """Queue several requests as one forward; as `submit`, and as `execute_model_batch`."""
        return self._ask.submit_batch(requests)

    def execute_model(self, request: Any, timeout: float | None = None) -> AsyncOutput:
        """Run one request; return at COMPUTE_DONE, when the next may start.

        `wait_output_ready(done.async_output_id)` gives its output. Blocks behind what was
        submitted before, at most `timeout` seconds (for as long as the worker lives when `None`).

        Raises as `submit`, the request's own error (in lockstep with all ranks' in its
        `rank_errors`), and `OutputTimeoutError`, after which the request is dropped.
        """
        done: AsyncOutput = wait_computed(self._ask, self.submit(request), timeout)
        return done

    def execute_model_batch(
        self, requests: Mapping[str, Any], timeout: float | None = None
    ) -> dict[str, AsyncOutput]:
        """Run several requests as one forward; return a handle for each, at COMPUTE_DONE.

        Each has an output of its own, which arrives, fails and is dropped by itself.
        Blocks and raises as `execute_model`.
        """
        done: dict[str, AsyncOutput] = wait_computed(
            self._ask, self.submit_batch(requests), timeout
        )
        return done

    def execute_stepwise(
        self,
        request: Any,
        on_preview: Callable[[Preview], object] | None = None,
        timeout: float | None = None,
    ) -> AsyncOutput:
        """Run a request step by step; return when the last step is computed.

        `on_preview` is called on this thread for intermediate values; while it is busy,
        others are skipped, and nothing waits for it. `timeout` is for the time behind the
        last preview. Blocks and raises as `execute_model`.
        """
        future = self.submit(request, stepwise=True, previews=0 if on_preview is None else 2)
        if on_preview is not None:
            show_previews(self._ask, future, on_preview)
        try:
            done: AsyncOutput = wait_computed(self._ask, future, timeout)
        finally:
            del future  # the error's traceback has this frame: it would be a cycle
        return done

    # Outputs ------------------------------------------------------------------

    def wait_output_ready(self, async_output_id: str) -> EngineFuture:
        """Return the future of an output: always the same one until it is delivered.

        Its tensors are views of the pages that the worker's device wrote; a block of
        shared memory goes back when the last view of it is gone. Does not block.

        Raises `UnknownOutputError` for an output that was delivered or never issued,
        `OutputDroppedError`, and `ExecutorForkedError`.
        """
        return self._ask.wait(async_output_id)

    def drop_output(self, async_output_id: str, timeout: float = 30.0) -> bool:
        """Give an output up, or a whole batch; return whether there was anything to give up.

        Blocks until its worker has acknowledged that nothing reads or writes memory for it any
        more, at most `timeout` seconds: a forward that has begun is finished first. Raises
        `OutputTimeoutError` (it is dropped, and not acknowledged), `UnknownOutputError`
        for an id that was never issued or was closed long ago, and what ended the executor.
        """
        return drop_and_wait(self._ask, async_output_id, timeout)

    # Workers ------------------------------------------------------------------

    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of every worker; return the results by rank, when all have answered.

        It runs between two requests, after those that are at the worker. Blocks at most
        `timeout` seconds (for as long as the workers live when `None`).

        Raises `CallTimeoutError`, with the ranks that did not answer (their late replies are
        dropped); the error of a rank: an internal error rather than a rejection, with all
        ranks' errors in its `rank_errors`; and what ended the executor.
        """
        return call_all(self._ask, method, args, kwargs, timeout=timeout)

    def sleep(
        self,
        *args: Any,
        timeout: float = 60.0,
        free_shared_memory: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Call every worker's `sleep`, when all copies in flight are done; return the results.

        Requests submitted before are computed first, later ones raise `WorkerAsleepError`.
        When one worker refuses, because copies go on or by an error of its own, those that sleep
        are woken. With `free_shared_memory` the sleeping workers give their shared memory back
        as `trim` does, and `wake_up` has it again.

        Blocks at most `timeout` seconds, and so long again for the memory. Raises
        `DrainTimeoutError`, and as `collective_rpc`; an error of `trim` leaves the workers asleep.
        """
        results = put_to_sleep(self._ask, args, kwargs, timeout)
        if free_shared_memory:
            self.trim(timeout)
        return results

    def trim(self, timeout: float = 60.0) -> list[int]:
        """Give back the shared memory that no output is in; return each worker's bytes.

        Whole segments are unregistered, unmapped at both ends, and the system's again. The
        next outputs grow the arena anew, at about 0.4 ms a megabyte. Runs behind the
        requests that are at the workers. Blocks at most `timeout` seconds. Raises
        `HostRegistrationError` when a device refuses, and as `collective_rpc`.
        """
        given_back = call_all(self._ask, TRIM, timeout=timeout)
        self._engine.crew.refresh_views()
        return given_back

    def wake_up(self, *args: Any, timeout: float = 60.0, **kwargs: Any) -> list[Any]:
        """Call every worker's `wake_up`; return the results.

        Shared memory that was freed for the sleep is had again first. Raises
        `SegmentRefusedError` when it is not there (they still sleep: try again), and as
        `collective_rpc`.
        """
        return wake_up(self._ask, args, kwargs, timeout)

    def check_health(self) -> bool:
        """Whether requests are served: every process and thread lives. Does not block."""
        return self._engine.is_healthy()

    @property
    def failure(self) -> BaseException | None:
        """What ended the executor, or `None`."""
        return self._ask.board.failure

    def stats(self) -> EngineStats:
        """Return counts since the executor was made, and what each worker has. Does not block."""
        return self._engine.stats()

    def on_failure(self, callback: OnFailure) -> None:
        """Have `callback(cause)` called, once, when a failure ends the executor.

        On a thread of its own; at once when it has ended already. A shutdown is no failure.
        """
        self._engine.on_failure(callback)

    def describe_pending_state(self, ask_workers_for: float = 0.0) -> PendingState:
        """Return what is open, where each output is, and what every worker has.

        With `ask_workers_for` seconds the workers are asked as well in which phase each
        output is (queue, compute, room, gate, copy, send), and it blocks so long at most.
        """
        said = self._ask.ask_workers(ask_workers_for) if ask_workers_for > 0 else {}
        return self._ask.describe(said)

    # asyncio ------------------------------------------------------------------

    async def generate(self, request: Any) -> Any:
        """Run one request and return its output. Cancelling the task drops the request.

        Raises as `submit` and `EngineFuture.result`.
        """
        return await aio.generate(self._ask, request)

    def stream(self, request: Any, previews: int = 2) -> AsyncIterator[aio.Item]:
        """Run a request step by step: iterate over its previews, then its one `Output`.

        Ending the iteration early drops the request. Previews are skipped while the
        consumer is busy. Raises as `generate`.
        """
        return aio.stream(self._ask, request, previews)

    def generate_many(
        self, requests: Iterable[Any], ahead: int | None = None
    ) -> AsyncIterator[aio.Output]:
        """Run many requests: iterate over their outputs as they arrive, in any order.

        At most `ahead` are under way or not consumed (twice what the workers' windows
        hold when `None`). A request that fails has its error in its `Output`.
        """
        return aio.generate_many(
            self._ask, requests, ahead or 2 * self._ask.board.dispatcher.room()
        )

    # The end ------------------------------------------------------------------

    def shutdown(self, timeout: float = 30.0) -> None:
        """Deliver what was submitted, then end all workers. A second call does nothing.

        What is not done within `timeout` seconds fails with `ExecutorClosedError`, and its worker
        is ended, by force if need be: about ten seconds later at most. Outputs that
        have arrived can still be waited for. A forked child ends nothing. Raises
        `WorkerSurvivedError` when a process cannot be ended: call it again.
        """
        self._engine.shutdown(timeout)

    def __enter__(self: E) -> E:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown(30.0 if error is None else 0.0)
