"""A result as one HTML page, with its pictures, that loads nothing from anywhere. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from omni_platforms.bench.report import by_case, common_base, count_cells, headline, row_cells

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
  color: #1c2330; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem }
h3 { font-size: 1rem; margin: 1.8rem 0 .3rem } img { max-width: 100%; background: #fff }
table { border-collapse: collapse; width: 100% } th { font-weight: 600 }
td, th { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid #d8dde6 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.missed { color: #b00020; font-weight: 600 } .met { color: #1b6e3c }
.warning { background: #fde9c8; color: #4a3000; padding: .4rem .8rem; margin: .3rem 0 }
@media (prefers-color-scheme: dark) { body { color: #dde3ec; background: #14181f }
  td, th { border-color: #333c4a } .missed { color: #ff8a80 } .met { color: #7ad29b } }
"""
_ROW_HEADS = ("", "median", "10 to 90 %", "ratio", "target", "", "note")
_COUNT_HEADS = ("", "value", "unit", "target", "", "note")
_CLASSES = {"met": "met", "MISSED": "missed"}


def page(document: dict[str, Any], pictures: Sequence[tuple[str, bytes]]) -> str:
    """Return the whole page. `pictures` are titles and SVG files."""
    body = "\n".join([*_head(document), *map(_picture, pictures), *_tables(document)])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>omni-platforms bench</title><style>{_STYLE}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def _head(document: dict[str, Any]) -> Iterator[str]:
    yield "<h1>omni-platforms bench</h1>"
    yield f"<p>{'<br>'.join(map(escape, headline(document)))}</p>"
    for warning in document["warnings"]:
        yield f'<p class="warning">{escape(warning)}</p>'


def _picture(picture: tuple[str, bytes]) -> str:
    title, svg = picture
    data = base64.b64encode(svg).decode("ascii")
    image = f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">'
    return f"<h3>{escape(title)}</h3>{image}"


def _tables(document: dict[str, Any]) -> Iterator[str]:
    yield "<h2>Tables</h2>"
    for title, rows in by_case(document["rows"]):
        base = common_base(rows)
        yield f"<h3>{escape(title)}{escape(f'; ratios to {base}') if base else ''}</h3>"
        yield _table(_ROW_HEADS, [[row["way"], *row_cells(row, base)] for row in rows], numbers=3)
    for title, counts in by_case(document["counts"]):
        yield f"<h3>{escape(title)}</h3>"
        yield _table(_COUNT_HEADS, [count_cells(count) for count in counts], numbers=1)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], numbers: int) -> str:
    """Return a table; the cells behind the first are `numbers` numbers, then text."""
    kinds = ["", *["n"] * numbers, *[""] * (len(heads) - 1 - numbers)]
    head = "".join(_cell("th", kind, text) for kind, text in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            _cell("td", _CLASSES.get(text, kind), text)
            for kind, text in zip(kinds, line, strict=True)
        )
        + "</tr>"
        for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(tag: str, kind: str, text: str) -> str:
    return f"<{tag}{f' class={kind!r}' if kind else ''}>{escape(text)}</{tag}>"
