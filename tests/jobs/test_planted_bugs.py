"""Each protection is removed once, and the test that stands for it must turn red."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from omni_platforms.jobs import leaves, requests
from omni_platforms.jobs.results import ResultFolder
from omni_platforms.jobs.runner import Runner
from omni_platforms.jobs.saving import OutputSaver
from tests.jobs import test_requests, test_results, test_runner, test_saving


class Bug(NamedTuple):
    """A line of a function, what it becomes, and the test that must see it."""

    owner: Any
    name: str
    line: str
    becomes: str
    test: Callable[..., None]


BUGS = {
    "outputs are kept while later ones come": Bug(
        Runner,
        "_save_output",
        "running.output = running.computed",
        "self.__dict__.setdefault('kept', []).append(output)",
        test_runner.test_it_keeps_no_output,
    ),
    "an output that is being saved does not count": Bug(
        Runner,
        "_output_is_here",
        "self._saving[saving] = running",
        "self._saving[saving] = running; self._running.discard(running)",
        test_runner.test_an_output_that_is_being_saved_counts_as_in_flight,
    ),
    "the executor's end is taken for the request's failure": Bug(
        Runner,
        "_is_executors",
        "return same or isinstance(error, _NOT_ITS_FAULT)",
        "return False",
        test_runner.test_a_worker_that_dies_ends_the_run_and_what_came_before_is_kept,
    ),
    "a stop goes on to submit": Bug(
        Runner,
        "_begin_to_stop",
        "self.stopping = True",
        "pass",
        test_runner.test_a_stop_submits_nothing_more_and_gives_the_grace,
    ),
    "savers are left behind": Bug(
        Runner,
        "run",
        "self._savers.shutdown()",
        "pass",
        test_runner.test_every_request_ends_once,
    ),
    "a line follows one that was cut short": Bug(
        ResultFolder,
        "_write",
        'line = b"\\n" + line',
        "pass",
        lambda tmp_path: (
            test_results.test_a_line_that_was_cut_short_spoils_neither_what_is_before_nor_behind(
                tmp_path
            )
        ),
    ),
    "a file has its name before it is whole": Bug(
        leaves,
        "_write_whole",
        'part = path.with_name(f".{path.name}.part")',
        "part = path",
        lambda tmp_path, monkeypatch: test_saving.test_a_file_has_its_name_only_when_it_is_whole(
            _saver(tmp_path), tmp_path, monkeypatch
        ),
    ),
    "a view brings its storage": Bug(
        leaves,
        "_alone",
        "return tensor.detach().clone()",
        "return tensor",
        lambda tmp_path: test_saving.test_a_small_view_does_not_bring_its_storage(
            _saver(tmp_path), tmp_path
        ),
    ),
    "what is no object is taken for a request": Bug(
        requests,
        "_request",
        "if not isinstance(value, dict):",
        "if False:",
        lambda: test_requests.test_a_bad_line_costs_only_itself("[1]", "list"),
    ),
    "an output that does not come is waited for without an end": Bug(
        Runner,
        "_give_up_overdue",
        "running.output.cancel()",
        "raise AssertionError('it would wait on')",
        test_runner.test_an_output_that_does_not_come_fails_its_request,
    ),
}


def _saver(folder: Path) -> OutputSaver:
    (folder / "outputs").mkdir()
    return OutputSaver(folder / "outputs", {"r": "r"})


def plant(monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    """Put the function into its place again, with another line."""
    source = textwrap.dedent(inspect.getsource(getattr(bug.owner, bug.name)))
    assert source.count(bug.line) == 1, f"{bug.name} has no line {bug.line!r} any more"
    module = sys.modules[getattr(bug.owner, "__module__", bug.owner.__name__)]
    namespace = vars(module) if bug.owner is module else dict(vars(module))
    before = namespace.get(bug.name)
    exec(
        compile(
            "from __future__ import annotations\n" + source.replace(bug.line, bug.becomes),
            bug.name,
            "exec",
        ),
        namespace,
    )
    planted = namespace[bug.name]
    if before is not None:
        namespace[bug.name] = before
    monkeypatch.setattr(bug.owner, bug.name, planted)


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_seen(bug: Bug, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    possible = {"monkeypatch": monkeypatch, "tmp_path": tmp_path}
    wanted = inspect.signature(bug.test).parameters
    arguments = {name: value for name, value in possible.items() if name in wanted}
    plant(monkeypatch, bug)
    with pytest.raises((AssertionError, ValueError, AttributeError)):
        bug.test(**arguments)
