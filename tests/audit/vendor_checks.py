"""The toy loop on one simulated device. Run as a program it prints "found it all"."""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omni_platforms.audit.patches import Patches
from omni_platforms.simulator import simulate
from tests.audit.late_telling import like_torchs, telling_late

STEPS = 2

# The simulator gives a result its shape by running these, and waits; a device does not.
SIMULATORS_OWN = ("latent[mask]", "output_size=4")


def check(simulation: Any, platform: Any, name: str, detail: str) -> None:
    """Audit the loop, and compare with the comments and with the simulator's own count."""
    from tests.audit import checks, toy_loop

    before = simulation.host_waits_of()
    report = checks.audit_the_loop(platform, name, STEPS, detail=detail)
    waited = simulation.host_waits_of() - before - 2  # two uploads before the audit
    rows = [site for site in report.sites if site.kind != "vendor"]
    unexplained = [
        site.source
        for site in report.sites
        if site.kind == "vendor" and not any(word in site.source for word in SIMULATORS_OWN)
    ]
    assert not unexplained, unexplained
    found = {key: n for key, n in checks.found(report).items() if key[1] != "vendor"}
    assert found == toy_loop.expected(device=True, full=detail == "full"), found
    inside = 0 if detail == "full" else 3 * STEPS  # copies in two look-ups and in printing
    own = len(SIMULATORS_OWN) * STEPS
    assert sum(site.waits for site in rows) == waited - own - inside, (detail, waited)
    confirmed = {site.kind for site in rows if "sync-debug" in site.seen_by}
    assert bool(confirmed) == (name == "npu" and detail == "full"), confirmed


def main(name: str) -> None:
    """Audit the loop on the device `name`, under the vendor's own platform."""
    simulation = simulate(name)
    import torch

    from tests.audit import toy_loop

    plugin = importlib.import_module(f"omni_platforms_{name}.plugin")
    platform = plugin.omni_platforms_create(name)
    toy_loop.Loop(name).step(0)  # the simulator learns shapes that depend on data
    check(simulation, platform, name, "full")
    if name == "npu":
        other_peoples_warnings(platform)
        read = torch.Tensor.item
        with telling_late() as late:
            check(simulation, platform, name, "full")
            waits_of_one_call(simulation, platform, late, read)
    print("found it all")


def waits_of_one_call(simulation: Any, platform: Any, late: Any, read: Any) -> None:
    """They are told of together, after all of them: none is found twice, and none is lost.

    `read` reads a number and tells of nothing itself.
    """
    import torch

    from omni_platforms.audit import SyncAudit
    from omni_platforms.audit.untold import Untold

    tensor = torch.ones(3, device="npu").sum()

    def reading_twice(unseen: int) -> None:
        read(tensor)
        read(tensor)
        for _ in range(unseen):
            simulation.runtime.scheduler.sync_debug.check("planted")

    call = late(like_torchs(reading_twice))

    def found(*unseen: int) -> dict[str, int]:
        with SyncAudit(platform, detail="full") as audit:
            for each in unseen:
                call(each)
        return {site.kind: site.count for site in audit.report().sites}

    assert found(0, 0) == {"scalar_read": 4}
    assert found(0, 1, 0) == {"scalar_read": 6, "vendor": 1}
    with planted(Untold, "expect", lambda self, frame, site, waits: None):
        assert found(0, 0) == {"scalar_read": 4, "vendor": 4}
    with planted(Untold, "explain", lambda self, frame: self._sites[0]):
        assert found(0, 1, 0) == {"scalar_read": 6}


@contextmanager
def planted(owner: Any, name: str, bug: Any) -> Iterator[None]:
    """Let `owner.name` be `bug` meanwhile."""
    patches = Patches()
    patches.replace(owner, name, bug)
    try:
        yield
    finally:
        patches.close()


def other_peoples_warnings(platform: Any) -> None:
    """`warnings.catch_warnings` of a test runner neither hides waits nor keeps our hook."""
    import torch

    from omni_platforms.audit import SyncAudit

    tensor = torch.ones(3, device="npu")
    shown = warnings._showwarnmsg  # type: ignore[attr-defined]
    filters = list(warnings.filters)
    with (
        warnings.catch_warnings(record=True) as caught,
        SyncAudit(platform, detail="full") as audit,
    ):
        warnings.simplefilter("ignore")
        audit.step()  # puts the filter back
        tensor.sum().item()
        with warnings.catch_warnings(record=True) as inner:
            warnings.simplefilter("always")
            tensor.cpu()
            warnings.warn("somebody else's", stacklevel=1)
    assert [str(each.message) for each in inner] == ["somebody else's"], inner
    assert not caught, caught
    assert [site.seen_by[-1] for site in audit.report().sites] == ["sync-debug"] * 2
    nested_and_other_threads(platform)
    assert warnings._showwarnmsg is shown  # type: ignore[attr-defined]
    assert list(warnings.filters) == filters
    assert torch.get_device_module("npu").get_sync_debug_mode() == 0


def nested_and_other_threads(platform: Any) -> None:
    """Each audit hears of its own thread's waits, and the mode lasts as long as any of them."""
    import torch

    from omni_platforms.audit import SyncAudit

    tensor = torch.ones(3, device="npu")
    begun, ended = threading.Event(), threading.Event()
    theirs = SyncAudit(platform, detail="full")

    def other() -> None:
        with theirs:
            begun.set()
            ended.wait(30)
            tensor.tolist()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(30)
    with SyncAudit(platform, detail="full") as outer, SyncAudit(platform, detail="full") as inner:
        tensor.sum().item()
        warnings.warn("called a synchronizing operation (planted)", stacklevel=1)
    ended.set()
    thread.join()
    for audit in (outer, inner):
        sites = {site.kind: site.seen_by for site in audit.report().sites}
        assert sites == {"scalar_read": ["operator", "sync-debug"], "vendor": ["sync-debug"]}
    assert [s.seen_by for s in theirs.report().sites] == [["call", "sync-debug"]]


if __name__ == "__main__":
    main(sys.argv[1])
