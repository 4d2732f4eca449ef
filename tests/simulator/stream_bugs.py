"""Bugs of stream code, each with its right twin: `bug(right=False)` and `bug(right=True)`.

Each raises `Corrupt` when a value is not what the program computes in order.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from contextlib import AbstractContextManager

import torch

from omni_platforms.simulator import installed

D = "sim"
Copy = tuple[torch.Tensor, torch.Event]


class Corrupt(AssertionError):
    """A value is not what the program computes in order."""


def check(got: object, want: object) -> None:
    if got != want:
        raise Corrupt(f"{got} != {want}")


def current(index: int | None = None) -> torch.Stream:
    return torch.accelerator.current_stream(index)


def copy_out(stream: torch.Stream, source: torch.Tensor) -> Copy:
    with stream:
        target = torch.empty(source.shape, pin_memory=True)
        target.copy_(source, non_blocking=True)
        return target, stream.record_event()


def check_steps(copies: list[Copy], factor: float = 1.0) -> None:
    """Each copy must hold the number of its step."""
    for step, (target, done) in enumerate(copies):
        done.synchronize()
        check(target.tolist(), [factor * step] * 4)


def event_of_another_device(right: bool) -> None:
    """The event was recorded on the other device, where nothing was computed."""
    side = torch.Stream(device=D)
    value = torch.full((4,), 1.0, device=D) * 3
    side.wait_event(current(0 if right else 1).record_event())
    target, done = copy_out(side, value)
    value.record_stream(side)
    done.synchronize()
    check(target.tolist(), [3.0] * 4)


def pinned_buffer_back_too_early(right: bool) -> None:
    """A pinned buffer is in its pool again while its write to shared memory is under way."""
    pool = [torch.empty(4, pin_memory=True)]
    shared: list[list[float]] = []
    writes: list[torch.Tensor] = []

    def write() -> None:
        buffer = writes.pop(0)
        shared.append(buffer.tolist())
        if right:
            pool.append(buffer)

    for step in range(3):
        if not pool:
            write()
        buffer = pool.pop()
        buffer.copy_(torch.full((4,), float(step), device=D), non_blocking=True)
        current().record_event().synchronize()
        writes.append(buffer)
        if not right:
            pool.append(buffer)
    while writes:
        write()
    check(shared, [[float(step)] * 4 for step in range(3)])


def replay_overwrites_output(right: bool) -> None:
    """A graph writes the same output at each replay, also while it is still being copied.

    Plain operations on static tensors stand for the graph.
    """
    side = torch.Stream(device=D)
    static_input, static_output = torch.zeros(4, device=D), torch.zeros(4, device=D)
    copies: list[Copy] = []
    for step in range(3):
        static_input.fill_(step)
        torch.mul(static_input, 2, out=static_output)
        output = static_output.clone() if right else static_output
        side.wait_event(current().record_event())
        copies.append(copy_out(side, output))
        output.record_stream(side)
    check_steps(copies, factor=2.0)


def two_threads_in_one_stream(right: bool) -> None:
    """`with stream` restores the other thread's stream, so the event is on the wrong one."""
    shared, own, side = (torch.Stream(device=D) for _ in range(3))
    both_inside = threading.Barrier(2, timeout=10)
    first_left = threading.Event()
    copies: list[Copy] = []

    def enter() -> AbstractContextManager[object]:
        return installed().module.stream(shared) if right else shared

    def first() -> None:
        torch.accelerator.set_stream(own)
        with enter():
            both_inside.wait()  # the second thread enters between these
            both_inside.wait()
        first_left.set()
        value = torch.full((4,), 1.0, device=D) * 3
        side.wait_event(own.record_event())
        copies.append(copy_out(side, value))
        value.record_stream(side)

    thread = threading.Thread(target=first)
    thread.start()
    both_inside.wait()
    with contextlib.suppress(RuntimeError), enter():
        both_inside.wait()
        first_left.wait(10)
    thread.join(10)
    target, done = copies[0]
    done.synchronize()
    check(target.tolist(), [3.0] * 4)


def native_event_for_generic_stream(right: bool) -> None:
    """torch's stream takes the vendor's event and does not wait for it."""
    side = torch.Stream(device=D)
    value = torch.full((4,), 1.0, device=D) * 3
    ready = torch.Event(device=D) if right else installed().module.Event()
    ready.record()
    side.wait_event(ready)
    target, done = copy_out(side, value)
    value.record_stream(side)
    done.synchronize()
    check(target.tolist(), [3.0] * 4)


def drain_returns_early(right: bool) -> None:
    """The drain forgets the copy that was issued last, and the weights are swapped under it."""
    side = torch.Stream(device=D)
    weights = torch.full((4,), 5.0, device=D)
    copies: list[Copy] = []
    for _ in range(2):
        side.wait_event(current().record_event())
        copies.append(copy_out(side, weights))
    for _, done in copies if right else copies[:-1]:
        done.synchronize()
    weights.fill_(9)
    torch.accelerator.synchronize()
    check([target.tolist() for target, _ in copies], [[5.0] * 4] * 2)


def no_record_stream_between_sides(right: bool) -> None:
    """Memory of one side stream is freed while another one reads it."""
    producer, consumer = torch.Stream(device=D), torch.Stream(device=D)
    with producer:
        value = torch.full((128,), 3.0, device=D)
    consumer.wait_event(producer.record_event())
    target, done = copy_out(consumer, value)
    if right:
        value.record_stream(consumer)
    del value
    with producer:
        other = torch.full((128,), 9.0, device=D)
    done.synchronize()
    producer.synchronize()
    check((target[0].item(), other[0].item()), (3.0, 9.0))


def freed_by_another_thread(right: bool) -> None:
    """A thread lets the source go once it is computed, not once it is copied."""
    side = torch.Stream(device=D)
    held: queue.Queue[tuple[list[torch.Tensor], torch.Event]] = queue.Queue()

    def let_go() -> None:
        tensors, event = held.get()
        event.synchronize()
        tensors.clear()

    thread = threading.Thread(target=let_go)
    thread.start()
    value = torch.full((4,), 1.0, device=D) * 3
    ready = current().record_event()
    side.wait_event(ready)
    target, done = copy_out(side, value)
    held.put(([value], done if right else ready))
    del value
    thread.join(10)
    other = torch.full((4,), 9.0, device=D)
    done.synchronize()
    check((target[0].item(), other[0].item()), (3.0, 9.0))


def wait_on_the_wrong_side_stream(right: bool) -> None:
    """Of two side streams the one waits that has nothing to wait for."""
    upload, download = torch.Stream(device=D), torch.Stream(device=D)
    value = torch.full((4,), 1.0, device=D) * 3
    (download if right else upload).wait_event(current().record_event())
    target, done = copy_out(download, value)
    value.record_stream(download)
    done.synchronize()
    check(target.tolist(), [3.0] * 4)


def one_buffer_too_few(right: bool) -> None:
    """Three steps may be in flight, and there are buffers for two."""
    side = torch.Stream(device=D)
    buffers = [torch.zeros(4, device=D) for _ in range(3 if right else 2)]
    copies: list[Copy] = []
    for step in range(6):
        if step >= 3:
            current().wait_event(copies[step - 3][1])
        buffer = buffers[step % len(buffers)]
        buffer.fill_(step)
        side.wait_event(current().record_event())
        copies.append(copy_out(side, buffer))
    check_steps(copies)


def staging_refilled_between_steps(right: bool) -> None:
    """The event that guards a staging buffer is recorded before the upload from it."""
    staging = [torch.empty(4, pin_memory=True) for _ in range(2)]
    guards = [torch.Event(device=D) for _ in staging]
    values = []
    for step in range(4):
        guards[step % 2].synchronize()
        staging[step % 2].fill_(step)
        if not right:
            guards[step % 2].record()
        values.append(staging[step % 2].to(D, non_blocking=True))
        if right:
            guards[step % 2].record()
    for step, value in enumerate(values):
        check(value.cpu().tolist(), [float(step)] * 4)


def wait_before_record(right: bool) -> None:
    """The wait comes before this step's record, so that it is for the last step's."""
    side, ready = torch.Stream(device=D), torch.Event(device=D)
    copies: list[Copy] = []
    for step in range(3):
        value = torch.full((4,), float(step), device=D) * 2
        if right:
            ready.record()
        side.wait_event(ready)
        if not right:
            ready.record()
        copies.append(copy_out(side, value))
        value.record_stream(side)
    check_steps(copies, factor=2.0)


def bystander_waits(right: bool) -> None:
    """A third stream waits for the producer as it should, which must not hide the missing wait."""
    producer, bystander, reader = (torch.Stream(device=D) for _ in range(3))
    with producer:
        value = torch.full((4,), 1.0, device=D) * 3
    ready = producer.record_event()
    bystander.wait_event(ready)
    with bystander:
        other = value * 2
    if right:
        reader.wait_event(ready)
    target, done = copy_out(reader, value)
    for stream in (bystander, reader):
        value.record_stream(stream)
    bystander.synchronize()
    done.synchronize()
    check(target.tolist(), [3.0] * 4)
    check(other.cpu().tolist(), [6.0] * 4)


BUGS = [
    event_of_another_device,
    pinned_buffer_back_too_early,
    replay_overwrites_output,
    two_threads_in_one_stream,
    native_event_for_generic_stream,
    drain_returns_early,
    no_record_stream_between_sides,
    freed_by_another_thread,
    wait_on_the_wrong_side_stream,
    one_buffer_too_few,
    staging_refilled_between_steps,
    wait_before_record,
    bystander_waits,
]
