"""Copying production's micro-batch boundaries from Spark's log into the store, for exact replay later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rekappa.app import Job
from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.spark.offsetlog import committed_batches, starting_offsets
from rekappa.store.record import Batch, Position
from rekappa.store.runs import RunStore

Feed = tuple[str, str, str]
"""Source, region and topic: what one line of the offset log is about."""


def feeds(config: AppConfig, job: Job) -> tuple[Feed, ...]:
    """The Kafka feeds of a job, in the order in which its query reads them."""
    found: list[Feed] = []
    for name in job.sources:
        source = config.sources[name]
        candidate = source.candidates[source.selected]
        if isinstance(candidate, KafkaCandidate):
            clusters = [config.cluster(cluster) for cluster in candidate.cluster]
            found += [(name, cluster.region, cluster.topic(candidate.topic)) for cluster in clusters]
    return tuple(found)


def positions(lines: Sequence[str | None], order: Sequence[Feed]) -> tuple[Position, ...]:
    """What each logged line says. Lines of one topic belong to its clusters in their configured order."""
    left = list(order)
    found: list[Position] = []
    for line in lines:
        ends = json.loads(line) if line and line.startswith("{") else {}
        for feed in left:
            if isinstance(ends.get(feed[2]), dict):
                found.append(Position(*feed, {int(part): int(end) for part, end in ends[feed[2]].items()}))
                left.remove(feed)
                break
    return tuple(found)


def record_batches(store: RunStore, run: str, query: str, checkpoint: Path, order: Sequence[Feed]) -> None:
    """Bring the store up to the checkpoint. Safe to call at any time, from a run that resumes as well."""
    last = store.last_batch(run, query)
    fresh = [
        Batch(run, query, logged.number, positions(logged.sources, order), logged.watermark, committed)
        for logged, committed in committed_batches(checkpoint, last)
    ]
    if last is None and fresh:
        start = positions(starting_offsets(checkpoint), order)
        fresh.insert(0, Batch(run, query, -1, start, None, datetime.now(UTC)))
    if fresh:
        store.record_batches(fresh)
