"""`run_job`: reads a file of requests, runs what is to be run, and leaves results and a summary."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_platforms import settings
from omni_platforms.engine import MultiprocExecutor
from omni_platforms.engine.interface import Executor
from omni_platforms.errors import JobError, OmniError
from omni_platforms.jobs.interrupts import Interrupts
from omni_platforms.jobs.modes import choose_mode
from omni_platforms.jobs.progress import Show, shown
from omni_platforms.jobs.records import Ended, now
from omni_platforms.jobs.requests import Request, RequestFile, read_requests
from omni_platforms.jobs.results import TRACE, ResultFolder
from omni_platforms.jobs.runner import Runner
from omni_platforms.jobs.saving import OutputSaver
from omni_platforms.jobs.summary import Summary
from omni_platforms.jobs.trace import Trace
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

_MOST_SHOWN = 20


@dataclass(frozen=True)
class Job:
    """What is asked for."""

    worker: str
    requests: Iterable[bytes]
    """The lines of the file."""
    requests_name: str
    folder: Path
    workers: int = 1
    mode: str = "auto"
    resume: bool = False
    config: Any = None
    grace: float = 5.0
    """Seconds that requests under way get when the run is interrupted."""
    window: int | None = None
    """Requests that may be at a worker; what the mode takes when `None`."""
    max_in_flight: int = 4
    """Outputs that a worker's device may be computing or copying."""
    backend: str = "process"
    """"process": processes of this host; "ray": workers on a Ray cluster."""
    address: str | None = None
    """Of the Ray cluster; as of `RayExecutor`."""
    workers_platform: str | None = None
    """The name of the platform of Ray's workers; this process's when `None`."""
    retries: int = 0
    """How often Ray sends a request again whose worker was lost."""


def run_job(job: Job, platform: OmniPlatform, interrupts: Interrupts) -> Summary:
    """Run a job; block until it has ended, and its summary is written.

    What goes wrong with a request, with a worker or by a signal is in the summary.
    Raises `JobError` when the requests or the folder are no good, or results are there
    and `resume` was not asked for.
    """
    file = read_requests(job.requests)
    if not file.requests and not file.bad_lines:
        raise JobError(f"{job.requests_name} holds no request: write one JSON object a line")
    with ResultFolder(job.folder) as folder:
        if not (job.resume or folder.is_new()):
            raise JobError(
                f"{job.folder} has results already: add --resume to run what is missing or "
                "failed, or name another folder"
            )
        done = {request.id for request in folder.finished(file.requests)}
        todo = [request for request in file.requests if request.id not in done]
        summary = _summary(job, file, len(done), platform)
        with shown(len(todo)) as show:
            _Run(job, platform, folder, file, summary, show, interrupts).run(todo)
        summary.write()
        return summary


def _summary(job: Job, file: RequestFile, finished: int, platform: OmniPlatform) -> Summary:
    return Summary(
        worker=job.worker,
        requests_file=job.requests_name,
        folder=job.folder,
        mode=choose_mode(
            job.mode, platform, job.workers, job.window, elsewhere=job.workers_platform
        ),
        platform=job.workers_platform or platform.name,
        requests=len(file.requests),
        finished_before=finished,
        bad_lines=file.bad_lines,
        started_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


class _Run:
    """The part of a job that has workers."""

    def __init__(
        self,
        job: Job,
        platform: OmniPlatform,
        folder: ResultFolder,
        file: RequestFile,
        summary: Summary,
        show: Show,
        interrupts: Interrupts,
    ) -> None:
        self._job = job
        self._platform = platform
        self._folder = folder
        self._saver = OutputSaver(folder.outputs, file.stems)
        self._summary = summary
        self._show = show
        self._interrupts = interrupts

    def run(self, todo: Sequence[Request]) -> None:
        """Run requests; whatever goes wrong is in the summary."""
        for bad in self._summary.bad_lines[:_MOST_SHOWN]:
            self._show.note(f"{self._job.requests_name}, line {bad.line}: {bad.error}")
        if not todo:
            return
        try:
            self._serve(todo)
        except KeyboardInterrupt:
            self._show.note("stopped while the workers started")
        except OmniError as error:
            self._ended_early(error)
        if self._interrupts.signal is not None:
            self._summary.interrupted_by = self._interrupts.signal.name

    def _serve(self, todo: Sequence[Request]) -> None:
        summary, job = self._summary, self._job
        self._show.note(f"{summary.mode}; starting {job.workers} x {job.worker}")
        begun = now()
        with self._executor() as executor:
            summary.devices = [started.device for started in executor.workers]
            start = now()
            summary.start_seconds = start - begun
            self._show.begin()
            try:
                self._run_all(executor, todo, start)
            finally:
                summary.seconds = now() - start

    def _executor(self) -> Executor:
        """Start the workers. Raises as the executor of the backend."""
        job = self._job
        window, flight = self._summary.mode.window, job.max_in_flight
        if job.backend == "process":
            return MultiprocExecutor(
                job.worker,
                job.workers,
                self._platform,
                job.config,
                window=window,
                max_in_flight=flight,
            )
        from omni_platforms.engine.ray import RayExecutor

        return RayExecutor(
            job.worker,
            job.workers,
            job.workers_platform or self._platform,
            job.config,
            window=window,
            max_in_flight=flight,
            address=job.address,
            retries=job.retries,
        )

    def _run_all(self, executor: Executor, todo: Sequence[Request], start: float) -> None:
        mode, devices = self._summary.mode, self._summary.devices
        names = [f"worker {rank} ({device})" for rank, device in enumerate(devices)]
        with Trace(self._folder.folder / TRACE, start, names) as trace:

            def ended(ended: Ended) -> None:
                self._ended(ended, trace)

            runner = Runner(
                executor,
                self._saver.save,
                ended,
                self._stopping,
                in_flight=mode.in_flight,
                savers=mode.savers,
                grace=self._job.grace,
                device_events=Capability.DEVICE_EVENTS in self._platform.capabilities,
                output_timeout=settings.read("OMNI_ASYNC_OUTPUT_TIMEOUT"),
            )
            with self._interrupts.handled_by(runner.stop):
                runner.run(todo)
        self._summary.in_flight = [request.id for request in runner.unfinished]
        failure = runner.trouble or executor.failure
        if failure is not None and self._interrupts.signal is None and self._summary.unfinished:
            self._ended_early(failure)

    def _ended(self, ended: Ended, trace: Trace) -> None:
        """One request has ended: its line is written before anything else is done."""
        self._folder.append(ended.line())
        self._summary.tally.add(ended)
        trace.add(ended)
        if ended.error is not None and self._summary.tally.failed <= _MOST_SHOWN:
            what = f"{type(ended.error).__name__}: {ended.error}"
            self._show.note(
                f"request {ended.request.id!r} (line {ended.request.line}) failed: {what}"
            )
        self._show.moved(self._summary.tally)

    def _stopping(self) -> None:
        self._show.note(
            f"stopping: requests under way get {self._job.grace:g} s; the same again ends at once"
        )

    def _ended_early(self, error: BaseException) -> None:
        self._summary.error = str(error)
        at_workers = ", ".join(self._summary.in_flight[:_MOST_SHOWN])
        under_way = f" (under way: {at_workers})" if at_workers else ""
        self._show.note(f"the run ended early{under_way}: {error}")
