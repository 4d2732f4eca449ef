@dataclass(frozen=True)
class AsyncOutput():
    async_output_id: str  # a property
    error: ErrorRecord | None
    id: str
    kind: Kind
    members: tuple[str, ...]
    packet: Blob | None
    result: Pickled | None
    skipped_previews: int
    stamps: Mapping[str, float]
    step: int | None
class EngineFuture(concurrent.futures.Future[Any]):
    def __await__(self): ...
    def __init__(self, output_id, owner, timeout=None): ...
    async_output_id: object
    def cancel(self): ...
    def exception(self, timeout=None): ...
    origin: Origin | None
    previews: Previews | None
    def result(self, timeout=None): ...
@dataclass(frozen=True)
class EngineStats():
    def as_dict(self): ...
    calls: int
    computed: int
    delivered: int
    dropped: int
    failed: int
    failed_requests: int
    late: int
    mode: Mode
    pending: int
    queued: int
    state: Literal['running', 'asleep', 'closing', 'ended']
    submitted: int
    workers: Sequence[WorkerStats]
class MultiprocExecutor(Executor):
    def __enter__(self): ...
    def __exit__(self, kind, error, traceback): ...
    def __init__(self, worker, num_workers=1, platform=None, config=None, *, mode='data_parallel', output_rank=0, window=2, devices=None, environment=None, start_timeout=None, output_timeout=None, arena_cap=None, arena_segment_bytes=None, arena_initial_bytes=None, when_full='block', max_in_flight=4): ...
    def check_health(self): ...
    def collective_rpc(self, method, timeout=None, args=(), kwargs=None): ...
    def describe_pending_state(self, ask_workers_for=0.0): ...
    def drop_output(self, async_output_id, timeout=30.0): ...
    def execute_model(self, request, timeout=None): ...
    def execute_model_batch(self, requests, timeout=None): ...
    def execute_stepwise(self, request, on_preview=None, timeout=None): ...
    failure: BaseException | None  # a property
    def generate(self, request): ...
    def generate_many(self, requests, ahead=None): ...
    def on_failure(self, callback): ...
    def shutdown(self, timeout=30.0): ...
    def sleep(self, *args, timeout=60.0, free_shared_memory=False, **kwargs): ...
    def stats(self): ...
    def stream(self, request, previews=2): ...
    def submit(self, request, *, stepwise=False, previews=0): ...
    def submit_batch(self, requests): ...
    def trim(self, timeout=60.0): ...
    def wait_output_ready(self, async_output_id): ...
    def wake_up(self, *args, timeout=60.0, **kwargs): ...
    workers: Sequence[Started]  # a property
class Origin(NamedTuple):
    rank: int
    stamps: Mapping[str, float]
@dataclass(frozen=True)
class Output():
    error: BaseException | None
    id: str
    number: int
    value: Any
@dataclass(frozen=True)
class PendingState():
    at_workers: Sequence[int]
    calls: Mapping[str, Sequence[int]]
    failure: str | None
    late: int
    outputs: Sequence[OutputDescription]
    queued: int
    unacknowledged: Sequence[str]
    workers: Mapping[int, Any]
@dataclass(frozen=True)
class Preview():
    id: str
    step: int | None
    value: Any
@dataclass(frozen=True)
class WorkerStats():
    alive: bool
    bytes_received: int
    device: str
    outputs: int
    pid: int
    platform: str
    rank: int
    requests: int
