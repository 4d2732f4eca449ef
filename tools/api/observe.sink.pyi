@dataclass(eq=False)
class Record():
    closed: float
    device: str
    error: str | None
    facts: dict[str, Any]
    id: str
    kept: dict[Any, Any]
    kind: RecordKind
    moments: dict[str, float]
    opened: float
    source: str
    spans: dict[str, tuple[float, float]]
RecordKind: object
class Sink():
    def closed(self, record): ...
    def opened(self, record): ...
    def step(self, name, subject): ...
def name_of(error): ...
def now(): ...
