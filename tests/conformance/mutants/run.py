"""Runs the suite on every mutant of one target, and prints which tests caught it, as JSON.

`python -m tests.conformance.mutants.run TARGET [--all] [NAME...]`: one process can simulate
one device. Without `--all`, only the test that is named for a mutant runs on it; with
names, only these mutants are run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.conformance import suite
from omni_platforms.conformance.record import FAILURES, Row
from tests.conformance import inline
from tests.conformance.mutants.catalogue import MUTANTS, suite_tests
from tests.conformance.mutants.mutant import Mutant, Place
from tests.conformance.mutants.plugins import RIGHT, planted

# They start processes of their own, which no mutant of this process reaches.
_NEVER = [
    "test_two_ranks_on_two_devices_reduce_and_gather",
    "test_outputs_of_a_worker_process_arrive",
]
_PROBE = "test_t0_probe.py"


def run_suite(name: str, files: list[str], only: str | None, fork: bool) -> list[Row]:
    """Run the suite, or one test of it, on the platform `name` in this process."""
    unwanted = _NEVER if fork else [*_NEVER, "test_a_fork_after"]
    wanted = "not (" + " or ".join(unwanted) + ")" if only is None else only
    run = inline.run_suite("--omni-keep-going", "-k", wanted, files=tuple(files), name=name)
    return [] if run.report is None else list(run.report.rows)


def caught(rows: list[Row]) -> list[str]:
    """Return the names of the test functions that failed."""
    return sorted(
        {row.id.partition("::")[2].partition("[")[0] for row in rows if row.outcome in FAILURES}
    )


def results(target: str, whole: bool, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for no mutant and for each, how many rows there were and which tests failed.

    Each in a forked process, so that what a mutant leaves behind is blamed on no other.
    """
    _import_everything()
    yield "", _in_fork(lambda: _run(target, None, whole=True))
    mine = [mutant for mutant in MUTANTS if mutant.target == target]
    for mutant in [mutant for mutant in mine if not names or mutant.name in names]:
        yield mutant.name, _in_fork(lambda mutant=mutant: _run(target, mutant, whole))  # type: ignore[misc]


def _import_everything() -> None:
    """Import what every run needs, but start no simulated device: a used one cannot be forked."""
    for name in suite_tests().values():
        importlib.import_module(f"{suite.__name__}.{name.removesuffix('.py')}")
    # The first operator on a device without kernels imports a good part of torch.
    assert torch.ones(4, device="meta").mul_(2).eq(7).sum().add(1).clone().device.type == "meta"
    # Half of what a failing test costs is its traceback, which nobody reads here.
    mock.patch.object(pytest.ExceptionInfo, "getrepr", lambda self, **_: str(self.value)).start()
    torch.set_num_threads(1)  # the threads of a pool would not be there after a fork
    gc.freeze()


def _in_fork(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writer, "w") as stream:
            stream.write(json.dumps(call()))
        os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a run ended with {os.waitstatus_to_exitcode(status)}")
    found: dict[str, Any] = json.loads(text)
    return found


def _run(target: str, mutant: Mutant | None, whole: bool) -> dict[str, Any]:
    files = suite_tests()
    probing = target == "plugin"
    mine = [_PROBE] if probing else sorted(set(files.values()) - {_PROBE})
    name = inline.NAME if probing else target
    place = None if probing else _place(target)
    if mutant is None:
        with planted(RIGHT)(place) if probing else contextlib.nullcontext():  # type: ignore[arg-type]
            return _summary(run_suite(name, mine, None, fork=True))
    only = None if whole else mutant.caught_by
    needed = mine if whole else [files[mutant.caught_by]]
    with mutant.plant(place):  # type: ignore[arg-type]
        return _summary(run_suite(name, needed, only, fork="fork" in mutant.caught_by))


def _summary(rows: list[Row]) -> dict[str, Any]:
    failed = [f"{row.id}: {row.reason}" for row in rows if row.outcome in FAILURES]
    return {"rows": len(rows), "caught": caught(rows), "failed": failed}


def _place(target: str) -> Any:
    from omni_platforms.conformance.subject import find_subject

    subject = find_subject(target)
    platform = subject.platform
    assert subject.simulation is not None
    return Place(platform, subject.simulation)


if __name__ == "__main__":
    arguments = sys.argv[2:]
    chosen = [argument for argument in arguments if argument != "--all"]
    print(json.dumps(dict(results(sys.argv[1], "--all" in arguments, chosen))))
