"""What a backfill does when it is done: it takes away what earlier ones left and is older than it is kept for.

Staging, checkpoints and records grow by backfills alone, so that nothing grows without end if each of these looks
after the others' remains, whether or not anybody calls `rekappa clean`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.config.model import AppConfig
from rekappa.home import Home
from rekappa.publish.clean import clean, is_over
from rekappa.publish.cleaned import Cleaned
from rekappa.publish.forget import old_runs
from rekappa.store.runs import RunStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = timedelta(days=1)
"""Not more often than this: each look opens every staging table."""


def tidy(spark: SparkSession, loaded: Loaded, home: Home) -> list[Cleaned]:
    """Clean as the app's retentions say, and answer what went; nothing if no run is old enough, if that was done within
    a day, or if the app writes elsewhere now than in production."""
    config, now = loaded.config, datetime.now(UTC)
    looked = home.storage / "cleaned" / config.app
    if loaded.elsewhere or not _any_old(config, home, now) or (looked.exists() and now - looked.modified() < EVERY):
        return []
    looked.write(f"{now.isoformat()}\n")
    return [one for one in clean(spark, config, home) if one.kept is None]


def _any_old(config: AppConfig, home: Home, now: datetime) -> bool:
    runs = RunStore.open(home).runs(config.app)
    over = any(is_over(run, config.staging_retention, now) for run in runs)
    return over or bool(old_runs(runs, config.history_retention, now))
