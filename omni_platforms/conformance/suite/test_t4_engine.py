"""T4: outputs of a worker process, through `MultiprocExecutor`."""

from __future__ import annotations

from omni_platforms.conformance import engine_worker
from omni_platforms.conformance.child import child_environment
from omni_platforms.conformance.marks import remedy, tier
from omni_platforms.conformance.rig import DEADLINE_SECONDS
from omni_platforms.conformance.subject import Subject
from omni_platforms.engine import MultiprocExecutor

pytestmark = tier("T4")

_REQUESTS = 6
_SEGMENT_BYTES = 4 << 20
_WORKER = f"{engine_worker.__name__}:{engine_worker.Worker.__name__}"


@remedy("What the worker printed is in the detail of this row; T0 to T3 say more.")
def test_outputs_of_a_worker_process_arrive(subject: Subject) -> None:
    """A worker's outputs arrive whole in the parent, though their memory serves again at once."""
    with MultiprocExecutor(
        _WORKER,
        platform=subject.name,
        environment=child_environment(),
        arena_cap=4 * _SEGMENT_BYTES,
        arena_segment_bytes=_SEGMENT_BYTES,
        output_timeout=DEADLINE_SECONDS,
    ) as executor:
        assert executor.workers[0].platform == subject.name
        jobs = [executor.submit(number) for number in range(_REQUESTS)]
        executor.collective_rpc("reuse", timeout=DEADLINE_SECONDS)
        for number, job in enumerate(jobs):
            got = executor.wait_output_ready(job.async_output_id).result()
            assert got["request"] == number
            assert got["image"].eq(2.0 * number).all(), "an output has another one's bytes"
            assert got["few"].eq(2.0 * number).all()
