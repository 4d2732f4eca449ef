"""Every operator without a kernel of its own: shapes now, data when the task runs.

The data is computed by torch's CPU kernels on the device's own bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.simulator.operators import shapes
from omni_platforms.simulator.operators.call import Call
from omni_platforms.simulator.operators.kernel import Kernel, store
from omni_platforms.simulator.operators.overlap import check_overlap, check_sizes
from omni_platforms.simulator.operators.randomness import DefaultGenerators
from omni_platforms.simulator.operators.refusals import refuse_by_name, refuse_results
from omni_platforms.simulator.operators.regions import (
    Region,
    all_spans,
    device_region,
    leaves,
    tree_map,
)
from omni_platforms.simulator.operators.shape_cache import ShapeCache
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import Task


class Fallback:
    """Runs operators for one simulated accelerator. Called on any thread."""

    def __init__(self, runtime: Runtime, generators: DefaultGenerators) -> None:
        self._runtime = runtime
        self._generators = generators
        self._shapes = ShapeCache()

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Run `op`. Blocks only where its results' shapes depend on the data."""
        refuse_by_name(op)
        call = Call(self._runtime, op, args, kwargs)
        if call.is_view:
            return self._view(call)
        check_overlap(call)
        meta = self._shapes.get(call, shapes.infer)
        if meta is None and (not call.written or call.out):
            return self._at_once(call)
        refuse_results(op, meta)
        check_sizes(call, meta)
        results = self._results(call, meta)
        self._submit(call, self._kernel(call, call.kwargs), results)
        return results

    # Views --------------------------------------------------------------------

    def _view(self, call: Call) -> Any:
        """Compute the layout on CPU tensors over the same bytes, and apply it to the device's."""

        def to_cpu(value: Any) -> Any:
            return self._region(value).tensor() if call.is_mine(value) else value

        base = call.tensors[0]

        def to_device(value: Any) -> Any:
            return _same_view(base, value) if isinstance(value, torch.Tensor) else value

        done = call.op(*tree_map(to_cpu, call.args), **tree_map(to_cpu, call.kwargs))
        return tree_map(to_device, done)

    # Results ------------------------------------------------------------------

    def _results(self, call: Call, meta: Any) -> Any:
        """Return what the operator returns: written arguments, resized, or fresh tensors."""
        if call.out:
            for target, shape in zip(call.out, _tensors(meta), strict=False):
                if target.size() != shape.size():
                    target.resize_(shape.size())
        returns = call.op._schema.returns
        if not returns:
            return None
        found = [meta] if len(returns) == 1 else list(meta or [None] * len(returns))
        written = iter(self._written_in_order(call))
        results = [
            next(written) if result.alias_info is not None else self._fresh(call, value)
            for result, value in zip(returns, found, strict=True)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def _written_in_order(self, call: Call) -> list[Any]:
        """Return the written arguments as passed (a tensor, or a list of them)."""
        found = []
        for place, argument in enumerate(call.op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                found.append(call.argument(place, argument))
        return found

    def _fresh(self, call: Call, meta: Any) -> Any:
        device = call.torch_device()

        def allocate(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.device.type != "meta":
                return value
            return torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device=device
            )

        return tree_map(allocate, meta)

    # Tasks --------------------------------------------------------------------

    def _kernel(self, call: Call, kwargs: dict[str, Any]) -> Kernel:
        kernel = Kernel(call, kwargs, self._runtime.memory, self._generators)
        capture = self._runtime.current_queue(call.device).capture
        if capture is not None and kernel.is_random:
            capture.before_replay.append(kernel.draw)
        return kernel

    def _submit(self, call: Call, kernel: Callable[[], Any], results: Any) -> Task:
        """Queue the kernel, and the copies of its results into the fresh tensors."""
        written = {id(tensor) for tensor in call.written}
        places = [id(x) not in written and call.is_mine(x) for x in leaves(results)]
        fresh = [x for x in leaves(results) if id(x) not in written and call.is_mine(x)]
        targets = [self._region(x) for x in fresh]

        def run() -> None:
            found = leaves(kernel())
            values = [value for value, is_fresh in zip(found, places, strict=False) if is_fresh]
            for target, value in zip(targets, values, strict=True):
                store(target, value)

        return self._runtime.scheduler.submit(
            self._runtime.current_queue(call.device),
            str(call.op),
            run,
            reads=all_spans(call.tensors),
            writes=all_spans(call.written + fresh),
        )

    def _at_once(self, call: Call) -> Any:
        """Run an operator whose results' shapes only running it tells: the host waits."""
        if not shapes.depends_on_data(call):
            self._runtime.hidden_waits[call.op._schema.name] += 1
        box: list[Any] = []
        kernel = self._kernel(call, _with_cpu_outputs(call))
        task = self._runtime.scheduler.submit(
            self._runtime.current_queue(call.device),
            str(call.op),
            lambda: box.append(kernel()),
            reads=all_spans(call.tensors),
        )
        self._runtime.scheduler.host_wait(task, f"the shape of {call.op}")
        if not call.out:
            device = call.torch_device()

            def upload(value: Any) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                return value.to(device, non_blocking=True)

            return tree_map(upload, box[0])
        for target, value in zip(call.out, _tensors(box[0]), strict=True):
            target.resize_(value.size()).copy_(value, non_blocking=True)
        return call.out[0] if len(call.out) == 1 else tuple(call.out)

    def _region(self, tensor: torch.Tensor) -> Region:
        return device_region(self._runtime.memory, tensor)


def _same_view(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    made = torch.empty(0, dtype=view.dtype, device=base.device)
    made.set_(base.untyped_storage(), view.storage_offset(), view.size(), view.stride())
    if view.is_conj():
        made = torch._conj(made)
    return torch._neg_view(made) if view.is_neg() else made


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in leaves(value) if isinstance(x, torch.Tensor)]


def _with_cpu_outputs(call: Call) -> dict[str, Any]:
    """Return the keyword arguments with empty CPU tensors in the place of the outputs."""
    kwargs = dict(call.kwargs)
    for argument in call.op._schema.arguments:
        if argument.is_out and argument.name in kwargs:
            dtype = kwargs[argument.name].dtype
            kwargs[argument.name] = torch.empty(0, dtype=dtype, device="cpu")
    return kwargs
