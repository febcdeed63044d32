"""What stands in the archive and in Kafka of the offsets that a run has still to read.

    found = look(spark, loaded, home, wants)
    found.require("run 'plays'")         refuses where nobody has some of them
    found.ends(starts, until)            the micro-batches

Nothing is changed. The archive is asked before Kafka, whose ends only grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.archive.completeness import brokers
from rekappa.archive.gaps import asked
from rekappa.archive.proofs import PartitionProof
from rekappa.archive.tables import exists, route_between
from rekappa.archive.verify import verify
from rekappa.config.load import Loaded
from rekappa.config.model import IcebergCandidate, KafkaCandidate
from rekappa.errors import RunError, SourceError
from rekappa.home import Home
from rekappa.iceberg.catalog import load_table
from rekappa.iceberg.splits import table_splits
from rekappa.plan.catch_up import ALWAYS, EndOffsets, Holdings, aligned_ends
from rekappa.plan.coverage import Coverage, Kept, Offsets, Want, cover, without
from rekappa.plan.model import OffsetRange, Split
from rekappa.plan.offsets import CutPoint, Position
from rekappa.plan.ordered import MAX_ROWS
from rekappa.record import INGESTION, OFFSET, PARTITION, REGION, TOPIC
from rekappa.replay.positions import cut_points
from rekappa.replay.values import ArchiveSource
from rekappa.sources.decode import record_type
from rekappa.sources.fenced import archive_fence
from rekappa.sources.open import named_source, past_candidate
from rekappa.timeline import format_instant, instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END = 1 << 62


@dataclass(frozen=True, slots=True)
class ArchiveLook:
    """What was found. `doubled` are the proofs of partitions of which the archive has some offset twice."""

    coverage: Coverage
    archives: Mapping[str, ArchiveSource]
    points: tuple[CutPoint, ...]
    splits: tuple[Split, ...]
    max_span: timedelta
    doubled: tuple[PartitionProof, ...] = ()

    @property
    def holdings(self) -> Holdings:
        return Holdings(self.points, self.splits)

    @property
    def rows(self) -> int:
        """The events to be read from the archive, at most."""
        return sum(one.hand_over - one.start for one in self.coverage.stretches)

    def ends(self, starts: EndOffsets, until: EndOffsets) -> tuple[EndOffsets, ...]:
        """The micro-batches between two positions."""
        return aligned_ends(self.points, starts, until, max_rows=MAX_ROWS, max_span=self.max_span)

    def require(self, doing: str) -> None:
        """Refuse where some of what is wanted is nowhere, or twice in the archive."""
        if self.coverage.holes:
            lines = [f"  {hole}" for hole in self.coverage.holes]
            raise RunError(
                "\n".join([f"Cannot {doing}: neither Kafka nor the archive has all that is to be read", *lines]),
                hint="`rekappa archive run APP` brings the archive up to date while Kafka has it; `archive verify APP` "
                "looks for gaps. Offsets without a message (transactions, compaction) that Kafka can no longer tell "
                "from lost ones are taken for such with --allow-gaps.",
            )
        for one in self.doubled:
            raise RunError(
                f"Cannot {doing}: the archive of source {one.source!r} has {one.repeated} offsets of topic "
                f"{one.topic!r}, partition {one.partition}, twice, from {one.duplicates[0][0]} on",
                hint="`rekappa archive verify APP` shows them all.",
            )


def kafka_of(loaded: Loaded, name: str) -> KafkaCandidate:
    """The topic that a source reads live; refuses one that reads something else."""
    source = named_source(loaded, name)
    candidate = source.candidates[source.selected]
    if not isinstance(candidate, KafkaCandidate):
        raise RunError(
            f"Cannot catch up source {name!r} from the archive: its candidate {source.selected!r} is {candidate.type}, "
            "not Kafka",
            hint=f"Select its kafka candidate: --set sources.{name}.selected=…",
        )
    return candidate


def kept_by_kafka(loaded: Loaded, home: Home, sources: Iterable[str]) -> dict[Position, Kept]:
    """What Kafka has of every partition of these sources, now."""
    found = {}
    for name in sources:
        for broker in brokers(loaded.config, home, kafka_of(loaded, name)):
            for (region, number), (first, end) in broker.bounds().items():
                found[Position(name, region, broker.topic, number)] = Kept(first, end)
    return found


def look(
    spark: SparkSession, loaded: Loaded, home: Home, wants: Sequence[Want], *, allow_gaps: bool = False
) -> ArchiveLook:
    """Look at the archive's offsets, from where they are wanted on, and then at Kafka's.

    With `allow_gaps`, offsets that the archive lacks and Kafka has dropped are thought to have held no message.
    """
    archives: dict[str, ArchiveSource] = {}
    proofs: dict[Position, PartitionProof] = {}
    points: list[CutPoint] = []
    splits: list[Split] = []
    spans: list[timedelta] = []
    for name in dict.fromkeys(want.position.source for want in wants):
        source, kafka, candidate = named_source(loaded, name), kafka_of(loaded, name), _archive_of(loaded, name)
        fence = archive_fence(loaded.config, home, source)
        table_name = candidate.table if candidate else ""
        archives[name] = ArchiveSource(table_name, record_type(source, loaded.folder), fence=fence)
        if candidate is None or not exists(spark, candidate.table):
            continue
        spans.append(candidate.max_misalignment)
        route = route_between(loaded.config, name, kafka, candidate.table)
        own = [_from_start(want) for want in wants if want.position.source == name]
        # Looked at first: what is found then is in the files that are listed after it.
        for proof in verify(spark, route, lambda route=route: asked(loaded, home, route), own):  # type: ignore[misc]
            proofs[Position(name, proof.region, proof.topic, proof.partition)] = proof
        table = load_table(loaded.config, candidate.table, home)
        listed = table_splits(table, name, ALWAYS, max_misalignment=ALWAYS.length).splits
        needed = [one for one in listed if one.positions is None or any(one.positions.may_hold(want) for want in own)]
        splits += needed
        points += cut_points(table, needed, ALWAYS)
    kept = kept_by_kafka(loaded, home, archives)
    archived = {at: _stretches(proof, kept.get(at), allow_gaps) for at, proof in proofs.items()}
    return ArchiveLook(
        coverage=cover(wants, kept, archived),
        archives=archives,
        points=tuple(points),
        splits=tuple(splits),
        max_span=min(spans, default=timedelta(minutes=15)),
        doubled=tuple(proof for proof in proofs.values() if proof.repeated),
    )


def archive_of(loaded: Loaded, name: str) -> IcebergCandidate:
    """The Iceberg table with a source's past."""
    candidate = past_candidate(name, named_source(loaded, name))[1]
    if not isinstance(candidate, IcebergCandidate):
        raise RunError(
            f"Cannot catch up source {name!r} from the archive: its past is a Hive table, which has no offsets",
            hint=f"Archive its topic: add an iceberg candidate under sources.{name}.candidates.",
        )
    return candidate


def _archive_of(loaded: Loaded, name: str) -> IcebergCandidate | None:
    """The same, where there is one: what a source without it needs, only Kafka can have."""
    try:
        return archive_of(loaded, name)
    except (RunError, SourceError):
        return None


def _from_start(want: Want) -> OffsetRange:
    at = want.position
    return OffsetRange(at.region, at.topic, at.partition, want.start, _END)


def _stretches(proof: PartitionProof, kept: Kept | None, allow_gaps: bool) -> list[Offsets]:
    """The offsets of a partition that the archive has, or that are known to hold no message."""
    gaps = list(proof.gaps)
    shown = sum(high - low + 1 for low, high in gaps)
    # Not every gap is shown: what follows the last of them is not known.
    end = proof.last + 1 if shown >= proof.missing else gaps[-1][1] + 1
    if allow_gaps and kept is not None:
        gaps = [(low, high) for low, high in gaps if high >= kept.first]
        end = proof.last + 1 if not gaps else end
    return without(proof.first, end, gaps)


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """Of one partition: the first archived offset and when it was ingested, the first since some time, the last."""

    first: int
    first_at: datetime
    since: int | None
    last: int


def starts_since(
    spark: SparkSession, loaded: Loaded, home: Home, sources: Iterable[str], since: datetime, doing: str
) -> dict[Position, int]:
    """Where every partition begins at that time: at its first archived offset that was ingested then or later.

    Refuses a time before which the archive does not reach, unless a partition was archived from its very beginning.
    """
    starts: dict[Position, int] = {}
    late: list[tuple[datetime, Position, int]] = []
    for name in sources:
        found = archived_partitions(spark, archive_of(loaded, name).table, name, since)
        for position, kept in kept_by_kafka(loaded, home, [name]).items():
            own = found.get(position)
            if own is None:
                starts[position] = kept.first
                continue
            starts[position] = own.last + 1 if own.since is None else own.since
            if starts[position] == own.first > 0 and own.first_at > since:
                late.append((own.first_at, position, own.first))
    if late:
        moment, at, offset = max(late)
        raise RunError(
            f"Cannot {doing} from {format_instant(since)}: the archive of source {at.source!r} begins at "
            f"{format_instant(moment)} (topic {at.topic!r}, partition {at.partition}, offset {offset}), and what came "
            "before is not known",
            hint=f"Take a later time: --from {format_instant(moment)}",
        )
    return starts


def archived_partitions(
    spark: SparkSession, table: str, name: str, since: datetime
) -> dict[Position, ArchivedPartition]:
    """What the archive of a source has of every partition; refuses one that is not there."""
    from pyspark.sql import functions as F

    if not exists(spark, table):
        raise RunError(
            f"Cannot read archive table {table!r}: it does not exist", hint="Fill it first: rekappa archive run APP"
        )

    places = [F.col(path).alias(path.rpartition(".")[2]) for path in (REGION, TOPIC, PARTITION)]
    offset = F.col(OFFSET)
    rows = spark.table(table).groupBy(*places)
    found = rows.agg(
        F.min(offset).alias("first"),
        F.unix_micros(F.min_by(INGESTION, OFFSET)).alias("first_at"),
        F.min(F.when(F.col(INGESTION) >= F.lit(since), offset)).alias("since"),
        F.max(offset).alias("last"),
    )
    return {
        Position(name, row["region"] or "", row["topic"] or "", row["partition"]): ArchivedPartition(
            row["first"], instant(row["first_at"]), row["since"], row["last"]
        )
        for row in found.collect()
    }
