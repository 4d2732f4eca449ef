"""Waits of `MultiprocExecutor` that give something up: for COMPUTE_DONE, for a drop."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

from omni_platforms.engine.asking import Asking
from omni_platforms.engine.future import EngineFuture
from omni_platforms.engine.previews import Preview
from omni_platforms.errors import OutputTimeoutError


def wait_computed(ask: Asking, future: EngineFuture, timeout: float | None) -> Any:
    """Wait for COMPUTE_DONE. Who gives up never learns the id: nobody could use the output."""
    output_id = future.async_output_id
    try:
        return future.result(timeout)
    except BaseException:
        ask.give_up(output_id)
        raise
    finally:
        del future  # the error's traceback has this frame: it would be a cycle


def show_previews(
    ask: Asking, future: EngineFuture, on_preview: Callable[[Preview], object]
) -> None:
    """Call back for each preview until there are no more; drop the request if that fails."""
    try:
        for preview in future.previews or ():
            on_preview(preview)
    except BaseException:
        ask.give_up(future.async_output_id)
        raise


def drop_and_wait(ask: Asking, any_id: str, timeout: float) -> bool:
    """Drop, and wait for the acknowledgement. As `MultiprocExecutor.drop_output`."""
    acknowledged = ask.drop(any_id)
    if acknowledged is None:
        return False
    if not acknowledged.done():
        ask.check_may_wait()
    try:
        acknowledged.result(timeout)
    except concurrent.futures.TimeoutError:
        raise OutputTimeoutError(
            f"no worker acknowledged within {timeout} s that {any_id!r} is dropped: its memory may "
            "still be in use. Wait longer where forwards take longer.\n"
            f"{ask.describe(ask.ask_workers(1.0))}"
        ) from None
    finally:
        del acknowledged
    return True
