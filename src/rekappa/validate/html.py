"""The verdict as one web page: no script, nothing loaded from elsewhere, every value escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rekappa.timeline import Window, format_instant
from rekappa.validate.chart import colored, dot, foremost, over_time
from rekappa.validate.figures import apart, exactly, written
from rekappa.validate.report import percent, rules_of
from rekappa.validate.result import Cause, Comparison, Outcome, Sample, SinkVerdict, Verdict

_CAUSES = {
    str(Cause.CODE): "#4c6fd1",
    str(Cause.LOOKUP): "#7a4fb5",
    str(Cause.LATE): "#b98300",
    str(Cause.LATE_IN_BACKFILL): "#c96a1b",
    str(Cause.NOT_FINAL): "#8a94a6",
    str(Cause.UNEXPLAINED): "#d0503f",
}
_COLORS = {"matched": "#2f9e6e", "different": "#b98300", "missing": "#d0503f", "extra": "#4c6fd1"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --line: #e3e7ee; --card: #fff; --page: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebf1; --soft: #98a2b3; --line: #2c3440; --card: #171c24; --page: #0f1319; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 2px; }
h3 { font-size: 14px; margin: 24px 0 8px; }
.soft { color: var(--soft); } p.soft { margin: 4px 0; font-size: 13px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 20px 24px; margin-top: 20px; }
.badge { display: inline-block; border-radius: 999px; padding: 2px 12px; font-weight: 600;
  color: #fff; font-size: 13px; }
.yes { background: #2f9e6e; } .no { background: #d0503f; } .unknown { background: #667085; }
.split { display: flex; flex-wrap: wrap; gap: 28px; align-items: center; margin-top: 12px; }
.split > * { min-width: 0; }
.legend { display: grid; grid-template-columns: auto auto auto auto; gap: 4px 14px;
  font-variant-numeric: tabular-nums; }
.dot { width: 10px; height: 10px; border-radius: 3px; align-self: center; } .right { text-align: right; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; color: var(--soft); font-weight: 600; } th, td { padding: 6px 10px 6px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); } td { overflow-wrap: anywhere; }
svg text { fill: var(--ink); font: 12px system-ui; } svg .mark { fill: var(--soft); font-size: 11px; }
svg .share { font-weight: 600; font-size: 15px; }
svg .rule { stroke: var(--line); } .chart { display: block; width: 100%; height: auto; min-width: 560px; }
.chart g:hover { opacity: .75; }
.items { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; margin: 4px 0 0 56px; }
.item { display: inline-flex; gap: 6px; align-items: center; }
.value { font-family: ui-monospace, monospace; font-size: 12px; } .value[title] { cursor: help;
  text-decoration: underline dotted var(--soft); text-underline-offset: 3px; }
.tag { white-space: nowrap; }
"""


def page(verdict: Verdict) -> str:
    """A complete document."""
    window = Window(verdict.start, verdict.end)
    title = f"Validation of {verdict.run}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(title)} {_badge(verdict.outcome)}</h1>"
        f'<div class="soft">app {escape(verdict.app)} · window {escape(str(window))} · '
        f"compared {format_instant(verdict.at.replace(microsecond=0))}; all times in UTC</div>"
        f"{sections(verdict)}</main></body></html>\n"
    )


def sections(verdict: Verdict) -> str:
    """What it says of each sink: for a page that has a style sheet of its own. Holds no style attribute."""
    return "".join(_sink(one) for one in verdict.sinks)


def _badge(outcome: Outcome) -> str:
    kind = {Outcome.PASSED: "yes", Outcome.NEEDS_YES: "unknown", Outcome.FAILED: "no"}[outcome]
    return f'<span class="badge {kind}">{escape(outcome)}</span>'


def _sink(one: SinkVerdict) -> str:
    found = one.comparison
    parts = [f'<section class="card"><h2>{escape(one.sink)} {_badge(one.outcome)}</h2>']
    parts += [f"<p>{escape(why)}</p>" for why in one.why]
    if found is not None:
        parts += _comparison(one, found)
    return "".join(parts) + "</section>"


def _comparison(one: SinkVerdict, found: Comparison) -> list[str]:
    key = "by " + ", ".join(found.key) if found.key else "as whole rows"
    parts = [
        f'<div class="soft">staging {found.staging:,} rows against {escape(one.production)} {found.production:,} rows, '
        f"{escape(key)}</div>",
        f'<div class="split">{_ring(found)}{_legend(found)}</div>',
    ]
    if found.columns:
        parts.append("<h3>Different in</h3>" + _bars(found.columns.items(), found.different))
    if found.causes:
        named = ((str(cause), count) for cause, count in found.causes.items())
        parts.append("<h3>Why</h3>" + _bars(named, found.differences, _CAUSES))
    parts += _charts(found)
    if found.samples:
        rows = [
            [_tag(it.kind), _tag(it.cause), _identity(it, found.key), _changes(it, found.key)] for it in found.samples
        ]
        parts.append("<h3>Samples</h3>" + _table(["kind", "cause", "row", "production → staging"], rows))
    parts += [f'<p class="soft">{escape(note)}</p>' for note in (*found.notes, *rules_of(one))]
    if found.controls:
        parts.append(f'<p class="soft">control runs: {escape(", ".join(found.controls))}</p>')
    return parts


def _counts(found: Comparison) -> list[tuple[str, int]]:
    return [(name, getattr(found, name)) for name in _COLORS]


def _ring(found: Comparison) -> str:
    """A ring of the four counts, the match in its middle. A count above nothing is never invisible."""
    radius, around = 54.0, 2 * math.pi * 54.0
    shares = {name: count / found.total if found.total else float(name == "matched") for name, count in _counts(found)}
    seen = {name: max(share, 0.012) if share else 0.0 for name, share in shares.items()}
    scale, at, arcs = 1 / sum(seen.values()), 0.0, []
    for name, share in seen.items():
        length = share * scale * around
        if length:
            arcs.append(
                f'<circle r="{radius}" cx="70" cy="70" fill="none" stroke="{_COLORS[name]}" stroke-width="16" '
                f'stroke-dasharray="{length:.3f} {around - length:.3f}" stroke-dashoffset="{-at:.3f}"/>'
            )
        at += length
    middle = percent(found.matched, found.total) if found.total else "100 %"
    return (
        f'<svg width="140" height="140" viewBox="0 0 140 140" role="img" aria-label="{escape(middle)} match">'
        f'<g transform="rotate(-90 70 70)">{"".join(arcs)}</g>'
        f'<text x="70" y="69" text-anchor="middle" class="share">{escape(middle)}</text>'
        '<text x="70" y="86" text-anchor="middle">match</text></svg>'
    )


def _legend(found: Comparison) -> str:
    rows = (
        f"{dot(_COLORS[name])}<span>{name}</span>"
        f'<span class="right">{count:,}</span><span class="right soft">{escape(percent(count, found.total))}</span>'
        for name, count in _counts(found)
    )
    return f'<div class="legend">{"".join(rows)}</div>'


def _charts(found: Comparison) -> list[str]:
    """When the rows that differ happened: by cause, and by column."""
    if found.over_time is None:
        return []
    shown = found.over_time.stepped()
    stretches, columns = shown.stretches, foremost(shown.columns)
    causes = {name: shown.causes[name] for name in _CAUSES if name in shown.causes}
    drawn = {
        "When, by cause": over_time(causes, stretches, _CAUSES, "Differences over time, by cause"),
        "When, by column": over_time(columns, stretches, colored([*columns]), "Differences over time, by column"),
    }
    return [f"<h3>{title}</h3>{chart}" for title, chart in drawn.items() if chart]


def _bars(values: Iterable[tuple[str, int]], whole: int, colors: Mapping[str, str] | None = None) -> str:
    shown = list(values)[:20]
    most = max((count for _, count in shown), default=1) or 1
    lines = []
    for index, (name, count) in enumerate(shown):
        y = 24 * index
        width = max(3.0, 420.0 * count / most)
        color = (colors or {}).get(name, _COLORS["different"])
        label = name if len(name) <= 26 else name[:25] + "…"
        lines.append(
            f'<text x="0" y="{y + 15}">{escape(label)}</text>'
            f'<rect x="190" y="{y + 4}" width="{width:.1f}" height="14" rx="4" fill="{color}"/>'
            f'<text x="{198 + width:.1f}" y="{y + 15}">{count:,} ({escape(percent(count, whole))})</text>'
        )
    height = 24 * len(shown)
    drawn = f'<svg width="780" height="{height}" viewBox="0 0 780 {height}">{"".join(lines)}</svg>'
    return f'<div class="scroll">{drawn}</div>'


def _tag(text: str) -> str:
    return f'<span class="tag">{escape(text)}</span>'


def _value(text: str, value: Any) -> str:
    """A value as text; where that is not all of it, the whole of it on pointing there."""
    whole = exactly(value)
    title = f' title="{escape(whole, quote=True)}"' if whole != text else ""
    return f'<span class="value"{title}>{escape(text)}</span>'


def _identity(sample: Sample, key: Sequence[str]) -> str:
    row = sample.production if sample.production is not None else sample.staging or {}
    return ", ".join(f"{escape(name)} {_value(written(row.get(name)), row.get(name))}" for name in (key or row))


def _changes(sample: Sample, key: Sequence[str]) -> str:
    before, after = sample.production or {}, sample.staging or {}
    if not sample.columns:
        rest = {name: value for name, value in (before or after).items() if name not in key}
        values = (f"{escape(name)} {_value(written(value), value)}" for name, value in rest.items())
        return f'<span class="soft">{", ".join(values)}</span>'
    lines = []
    for name in sample.columns:
        old, new = apart(before.get(name), after.get(name))
        lines.append(f"{escape(name)}: {_value(old, before.get(name))} → {_value(new, after.get(name))}")
    return "<br>".join(lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The cells are HTML already."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
