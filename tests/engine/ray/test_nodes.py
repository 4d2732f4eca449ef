"""Workers on several nodes: real raylets on loopback addresses, killed and added."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from omni_platforms import ClusterError, WorkerDiedError, WorkerStartError
from omni_platforms.engine.ray import RayExecutor
from omni_platforms.shm.lease import open_leases
from tests.engine.backends import RAY
from tests.engine.fakes import until
from tests.engine.test_executor import ROOM
from tests.ray_nodes import HEAD, Nodes

pytestmark = [*RAY, pytest.mark.slow, pytest.mark.timeout(300)]

NAME = "tests.engine.ray.node_workers:NodeWorker"
LONG = 60.0


def until_long(condition: Any) -> None:
    """Wait for what Ray notices late: the death of a node."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


@pytest.fixture
def node(ray_nodes: Nodes) -> Iterator[Any]:
    """A second node, with a resource of its own name."""
    added = ray_nodes.add(num_cpus=2, resources={"second": 8})
    yield added
    if added.any_processes_alive():
        ray_nodes.remove(added)


def executor_on(nodes: Nodes, count: int, **options: Any) -> RayExecutor:
    room = {key: value for key, value in ROOM.items() if key != "output_timeout"}
    return RayExecutor(NAME, count, "cpu", **{**nodes.options, **room, **options})


def output_of(executor: RayExecutor, request: Any) -> Any:
    done = executor.execute_model(request, timeout=LONG)
    return executor.wait_output_ready(done.async_output_id).result(LONG)


SECOND = {"CPU": 1, "second": 1}


# Ends --------------------------------------------------------------------------------------------


def test_an_actors_death_is_told_with_its_cause(ray_nodes: Nodes) -> None:
    import ray

    with executor_on(ray_nodes, 2) as executor:
        losses: list[int] = []
        executor.on_worker_lost(lambda rank, error: losses.append(rank))
        worker: Any = executor._engine.crew.workers[1]
        futures = [executor.submit(("wait_for", "/never")) for _ in range(2)]
        jobs = executor._ask.board.ledger._book.jobs
        (doomed,) = (f for f in futures if jobs[f.async_output_id].rank == 1)
        ray.kill(worker._actor)
        cause = r"worker 1 \(pid \d+\) ended: The actor .*killed by `ray.kill`"
        with pytest.raises(WorkerDiedError, match=cause):
            doomed.result(LONG)
        until(lambda: losses == [1])
        until_long(lambda: not psutil.pid_exists(worker.pid))  # it goes with its actor
        assert executor.ranks == [0]


def test_a_start_that_fails_says_why_and_leaves_nothing(ray_nodes: Nodes) -> None:
    import ray

    with pytest.raises(WorkerStartError, match="no weights") as caught:
        RayExecutor("tests.engine.workers:FailsToStart", 2, "cpu", **ray_nodes.options, **ROOM)
    assert "loading the weights ..." in str(caught.value)
    ray.init(address=ray_nodes.address, _node_ip_address=HEAD, logging_level="WARNING")
    until_long(lambda: ray.available_resources().get("CPU") == 8)
    ray.shutdown()


def test_no_room_in_the_cluster_is_a_start_error_with_the_remedy(ray_nodes: Nodes) -> None:
    with pytest.raises(WorkerStartError, match=r"no room for .*GPU.* Add nodes"):
        executor_on(ray_nodes, 1, resources={"CPU": 1, "GPU": 1}, start_timeout=2.0)


def test_a_cluster_that_is_not_there_is_one_typed_error(ray_nodes: Nodes) -> None:
    import ray

    with executor_on(ray_nodes, 1), pytest.raises(ClusterError, match="can have no other"):
        executor_on(ray_nodes, 1, address="127.0.0.9:1")
    assert not ray.is_initialized(), "the connection ends with its last executor"


# Several nodes ------------------------------------------------------------------------------------


def check_outputs_come_from_both_nodes(nodes: Nodes, **options: Any) -> None:
    with executor_on(nodes, 2, strategy="STRICT_SPREAD", **options) as executor:
        assert sorted(executor.hosts) == [0, 1]
        assert len(set(executor.hosts.values())) == 2
        futures = [executor.submit(("fill", (n, 60_000))) for n in range(40)]
        ranks = set()
        for number, future in enumerate(futures):
            waiting = executor.wait_output_ready(future.async_output_id)
            image = waiting.result(LONG)
            assert waiting.origin is not None
            ranks.add(waiting.origin.rank)
            assert image.shape == (60_000,)
            assert image.eq(number).all()
        assert ranks == {0, 1}
        del image, waiting
        gc.collect()
        assert open_leases() == 0


@pytest.mark.parametrize("outputs", ["auto", "object_store"])
def test_outputs_come_from_both_nodes(ray_nodes: Nodes, node: Any, outputs: str) -> None:
    check_outputs_come_from_both_nodes(ray_nodes, outputs=outputs)


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("outputs", ["auto", "object_store"])
def test_a_node_that_dies_costs_its_requests_an_error_or_one_retry(
    ray_nodes: Nodes, node: Any, outputs: Any, retries: int, tmp_path: Path
) -> None:
    gate = str(tmp_path / "gate")
    with executor_on(
        ray_nodes, 2, strategy="STRICT_SPREAD", outputs=outputs, retries=retries, window=1
    ) as executor:
        (there,) = (rank for rank, host in executor.hosts.items() if host != HEAD)
        futures = [executor.submit(("wait_for", gate)) for _ in range(2)]
        jobs = executor._ask.board.ledger._book.jobs
        doomed, fine = sorted(futures, key=lambda f: jobs[f.async_output_id].rank != there)
        waiting = executor.submit(("fill", (3, 60_000)))
        ray_nodes.kill(node)
        until_long(lambda: executor.ranks == [1 - there])
        Path(gate).touch()
        assert fine.result(LONG)
        if retries:
            assert executor.wait_output_ready(doomed.async_output_id).result(LONG) == gate
        else:
            with pytest.raises(WorkerDiedError, match=f"worker {there}"):
                doomed.result(LONG)
        output = executor.wait_output_ready(waiting.async_output_id).result(LONG)
        assert output.eq(3).all(), "what waited lost nothing"
        assert executor.check_health()


def test_a_driver_that_is_killed_takes_its_workers_along_and_the_next_one_serves(
    ray_nodes: Nodes, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("driver_script.py")
    said = tmp_path / "pids"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    driver = subprocess.Popen(
        [sys.executable, str(script), ray_nodes.address, HEAD, str(said)], env=environment
    )
    try:
        until_long(said.exists)
        pids = json.loads(said.read_text())
        assert all(map(psutil.pid_exists, pids))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(LONG)
    started = time.monotonic()
    until_long(lambda: not any(map(psutil.pid_exists, pids)))
    print(f"gone after {time.monotonic() - started:.1f} s, one of them in a forward")
    with executor_on(ray_nodes, 2) as executor:
        assert output_of(executor, ("fill", (1, 9000))).eq(1).all()


# Workers come and leave ---------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", ["auto", "object_store"])
def test_workers_come_and_leave_while_requests_flow(ray_nodes: Nodes, outputs: Any) -> None:
    import ray

    with executor_on(ray_nodes, 1, outputs=outputs) as executor:
        stop = threading.Event()
        wrong: list[object] = []
        counts: list[int] = []

        def serve(seed: int) -> None:
            chance, done = random.Random(seed), 0
            while not stop.is_set():
                value = chance.randrange(1000)
                image = output_of(executor, ("fill", (value, 20_000)))
                if not image.eq(value).all():
                    wrong.append(value)
                done += 1
            counts.append(done)

        threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        try:
            assert executor.add_worker() == 1
            assert executor.add_worker() == 2
            until(lambda: executor.ranks == [0, 1, 2])
            used = ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0)
            assert executor.remove_worker(0) == 0
            assert executor.remove_worker() in (1, 2)
            until_long(
                lambda: (
                    ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0)
                    <= used - 2
                )
            )  # the places are the cluster's again
            assert executor.add_worker() == 3
            assert {output_of(executor, ("rank", None)) for _ in range(20)} <= {1, 2, 3}
        finally:
            stop.set()
            for thread in threads:
                thread.join(LONG)
        assert len(counts) == 3, "every thread got all that it asked for"
        assert not wrong
        assert executor.check_health()
        assert not executor.describe_pending_state().outputs


def test_a_worker_that_is_lost_can_be_replaced_by_its_callback(ray_nodes: Nodes) -> None:
    with executor_on(ray_nodes, 2, retries=1) as executor:
        executor.on_worker_lost(lambda rank, error: executor.add_worker())
        os.kill(executor._engine.crew.workers[0].pid, signal.SIGKILL)
        until_long(lambda: executor.ranks == [1, 2])
        assert output_of(executor, ("fill", (1, 9000))).eq(1).all()


# Devices and variables ----------------------------------------------------------------------------


def test_each_worker_sees_the_device_that_ray_gave_it(ray_nodes: Nodes) -> None:
    """Two devices that a node only claims to have; the platform of the workers is the CPU's."""
    claims = ray_nodes.add(num_cpus=2, num_gpus=2)
    try:
        resources = {"CPU": 1, "GPU": 1}
        with executor_on(
            ray_nodes, 2, resources=resources, environment={"MARK": "here"}
        ) as executor:
            said = executor.collective_rpc("where", timeout=LONG)
        assert sorted(worker["CUDA_VISIBLE_DEVICES"] for worker in said) == ["0", "1"]
        assert {(worker["OMNI_PLATFORM"], worker["MARK"]) for worker in said} == {("cpu", "here")}
    finally:
        ray_nodes.remove(claims)
