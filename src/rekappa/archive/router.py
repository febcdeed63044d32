"""The router: one streaming query per source, from its topic into its table."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rekappa.archive.batch import BatchWriter
from rekappa.archive.completeness import Ends, Partition, clusters, properties, reached
from rekappa.archive.offsets import archived_ends, batch_ends, starting_offsets
from rekappa.archive.tables import Route, prepare_archive, prepare_dead_letters, quoted_table, routes
from rekappa.errors import ArchiveError, LeaseLost
from rekappa.home import Home
from rekappa.iceberg.commits import load_table, newest_writer
from rekappa.iceberg.upkeep import Upkeep
from rekappa.sources.decode import decoder, payload_type
from rekappa.sources.kafka import messages
from rekappa.spark.failures import Failure, read_failure
from rekappa.spark.launch import spark_log
from rekappa.spark.offsetlog import last_committed, last_planned
from rekappa.store.claim import Claim
from rekappa.store.pins import pins_of
from rekappa.store.record import Kind, Run, State, new_run_id
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rekappa.config.load import Loaded

HEARTBEAT_SECONDS = 60.0
CONTINUES = "Nothing is lost: rekappa archive run continues where it was."


@dataclass(frozen=True, slots=True)
class RouteProgress:
    """How far one route is, for the progress line."""

    source: str
    batch: int
    rows: int
    behind: int
    complete_until: dict[str, datetime]


class Stopping(Exception):
    """Ends a query between two batches."""


class Router:
    """Copies one route. `start` once, then `beat` now and then, `stop` at the end, and `mark` after it."""

    def __init__(self, spark: SparkSession, loaded: Loaded, home: Home, route: Route, claim: Claim) -> None:
        self.route, self.rows, self.batch, self._claim = route, 0, -1, claim
        self._spark, self._loaded, self._home = spark, loaded, home
        self._folder = route.checkpoint(home)
        self._clusters = clusters(loaded, home, route)
        self._regions = [cluster.region for cluster in self._clusters]
        self._complete: dict[str, datetime] = {}
        self._marked: dict[str, datetime] = {}
        self._seen: list[Ends] = []
        self._at: dict[Partition, int] = {}
        self._lows: dict[Partition, int] = {}
        self._last_mark = time.monotonic()
        self._writing, self._stopping = threading.Lock(), threading.Event()
        # Whether a batch may have made some of its commits and not all: none of ours may then stand above them.
        self._unfinished = False
        self._writer: BatchWriter | None = None
        self._query: Any = None
        pins = pins_of(home)
        self._upkeep = [Upkeep(quoted_table(table), pins) for table in (route.table, route.dead_letters)]

    def start(self, available_now: bool) -> None:
        """Make the tables ready and start the query where the last one ended."""
        spark, config, route = self._spark, self._loaded.config, self.route
        declared = payload_type(route.source, self._loaded.folder)
        self._columns = prepare_archive(spark, route, declared, config.archive)
        prepare_dead_letters(spark, route.dead_letters)
        self._declared = declared
        self._seen = [self._ends()]
        if self._overtaken():
            # What it knows is older than the table. Without it, the table says where to go on.
            self._folder.remove()
        last = last_committed(self._folder)
        if last is not None:
            self.batch, self._at = last, batch_ends(self._folder, last, self._regions)
        self._unfinished = last_planned(self._folder) != last
        self._lows = {part: low for cluster in self._clusters for part, (low, _) in cluster.bounds().items()}
        raw = messages(
            spark,
            config,
            self._home,
            route.kafka,
            starting=self._starting(),
            max_records=config.archive.max_records_per_batch,
        )
        stream = raw.writeStream.foreachBatch(self._write).queryName(f"archive {route.app} {route.source_name}")
        stream = stream.option("checkpointLocation", self._folder.uri)
        if available_now:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=f"{max(1, round(config.archive.trigger.total_seconds()))} seconds")
        self._query = stream.start()

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    def failure(self) -> Failure | None:
        """Why the query ended, None if it runs or was stopped."""
        error = self._query.exception()
        if error is None or (self._stopping.is_set() and Stopping.__name__ in str(error)):
            return None
        return read_failure(error)

    def beat(self) -> RouteProgress:
        """Say how far it is; where nothing has come for a while, note in the table that nothing is missing."""
        if time.monotonic() - self._last_mark > HEARTBEAT_SECONDS and not self._query.status["isTriggerActive"]:
            self.mark()
        ends = self._seen[-1].offsets.items()
        behind = sum(max(0, end - self._at.get(part, self._lows.get(part, 0))) for part, end in ends)
        return RouteProgress(self.route.source_name, self.batch, self.rows, behind, dict(self._complete))

    def mark(self) -> None:
        """Note what is known of completeness in the table, which makes no snapshot. Never in the middle of a batch, nor
        after half of one: what it says is true of the rows that are there."""
        with self._writing:
            self._last_mark = time.monotonic()
            if self.batch < 0 or self._unfinished:
                return
            self._seen.append(self._ends())
            self._judge()
            if self._complete == self._marked:
                return
            self._claim.check()
            note = load_table(self._spark, quoted_table(self.route.table)).updateProperties()
            for key, value in properties(self._complete).items():
                note = note.set(key, value)
            note.commit()
            self._marked = dict(self._complete)
            self._look_after()

    def stop(self) -> None:
        """End after the current batch."""
        self._stopping.set()
        while self._query.isActive and self._query.status["isTriggerActive"]:
            time.sleep(0.1)
        self._query.stop()

    def _write(self, raw: DataFrame, number: int) -> None:
        with self._writing:
            if self._stopping.is_set():
                raise Stopping
            if self._writer is None:
                self._open_writer()
            assert self._writer is not None
            self._unfinished = True
            self._writer.write(raw, number, properties(self._complete))
            self._unfinished = False
            self._marked = dict(self._complete)
            now = batch_ends(self._folder, number, self._regions)
            self.rows += sum(end - self._at.get(part, self._lows.get(part, 0)) for part, end in now.items())
            self._at, self.batch = now, number
            self._judge()
            self._seen.append(self._ends())
            self._last_mark = time.monotonic()
            self._look_after()

    def _look_after(self) -> None:
        """Let old snapshots go. Asked for after batches and marks alike: they grow old while nothing comes, too."""
        for upkeep in self._upkeep:
            upkeep.after_commit(self._spark)

    def _overtaken(self) -> bool:
        """Whether another router, as of another app, has archived into the table since this checkpoint was written."""
        if not (self._folder / "metadata").exists():
            return False
        newest = newest_writer(self._spark, quoted_table(self.route.table))
        return newest is not None and not newest.startswith(self._name())

    def _name(self) -> str:
        """The name for the checkpoint's commits."""
        identity = json.loads((self._folder / "metadata").read_text().splitlines()[0])["id"]
        return f"{self.route.writer}:{identity}"

    def _open_writer(self) -> None:
        self._writer = BatchWriter(
            self.route,
            self._name(),
            decoder(self._loaded, self.route.source),
            self._declared,
            self._columns,
            self._loaded.config.archive.evolve,
            self._claim.check,
        )

    def _judge(self) -> None:
        """Work out up to when each region is complete, now that everything before `self._at` is written."""
        known = reached(self._at, self._seen)
        for cluster in self._clusters:
            parts = [part for part in self._seen[-1].offsets if part[0] == cluster.region]
            behind = {part: self._at.get(part, 0) for part in parts if part not in known}
            known |= cluster.times(behind) if behind else {}
            if parts and all(part in known for part in parts):
                moment = min(known[part] for part in parts)
                self._complete[cluster.region] = max(moment, self._complete.get(cluster.region, moment))
        passed = [ends for ends in self._seen if all(self._at.get(p, 0) >= end for p, end in ends.offsets.items())]
        self._seen = [*passed[-1:], *(ends for ends in self._seen if ends not in passed)]

    def _ends(self) -> Ends:
        moment = datetime.now(UTC)
        return Ends(moment, {part: end for cluster in self._clusters for part, end in cluster.ends().items()})

    def _starting(self) -> list[str]:
        """Where each cluster starts: at its earliest message; with a table but no checkpoint, after what it has."""
        lost = not (self._folder / "metadata").exists()
        ends = archived_ends(self._spark, self.route, self._clusters) if lost else {}
        return [starting_offsets(ends, cluster) if ends else "earliest" for cluster in self._clusters]


def run_routers(
    spark: SparkSession,
    loaded: Loaded,
    home: Home,
    *,
    only: str | None = None,
    available_now: bool = False,
    stop: threading.Event | None = None,
    on_start: Callable[[Run], None] = lambda run: None,
    report: Callable[[list[RouteProgress]], None] = lambda _: None,
) -> list[RouteProgress]:
    """Run every route of the app until `stop` is set or, with `available_now`, until all have caught up.

    It is a run of the store, the same one as before where the same tables were archived. One process at a time
    archives into a table, whatever app it is of.
    """
    stop = stop or threading.Event()
    wanted, store = routes(loaded, only), RunStore.open(home)
    names = [f"archive table {route.table}" for route in wanted]
    with store.claim(names, f"archive {loaded.config.app!r}") as claim:
        run = _run_of(store, loaded, wanted)
        claim.begin(run.id, spark_log(home).name)
        on_start(store.run(run.id))
        try:
            done = _route_all(
                [Router(spark, loaded, home, route, claim) for route in wanted], claim, available_now, stop, report
            )
        except LeaseLost:
            raise
        except BaseException as error:
            claim.end(State.FAILED, error=str(error))
            raise
        claim.end(State.STOPPED)
    return done


def _run_of(store: RunStore, loaded: Loaded, wanted: Sequence[Route]) -> Run:
    """The app's last archive run of these tables, or a new one."""
    spec = {"tables": {route.source_name: route.table for route in wanted}, "owner": loaded.config.owner}
    for run in store.runs(loaded.config.app, Kind.ARCHIVE):
        if run.spec.get("tables") == spec["tables"]:
            return run
    made = Run(new_run_id(Kind.ARCHIVE), loaded.config.app, Kind.ARCHIVE, str(loaded.folder), spec=spec)
    return store.create(made)


def _route_all(
    routers: list[Router],
    claim: Claim,
    available_now: bool,
    stop: threading.Event,
    report: Callable[[list[RouteProgress]], None],
) -> list[RouteProgress]:
    def tell() -> list[RouteProgress]:
        now = [router.beat() for router in routers]
        claim.update(progress={"routes": [_plain(one) for one in now]})
        return now

    started: list[Router] = []
    try:
        for router in routers:
            router.start(available_now)
            started.append(router)
        while not stop.is_set() and any(router.active for router in routers):
            report(tell())
            if any(router.failure() for router in routers):
                break
            stop.wait(0.5)
    finally:
        _stop_all(started)
    done = tell()
    for router in routers:
        problem = router.failure()
        if problem:
            raise ArchiveError(
                f"Cannot go on archiving source {router.route.source_name!r}: {problem.cause}",
                hint=f"{problem.remedy} {CONTINUES}".strip(),
            )
    return done


def _plain(progress: RouteProgress) -> dict[str, Any]:
    complete = {region: moment.isoformat() for region, moment in progress.complete_until.items()}
    return {**asdict(progress), "complete_until": complete}


def _stop_all(routers: list[Router]) -> None:
    from py4j.protocol import Py4JError

    try:
        for router in routers:
            router.stop()
        # Only when none writes any more: this is refused to a process that has lost its lease.
        for router in routers:
            router.mark()
    except (Py4JError, ConnectionError) as error:
        # A signal to the whole process group reaches Spark's own process as well.
        found = read_failure(error)
        raise ArchiveError(
            f"Cannot finish the current batch: {found.cause}", hint=f"{found.remedy} {CONTINUES}".strip()
        ) from None
