"""The main loop of a worker: requests and calls, one after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from omni_platforms.engine.failure import ErrorRecord
from omni_platforms.engine.messages import (
    Call,
    Execute,
    ExecuteBatch,
    Kind,
    Setup,
    Stop,
    member_id,
)
from omni_platforms.engine.worker.batch import Failed, run_batch
from omni_platforms.engine.worker.calls import Calls
from omni_platforms.engine.worker.device_loss import lost_device
from omni_platforms.engine.worker.forgetting import forget
from omni_platforms.engine.worker.inbox import Damaged, Inbox, Task
from omni_platforms.engine.worker.output_thread import OutputThread
from omni_platforms.engine.worker.reporting import Reporter
from omni_platforms.engine.worker.room import Room
from omni_platforms.engine.worker.stepwise import Steps
from omni_platforms.engine.worker.work import Phase, WorkTable
from omni_platforms.errors import UnknownMethodError, WorkerStoppedError
from omni_platforms.shm import Arena


class MainLoop:
    """Runs on the main thread until the parent says `Stop`. Keeps nothing of what it handled."""

    def __init__(
        self,
        worker: Any,
        setup: Setup,
        arena: Arena,
        table: WorkTable,
        room: Room,
        inbox: Inbox,
        outputs: OutputThread,
        reporter: Reporter,
    ) -> None:
        self._worker = worker
        self._arena = arena
        self._table = table
        self._room = room
        self._inbox = inbox
        self._outputs = outputs
        self._reporter = reporter
        self._delivers = setup.delivers
        self._calls = Calls(worker, arena, outputs, reporter, setup.drain_timeout)

    def run(self) -> None:
        """Handle tasks until the parent stops the worker."""
        while not isinstance(task := self._inbox.next(), Stop):
            self._handle(task)
            del task  # an idle worker keeps neither the last request nor its output

    def _handle(self, task: Task) -> None:
        if isinstance(task, Execute):
            self._execute(task)
        elif isinstance(task, ExecuteBatch):
            self._execute_batch(task)
        elif isinstance(task, Call):
            error = self._too_late() or self._calls.failure(task)
            if error is not None:
                self._reporter.result(task.id, error=ErrorRecord.of(error))
                self._settle(error)
        elif isinstance(task, Damaged):
            self._answer_damaged(task)

    def _execute(self, task: Execute) -> None:
        name = task.id
        if not self._table.enter(name, Phase.COMPUTE):
            return  # dropped, and acknowledged
        steps = Steps(name, self._table, self._outputs)
        try:
            self._check_ready()
            output = self.forward(task, steps)
        except BaseException as error:  # noqa: BLE001  it is the request's, whatever it is
            self._reporter.request_failed(name, error)
            self._settle(error)
            return
        counted = {"step": steps.count, "skipped_previews": steps.skipped} if task.stepwise else {}
        self._reporter.computed(name, **counted)
        self._inbox.computed()
        self._hand_over(name, output)

    def forward(self, task: Execute, steps: Steps) -> Any:
        """Run one request of the user's worker. Observers put their step around it."""
        request = task.request.load()
        if not task.stepwise:
            return self._worker.execute_model(request)
        if not hasattr(self._worker, "execute_stepwise"):
            raise UnknownMethodError("the worker class has no method execute_stepwise(request)")
        return steps.run(self._worker, request)

    def _execute_batch(self, task: ExecuteBatch) -> None:
        members = {
            request_id: request
            for request_id, request in task.requests.items()
            if self._table.enter(member_id(task.id, request_id), Phase.COMPUTE)
        }
        names = {request_id: member_id(task.id, request_id) for request_id in members}
        try:
            self._check_ready()
            outputs = self.forward_batch(task, members)
        except BaseException as error:  # noqa: BLE001  it is the batch's, whatever it is
            self._reporter.request_failed(task.id, error)
            for name in names.values():
                self._reporter.finished(name)
            self._settle(error)
            return
        self._reporter.computed(task.id, members=tuple(names.values()))
        self._inbox.computed()
        for request_id, name in names.items():
            self._hand_over(name, outputs.pop(request_id))

    def forward_batch(self, task: ExecuteBatch, members: Mapping[str, Any]) -> dict[str, Any]:
        """Run those requests of a batch that are still wanted, as one. As `forward`."""
        return run_batch(self._worker, members)

    def _answer_damaged(self, task: Damaged) -> None:
        if task.kind == Kind.CALL:
            self._reporter.result(task.id, error=ErrorRecord.of(task.error))
        elif task.kind == Kind.EXECUTE_BATCH or self._table.enter(task.id, Phase.COMPUTE):
            self._reporter.request_failed(task.id, task.error)

    def _hand_over(self, name: str, output: Any) -> None:
        if not self._table.wanted(name):
            self._outputs.give_up(name)
        elif not self._delivers:  # another rank has the same output
            self._reporter.finished(name)
        elif isinstance(output, Failed):
            self._outputs.failed(name, output.error)
        else:
            self._outputs.submit(name, output)

    def _check_ready(self) -> None:
        self._calls.check_awake()
        late = self._too_late()
        if late is not None:
            raise late

    def _too_late(self) -> WorkerStoppedError | None:
        """Return the error of what is not begun any more, once the time to stop is over."""
        stop_at = self._room.stop_at
        if stop_at is None or time.monotonic() <= stop_at:
            return None
        return WorkerStoppedError(
            "the executor was shut down, and its timeout was over before this was begun"
        )

    def _settle(self, error: BaseException) -> None:
        """End the worker when its device is lost; otherwise let go of what the error holds."""
        lost = lost_device(error, self._arena.platform, self._arena.device)
        if lost is not None:
            self._reporter.end_now(lost)
        forget(error)
