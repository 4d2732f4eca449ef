"""The types of numbers that a simulated device has, and says that it has."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch

from omni_platforms.simulator import Simulation

D = "sim"
ALL = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}


def capability(device: int = 0) -> set[torch.dtype]:
    return torch.accelerator.get_device_capability(device)["supported_dtypes"]


def convert(dtype: torch.dtype) -> torch.Tensor:
    value = torch.empty(16, dtype=dtype, device=D).to(torch.float32).to(dtype)
    torch.accelerator.synchronize()
    return value


def test_the_capability_is_a_dictionary_with_a_set(sim: Simulation) -> None:
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool} <= capability()
    assert capability(0) == capability(1)


@pytest.mark.parametrize("dtype", sorted(ALL, key=str), ids=str)
def test_each_type_works_or_is_refused(sim: Simulation, dtype: torch.dtype) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dtype in capability():
            assert convert(dtype).dtype == dtype
        else:
            with pytest.raises((TypeError, NotImplementedError)):
                convert(dtype)


def test_a_type_without_kernels_is_refused_at_the_allocation(sim: Simulation) -> None:
    with pytest.raises(TypeError, match="get_device_capability"):
        torch.empty(1, dtype=torch.bits8, device=D)
    with pytest.raises(TypeError, match="get_device_capability"):
        torch.empty_strided((1,), (1,), dtype=torch.bits8, device=D)


_WITHOUT = """
import torch
from omni_platforms.simulator import simulate
simulate("sim", unsupported_dtypes=[torch.float64, torch.complex128])
found = torch.accelerator.get_device_capability()["supported_dtypes"]
assert torch.float32 in found and not {torch.float64, torch.complex128} & found, found
value = torch.ones(2, device="sim")
tries = [
    lambda: torch.empty(1, dtype=torch.float64, device="sim"),
    lambda: torch.tensor([1.0], dtype=torch.float64).to("sim"),
    lambda: value.double(),
    lambda: value.to(torch.complex128),
    lambda: torch.arange(3, dtype=torch.float64, device="sim"),
    lambda: value.sum(dtype=torch.float64),
]
for attempt in tries:
    try:
        attempt()
    except TypeError as error:
        assert "get_device_capability" in str(error)
    else:
        raise SystemExit("a missing type was accepted")
assert (value + 1).cpu().double().tolist() == [2.0, 2.0]
print("done")
"""


def test_a_device_without_some_types(sim: Simulation) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
