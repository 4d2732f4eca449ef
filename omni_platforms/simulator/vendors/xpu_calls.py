"""What torch's own `torch.xpu` calls in `torch._C`, for a simulated device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.device_types import XPU
from omni_platforms.simulator.driver import Driver
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import StreamKey


@dataclass(frozen=True)
class XpuProperties:
    """What `torch.xpu.get_device_properties` returns (torch 2.13, `xpu/__init__.py`)."""

    total_memory: int
    uuid: bytes
    name: str = "Simulated Intel Data Center GPU"
    platform_name: str = "Simulated"
    vendor: str = "Intel(R) Corporation"
    device_id: int = 0
    driver_version: str = "0"
    version: str = "0"
    type: str = "gpu"
    architecture: int = 0
    max_compute_units: int = 512
    gpu_eu_count: int = 512
    gpu_subslice_count: int = 64
    max_work_group_size: int = 1024
    max_num_sub_groups: int = 64
    sub_group_sizes: tuple[int, ...] = (16, 32)
    local_mem_size: int = 1 << 17
    last_level_cache_size: int = 1 << 27
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    has_fp16: bool = True
    has_fp64: bool = True
    has_atomic64: bool = True
    has_bfloat16_conversions: bool = True
    has_subgroup_matrix_multiply_accumulate: bool = False
    has_subgroup_matrix_multiply_accumulate_tensor_float32: bool = False
    has_subgroup_2d_block_io: bool = False
    is_integrated_gpu: bool = False


def properties(runtime: Runtime, index: int) -> XpuProperties:
    """Return the properties of device `index`."""
    if not 0 <= index < runtime.device_count:
        raise SimulatorStateError(
            f"there is no device {index}: this process simulates {runtime.device_count}. "
            "Give simulate() a larger device_count."
        )
    return XpuProperties(runtime.memory.limit, bytes(15) + bytes([index]))


def calls(runtime: Runtime, driver: Driver) -> dict[str, Callable[..., Any]]:
    """Return the functions of `torch._C` by name."""

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        driver.set_device(device_index)
        driver.exchange_stream(device_index, stream_id)

    def capturing() -> bool:
        return driver.stream_is_capturing(*driver.get_stream(-1))

    return {
        "_xpu_getDeviceCount": driver.device_count,
        "_xpu_getDevice": driver.get_device,
        "_xpu_setDevice": driver.set_device,
        "_xpu_exchangeDevice": driver.exchange_device,
        "_xpu_maybeExchangeDevice": driver.exchange_device,
        "_xpu_canDeviceAccessPeer": lambda device, peer: True,
        "_xpu_synchronize": driver.device_synchronize,
        "_xpu_getCurrentStream": lambda device: _packed(driver.get_stream(device)),
        "_xpu_getCurrentRawStream": lambda device: driver.get_stream(device)[1],
        "_xpu_setStream": set_stream,
        "_xpu_isCurrentStreamCapturing": capturing,
        "_xpu_getArchFlags": lambda: None,
        "_xpu_emptyCache": driver.empty_cache,
        "_xpu_getMemoryInfo": lambda device: (
            driver.memory_free(device),
            driver.memory_total(device),
        ),
        "_xpu_memoryStats": lambda device: _nested(driver.device_stats(device)),
        "_xpu_resetPeakMemoryStats": driver.reset_peak_stats,
        "_xpu_resetAccumulatedMemoryStats": driver.reset_accumulated_stats,
    }


def _packed(key: StreamKey) -> tuple[int, int, int]:
    return key[1], key[0], XPU.number


def _nested(stats: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics as `torch.xpu.memory_stats_as_nested_dict` has them."""
    fields = ("current", "peak", "allocated", "freed")
    pools = ("all", "small_pool", "large_pool")
    return {
        name: {p: dict(zip(fields, row, strict=True)) for p, row in zip(pools, rows, strict=True)}
        for name, rows in stats.items()
        if isinstance(rows, tuple)
    }
