"""The audit of host synchronizations: which lines make the host wait for the device::

    from omni_platforms import audit

    with audit.SyncAudit() as found:
        for _ in range(50):
            with audit.step():
                denoise()
    print(found.report().count)

`step`, `output` and `allow_sync` cost next to nothing outside an audit, and
naming them does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omni_platforms._lazy import lazy_names

if TYPE_CHECKING:
    from omni_platforms.audit.kinds import Kind
    from omni_platforms.audit.marks import allow_sync, output, step
    from omni_platforms.audit.report import AuditReport, SiteReport
    from omni_platforms.audit.session import SyncAudit

__all__ = ["AuditReport", "Kind", "SiteReport", "SyncAudit", "allow_sync", "output", "step"]

_ROOM = "omni_platforms.audit."
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AuditReport": _ROOM + "report",
        "Kind": _ROOM + "kinds",
        "SiteReport": _ROOM + "report",
        "SyncAudit": _ROOM + "session",
        "allow_sync": _ROOM + "marks",
        "output": _ROOM + "marks",
        "step": _ROOM + "marks",
    },
)
