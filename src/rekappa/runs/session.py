"""Spark for a backfill, begun as early as possible: what planning and running import is imported while the JVM starts.

with starting_session(loaded, home) as session:
    from rekappa.planning.make import make_plan     # takes as long as the JVM's start
    make_plan(session(), …)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from rekappa.config.load import Loaded
from rekappa.home import Home
from rekappa.replay.tuning import machine_memory, process_settings, unset_by
from rekappa.spark.private import activate
from rekappa.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill_session(loaded: Loaded, home: Home, overrides: Mapping[str, str] | None = None) -> SparkSession:
    """Spark under the backfill profile, with memory and collector chosen unless the profile names them."""
    # What planning needs takes most of a second to import: less than the JVM takes to start. Not a daemon: a command
    # that is refused meanwhile must not end Python under the import's feet.
    Thread(target=import_module, args=("pyiceberg.catalog.sql",)).start()
    profile = loaded.config.profiles.backfill.spark
    chosen = unset_by(process_settings(machine_memory(), os.cpu_count() or 1), profile)
    return open_session(loaded.config, "backfill", home, **{**chosen, **(overrides or {})})


@contextmanager
def starting_session(loaded: Loaded, home: Home) -> Iterator[Callable[[], SparkSession]]:
    """`backfill_session`, started in a thread. What is given waits for it, and raises what it raised."""
    with ThreadPoolExecutor(1, "rekappa-session") as pool:
        started = pool.submit(backfill_session, loaded, home)

        def session() -> SparkSession:
            spark = started.result()
            activate(spark)  # each thread has a session that is the active one
            return spark

        yield session
