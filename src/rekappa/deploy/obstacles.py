"""What can't be deployed, refused before anything is written; and what a person should know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from rekappa.config.model import AppConfig, CassandraSink, OpenSearchSink, ParquetSink, PostgresSink
from rekappa.deploy.console import console_notes
from rekappa.deploy.drivers import Driver
from rekappa.deploy.order import Order
from rekappa.errors import ConfigError

Target = Literal["kubernetes", "systemd"]
IN_CLUSTER = "k8s://https://kubernetes.default.svc"
_LOOPBACK = re.compile(r"(^|[/@,\s])(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)([:/,]|$)")
_METASTORE = ("spark.hadoop.hive.metastore.uris", "spark.hadoop.javax.jdo.option.ConnectionURL")


def require_deployable(order: Order, target: Target) -> None:
    """Refuses with `ConfigError` what would start and then fail, or lose what it wrote."""
    for driver in order.drivers:
        _require_master(driver, target)
    if target == "kubernetes":
        _require_no_stack(order)
        _require_metastore(order)


def notes(order: Order, target: Target) -> tuple[str, ...]:
    """What was decided, and what is assumed."""
    own = console_notes(order, target) if order.console else ()
    return (*_of_masters(order, target), *_of_places(order.loaded.config, target), *own)


def _require_master(driver: Driver, target: Target) -> None:
    key, master = f"profiles.{driver.profile_name}.master", driver.master
    if target == "systemd" and master.startswith("k8s:"):
        raise ConfigError(
            f"Cannot write a systemd unit with {key}: {master}: executors in a cluster must reach their driver",
            hint="Let the driver run there too: rekappa manifest APP --for kubernetes",
        )
    if target == "systemd" or driver.local:
        return
    if not master.startswith("k8s://"):
        raise ConfigError(
            f"Cannot deploy to Kubernetes with {key}: {master}: executors outside the cluster can't reach a driver "
            "inside it",
            hint=f"Use {IN_CLUSTER} for executors in pods, local[N] for one pod, or --for systemd.",
        )


def _require_no_stack(order: Order) -> None:
    config = order.loaded.config
    used = {name for source in config.sources.values() for one in source.candidates.values() if one.type == "kafka"
            for name in one.cluster}  # fmt: skip
    used |= {sink.cluster for sink in config.sinks.values() if sink.type == "kafka"}
    for name in sorted(used):
        if config.clusters[name].bootstrap == "stack":
            raise ConfigError(
                f"Cannot deploy to Kubernetes with clusters.{name}.bootstrap: stack: that broker is on this machine",
                hint=f"Name your brokers: --set clusters.{name}.bootstrap=kafka:9092, or in rekappa.yaml.",
            )
    for name in sorted(_catalogs(order)):
        if config.catalogs[name].type == "stack":
            raise ConfigError(
                f"Cannot deploy to Kubernetes with catalogs.{name}.type: stack: that catalog is a file on this machine",
                hint=f"Name your own in rekappa.yaml: catalogs: {{{name}: {{type: rest, uri: ..., warehouse: ...}}}}",
            )


def _catalogs(order: Order) -> set[str]:
    """The catalogs of the tables that live run and router read or write."""
    config = order.loaded.config
    candidates = [one for source in config.sources.values() for one in source.candidates.values()]
    tables = [one.table for one in (*config.sinks.values(), *candidates) if one.type == "iceberg"]
    if any(driver.role == "router" for driver in order.drivers):
        tables.append(config.archive.dead_letters or config.default_catalog())
    return {table.partition(".")[0] for table in tables} & set(config.catalogs)


def _require_metastore(order: Order) -> None:
    config = order.loaded.config
    candidates = [one for source in config.sources.values() for one in source.candidates.values()]
    if not any(one.type == "hive" for one in (*config.sinks.values(), *candidates)):
        return
    for driver in order.drivers:
        if driver.role == "live" and not any(driver.profile.spark.get(key) for key in _METASTORE):
            raise ConfigError(
                "Cannot deploy to Kubernetes with Hive tables and no metastore: without one it is a file in the pod",
                hint=f"Name it: --set profiles.live.{_METASTORE[0]}=thrift://metastore:9083",
            )


def _of_masters(order: Order, target: Target) -> Iterator[str]:
    for driver in order.drivers:
        key = f"profiles.{driver.profile_name}.master"
        if driver.local and target == "kubernetes":
            yield (
                f"{key} is {driver.master}: all of Spark runs in the one pod {order.name}-{driver.role}, with "
                f"{driver.cores} core{'s' * (driver.cores > 1)}; for executors in pods of their own: {IN_CLUSTER}"
            )
        elif not driver.local:
            yield (
                f"{key} is {driver.master}: executors must see checkpoints and state: set REKAPPA_STORAGE to an object "
                "store, or " + ("the volume must be ReadWriteMany" if target == "kubernetes" else "share REKAPPA_HOME")
            )


def _of_places(config: AppConfig, target: Target) -> Iterator[str]:
    if target == "systemd":
        if any(cluster.bootstrap == "stack" for cluster in config.clusters.values()):
            yield "nothing here keeps the broker of `rekappa up` running: it is for development"
        return
    places = {f"clusters.{name}.bootstrap": cluster.bootstrap for name, cluster in config.clusters.items()}
    for name, sink in config.sinks.items():
        if isinstance(sink, PostgresSink):
            places[f"sinks.{name}.host"] = sink.host
        elif isinstance(sink, CassandraSink):
            places[f"sinks.{name}.hosts"] = ",".join(sink.hosts)
        elif isinstance(sink, OpenSearchSink):
            places[f"sinks.{name}.url"] = sink.url
        elif isinstance(sink, ParquetSink) and "://" not in sink.path:
            yield f"sinks.{name}.path is a folder of the pod, which goes with it"
    for key, place in places.items():
        if _LOOPBACK.search(place):
            yield f"{key} is an address of the machine itself, which in a pod is the pod"
