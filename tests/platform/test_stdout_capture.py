"""One thread's prints are kept; nobody else loses a character."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from omni_platforms.platform.deadline import run_with_deadline
from omni_platforms.platform.stdout_capture import capture_stdout


def test_other_threads_prints_all_arrive_while_one_thread_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = io.StringIO()
    monkeypatch.setattr(sys, "stdout", real)
    stop = threading.Event()
    printed = [0] * 4

    def chatter(number: int) -> None:
        while not stop.is_set():
            sys.stdout.write(f"<{number}>")
            printed[number] += 1

    threads = [threading.Thread(target=chatter, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    outcomes = [run_with_deadline(lambda: print("secret"), 10, "helper") for _ in range(50)]
    stop.set()
    for thread in threads:
        thread.join()
    assert [outcome.printed for outcome in outcomes] == ["secret\n"] * 50
    assert "secret" not in real.getvalue()
    assert [real.getvalue().count(f"<{n}>") for n in range(4)] == printed
    assert sys.stdout is real


def test_bytes_and_partial_lines_are_kept_too() -> None:
    def speak() -> None:
        sys.stdout.buffer.write(b"raw ")
        sys.stdout.write("half")

    assert run_with_deadline(speak, 10, "helper").printed == "raw half"


def test_who_replaced_stdout_in_between_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, later = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", real)
    with capture_stdout() as capture:
        capture.keep_this_thread()
        monkeypatch.setattr(sys, "stdout", later)
    assert sys.stdout is later
    print("through", file=capture)  # type: ignore[call-overload]
    assert real.getvalue() == "through\n"


def test_a_process_without_stdout_is_left_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run_with_deadline(lambda: 7, 10, "helper").value == 7
    assert sys.stdout is None


def test_an_abandoned_call_changes_nothing_later() -> None:
    release, ended = threading.Event(), threading.Event()

    def slow() -> int:
        release.wait(30)
        try:
            return 7
        finally:
            ended.set()

    outcome = run_with_deadline(slow, 0.05, "helper")
    release.set()
    assert ended.wait(30)
    assert (outcome.finished, outcome.value) == (False, None)
