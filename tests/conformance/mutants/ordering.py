"""Mutants of streams and events: what T2 is for, and T5 on several devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from omni_platforms.platform.accelerator import StreamContext
from omni_platforms.platform.interface import OmniPlatform as P
from tests.conformance.mutants.mutant import (
    Mutant,
    Place,
    Plant,
    both,
    faults,
    replacing,
    wrapping,
)

HANDED = "test_a_stream_waits_for_all_that_an_event_covers"
NO_WAIT = "test_a_primitive_does_not_make_the_host_wait"


def native_event(self: Any, stream: Any = None) -> Any:
    """Record the vendor's own event class."""
    event = self._module.Event()
    event.record(stream)
    return event


def _unrecorded(self: P, stream: Any = None) -> Any:
    return torch.Event(self.device_type)


def _native_unrecorded(self: Any, stream: Any = None) -> Any:
    return self._module.Event()


def _of_an_idle_stream(self: P, stream: Any = None) -> Any:
    here = torch.accelerator.current_stream() if stream is None else stream
    return torch.Stream(device=here.device).record_event()


def _blocking(original: Any, self: P, stream: Any = None) -> Any:
    torch.accelerator.synchronize()
    return original(self, stream)


def _of_device_0(original: Any, self: P, stream: Any = None) -> Any:
    return original(self, torch.accelerator.current_stream(0) if stream is None else stream)


def _one_stream() -> Plant:
    made: dict[int, torch.Stream] = {}

    def create(original: Any, self: P, device: Any = None, *, priority: int = 0) -> Any:
        index = self.resolve_device(device).index
        if index not in made:
            made[index] = original(self, device, priority=priority)
        return made[index]

    return wrapping("create_side_stream", create)


def _left_current(original: Any, self: P, device: Any = None, *, priority: int = 0) -> Any:
    stream = original(self, device, priority=priority)
    torch.accelerator.set_stream(stream)
    return stream


def _behind(original: Any, self: P, device: Any = None, *, priority: int = 0) -> Any:
    stream = original(self, device, priority=priority)
    stream.wait_event(torch.accelerator.current_stream(stream.device.index).record_event())
    return stream


def _leaves_its_device(original: Any, self: P, device: Any = None, *, priority: int = 0) -> Any:
    stream = original(self, device, priority=priority)
    torch.accelerator.set_device_index(stream.device.index)
    return stream


def _takes_native_ones(original: Any, self: Any, stream: Any, event: Any) -> None:
    if type(event) is self._module.Event:
        event.wait(stream)
    else:
        original(self, stream, event)


def _on_one_device_only(original: Any, self: P, stream: Any, event: Any) -> None:
    if type(event) is not torch.Event or event.device == stream.device:
        original(self, stream, event)


def _only_checks(original: Any, self: P, stream: Any, event: Any) -> None:
    if type(event) is not torch.Event:
        original(self, stream, event)


@contextlib.contextmanager
def _never_left(original: Any, self: P, stream: Any) -> Iterator[None]:
    if stream is not None:
        torch.accelerator.set_stream(stream)
    yield


@contextlib.contextmanager
def _left_without_exceptions(original: Any, self: P, stream: Any) -> Iterator[None]:
    context = original(self, stream)
    context.__enter__()
    yield
    context.__exit__(None, None, None)


class _KeepsTheDevice(StreamContext):
    """A context that forgets to bring the device back."""

    def __exit__(self, *error: Any) -> None:
        torch.accelerator.set_stream(self._previous)


def _default_stream(original: Any, self: Any, device: Any = None) -> Any:
    return self._module.default_stream(self.resolve_device(device))


def _host_waits(original: Any, self: P, stream: Any, event: Any) -> None:
    original(self, stream, event)
    event.synchronize()


def _waits_for_anything(self: P, stream: Any, event: Any) -> None:
    if isinstance(event, torch.Event):
        stream.wait_event(event)


def _for_ever(original: Any, self: P, event: Any, timeout: Any = None) -> bool:
    return bool(original(self, event, None))


def _by_the_event(self: P, event: Any, timeout: Any = None) -> bool:
    if timeout is None:
        event.synchronize()
    return bool(event.query())


def _stream_of_the_module(place: Place) -> Any:
    return replacing(stream_context=lambda self, stream: self._module.stream(stream))(place)


MUTANTS = [
    Mutant("one-side-stream", "`create_side_stream()` returns the same stream each time",
           "test_side_streams_are_new_and_generic", _one_stream()),
    Mutant("side-stream-left-current", "`create_side_stream()` makes its stream the current one",
           "test_making_a_stream_changes_nothing_else",
           wrapping("create_side_stream", _left_current)),
    Mutant("side-stream-leaves-its-device", "`create_side_stream(device)` makes `device` current",
           "test_making_a_stream_changes_nothing_else",
           wrapping("create_side_stream", _leaves_its_device)),
    Mutant("stream-ignores-its-index", "a new stream is on the current device",
           "test_a_stream_is_on_the_device_asked_for", faults("stream-ignores-index"), "K10"),
    Mutant("stream-of-device-0", "`create_side_stream()` without a device is on device 0",
           "test_a_stream_is_on_the_device_asked_for",
           wrapping("create_side_stream", lambda original, self, device=None, *, priority=0:
                    original(self, device or 0, priority=priority))),
    Mutant("default-stream-for-current", "`current_stream()` is always the default stream",
           "test_current_stream_is_the_threads_own", wrapping("current_stream", _default_stream)),
    Mutant("default-stream-without-a-device", "`current_stream()` without a device is the default",
           "test_current_stream_is_the_threads_own",
           wrapping("current_stream", lambda original, self, device=None:
                    self._module.default_stream() if device is None else original(self, device))),
    Mutant("one-stream-key", "`current_stream_key()` is the same for all streams",
           "test_a_stream_key_names_one_stream",
           replacing(current_stream_key=lambda self, device: 0)),
    Mutant("stream-context-does-nothing", "`stream_context()` does not make the stream current",
           "test_stream_context_makes_the_stream_current",
           replacing(stream_context=lambda self, stream: contextlib.nullcontext())),
    Mutant("stream-context-of-none", "`stream_context(None)` raises",
           "test_stream_context_makes_the_stream_current",
           replacing(stream_context=lambda self, stream: StreamContext(stream))),
    Mutant("stream-context-never-left", "`stream_context()` does not bring the stream back",
           "test_stream_context_makes_the_stream_current", wrapping("stream_context", _never_left)),
    Mutant("stream-context-stuck-by-an-error", "after an exception its stream stays current",
           "test_stream_context_ends_with_an_exception_too",
           wrapping("stream_context", _left_without_exceptions)),
    Mutant("stream-context-keeps-the-device", "`stream_context()` brings back the stream alone",
           "test_stream_context_brings_the_device_back",
           wrapping("stream_context", lambda original, self, stream:
                    original(self, None) if stream is None else _KeepsTheDevice(stream))),
    Mutant("stream-context-on-the-object", "the previous stream is kept on the stream object",
           "test_two_threads_may_be_in_one_stream",
           both(faults("stream-context-on-object"), _stream_of_the_module), "K13"),
    Mutant("native-event", "`record_device_event()` returns the vendor's own event",
           "test_an_event_is_exactly_a_torch_event", replacing(record_device_event=native_event)),
    Mutant("native-event-taken", "and `stream_wait_event()` takes it",
           "test_an_event_is_exactly_a_torch_event",
           both(replacing(record_device_event=native_event),
                wrapping("stream_wait_event", _takes_native_ones))),
    Mutant("native-event-ignored", "and a generic stream ignores it",
           HANDED, both(faults("native-event-ignored"),
                        replacing(record_device_event=native_event)), "K1"),
    Mutant("unrecorded-event", "`record_device_event()` forgets to record the event",
           "test_an_event_is_recorded_on_the_stream_given",
           replacing(record_device_event=_unrecorded)),
    Mutant("wait-before-record", "an event that is recorded too late stops the stream for ever",
           HANDED,
           both(faults("wait-before-record-hangs"),
                replacing(record_device_event=_native_unrecorded,
                          stream_wait_event=lambda self, stream, event: event.wait(stream))),
           "K4"),
    Mutant("event-of-an-idle-stream", "the event is recorded on a stream that has no work",
           HANDED, replacing(record_device_event=_of_an_idle_stream)),
    Mutant("event-on-the-current-stream", "`record_device_event(stream)` ignores `stream`",
           "test_an_event_is_recorded_on_the_stream_given",
           wrapping("record_device_event", lambda original, self, stream=None: original(self))),
    Mutant("event-of-device-0", "`record_device_event()` records on device 0",
           "test_an_event_without_a_stream_is_on_the_current_device",
           wrapping("record_device_event", _of_device_0)),
    Mutant("blocking-record", "`record_device_event()` makes the host wait for the device",
           NO_WAIT, wrapping("record_device_event", _blocking), "K12"),
    Mutant("no-wait-on-the-device", "`stream_wait_event()` does nothing",
           HANDED,
           replacing(stream_wait_event=lambda self, stream, event: None)),
    Mutant("no-wait-after-the-check", "`stream_wait_event()` checks the type and does nothing",
           HANDED, wrapping("stream_wait_event", _only_checks)),
    Mutant("no-wait-across-devices", "`stream_wait_event()` ignores events of other devices",
           "test_an_event_orders_a_stream_of_another_device",
           wrapping("stream_wait_event", _on_one_device_only)),
    Mutant("wait-on-the-host", "`stream_wait_event()` makes the host wait",
           NO_WAIT, wrapping("stream_wait_event", _host_waits), "K12"),
    Mutant("any-event-will-do", "`stream_wait_event()` takes a vendor's event",
           "test_stream_wait_event_refuses_what_torch_would_ignore",
           replacing(stream_wait_event=_waits_for_anything)),
    Mutant("same-stream-wait-raises", "a stream refuses to wait for its own event",
           "test_a_stream_may_wait_for_its_own_event", faults("same-stream-wait-raises"), "K5"),
    Mutant("synchronize-event-at-once", "`synchronize_event()` returns True at once",
           "test_synchronize_event_waits_until_the_event_is_complete",
           replacing(synchronize_event=lambda self, event, timeout=None: True)),
    Mutant("synchronize-event-without-a-limit", "`synchronize_event()` waits only with a timeout",
           "test_synchronize_event_waits_until_the_event_is_complete",
           wrapping("synchronize_event", lambda original, self, event, timeout=None:
                    True if timeout is None else original(self, event, timeout))),
    Mutant("side-stream-behind-the-current-one", "a side stream waits for what the current one has",
           "test_a_copy_on_a_side_stream_overtakes_a_busy_one",
           wrapping("create_side_stream", _behind)),
    Mutant("synchronize-event-for-ever", "`synchronize_event()` ignores its timeout",
           "test_synchronize_event_gives_up_in_time", wrapping("synchronize_event", _for_ever)),
    Mutant("missed-wakeup", "`event.synchronize()` never returns",
           "test_the_events_own_synchronize_returns", faults("missed-wakeup"), "K3"),
    Mutant("missed-wakeup-in-the-platform", "and `synchronize_event()` calls it",
           "test_synchronize_event_waits_until_the_event_is_complete",
           both(faults("missed-wakeup"), replacing(synchronize_event=_by_the_event)), "K3"),
]  # fmt: skip
