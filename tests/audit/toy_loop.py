"""A toy diffusion loop with a planted wait of every kind, each on a line that says so.

`# wait: KIND xN` is what an audit must find on that line in each step; `device:`
in front of the kind means "only with a device, real or simulated", and `full:`
"only with detail='full'". A line without such a comment must not be found.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch

from omni_platforms import audit

SIZE = 8
_EXPECTED = re.compile(r"# wait: (?:(cpu|device|full):)?(\w+) x(\d+)$")


def expected(*, device: bool, full: bool = False) -> dict[tuple[int, str], int]:
    """Return `{(line, kind): count a step}`, read off this file's comments."""
    where = {None, "device" if device else "cpu", "full" if full and device else None}
    found = {}
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        match = _EXPECTED.search(line)
        if match and match[1] in where:
            found[number, match[2]] = int(match[3])
    return found


class Loop:
    """The loop's tensors and one step of it; `device` is a torch device or "cpu"."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.latent = torch.arange(float(SIZE), device=device) - 3
        self.weight = torch.full((SIZE,), 0.5, device=device)
        self.repeats = torch.tensor([1, 2, 1], device=device)
        self.sigma = torch.tensor(0.25, device=device)
        self.real = device != "cpu"
        self.host = torch.empty(SIZE, device="cpu")
        self.module: Any = torch.get_device_module(device)
        if self.real:
            self.pinned = torch.empty(SIZE, device="cpu", pin_memory=True)
            self.event = torch.Event(device)

    def step(self, number: int) -> None:
        """Run one step of the loop."""
        self.latent = self.latent * self.weight + self.latent.abs() + number
        self.read()
        self.copy_out()
        self.shapes()
        self.upload(number)
        self.free()
        self.synchronize()

    def read(self) -> None:
        """Numbers and truth values."""
        latent = self.latent
        latent.sum().item()  # wait: scalar_read x1
        self.sigma.item()  # wait: scalar_read x1
        float(latent.amax())  # wait: scalar_read x1
        int(latent.argmax())  # wait: scalar_read x1
        [5, 6, 7, 8, 9, 10, 11, 12][latent.argmax()]  # wait: scalar_read x1
        latent[: latent.argmax()]  # wait: scalar_read x1
        if (latent < -1e6).any():  # wait: truth_value x1
            raise AssertionError(latent)
        bool(latent.amin() > 1e9)  # wait: truth_value x1
        torch.equal(latent, self.weight)  # wait: truth_value x1
        for position in range(4):
            latent[position].item()  # wait: scalar_read x4

    def copy_out(self) -> None:
        """Whole tensors."""
        latent = self.latent
        host = latent.cpu()  # wait: cpu x1
        latent.to("cpu")  # wait: to_cpu x1
        latent.to(torch.device("cpu"))  # wait: to_cpu x1
        latent.to(device="cpu", dtype=torch.float16)  # wait: to_cpu x1
        latent.tolist()  # wait: tolist x1
        latent.numpy(force=True)  # wait: numpy x1
        print(self.repeats, file=_Nowhere())  # wait: print x1
        f"{latent.sum()}"  # wait: print x1
        self.host.copy_(latent)  # wait: d2h_blocking x1
        self.host.copy_(latent, non_blocking=True)  # wait: d2h_pageable_async x1
        host.sum().item()
        float(host[0])
        if host.isnan().any():
            raise AssertionError(host)
        host.tolist()

    def shapes(self) -> None:
        """Operators whose result's shape depends on data."""
        latent = self.latent
        mask = latent > 2
        mask.nonzero()  # wait: nonzero x1
        torch.where(mask)  # wait: nonzero x1
        latent[mask]  # wait: mask_index x1
        torch.unique(latent)  # wait: unique x1
        torch.unique_consecutive(latent)  # wait: unique x1
        torch.masked_select(latent, mask)  # wait: masked_select x1
        torch.repeat_interleave(self.repeats)  # wait: repeat_interleave x1
        torch.bincount(self.repeats)  # wait: data_shape x1
        torch.repeat_interleave(self.repeats, output_size=4)

    def upload(self, number: int) -> None:
        """From the host to the device."""
        torch.tensor([1.0, 2.0], device=self.device)  # wait: tensor_from_host x1
        torch.tensor([float(number)], device=self.device)  # wait: tensor_from_host x1
        torch.tensor([1.0, 2.0]).to(self.device)  # wait: h2d_pageable x1
        zeros = torch.zeros(2, device="cpu")  # Python 3.10 only tells lines apart
        zeros.to(self.device)  # wait: h2d_pageable x1
        self.weight.copy_(torch.full((SIZE,), 0.5, device="cpu"))  # wait: h2d_pageable x1
        if self.real:
            self.latent.copy_(self.pinned.fill_(1.0))  # wait: device:h2d_blocking x1
            self.latent[[0, 1]]  # wait: full:operator_copy x1
            self.latent[torch.tensor([0, 1])]  # wait: full:operator_copy x1

    def free(self) -> None:
        """What looks like a wait and is none."""
        latent = self.latent
        latent.to(self.device)
        latent.to(torch.float16)
        torch.where(latent > 0, latent, 0.0)
        latent.masked_fill(latent > 0, 0.0)
        latent[2:4]
        latent[:, None]
        latent.clone().copy_(latent)
        torch.full((2,), 3.0, device=self.device)
        latent.to("cpu", non_blocking=True)
        torch.tensor([1.0, 2.0]).sum().item()
        torch.empty(0, device=self.device).cpu()
        f"{latent.shape} {latent.dtype} {latent.device}"
        if self.real:
            self.pinned.copy_(latent, non_blocking=True)
            self.latent.copy_(self.pinned, non_blocking=True)
            self.event.record()
            self.event.query()

    def synchronize(self) -> None:
        """By name."""
        self.module.synchronize()  # wait: device_synchronize x1
        if self.real:
            torch.accelerator.current_stream().synchronize()  # wait: device:stream_synchronize x1
            self.event.synchronize()  # wait: device:event_synchronize x1
            self.module.empty_cache()  # wait: device:allocator_flush x1
        else:
            self.module.Event().synchronize()  # wait: cpu:event_synchronize x1


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)


def run(device: str, steps: int) -> None:
    """Run the loop as a program does."""
    loop = Loop(device)
    for number in range(steps):
        with audit.step():
            loop.step(number)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
