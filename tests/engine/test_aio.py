"""An executor under asyncio: outputs, previews, cancellation; and previews for threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from omni_platforms import ChannelClosedError, OutputDroppedError, OutputTimeoutError, Preview
from omni_platforms.engine import Output
from omni_platforms.engine.messages import Drop, Execute, Kind, PreviewTaken
from omni_platforms.engine.payload import Blob
from omni_platforms.engine.previews import Previews
from tests.engine.fakes import PATIENCE, FakeWorker, Pair, executor_of, until

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def serve(worker: FakeWorker) -> None:
    """Be a worker that returns its requests, on a thread of its own, until its end."""

    def work() -> None:
        with contextlib.suppress(ChannelClosedError, OSError):
            while True:
                message = worker.theirs.receive()
                if isinstance(message, Execute):
                    answer(message.id, message.request.load())
                elif isinstance(message, Drop):
                    for name in message.ids:
                        worker.say(Kind.DROPPED, name)

    def answer(name: str, request: Any) -> None:
        worker.computed(name, ValueError("bad") if request == "bad" else None)
        if request != "bad":
            worker.output(name, request)

    threading.Thread(target=work, daemon=True).start()


def preview(worker: FakeWorker, name: str, step: int) -> None:
    worker.say(Kind.PREVIEW, name, step=step, packet=Blob(pickle.dumps(f"step {step}")))


def test_generate(pair: Pair) -> None:
    executor, worker = pair
    serve(worker)

    async def main() -> list[Any]:
        assert await executor.generate("one") == "one"
        with pytest.raises(ValueError, match="bad"):
            await executor.generate("bad")
        done = await executor.submit("two")
        return [done.id, await executor.wait_output_ready(done.async_output_id)]

    assert run(main()) == ["r3", "two"]
    assert not executor.describe_pending_state().outputs


@pytest.mark.parametrize("computed", [False, True])
def test_cancelling_a_task_drops_its_request(pair: Pair, computed: bool) -> None:
    executor, worker = pair

    async def main() -> str:
        task = asyncio.ensure_future(executor.generate("request"))
        await asyncio.sleep(0)
        name = await asyncio.to_thread(worker.begin)
        if computed:
            worker.computed(name)
            while not any(o.awaited for o in executor.describe_pending_state().outputs):
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return name

    name = run(main())
    assert worker.hear(Drop).ids == (name,)
    with pytest.raises(OutputDroppedError):
        executor.wait_output_ready(name)


def test_a_wait_that_takes_too_long_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omni_platforms.engine.asking._ASK_S", 0.01)
    with executor_of(monkeypatch, output_timeout=0.02) as (executor, (worker,)):
        name = executor.submit("request").async_output_id
        worker.begin()
        worker.computed(name)

        async def main() -> None:
            with pytest.raises(OutputTimeoutError, match="OMNI_ASYNC_OUTPUT_TIMEOUT"):
                await executor.wait_output_ready(name)

        run(main())


def test_a_thousand_impatient_waiters_harm_no_pump(pair: Pair) -> None:
    executor, worker = pair
    count = 1000
    serve(worker)

    async def impatient(number: int) -> bool:
        try:
            value = await asyncio.wait_for(executor.generate(number), (1 + number % 5) / 1000)
        except (asyncio.TimeoutError, TimeoutError):
            return False
        assert value == number
        return True

    async def main() -> list[bool]:
        found = []
        for start in range(0, count, 50):
            found += await asyncio.gather(*map(impatient, range(start, start + 50)))
        return found

    served = run(main())
    assert not all(served)
    assert run(executor.generate("afterwards")) == "afterwards"
    assert executor.check_health()
    until(lambda: not executor.describe_pending_state().outputs)
    until(lambda: not executor.describe_pending_state().unacknowledged)


def test_many_requests_and_a_failure_among_them(pair: Pair) -> None:
    executor, worker = pair
    serve(worker)
    pulled: list[int] = []

    def requests() -> Any:
        for number in range(20):
            pulled.append(number)
            yield "bad" if number == 3 else number

    async def main() -> list[Output]:
        found: list[Output] = []
        async for output in executor.generate_many(requests(), ahead=4):
            found.append(output)
            assert len(pulled) <= len(found) + 4, "a slow consumer holds the requests back"
        return found

    outputs = sorted(run(main()), key=lambda output: output.number)
    assert [output.number for output in outputs] == list(range(20))
    assert isinstance(outputs.pop(3).error, ValueError)
    assert all(output.value == output.number for output in outputs)


def test_a_stream_is_previews_and_then_the_output(pair: Pair) -> None:
    executor, worker = pair

    async def main() -> list[Any]:
        items: list[Any] = []
        async for item in executor.stream("request"):
            items.append(item)
            if len(items) == 2:
                worker.computed("r1")
                worker.output("r1", "the end")
        return items

    def work() -> None:
        assert worker.hear(Execute).previews == 2
        for step in (1, 2):
            preview(worker, "r1", step)
            assert worker.hear(PreviewTaken).id == "r1"

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert run(main()) == [
        Preview("r1", 1, "step 1"),
        Preview("r1", 2, "step 2"),
        Output("r1", "the end"),
    ]
    thread.join(PATIENCE)


@pytest.mark.parametrize("computed", [False, True])
def test_a_stream_that_is_left_drops_its_request(pair: Pair, computed: bool) -> None:
    executor, worker = pair

    async def main() -> None:
        stream: Any = executor.stream("request")
        task = asyncio.ensure_future(anext(stream))
        name = await asyncio.to_thread(worker.begin)
        preview(worker, name, 1)
        assert (await task).step == 1
        if computed:
            worker.computed(name)
            while executor._ask.board.previews:
                await asyncio.sleep(0.001)
        await stream.aclose()

    run(main())
    # The pump says that it was taken when whoever took it may already be gone.
    heard = [worker.theirs.receive(PATIENCE) for _ in range(2)]
    assert sorted(heard, key=lambda m: m.kind) == [Drop(("r1",)), PreviewTaken("r1")]


def test_the_error_of_a_cancelled_stream_keeps_no_preview(pair: Pair) -> None:
    """Whoever catches it, a server for one, may keep it; the preview is memory of the worker's."""
    executor, worker = pair
    seen: list[weakref.ref[Preview]] = []

    async def look() -> None:
        stream: Any = executor.stream("request")
        seen.append(weakref.ref(await anext(stream)))
        await anext(stream)  # there is none

    async def main() -> asyncio.CancelledError | None:
        task = asyncio.ensure_future(look())
        await asyncio.to_thread(lambda: preview(worker, worker.begin(), 1))
        while not seen:
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as error:
            return error
        return None

    gc.disable()
    try:
        error = run(main())
        assert error is not None
        assert seen[0]() is None
    finally:
        gc.enable()


# For threads ------------------------------------------------------------------------------------


def test_execute_stepwise_shows_previews_on_the_callers_thread(pair: Pair) -> None:
    executor, worker = pair
    seen: list[Any] = []

    def work() -> None:
        name = worker.begin()
        preview(worker, name, 1)
        worker.hear(PreviewTaken)
        worker.computed(name)

    threading.Thread(target=work, daemon=True).start()
    done = executor.execute_stepwise(
        "request", lambda preview: seen.append((preview.step, threading.current_thread()))
    )
    assert seen == [(1, threading.current_thread())]
    assert done.async_output_id == "r1"


def test_a_callback_that_fails_drops_the_request(pair: Pair) -> None:
    executor, worker = pair

    def work() -> None:
        preview(worker, worker.begin(), 1)

    def fail(preview: Preview) -> None:
        raise ZeroDivisionError

    threading.Thread(target=work, daemon=True).start()
    with pytest.raises(ZeroDivisionError):
        executor.execute_stepwise("request", fail)
    # The pump says that it was taken when whoever took it may already be gone.
    heard = [worker.theirs.receive(PATIENCE) for _ in range(2)]
    assert sorted(heard, key=lambda m: m.kind) == [Drop(("r1",)), PreviewTaken("r1")]


def test_previews_that_nobody_takes_stay_and_end_with_the_request() -> None:
    taken: list[int] = []
    previews = Previews()
    for step in (1, 2):
        previews.put(Preview("r", step, None), lambda s=step: taken.append(s))  # type: ignore[misc]
    assert not taken
    assert next(previews).step == 1
    assert taken == [1]
    previews.end()
    assert [preview.step for preview in previews] == [2]
    assert list(previews) == []


def test_a_taker_that_gave_up_gets_no_preview() -> None:
    previews = Previews()
    previews._take().cancel()
    waiting = previews._take()
    previews.put(Preview("r", 1, None), lambda: None)
    assert waiting.result(PATIENCE) == Preview("r", 1, None)


def test_previews_of_a_dropped_request_are_let_go() -> None:
    previews = Previews()
    previews.put(Preview("r", 1, None), lambda: None)
    previews.end(discard=True)
    assert list(previews) == []
