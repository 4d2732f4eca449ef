"""A worker on a simulated device whose copies are as late as they can be: the bytes are right.

The stream of the forward runs at once, that of the copies only when somebody waits
for it: what is given away or overwritten too early, is so before it was copied. One
process for all tests; planted bugs show that wrong bytes would be seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from omni_platforms.engine.messages import Kind
from omni_platforms.errors import (
    CompilerMissingError,
    DrainTimeoutError,
    SimulatedFaultError,
    WorkerStartError,
)
from tests.engine.driver import PATIENCE, Driver, driven

pytestmark = [pytest.mark.xdist_group("engine_worker"), pytest.mark.simulated]

ENVIRONMENT = {"OMNI_SIMULATE": "sim", "OMNI_SIMULATE_SCHEDULE": "lazy:0.1"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Driver]:
    try:
        with driven(
            "Borrowing", platform="sim", environment=ENVIRONMENT, arena_cap=16 << 20
        ) as driver:
            yield driver
    except WorkerStartError as error:
        if not isinstance(error.__cause__, CompilerMissingError) or os.environ.get("CI"):
            raise
        pytest.skip(f"simulated: {error}")


@pytest.fixture
def device(worker: Driver) -> Iterator[Driver]:
    yield worker
    worker.call("plant", "")


def filled(device: Driver, count: int = 12) -> list[torch.Tensor]:
    """Return outputs of requests that were sent all at once."""
    names = [device.send_request(("fill", (i + 1, 20_000 + i))) for i in range(count)]
    outputs = [device.output(name) for name in names]
    device.throw_away()
    return outputs


def wrong(outputs: list[torch.Tensor]) -> list[int]:
    return [i for i, output in enumerate(outputs) if not output.eq(i + 1).all()]


def test_the_bytes_are_right_and_the_main_thread_never_waits(device: Driver) -> None:
    assert device.started.device == "sim:0"
    assert device.started.registered, "the device writes shared memory itself"
    filled(device)
    before = device.call("host_waits")
    for _ in range(3):
        assert wrong(filled(device)) == []
    assert device.call("host_waits") == before


def test_planted_an_output_thread_that_does_not_wait_sends_wrong_bytes(device: Driver) -> None:
    device.call("plant", "no wait for the device")
    assert wrong(filled(device))


def test_compute_is_done_before_the_copy_ends_and_the_output_comes_after(
    device: Driver, tmp_path: Path
) -> None:
    device.call("hold_copies", str(tmp_path / "go"))
    name = device.send_request(("fill", (7, 50_000)))
    assert device.hear(Kind.COMPUTE_DONE, name).error is None
    following = device.send_request("the next forward")
    assert device.hear(Kind.COMPUTE_DONE, following).error is None
    rows = {row["id"]: row["phase"] for row in device.call("omni.describe")}
    assert rows[name] in ("gate", "copy")
    assert device.seen == []
    (tmp_path / "go").touch()
    assert device.output(name).eq(7).all()
    assert device.output(following) == "the next forward"


def test_an_output_is_unpacked_before_its_bytes_are_there(device: Driver, tmp_path: Path) -> None:
    device.call("hold_copies", str(tmp_path / "go"))
    name = device.send_request(("fill", (7, 50_000)))
    deadline = time.monotonic() + PATIENCE
    while name not in device.coming:
        assert time.monotonic() < deadline
        device.call("omni.describe")
    assert device.hear(Kind.COMPUTE_DONE, name).error is None
    assert not device.coming[name].eq(7).all(), "who showed it now would show wrong bytes"
    (tmp_path / "go").touch()
    assert device.output(name).eq(7).all()


def test_a_drop_is_acknowledged_when_the_device_has_finished(
    device: Driver, tmp_path: Path
) -> None:
    before = device.call("device_bytes")
    device.call("hold_copies", str(tmp_path / "go"))
    name = device.send_request(("fill", (7, 50_000)))
    device.hear(Kind.COMPUTE_DONE, name)
    device.await_phase(name, "gate")
    device.drop(name)
    rows = device.call("omni.describe")
    assert [(row["id"], row["dropped"]) for row in rows] == [(name, True)]
    assert device.seen == [], "the copy still reads"
    assert device.call("device_bytes") > before
    (tmp_path / "go").touch()
    device.hear(Kind.DROPPED, name)
    device.await_nothing_left()
    assert device.call("device_bytes") == before, "an idle worker holds nothing of it"


def test_a_kernel_that_fails_costs_its_output_alone(device: Driver) -> None:
    name = device.send_request(("fail_on_device", 9))
    assert device.hear(Kind.COMPUTE_DONE, name).error is None, "nobody could know"
    with pytest.raises(SimulatedFaultError, match=r"embedding|index"):
        device.output(name)
    assert wrong(filled(device)) == []
    assert device.call("sleep", 1) == 1, "nothing of it is under way"
    assert device.call("wake_up") == "awake"


def test_sleep_is_refused_while_a_copy_reads(device: Driver, tmp_path: Path) -> None:
    device.call("hold_copies", str(tmp_path / "go"))
    name = device.send_request(("fill", (7, 50_000)))
    device.hear(Kind.COMPUTE_DONE, name)
    for method in ("sleep", "load"):
        with pytest.raises(DrainTimeoutError, match="must not be released"):
            device.call(method, drain=0.05)
    awake = device.send_request("still awake")
    assert device.hear(Kind.COMPUTE_DONE, awake).error is None
    (tmp_path / "go").touch()
    assert device.call("sleep", 1) == 1
    kinds = [message.kind for message in device.seen]
    assert kinds == [Kind.OUTPUT_READY, Kind.OUTPUT_READY], "the drain came first"
    assert device.output(name).eq(7).all()
    assert device.output(awake) == "still awake"
    assert device.call("wake_up") == "awake"


def test_a_forward_that_never_waits_does_not_run_away_from_its_device(
    device: Driver, tmp_path: Path
) -> None:
    """Four outputs are on their way; the fifth is computed and waits, the sixth is not begun."""
    device.call("hold_copies", str(tmp_path / "go"))
    names = [device.send_request(("fill", (i + 1, 20_000))) for i in range(6)]
    device.hear(Kind.COMPUTE_DONE, names[4])
    phases = []
    while phases != ["gate"] * 4 + ["room", "queue"]:
        phases = [row["phase"] for row in device.call("omni.describe")]
        assert phases[-1] == "queue"
    (tmp_path / "go").touch()
    assert wrong([device.output(name) for name in names]) == []
    device.throw_away()


def stepped(device: Driver, go: Path) -> list[bool]:
    """Run a request in steps that overwrite their tensor; return whether each preview was right."""
    device.call("hold_copies", str(go))
    name = device.send_request({"steps": 4}, stepwise=True, previews=4)
    assert device.hear(Kind.COMPUTE_DONE, name).skipped_previews == 0
    go.touch()
    assert device.output(name).eq(40).all()
    taken = [message for message in device.seen if message.kind is Kind.PREVIEW]
    device.seen.clear()
    assert [message.step for message in taken] == [1, 2, 3, 4]
    return [bool(device.unpack(message).eq(message.step or 0).all()) for message in taken]


def test_previews_are_what_their_step_made(device: Driver, tmp_path: Path) -> None:
    assert all(stepped(device, tmp_path / "go"))


def test_planted_previews_without_a_snapshot_show_a_later_step(
    device: Driver, tmp_path: Path
) -> None:
    device.call("plant", "no snapshots")
    assert stepped(device, tmp_path / "go") == [False] * 4


def borrowed(device: Driver, go: Path) -> list[int]:
    """Run requests that all return one buffer; return which outputs are wrong."""
    device.call("hold_copies", str(go))
    names = [device.send_request(("static", float(i + 1))) for i in range(4)]
    device.hear(Kind.COMPUTE_DONE, names[-1])
    go.touch()
    found = wrong([device.output(name) for name in names])
    device.throw_away()
    return found


def test_a_buffer_that_serves_again_is_borrowed(device: Driver, tmp_path: Path) -> None:
    assert borrowed(device, tmp_path / "go") == []


def test_planted_a_buffer_that_is_not_borrowed_is_overwritten(
    device: Driver, tmp_path: Path
) -> None:
    device.call("plant", "no snapshots")
    assert borrowed(device, tmp_path / "go") == [0, 1, 2]
