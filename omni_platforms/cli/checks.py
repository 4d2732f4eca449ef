"""The checks behind `omni-platforms doctor`, each of which may fail by itself."""

from __future__ import annotations

import platform as _system
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from omni_platforms import __version__, settings
from omni_platforms.errors import PlatformError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.discovery import PluginReport, describe_error
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.probe import ProbeStatus
from omni_platforms.platform.selection import choose, create_platform

_COPY_TIMEOUT_S = 60.0
_COPIED_ELEMENTS = 4096
_PINNED_BYTES = 1 << 16
_DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


@dataclass(frozen=True)
class Check:
    """One line of the doctor's findings."""

    name: str
    outcome: Literal["ok", "warn", "fail", "skip"]
    detail: str
    remedy: str = ""


def check_versions() -> Check:
    """Tell which versions are at work."""
    return Check(
        "versions",
        "ok",
        f"omni-platforms {__version__}, torch {torch.__version__}, "
        f"Python {_system.python_version()}, {_system.platform()}",
    )


def check_plugins(reports: Sequence[PluginReport]) -> Iterator[Check]:
    """Warn of every BROKEN plugin, else say which ones are installed."""
    broken = [report for report in reports if report.status is ProbeStatus.BROKEN]
    for report in broken:
        remedy = f"repair or uninstall it, or set OMNI_PLATFORMS_DISABLE={report.name}"
        yield Check(f"plugin {report.name}", "warn", f"{report.source}: {report.reason}", remedy)
    if not broken:
        yield Check("plugins", "ok", ", ".join(f"{r.name} {r.status.value}" for r in reports))


def select(reports: Sequence[PluginReport]) -> tuple[OmniPlatform | None, Check]:
    """Choose and make the platform as `current_platform` would; say what came of it."""
    requested = settings.read("OMNI_PLATFORM")
    strict = settings.read("OMNI_PLATFORM_STRICT")
    try:
        report = choose(reports, requested=requested, strict=strict)
        platform = create_platform(report)
    except PlatformError as error:
        what, _, remedy = str(error).rpartition(". ")
        return None, Check("platform", "fail", what or str(error), remedy)
    why = "the only one available" if requested is None else "asked for by OMNI_PLATFORM"
    if requested is None and platform.is_cpu():
        why = "no accelerator is available"
    return platform, Check("platform", "ok", f"{platform.name} of {report.source}: {why}")


def check_platform(platform: OmniPlatform) -> Iterator[Check]:
    """Try the platform: its devices, its memory, its primitives, and real copies."""
    yield from _guarded("devices", lambda: _devices(platform))
    yield from _guarded("memory", lambda: [_memory(platform)])
    for capability, attempt in _PRIMITIVES.items():
        yield from _guarded(capability.value, _primitive(platform, capability, attempt))
    yield from _guarded("copy", lambda: _copies(platform))


def _guarded(name: str, checks: Callable[[], Sequence[Check]]) -> Sequence[Check]:
    """Run checks; whatever they raise is a finding, and the next ones still run."""
    try:
        return checks()
    except Exception as error:  # noqa: BLE001 - a vendor's stack may raise anything
        remedy = "see the cause; the vendor's own tools should work first"
        return [Check(name, "fail", describe_error(error), remedy)]


def _devices(platform: OmniPlatform) -> list[Check]:
    count = platform.device_count()
    if count == 0:
        variable = platform.device_control_env_var or "the vendor's device variable"
        return [Check("devices", "fail", "no device is visible", f"look at {variable}")]
    return [Check(f"device {index}", "ok", _device(platform, index)) for index in range(count)]


def _device(platform: OmniPlatform, index: int) -> str:
    facts = {
        "uuid": platform.device_uuid(index),
        "capability": platform.device_capability(index),
        "NUMA node": platform.numa_node(index),
    }
    known = [f"{name} {value}" for name, value in facts.items() if value is not None]
    return ", ".join([platform.device_name(index), *known])


def _memory(platform: OmniPlatform) -> Check:
    memory = platform.memory_info()
    if memory is None:
        return Check("memory", "skip", "this platform does not tell")
    sane = 0 <= memory.free <= memory.total and memory.total > 0
    detail = f"{memory.free / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    return Check("memory", "ok" if sane else "fail", detail, "" if sane else "report it")


# Primitives -------------------------------------------------------------------


def _side_stream(platform: OmniPlatform) -> object | None:
    stream = platform.create_side_stream()
    if stream is not None:
        with platform.stream_context(stream):
            torch.ones(8, device=platform.current_device()).add_(1)
        stream.synchronize()
    return stream


def _event(platform: OmniPlatform) -> object | None:
    event = platform.record_device_event()
    if event is not None and not platform.synchronize_event(event, timeout=_COPY_TIMEOUT_S):
        raise TimeoutError(f"an event on an idle stream did not end in {_COPY_TIMEOUT_S:g} s")
    return event


def _pinned(platform: OmniPlatform) -> object | None:
    memory = platform.pinned_empty((_PINNED_BYTES,), torch.uint8)
    if memory is not None and not memory.is_pinned():
        raise RuntimeError("pinned_empty() returned memory that is not pinned")
    return memory


def _registered(platform: OmniPlatform) -> object | None:
    memory = platform.register_host_memory(torch.empty(_PINNED_BYTES, dtype=torch.uint8))
    if memory is not None:
        memory.close()
    return memory


_PRIMITIVES: dict[Capability, Callable[[OmniPlatform], object | None]] = {
    Capability.SIDE_STREAMS: _side_stream,
    Capability.DEVICE_EVENTS: _event,
    Capability.PINNED_MEMORY: _pinned,
    Capability.HOST_REGISTRATION: _registered,
}


def _primitive(
    platform: OmniPlatform, capability: Capability, attempt: Callable[[OmniPlatform], object | None]
) -> Callable[[], Sequence[Check]]:
    def check() -> Sequence[Check]:
        declared = capability in platform.capabilities
        works = attempt(platform) is not None
        return [_compared(capability.value, declared, works)]

    return check


def _compared(name: str, declared: bool, works: bool) -> Check:
    if declared and works:
        return Check(name, "ok", "declared, and works")
    if declared:
        return Check(name, "fail", "declared, but returns None", "report it to the plugin's author")
    if works:
        return Check(name, "warn", "works, but is not declared", "report it to the plugin's author")
    return Check(name, "skip", "not declared: the blocking path is taken")


# Copies -----------------------------------------------------------------------


def _copies(platform: OmniPlatform) -> Sequence[Check]:
    sources = {str(dtype): _pattern(dtype) for dtype in _DTYPES}
    sources["a transposed view"] = _pattern(torch.float32).view(64, -1).t()
    device = platform.current_device()
    with AsyncOutputExecutor(platform=platform) as outputs:
        future = outputs.submit({name: source.to(device) for name, source in sources.items()})
        results = future.result(timeout=_COPY_TIMEOUT_S)
        stats = outputs.stats()
    wrong = [name for name, source in sources.items() if not _same(source, results[name])]
    way = f"{stats.mode}, {'pinned' if stats.pinned else 'not pinned'}"
    if stats.reason:
        way += f": {stats.reason}"
    return [_copied(wrong, len(sources)), _mode(platform, stats.mode, way)]


def _copied(wrong: list[str], total: int) -> Check:
    if wrong:
        detail = f"differ from what was on the device: {', '.join(wrong)}"
        return Check("copy", "fail", detail, "do not use this platform; report it to its author")
    return Check("copy", "ok", f"{total} outputs came back bit for bit")


def _mode(platform: OmniPlatform, mode: str, way: str) -> Check:
    if mode == "async" or platform.is_cpu():
        return Check("copy mode", "ok", way)
    return Check("copy mode", "warn", way, "see which capability above is missing")


def _pattern(dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in which every byte value occurs, where `dtype` allows that."""
    numbers = torch.arange(_COPIED_ELEMENTS * dtype.itemsize)
    if dtype is torch.bool:
        return numbers % 3 == 0
    return (numbers % 251).to(torch.uint8).view(dtype)


def _same(source: torch.Tensor, result: Any) -> bool:
    if result.dtype != source.dtype or result.shape != source.shape or result.device.type != "cpu":
        return False
    ours, theirs = (tensor.contiguous().view(torch.uint8) for tensor in (source, result))
    return torch.equal(ours, theirs)
