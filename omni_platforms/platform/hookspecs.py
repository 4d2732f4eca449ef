"""The two hooks that a vendor plugin implements.

A plugin is a module (or object) named by one entry point in the group
`omni_platforms`; it marks its functions with `hookimpl`::

    from omni_platforms.platform import Probe, ProbeStatus, hookimpl

    @hookimpl
    def omni_platforms_probe() -> Probe: ...

    @hookimpl
    def omni_platforms_create(name): ...

Importing this module imports pluggy and nothing of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

from omni_platforms.platform.probe import Probe

if TYPE_CHECKING:
    from omni_platforms.platform.interface import OmniPlatform

PROJECT = "omni_platforms"
ENTRY_POINT_GROUP = "omni_platforms"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def omni_platforms_probe() -> Probe:  # type: ignore[empty-body]
    """Say whether this plugin's device is there.

    Called once per process on a helper thread. Must answer within 200 ms,
    import no vendor SDK and no torch, create no device context, keep a later
    `fork()` usable, and print nothing. Anything that it raises makes the
    plugin BROKEN with that as its cause.
    """


@hookspec(firstresult=True)
def omni_platforms_create(name: str) -> OmniPlatform | None:
    """Make the platform called `name`, or return `None` when it is another plugin's.

    Called once, after the choice fell on this plugin; may import torch and the
    vendor's SDK.
    """
