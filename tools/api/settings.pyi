SETTINGS: Mapping[str, Setting]
@dataclass(frozen=True)
class Setting():
    default: Any
    kind: str
    meaning: str
    name: str
    parse: Callable[[str], Any]
def read(name, environ=None): ...
