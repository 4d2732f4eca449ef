"""Notes each row of a run as it is made, so that a run which dies still has a report.

A vendor's stack may end the process (a segmentation fault, an abort) or hang it.
`run.py` loads this pytest plugin with `-p` and names the file with
`--omni-journal`: one JSON object a line. `recovery.py` makes the report of it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from omni_platforms.conformance.plugin import session_of
from omni_platforms.conformance.session import ConformanceSession, blank_row, row_id


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--omni-journal", metavar="FILE", help="note each result there at once")


@pytest.hookimpl(trylast=True)  # after the plugin of the suite, which makes the session
def pytest_configure(config: pytest.Config) -> None:
    """Start the journal, where a file is named."""
    file = config.getoption("--omni-journal")
    if file is not None:
        config.pluginmanager.register(Journal(Path(file), session_of(config)))


class Journal:
    """A pytest plugin object: writes what will run, what runs, and what has run."""

    def __init__(self, file: Path, session: ConformanceSession) -> None:
        self._file = file
        self._session = session
        self._written = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the report as it is before anything has run, with a blocked row a test."""
        rows = [blank_row(item, self._session.subject.mode) for item in session.items]
        self._write("report", replace(self._session.report(), rows=rows).to_json())

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Write which test begins; the answer `None` leaves running it to pytest."""
        self._write("running", row_id(item))

    def pytest_runtest_logfinish(self) -> None:
        """Write the rows that were made since."""
        for row in self._session.rows[self._written :]:
            self._write("row", row.to_json())
        self._written = len(self._session.rows)

    def _write(self, kind: str, value: object) -> None:
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({kind: value}) + "\n")
