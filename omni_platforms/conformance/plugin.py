"""The pytest plugin of the conformance suite: its options, and nothing else until they are used.

pytest loads it in every run where omni-platforms is installed (the entry point of
group `pytest11`), so it imports neither torch nor a vendor. `--omni-platform NAME`
brings in the rest: `session.py`, which decides what runs and keeps the rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from omni_platforms.conformance.session import ConformanceSession

NAME = __name__
"""The plugin's name for pytest, the same for `-p` and for the entry point."""

MARKERS = (
    "omni_tier(name): the tier that a test of the conformance suite belongs to",
    "omni_needs(*capabilities): skipped unless the platform declares all of these",
    "omni_devices(count): skipped where the platform has fewer devices",
    "omni_remedy(text): where a failure of this test usually comes from",
)
_SUITE = Path(__file__).parent / "suite"
_session_key = pytest.StashKey["ConformanceSession"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("omni-platforms", "conformance of a platform")
    group.addoption(
        "--omni-platform",
        metavar="NAME",
        help="the platform that `pytest --pyargs omni_platforms.conformance` tests",
    )
    group.addoption(
        "--omni-tier",
        metavar="TIERS",
        help="run only these tiers: T2, or T0,T1,T2, or T0-T3 (default: all)",
    )
    group.addoption(
        "--require-device",
        action="store_true",
        help="let the run fail where the platform has no device",
    )
    group.addoption(
        "--omni-report",
        metavar="FOLDER",
        help="write the report in all its forms to this folder",
    )
    group.addoption(
        "--omni-keep-going",
        action="store_true",
        help="run later tiers also when an earlier one failed",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and, where a platform is named, the rest of the plugin."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    name = config.getoption("--omni-platform")
    if name is None or hasattr(config, "workerinput"):
        return
    if config.getoption("numprocesses", None):
        raise pytest.UsageError(
            "the conformance suite tests one device in one process: leave out -n"
        )
    from omni_platforms.conformance.session import ConformanceSession

    session = ConformanceSession.from_options(config)
    config.stash[_session_key] = session
    config.pluginmanager.register(session, "omni-conformance-session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run tests of the suite while nobody has said for which platform."""
    if _session_key not in config.stash and any(_SUITE in item.path.parents for item in items):
        raise pytest.UsageError(
            "these are tests of the conformance suite: name the platform, --omni-platform NAME"
        )


def session_of(config: pytest.Config) -> ConformanceSession:
    """Return the state of this run of the suite. Raises `KeyError` outside of one."""
    return config.stash[_session_key]
