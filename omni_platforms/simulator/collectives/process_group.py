"""A backend of `torch.distributed` for the simulated device: its collectives, over gloo."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from omni_platforms.simulator.collectives.exchange import Exchange, ExchangeWork, Start
from omni_platforms.simulator.collectives.progress import Progress
from omni_platforms.simulator.collectives.streams import CommStreams
from omni_platforms.simulator.runtime import Runtime

Tensors = Sequence[torch.Tensor]

if TYPE_CHECKING:

    class _ProcessGroup:
        """torch's class, whose methods have several forms each; those here are what torch calls."""

        def __init__(self, rank: int, size: int) -> None: ...

else:
    _ProcessGroup = dist.ProcessGroup


def _gloo(store: Any, name: str, rank: int, size: int, timeout: timedelta) -> Any:
    c10d: Any = dist
    return c10d.ProcessGroupGloo(c10d.PrefixStore(name, store), rank, size, timeout)


class SimulatedProcessGroup(_ProcessGroup):
    """One process of a group. Tensors on the CPU go to gloo as they are.

    A collective runs on an internal stream, which waits for the current stream;
    `wait` makes the current stream wait for it. Neither blocks the host. A
    failure, or gloo's timeout, is an asynchronous fault: it is raised at a later
    wait of the host. The options are gloo's: no averages.
    """

    def __init__(
        self, runtime: Runtime, store: Any, rank: int, size: int, timeout: timedelta
    ) -> None:
        super().__init__(rank, size)
        self._runtime = runtime
        # Two, because a device's collectives begin when the schedule says, between any of the host.
        self._gloo = _gloo(store, "device", rank, size, timeout)
        self._host_gloo = _gloo(store, "host", rank, size, timeout)
        self._streams = CommStreams(runtime)
        self._progress = Progress(runtime.scheduler)

    def getBackendName(self) -> str:
        """Return the backend's name."""
        from omni_platforms.simulator.collectives.backend import backend_name

        return backend_name(self._runtime.name)

    # Collectives --------------------------------------------------------------

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Replace each tensor by the reduction over the group."""
        opts = opts or dist.AllreduceOptions()
        return self._run(
            "all_reduce",
            tensors,
            tensors,
            lambda gloo, host: gloo.allreduce([host(x) for x in tensors], opts),
        )

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Replace each tensor by its reduction over the group."""
        works = [self.allreduce([tensor], opts) for tensor in tensors]
        return works[-1]  # one stream: the last one is done last

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """Replace each tensor by the one of the root."""
        return self._run(
            "broadcast",
            tensors,
            tensors,
            lambda gloo, host: gloo.broadcast([host(x) for x in tensors], opts),
        )

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """Replace the root's tensor by the reduction over the group."""
        return self._run(
            "reduce",
            tensors,
            tensors,
            lambda gloo, host: gloo.reduce([host(x) for x in tensors], opts),
        )

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        """Write the inputs of all processes into the outputs."""
        return self._run(
            "all_gather",
            inputs,
            [x for row in outputs for x in row],
            lambda gloo, host: gloo.allgather(
                [[host(x) for x in row] for row in outputs], [host(x) for x in inputs]
            ),
        )

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        """Write the inputs of all processes, one after the other, into `output`."""
        return self._run(
            "all_gather_into_tensor",
            [given],
            [output],
            lambda gloo, host: gloo._allgather_base(host(output), host(given)),
        )

    def reduce_scatter_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Any:
        """Reduce over the group, and write this process's part into `output`."""
        opts = opts or dist.ReduceScatterOptions()
        return self._run(
            "reduce_scatter_tensor",
            [given],
            [output],
            lambda gloo, host: gloo._reduce_scatter_base(host(output), host(given), opts),
        )

    def gather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any
    ) -> Any:
        """Write the inputs of all processes into the root's outputs."""
        return self._run(
            "gather",
            inputs,
            [x for row in outputs for x in row],
            lambda gloo, host: gloo.gather(
                [[host(x) for x in row] for row in outputs], [host(x) for x in inputs], opts
            ),
        )

    def scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any
    ) -> Any:
        """Write each process's part of the root's inputs into its output."""
        return self._run(
            "scatter",
            [x for row in inputs for x in row],
            outputs,
            lambda gloo, host: gloo.scatter(
                [host(x) for x in outputs], [[host(x) for x in row] for row in inputs], opts
            ),
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        """Exchange parts of `given`: part i goes to process i."""
        return self._run(
            "all_to_all_single",
            [given],
            [output],
            lambda gloo, host: gloo.alltoall_base(
                host(output), host(given), output_sizes, input_sizes
            ),
        )

    _allgather_base = all_gather_single  # the names of torch before 2.13
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single

    # Between two processes, and barriers ------------------------------------------

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> Any:
        """Send the tensors to process `to`."""
        return self._run(
            "send", tensors, [], lambda gloo, host: gloo.send([host(x) for x in tensors], to, tag)
        )

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> Any:
        """Receive the tensors from process `source`."""
        return self._run(
            "recv",
            [],
            tensors,
            lambda gloo, host: gloo.recv([host(x) for x in tensors], source, tag),
        )

    def barrier(self, opts: Any = None) -> Any:
        """Block the host until the current device is done, here and in all processes."""
        device = self._runtime.threads.device
        scheduler = self._runtime.scheduler
        scheduler.host_wait_for_all(scheduler.queues(device), "barrier")
        work = self._host_gloo.barrier()
        work.wait()
        return work

    def _run(self, label: str, reads: Tensors, writes: Tensors, start: Start) -> Any:
        tensors = [*reads, *writes]
        if tensors[0].device.type == "cpu":
            return start(self._host_gloo, lambda tensor: tensor)
        exchange = Exchange(self._runtime, self._gloo, reads, writes)
        end = exchange.enqueue(self._runtime, self._streams, self._progress, label, start)
        return ExchangeWork(self._runtime, label, end, writes)
