"""The report as one HTML page: what waits, and the source with the waits beside its lines."""

from __future__ import annotations

import linecache
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape

from omni_platforms.audit.report import AuditReport, SiteReport

_AROUND = 5

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
  color: #1c2330; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem; font-family: monospace }
table { border-collapse: collapse; width: 100% } td, th { padding: .3rem .6rem; text-align: left;
  border-bottom: 1px solid #d8dde6; vertical-align: top } th { font-weight: 600 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
pre { margin: 0; overflow-x: auto; background: #f6f7f9; border: 1px solid #d8dde6 }
pre div { padding: 0 .8rem } pre .hit { background: #fde9c8 }
pre .note { color: #7a4a00; white-space: pre-wrap; padding-left: 4.5rem; font-family: system-ui }
pre .no { color: #8a93a3; user-select: none; display: inline-block; width: 3.2rem }
a { color: #0b57a4 } .gap { color: #8a93a3 } ul { padding-left: 1.2rem }
@media (prefers-color-scheme: dark) { body { color: #dde3ec; background: #14181f }
  pre { background: #1b212b } td, th, pre { border-color: #333c4a } pre .hit { background: #4a3a17 }
  pre .note { color: #f3c77b } a { color: #7db7f2 } }
"""


def page(report: AuditReport) -> str:
    """Return the whole page; it loads nothing from anywhere."""
    body = "\n".join(
        [
            "<h1>Waits of the host</h1>",
            f"<p>{escape(headline(report))}</p>",
            f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in report.notes)}</ul>",
            _table("Sites, the dearest first", report.sites),
            _table("Allowed", report.allowed),
            *_files([*report.sites, *report.allowed]),
            f"<h2>covered</h2><p>{escape(', '.join(report.covered_kinds))}</p>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Waits of the host</title><style>{_STYLE}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def headline(report: AuditReport) -> str:
    """Return one sentence that says it all."""
    verb = "would have made" if report.mode == "cpu-as-device" else "made"
    steps = f" in {report.steps} steps" if report.steps else ""
    text = (
        f"{report.count} calls at {len(report.sites)} sites {verb} the host wait for "
        f"{report.platform}{steps}; it was blocked for {seconds(report.blocked_s)} of "
        f"{seconds(report.wall_s)}"
    )
    if report.idle_s is not None:
        text += f", and the device was idle for {seconds(report.idle_s)} after them"
    return text + "."


def seconds(value: float | None) -> str:
    """Return a time with a unit that suits it; a dash for what was not measured."""
    if value is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError(value)


def _table(title: str, sites: Sequence[SiteReport]) -> str:
    if not sites:
        return ""
    rows = "".join(
        f'<tr><td><a href="#{_anchor(site)}">{escape(site.where)}</a></td>'
        f"<td>{escape(site.kind)}</td>"
        f'<td class="n">{per_step(site)}</td><td class="n">{site.count}</td>'
        f'<td class="n">{seconds(site.blocked_s)}</td><td class="n">{seconds(site.idle_s)}</td>'
        f"<td>{escape(_remark(site))}</td></tr>"
        for site in sites
    )
    return (
        f"<h2>{escape(title)}</h2><table><tr><th>line</th><th>kind</th>"
        '<th class="n">a step</th><th class="n">count</th><th class="n">blocked</th>'
        f'<th class="n">idle</th><th>what to do</th></tr>{rows}</table>'
    )


def per_step(site: SiteReport) -> str:
    """Return the count a step, or a dash where no step was marked."""
    return "-" if site.per_step is None else f"{site.per_step:.4g}"


def _remark(site: SiteReport) -> str:
    if site.allowed is not None:
        return f"allowed: {site.allowed}"
    value = f" (value: {', '.join(map(str, site.value))})" if site.hoistable else ""
    return f"{site.pattern}{value}: {site.suggestion}"


def _files(sites: Sequence[SiteReport]) -> Iterator[str]:
    by_file: dict[tuple[str, str], list[SiteReport]] = defaultdict(list)
    for site in sites:
        by_file[site.path, site.file].append(site)
    for (path, shown), inside in sorted(by_file.items(), key=lambda item: item[0][1]):
        yield f"<h2>{escape(shown)}</h2><pre>{''.join(_source(path, inside))}</pre>"


def _source(path: str, sites: Sequence[SiteReport]) -> Iterator[str]:
    """Yield the lines around the sites, each site's line with its notes below."""
    hits: dict[int, list[SiteReport]] = defaultdict(list)
    for site in sites:
        hits[site.line].append(site)
    lines = linecache.getlines(path)
    shown = sorted({at for hit in hits for at in range(hit - _AROUND, hit + _AROUND + 1)})
    last = None
    for at in shown:
        if not 1 <= at <= max(len(lines), max(hits)) or (at > len(lines) and at not in hits):
            continue
        if last is not None and at != last + 1:
            yield '<div class="gap">  ...</div>'
        last = at
        text = lines[at - 1].rstrip() if at <= len(lines) else "(no source)"
        mark = f' class="hit" id="{_anchor(hits[at][0])}"' if at in hits else ""
        yield f'<div{mark}><span class="no">{at}</span>{escape(text)}</div>'
        for site in hits.get(at, ()):
            note = f"{site.kind} x{site.count}, {seconds(site.blocked_s)} blocked. {_remark(site)}"
            yield f'<div class="note">{escape(note)}</div>'


def _anchor(site: SiteReport) -> str:
    return escape("".join(c if c.isalnum() else "-" for c in f"{site.file}-{site.line}"))
