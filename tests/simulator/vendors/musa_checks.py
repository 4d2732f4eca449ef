"""Quirks of torch_musa 2.7.1; the facts are cited in `vendors/musa.py`."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from omni_platforms.simulator import Simulation


def check_the_package_is_the_module(sim: Simulation) -> None:
    import torch_musa

    assert torch.musa is torch_musa is sys.modules["torch.musa"]
    assert torch_musa.__version__ == "2.7.1"


def check_the_generic_synchronize_is_missing(sim: Simulation) -> None:
    sim.reset("lazy")
    target = torch.ones(2, device="musa").to("cpu", non_blocking=True)
    with pytest.raises(RuntimeError, match="doesn't support synchronizing all streams"):
        torch.accelerator.synchronize()
    assert target.isnan().all()
    torch.musa.synchronize()
    assert target.tolist() == [1.0, 1.0]


def check_properties_have_no_unique_id(sim: Simulation) -> None:
    found = torch.musa.get_device_properties(1)
    assert not hasattr(found, "uuid")
    assert torch.musa.get_device_capability() == (found.major, found.minor)
    assert torch.musa.get_device_name() == found.name


def check_what_the_vendor_lacks_is_missing(sim: Simulation) -> None:
    for name in ("host_memory_stats", "host_empty_cache", "set_sync_debug_mode"):
        assert not hasattr(torch.musa, name)


def check_registration_answers_an_enumeration(sim: Simulation) -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    calls = torch.musa.musart()
    done = calls.musaHostRegister(memory.data_ptr(), memory.numel(), 1)
    assert done != 0
    assert int(done) == 0
    assert memory.is_pinned()
    assert int(calls.musaHostRegister(memory.data_ptr(), memory.numel(), 1)) == 712
    assert int(calls.musaHostUnregister(memory.data_ptr())) == 0
    assert int(calls.musaHostUnregister(memory.data_ptr())) == 713
    assert int(calls.musaHostRegister(memory.data_ptr(), 0, 1)) == 1


def check_float64_is_refused(sim: Simulation) -> None:
    for make in (
        lambda: torch.zeros(2, dtype=torch.float64, device="musa"),
        lambda: torch.arange(2, dtype=torch.float64).to("musa"),
        lambda: torch.ones(2, device="musa").to(torch.float64),
    ):
        with pytest.raises(TypeError, match="no tensors of Double"):
            make()
    assert torch.float64 not in torch.accelerator.get_device_capability()["supported_dtypes"]


def check_graphs(sim: Simulation) -> None:
    static, graph = torch.zeros(2, device="musa"), torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        output = static + 1
    static.fill_(3)
    graph.replay()
    assert output.cpu().tolist() == [4.0, 4.0]


def check_a_bare_fork_is_seen(sim: Simulation) -> None:
    torch.ones(1, device="musa")
    pid = os.fork()
    if not pid:
        os._exit(int(torch.musa._is_in_bad_fork() and not torch.musa.is_initialized()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
