"""What a recorder writes of an executor of this process, on a CPU and on a simulated device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_platforms import AsyncOutputExecutor
from omni_platforms.observe.recorder import Recorder, device_spans
from omni_platforms.observe.ring import Ring
from omni_platforms.observe.sink import Record
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.simulator import Simulation
from tests.observe.listener import listening

PATIENCE = 30.0


def events_in(folder: Path) -> list[Any]:
    (path,) = folder.glob("*.ring")
    return list(Ring(path).events())


def raised(future: Any) -> str:
    with pytest.raises(ValueError, match="no") as caught:
        future.result(PATIENCE)
    return str(caught.value)


def test_a_process_that_does_nothing_leaves_no_file(tmp_path: Path) -> None:
    with listening(Recorder(tmp_path)), AsyncOutputExecutor(CpuPlatform()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_errors_of_steps_are_written_and_go_on(tmp_path: Path) -> None:
    def fail(value: Any) -> Any:
        raise ValueError("no")

    recorder = Recorder(tmp_path)
    with listening(recorder), AsyncOutputExecutor(CpuPlatform()) as outputs:
        future = outputs.submit(torch.ones(4), on_host=fail)
        assert raised(future) == "no"
    steps = {event[3]: event[6] for event in events_in(tmp_path)}
    assert steps == {
        "submit": {},
        "on_host": {"error": "ValueError"},
        "result": {"error": "ValueError"},
    }


def test_a_closed_recorder_writes_no_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with listening(recorder), AsyncOutputExecutor(CpuPlatform()) as outputs:
        outputs.submit(torch.ones(4)).result(PATIENCE)
        recorder.close()
        outputs.submit(torch.ones(4)).result(PATIENCE)
    assert len(events_in(tmp_path)) == 2


def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with recorder.step("submit", "here"):
        pass
    child = os.fork()
    if not child:
        with recorder.step("submit", "there"):
            pass
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    rings = [Ring(path) for path in tmp_path.glob("*.ring")]
    written = {ring.about["pid"]: [event[2] for event in ring.events()] for ring in rings}
    assert written == {os.getpid(): ["submit here"], child: ["submit there"]}


def test_large_and_small_outputs_of_a_simulated_device(sim: Simulation, tmp_path: Path) -> None:
    with listening(Recorder(tmp_path)), AsyncOutputExecutor(sim.platform) as outputs:
        device = outputs.device
        large = torch.ones(100_000, device=device)
        small = torch.ones(10, device=device)
        for output in (large, small, large):
            outputs.submit(output, on_host=lambda value: value).result(PATIENCE)
    copies = [event for event in events_in(tmp_path) if event[1][0] == "d"]
    assert [event[1][1] for event in copies] == [
        f"side stream of {device}",
        f"caller's stream of {device}",
        f"side stream of {device}",
    ]
    assert [event[6]["bytes"] for event in copies] == [400_000, 40, 400_000]
    assert {event[6]["clock"] for event in copies} == {"host"}


def test_times_of_the_device_go_before_those_of_the_host() -> None:
    record = Record("work", "r1", "worker 0", "npu:0")
    record.moments = {"queue": 0.0, "compute": 1.0, "room": 1.1, "copy": 5.0, "send": 6.0}
    lanes = ("forward on npu:0", "forward"), ("side stream of npu:0", "copy")
    assert device_spans(record) == {lanes[0]: (1.0, 5.0, "host"), lanes[1]: (5.0, 6.0, "host")}
    record.spans = {"forward": (1.5, 4.0), "copy": (4.0, 4.5)}
    assert device_spans(record) == {lanes[0]: (1.5, 4.0, "device"), lanes[1]: (4.0, 4.5, "device")}
    record.facts["blocking"] = True
    assert device_spans(record) == {}


def test_an_output_that_failed_before_its_copy_has_no_lane() -> None:
    record = Record("work", "r1", "worker 0", "npu:0", moments={"queue": 0.0, "compute": 1.0})
    assert device_spans(record) == {}
    assert device_spans(Record("request", "r1", "engine 0")) == {}
