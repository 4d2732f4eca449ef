"""Whether the device still answers after an error: a lost one ends the worker."""

from __future__ import annotations

import torch

from omni_platforms.errors import DeviceLostError, OmniError, SimulatedFaultError
from omni_platforms.platform.interface import OmniPlatform


def lost_device(
    error: BaseException, platform: OmniPlatform, device: torch.device
) -> DeviceLostError | None:
    """Return the error that ends the worker, or `None` when `error` was one request's only.

    Only errors that a device can be the cause of make the host wait for it. The
    first wait may report what failed before it; a device that fails twice is lost.
    """
    if isinstance(error, DeviceLostError):
        return error
    ours = isinstance(error, OmniError) and not isinstance(error, SimulatedFaultError)
    if ours or not isinstance(error, RuntimeError):
        return None
    last = _failure(platform, device) and _failure(platform, device)
    if last is None:
        return None
    lost = DeviceLostError(
        f"{device} is lost: after {type(error).__name__} every wait for it fails ({last}). Start "
        "the executor anew; if that fails too, reset the device."
    )
    lost.__cause__ = error
    return lost


def _failure(platform: OmniPlatform, device: torch.device) -> str | None:
    try:
        platform.synchronize(device)
    except Exception as error:  # noqa: BLE001  whatever a lost device raises
        return f"{type(error).__name__}: {error}"
    return None
