"""An executor whose workers have simulated devices with late copies: the bytes are right."""

from __future__ import annotations

import os

import pytest

from omni_platforms import MultiprocExecutor, WorkerStartError
from omni_platforms.errors import CompilerMissingError
from tests.engine.fakes import PATIENCE
from tests.engine.test_executor import MB

ENVIRONMENT = {"OMNI_SIMULATE": "sim", "OMNI_SIMULATE_SCHEDULE": "lazy:0.1"}


@pytest.mark.simulated
def test_outputs_that_are_unpacked_early_are_seen_when_their_bytes_are_there() -> None:
    name = "tests.engine.workers:Worker"
    room = {"arena_cap": 16 * MB, "arena_segment_bytes": 4 * MB, "arena_initial_bytes": 4 * MB}
    try:
        executor = MultiprocExecutor(name, 1, "sim", environment=ENVIRONMENT, **room)
    except WorkerStartError as error:
        if not isinstance(error.__cause__, CompilerMissingError) or os.environ.get("CI"):
            raise
        pytest.skip(f"simulated: {error}")
    with executor:
        assert executor.workers[0].registered, "the device writes shared memory itself"
        futures = [executor.submit(("fill", (n, 20_000 + n))) for n in range(60)]
        for number, future in enumerate(futures):
            done = future.result(PATIENCE)
            output = executor.wait_output_ready(done.async_output_id).result(PATIENCE)
            assert output.device.type == "cpu"
            assert output.eq(number).all()
