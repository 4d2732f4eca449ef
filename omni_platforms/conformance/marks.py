"""The marks that the tests of the suite carry: tier, capabilities, devices, troubleshooting."""

from __future__ import annotations

import pytest

from omni_platforms.platform.capability import Capability


def tier(name: str) -> pytest.MarkDecorator:
    """Mark a test, or a module's tests, as belonging to a tier such as "T2"."""
    return pytest.mark.omni_tier(name)


def needs(*capabilities: Capability) -> pytest.MarkDecorator:
    """Skip the test unless the platform declares all of `capabilities`."""
    return pytest.mark.omni_needs(*capabilities)


def devices(count: int) -> pytest.MarkDecorator:
    """Skip the test where the platform has fewer than `count` devices."""
    return pytest.mark.omni_devices(count)


def remedy(text: str) -> pytest.MarkDecorator:
    """Say where a failure of the test usually comes from, and what to do about it."""
    return pytest.mark.omni_remedy(text)
