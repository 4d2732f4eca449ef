"""Mutants of a plugin's module, whose probe runs in processes of its own: what T0 is for."""

from __future__ import annotations

import contextlib
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.inline import NAME, installed
from tests.conformance.inline import RIGHT as PLAIN
from tests.conformance.mutants.mutant import Mutant, Place, Plant

VARIABLE = "ACME_VISIBLE_DEVICES"
_HIDES = f"""
    import os
    if os.environ.get({VARIABLE!r}, "0") != "0":
        return Probe({NAME!r}, ProbeStatus.ABSENT, "hidden by {VARIABLE}")
"""
RIGHT = PLAIN.replace(
    "def omni_platforms_probe():\n", f"def omni_platforms_probe():{_HIDES}"
).replace('"acme"}', f'"acme", "device_control_env_var": {VARIABLE!r}}}')
"""The plugin without a fault: a host by another name, which a variable can hide."""


def probing(code: str) -> Plant:
    """Return a plant whose probe does `code` first."""
    head = "def omni_platforms_probe():\n"
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    return planted(RIGHT.replace(head, f"{head}{body}\n"))


def planted(source: str) -> Plant:
    """Return a plant of a plugin with this source; there is no device to plant anything in."""

    @contextlib.contextmanager
    def plant(place: Place | None) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder, installed(Path(folder), source):
            yield

    return plant


MUTANTS = [
    Mutant("probe-raises", "the probe raises what a library raised",
           "test_the_probe_answers_for_its_name", probing("raise KeyError('libacme.so')")),
    Mutant("probe-of-another-name", "the probe answers for another name",
           "test_the_probe_answers_for_its_name",
           planted(RIGHT.replace(f"Probe({NAME!r}", "Probe('emca'"))),
    Mutant("broken-device", "the probe finds the device BROKEN",
           "test_a_device_is_there", planted(RIGHT.replace("AVAILABLE", "BROKEN"))),
    Mutant("slow-probe", "the probe takes a quarter of a second",
           "test_the_probe_is_quick", probing("import time; time.sleep(0.25)")),
    Mutant("probe-imports-torch", "the probe imports torch",
           "test_the_probe_imports_no_sdk", probing("import torch")),
    Mutant("probe-opens-a-device", "the probe opens a device file",
           "test_the_probe_imports_no_sdk",
           probing("""
               import contextlib
               with contextlib.suppress(OSError):
                   open("/dev/davinci_manager").close()
           """)),
    Mutant("probe-prints", "the probe prints what it finds",
           "test_the_probe_prints_nothing", probing("print('one acme')")),
    Mutant("probe-creates-a-context", "after the probe a forked child cannot use the device",
           "test_a_fork_after_the_probe_can_use_the_device",
           probing("import os; os.register_at_fork(after_in_child=lambda: os._exit(70))")),
    Mutant("probe-blind-to-the-variable", "the probe counts devices that the variable hides",
           "test_the_probe_heeds_the_visibility_variable", planted(RIGHT.replace(_HIDES, "\n"))),
    Mutant("creates-every-name", "`omni_platforms_create()` makes every name's platform",
           "test_the_create_hook_makes_its_own_name_only",
           planted(RIGHT.replace(f"if name != {NAME!r}", "if False"))),
]  # fmt: skip
MUTANTS = [Mutant(m.name, m.what, m.caught_by, m.plant, m.knob, "plugin") for m in MUTANTS]
