"""The ring keeps the last events, whatever becomes of the process that writes it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.observe import ring
from omni_platforms.observe.ring import Ring, RingWriter


def numbers(path: Path) -> list[int]:
    return [event[0] for event in Ring(path).events()]


def test_events_come_back_in_order(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "a.ring", {"pid": 7}, 100)
    for number in range(10):
        writer.write([number, {"x": "é"}])
    read = Ring(tmp_path / "a.ring")
    assert list(read.events()) == [[number, {"x": "é"}] for number in range(10)]
    assert (read.about["pid"], read.lost, read.damaged) == (7, 0, 0)
    assert stat.S_IMODE((tmp_path / "a.ring").stat().st_mode) == 0o600


def test_the_last_events_are_kept_and_the_others_counted(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "a.ring", {}, 8)
    for number in range(20):
        writer.write([number])
    read = Ring(tmp_path / "a.ring")
    assert [event[0] for event in read.events()] == list(range(12, 20))
    assert read.lost == 12
    assert (tmp_path / "a.ring").stat().st_size == 4096 + 8 * ring.SLOT_BYTES


def test_what_is_too_long_loses_its_arguments_only(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "a.ring", {"command": ["x" * 5000]}, 8)
    writer.write(["name", {"text": "x" * 1000}])
    writer.write(["y" * 1000, {}])
    writer.write(["last", {}])
    read = Ring(tmp_path / "a.ring")
    assert list(read.events()) == [["name", {"cut": True}], ["last", {}]]
    assert read.about["pid"] == os.getpid()


def test_threads_do_not_write_over_each_other(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "a.ring", {}, 4000)
    threads = [
        threading.Thread(target=lambda n=n: [writer.write([n * 1000 + k]) for k in range(1000)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(tmp_path / "a.ring")) == list(range(4000))


def test_a_damaged_slot_costs_one_event(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "a.ring", {}, 8)
    for number in range(3):
        writer.write([number])
    data = bytearray((tmp_path / "a.ring").read_bytes())
    data[4096 + ring.SLOT_BYTES + 10] = ord("!")
    (tmp_path / "b.ring").write_bytes(data)
    read = Ring(tmp_path / "b.ring")
    assert [event[0] for event in read.events()] == [0, 2]
    assert read.damaged == 1


@pytest.mark.parametrize("data", [b"", b"x" * 5000, b"OMNIRING1\n"])
def test_another_file_is_no_ring(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.ring").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.ring"):
        Ring(tmp_path / "a.ring")


def test_no_file_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.ring").write_text("mine")
    with pytest.raises(FileExistsError):
        RingWriter(tmp_path / "a.ring", {}, 8)
    (tmp_path / "b.ring").symlink_to(tmp_path / "c")
    with pytest.raises(FileExistsError):
        RingWriter(tmp_path / "b.ring", {}, 8)


KILLED = """
import os, signal, sys
from pathlib import Path
from omni_platforms.observe.ring import RingWriter
writer = RingWriter(Path(sys.argv[1]), {}, 64)
for number in range(50):
    writer.write([number])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_all_that_it_wrote(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a.ring")]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    assert numbers(tmp_path / "a.ring") == list(range(50))


# Planted bugs: without the protection the test above turns red -------------------


def test_twin_a_ring_that_does_not_number_its_events_is_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = ring._SLOT.pack

    class Unnumbered:
        size = ring._SLOT.size
        unpack_from = ring._SLOT.unpack_from

        def pack(self, number: int, length: int) -> Any:
            return pack(1, length)

    monkeypatch.setattr(ring, "_SLOT", Unnumbered())
    with pytest.raises(AssertionError):
        test_the_last_events_are_kept_and_the_others_counted(tmp_path)
