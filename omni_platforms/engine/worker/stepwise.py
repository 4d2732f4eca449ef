"""A request in steps: previews on the way, and an end between two steps for one nobody wants.

`execute_stepwise(request)` is a generator. Each `yield` ends a step, and what it
yields is the step's preview (`None`: there is none); what it returns is the
output. Steps run one after the other on the main thread; the output is handed
over as any other, and previews are skipped when the consumer is slow.
"""

from __future__ import annotations

import inspect
from typing import Any

from omni_platforms.engine.worker.output_thread import OutputThread
from omni_platforms.engine.worker.work import WorkTable


class Steps:
    """One stepwise request."""

    def __init__(self, name: str, table: WorkTable, outputs: OutputThread) -> None:
        self._name = name
        self._table = table
        self._outputs = outputs
        self.count = 0
        self.skipped = 0

    def run(self, worker: Any, request: Any) -> Any:
        """Run all steps and return the output; `None` when it was dropped between two steps.

        Raises what the worker raises.
        """
        steps = worker.execute_stepwise(request)
        if not inspect.isgenerator(steps):
            return steps
        try:
            while self._table.wanted(self._name):
                self._preview(next(steps))
        except StopIteration as stop:
            return stop.value
        finally:
            steps.close()
        return None

    def _preview(self, value: Any) -> None:
        self.count += 1
        if value is None:
            return
        if not self._table.take_preview(self._name):
            self.skipped += 1
        elif not self._outputs.submit_preview(self._name, self.count, value):
            self._table.give_preview(self._name)
            self.skipped += 1
