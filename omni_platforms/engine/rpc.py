"""Calls of workers' methods, from the caller's side: who waits, how long, and what is raised."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from omni_platforms.engine.asking import Asking
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.ranks import combine_errors
from omni_platforms.errors import CallTimeoutError, DrainTimeoutError, OmniError
from omni_platforms.events import log_event

logger = logging.getLogger(__name__)

_WAKE_S = 60.0


def call_all(
    ask: Asking,
    method: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
    ranks: Sequence[int] | None = None,
    drain: float | None = None,
) -> list[Any]:
    """Call a method of every worker, or of some; return the results by rank.

    Blocks and raises as `MultiprocExecutor.collective_rpc`.
    """
    ask.check_may_wait()
    chosen = ask.ranks() if ranks is None else ranks
    call_id, future = ask.call(method, args, kwargs, ranks=chosen, drain=drain)
    try:
        answers = future.result(timeout)
    except concurrent.futures.TimeoutError as error:
        left = ask.give_up_call(call_id)
        if not left:
            raise  # it is a worker's own error
        raise CallTimeoutError(
            f"workers {sorted(left)} did not answer {method}() within {timeout} s. A call runs "
            f"behind the requests that are at the worker.\n{ask.describe()}"
        ) from error
    except BaseException:
        ask.give_up_call(call_id)
        raise
    finally:
        del future  # the error's traceback has this frame: it would be a cycle
    return _loaded(answers, chosen)


def _loaded(answers: Sequence[Pickled], ranks: Sequence[int]) -> list[Any]:
    """Unpickle results, on the caller's thread."""
    results, errors = [], {}
    for rank, answer in zip(ranks, answers, strict=True):
        try:
            results.append(answer.load())
        except OmniError as error:
            errors[rank] = error
    if errors:
        raise combine_errors(errors)
    return results


def put_to_sleep(
    ask: Asking, args: Sequence[Any], kwargs: Mapping[str, Any], timeout: float
) -> list[Any]:
    """Put all workers to sleep, or none. As `MultiprocExecutor.sleep`."""
    board, deadline = ask.board, time.monotonic() + timeout
    with board.changed:
        was_asleep, board.asleep = board.asleep, True
    try:
        if not board.wait_for(lambda: not board.dispatcher.load()[0], timeout):
            board.check_open()
            raise DrainTimeoutError(
                f"requests still waited for a worker after {timeout} s: none sleeps\n"
                f"{ask.describe()}"
            )
        left = max(0.0, deadline - time.monotonic())
        results = call_all(ask, "sleep", args, kwargs, timeout=left)
    except BaseException as error:
        with board.changed:
            board.asleep = was_asleep
        if not was_asleep:
            _wake_others(ask, getattr(error, "rank_errors", {}))
        raise
    log_event(logger, "engine_asleep", workers=len(results))
    return results


def _wake_others(ask: Asking, failed: Mapping[int, BaseException]) -> None:
    """Wake the workers that went to sleep although others did not."""
    sleeping = [rank for rank in ask.ranks() if rank not in failed]
    if not failed or not sleeping:
        return
    try:
        call_all(ask, "wake_up", timeout=_WAKE_S, ranks=sleeping)
    except Exception:
        logger.exception("workers %s sleep, others do not, and they cannot be woken", sleeping)


def wake_up(
    ask: Asking, args: Sequence[Any], kwargs: Mapping[str, Any], timeout: float
) -> list[Any]:
    """Wake all workers. As `MultiprocExecutor.wake_up`."""
    results = call_all(ask, "wake_up", args, kwargs, timeout=timeout)
    with ask.board.changed:
        ask.board.asleep = False
    log_event(logger, "engine_awake", workers=len(results))
    return results
