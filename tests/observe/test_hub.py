"""Executors are observed from the first sink to the last, and nothing of it is there otherwise."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor
from omni_platforms.observe import around, hub, of_outputs
from omni_platforms.observe.sink import Record, Sink
from omni_platforms.outputs import OutputFuture
from omni_platforms.platform.cpu import CpuPlatform
from tests.observe.listener import Listener, listening

PATIENCE = 30.0


def made() -> AsyncOutputExecutor:
    return AsyncOutputExecutor(CpuPlatform())


def test_an_output_is_told_from_its_begin_to_its_end() -> None:
    heard = Listener()
    with listening(heard), made() as outputs:
        future = outputs.submit(torch.ones(10), on_host=torch.sum)
        assert future.result(PATIENCE) == 10
    (begun,), (ended,) = heard.begun, heard.ended
    assert begun is ended
    assert (ended.kind, ended.error, ended.facts["bytes"]) == ("output", None, 40)
    assert ended.id.endswith(".0")
    moments = ended.moments
    order = [moments[name] for name in ("submitted", "handed_over", "resolved")]
    assert ended.opened <= order[0] <= order[1]
    assert order[0] <= moments["copied"] <= moments["packed"] <= order[2] <= ended.closed
    assert [heard.named(name) for name in ("submit", "on_host", "result")] == [[ended.id]] * 3


def test_errors_and_cancellations_are_ends() -> None:
    heard, go = Listener(), threading.Event()

    def fail(value: Any) -> Any:
        assert go.wait(PATIENCE)
        raise ValueError("no")

    with listening(heard), made() as outputs:
        first = outputs.submit(torch.ones(1), on_host=fail)
        second = outputs.submit(torch.ones(1), on_host=fail)
        assert second.cancel()
        go.set()
        with pytest.raises(ValueError, match="no"):
            first.result(PATIENCE)
    errors = {record.id.partition(".")[2]: record.error for record in heard.ended}
    assert errors == {"0": "ValueError", "1": "cancelled"}


def test_a_refused_submit_is_a_step_without_an_output() -> None:
    heard = Listener()
    with listening(heard):
        outputs = made()
        outputs.close()
        with pytest.raises(RuntimeError):
            outputs.submit(torch.ones(1))
    assert (heard.named("submit"), heard.begun) == ([""], [])


def test_what_lives_already_is_observed_too_and_left_alone_afterwards() -> None:
    heard = Listener()
    with made() as outputs:
        before = dict(vars(outputs))
        with listening(heard):
            observed = outputs.submit(torch.ones(1))
        plain = outputs.submit(torch.ones(1))
        assert observed.result(PATIENCE) == plain.result(PATIENCE) == 1
        assert vars(outputs).keys() == before.keys()
        assert type(plain) is OutputFuture
        assert hub.sinks() == ()
    assert len(heard.begun) == 1


def test_the_last_sink_ends_it_and_no_other() -> None:
    one, other = Listener(), Listener()
    with made() as outputs:
        with listening(one):
            with listening(other):
                outputs.submit(torch.ones(1)).result(PATIENCE)
            outputs.submit(torch.ones(1)).result(PATIENCE)
        hub.remove(one)  # once more: nothing happens
    assert (len(one.ended), len(other.ended)) == (2, 1)


class Broken(Sink):
    def step(self, name: str, subject: str) -> Any:
        return self if name == "submit" else 1 / 0

    def __enter__(self) -> None:
        raise OSError("enter")

    def __exit__(self, *_: object) -> None:
        raise OSError("exit")

    def about(self, subject: str) -> None:
        raise OSError("about")

    def opened(self, record: Record) -> None:
        raise OSError("opened")

    def closed(self, record: Record) -> None:
        raise OSError("closed")


def test_an_observer_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard = Listener()
    hub._failed.clear()
    with listening(Broken(), heard), made() as outputs, caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert outputs.submit(torch.ones(1)).result(PATIENCE) == 1
    assert len(heard.ended) == 3
    assert 5 <= len(caplog.records) <= 7  # each way to fail once


def test_an_observed_executor_goes_when_nobody_holds_it() -> None:
    with listening(Listener()):
        gc.collect()
        gc.disable()
        try:
            outputs = made()
            future = outputs.submit(torch.ones(1))
            assert future.result(PATIENCE) == 1
            gone = weakref.ref(outputs)
            del outputs, future
            assert gone() is None
        finally:
            gc.enable()


# Free when off --------------------------------------------------------------------

UNOBSERVED = """
import sys, threading, torch
from omni_platforms import AsyncOutputExecutor
from omni_platforms.platform.cpu import CpuPlatform
called = []
def note(frame, event, argument):
    if event == "call":
        called.append(frame.f_code.co_filename)
threading.setprofile(note)  # of the threads to come: the executor's
with AsyncOutputExecutor(CpuPlatform()) as outputs:
    assert "submit" not in vars(outputs) and "future_type" not in vars(outputs)
    outputs.submit(torch.ones(1)).result(60)
    called.clear()
    sys.setprofile(note)
    for number in range(20):
        outputs.submit(torch.ones(100)).result(60)
    outputs.submit(torch.ones(100), on_host=torch.sum).result(60)
    sys.setprofile(None)
assert len(called) > 100
print(sum("observe" in name for name in called), "omni_platforms.observe" in sys.modules)
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_an_observer_no_line_of_it_runs() -> None:
    """Counted, not timed: no call of a function of `observers` or `observe` for any output."""
    assert run(UNOBSERVED) == "0 False"


@pytest.mark.slow
def test_twin_an_observed_executor_is_counted() -> None:
    observed = "from omni_platforms.observe import hub, sink; hub.add(sink.Sink())\n"
    begin = "    sys.setprofile(note)"
    program = UNOBSERVED.replace(begin, f"    {observed}{begin}")
    calls, imported = run(program).split()
    assert int(calls) > 20 * 3
    assert imported == "True"


def test_twin_a_step_that_holds_its_object_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def strongly(owner: Any, name: str, step: around.Around) -> None:
        method = getattr(owner, name)
        vars(owner)[name] = lambda *args, **kwargs: step(method, *args, **kwargs)

    monkeypatch.setattr(of_outputs, "put_around", strongly)
    with pytest.raises(AssertionError):
        test_an_observed_executor_goes_when_nobody_holds_it()


def test_twin_a_failing_observer_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_told", lambda tell, *what: tell(*what))
    with pytest.raises((OSError, ZeroDivisionError)), listening(Broken()), made() as outputs:
        outputs.submit(torch.ones(1)).result(PATIENCE)


def test_importing_the_package_imports_nothing_of_it() -> None:
    names = "[m for m in sys.modules if 'observe' in m or m == 'torch']"
    assert run(f"import sys, omni_platforms; print({names})") == "[]"


def test_the_variables_that_start_it_are_settings(tmp_path: Path) -> None:
    import omni_platforms
    from omni_platforms.settings import SETTINGS

    assert set(omni_platforms._OBSERVED_BY) <= SETTINGS.keys()


def test_observers_come_and_go_while_outputs_flow(tmp_path: Path) -> None:
    """Every output arrives, and each that was begun for a listener has its end."""
    heard, over = Listener(), threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            with listening(heard):
                over.wait(0.001)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        with made() as outputs:
            for number in range(1500):
                pack = (lambda value: value) if number % 3 else None
                future = outputs.submit(torch.full((4,), float(number)), on_host=pack)
                assert future.result(PATIENCE)[0] == number
    finally:
        over.set()
        thread.join()
    assert hub.sinks() == ()
    assert 0 < len(heard.begun) <= 1500
    ended = {record.id for record in heard.ended}
    assert len(ended) == len(heard.ended)  # none twice
    assert "submit" not in vars(outputs)
    assert "future_type" not in vars(outputs)
