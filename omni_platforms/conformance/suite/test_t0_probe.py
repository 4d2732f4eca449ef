"""T0: the plugin's probe, in processes of its own. It needs no device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from omni_platforms.conformance.child import ProbeRun, child_environment, run_probe
from omni_platforms.conformance.facts import IDENTITIES
from omni_platforms.conformance.marks import remedy, tier
from omni_platforms.conformance.subject import Subject
from omni_platforms.platform.probe import ProbeStatus

pytestmark = tier("T0")

QUICK_SECONDS = 0.2


@pytest.fixture(scope="module")
def probed(subject: Subject) -> ProbeRun:
    """One call of the plugin's own probe, in a fresh process that simulates nothing."""
    return run_probe(subject.entry.value)


@remedy("`omni-platforms list` and `omni-platforms doctor` say what is missing on this machine.")
def test_a_device_is_there(subject: Subject, require_device: bool) -> None:
    """The probe finds the device that is to be tested."""
    if not subject.available and not require_device:
        assert subject.report.status is not ProbeStatus.BROKEN, subject.report.reason
        pytest.skip(f"no device: {subject.report.reason}")
    assert subject.available, subject.report.reason


@remedy("Catch what the vendor's libraries raise in the probe, and answer BROKEN with the cause.")
def test_the_probe_answers_for_its_name(subject: Subject, probed: ProbeRun) -> None:
    """`omni_platforms_probe()` raises nothing and returns a `Probe` of the entry point's name."""
    assert not probed.error, probed.error
    # The plugin of simulated devices answers for whichever one is simulated.
    assert probed.answer["name"] == subject.name


@remedy("Read files and driver libraries; leave SDKs, contexts and network to create().")
def test_the_probe_is_quick(subject: Subject, probed: ProbeRun) -> None:
    """A probe answers within 200 ms."""
    again = (run_probe(subject.entry.value).seconds for _ in range(2))
    fastest = probed.seconds
    while fastest >= QUICK_SECONDS and (another := next(again, None)) is not None:
        fastest = min(fastest, another)
    assert fastest < QUICK_SECONDS, f"it took {fastest:.2f} s"


@remedy("Import torch and the vendor's package inside omni_platforms_create().")
def test_the_probe_imports_no_sdk(subject: Subject, probed: ProbeRun) -> None:
    """A probe imports neither torch nor the vendor's package, and opens no device."""
    packages = IDENTITIES[subject.name].packages if subject.name in IDENTITIES else ()
    forbidden = {"torch", *packages}
    assert not forbidden & set(probed.imported), sorted(forbidden & set(probed.imported))
    assert not probed.device_files


@remedy("Write nothing to stdout or stderr; use logging.")
def test_the_probe_prints_nothing(probed: ProbeRun) -> None:
    """A probe prints nothing."""
    assert probed.printed == ""


_FORK = """
import os, sys
from omni_platforms.platform.discovery import discover
from omni_platforms.platform.selection import create_platform
(report,) = discover(only=sys.argv[1])[-1:]
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
platform = create_platform(report)
import torch
total = int(torch.ones(3, device=platform.device(0)).sum())
os._exit(0 if total == 3 else 5)
"""


@remedy("Create no device context in the probe: count devices through files or the driver's API.")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_after_the_probe_can_use_the_device(subject: Subject) -> None:
    """After a probe, a forked child can use the device."""
    if not subject.available:
        pytest.skip(f"no device: {subject.report.reason}")
    done = subprocess.run(
        [sys.executable, "-c", _FORK, subject.name],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@remedy("Parse the variable as the vendor's runtime does.")
def test_the_probe_heeds_the_visibility_variable(subject: Subject) -> None:
    """The variable `device_control_env_var` hides devices from the probe."""
    platform = subject.made
    if platform is None:
        pytest.skip(f"no device: {subject.report.reason}")
    if platform.device_control_env_var is None:
        pytest.skip("no such variable is declared")
    if subject.simulation is not None:
        pytest.skip("simulated devices are not what the vendor's probe counts")
    variable = platform.device_control_env_var
    one = run_probe(subject.entry.value, **{variable: "0"}).answer
    none = run_probe(subject.entry.value, **{variable: "99"}).answer
    assert (one["device_count"], none["device_count"]) == (1, 0)


def test_the_create_hook_makes_its_own_name_only(subject: Subject) -> None:
    """`omni_platforms_create(name)` returns `None` for another plugin's name."""
    if subject.report.hooks is None:
        pytest.skip(f"not loaded: {subject.report.reason}")
    made = subject.report.hooks.hook.omni_platforms_create(name=f"not-{subject.name}")
    assert made is None
