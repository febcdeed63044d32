"""What a backfill does when it is done: it takes away what earlier ones left and is older than it is kept for.

Staging, checkpoints and records grow by backfills alone, so that nothing grows without end if each of these looks
after the others' remains, whether or not anybody calls `rekappa clean`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.publish.clean import clean
from rekappa.publish.cleaned import Cleaned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = timedelta(days=1)
"""Not more often than this: each look opens every staging table."""


def tidy(spark: SparkSession, loaded: Loaded, home: Home) -> list[Cleaned]:
    """Clean as the app's retentions say, and answer what went; nothing if that was done within a day, or if the app
    writes elsewhere now than in production."""
    looked = home.storage / "cleaned" / loaded.config.app
    now = datetime.now(UTC)
    if loaded.elsewhere or _within_a_day(looked.modified() if looked.exists() else None, now):
        return []
    looked.write(f"{now.isoformat()}\n")
    return [one for one in clean(spark, loaded.config, home) if one.kept is None]


def _within_a_day(last: datetime | None, now: datetime) -> bool:
    return last is not None and now - last < EVERY
