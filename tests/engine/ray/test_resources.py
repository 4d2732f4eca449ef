"""What Ray calls each vendor's devices, and that an id is translated once."""

from __future__ import annotations

import os

import pytest

from omni_platforms.engine.ray.resources import bundle_of, device_index, resource_of
from omni_platforms_cuda.visible import VARIABLE as CUDA
from omni_platforms_npu.machine import VARIABLE as NPU
from omni_platforms_rocm.machine import VARIABLE as ROCM
from omni_platforms_xpu.machine import VARIABLE as XPU
from tests.engine.backends import RAY
from tests.ray_nodes import Nodes

VARIABLES = {"cuda": CUDA, "rocm": ROCM, "npu": NPU, "xpu": XPU}
"""Each platform's `device_control_env_var`, from where its plugin has it."""


def test_each_vendor_takes_one_device_of_its_own_resource() -> None:
    assert bundle_of("cpu", None) == {"CPU": 1}
    assert bundle_of("cuda", None) == bundle_of("rocm", None) == {"CPU": 1, "GPU": 1}
    assert bundle_of("xpu", None) == {"CPU": 1, "GPU": 1}
    assert bundle_of("npu", None) == {"CPU": 1, "NPU": 1}
    assert bundle_of("musa", None) == {"CPU": 1, "MUSA": 1}
    assert bundle_of("acme", None) == {"CPU": 1, "ACME": 1}
    assert bundle_of("cuda", {"GPU": 0.5}) == {"GPU": 0.5}
    with pytest.raises(ValueError, match="positive amounts"):
        bundle_of("cuda", {"GPU": 0})


@pytest.mark.parametrize("name", VARIABLES)
def test_rays_variable_is_the_platforms_own(name: str) -> None:
    """So a worker's platform sees what Ray has chosen, and nothing translates a second time."""
    resource = resource_of(name)
    assert resource is not None
    assert resource.variable == VARIABLES[name]


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("mark", [pytest.param("", marks=RAY)])
def test_ray_itself_says_the_same(
    ray_nodes: Nodes, name: str, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray._private.accelerators import amd_gpu, intel_gpu, npu, nvidia_gpu

    resource = resource_of(name)
    assert resource is not None
    assert resource.variable is not None
    manager = {
        "cuda": nvidia_gpu.NvidiaGPUAcceleratorManager,
        "rocm": amd_gpu.AMDGPUAcceleratorManager,
        "npu": npu.NPUAcceleratorManager,
        "xpu": intel_gpu.IntelGPUAcceleratorManager,
    }[name]
    monkeypatch.setenv(resource.variable, "before")
    manager.set_current_process_visible_accelerator_ids(["3", "5"])
    assert os.environ[resource.variable] == "3,5"
    assert manager.get_resource_name() == resource.name


@pytest.mark.parametrize(
    ("platform", "ids", "environ", "index"),
    [
        ("cuda", {"GPU": ["3"]}, {"CUDA_VISIBLE_DEVICES": "3"}, 0),
        ("cuda", {"GPU": ["GPU-4f2a"]}, {"CUDA_VISIBLE_DEVICES": "GPU-4f2a"}, 0),
        ("npu", {"NPU": ["5"]}, {"ASCEND_RT_VISIBLE_DEVICES": "5"}, 0),
        ("npu", {"NPU": ["5"]}, {}, 5),  # Ray was told to leave the variable alone
        ("rocm", {"GPU": ["2"]}, {"HIP_VISIBLE_DEVICES": "2"}, 0),
        ("musa", {"GPU": ["2"]}, {}, None),  # Ray only counts: the driver chooses
        ("cpu", {"GPU": ["2"]}, {}, None),
    ],
)
def test_an_id_is_translated_once(
    platform: str, ids: dict[str, list[str]], environ: dict[str, str], index: int | None
) -> None:
    assert device_index(platform, ids, environ) == index


def test_an_id_that_nothing_shows_is_an_error() -> None:
    with pytest.raises(ValueError, match="GPU-4f2a"):
        device_index("cuda", {"GPU": ["GPU-4f2a"]}, {})
