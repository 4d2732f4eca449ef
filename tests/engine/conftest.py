"""An executor whose worker is a fake, and a check that nothing of real ones stays behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.fakes import Pair, executor_of
from tests.engine.worker.conftest import nothing_stays_behind

__all__ = ["nothing_stays_behind", "pair"]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    with executor_of(monkeypatch) as (executor, workers):
        yield executor, workers[0]
