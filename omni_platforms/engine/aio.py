"""An executor under asyncio: its threads receive the workers' messages, the loop does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from omni_platforms.engine.previews import Preview

if TYPE_CHECKING:
    from omni_platforms.engine.asking import Asking
    from omni_platforms.engine.future import EngineFuture


@dataclass(frozen=True)
class Output:
    """The output of a request, or its error. `number` counts the requests of `generate_many`."""

    id: str
    value: Any = None
    error: BaseException | None = None
    number: int = 0


Item: TypeAlias = Preview | Output


async def generate(ask: Asking, request: Any) -> Any:
    """As `MultiprocExecutor.generate`."""
    return await _output(ask, ask.submit(request))


async def stream(ask: Asking, request: Any, previews: int) -> AsyncIterator[Item]:
    """As `MultiprocExecutor.stream`."""
    future = ask.submit(request, stepwise=True, previews=previews)
    try:
        if future.previews is not None:
            async for preview in future.previews:
                yield preview
                del preview  # the traceback of a cancelled wait for the next one has this frame
        value = await _output(ask, future)
    finally:
        ask.give_up(future.async_output_id)  # does nothing to what was delivered
    yield Output(future.async_output_id, value)


async def generate_many(ask: Asking, requests: Iterable[Any], ahead: int) -> AsyncIterator[Output]:
    """As `MultiprocExecutor.generate_many`."""
    numbered = enumerate(requests)
    running: set[asyncio.Task[Output]] = set()
    try:
        while True:
            while len(running) < ahead and (entry := next(numbered, None)) is not None:
                running.add(asyncio.ensure_future(_numbered_output(ask, *entry)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            while done:
                yield done.pop().result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _numbered_output(ask: Asking, number: int, request: Any) -> Output:
    future = ask.submit(request)
    try:
        return Output(future.async_output_id, await _output(ask, future), number=number)
    except Exception as error:  # noqa: BLE001  it is this request's, and in its output
        return Output(future.async_output_id, error=error, number=number)


async def _output(ask: Asking, future: EngineFuture) -> Any:
    """Wait for COMPUTE_DONE and the output. Whoever gives up drops it: nobody else has the id."""
    output_id = future.async_output_id
    try:
        await future
        return await ask.wait(output_id)
    finally:
        ask.give_up(output_id)  # does nothing to what was delivered
        del future  # an error's traceback has this frame: it would be a cycle
