"""The verdict as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rekappa.timeline import Window
from rekappa.validate.result import Comparison, Late, Outcome, Sample, SinkVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Screen(Protocol):
    """Where it is shown: what a command's output offers."""

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None: ...
    def record(self, values: Mapping[str, Any], title: str | None = None) -> None: ...
    def message(self, text: str) -> None: ...


def percent(part: float, whole: float) -> str:
    """A share that never rounds up to 100 %, nor down to 0 %, what is not."""
    if not whole:
        return "-"
    share = 100.0 * part / whole
    text = f"{share:.2f}"
    if part < whole and float(text) == 100:
        return "> 99.99 %"
    if part > 0 and float(text) == 0:
        return "< 0.01 %"
    return f"{text} %"


def show(verdict: Verdict, screen: Screen) -> None:
    """The whole report: counts, columns, causes, samples, and last the verdict."""
    for one in verdict.sinks:
        if one.comparison is not None:
            _show_comparison(one, one.comparison, screen)
        for why in one.why:
            screen.message(f"{one.sink}: {why}")
    window = Window(verdict.start, verdict.end)
    screen.message(f"{verdict.outcome.upper()}: run {verdict.run}, window {window}")
    if verdict.outcome is Outcome.NEEDS_YES:
        screen.message(f"next: rekappa validate {verdict.run} --expect '…', or say yes at rekappa publish")


def rules_of(one: SinkVerdict) -> list[str]:
    """By which rules the sink was judged, in words."""
    assert one.comparison is not None, "only what was compared was judged"
    words = [f"{name} is compared {how}" for name, how in one.comparison.special.items()]
    if one.expected is not None:
        words.append(f"expected of the change in code: {one.expected}")
    if late := one.comparison.late:
        kept = "are kept and pass" if one.late is Late.KEEP else "do not pass"
        words.append(f"late: {one.late}; {late} rows with events that production dropped as late {kept}")
    return words


def _show_comparison(one: SinkVerdict, found: Comparison, screen: Screen) -> None:
    rows = [
        (name, count, percent(count, found.total))
        for name in ("matched", "different", "missing", "extra")
        if (count := getattr(found, name)) is not None
    ]
    key = f" by {', '.join(found.key)}" if found.key else " as whole rows"
    screen.table(f"{one.sink}: staging ({found.staging:,}) against {one.production} ({found.production:,}){key}",
                 ["rows", "count", "share"], rows)  # fmt: skip
    if found.columns:
        shares = [(name, count, percent(count, found.different)) for name, count in found.columns.items()]
        screen.table("Different in", ["column", "rows", "of the different"], shares)
    if found.causes:
        why = [(str(cause), count, percent(count, found.differences)) for cause, count in found.causes.items()]
        screen.table("Why", ["cause", "rows", "of the differences"], why)
    if found.samples:
        some = found.samples[:10]
        shown = [(it.kind, str(it.cause), identity(it, found.key), changes(it)) for it in some]
        screen.table("Samples", ["kind", "cause", "key" if found.key else "row", "production -> staging"], shown)
    for note in (*found.notes, *rules_of(one)):
        screen.message(f"note: {note}")
    if found.controls:
        screen.message(f"control runs: {', '.join(found.controls)}")


def identity(sample: Sample, key: tuple[str, ...]) -> str:
    row = sample.production if sample.production is not None else sample.staging or {}
    return ", ".join(f"{name}={row.get(name)}" for name in (key or row))


def changes(sample: Sample) -> str:
    before, after = sample.production or {}, sample.staging or {}
    return ", ".join(f"{name}: {before.get(name)} -> {after.get(name)}" for name in sample.columns)
