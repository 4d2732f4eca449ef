"""Outputs across processes: shared memory that the device writes and the consumer reads."""

from __future__ import annotations
