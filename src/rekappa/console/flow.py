"""An app as a picture: what it reads, its jobs, what it writes, and the apps on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.config.targets import target_of
from rekappa.operations.core import FoundApp

_BOX, _TALL, _GAP, _ACROSS = 210, 46, 12, 95


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    note: str
    kind: str


def topics_of(config: AppConfig) -> tuple[set[str], set[str]]:
    """The topics that an app reads and writes."""
    read = {
        one.topic
        for source in config.sources.values()
        for one in source.candidates.values()
        if isinstance(one, KafkaCandidate)
    }
    return read, {str(sink.topic) for sink in config.sinks.values() if sink.type == "kafka"}


def neighbours(app: FoundApp, others: Sequence[FoundApp]) -> dict[str, list[str]]:
    """For each topic of the app, the apps that write it or read it too."""
    if app.loaded is None:
        return {}
    read, written = topics_of(app.loaded.config)
    found: dict[str, list[str]] = {}
    for other in others:
        if other.loaded is None or other.name == app.name:
            continue
        their_read, their_written = topics_of(other.loaded.config)
        for topic in read & their_written:
            found.setdefault(topic, []).append(f"from {other.name}")
        for topic in written & their_read:
            found.setdefault(topic, []).append(f"to {other.name}")
    return found


def flow(app: FoundApp, queries: Sequence[Mapping[str, Any]], beside: Mapping[str, Sequence[str]]) -> Markup:
    """The picture. `queries` are those of `rekappa config --json`; until they are known one box stands for all."""
    if app.loaded is None:
        return Markup("")
    config = app.loaded.config
    sources = {name: _source(name, config, beside) for name in config.sources}
    jobs = {str(one["job"]): Box(str(one["job"]), "job", "job") for one in queries} or {
        app.name: Box(app.name, "jobs", "job")
    }
    sinks = {name: _sink(name, config, beside) for name in config.sinks}
    columns = [sources, jobs, sinks]
    height = max(len(one) for one in columns) * (_TALL + _GAP) - _GAP
    places = {
        (number, name): (number * (_BOX + _ACROSS), _start(len(column), height) + row * (_TALL + _GAP))
        for number, column in enumerate(columns)
        for row, name in enumerate(column)
    }
    links = {(name, str(q["job"])) for q in queries for name in q.get("sources", ())} or {
        (name, job) for name in sources for job in jobs
    }
    outs = {(str(q["job"]), str(q["sink"])) for q in queries} or {(job, name) for job in jobs for name in sinks}
    drawn = [_link(places[0, left], places[1, right]) for left, right in sorted(links) if (0, left) in places]
    drawn += [_link(places[1, left], places[2, right]) for left, right in sorted(outs) if (2, right) in places]
    drawn += [_drawn(columns[number][name], place) for (number, name), place in places.items()]
    width = 3 * _BOX + 2 * _ACROSS
    label = escape(f"{app.name}: {', '.join(sources)} into {', '.join(sinks)}")
    return Markup(
        f'<svg class="flow" viewBox="-2 -2 {width + 4} {height + 4}" role="img" aria-label="{label}">'
        f"{''.join(drawn)}</svg>"
    )


def _start(count: int, height: int) -> float:
    return (height - count * (_TALL + _GAP) + _GAP) / 2


def _source(name: str, config: AppConfig, beside: Mapping[str, Sequence[str]]) -> Box:
    source = config.sources[name]
    chosen = source.candidates[source.selected]
    where = chosen.topic if isinstance(chosen, KafkaCandidate) else getattr(chosen, "table", "")
    told = ", ".join(beside.get(str(where), ()))
    return Box(name, f"{chosen.type} {where}" + (f" {told}" if told else ""), "source")


def _sink(name: str, config: AppConfig, beside: Mapping[str, Sequence[str]]) -> Box:
    sink = config.sinks[name]
    told = ", ".join(beside.get(str(getattr(sink, "topic", "")), ()))
    return Box(name, f"{sink.type} {target_of(sink)}" + (f" {told}" if told else ""), "sink")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _drawn(box: Box, place: tuple[float, float]) -> str:
    x, y = place
    return (
        f"<g><title>{escape(box.name)}: {escape(box.note)}</title>"
        f'<rect class="box {box.kind}" x="{x}" y="{y}" width="{_BOX}" height="{_TALL}" rx="9"/>'
        f'<text class="name" x="{x + 12}" y="{y + 20}">{escape(_cut(box.name, 26))}</text>'
        f'<text class="mark" x="{x + 12}" y="{y + 36}">{escape(_cut(box.note, 34))}</text></g>'
    )


def _link(left: tuple[float, float], right: tuple[float, float]) -> str:
    x, y, u, v = left[0] + _BOX, left[1] + _TALL / 2, right[0], right[1] + _TALL / 2
    middle = (x + u) / 2
    return f'<path class="link" d="M{x} {y} C{middle} {y} {middle} {v} {u} {v}"/>'
