"""The table of mutants in the docs, and the record of every test that catches each.

`python -m tests.conformance.mutants.table` runs every test on every mutant, which takes
minutes, and writes both anew; with the names of mutants, it runs these only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.mutants.catalogue import JUSTIFIED, MUTANTS, suite_tests
from tests.conformance.mutants.mutant import Mutant

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "conformance-mutants.md"
RECORD = Path(__file__).with_name("caught.json")

_HEAD = """# Mutants of the conformance suite

A suite that stays green on a wrong platform proves nothing. So the conformance suite is run on
platforms that are wrong on purpose, and CI is red when one of them passes the test that is there
for it. They are planted in the simulated device (`sim`), in the Ascend plugin on its simulated
device (`npu`) and in a plugin of the host (`plugin`); none of them was run on hardware. The knob is
the fault of a device that `docs/simulator.md` lists, where there is one: K1 an event that is
ignored, K2 a copy outside the event, K3 a missed wake-up, K4 a wait before its record, K5 a refused
wait, K6 a hidden stream of collectives, K7 a late copy of ordinary memory, K8 pinning that fails,
K9 a device that is not set, K10 a stream on another device, K11 a method that is missing, K12 a
hidden wait of the host, K13 a stream context that two threads share.

Each mutant has one named test. *Others* counts those that catch it as well. This page is written by
`python -m tests.conformance.mutants.table`, which runs every test on every mutant.

| mutant | what is wrong | knob | on | caught by | others |
|---|---|---|---|---|---|
"""

_TAIL = """
## Tests that no mutant needs

Take away any other test, and a mutant would be certified to that test's tier. These stay for the
reason given:

| test | why it is there |
|---|---|
"""


def run_target(target: str, whole: bool, names: Sequence[str] = ()) -> dict[str, Any]:
    """Run the mutants of one target in a process of its own, and return what caught them.

    All of them, or those with one of `names`; every test on each when `whole`.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMNI_")}
    # The device must start in each fork, and not at once with torch.
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if target != "plugin":
        environment["OMNI_SIMULATE"] = target
    command = [sys.executable, "-m", "tests.conformance.mutants.run", target]
    done = subprocess.run(
        [*command, *(["--all"] if whole else []), *names],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def read_record() -> dict[str, list[str]]:
    """Return the tests that caught each mutant when every test was run on it."""
    found: dict[str, list[str]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def needed(record: dict[str, list[str]]) -> set[str]:
    """Return the tests without which some mutant would be certified to the test's own tier.

    A failed tier blocks those above it, so a test of a higher tier that fails on
    the same mutant is no second net: without the lower one, the mutant has its tier.
    """
    tiers = {test: tier_of(file) for test, file in suite_tests().items()}
    found = set()
    for caught in record.values():
        lowest = min(tiers[test] for test in caught)
        nets = [test for test in caught if tiers[test] == lowest]
        found.update(nets if len(nets) == 1 else [])
    return found


def tier_of(file: str) -> str:
    """Return the tier of a file of the suite by its name; that of several tiers is a T1."""
    return file.split("_")[1].upper() if file.startswith("test_t") else "T1"


def page(record: dict[str, list[str]]) -> str:
    """Return the page of the docs."""
    rows = "".join(_row(mutant, len(record[mutant.name]) - 1) for mutant in MUTANTS)
    reasons = "".join(f"| `{test}` | {JUSTIFIED[test]} |\n" for test in sorted(JUSTIFIED))
    return _HEAD + rows + _TAIL + reasons


def _row(mutant: Mutant, others: int) -> str:
    cells = (mutant.name, mutant.what, mutant.knob, mutant.target, f"`{mutant.caught_by}`", others)
    return "| " + " | ".join(map(str, cells)) + " |\n"


def main(names: Sequence[str]) -> None:
    """Run everything, write the record and the page, and say which tests are not needed."""
    found = read_record() if names else {}
    targets = {mutant.target for mutant in MUTANTS if not names or mutant.name in names}
    for target in sorted(targets):
        results = run_target(target, True, names)
        assert results.pop("")["caught"] == [], f"the suite is red on the right {target}"
        found.update({name: result["caught"] for name, result in results.items()})
    record = {mutant.name: found[mutant.name] for mutant in MUTANTS}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")
    print("needed by no mutant:", *sorted({*suite_tests()} - needed(record)))


if __name__ == "__main__":
    main(sys.argv[1:])
