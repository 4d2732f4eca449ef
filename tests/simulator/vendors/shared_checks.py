"""What every simulated name must do, through torch's generic interface."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable

import pytest
import torch

from omni_platforms.errors import SimulatorForkedError, SimulatorStateError
from omni_platforms.simulator import Simulation


def check_torch_knows_the_device(sim: Simulation) -> None:
    assert torch.accelerator.current_accelerator() == torch.device(sim.name)
    assert torch.accelerator.device_count() == 2
    assert torch.get_device_module(sim.name) is sim.module
    assert torch.empty(1, device=f"{sim.name}:1").device == torch.device(sim.name, 1)


def check_nothing_lazy_runs_before_it_is_waited_for(sim: Simulation) -> None:
    sim.reset("lazy")
    target = torch.full((4,), 2.0, device=sim.name).to("cpu", non_blocking=True)
    done = torch.accelerator.current_stream().record_event()
    assert target.isnan().all()
    done.synchronize()
    assert target.tolist() == [2.0] * 4


def overlapped(sim: Simulation, *, wait: bool) -> None:
    """A copy on a side stream, which must wait for the work of the current one."""
    side = torch.Stream(device=sim.name)
    value = torch.ones(4, device=sim.name) * 2
    ready = torch.accelerator.current_stream().record_event()
    if wait:
        side.wait_event(ready)
    with side:
        copy = value.to("cpu", non_blocking=True)
    side.synchronize()
    assert copy.tolist() == [2.0] * 4


def check_a_race_is_found_and_its_right_twin_is_not(sim: Simulation) -> None:
    right = sim.explore(lambda: overlapped(sim, wait=True), seeds=10)
    assert right.ok, str(right)
    assert sim.explore(lambda: overlapped(sim, wait=False)).failed("lazy:0.0")


def check_events_of_two_devices(sim: Simulation) -> None:
    def scenario() -> None:
        there = torch.ones(3, device=f"{sim.name}:0").to(f"{sim.name}:1", non_blocking=True) * 2
        assert there.cpu().tolist() == [2.0] * 3

    found = sim.explore(scenario, seeds=20)
    assert found.ok, str(found)


def check_timing(sim: Simulation) -> None:
    start, end = (torch.Event(device=sim.name, enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(3, device=sim.name).add_(1)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0


def check_pinned_memory(sim: Simulation) -> None:
    pinned = torch.empty(16, pin_memory=True)
    assert pinned.is_pinned()
    assert torch.ones(4).pin_memory().is_pinned()
    assert not torch.ones(4).is_pinned()
    assert torch.ones(4, device=sim.name).to("cpu", non_blocking=True).is_pinned()


def check_models_and_gradients(sim: Simulation) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.GroupNorm(2, 4),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 5),
    )
    data = torch.randn(2, 3, 6, 6)
    expected = net(data)
    expected.square().sum().backward()
    gradient = net[0].weight.grad
    net.zero_grad()
    there = net.to(sim.name)
    found = there(data.to(sim.name))
    found.square().sum().backward()
    assert torch.allclose(found.cpu(), expected, atol=1e-5)
    assert torch.allclose(there[0].weight.grad.cpu(), gradient, atol=1e-4)


def check_attention(sim: Simulation) -> None:
    query = torch.randn(1, 2, 8, 16)
    expected = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    there = query.to(sim.name)
    found = torch.nn.functional.scaled_dot_product_attention(there, there, there)
    assert torch.allclose(found.cpu(), expected, atol=1e-5)


def check_sizes_that_change(sim: Simulation) -> None:
    value = torch.arange(4, dtype=torch.float32, device=sim.name)
    value.resize_(8)
    assert value[:4].cpu().tolist() == [0.0, 1.0, 2.0, 3.0]
    out = torch.empty(0, device=sim.name)
    torch.add(value[:4], 1, out=out)
    assert out.cpu().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert torch.nonzero(out > 2).cpu().tolist() == [[2], [3]]


def check_seeds(sim: Simulation) -> None:
    def draw() -> list[float]:
        return torch.rand(4, device=sim.name).cpu().tolist()  # type: ignore[no-any-return]

    torch.manual_seed(3)
    first = draw()
    torch.manual_seed(3)
    assert draw() == first
    state = sim.module.get_rng_state()
    again = draw()
    sim.module.set_rng_state(state)
    assert draw() == again


def check_memory_statistics(sim: Simulation) -> None:
    before = sim.module.memory_allocated()
    kept = torch.empty(1024, dtype=torch.uint8, device=sim.name)
    assert sim.module.memory_allocated() == before + 1024
    assert torch.accelerator.memory_allocated() == before + 1024
    free, total = sim.module.mem_get_info()
    assert 0 < free < total
    del kept
    assert sim.module.max_memory_allocated() >= before + 1024


def check_autocast(sim: Simulation) -> None:
    with torch.autocast(sim.name, dtype=torch.bfloat16):
        assert torch.get_autocast_dtype(sim.name) == torch.bfloat16


def check_tensors_are_pickled(sim: Simulation) -> None:
    value = torch.arange(3.0, device=f"{sim.name}:1")
    copy = pickle.loads(pickle.dumps(value))
    assert copy.device == value.device
    assert copy.cpu().tolist() == [0.0, 1.0, 2.0]


def check_contexts_restore_the_device(sim: Simulation) -> None:
    with sim.module.device(1):
        assert torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device=sim.name).device.index == 1
    assert sim.module.current_device() == 0
    side = torch.Stream(device=f"{sim.name}:1")
    with contextlib.suppress(ZeroDivisionError), side:
        raise ZeroDivisionError
    assert torch.accelerator.current_device_index() == 0


def refused_uses(uses: list[Callable[[], object]]) -> int:
    """How many of `uses` are refused in a forked child, with a way out in the message."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    refused = 0
    for use in uses:
        try:
            use()
        except SimulatorForkedError as error:
            refused += "spawn" in str(error)
        except RuntimeError as error:  # torch's own refusal, when it starts the device
            refused += "forked subprocess" in str(error)
    os._exit(refused)


def check_every_use_is_refused_in_a_forked_child(sim: Simulation) -> None:
    kept, stream = torch.ones(2, device=sim.name), torch.Stream(device=sim.name)
    uses = [
        lambda: torch.ones(2, device=sim.name),
        kept.cpu,
        lambda: torch.ones(2).to(sim.name),
        lambda: torch.empty(2, pin_memory=True),
        stream.record_event,
        stream.synchronize,
        sim.module.synchronize,
        lambda: torch.Stream(device=sim.name),
    ]
    assert refused_uses(uses) == len(uses)
    assert kept.cpu().tolist() == [1.0, 1.0]  # the parent goes on


def check_a_forked_child_may_use_the_cpu(sim: Simulation) -> None:
    kept = [torch.ones(2, device=sim.name)]
    pid = os.fork()
    if not pid:
        kept.clear()  # the parent's memory is not freed by its child
        torch.manual_seed(1)
        os._exit(int(torch.ones(2).sum().item()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert kept[0].sum().item() == 2


def check_the_platform_comes_from_the_vendors_plugin(sim: Simulation) -> None:
    with pytest.raises(SimulatorStateError, match=f"Set OMNI_SIMULATE={sim.name}"):
        _ = sim.platform
