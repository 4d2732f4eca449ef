"""One line of the log for each event in an executor's life, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor, WorkerDiedError
from omni_platforms.events import log_event
from omni_platforms.observe import JsonFormatter
from omni_platforms.platform.cpu import CpuPlatform
from tests.engine.conftest import pair
from tests.engine.fakes import PATIENCE, Pair, until

__all__ = ["pair"]


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What the package logs, from INFO, read back from JSON."""
    stream = _Lines()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("omni_platforms")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream.read
    logger.removeHandler(handler)
    logger.setLevel(before)


class _Lines(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.read: list[dict[str, Any]] = []

    def write(self, text: str) -> int:
        if text.strip():
            self.read += [json.loads(line) for line in text.splitlines()]
        return len(text)


def events(lines: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines if "event" in line]


def test_the_life_of_an_executor(lines: list[dict[str, Any]]) -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        for _ in range(3):
            outputs.submit(torch.ones(1), on_host=lambda value: value).result(PATIENCE)
    outputs.close()  # again: no second line
    assert events(lines) == ["executor_started", "executor_closed"]
    assert lines[0]["logger"] == "omni_platforms.outputs.executor"
    assert lines[0]["fields"]["mode"] == "blocking"
    assert lines[0]["pid"] == os.getpid()
    closed = lines[1]["fields"]
    assert (closed["submitted"], closed["resolved"], closed["failed"]) == (3, 3, 0)


def test_the_life_of_an_engine(lines: list[dict[str, Any]], pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("a")
    worker.begin()
    worker.die()
    with pytest.raises(WorkerDiedError):
        future.result(PATIENCE)
    until(lambda: "engine_ended" in events(lines))
    assert events(lines) == ["engine_started", "engine_failed", "worker_ended", "engine_ended"]
    started, failed, gone, ended = (line for line in lines if "event" in line)
    assert (started["fields"]["workers"], started["fields"]["mode"]) == (1, "data_parallel")
    assert (failed["level"], failed["fields"]["type"]) == ("ERROR", "WorkerDiedError")
    assert gone["fields"] == {"rank": 0, "pid": worker.pid, "how": "killed by SIGKILL"}
    assert ended["fields"]["failed"] == 1


def test_text_can_be_taken_apart(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("omni_platforms.test")
    with caplog.at_level(logging.INFO):
        log_event(logger, "came", rank=1, why="two words", empty="", share=0.25, quoted='a"b')
    (record,) = caplog.records
    assert record.getMessage() == "came rank=1 why='two words' empty='' share=0.25 quoted='a\"b'"
    assert record.funcName == "test_text_can_be_taken_apart"


def test_nobody_listens_and_nothing_is_formatted(caplog: pytest.LogCaptureFixture) -> None:
    class Loud:
        def __str__(self) -> str:
            raise AssertionError("it was formatted")

    logger = logging.getLogger("omni_platforms.test")
    with caplog.at_level(logging.WARNING, "omni_platforms"):
        log_event(logger, "came", what=Loud())
    assert caplog.records == []
    with caplog.at_level(logging.INFO, "omni_platforms"), pytest.raises(AssertionError):
        log_event(logger, "came", what=Loud())


def test_an_error_has_its_traceback_in_one_line(lines: list[dict[str, Any]]) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("omni_platforms.test").exception("it\nfailed")
    assert lines[0]["message"] == "it\nfailed"
    assert "ValueError: no" in lines[0]["error"]
    assert "event" not in lines[0]


@pytest.mark.slow
def test_the_variable_turns_it_on_in_this_process_and_in_workers() -> None:
    command = [sys.executable, "-m", "tests.observe.program", "requests"]
    environment = {**os.environ, "OMNI_PLATFORM": "cpu", "OMNI_LOG": "json"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert events(lines) == [
        "platform_selected",
        "worker_started",
        "engine_started",
        "worker_ended",
        "engine_ended",
    ]
    assert len({line["pid"] for line in lines}) == 2
    assert lines[-1]["fields"]["delivered"] == 4
