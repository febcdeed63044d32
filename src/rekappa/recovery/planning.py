"""Making the plan of a rewind: everything is tried and counted, nothing is touched.

    plan = plan_rewind(live, ToTime(moment), cascade=True)

Each query goes back to the point that is wanted; one downstream to its last point that has read none of the messages
which are abandoned above it. What it sent after that point is abandoned in turn, and so on down the chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from rekappa.checkpoints.fork import files_of
from rekappa.checkpoints.restarts import Restart, abandoned_by
from rekappa.config.bind import Query
from rekappa.config.targets import target_of
from rekappa.errors import RunError
from rekappa.plan.coverage import Want, dropped
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import kept_by_kafka
from rekappa.recovery.chain import Chain, chain_of
from rekappa.recovery.choose import NoState, ToNewest, Wanted, choose, choose_before
from rekappa.recovery.graph import ChainedQuery, FirstAbandoned, Limits
from rekappa.recovery.listing import line, output_line, queries_of, query_restarts
from rekappa.recovery.live_app import LiveApp
from rekappa.recovery.plan import SLACK, QueryRewind, RewindPlan
from rekappa.recovery.preflight import preflight
from rekappa.recovery.resets.topics import TopicReset
from rekappa.replay.batches import positions
from rekappa.runs.current import (
    PLACES,
    current_run,
    require_same_sources,
    require_same_topics,
    require_settled,
    topics_of,
)
from rekappa.runs.live_run import LiveRun
from rekappa.spark.offsetlog import read_batch
from rekappa.store.record import Kind, Run, new_run_id
from rekappa.store.runs import RunStore


@dataclass
class _AppPlanning:
    """One app on its way to a plan."""

    live: LiveApp
    run: Run
    going_on: LiveRun
    known: Mapping[str, tuple[Restart, ...]]
    chosen: dict[str, Restart] = field(default_factory=dict)
    parts: dict[str, QueryRewind] = field(default_factory=dict)

    @classmethod
    def begin(cls, live: LiveApp) -> _AppPlanning:
        store = live.store
        run = current_run(store, live.loaded)
        require_settled(run)
        going_on = LiveRun(live.loaded, live.app, live.home, new_run_id(Kind.LIVE), live.queries)
        return cls(live, run, going_on, query_restarts(live.home, store, run))

    def query(self, name: str) -> Query:
        return next(query for query in self.live.queries if query.name == name)

    def choose(self, name: str, wanted: Wanted, limits: Limits) -> None:
        """Choose the query's point; one that the app has only now begins without state, as any new one."""
        known = self.known.get(name, ())
        if isinstance(wanted, NoState) or not (known or self.live.store.has_written(self.run.id, name)):
            return
        found: Restart | None = choose(name, known, wanted)
        if found is not None and limits:
            found = choose_before(known, found, limits, lambda at: furthest(self.going_on, self.query(name), at))
        if found is not None:
            self.chosen[name] = found

    def plan(self, notes: Mapping[str, tuple[str, ...]]) -> RewindPlan:
        parts = [replace(self.parts[query.name], notes=notes.get(query.name, ())) for query in self.live.queries]
        return RewindPlan(self.going_on.run, self.run.app, self.run.id, tuple(parts))


def plan_rewind(live: LiveApp, wanted: Wanted, *, cascade: bool = False) -> RewindPlan:
    """Everything that a rewind would do, tried and counted. Touches nothing; refuses what can't be done.

    Of a run that is going it tells what would happen if it stopped now. Apps that read what this one writes are
    rewound with it if `cascade` says so; otherwise it is refused.
    """
    chain = chain_of(live)
    if len(chain.apps) > 1 and not cascade:
        raise RunError(
            f"Cannot rewind {live.name!r} alone: {', '.join(list(chain.apps)[1:])} read what it writes",
            hint="--cascade rewinds them with it; with --dry-run it shows how far.",
        )
    found = {name: _AppPlanning.begin(one) for name, one in chain.apps.items()}
    for name, one in found.items():
        if name != live.name or not isinstance(wanted, NoState):
            require_same_sources(one.run, one.live.loaded)
            require_same_topics(one.run, topics_of(one.live.loaded, one.live.home), f"rewind {name!r}")
    _choose_all(chain, found, live.name, wanted)
    plans = []
    for one in found.values():
        _require_same_places(one)
        _require_beginning(one, [query for query in one.parts if query not in one.chosen])
        # Each under its own settings: another app's may be in place.
        spark = one.live.session() if len(found) > 1 else one.live.spark
        plans.append(one.plan(preflight(spark, one.going_on, one.chosen)))
    return replace(plans[0], downstream=tuple(plans[1:]), flows=chain.flows)


def _choose_all(chain: Chain, found: Mapping[str, _AppPlanning], head: str, wanted: Wanted) -> None:
    """A point for every query, from the top of the chain down."""
    limits: dict[ChainedQuery, dict[Position, FirstAbandoned]] = defaultdict(dict)
    for node in chain.order:
        one = found[node.app]
        one.choose(node.query, wanted if node.app == head else ToNewest(), limits[node])
        at = one.chosen.get(node.query)
        part = _part(one.live.store, one.run, one.query(node.query), at)
        files = files_of(at.folder, at.point.batch) if at else ()
        told = tuple(f"{first} of {place.topic}/{place.partition}" for place, first in limits[node].items())
        way = one.live.resetter(one.going_on.run, one.query(node.query), part)
        one.parts[node.query] = replace(part, files=files, before=told, reset=way.look())
        if not isinstance(way, TopicReset):
            continue
        for flow in chain.flows:
            for partition, first in way.firsts.items() if flow.writer == node else ():
                place = flow.position(partition)
                limits[flow.reader][place] = first.joined(limits[flow.reader].get(place, first))


def furthest(live: LiveRun, query: Query, at: Restart) -> dict[Position, int]:
    """How far a point has read; of a source that the query reads in several places, where the first of them is."""
    found: dict[Position, int] = {}
    for one in positions(read_batch(at.folder, at.point.batch).sources, live.feeds(query)):
        for partition, end in one.ends.items():
            place = Position(one.source, one.region, one.topic, partition)
            found[place] = max(end, found.get(place, end))
    return found


def _require_same_places(one: _AppPlanning) -> None:
    """Refuse to abandon what was written to a place that the configuration no longer names: it would stay there. A
    query that begins without state may begin in another place: what was written so far stays as it is then, whole."""
    put_back = "Put it back for the rewind, and change it after that."
    store, run = one.live.store, one.run
    gone: list[QueryRewind] = []
    for name, part in one.parts.items():
        if part.batch < 0:
            continue
        sink = one.query(name).sink
        now = target_of(one.live.loaded.config.sinks[sink])
        for leg in part.abandoned:
            last = store.last_batch(leg.run, name)
            if last is None or last <= leg.after:
                continue
            gone.append(part)
            then = store.run(leg.run).spec.get(PLACES, {}).get(name, now)
            if then != now:
                raise RunError(
                    f"Cannot rewind {run.app!r}: run {leg.run} wrote sink {sink!r} to {then}, and by its configuration "
                    f"that is {now} now",
                    hint=put_back,
                )
    if not gone:
        return
    cut = min(part.committed or part.since for part in gone)
    for name in set(queries_of(store, run)) - one.parts.keys():
        last = store.last_batch(run.id, name) or 0
        if store.has_written(run.id, name) and store.commit_times(run.id, name, last).get(last, cut) > cut:
            raise RunError(
                f"Cannot rewind {run.app!r}: its configuration no longer has what run {run.id} wrote as {name!r}, also "
                "since the point that is wanted",
                hint=put_back,
            )


def _require_beginning(one: _AppPlanning, names: Collection[str]) -> None:
    """Refuse to take out what can't be made again: Kafka must have all that a query without a point has ever read."""
    store, live = one.live.store, one.going_on
    wants = [
        Want(Position(at.source, at.region, at.topic, partition), start)
        for name in names
        for leg in output_line(store, one.run, name)
        for batch in store.batches(leg.run, name)[:1]
        for at in batch.positions
        for partition, start in at.ends.items()
    ]
    gone = dropped(wants, kept_by_kafka(live.loaded, live.home, live.sources)) if wants else []
    if gone:
        at = gone[0].position
        raise RunError(
            f"Cannot rewind {one.run.app!r} to no state: Kafka has dropped events that it has read, from offset "
            f"{gone[0].start} of topic {at.topic!r}, partition {at.partition}, on",
            hint=f"`rekappa bootstrap {one.run.app} --from …` makes state from the archive.",
        )


def _part(store: RunStore, run: Run, query: Query, at: Restart | None) -> QueryRewind:
    """What becomes of one query that goes on from a point, or without state."""
    legs = output_line(store, run, query.name) if at is None else line(store, run, query.name)
    gone = legs if at is None else abandoned_by(legs, at.run, at.point.batch)
    counting = set() if at is None else {leg.run for leg in legs} - {leg.run for leg in gone if leg.run != at.run}
    every = {one.id for one in store.runs(run.app, Kind.LIVE)}
    began = at.point.committed if at else store.run(legs[-1].run).created
    return QueryRewind(
        query=query.name,
        run=at.run if at else run.id,
        batch=at.point.batch if at else -1,
        last=store.last_batch(run.id, query.name),
        committed=at.point.committed if at else None,
        savepoint=at.savepoint if at else None,
        folder=at.folder if at else None,
        abandoned=gone,
        dead=tuple(sorted(every - counting)),
        since=began - SLACK,
    )
