"""The tests of the conformance suite, a folder's worth: T0 to T5.

Each test's docstring is the contract that it checks. The oracles are torch's own
generic interface, bytes, and time; never the method under test.
"""

from __future__ import annotations

SUITE_VERSION = "1.0"
"""Raised when tests are added (minor) or change their meaning (major)."""
