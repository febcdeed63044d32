"""How the apps of a project hang together: which of them writes what another reads, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.console.flow import Box, drawn_columns
from rekappa.operations.core import FoundApp


@dataclass(frozen=True, slots=True)
class Handover:
    """`source` writes `what`, a topic or a table, and `target` reads it."""

    source: str
    what: str
    target: str


def handovers(apps: Sequence[FoundApp]) -> list[Handover]:
    """Every pair of apps of which one reads what the other writes, live or from the past."""
    known = [(one.name, one.loaded.config) for one in apps if one.loaded is not None]
    found = {
        Handover(source, what, target)
        for source, writes in known
        for target, reads in known
        if source != target
        for what in written(writes) & read(reads)
    }
    return sorted(found, key=lambda one: (one.source, one.what, one.target))


def written(config: AppConfig) -> set[str]:
    """The topics and tables that an app writes, each named with the broker or the kind that it is of."""
    found = set()
    for sink in config.sinks.values():
        if sink.type == "kafka":
            found.add(f"topic {sink.topic} at {config.cluster(sink.cluster).bootstrap}")
        elif sink.type == "iceberg":
            found.add(f"table {sink.table}")
    return found


def read(config: AppConfig) -> set[str]:
    """The topics and tables that an app can read."""
    found = set()
    for source in config.sources.values():
        for one in source.candidates.values():
            if isinstance(one, KafkaCandidate):
                clusters = [config.cluster(name) for name in one.cluster]
                found |= {f"topic {each.topic(one.topic)} at {each.bootstrap}" for each in clusters}
            elif one.type == "iceberg":
                found.add(f"table {one.table}")
    return found


def neighbours(app: str, links: Sequence[Handover]) -> dict[str, list[str]]:
    """For each topic or table of the app, by its name, the apps that write it or read it too."""
    found: dict[str, list[str]] = {}
    for one in links:
        name = one.what.split(" ")[1]
        if one.target == app:
            found.setdefault(name, []).append(f"from {one.source}")
        if one.source == app:
            found.setdefault(name, []).append(f"to {one.target}")
    return found


def downstream(app: str, links: Sequence[Handover]) -> list[str]:
    """The apps that what an app writes reaches, nearest first: a rewind of it concerns them."""
    found: list[str] = []
    edge = [app]
    while edge:
        edge = sorted({one.target for one in links if one.source in edge} - {app, *found})
        found += edge
    return found


def depths(links: Sequence[Handover]) -> dict[str, int]:
    """How many apps stand before each, at most; apps in a circle stand where they were met."""
    names = sorted({name for one in links for name in (one.source, one.target)})
    found = dict.fromkeys(names, 0)
    for _ in names:
        for one in links:
            found[one.target] = max(found[one.target], min(found[one.source] + 1, len(names) - 1))
    return found


def chain(links: Sequence[Handover]) -> Markup:
    """The apps and what they hand over, from left to right; empty if they have nothing to do with each other."""
    if not links:
        return Markup("")
    place = depths(links)
    columns: list[dict[str, Box]] = [{} for _ in range(2 * max(place.values()) + 1)]
    for name, depth in place.items():
        columns[2 * depth][name] = Box(name, "app", "job", f"/apps/{name}")
    arrows = set()
    for one in links:
        at = 2 * place[one.source] + 1
        at = min(at, len(columns) - 2)
        kind, _, rest = one.what.partition(" ")
        name = rest.partition(" at ")[0]
        columns[at].setdefault(one.what, Box(name, kind, "source", f"/topics/{name}" if kind == "topic" else ""))
        arrows |= {
            ((2 * place[one.source], one.source), (at, one.what)),
            ((at, one.what), (2 * place[one.target], one.target)),
        }
    told = "; ".join(f"{one.source} to {one.target} by {one.what.partition(' at ')[0]}" for one in links)
    return drawn_columns(columns, sorted(arrows), told)
