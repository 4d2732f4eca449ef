@dataclass(frozen=True)
class AuditReport():
    allowed: list[SiteReport]
    blocked_s: float
    def capture_blockers(self): ...
    count: int
    covered_kinds: list[str]
    detail: str
    idle_s: float | None
    mode: str
    notes: list[str]
    obstacles: list[SiteReport]
    operators: dict[str, int]
    outputs: dict[str, list[str]]
    platform: str
    runtime_events: dict[str, int] | None
    schema_version: int
    sites: list[SiteReport]
    step_s: Spread | None
    steps: int
    def to_dict(self): ...
    waits: int
    wall_s: float
class Kind(str, Enum):
    ALLOCATOR_FLUSH: object
    CPU: object
    D2H_BLOCKING: object
    D2H_PAGEABLE_ASYNC: object
    DATA_SHAPE: object
    DEVICE_SYNCHRONIZE: object
    EVENT_SYNCHRONIZE: object
    H2D_BLOCKING: object
    H2D_PAGEABLE: object
    H2D_PAGEABLE_ASYNC: object
    MASKED_SELECT: object
    MASK_INDEX: object
    NONZERO: object
    NUMPY: object
    OPERATOR_COPY: object
    PRINT: object
    REPEAT_INTERLEAVE: object
    SCALAR_READ: object
    STREAM_SYNCHRONIZE: object
    TENSOR_FROM_HOST: object
    TOLIST: object
    TO_CPU: object
    TRUTH_VALUE: object
    UNIQUE: object
    VENDOR: object
@dataclass(frozen=True)
class SiteReport():
    allowed: str | None
    blocked_s: float
    callers: list[str]
    column: int
    count: int
    file: str
    function: str
    hoistable: bool
    idle_s: float | None
    kind: str
    line: int
    nbytes: int
    path: str
    pattern: str
    per_step: float | None
    seen_by: list[str]
    source: str
    suggestion: str
    value: list[Any]
    waits: int
    where: str  # a property
class SyncAudit():
    def __enter__(self): ...
    def __exit__(self, kind, error, traceback): ...
    def __init__(self, platform=None, *, detail='counts', cpu_as_device=None, profile=False, max_steps=None): ...
    def note_output(self, value, name='output'): ...
    operators: Counter[str]
    reads: object
    def record(self, frame, seen, waits, blocked, at): ...
    def record_number(self, frame, how, number, tensor, blocked): ...
    def report(self): ...
    def step(self, request=None): ...
    steps: int  # a property
    def vendor_saw(self, frame, seen): ...
class allow_sync():
    def __call__(self, function): ...
    def __enter__(self): ...
    def __exit__(self, kind, error, traceback): ...
    def __init__(self, reason): ...
    reason: object
def output(value, name='output'): ...
def step(request=None): ...
