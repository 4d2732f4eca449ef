SETTINGS: Mapping[str, Setting]
@dataclass(frozen=True)
class Setting():
    def __init__(self, name, kind, default, meaning, parse): ...
    default: Any
    kind: str
    meaning: str
    name: str
    parse: Callable[[str], Any]
def read(name, environ=None): ...
