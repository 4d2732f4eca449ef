"""A double-buffered prefetcher that forgets one wait, and how `explore` finds it.

    python examples/find_a_race.py           # prints which wait is missing; exit status 1
    python examples/find_a_race.py --fixed   # with that wait: nothing to report; exit status 0

It needs a C++ compiler (for the simulated device) and no accelerator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from omni_platforms.simulator import explore, simulate

DEVICE = "sim"


def prefetch(batches: list[torch.Tensor], fixed: bool) -> Iterator[torch.Tensor]:
    """Yield each batch on the device; the next one is uploaded while this one is in use."""
    upload, slots = torch.Stream(device=DEVICE), [torch.empty(4, device=DEVICE) for _ in range(2)]
    upload.wait_stream(torch.accelerator.current_stream())  # where the slots were allocated
    used: list[torch.Event] = []

    def start(step: int) -> torch.Event:
        if fixed and step >= len(slots):
            upload.wait_event(used[step - len(slots)])  # the model may still read this slot
        with upload:
            slots[step % 2].copy_(batches[step], non_blocking=True)
            return upload.record_event()

    ready = start(0)
    for step in range(len(batches)):
        torch.accelerator.current_stream().wait_event(ready)
        if step + 1 < len(batches):
            ready = start(step + 1)
        yield slots[step % 2]
        used.append(torch.accelerator.current_stream().record_event())


def scenario(fixed: bool) -> None:
    """Sum up all batches on the device and compare with the sum that they have."""
    batches = [torch.full((4,), float(step)).pin_memory() for step in range(4)]
    total = torch.zeros(4, device=DEVICE)
    for batch in prefetch(batches, fixed):
        total += batch
    assert total.tolist() == [6.0] * 4, f"the batches add up to {total.tolist()}"


def main() -> int:
    """Explore the scenario and print the report; return 1 when it has a bug."""
    simulate(DEVICE)
    found = explore(lambda: scenario("--fixed" in sys.argv[1:]))
    print(found)
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
