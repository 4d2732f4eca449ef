"""Rows of the live view: what executors have in hand, and their rates between two looks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omni_platforms.observe.client import Answer

Counts = Mapping[tuple[int, str, int], tuple[float, int, int]]
"""By process, kind and number: the moment, outputs so far, and their bytes."""


@dataclass(frozen=True)
class Row:
    """One executor or worker. Sizes in bytes, `oldest` in seconds, rates a second.

    Rates are `None` at the first look.
    """

    pid: int
    command: str
    kind: str
    """outputs, engine or worker."""
    number: int
    device: str
    state: str
    in_flight: int
    phases: Mapping[str, int] = field(default_factory=dict)
    bytes: int | None = None
    """In flight, of `outputs`; in use of the arena, of a worker that is exposed."""
    capacity: int | None = None
    oldest: float | None = None
    outputs_per_s: float | None = None
    bytes_per_s: float | None = None
    problem: str = ""

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def rows_of(answers: Sequence[Answer], before: Counts) -> tuple[list[Row], Counts]:
    """Return a row for each executor and worker, and what the next look compares with.

    Workers stand below their engine; what an exposed worker says itself is in its row.
    """
    counts: dict[tuple[int, str, int], tuple[float, int, int]] = {}
    workers = {
        (answer.pid, each["rank"]): each
        for answer in answers
        for each in _of_kind(answer, "worker")
    }
    rows: list[Row] = []
    shown: set[int] = set()
    for answer in sorted(answers, key=lambda answer: answer.pid):
        for each in (*_of_kind(answer, "outputs"), *_of_kind(answer, "engine")):
            maker = _Maker(answer, each, before, counts)
            rows.append(maker.outputs() if each["kind"] == "outputs" else maker.engine())
            for known in each["stats"].get("workers", ()):
                shown.add(known["pid"])
                rows.append(maker.worker(known, workers.get((known["pid"], known["rank"]))))
    for answer in answers:
        for each in _of_kind(answer, "worker"):
            if answer.pid not in shown:  # its parent is not exposed
                rows.append(_Maker(answer, each, before, counts).alone())
        if answer.document is None:
            rows.append(Row(answer.pid, "?", "?", 0, "", "?", 0, problem=answer.problem))
            continue
        for each in answer.document["executors"]:
            if "problem" in each:
                who = _command_of(answer.document), each["kind"], each["number"]
                rows.append(Row(answer.pid, *who, "", "?", 0, problem=each["problem"]))
    return rows, counts


def _of_kind(answer: Answer, kind: str) -> Iterator[Mapping[str, Any]]:
    for each in (answer.document or {}).get("executors", ()):
        if each["kind"] == kind and "problem" not in each:
            yield each


class _Maker:
    """Makes the rows of one executor."""

    def __init__(
        self,
        answer: Answer,
        executor: Mapping[str, Any],
        before: Counts,
        counts: dict[tuple[int, str, int], tuple[float, int, int]],
    ) -> None:
        assert answer.document is not None
        self._pid = answer.pid
        self._at = float(answer.document["at"])
        self._command = _command_of(answer.document)
        self._executor = executor
        self._stats: Mapping[str, Any] = executor.get("stats", {})
        self._number = int(executor["number"])
        self._before = before
        self._counts = counts

    def outputs(self) -> Row:
        stats, phases = self._stats, self._executor["phases"]
        return Row(
            **self._who("outputs", self._executor["device"], stats["mode"]),
            in_flight=stats["pending"],
            phases={} if phases is None else phases,
            bytes=stats["pending_bytes"],
            oldest=self._executor["oldest"],
            **self._rates("outputs", self._number, stats["resolved"], stats["bytes_copied"]),
            problem="a graph is being captured" if phases is None else "",
        )

    def engine(self) -> Row:
        stats = self._stats
        received = sum(worker["bytes_received"] for worker in stats["workers"])
        dead = [str(worker["rank"]) for worker in stats["workers"] if not worker["alive"]]
        return Row(
            **self._who("engine", f"{len(stats['workers'])} workers", stats["state"]),
            in_flight=stats["pending"],
            phases=self._executor["phases"],
            oldest=self._executor["oldest"],
            **self._rates("engine", self._number, stats["delivered"], received),
            problem=f"dead: worker {', '.join(dead)}" if dead else "",
        )

    def worker(self, known: Mapping[str, Any], own: Mapping[str, Any] | None) -> Row:
        rank, pid = known["rank"], known["pid"]
        key = self._number * 1024 + rank
        return Row(
            pid=pid,
            command="",
            kind="worker",
            number=rank,
            device=known["device"],
            state="running" if known["alive"] else "dead",
            **self._rates("worker", key, known["outputs"], known["bytes_received"]),
            **({"in_flight": known["requests"]} if own is None else _own(own)),
        )

    def alone(self) -> Row:
        own = self._executor
        return Row(**self._who("worker", own["device"], "running"), **_own(own))

    def _who(self, kind: str, device: str, state: str) -> dict[str, Any]:
        return {
            "pid": self._pid,
            "command": self._command,
            "kind": kind,
            "number": self._number if kind != "worker" else int(self._executor["rank"]),
            "device": device,
            "state": state,
        }

    def _rates(self, kind: str, number: int, outputs: int, nbytes: int) -> dict[str, Any]:
        key = self._pid, kind, number
        self._counts[key] = self._at, outputs, nbytes
        at, had, had_bytes = self._before.get(key, (self._at, 0, 0))
        passed = self._at - at
        if passed <= 0:
            return {}
        return {
            "outputs_per_s": max(0, outputs - had) / passed,
            "bytes_per_s": max(0, nbytes - had_bytes) / passed,
        }


def _command_of(document: Mapping[str, Any]) -> str:
    command = document.get("command") or ["python"]
    return Path(command[0]).name or "python"


def _own(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a worker says of itself."""
    return {
        "in_flight": sum(own["phases"].values()),
        "phases": own["phases"],
        "bytes": own["arena"]["used_bytes"],
        "capacity": own["arena"]["cap"],
        "oldest": own["oldest"],
    }
