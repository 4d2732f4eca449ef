"""What the tests of the suite ask for: the plugin, the platform, the rig."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omni_platforms.conformance.plugin import session_of
from omni_platforms.conformance.rig import Rig
from omni_platforms.conformance.subject import Subject
from omni_platforms.platform.interface import OmniPlatform


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """The platform under test with its plugin, whether or not there is a device."""
    return session_of(request.config).subject


@pytest.fixture(scope="session")
def require_device(request: pytest.FixtureRequest) -> bool:
    """Whether a missing device is a failure."""
    return session_of(request.config).require_device


@pytest.fixture(scope="session")
def platform(subject: Subject) -> OmniPlatform:
    """The platform object; without a device there is none to test."""
    if not subject.available:
        pytest.skip(f"no device: {subject.report.reason}")
    return subject.platform


@pytest.fixture(scope="session")
def _session_rig(platform: OmniPlatform, subject: Subject) -> Rig:
    return Rig(platform, subject.simulation)


@pytest.fixture
def rig(_session_rig: Rig) -> Iterator[Rig]:
    """The rig, with idle devices, device 0 and its first stream current."""
    _session_rig.begin()
    yield _session_rig
    _session_rig.begin()


@pytest.fixture
def accelerator(rig: Rig) -> Rig:
    """The rig of a platform whose tensors are not on the host."""
    if rig.on_cpu:
        pytest.skip("its device is the host itself")
    return rig
