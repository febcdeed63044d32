"""An app as a picture: what it reads, its jobs, what it writes, and the apps on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.config.targets import target_of
from rekappa.masking import hidden
from rekappa.operations.core import FoundApp

_BOX, _TALL, _GAP = 210, 46, 12


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    note: str
    kind: str
    href: str = ""


Place = tuple[int, str]
"""A box by its column and its name there."""


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
    links = {(name, str(q["job"])) for q in queries for name in q.get("sources", ())} or {
        (name, job) for name in sources for job in jobs
    }
    outs = {(str(q["job"]), str(q["sink"])) for q in queries} or {(job, name) for job in jobs for name in sinks}
    arrows: list[tuple[Place, Place]] = [((0, left), (1, right)) for left, right in sorted(links) if left in sources]
    arrows += [((1, left), (2, right)) for left, right in sorted(outs) if right in sinks]
    label = f"{app.name}: {', '.join(sources)} into {', '.join(sinks)}"
    return drawn_columns([sources, jobs, sinks], arrows, label)


def drawn_columns(columns: Sequence[Mapping[str, Box]], arrows: Sequence[tuple[Place, Place]], label: str) -> Markup:
    """Boxes in columns from left to right, and what leads from one to another."""
    height = max(len(one) for one in columns) * (_TALL + _GAP) - _GAP
    across = 95 if len(columns) <= 3 else 45
    places = {
        (number, name): (number * (_BOX + across), _start(len(column), height) + row * (_TALL + _GAP))
        for number, column in enumerate(columns)
        for row, name in enumerate(column)
    }
    drawn = [_link(places[left], places[right]) for left, right in arrows]
    drawn += [_drawn(columns[number][name], place) for (number, name), place in places.items()]
    width = len(columns) * (_BOX + across) - across
    return Markup(
        f'<div class="scroll"><svg class="flow n{min(len(columns), 5)}" viewBox="-2 -2 {width + 4} {height + 4}" '
        f'role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg></div>'
    )


def _start(count: int, height: int) -> float:
    return (height - count * (_TALL + _GAP) + _GAP) / 2


def _source(name: str, config: AppConfig, beside: Mapping[str, Sequence[str]]) -> Box:
    source = config.sources[name]
    chosen = source.candidates[source.selected]
    where = chosen.topic if isinstance(chosen, KafkaCandidate) else getattr(chosen, "table", "")
    told = ", ".join(beside.get(str(where), ()))
    return Box(
        name, f"{chosen.type} {where}" + (f" {told}" if told else ""), "source", _topic(chosen.type, where, told)
    )


def _sink(name: str, config: AppConfig, beside: Mapping[str, Sequence[str]]) -> Box:
    sink = config.sinks[name]
    where = sink.topic if sink.type == "kafka" else target_of(sink)
    told = ", ".join(beside.get(where, ()))
    return Box(name, f"{sink.type} {where}" + (f" {told}" if told else ""), "sink", _topic(sink.type, where, told))


def _topic(kind: str, where: str, told: str) -> str:
    """The page of a topic that stands between apps."""
    return f"/topics/{where}" if kind == "kafka" and told else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _drawn(box: Box, place: tuple[float, float]) -> str:
    x, y = place
    note = hidden(box.note)
    drawn = (
        f"<g><title>{escape(box.name)}: {escape(note)}</title>"
        f'<rect class="box {box.kind}" x="{x}" y="{y}" width="{_BOX}" height="{_TALL}" rx="9"/>'
        f'<text class="name" x="{x + 12}" y="{y + 20}">{escape(_cut(box.name, 26))}</text>'
        f'<text class="mark" x="{x + 12}" y="{y + 36}">{escape(_cut(note, 34))}</text></g>'
    )
    return f'<a href="{escape(box.href)}">{drawn}</a>' if box.href else drawn


def _link(left: tuple[float, float], right: tuple[float, float]) -> str:
    x, y, u, v = left[0] + _BOX, left[1] + _TALL / 2, right[0], right[1] + _TALL / 2
    middle = (x + u) / 2
    return (
        f'<path class="link" d="M{x} {y} C{middle} {y} {middle} {v} {u - 7} {v}"/>'
        f'<path class="tip" d="M{u} {v} l-8 -4.500 v9 z"/>'
    )
