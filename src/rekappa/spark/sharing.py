"""Folders of the driver's disk that executors must see as well: looked for on every one of them before anything runs.

A path that names a disk is right on a cluster only if all machines mount it. Where they do not, executors would write
state and files that nobody finds again, and some sinks would lose rows without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from rekappa.config.model import AppConfig, IcebergCandidate, IcebergSink, ParquetSink
from rekappa.errors import ConfigError
from rekappa.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shared_folders(config: AppConfig, home: Home) -> dict[str, Path]:
    """What lies on this machine's disk and is written or read by executors, by what a person would change."""
    places = {"REKAPPA_STORAGE": home.storage.uri}
    for name, sink in config.sinks.items():
        if isinstance(sink, ParquetSink):
            places[f"sinks.{name}.path"] = home.address(sink.path)
    for name, catalog in config.catalogs.items():
        if catalog.type == "stack" and _is_used(config, name):
            places[f"catalogs.{name}"] = home.address(catalog.warehouse or str(home.warehouse))
        elif (catalog.warehouse or "").startswith("/"):
            places[f"catalogs.{name}.warehouse"] = home.address(str(catalog.warehouse))
    return {told: Path(uri.removeprefix("file:")) for told, uri in places.items() if uri.startswith("file:")}


def _is_used(config: AppConfig, catalog: str) -> bool:
    candidates = (one for source in config.sources.values() for one in source.candidates.values())
    tables = [
        one.table for one in (*config.sinks.values(), *candidates) if isinstance(one, IcebergSink | IcebergCandidate)
    ]
    return any(table.startswith(f"{catalog}.") for table in tables)


def require_shared(spark: SparkSession, config: AppConfig, home: Home) -> None:
    """Refuse a cluster whose executors do not have the folders; leaves nothing in them."""
    for told, folder in shared_folders(config, home).items():
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix=".seen-by-all-") as probe:
            if hosts := without(spark, probe.name):
                raise ConfigError(
                    f"Cannot run on a cluster: executors on {', '.join(hosts)} do not have {folder} ({told})",
                    hint="Mount it on every machine under this path, or name a place that all can reach, like s3a://.",
                )


def without(spark: SparkSession, path: str) -> list[str]:
    """The machines among executors that do not have this file."""

    def look(_: Iterable[int]) -> Iterable[str]:
        import socket

        return [] if os.path.exists(path) else [socket.gethostname()]

    context = spark.sparkContext
    tasks = 2 * max(context.defaultParallelism, 1)
    return sorted(set(context.parallelize(range(tasks), tasks).mapPartitions(look).collect()))
