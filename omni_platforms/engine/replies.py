"""`Replies`: enters what workers say into the board. Called by the pumps, from their threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from omni_platforms.engine.board import Board, dropped_outcome
from omni_platforms.engine.dispatch import Work
from omni_platforms.engine.future import carry_out
from omni_platforms.engine.ledger_records import Effects, Origin, Outcome
from omni_platforms.engine.messages import (
    AsyncOutput,
    ExecuteBatch,
    Kind,
    PreviewTaken,
    Unreadable,
    member_id,
)
from omni_platforms.engine.previews import Preview
from omni_platforms.errors import RankOutOfStepError


class Replies:
    """The `Receiver` of all pumps of one executor.

    `failed(error)` ends the executor: ranks that do not answer for `step_timeout` seconds after
    another one has failed are out of step.
    """

    def __init__(
        self, board: Board, step_timeout: float, failed: Callable[[BaseException], None]
    ) -> None:
        self._board = board
        self._step_timeout = step_timeout
        self._failed = failed
        self._deadlines: dict[str, threading.Timer] = {}

    def compute_done(self, rank: int, message: AsyncOutput, error: BaseException | None) -> None:
        """A forward has ended, or failed: the next is sent, and perhaps the job is done."""
        board = self._board
        effects = Effects()
        with board.changed:
            work = board.dispatcher.work_of(rank, message.id)
            if work is None:
                board.late += 1
                return
            if rank == board.output_rank:
                board.send_drops(rank, work)
            board.send_work(board.dispatcher.finished(rank, message.id))
            if rank == board.output_rank or not board.lockstep:
                work.origin = Origin(rank, message.stamps)
            if work.replies.add(rank, Outcome(message, error)):
                effects = self._job_done(work)
                if not work.replies.errors:
                    board.keep_for_retry(work)
            elif error is not None:
                self._expect_others(work)
            board.changed.notify_all()
        carry_out(effects)

    def expects(self, output_id: str) -> bool:
        """Whether somebody may still want an output."""
        with self._board.changed:
            return self._board.ledger.expects(output_id)

    def ready(self, output_id: str, outcome: Outcome) -> None:
        """An output is here. In lockstep it is held until every rank is done with its request."""
        board = self._board
        with board.changed:
            work = self._unfinished(output_id) if board.lockstep else None
            if work is not None:
                work.held.append((output_id, outcome))
                return
            effects = board.ledger.ready(output_id, outcome)
            board.forget_if_arrived(output_id)
            board.changed.notify_all()
        del outcome
        carry_out(effects)

    def unreadable(self, rank: int, packet_id: str, output_id: str) -> None:
        """Nothing of a packet was leased: its worker takes the blocks back.

        Not of an output that was delivered: its packet was read, and this is not it.
        """
        board = self._board
        with board.changed:
            ledger = board.ledger
            if ledger.expects(output_id) or output_id in ledger.unacknowledged():
                link = board.links.get(rank)
                if link is not None:
                    link.put(Unreadable(packet_id))

    def late(self) -> None:
        """An output is here that nobody wants."""
        with self._board.changed:
            self._board.late += 1

    def previewed(self, rank: int, output_id: str, step: int | None, value: Any) -> None:
        """A preview is here; `None` for one that could not be read."""
        with self._board.changed:
            link = self._board.links.get(rank)
            previews = self._board.previews.get(output_id)
        if link is None:  # its worker is gone, and asks nobody
            return
        taken = functools.partial(link.put, PreviewTaken(output_id))
        if previews is None or value is None:
            taken()
        else:
            previews.put(Preview(output_id, step, value), taken)

    def replied(self, rank: int, call_id: str, outcome: Outcome) -> None:
        """One rank has answered a call."""
        with self._board.changed:
            effects = self._board.calls.reply(rank, call_id, outcome)
        carry_out(effects)

    def dropped(self, rank: int, output_id: str) -> None:
        """A worker has dropped an output. Of a request that it had not begun it says no more."""
        board = self._board
        with board.changed:
            effects = board.acknowledged(output_id)
            board.forget_if_arrived(output_id)
            work = board.dispatcher.work_of(rank, output_id)
            if work is not None:
                board.send_work(board.dispatcher.finished(rank, output_id))
                effects.add(board.ledger.compute_done(output_id, dropped_outcome(output_id)))
            board.changed.notify_all()
        carry_out(effects)

    def close(self) -> None:
        """Watch no deadline any more."""
        with self._board.changed:
            for timer in self._deadlines.values():
                timer.cancel()
            self._deadlines.clear()

    def _job_done(self, work: Work) -> Effects:
        """Every rank is done with a job: settle it, and what came meanwhile."""
        timer = self._deadlines.pop(work.id, None)
        if timer is not None:
            timer.cancel()
        self._board.end_previews(work.id)
        result = self._result(work)._replace(origin=work.origin)
        effects = self._board.ledger.compute_done(work.id, result)
        for output_id, outcome in work.held:
            effects.add(self._board.ledger.ready(output_id, outcome))
        work.held.clear()
        return effects

    def _result(self, work: Work) -> Outcome:
        """Return what the caller of `execute_model` gets: handles, or the ranks' error."""
        combined = work.replies.combined()
        if combined.error is not None:
            return combined
        handle = combined.value[self._board.output_rank if self._board.lockstep else 0]
        if not isinstance(work.message, ExecuteBatch):
            return Outcome(handle)
        return Outcome(
            {
                request_id: AsyncOutput(Kind.COMPUTE_DONE, member_id(work.id, request_id))
                for request_id in work.message.requests
            }
        )

    def _unfinished(self, output_id: str) -> Work | None:
        """Return the job of an output that some rank has not finished."""
        job_id = output_id.partition("/")[0]
        works = (self._board.dispatcher.work_of(rank, job_id) for rank in self._board.links)
        return next((work for work in works if work is not None), None)

    # Ranks out of step ----------------------------------------------------------

    def _expect_others(self, work: Work) -> None:
        """One rank has failed: the others must end this job, too, or they wait for it for ever."""
        if work.id not in self._deadlines:
            timer = threading.Timer(self._step_timeout, self._out_of_step, [work])
            timer.daemon = True
            self._deadlines[work.id] = timer
            timer.start()

    def _out_of_step(self, work: Work) -> None:
        with self._board.changed:
            left, errors = sorted(work.replies.left), work.replies.errors
        if left:
            error = RankOutOfStepError(
                f"workers {sorted(errors)} failed request {work.id!r}, and {self._step_timeout} s "
                f"later workers {left} had not answered: they may wait for the others for ever"
            )
            error.__cause__ = next(iter(errors.values()))
            self._failed(error)
