"""Seconds, bytes and ratios as people read them."""

from __future__ import annotations

from collections.abc import Mapping


def seconds_text(seconds: float) -> str:
    """Return a time with three digits that count, in the unit that suits it."""
    if seconds == 0:
        return "0"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(seconds) * factor >= 0.9995:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e9)} ns"


def bytes_text(nbytes: float) -> str:
    """Return a size in powers of ten: 12.6 MB."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if abs(nbytes) >= factor * 0.9995:
            return f"{_digits(nbytes / factor)} {unit}"
    return f"{nbytes:g} bytes"


def number_text(number: float) -> str:
    """Return a ratio: hundredths, or thousandths near one, where they count."""
    if 0.9 <= number < 1.1:
        return f"{number:.3f}"
    return _digits(number) if number >= 100 else f"{number:.2f}"


def case_text(case: Mapping[str, object]) -> str:
    """Return what a case fixes, such as `output 12.6 MB, loop launch-bound`."""
    return ", ".join(_entry(name, value) for name, value in case.items())


def _entry(name: str, value: object) -> str:
    words = name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")
    if isinstance(value, str):
        return value if name == "part" else f"{words} {value}"
    if isinstance(value, int | float):
        if name == "bytes" or name.endswith("_bytes"):
            return f"{words} {bytes_text(value)}".removeprefix("bytes ")
        if name == "seconds" or name.endswith("_s"):
            return f"{words} {seconds_text(value)}"
        return f"{words} {value:g}"
    return f"{words} {value}"


def _digits(number: float) -> str:
    size = abs(number)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{number:,.{places}f}"
