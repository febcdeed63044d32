"""Starting Spark for an app: its catalogs, its profile, our jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rekappa.config.fields import Option
from rekappa.config.model import AppConfig, Catalog
from rekappa.home import Home, local_uri
from rekappa.jvm.compiled import compiled
from rekappa.jvm.java import use_java
from rekappa.masking import NAMES
from rekappa.spark.failures import told
from rekappa.spark.launch import LOCAL_FILES, Launch, begun, launching, local_defaults, spark_log, start_context
from rekappa.spark.private import log_lost_connection
from rekappa.spark.releases import check_versions
from rekappa.spark.sharing import require_shared
from rekappa.spark.shipping import extra_jars, is_local, jar_settings, python_settings, ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.shuffle.partitions": "4",
    # A batch that is run again after a crash can meet the checksum of its first attempt (SPARK-56461).
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


def plain(value: Option) -> str:
    """A setting as Spark wants it written; secrets are revealed only here."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else value.get_secret_value()


def catalog_settings(name: str, catalog: Catalog, home: Home) -> dict[str, str]:
    """Spark's properties for one Iceberg catalog."""
    prefix = f"spark.sql.catalog.{name}"
    # Not cached: a table that another process, or a query's own session, has just changed is seen as it is now.
    settings = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"}
    if catalog.type == "stack":
        home.made().warehouse.mkdir(exist_ok=True)
        settings |= {
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{home.catalog}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": catalog.warehouse or local_uri(home.warehouse),
        }
    else:
        settings[f"{prefix}.type"] = catalog.type
        if catalog.uri:
            settings[f"{prefix}.uri"] = catalog.uri
        if catalog.warehouse:
            settings[f"{prefix}.warehouse"] = catalog.warehouse
    return settings | {f"{prefix}.{key}": plain(value) for key, value in catalog.options.items()}


def hive_settings(config: AppConfig, home: Home) -> dict[str, str]:
    """Spark's properties for an app that reads or writes Hive tables: a metastore in the project folder, unless the
    profile names another one."""
    candidates = (one for source in config.sources.values() for one in source.candidates.values())
    if not any(one.type == "hive" for one in (*config.sinks.values(), *candidates)):
        return {}
    folder = home.root / "hive"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": local_uri(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore_db;create=true",
        "spark.driver.extraJavaOptions": f'"-Dderby.system.home={folder}"',
    }


def redaction(settings: Mapping[str, str]) -> dict[str, str]:
    """Which settings Spark masks in its pages and event logs: what it masks by default, what the profile says, and
    every name that we take for a secret's."""
    return {
        key: "|".join(f"(?:{one})" for one in (settings.get(key, default), NAMES))
        for key, default in (
            ("spark.redaction.regex", "(?i)secret|password|token|access[.]?key"),
            ("spark.sql.redaction.options.regex", "(?i)url"),
        )
    }


def _launch(config: AppConfig, profile: str, home: Home, overrides: Mapping[str, str]) -> Launch:
    """What Spark is started with under one profile of the app."""
    chosen = getattr(config.profiles, profile)
    settings = dict(DEFAULTS)
    if is_local(chosen.master):
        settings |= local_defaults()
    settings |= {f"spark.hadoop.{key}": value for key, value in home.storage.storage.hadoop().items()}
    for name, catalog in config.catalogs.items():
        settings |= catalog_settings(name, catalog, home)
    settings |= hive_settings(config, home)
    settings |= {key: plain(value) for key, value in chosen.spark.items()}
    settings |= overrides
    settings |= redaction(settings)
    settings |= python_settings(chosen, settings.get("spark.archives", ""))
    return Launch(settings, home)


def _with_jars(launch: Launch, config: AppConfig, master: str) -> Launch:
    """The same with our jars: on the class path of this machine's JVM, or sent to the executors of a cluster."""
    path = [compiled(), *extra_jars(config, launch.home)]
    if is_local(master):
        return replace(launch, settings={**LOCAL_FILES, **launch.settings}, class_path=path)
    return replace(launch, settings={**launch.settings, **jar_settings(path, launch.settings.get("spark.jars", ""))})


@contextmanager
def session_begun(config: AppConfig, profile: str, home: Home, **overrides: str) -> Iterator[None]:
    """Let Spark's process start while what is inside is done: `open_session` with the same then finds it there. It is
    ended if what is inside is refused."""
    master = getattr(config.profiles, profile).master
    if not is_local(master):
        yield
        return
    use_java()
    with begun(_with_jars(_launch(config, profile, home, overrides), config, master)):
        yield


def open_session(config: AppConfig, profile: str, home: Home, **overrides: str) -> SparkSession:
    """Start (or reuse) Spark under one profile of the app."""
    use_java()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    master, name = getattr(config.profiles, profile).master, f"rekappa {config.app} {profile}"
    launch = _launch(config, profile, home, overrides)
    builder = SparkSession.builder.appName(name).master(master)
    if SparkContext._active_spark_context is not None:
        for key, value in launch.settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    launch = _with_jars(launch, config, master)
    with told("start Spark", f"Its log is {spark_log(home)}."):
        if not (is_local(master) and start_context(launch, master, name)):
            with launching(launch):
                builder.getOrCreate()
        session = builder.getOrCreate()
    check_versions(session)
    log_lost_connection(session, spark_log(home))
    if not is_local(master):
        ship_package(session, home)
        require_shared(session, config, home)
    return session
