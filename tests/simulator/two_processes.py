"""What `test_process_group.py` runs in two processes; prints what it found as JSON.

Arguments: the rank, and a file for the two to meet in.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from omni_platforms.simulator import simulate

D = "sim"
RANK = int(sys.argv[1])
SCHEDULES = ("eager", "lazy", "random:3")
Found = dict[str, Any]


def full(value: float, n: int = 4) -> torch.Tensor:
    return torch.full((n,), float(value), device=D)


def reductions() -> Found:
    x = full(RANK + 1)
    before = simulate(D).host_waits
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    waits = simulate(D).host_waits - before
    mine = torch.empty(4, device=D)
    dist.reduce_scatter_tensor(mine, full(RANK + 1, 8))
    z = full(RANK + 1)
    dist.reduce(z, 0)
    rooted = z.tolist() if RANK == 0 else None
    found = {"all_reduce": x.tolist(), "reduce_scatter": mine.tolist(), "reduce": rooted}
    return {**found, "host waits": waits}


def gatherings() -> Found:
    parts = [torch.empty(4, device=D) for _ in range(2)]
    dist.all_gather(parts, full(RANK + 5))
    joined = torch.empty(8, device=D)
    dist.all_gather_into_tensor(joined, full(RANK + 7))
    y = full(RANK)
    dist.broadcast(y, src=1)
    got = torch.empty(2, device=D)
    dist.all_to_all_single(got, full(RANK + 1, 2))
    to_root = [torch.empty(4, device=D) for _ in range(2)] if RANK == 0 else None
    dist.gather(full(RANK + 3), to_root)
    from_root = torch.empty(4, device=D)
    dist.scatter(from_root, [full(1), full(2)] if RANK == 0 else None)
    return {
        "all_gather": [part[0].item() for part in parts],
        "into tensor": joined.tolist()[::4],
        "broadcast": y.tolist(),
        "all_to_all": got.tolist(),
        "gather": [part[0].item() for part in to_root or []],
        "scatter": from_root.tolist(),
    }


def others() -> Found:
    token = full(RANK)
    if RANK == 0:
        dist.send(token + 40, 1)
    else:
        dist.recv(token, 0)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": RANK})
    host = torch.ones(2)
    dist.all_reduce(host)
    layer = torch.nn.Linear(2, 2, bias=False, device=D)
    model = torch.nn.parallel.DistributedDataParallel(layer)
    model(full(RANK + 1, 2)).sum().backward()
    gradient = layer.weight.grad
    assert gradient is not None
    return {
        "point to point": token.tolist(),
        "objects": objects,
        "host tensor": host.tolist(),
        "gradients": gradient.flatten().tolist(),
    }


def used_before_the_wait(right: bool) -> Found:
    x = full(RANK + 1)
    work = dist.all_reduce(x, async_op=True)
    if right:
        work.wait()
    doubled = (x * 2).tolist()
    work.wait()
    return {"doubled": doubled}


def message_that_needs_the_others_part() -> Found:
    """Process 1 needs the part of process 0, which waits for its message and for no device."""
    store = dist.distributed_c10d._get_default_store()
    key = f"seen {simulate(D).runtime.scheduler.policy}"
    x = full(RANK + 1)
    dist.all_reduce(x, async_op=True).wait()
    if RANK == 1:
        store.set(key, str(x[0].item()))
    return {"seen": store.get(key).decode(), "x": x.tolist()}


def other_process_begins_late() -> Found:
    """Process 1 begins when it is told that process 0 has made its call and its wait."""
    store = dist.distributed_c10d._get_default_store()
    key = f"issued {simulate(D).runtime.scheduler.policy}"
    x = full(RANK + 1)
    if RANK == 1:
        store.get(key)
    dist.all_reduce(x, async_op=True).wait()
    after = torch.accelerator.current_stream().record_event()
    queries = [after.query() for _ in range(20)] if RANK == 0 else []
    if RANK == 0:
        store.set(key, "yes")
    after.synchronize()
    return {"x": x.tolist(), "early": any(queries)}


SCENARIOS: dict[str, Callable[[], Found]] = {
    "reductions": reductions,
    "gatherings": gatherings,
    "others": others,
    "wrong": lambda: used_before_the_wait(False),
    "right": lambda: used_before_the_wait(True),
    "message": message_that_needs_the_others_part,
    "late": other_process_begins_late,
}


def main() -> None:
    warnings.simplefilter("ignore")
    sim = simulate(D)
    torch.accelerator.set_device_index(RANK)
    where = "file://" + sys.argv[2]
    dist.init_process_group("simccl", init_method=where, rank=RANK, world_size=2)
    found: dict[str, Found] = {}
    for schedule in SCHEDULES:
        for name, scenario in SCENARIOS.items():
            sim.reset(schedule)
            torch.accelerator.set_device_index(RANK)
            found[f"{schedule} {name}"] = scenario()
            dist.barrier()
    print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
