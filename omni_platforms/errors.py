"""Every error that omni-platforms raises, in one tree.

Each message says what happened, where, and the remedy. Leaf errors also
inherit the builtin that callers already catch for that kind of failure::

    OmniError
    |-- SettingError (ValueError)            an environment variable has a bad value
    |-- PlatformError
    |   |-- UnknownPlatformError (LookupError)      no plugin has that name
    |   |-- PlatformUnavailableError (RuntimeError) the plugin is there, its device is not
    |   |-- AmbiguousPlatformError (RuntimeError)   several accelerators are available
    |   |-- BrokenPluginError (RuntimeError)        a plugin is there and does not work
    |   `-- HostRegistrationError (RuntimeError)    existing memory could not be pinned
    |-- OutputError
    |   |-- UnsupportedOutputError (TypeError)      an output that cannot be handed over
    |   |-- ExecutorClosedError (RuntimeError)      submitted after close, or after a fatal fault
    |   |-- ExecutorForkedError (RuntimeError)      used in a child of the process that made it
    |   |-- ExecutorFullError (RuntimeError)        backpressure, when the caller asked to raise
    |   |-- CaptureError (RuntimeError)             submitted while a graph is being captured
    |   |-- OutputTimeoutError (TimeoutError)       one output did not arrive in time
    |   `-- DrainTimeoutError (TimeoutError)        outputs still in flight: keep their memory
    |-- SharedMemoryError
    |   |-- ArenaFullError (MemoryError)            no block is free, and the arena may not grow
    |   |-- SegmentRefusedError (OSError)           the system gives no more shared memory
    |   |-- CorruptPacketError (ValueError)         a packet that is not as its sender made it
    |   |-- ArenaClosedError (RuntimeError)         used after close
    |   `-- ArenaForkedError (RuntimeError)         used in a child of the process that made it
    |-- EngineError
    |   |-- WorkerStartError (RuntimeError)         a worker did not come up
    |   |-- WorkerDiedError (RuntimeError)          a worker's process ended while it was needed
    |   |-- WorkerAsleepError (RuntimeError)        a request between sleep and wake_up
    |   |-- WorkerStoppedError (RuntimeError)       still queued when the time to stop was over
    |   |-- DeviceLostError (RuntimeError)          a worker's device answers no more
    |   |-- RequestFailedError (RuntimeError)       a worker's exception that cannot be rebuilt here
    |   |-- UnknownMethodError (AttributeError)     the worker class has no such method
    |   |-- UnsendableError (TypeError)             an object that cannot cross to or from a worker
    |   |-- ChannelClosedError (EOFError)           the process at the other end is gone
    |   |-- ChannelBrokenError (OSError)            what comes over the channel makes no sense
    |   |-- CorruptMessageError (ValueError)        one message is damaged, foreign or too new
    |   |-- RequestRejectedError (ValueError)       a worker refuses a request; it is well itself
    |   |-- ResultPumpError (RuntimeError)          a thread that serves a worker has failed
    |   |-- CallTimeoutError (TimeoutError)         workers did not answer a call in time
    |   |-- RankOutOfStepError (RuntimeError)       a rank failed, and the others do not answer
    |   |-- WorkerSurvivedError (RuntimeError)      a process that could not be ended
    |   |-- WaitInCallbackError (RuntimeError)      a callback waits for what it holds up itself
    |   |-- ClusterError (ConnectionError)          a Ray cluster that cannot be reached or used
    |   |-- MissingExtraError (ImportError)         what an extra installs is not there
    |   |-- UnknownOutputError (LookupError)        an id that was delivered, or never issued
    |   `-- OutputDroppedError (RuntimeError)       an output that was given up
    |-- SimulatorError
    |   |-- CompilerMissingError (RuntimeError)     no C++ compiler to build the simulator with
    |   |-- ShimBuildError (RuntimeError)           the compiler, or loading what it built, failed
    |   |-- SimulatorStateError (RuntimeError)      a call that this process's simulation refuses
    |   |-- SimulatorForkedError (RuntimeError)     a simulated device used in a forked child
    |   |-- SimulatorUnsupportedError (NotImplementedError) what simulated devices never do
    |   |-- SimulatedFaultError (RuntimeError)      a queued operation failed on a simulated device
    |   |-- SimulatedCaptureError (RuntimeError)    a call that a simulated graph capture refuses
    |   `-- SimulatedHangError (RuntimeError)       a wait that would never return on such a device
    |-- ConformanceError
    |   |-- ReportFormatError (ValueError)          a conformance report that is not one
    |   |-- KnownFailuresError (ValueError)         a vendor's list of known failures is wrong
    |   |-- ConformanceSetupError (RuntimeError)    the suite cannot run here
    |   `-- PluginNameError (ValueError)            a new plugin cannot have that name or place
    |-- JobError (RuntimeError)              requests or a folder that `run` cannot use
    |-- AuditError (RuntimeError)            an audit of host waits that cannot be had like this
    |-- BenchError (RuntimeError)            a benchmark moved a wrong byte, or cannot run
    |-- ObserveError (RuntimeError)          a trace, metric or live view that cannot be had
    `-- DemoError (ValueError)               a photograph or an option that the demo cannot use

Importing this module imports nothing else.
"""

from __future__ import annotations

import concurrent.futures
import sys

if sys.version_info >= (3, 11):
    _Timeout = TimeoutError  # which concurrent.futures.TimeoutError is since 3.11
else:

    class _Timeout(TimeoutError, concurrent.futures.TimeoutError):
        """Both kinds of timeout that callers already catch."""


class OmniError(Exception):
    """Base of every error of this package."""


class SettingError(OmniError, ValueError):
    """An environment variable holds a value that its setting refuses."""


class PlatformError(OmniError):
    """Base of what can go wrong with finding, choosing and using a platform."""


class UnknownPlatformError(PlatformError, LookupError):
    """The named platform has no installed plugin."""


class PlatformUnavailableError(PlatformError, RuntimeError):
    """The named platform has a plugin, but no software stack or no device."""


class AmbiguousPlatformError(PlatformError, RuntimeError):
    """Several accelerators are available and nobody said which one to use."""


class BrokenPluginError(PlatformError, RuntimeError):
    """A plugin (or the stack under it) is installed and does not work."""


class HostRegistrationError(PlatformError, RuntimeError):
    """The device refused to pin memory that already exists."""


class OutputError(OmniError):
    """Base of what can go wrong with handing an output to the host."""


class UnsupportedOutputError(OutputError, TypeError):
    """The output holds something that has no host copy (a cycle, a meta tensor)."""


class ExecutorClosedError(OutputError, RuntimeError):
    """The executor was closed, or ended by a fatal fault that is its cause."""


class ExecutorForkedError(OutputError, RuntimeError):
    """The executor belongs to the parent of this forked process."""


class ExecutorFullError(OutputError, RuntimeError):
    """The bounds on pending outputs are reached and `when_full="raise"` was asked for."""


class CaptureError(OutputError, RuntimeError):
    """An output was submitted while the calling stream captures a graph."""


class OutputTimeoutError(OutputError, _Timeout):
    """One output did not arrive within the caller's timeout; it is still in flight."""


class DrainTimeoutError(OutputError, _Timeout):
    """Outputs were still in flight at the end of a drain; device memory must not be released."""


class SharedMemoryError(OmniError):
    """Base of what can go wrong with outputs in shared memory."""

    untouched = False
    """`ArenaView` has leased nothing of the packet, nor will: its blocks are still the worker's."""


class ArenaFullError(SharedMemoryError, MemoryError):
    """No block of the arena is free, and a limit that the message names forbids more."""

    never_fits = False
    """Whether one block would be larger than the whole arena may be."""


class SegmentRefusedError(SharedMemoryError, OSError):
    """The system refused to create, allocate or map shared memory."""


class CorruptPacketError(SharedMemoryError, ValueError):
    """A packet is truncated, damaged, of another version or points outside the arena."""


class ArenaClosedError(SharedMemoryError, RuntimeError):
    """The arena, or the view of one, was closed."""


class ArenaForkedError(SharedMemoryError, RuntimeError):
    """The arena, or the view of one, belongs to the parent of this forked process."""


class EngineError(OmniError):
    """Base of what can go wrong with worker processes."""


class WorkerStartError(EngineError, RuntimeError):
    """A worker process did not come up: it died, failed or took too long."""


class WorkerDiedError(EngineError, RuntimeError):
    """A worker's process ended while something was still wanted of it."""


class WorkerAsleepError(EngineError, RuntimeError):
    """A request came to a worker that sleeps; `wake_up` it first."""


class WorkerStoppedError(EngineError, RuntimeError):
    """A request was still queued at its worker when the time to stop was over."""


class DeviceLostError(EngineError, RuntimeError):
    """A worker's device answers no more. A worker class may raise it: it ends the worker."""


class RequestFailedError(EngineError, RuntimeError):
    """An exception in a worker that cannot be rebuilt in this process: its type and text."""


class UnknownMethodError(EngineError, AttributeError):
    """The worker class has no public method of that name."""


class UnsendableError(EngineError, TypeError):
    """A request, argument or result cannot be pickled, or not be rebuilt at the other side."""


class ChannelClosedError(EngineError, EOFError):
    """The process at the other end closed the channel, or ended."""


class ChannelBrokenError(EngineError, OSError):
    """The bytes that come over a channel are no messages: it cannot be used any more."""


class CorruptMessageError(EngineError, ValueError):
    """One message is damaged, of another version or of no known kind.

    `message_id` and `kind` are what its undamaged start says, or `None`.
    """

    message_id: str | None = None
    kind: int | None = None


class RequestRejectedError(EngineError, ValueError):
    """A worker refuses a request as such. A worker class may raise it: other errors beat it."""


class ResultPumpError(EngineError, RuntimeError):
    """A thread of the parent that serves a worker has failed, which ends the executor."""


class CallTimeoutError(EngineError, _Timeout):
    """Workers did not answer a call in time; their late replies are dropped."""


class RankOutOfStepError(EngineError, RuntimeError):
    """One rank failed a request and others did not answer in time, which ends the executor."""


class WorkerSurvivedError(EngineError, RuntimeError):
    """A worker's process could not be ended; `shutdown` may be called again."""


class WaitInCallbackError(EngineError, RuntimeError):
    """A callback, on the thread that receives from a worker, waits for what is still to come."""


class ClusterError(EngineError, ConnectionError):
    """The Ray cluster cannot be reached, or is another one than this process is connected to."""


class MissingExtraError(EngineError, ImportError):
    """What was asked for needs an extra of this package that is not installed."""


class UnknownOutputError(EngineError, LookupError):
    """No output with that id is open: it was delivered before, or never issued."""


class OutputDroppedError(EngineError, RuntimeError):
    """The output, or its request, was dropped or cancelled."""


class SimulatorError(OmniError):
    """Base of what can go wrong with simulated accelerators."""


class CompilerMissingError(SimulatorError, RuntimeError):
    """No C++ compiler was found to build the simulator with."""


class ShimBuildError(SimulatorError, RuntimeError):
    """The simulator's C++ part could not be compiled, stored or loaded."""


class SimulatorStateError(SimulatorError, RuntimeError):
    """The call does not fit the simulation that this process has, or has not."""


class SimulatorForkedError(SimulatorError, RuntimeError):
    """The simulated device belongs to the parent of this forked process, which has used it."""


class SimulatorUnsupportedError(SimulatorError, NotImplementedError):
    """Simulated devices do not have this: sparse, nested or quantized tensors, inductor."""


class SimulatedFaultError(SimulatorError, RuntimeError):
    """An operation queued on a simulated device failed; seen at a later wait of the host."""


class SimulatedCaptureError(SimulatorError, RuntimeError):
    """A graph of a simulated device: captured wrongly, or a call that a capture forbids."""


class SimulatedHangError(SimulatorError, RuntimeError):
    """A wait of the host that would never return on a device with such a fault."""


class ConformanceError(OmniError):
    """Base of what can go wrong around the conformance suite itself."""


class ReportFormatError(ConformanceError, ValueError):
    """A conformance report is missing a field, or holds a value that no report may hold."""


class KnownFailuresError(ConformanceError, ValueError):
    """A vendor's list of known failures cannot be read, or names what does not exist."""


class ConformanceSetupError(ConformanceError, RuntimeError):
    """The suite cannot run: pytest is not installed, or it ended without a report."""


class PluginNameError(ConformanceError, ValueError):
    """A new plugin cannot have the name, or be written to the place, that was asked for."""


class JobError(OmniError, RuntimeError):
    """A file of requests cannot be run: the file, or the folder for the results, is no good."""


class AuditError(OmniError, RuntimeError):
    """An audit was entered, nested, ended or compared in a way that it cannot be."""


class BenchError(OmniError, RuntimeError):
    """A benchmark moved a wrong byte, or cannot run here; then it prints no number."""


class ObserveError(OmniError, RuntimeError):
    """A trace, a metric or a live view cannot be had like this."""


class DemoError(OmniError, ValueError):
    """The demo cannot use a photograph or an option that it was given."""
