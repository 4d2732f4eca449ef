"""All mutants, and the tests of the suite that no mutant needs, each with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

from omni_platforms.conformance import suite
from tests.conformance.mutants import calls, devices, memory, ordering, plugins, vendors
from tests.conformance.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *plugins.MUTANTS,
    *devices.MUTANTS,
    *ordering.MUTANTS,
    *calls.MUTANTS,
    *memory.MUTANTS,
    *vendors.MUTANTS,
]
TARGETS = ("plugin", "sim", "npu")

_WHOLE = (
    "T4 is the whole of what T0 to T3 promise part by part: it is there for faults that nobody has "
    "thought of, and shows that the executors hold what they promise on this platform."
)
# Tests that stay although no mutant would pass their tier without them, and why.
JUSTIFIED: dict[str, str] = {
    "test_the_probe_answers_for_its_name": (
        "On a simulated device discovery asks the simulator; only this test asks the plugin itself."
    ),
    "test_waiting_for_an_event_leaves_the_core_alone": (
        "For hardware: a simulated device computes on the thread that waits."
    ),
    "test_a_blocking_copy_is_done_when_it_returns": (
        "What every platform falls back to; the simulated device has no fault that breaks it."
    ),
    "test_every_bit_survives_the_way_to_the_device_and_back": (
        "For hardware: the simulated device's copies are those of the host."
    ),
    **dict.fromkeys(
        (
            "test_outputs_survive_the_reuse_of_their_memory",
            "test_a_borrowed_buffer_may_be_overwritten_at_once",
            "test_on_device_runs_before_the_copy",
            "test_outputs_are_asynchronous_where_the_platform_can",
            "test_submit_does_not_make_the_host_wait",
            "test_drain_waits_for_the_device",
            "test_a_failing_output_harms_no_other",
            "test_outputs_arrive_in_shared_memory",
            "test_packing_does_not_make_the_host_wait",
        ),
        _WHOLE,
    ),
    "test_the_backend_gathers_tensors_of_the_device": (
        "The one test of collectives that a platform without events runs: the CPU."
    ),
    **dict.fromkeys(
        (
            "test_two_ranks_on_two_devices_reduce_and_gather",
            "test_outputs_of_a_worker_process_arrive",
        ),
        "It runs in processes of its own, which no mutant of this one reaches.",
    ),
    "test_an_executor_of_another_device": "As T4, on a device that is not the current one.",
    "test_submit_during_a_capture_is_refused": "As T4, while a graph is captured.",
    "test_each_replay_gives_its_own_output": "As T4, with a graph that writes the output.",
}


def suite_tests() -> dict[str, str]:
    """Return the file of each test function of the suite."""
    found: dict[str, str] = {}
    for file in sorted(Path(str(suite.__file__)).parent.glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, f"two tests are called {node.name}"
                found[node.name] = file.name
    return found
