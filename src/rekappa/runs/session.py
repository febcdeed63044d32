"""Spark for a backfill. What planning and running need is imported while the JVM starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.replay.tuning import machine_memory, process_settings, unset_by
from rekappa.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MEANWHILE = ("pyiceberg.catalog.sql", "rekappa.runs.backfill")


def backfill_session(loaded: Loaded, home: Home, overrides: Mapping[str, str] | None = None) -> SparkSession:
    """Spark under the backfill profile, with memory and collector chosen unless the profile names them."""
    # It takes more than a second, but less than the JVM takes to start. Not a daemon: a command that is refused
    # meanwhile must not end Python under the import's feet.
    Thread(target=lambda: [import_module(name) for name in _MEANWHILE]).start()
    profile = loaded.config.profiles.backfill.spark
    chosen = unset_by(process_settings(machine_memory(), os.cpu_count() or 1), profile)
    return open_session(loaded.config, "backfill", home, **{**chosen, **(overrides or {})})
