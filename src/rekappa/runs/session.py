"""Spark for a backfill. What planning and running need is imported while the JVM starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.replay.tuning import machine_memory, process_settings, unset_by
from rekappa.spark.session import open_session, session_begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MEANWHILE = ("pyiceberg.catalog.sql", "rekappa.runs.backfill")


@contextmanager
def backfill_begun(loaded: Loaded, home: Home) -> Iterator[None]:
    """Let Spark start while the app is loaded and the request looked at; it ends again if they are refused."""
    with session_begun(loaded.config, "backfill", home, **_chosen(loaded)):
        yield


def backfill_session(loaded: Loaded, home: Home, overrides: Mapping[str, str] | None = None) -> SparkSession:
    """Spark under the backfill profile, with memory and collector chosen unless the profile names them."""
    # It takes more than a second, but less than the JVM takes to start. Not a daemon: a command that is refused
    # meanwhile must not end Python under the import's feet.
    Thread(target=lambda: [import_module(name) for name in _MEANWHILE]).start()
    return open_session(loaded.config, "backfill", home, **{**_chosen(loaded), **(overrides or {})})


def _chosen(loaded: Loaded) -> dict[str, str]:
    return unset_by(process_settings(machine_memory(), os.cpu_count() or 1), loaded.config.profiles.backfill.spark)
