"""What the plugins of Ascend, Intel, Moore Threads and AMD answer on each kind of machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_platforms.platform.probe import Probe
from omni_platforms.platform.torch_build import TorchBuild
from omni_platforms.platform.visible import visible_indices
from omni_platforms_musa import mtml
from omni_platforms_musa import plugin as musa
from omni_platforms_npu import machine as npu_machine
from omni_platforms_npu import plugin as npu
from omni_platforms_npu.machine import AscendMachine
from omni_platforms_rocm import machine as rocm_machine
from omni_platforms_rocm import plugin as rocm
from omni_platforms_xpu import machine as xpu_machine
from omni_platforms_xpu import plugin as xpu
from omni_platforms_xpu.machine import IntelDevices

CPU = TorchBuild("2.13.0+cpu")
NPU = AscendMachine("2.13.0", "2.13.0", cann_loads=True, devices=2)


def says(probe: Probe, status: str, *words: str) -> bool:
    """Whether the answer has this status and all these words."""
    return probe.status.value == status and all(word in probe.reason for word in words)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (None, (0, 1, 2)), ("", ()), ("1", (1,)), ("2,0", (2, 0)), ("0,7,1", (0,)),
        ("0,x,1", (0,)), ("1a,2b", (1, 2)), ("0,0", ()), ("-1", ()), (" 1 , 2 ", (1, 2)),
    ],
)  # fmt: skip
def test_lists_of_numbers_are_read_as_the_runtimes_read_them(
    value: str | None, left: tuple[int, ...]
) -> None:
    assert visible_indices(value, 3) == left


# Ascend -----------------------------------------------------------------------


def test_npu_counts_devices_and_says_the_versions() -> None:
    probe = npu.judge(CPU, NPU, None)
    assert says(probe, "AVAILABLE", "2 of 2", "torch_npu 2.13.0")
    assert (probe.device_count, probe.versions["torch_npu"]) == (2, "2.13.0")


def test_npu_is_absent_without_its_parts() -> None:
    assert says(npu.judge(CPU, AscendMachine(), None), "ABSENT", "torch_npu is not installed")
    without = AscendMachine("2.13.0", "2.13.0", cann_loads=True)
    assert says(npu.judge(CPU, without, None), "ABSENT", "no Ascend device")
    assert says(npu.judge(CPU, NPU, "1,0"), "ABSENT", "ascending")


def test_torch_npu_without_cann_is_broken_with_the_remedy() -> None:
    lost = AscendMachine("2.13.0", "2.13.0", cann_folder="/opt/ascend")
    assert says(npu.judge(CPU, lost, None), "BROKEN", "import torch", "/opt/ascend/set_env.sh")
    quiet = AscendMachine("2.13.0", "2.13.0", autoload=False)
    assert says(npu.judge(CPU, quiet, None), "ABSENT", "no Ascend device")


def test_other_faults_of_an_ascend_stack_are_broken() -> None:
    alone = AscendMachine(devices=8)
    assert says(npu.judge(CPU, alone, None), "BROKEN", "8 Ascend", "omni-platforms[npu]")
    other = AscendMachine("2.14.0", "2.14.0", cann_loads=True, devices=1)
    assert says(npu.judge(CPU, other, None), "BROKEN", "pip install torch==2.14.0")


@pytest.mark.parametrize(
    ("value", "count"),
    [(None, 4), ("", 0), ("0,2", 2), ("2,0", 0), ("1,1", 0), ("0,9", 1), ("0,1x,2", 2), ("a", 0)],
)
def test_ascend_counts_ascending_numbers(value: str | None, count: int) -> None:
    assert npu_machine.visible_count(value, 4) == count


def test_ascend_devices_and_libraries_are_read_from_files(tmp_path: Path) -> None:
    dev, cann = tmp_path / "dev", tmp_path / "usr/local/Ascend/latest"
    dev.mkdir()
    for name in ("davinci0", "davinci1", "davinci_manager", "davincix"):
        (dev / name).touch()
    (cann / "lib64").mkdir(parents=True)
    found = npu_machine.look({}, tmp_path)
    assert (found.devices, found.cann_loads, found.cann_folder) == (2, False, str(cann))
    (cann / "lib64/libhccl.so").touch()
    sourced = npu_machine.look({"LD_LIBRARY_PATH": f"/nowhere:{cann}/lib64"}, tmp_path)
    assert sourced.cann_loads
    (dev / "davinci_manager").unlink()
    assert npu_machine.look({}, tmp_path).devices == 0, "files of another kind of device"


# Intel ------------------------------------------------------------------------

XPU = TorchBuild("2.13.0+xpu", xpu="20250301")


def no_device() -> IntelDevices:
    """A machine without an Intel device."""
    return IntelDevices()


def test_xpu_counts_discrete_devices_before_integrated_ones() -> None:
    def find() -> IntelDevices:
        return IntelDevices((True, False, False), "Level Zero")

    assert says(xpu.judge(XPU, find, None, None), "AVAILABLE", "2 of 3", "Level Zero")
    assert xpu.judge(XPU, find, None, "0").device_count == 1
    assert xpu.judge(XPU, find, None, "2,1").device_count == 2
    assert xpu.judge(XPU, find, None, "1.0,1.1").device_count == 1
    assert says(xpu.judge(XPU, find, None, "9"), "ABSENT", "leaves none of 3")


def test_xpu_is_absent_or_broken_with_a_reason() -> None:
    assert says(xpu.judge(CPU, no_device, None, None), "ABSENT", "not built for XPU")
    assert says(xpu.judge(XPU, no_device, None, None), "ABSENT", "no Intel device")

    def fails() -> IntelDevices:
        raise xpu_machine.SysmanError("Level Zero Sysman failed (zesInit: 0x1)")

    assert says(xpu.judge(XPU, fails, None, None), "BROKEN", "zesInit", "sycl-ls")


def test_the_legacy_extension_beside_another_torch_is_broken() -> None:
    assert says(xpu.judge(CPU, no_device, "2.8.0+cpu", None), "BROKEN", "2.8.0", "uninstall")
    fitting = TorchBuild("2.8.0+cpu")
    assert says(xpu.judge(fitting, no_device, "2.8.0+cpu", None), "ABSENT", "not built for XPU")


def test_the_kernels_list_counts_intels_devices_only(tmp_path: Path) -> None:
    for number, (vendor, driver) in enumerate(
        [("0x8086", "xe"), ("0x8086", "i915"), ("0x10de", "nvidia"), ("0x8086", "ast")]
    ):
        device = tmp_path / f"sys/class/drm/renderD{128 + number}/device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(tmp_path / "drivers" / driver)
    (tmp_path / "sys/class/drm/renderD200").mkdir()
    assert xpu_machine.devices_of_the_kernel(tmp_path).integrated == (False, False)


# Moore Threads ----------------------------------------------------------------


def test_musa_counts_what_the_variable_leaves() -> None:
    probe = musa.judge(CPU, "2.7.1", lambda: 4, "0,3")
    assert says(probe, "AVAILABLE", "2 of 4", "torch_musa 2.7.1")
    assert says(musa.judge(CPU, "2.7.1", lambda: 4, "9"), "ABSENT", "leaves none of 4")
    assert says(musa.judge(CPU, "2.7.1", lambda: 0, None), "ABSENT", "sees no device")


def test_musa_is_absent_or_broken_with_a_reason() -> None:
    def missing() -> int:
        raise mtml.MtmlMissingError("libmtml.so: cannot open")

    def fails() -> int:
        raise mtml.MtmlError("mtmlLibraryInit failed (MTML error 1)")

    assert says(musa.judge(CPU, None, missing, None), "ABSENT", "torch_musa is not installed")
    assert says(musa.judge(CPU, "2.7.1", missing, None), "ABSENT", "no driver")
    assert says(musa.judge(CPU, "2.7.1", fails, None), "BROKEN", "mthreads-gmi")
    assert says(musa.judge(CPU, None, lambda: 1, None), "BROKEN", "torch_musa is not installed")


class FakeMtml:
    """MTML with three devices, or with a call that fails."""

    def __init__(self, code: int = 0) -> None:
        self._code = code
        self.open = 0

    def mtmlLibraryInit(self, handle: object) -> int:
        """Open the library."""
        self.open += 1
        return 0

    def mtmlLibraryCountDevice(self, handle: object, count: object) -> int:
        """Count the devices."""
        count._obj.value = 3  # type: ignore[attr-defined]
        return self._code

    def mtmlLibraryShutDown(self, handle: object) -> int:
        """Close the library."""
        self.open -= 1
        return 0


def test_mtml_is_closed_again_also_after_an_error() -> None:
    good, bad = FakeMtml(), FakeMtml(code=5)
    assert mtml.count_with(good) == 3
    with pytest.raises(mtml.MtmlError, match="mtmlLibraryCountDevice failed"):
        mtml.count_with(bad)
    assert (good.open, bad.open) == (0, 0)


# AMD --------------------------------------------------------------------------

ROCM = TorchBuild("2.13.0+rocm6.4", hip="6.4")


def test_rocm_reads_three_variables() -> None:
    assert says(rocm.judge(ROCM, 4, {}), "AVAILABLE", "4 of 4", "HIP 6.4")
    assert rocm.judge(ROCM, 4, {"ROCR_VISIBLE_DEVICES": "0,1"}).device_count == 2
    assert rocm.judge(ROCM, 4, {"CUDA_VISIBLE_DEVICES": "3"}).device_count == 1
    both = {"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "3"}
    assert rocm.judge(ROCM, 4, both).device_count == 2
    among = {"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "1"}
    assert says(rocm.judge(ROCM, 4, among), "ABSENT", "ROCR_VISIBLE_DEVICES='2'")


def test_rocm_is_absent_for_another_build_or_without_devices() -> None:
    assert says(rocm.judge(CPU, 4, {}), "ABSENT", "not built for ROCm")
    assert says(rocm.judge(ROCM, 0, {}), "ABSENT", "/dev/kfd")


def test_amd_devices_are_the_nodes_with_a_graphics_version(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, version in enumerate((0, 90402, 110000)):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(
            f"simd_count 8\ngfx_target_version {version}\n"
        )
    assert rocm_machine.count_devices(tmp_path) == 0, "no device file, so none to open"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert rocm_machine.count_devices(tmp_path) == 2


@pytest.mark.parametrize("plugin", [npu, xpu, musa, rocm], ids=lambda plugin: plugin.NAME)
def test_a_plugin_creates_its_own_name_only(plugin: object) -> None:
    assert plugin.omni_platforms_create("other") is None  # type: ignore[attr-defined]
