"""Whether what a job makes fits what its sinks declare: told from the schema alone, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rekappa.config.model import SinkBase
from rekappa.errors import AppError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TIMES = ("timestamp", "timestamp_ntz", "date")


def require_made(columns: Sequence[str], sink: str, declared: SinkBase) -> None:
    """Refuse a sink whose key, event time or version is none of the columns that the job makes."""
    present = {name.lower() for name in columns}
    told = {"key": declared.key, "event_time": (declared.event_time,), "version": (declared.version,)}
    for setting, names in told.items():
        absent = [name for name in names if name is not None and not {name.lower(), _outer(name)} & present]
        if absent:
            raise AppError(
                f"Cannot fill sink {sink!r}: its {setting} names {', '.join(absent)}, which is not among the columns "
                f"that the job makes: {', '.join(columns)}",
                hint=f"Correct sinks.{sink}.{setting}, or add the column to the job's result.",
            )


def _outer(name: str) -> str:
    """The column that holds a field of this name, if a dot in it means one."""
    return name.split(".")[0].lower()


def require_time(schema: StructType, output: str, event_time: str | None) -> None:
    """Refuse an event time of a type that is no time. A column that is not there is `require_made`'s business."""
    if event_time is None:
        return
    from pyspark.sql.types import StructType

    kind: Any = schema
    for part in event_time.lower().split("."):
        fields = {one.name.lower(): one.dataType for one in kind.fields} if isinstance(kind, StructType) else {}
        if part not in fields:
            return
        kind = fields[part]
    if kind.typeName() not in _TIMES:
        inner = f"{event_time}.start" if isinstance(kind, StructType) and "start" in kind.names else ""
        raise AppError(
            f"Cannot take {event_time!r} as the event time of output {output!r}: it is a {kind.simpleString().upper()}",
            hint=f"Name {inner}." if inner else "Make a TIMESTAMP of it in the job, or name a column that is one.",
        )
