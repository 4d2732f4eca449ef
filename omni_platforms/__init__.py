"""omni-platforms: one interface to every PyTorch accelerator.

Names are resolved on first use: importing this package imports neither torch
nor a plugin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.engine import AsyncOutput, EngineFuture, MultiprocExecutor, Preview
    from omni_platforms.errors import (
        AmbiguousPlatformError,
        ArenaClosedError,
        ArenaForkedError,
        ArenaFullError,
        AuditError,
        BenchError,
        BrokenPluginError,
        CallTimeoutError,
        CaptureError,
        ChannelBrokenError,
        ChannelClosedError,
        ClusterError,
        CorruptMessageError,
        CorruptPacketError,
        DemoError,
        DeviceLostError,
        DrainTimeoutError,
        EngineError,
        ExecutorClosedError,
        ExecutorForkedError,
        ExecutorFullError,
        HostRegistrationError,
        MissingExtraError,
        ObserveError,
        OmniError,
        OutputDroppedError,
        OutputError,
        OutputTimeoutError,
        PlatformError,
        PlatformUnavailableError,
        RankOutOfStepError,
        RequestFailedError,
        RequestRejectedError,
        ResultPumpError,
        SegmentRefusedError,
        SettingError,
        SharedMemoryError,
        UnknownMethodError,
        UnknownOutputError,
        UnknownPlatformError,
        UnsendableError,
        UnsupportedOutputError,
        WaitInCallbackError,
        WorkerAsleepError,
        WorkerDiedError,
        WorkerStartError,
        WorkerStoppedError,
        WorkerSurvivedError,
    )
    from omni_platforms.outputs import AsyncOutputExecutor, OutputFuture
    from omni_platforms.platform.capability import Capability
    from omni_platforms.platform.interface import MemoryInfo, OmniPlatform
    from omni_platforms.platform.selection import (
        current_platform,
        reset_platform,
        set_current_platform,
    )

__version__ = "0.1.0"

__all__ = [
    "AmbiguousPlatformError",
    "ArenaClosedError",
    "ArenaForkedError",
    "ArenaFullError",
    "AsyncOutput",
    "AsyncOutputExecutor",
    "AuditError",
    "BenchError",
    "BrokenPluginError",
    "CallTimeoutError",
    "Capability",
    "CaptureError",
    "ChannelBrokenError",
    "ChannelClosedError",
    "ClusterError",
    "CorruptMessageError",
    "CorruptPacketError",
    "DemoError",
    "DeviceLostError",
    "DrainTimeoutError",
    "EngineError",
    "EngineFuture",
    "ExecutorClosedError",
    "ExecutorForkedError",
    "ExecutorFullError",
    "HostRegistrationError",
    "MemoryInfo",
    "MissingExtraError",
    "MultiprocExecutor",
    "ObserveError",
    "OmniError",
    "OmniPlatform",
    "OutputDroppedError",
    "OutputError",
    "OutputFuture",
    "OutputTimeoutError",
    "PlatformError",
    "PlatformUnavailableError",
    "Preview",
    "RankOutOfStepError",
    "RequestFailedError",
    "RequestRejectedError",
    "ResultPumpError",
    "SegmentRefusedError",
    "SettingError",
    "SharedMemoryError",
    "UnknownMethodError",
    "UnknownOutputError",
    "UnknownPlatformError",
    "UnsendableError",
    "UnsupportedOutputError",
    "WaitInCallbackError",
    "WorkerAsleepError",
    "WorkerDiedError",
    "WorkerStartError",
    "WorkerStoppedError",
    "WorkerSurvivedError",
    "__version__",
    "current_platform",
    "reset_platform",
    "set_current_platform",
]

_ELSEWHERE = {
    "AsyncOutput": "omni_platforms.engine",
    "AsyncOutputExecutor": "omni_platforms.outputs",
    "Capability": "omni_platforms.platform.capability",
    "EngineFuture": "omni_platforms.engine",
    "MemoryInfo": "omni_platforms.platform.interface",
    "MultiprocExecutor": "omni_platforms.engine",
    "OmniPlatform": "omni_platforms.platform.interface",
    "OutputFuture": "omni_platforms.outputs",
    "Preview": "omni_platforms.engine",
    "current_platform": "omni_platforms.platform.selection",
    "reset_platform": "omni_platforms.platform.selection",
    "set_current_platform": "omni_platforms.platform.selection",
}
_ERRORS = {name: "omni_platforms.errors" for name in __all__ if name.endswith("Error")}

__getattr__, __dir__ = lazy_names(__name__, {**_ERRORS, **_ELSEWHERE})

# Executors know nothing of observability, so this is the place that brings the two together.
_OBSERVED_BY = ("OMNI_TRACE", "OMNI_EXPOSE", "OMNI_OTEL", "OMNI_PROFILER_RANGES", "OMNI_LOG")
if not os.environ.keys().isdisjoint(_OBSERVED_BY):
    from omni_platforms.observe.startup import start

    start()
