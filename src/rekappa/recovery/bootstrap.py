"""Bootstrap: build a job's state from the archive, then carry on from Kafka at exactly the next offset.

    plan = plan_bootstrap(spark, loaded, app, home, BootstrapRequest(since))
    bootstrap(loaded, app, home, request)

It is a live run like any other whose first batches read the archive. Stopped or killed, `rekappa run` goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.app import App
from rekappa.checkpoints.restarts import CARRIES_ON
from rekappa.config.bind import Query, live_queries
from rekappa.config.load import Loaded
from rekappa.errors import RunError
from rekappa.home import Home
from rekappa.plan.catch_up import EndOffsets
from rekappa.plan.coverage import Want
from rekappa.plan.offsets import Position
from rekappa.planning.catch_up import ArchiveLook, look, starts_since
from rekappa.planning.production import production_runs
from rekappa.runs.current import require_same_topics, require_settled, same_places, topics_of
from rekappa.runs.doubling import require_nothing_doubled, target
from rekappa.runs.history import History, reached
from rekappa.runs.live import live_session, new_live_run, run_live
from rekappa.runs.live_run import LiveRun, require_kafka
from rekappa.spark.offsetlog import last_committed, last_planned
from rekappa.store.record import Kind, Run, State
from rekappa.store.runs import RunStore
from rekappa.timeline import format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BootstrapRequest:
    """`since` is where history begins, in ingestion time. What history gives is held back, unless `write_history`."""

    since: datetime
    write_history: bool = False
    append_again: bool = False
    allow_gaps: bool = False


@dataclass(frozen=True, slots=True)
class BootstrapPlan:
    """What would run. `after` names for each query the run whose output it carries on; no entry where there is none."""

    history: History
    found: ArchiveLook
    after: Mapping[str, str]

    @property
    def batches(self) -> dict[str, int]:
        """Micro-batches of history, by query."""
        starts = self.history.starts
        return {query: len(self.found.ends(_of(starts, until), until)) for query, until in self.history.until.items()}

    def rows(self) -> list[tuple[Any, ...]]:
        """For each partition: source, region, topic, number, first offset, where history ends, where the archive does,
        where Kafka begins and ends."""
        ends = {at: max(until.get(at, 0) for until in self.history.until.values()) for at in self.history.starts}
        return [
            (*one.position, one.start, ends[one.position], one.hand_over, one.end)
            for one in sorted(self.found.coverage.stretches, key=lambda one: one.position)
        ]


def bootstrap(loaded: Loaded, app: App, home: Home, request: BootstrapRequest, **options: Any) -> Run:
    """Plan, begin a new run, and run it; `options` are those of `run_live`. Refuses before anything is touched."""

    require_past(loaded, request)

    def begin(store: RunStore) -> Run:
        plan = plan_bootstrap(live_session(loaded, home), loaded, app, home, request)
        run = new_live_run(
            loaded, live_queries(loaded, app), topics_of(loaded, home),
            since=format_instant(request.since), **{CARRIES_ON: dict(plan.after)},
        )  # fmt: skip
        # First what it is to do: a run that is recorded never lacks its history.
        plan.history.save(home.checkpoint(run.app, run.id))
        return store.create(run)

    return run_live(loaded, app, home, choose=begin, **options)


def plan_bootstrap(
    spark: SparkSession, loaded: Loaded, app: App, home: Home, request: BootstrapRequest
) -> BootstrapPlan:
    """What a bootstrap would read, and where each query begins to write. Changes nothing.

    A query that an earlier run wrote carries on that run's output: what comes from events that the earlier run had read
    is held back, and nothing is missing or doubled in between. One that nobody wrote yet begins to write where the
    archive ends.
    """
    config, bound = loaded.config, live_queries(loaded, app)
    doing = f"bootstrap {config.app!r}"
    live = LiveRun(loaded, app, home, "", bound)
    require_kafka(live)
    require_past(loaded, request)
    store = RunStore.open(home)
    for newest in [one for one in same_places(store, loaded) if one.state is not State.ABANDONED][:1]:
        require_settled(newest)
        require_same_topics(newest, topics_of(loaded, home), doing)
    if request.write_history and not request.append_again:
        require_nothing_doubled(store, config, bound, store.runs(config.app, Kind.LIVE))
    starts = starts_since(spark, loaded, home, live.sources, request.since, doing)
    earlier = {} if request.write_history else _earlier(store, live, doing)
    for query, run in earlier.items():
        for at, end in run.ends.items():
            if end < starts.get(at, 0):
                raise RunError(
                    f"Cannot {doing} from {format_instant(request.since)}: run {run.run} wrote {query!r} up to offset "
                    f"{end} of topic {at.topic!r}, partition {at.partition}, and history would begin at {starts[at]}",
                    hint="Take an earlier time: what lies between would be in nobody's output.",
                )
    wants = [
        Want(at, start, max((one.ends.get(at, 0) for one in earlier.values()), default=0))
        for at, start in starts.items()
    ]
    found = look(spark, loaded, home, wants, allow_gaps=request.allow_gaps)
    found.require(doing)
    until = {
        query.name: _until(live, query, starts, found.coverage.hand_over, earlier.get(query.name)) for query in bound
    }
    closed = frozenset(query for query, run in earlier.items() if run.closed)
    history = History(request.since, starts, until, not request.write_history, closed, request.allow_gaps)
    return BootstrapPlan(history, found, {query: one.run for query, one in earlier.items()})


def require_past(loaded: Loaded, request: BootstrapRequest) -> None:
    """Refuse a history that would begin in the future."""
    if request.since > datetime.now(UTC):
        raise RunError(
            f"Cannot bootstrap {loaded.config.app!r} from {format_instant(request.since)}: that is in the future",
            hint="Take a time from which on the archive has events: rekappa archive status shows it.",
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What a run has written of a query: what came from events below `ends`. `closed` if its last batch had no events,
    and so let go of the state that they had finished."""

    run: str
    ends: EndOffsets
    closed: bool


def _until(
    live: LiveRun, query: Query, starts: EndOffsets, hand_over: EndOffsets, earlier: Written | None
) -> EndOffsets:
    """Where the query's history ends. A partition that the earlier run did not know has none."""
    own = {at: end for at, end in hand_over.items() if at[:3] in live.feeds(query)}
    return own if earlier is None else {at: earlier.ends.get(at, starts[at]) for at in own}


def _earlier(store: RunStore, live: LiveRun, doing: str) -> dict[str, Written]:
    """The newest production run of each query that wrote something."""
    found: dict[str, Written] = {}
    for query in live.bound:
        for run in production_runs(store, live.loaded, query.sink):
            written = _written(store, LiveRun(live.loaded, live.app, live.home, run.id, live.bound), query, doing)
            if written is not None:
                found[query.name] = written
                break
    return found


def _written(store: RunStore, run: LiveRun, query: Query, doing: str) -> Written | None:
    checkpoint, order, history = run.checkpoint(query), run.feeds(query), run.history()
    batches = store.batches(run.run, query.name)
    committed = last_committed(checkpoint)
    if committed is None and not any(batch.number >= 0 for batch in batches):
        return None
    if committed is not None and last_planned(checkpoint) != committed and target(run.loaded.config.sinks[query.sink]):
        raise RunError(
            f"Cannot {doing}: run {run.run} was killed in its batch {committed + 1} of {query.name!r}, and what of it "
            "is written is not known",
            hint=f"Let it finish that batch: rekappa run {run.loaded.config.app} --available-now",
        )
    if committed is not None:
        ends = reached(checkpoint, committed, order)
        before = (
            reached(checkpoint, committed - 1, order) if (checkpoint / "offsets" / str(committed - 1)).exists() else {}
        )
    else:
        ends, before = _ends(batches[-1].positions), _ends(batches[-2].positions) if len(batches) > 1 else {}
    own = history.until.get(query.name, {}) if history is not None and history.held else {}
    if any(ends.get(at, 0) < end for at, end in own.items()):
        # It is still reading its own history, of which it writes nothing.
        return None
    return Written(run.run, ends, ends == before)


def _ends(standings: Sequence[Any]) -> dict[Position, int]:
    return {
        Position(one.source, one.region, one.topic, number): end
        for one in standings
        for number, end in one.ends.items()
        if one.reader == 0
    }


def _of(starts: EndOffsets, until: EndOffsets) -> EndOffsets:
    return {at: starts[at] for at in until}
