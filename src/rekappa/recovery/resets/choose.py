"""Which way back a sink has: the one place here that tells kinds of sinks apart."""

from __future__ import annotations

from dataclasses import dataclass

from rekappa.recovery.plan import SinkReset
from rekappa.recovery.resets.contract import Abandoned, Resetter
from rekappa.recovery.resets.files import HiveReset, ParquetReset
from rekappa.recovery.resets.tables import AppendReset, UpsertReset
from rekappa.recovery.resets.topics import TopicReset
from rekappa.sinks.contract import Sink
from rekappa.sinks.hive import HiveSink
from rekappa.sinks.iceberg import IcebergAppend, IcebergUpsert
from rekappa.sinks.kafka import KafkaSink
from rekappa.sinks.parquet import ParquetSink
from rekappa.sinks.service import ServiceSink


@dataclass(frozen=True)
class LeftAsIs:
    """A sink in which nothing is taken back, and why."""

    gone: Abandoned
    why: str

    def look(self) -> SinkReset:
        return SinkReset(self.gone.sink, self.gone.target, told=self.why)

    def carry_out(self) -> None:
        pass

    def look_back(self) -> None:
        pass

    def undo(self) -> None:
        pass


def resetter(gone: Abandoned, sink: Sink) -> Resetter:
    """The sink's way back."""
    match sink:
        case IcebergUpsert():
            return UpsertReset(gone, sink.table, sink.key)
        case IcebergAppend():
            return AppendReset(gone, sink.table)
        case ParquetSink():
            return ParquetReset(gone, sink)
        case HiveSink():
            return HiveReset(gone, sink)
        case KafkaSink():
            return TopicReset(gone, sink)
        case ServiceSink():
            key = ", ".join(sink.key)
            return LeftAsIs(
                gone,
                f"overwritten by {key} as the run goes on; a key stays as it is if the abandoned batches wrote it and "
                "the code as it is now does not write it again",
            )
        case _:
            return LeftAsIs(gone, "it keeps nothing")
