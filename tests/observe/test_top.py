"""The rows of the live view, and the table that shows them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from omni_platforms.observe import top
from omni_platforms.observe.client import Answer
from omni_platforms.observe.rows import Row, rows_of
from omni_platforms.observe.top import Looker, show_live, size, table_of


def process(pid: int, at: float, *executors: dict[str, Any], **about: Any) -> Answer:
    document = {"at": at, "command": ["/a/serve.py"], "executors": list(executors), **about}
    return Answer(pid, document)


def outputs(resolved: int, nbytes: int, phases: Any = None, **more: Any) -> dict[str, Any]:
    stats = {"pending": 3, "pending_bytes": 50, "mode": "async", "resolved": resolved}
    return {
        "kind": "outputs",
        "number": 0,
        "device": "npu:0",
        "phases": phases or {"copy": 2, "pack": 1},
        "oldest": 0.5,
        "stats": {**stats, "bytes_copied": nbytes},
        **more,
    }


def engine(delivered: int, *workers: dict[str, Any]) -> dict[str, Any]:
    stats = {"pending": 4, "state": "running", "delivered": delivered, "workers": list(workers)}
    return {"kind": "engine", "number": 0, "phases": {"queued": 4}, "oldest": 1.0, "stats": stats}


def seen_worker(rank: int, pid: int, nbytes: int, alive: bool = True) -> dict[str, Any]:
    known = {"rank": rank, "pid": pid, "device": f"npu:{rank}", "alive": alive, "requests": 2}
    return {**known, "outputs": 10, "bytes_received": nbytes}


def own_words(rank: int) -> dict[str, Any]:
    arena = {"used_bytes": 100, "cap": 1000}
    about = {"kind": "worker", "number": 0, "rank": rank, "device": f"npu:{rank}"}
    return {**about, "phases": {"compute": 1, "copy": 2}, "oldest": 0.1, "arena": arena}


def test_rates_are_of_the_time_between_two_looks_of_that_process() -> None:
    rows, counts = rows_of([process(7, 100.0, outputs(10, 1000))], {})
    assert (rows[0].outputs_per_s, rows[0].bytes_per_s) == (None, None)
    rows, _ = rows_of([process(7, 102.0, outputs(30, 5000))], counts)
    assert (rows[0].outputs_per_s, rows[0].bytes_per_s) == (10.0, 2000.0)
    rows, _ = rows_of([process(8, 102.0, outputs(30, 5000))], counts)  # another process
    assert rows[0].outputs_per_s is None


def test_workers_stand_below_their_engine_with_their_own_words() -> None:
    parent = process(7, 1.0, engine(5, seen_worker(0, 70, 10), seen_worker(1, 71, 20, False)))
    rows, _ = rows_of([process(70, 1.0, own_words(0), parent=7, rank=0), parent], {})
    assert [(row.pid, row.kind, row.number) for row in rows] == [
        (7, "engine", 0),
        (70, "worker", 0),
        (71, "worker", 1),
    ]
    assert rows[0].problem == "dead: worker 1"
    assert (rows[1].in_flight, rows[1].bytes, rows[1].capacity) == (3, 100, 1000)
    assert (rows[2].in_flight, rows[2].phases, rows[2].state) == (2, {}, "dead")


def test_a_worker_whose_parent_is_not_exposed_stands_alone() -> None:
    rows, _ = rows_of([process(70, 1.0, own_words(3), parent=7, rank=3)], {})
    (row,) = rows
    assert (row.pid, row.kind, row.number, row.in_flight) == (70, "worker", 3, 3)


def test_problems_are_shown() -> None:
    capturing = outputs(1, 1)
    capturing["phases"] = None
    rows, _ = rows_of([process(7, 1.0, capturing), Answer(8, problem="no answer within 2 s")], {})
    text = drawn(rows)
    assert "a graph is being captured" in text
    assert "no answer within 2 s" in text


def test_an_executor_that_cannot_be_asked_hides_no_other() -> None:
    broken = {"kind": "worker", "number": 0, "problem": "OSError: no"}
    rows, _ = rows_of([process(7, 1.0, outputs(1, 1), broken)], {})
    assert [(row.kind, row.problem) for row in rows] == [("outputs", ""), ("worker", "OSError: no")]


def drawn(rows: list[Row]) -> str:
    console = Console(file=io.StringIO(), width=150, force_terminal=False)
    console.print(table_of(rows, 1.0))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_table_has_a_line_for_each_row() -> None:
    parent = process(7, 1.0, outputs(5, 12_600_000), engine(5, seen_worker(0, 70, 10)))
    lines = drawn(rows_of([parent], {})[0]).splitlines()
    assert lines[0].startswith("omni-platforms top: 2 processes, every 1 s")
    assert len(lines) == 2 + 3
    assert "serve.py outputs 0" in lines[2]
    assert "copy 2, pack 1" in lines[2]
    assert "OMNI_EXPOSE=1" in drawn([])


def test_the_live_view_looks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[process(7, float(n), outputs(n * 10, n))] for n in range(3)])

    def ask_all(folder: Any, question: Any) -> list[Answer]:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(top, "ask_all", ask_all)
    console = Console(file=io.StringIO(), width=150, height=20, force_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        show_live(Looker(None), 0.05, console)  # type: ignore[arg-type]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "10.0" in text
    assert text.count("serve.py outputs 0") >= 3


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (12_600_000, "12.6 MB"), (5e9, "5.0 GB"), (5e12, "5.0 TB")],
)
def test_sizes(nbytes: float, text: str) -> None:
    assert size(nbytes) == text
