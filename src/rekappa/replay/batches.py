"""Production's micro-batches: copied from Spark's log into the store while it runs, for exact replay later."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rekappa.app import Job
from rekappa.config.model import AppConfig, KafkaCandidate
from rekappa.spark.offsetlog import committed_batches, starting_offsets
from rekappa.storage.location import Location
from rekappa.store.claim import Claim
from rekappa.store.record import Batch, Standing
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


def positions(lines: Sequence[str | None], order: Sequence[Feed]) -> tuple[Standing, ...]:
    """What each logged line says, by reader.

    Spark logs a line for every place where the query reads a topic, in the order of the query. Lines of one topic
    belong to its clusters in their configured order; after the last cluster the next reader of the source begins.
    """
    seen: Counter[Feed] = Counter()
    found: list[Standing] = []
    for line in lines:
        ends = json.loads(line) if line and line.startswith("{") else {}
        own = [feed for feed in order if isinstance(ends.get(feed[2]), dict)]
        if own:
            feed = min(own, key=lambda one: seen[one])
            parts = {int(part): int(end) for part, end in ends[feed[2]].items()}
            found.append(Standing(*feed, parts, seen[feed]))
            seen[feed] += 1
    return tuple(found)


def record_batches(store: RunStore, claim: Claim, query: str, checkpoint: Location, order: Sequence[Feed]) -> None:
    """Bring the store up to the checkpoint of the claim's run. Safe to call at any time, also when it resumes."""
    assert claim.run is not None, "only a run that has begun has batches"
    run = claim.run
    last = store.last_batch(run, query)
    fresh = [
        Batch(run, query, logged.number, positions(logged.sources, order), logged.watermark, committed)
        for logged, committed in committed_batches(checkpoint, last)
    ]
    if last is None and fresh:
        start = _starts(positions(starting_offsets(checkpoint), order), fresh[0].positions)
        fresh.insert(0, Batch(run, query, -1, start, None, datetime.now(UTC)))
    if fresh:
        store.record_batches(fresh, claim)


def _starts(known: Sequence[Standing], first: Sequence[Standing]) -> tuple[Standing, ...]:
    """Where every reader began. Readers that share one Kafka source of Spark share its beginning, logged once."""
    began = {(one.source, one.region, one.topic): one for one in reversed(known)}
    there = {(one.source, one.region, one.topic, one.reader) for one in known}
    shared = [
        replace(begin, reader=one.reader)
        for one in first
        if (one.source, one.region, one.topic, one.reader) not in there
        and (begin := began.get((one.source, one.region, one.topic))) is not None
    ]
    return (*known, *shared)
