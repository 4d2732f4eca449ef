"""`SyncAudit`: the waits of one thread between `with` and its end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any, Literal

from omni_platforms.audit import hooks
from omni_platforms.audit.digest import digest
from omni_platforms.audit.here import Seen, allowed_reasons, here
from omni_platforms.audit.idle import Profile
from omni_platforms.audit.kinds import Kind, covered_kinds
from omni_platforms.audit.operators import READ_OPERATOR
from omni_platforms.audit.operators import SOURCE as OPERATOR
from omni_platforms.audit.report import AuditReport, Run, make_report
from omni_platforms.audit.sites import Site, Sites, take
from omni_platforms.audit.untold import Untold
from omni_platforms.audit.vendor import SOURCE as VENDOR
from omni_platforms.audit.vendor import VendorWarnings
from omni_platforms.audit.worlds import CpuWorld, DeviceWorld, HostPropagation
from omni_platforms.errors import AuditError
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.platform.selection import current_platform

_INACTIVE = contextlib.nullcontext()

Detail = Literal["counts", "full"]


class SyncAudit:
    """Finds what makes the host wait for the device, on the thread that enters it.

    `platform` is the current one unless given. On the CPU platform, or with
    `cpu_as_device=True`, CPU tensors are taken as device tensors: the report
    then says what *would* wait. `detail="counts"` watches the reading operators,
    Python's copies and the synchronizing calls. `"full"` also watches copies
    inside operators, and the vendor's sync-debug mode where there is one (which
    is one for the process). `profile=True` runs torch's profiler as well, which
    tells how long the device was idle after each wait. After `max_steps` steps
    nothing more is taken.

    Used as a context manager, once; `report()` may be called during and after.
    Audits nest: each takes what is inside it. Other threads, autograd's own
    among them, are not audited. Everything on this thread is, whichever asyncio
    task it belongs to. Entering raises `AuditError` on a thread or beside an
    audit that looks at something else, and when entered twice.
    """

    def __init__(
        self,
        platform: OmniPlatform | None = None,
        *,
        detail: Detail = "counts",
        cpu_as_device: bool | None = None,
        profile: bool = False,
        max_steps: int | None = None,
    ) -> None:
        if detail not in ("counts", "full"):
            raise ValueError(f"detail must be 'counts' or 'full', not {detail!r}")
        self._platform = platform
        self._detail: Detail = detail
        self._cpu_as_device = cpu_as_device
        self._wants_profile = profile
        self._max_steps = max_steps
        self._enough = False
        self.reads = 0
        """How often a number was read, also inside other calls."""
        self.operators: Counter[str] = Counter()
        """How often each watched operator made the host wait, also inside other calls."""
        self._sites = Sites()
        self._steps: list[float] = []
        self._step_began: float | None = None
        self._now = 0
        """The number of the step that runs; 0 outside all steps."""
        self._untold = Untold()
        self._request: Any = None
        self._requests: set[Any] = set()
        self._outputs: dict[str, list[str]] = {}
        self._began = 0.0
        self._wall = 0.0
        self._thread: int | None = None
        self._open = False
        self._mode: hooks.Mode | None = None
        self._propagation: HostPropagation | None = None
        self._vendor: VendorWarnings | None = None
        self._profile: Profile | None = None

    # Entering and leaving -----------------------------------------------------

    def __enter__(self) -> SyncAudit:
        if self._thread is not None:
            raise AuditError("a SyncAudit is entered once: make a new one for another run")
        platform = self._platform or current_platform()
        as_device = self._cpu_as_device
        as_device = platform.device_type == "cpu" if as_device is None else as_device
        self._mode = hooks.Mode(platform, as_device, self._detail == "full")
        self._vendor = hooks.put_in(self._mode)
        self._thread = threading.get_ident()
        try:
            self._begin(platform, as_device)
        except BaseException:
            self._end()
            raise
        self._began = time.perf_counter()
        return self

    def _begin(self, platform: OmniPlatform, as_device: bool) -> None:
        self._open = True
        if not here.audits:
            here.world = CpuWorld() if as_device else DeviceWorld(platform.device_type)
            if isinstance(here.world, CpuWorld):
                self._propagation = HostPropagation(here.world)
                self._propagation.__enter__()  # type: ignore[no-untyped-call]
        if self._wants_profile:
            profile = Profile(platform)
            profile.begin()
            self._profile, here.mark = profile, profile.mark
        here.audits = (*here.audits, self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if threading.get_ident() != self._thread:
            raise AuditError("a SyncAudit ends on the thread that entered it; it goes on there")
        self._end_step()
        if not self._enough:
            self._wall = time.perf_counter() - self._began
        self._end()

    def _end(self) -> None:
        if not self._open:
            return
        self._open = False
        here.audits = tuple(audit for audit in here.audits if audit is not self)
        try:
            if self._profile is not None:
                here.mark = None
                self._profile.end()
        finally:
            if self._propagation is not None:
                self._propagation.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            if not here.audits:
                here.world = None
            hooks.take_out()

    # Steps --------------------------------------------------------------------

    def step(self, request: Any = None) -> AbstractContextManager[Any]:
        """Begin a step; it ends when the next begins, or with the block of `with audit.step():`.

        `request` names what the step belongs to; it is hashable. Does not block.
        """
        self._end_step()
        if self._max_steps is not None and len(self._steps) >= self._max_steps:
            self._stop()
            return _INACTIVE
        self._request = request
        self._requests.add(request)
        self._steps.append(0.0)
        self._now = len(self._steps)
        if self._vendor is not None:
            self._vendor.assert_hook()
            self._untold.forget()
        self._step_began = time.perf_counter()
        return _StepEnd(self, self._now)

    def _stop(self) -> None:
        """Take no more: `max_steps` steps are over."""
        if not self._enough:
            self._enough = True
            self._wall = time.perf_counter() - self._began

    def _end_step(self) -> None:
        if self._step_began is not None:
            self._steps[-1] += time.perf_counter() - self._step_began
            self._step_began = None
            self._now = 0

    @property
    def steps(self) -> int:
        """How many steps have begun."""
        return len(self._steps)

    # What the hooks call ------------------------------------------------------

    def record(
        self, frame: FrameType, seen: Seen, waits: int, blocked: float, at: int | None
    ) -> None:
        """Take one call that waited. Called on the audited thread, by the hooks."""
        if self._enough:
            return
        reasons = allowed_reasons.get()
        site = self._sites.at(frame, seen.kind, reasons[-1] if reasons else None)
        waits = take(site, seen, waits, blocked, self._now, self._request)
        if self._vendor is not None:
            self._compare(frame, site, seen.source, waits)
        if at is not None and self._profile is not None:
            self._profile.belongs(at, site)

    def record_number(
        self, frame: FrameType, how: tuple[Kind, str], number: Any, tensor: Any, blocked: float
    ) -> None:
        """Take one number that was read from `tensor`; `how` is the kind and who saw it.

        What happens most, after a wait, when nothing is in the processor's caches:
        it calls as little as can be.
        """
        self.reads += 1
        if self._enough:
            return
        kind, source = how
        reasons = allowed_reasons.get()
        allowed = reasons[-1] if reasons else None
        site = self._sites.quick.get((id(frame.f_code), frame.f_lasti, kind, allowed))
        if site is None:
            site = self._sites.at(frame, kind, allowed)
            site.nbytes = tensor.element_size()
        site.count += 1
        site.waits += 1
        site.blocked += blocked
        if site.seen_last is not source:
            site.seen_last = source
            site.sources.add(source)
        if self._now:
            site.in_steps += 1
            token = number if number == number else "nan"
            site.constancy.add(self._now, self._request, token, number)
        if self._vendor is not None:
            self._compare(frame, site, source, 1)

    def _compare(self, frame: FrameType, site: Site, source: str, waits: int) -> None:
        """Compare with what the vendor told of inside the last call; of operators it tells late."""
        if here.told:
            site.sources.add(VENDOR)
        if source == OPERATOR and waits > here.told:
            self._untold.expect(frame, site, waits - here.told)

    def vendor_saw(self, frame: FrameType, seen: Seen) -> None:
        """Take a wait that the vendor told of outside a watched call, perhaps of one just over."""
        site = self._untold.explain(frame)
        if site is not None:
            site.sources.add(seen.source)
        else:
            here.told = 0
            self.record(frame, seen, 1, 0.0, None)

    def note_output(self, value: Any, name: str = "output") -> None:
        """Keep a digest of what the program computed; see `omni_platforms.audit.output`."""
        running, now = self._step_began, self._now
        self._end_step()
        busy, here.busy = here.busy, True
        try:
            self._outputs.setdefault(name, []).append(digest(value))
        finally:
            here.busy = busy
            if running is not None:
                self._step_began, self._now = time.perf_counter(), now

    # Results ------------------------------------------------------------------

    def report(self) -> AuditReport:
        """Return what was seen so far. Raises `AuditError` before the audit has begun."""
        if self._mode is None:
            raise AuditError("this audit has not begun: use it as `with SyncAudit() as audit:`")
        if self._profile is not None:
            self._profile.attribute(self._sites)
        mode = self._mode
        return make_report(
            self._sites,
            Run(
                platform=mode.platform.name,
                cpu_as_device=mode.cpu_as_device,
                detail=self._detail,
                covered=covered_kinds(
                    cpu_as_device=mode.cpu_as_device,
                    full=mode.full,
                    vendor=self._vendor is not None,
                ),
                step_seconds=list(self._steps),
                requests=len(self._requests),
                wall=self._wall or time.perf_counter() - self._began,
                outputs=dict(self._outputs),
                operators={**({READ_OPERATOR: self.reads} if self.reads else {}), **self.operators},
                runtime_events=None if self._profile is None else self._profile.runtime_events(),
            ),
        )


class _StepEnd(AbstractContextManager[None]):
    """Ends the step that it was made for, unless another has begun."""

    __slots__ = ("_audit", "_number")

    def __init__(self, audit: SyncAudit, number: int) -> None:
        self._audit = audit
        self._number = number

    def __exit__(self, *exc_info: object) -> None:
        if self._audit.steps == self._number:
            self._audit._end_step()
