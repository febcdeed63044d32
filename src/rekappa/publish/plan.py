"""What publishing a run will do, sink by sink: a frozen value. `--dry-run` prints it, publishing carries it out.

    plan = make_publish_plan(spark, staged)
    publish(spark, staged, plan)

It holds what production and staging were when it was made. Where either has changed by the time it is carried out,
publishing refuses: what was shown is what happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rekappa.timeline import Window

VERSION = 1


class PublishState(StrEnum):
    """What production holds of a run, in one sink.

    A sink without atomic commits is in between while rows are sent: cut short there, the same command completes it.
    """

    NEVER = "never published"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    UNDOING = "undoing"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Effect:
    """What publishing, or undoing, changes in one sink. `kept`: rows left alone because others changed them.

    Files are counted where the sink has some and it costs nothing to know.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    kept: int = 0
    files_dropped: int | None = None
    files_rewritten: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """One sink's part. `base` is production as it was looked at: a table's snapshot, or a digest of the rows at stake;
    `staging` the snapshot of the staging table."""

    sink: str
    target: str
    state: PublishState
    effect: Effect
    base: str | None
    staging: int | None

    @property
    def done(self) -> bool:
        """Production holds it already."""
        return self.state is PublishState.PUBLISHED

    def as_json(self) -> dict[str, Any]:
        where = {"sink": self.sink, "target": self.target, "state": self.state.value, "done": self.done}
        return {**where, **asdict(self.effect), "base": self.base, "staging": self.staging}


@dataclass(frozen=True, slots=True)
class PublishPlan:
    run: str
    window: Window
    sinks: tuple[SinkPlan, ...]

    @property
    def done(self) -> bool:
        return all(one.done for one in self.sinks)

    def as_json(self) -> dict[str, Any]:
        sinks = [one.as_json() for one in self.sinks]
        return {"version": VERSION, "run": self.run, "window": self.window.as_json(), "sinks": sinks}


@dataclass(frozen=True, slots=True)
class Undone:
    """What undoing did to one sink. `stays` says why it could not be undone."""

    sink: str
    state: PublishState
    effect: Effect = Effect()
    happened: bool = False
    stays: str | None = None


def counted(counts: Mapping[str, int]) -> Effect:
    """An effect from how many rows there are of each kind: added, changed, removed, unchanged, kept."""
    added, changed, removed, unchanged, kept = (
        counts.get(kind, 0) for kind in ("added", "changed", "removed", "unchanged", "kept")
    )
    return Effect(added, changed, removed, unchanged, kept)
