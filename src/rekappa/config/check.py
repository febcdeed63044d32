"""What the types can't say: names that must exist, columns that must be there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from pathlib import PurePath
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import SecretStr

from rekappa.config.change_columns import wrong_columns
from rekappa.config.lookups import ChangesLookup, IcebergLookup, KeptVersions, ServiceLookup
from rekappa.config.model import (
    AppConfig,
    HiveCandidate,
    IcebergCandidate,
    IcebergSink,
    KafkaCandidate,
    KafkaSink,
    OpenSearchSink,
    Sink,
)
from rekappa.config.origin import Origin, Path, dotted
from rekappa.config.overrides import nearest
from rekappa.config.places import BROKERS, MASTERS, holds_login, wrong_brokers, wrong_master
from rekappa.config.problems import Problem, place
from rekappa.config.schema import column_type, payload_columns
from rekappa.config.sizes import LEAST_HEAP, mebibytes
from rekappa.config.targets import target_of
from rekappa.errors import ConfigError, ValidationError
from rekappa.expect import parse_expectation
from rekappa.masking import hidden

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")
"""Types that an event's time can have: whatever else there is can't be compared with a window."""
_TIME_ZONE = "spark.sql.session.timeZone"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?[+-]\d{1,2}(?::\d{2}){0,2}$|Z$")
_COLUMN = r"(?:[A-Za-z_]\w*|`(?:[^`]|``)+`)(?:\.(?:[A-Za-z_]\w*|`(?:[^`]|``)+`))*"
_PARTITION = re.compile(
    rf"\s*(?:{_COLUMN}|(?:years?|months?|days?|date|hours?|date_hour)\s*\(\s*{_COLUMN}\s*\)"
    rf"|(?:bucket|truncate)\s*\(\s*\d+\s*,\s*{_COLUMN}\s*\))\s*",
    re.IGNORECASE,
)
"""What Spark and Iceberg understand in PARTITIONED BY."""
_SIZES = {f"spark.{role}.{kind}" for role in ("driver", "executor") for kind in ("memory", "memoryOverhead")}
_COUNTS = {"spark.driver.cores", "spark.executor.cores", "spark.executor.instances", "spark.sql.shuffle.partitions"}
_REPLACED = ("iceberg", "hive", "postgres", "cassandra", "opensearch")
"""Sinks in which publishing replaces rows; the others only get more."""
Finding = tuple[Path, str, str | None]


def problems(config: AppConfig, folder: FilePath, origins: Mapping[Path, Origin], name: str) -> list[Problem]:
    """Everything that is wrong with a configuration that has the right shape."""
    found = [*_names(config), *_sources(config, folder), *_sinks(config), *_profiles(config), *_tables(config)]
    found += [*_lookups(config, folder), *_shared(config), *_time_zones(config), *_places(config)]
    return [Problem(place(path, origins, name), f"{dotted(path)} {text}", hint) for path, text, hint in found]


def _names(config: AppConfig) -> Iterator[Finding]:
    if PurePath(config.entry).is_absolute() or ".." in PurePath(config.entry).parts:
        yield ("entry",), f"is {config.entry!r}, which is not in the app's folder", None
    for kind, members in (
        ("sources", config.sources), ("lookups", config.lookups), ("sinks", config.choices),
        ("catalogs", config.catalogs),
    ):  # fmt: skip
        for name in members:
            if not _IDENTIFIER.match(name):
                yield (kind, name), f"can't be a name: {name!r}", "Use letters, digits and _."


def _sources(config: AppConfig, folder: FilePath) -> Iterator[Finding]:
    for name, source in config.sources.items():
        here = ("sources", name)
        if source.selected not in source.candidates:
            yield (
                (*here, "selected"),
                f"is {source.selected!r}, which is none of its candidates",
                nearest(source.selected, source.candidates),
            )
        try:
            columns = payload_columns(source, folder)
        except ConfigError as error:
            yield (*here, "schema"), f"is wrong: {error.message}", error.hint
        else:
            kind = column_type(columns, source.event_time)
            if kind is None:
                known = [column.name for column in columns]
                yield (
                    (*here, "event_time"),
                    f"is {source.event_time!r}, which is no column of its schema",
                    nearest(source.event_time, known),
                )
            elif str(kind) not in _TIMES:
                yield (
                    (*here, "event_time"),
                    f"is {source.event_time!r}, a {kind}, which is no time",
                    "Declare it as TIMESTAMP in the schema (Avro: timestamp-micros), or name a column that is one.",
                )
        registry = source.format.registry
        if registry is not None and registry not in config.registries:
            yield (
                (*here, "format", "registry"),
                f"names the unknown registry {registry!r}",
                nearest(registry, config.registries) if config.registries else "Declare it under registries.",
            )
        for candidate_name, candidate in source.candidates.items():
            if isinstance(candidate, KafkaCandidate):
                yield from _clusters(config, (*here, "candidates", candidate_name), candidate)


def _clusters(config: AppConfig, here: Path, candidate: KafkaCandidate) -> Iterator[Finding]:
    at = (*here, "cluster")
    if not candidate.cluster:
        yield at, "is empty", nearest("", config.clusters)
    regions: dict[str, str] = {}
    for name in candidate.cluster:
        if name not in config.clusters:
            yield at, f"names the unknown cluster {name!r}", nearest(name, config.clusters)
            continue
        region = config.clusters[name].region
        if region in regions:
            yield (
                at,
                f"puts two clusters of region {region!r} behind one source: {regions[region]!r} and {name!r}",
                f"Give each its own: clusters.{name}.region",
            )
        regions[region] = name


def _sinks(config: AppConfig) -> Iterator[Finding]:
    for name, choice in config.choices.items():
        here = ("sinks", name)
        if choice.selected not in choice.candidates:
            known = "It is written without candidates." if choice.plain else nearest(choice.selected, choice.candidates)
            yield (*here, "selected"), f"is {choice.selected!r}, which is none of its candidates", known
        if len({candidate.job or name for candidate in choice.candidates.values()}) > 1:
            yield here, "has candidates that take different outputs", "Write `job` once, beside `candidates`."
        places = [
            (candidate, target_of(sink)) for candidate, sink in choice.candidates.items() if sink.type in _REPLACED
        ]
        for candidate, target in places:
            twin = next(other for other, place in places if place == target)
            if twin != candidate:
                yield (
                    (*here, "candidates", candidate),
                    f"writes to {target}, as candidate {twin!r} does",
                    "A candidate is another place: give it a table of its own.",
                )
    for path, sink in _candidates(config):
        if "key" in sink.model_fields_set and not all((sink.key, *sink.key)):
            yield (*path, "key"), "is empty", "Name its columns, for example  key: [id], or leave it out."
        if len({column.lower() for column in sink.key}) < len(sink.key):
            yield (*path, "key"), f"names a column twice: {', '.join(sink.key)}", None
        if sink.expect is not None:
            try:
                parse_expectation(sink.expect)
            except ValidationError as error:
                yield (*path, "expect"), f"is wrong: {error.message}", error.hint
        if isinstance(sink, IcebergSink):
            for part in sink.partition_by or ():
                if not _PARTITION.fullmatch(part):
                    yield (
                        (*path, "partition_by"),
                        f"holds {part!r}, which is no partition of an Iceberg table",
                        "Write a column, or years(column), months(…), days(…), hours(…), bucket(16, column), "
                        "truncate(8, column); put a name with other signs than letters, digits and _ in backticks.",
                    )
        if isinstance(sink, KafkaSink) and sink.cluster not in config.clusters:
            yield (
                (*path, "cluster"),
                f"names the unknown cluster {sink.cluster!r}",
                nearest(sink.cluster, config.clusters),
            )


def _lookups(config: AppConfig, folder: FilePath) -> Iterator[Finding]:
    for name, lookup in config.lookups.items():
        here = ("lookups", name)
        if name in config.sources:
            yield here, "has the name of a source", "A parameter of a job is one or the other: rename it."
        if len(set(lookup.key)) < len(lookup.key):
            yield (*here, "key"), f"names a column twice: {', '.join(lookup.key)}", None
        if not isinstance(lookup, ChangesLookup):
            continue
        source = config.sources.get(lookup.source)
        if source is None:
            yield (*here, "source"), f"is {lookup.source!r}, which is no source", nearest(lookup.source, config.sources)
        elif not any(isinstance(one, IcebergCandidate) for one in source.candidates.values()):
            yield (
                (*here, "source"),
                f"is {lookup.source!r}, which has no archive",
                f"Its versions are read from there: give sources.{lookup.source} an iceberg candidate.",
            )
        else:
            yield from ((here, *found) for found in wrong_columns(lookup, payload_columns(source, folder)))


def _candidates(config: AppConfig) -> Iterator[tuple[Path, Sink]]:
    """Every candidate of every sink, and where it is written."""
    for name, choice in config.choices.items():
        for candidate, sink in choice.candidates.items():
            yield ("sinks", name) if choice.plain else ("sinks", name, "candidates", candidate), sink


def _profiles(config: AppConfig) -> Iterator[Finding]:
    for name in type(config.profiles).model_fields:
        for key, value in getattr(config.profiles, name).spark.items():
            if key.endswith("JavaOptions") and isinstance(value, str) and hidden(value) != value:
                yield (
                    ("profiles", name, "spark", key),
                    "holds a secret, and Java's options stand in the list of processes for all to see",
                    "Put it into a file that Java reads: JDK_JAVA_OPTIONS=@FILE, with the option in FILE.",
                )
            if key in _SIZES and not isinstance(value, SecretStr):
                size, like = mebibytes(str(value)), "Write it like 4g or 512m."
                if size is None:
                    yield ("profiles", name, "spark", key), f"is {value!r}, which is no size", like
                elif key == "spark.driver.memory" and str(value).strip().isdigit():
                    # It becomes an option of Java, which counts bytes where Spark counts mebibytes.
                    yield ("profiles", name, "spark", key), f"is {value!r}, without a unit", like
                elif size < LEAST_HEAP and key.endswith("memory"):
                    yield ("profiles", name, "spark", key), f"is {value!r}, with which Spark does not start", like
            if key in _COUNTS and not isinstance(value, SecretStr) and not re.fullmatch("[1-9][0-9]*", str(value)):
                yield ("profiles", name, "spark", key), f"is {value!r}, which is no number above 0", None
            if not key.startswith("spark."):
                yield ("profiles", name, "spark", key), "is no Spark property", f"Did you mean 'spark.{key}'?"


def _tables(config: AppConfig) -> Iterator[Finding]:
    tables: list[tuple[Path, str]] = []
    for name, source in config.sources.items():
        for candidate_name, candidate in source.candidates.items():
            if isinstance(candidate, IcebergCandidate):
                tables.append((("sources", name, "candidates", candidate_name, "table"), candidate.table))
            elif isinstance(candidate, HiveCandidate) and not candidate.table:
                yield ("sources", name, "candidates", candidate_name, "table"), "is empty", None
    tables += [((*path, "table"), sink.table) for path, sink in _candidates(config) if isinstance(sink, IcebergSink)]
    for name, lookup in config.lookups.items():
        if isinstance(lookup, IcebergLookup):
            tables.append((("lookups", name, "table"), lookup.table))
        if isinstance(lookup, ServiceLookup) and lookup.table is not None:
            tables.append((("lookups", name, "table"), lookup.table))
        if isinstance(lookup, KeptVersions) and lookup.versions is not None:
            tables.append((("lookups", name, "versions"), lookup.versions))
    if config.archive.dead_letters is not None:
        tables.append((("archive", "dead_letters"), config.archive.dead_letters))
    for path, table in tables:
        parts = table.split(".")
        if len(parts) < 3 or not all(parts):
            catalog = config.default_catalog() if config.catalogs else "lake"
            yield path, f"is {table!r}: name catalog, namespace and table", f"For example {catalog}.events.{parts[-1]}"
        elif parts[0] not in config.catalogs:
            yield path, f"names the unknown catalog {parts[0]!r}", nearest(parts[0], config.catalogs)


def _shared(config: AppConfig) -> Iterator[Finding]:
    """Places that two write to: what one of them replaces would be the other's."""
    taken: dict[str, str] = {}
    for name, source in config.sources.items():
        for candidate in source.candidates.values():
            if not isinstance(candidate, IcebergCandidate):
                continue
            mine = f"the archive of source {name!r}"
            if taken.setdefault(candidate.table.lower(), mine) != mine:
                yield (
                    ("sources", name),
                    f"is archived in {candidate.table}, which is {taken[candidate.table.lower()]} too",
                    "Give each its own table, or let jobs share one source: what both archive would be there twice.",
                )
    if config.archive.dead_letters is not None:
        taken[config.archive.dead_letters.lower()] = "the table of dead letters"
    for name, choice in config.choices.items():
        sink = choice.candidates.get(choice.selected)
        if sink is None or sink.type not in _REPLACED:
            continue
        target = target_of(sink)
        if target.lower() in taken:
            yield (
                ("sinks", name),
                f"writes to {target}, which is {taken[target.lower()]}",
                "Give it a place of its own: publishing a window replaces all that is there.",
            )
        taken.setdefault(target.lower(), f"that of sink {name!r}")
    for name, lookup in config.lookups.items():
        if isinstance(lookup, IcebergLookup):
            taken.setdefault(lookup.table.lower(), f"the table of lookup {name!r}")
    for name, lookup in config.lookups.items():
        kept = lookup.table if isinstance(lookup, ServiceLookup) else getattr(lookup, "versions", None)
        if kept is None:
            continue
        if kept.lower() in taken:
            what = f"is kept in {kept}, which is {taken[kept.lower()]}"
            yield ("lookups", name), what, "Give it a table of its own: rekappa writes it."
        taken[kept.lower()] = f"where lookup {name!r} is kept"


def _places(config: AppConfig) -> Iterator[Finding]:
    """Brokers and masters that can't be any, and addresses with a login in them."""
    for name, cluster in config.clusters.items():
        if wrong := wrong_brokers(cluster.bootstrap):
            yield ("clusters", name, "bootstrap"), wrong, BROKERS
    for name in type(config.profiles).model_fields:
        if wrong := wrong_master(getattr(config.profiles, name).master):
            yield ("profiles", name, "master"), wrong, MASTERS
    for path, address, where in _addresses(config):
        if address and holds_login(address):
            yield path, "holds a login or a secret, and others write this address to their logs as it is", where


def _addresses(config: AppConfig) -> Iterator[tuple[Path, str | None, str]]:
    """Where each address stands, and where its login belongs."""
    catalog = (
        "Put it into the catalog's options: token or credential for rest, jdbc.user and jdbc.password for jdbc, each "
        "as ${NAME}."
    )
    for name, one in config.catalogs.items():
        yield ("catalogs", name, "uri"), one.uri, catalog
        yield ("catalogs", name, "warehouse"), one.warehouse, catalog
    for name, registry in config.registries.items():
        yield ("registries", name, "url"), registry.url, "Put it into options: basic.auth.user.info: ${NAME}"
    for path, sink in _candidates(config):
        if isinstance(sink, OpenSearchSink):
            yield (*path, "url"), sink.url, "Put it into user and password: ${NAME}"


def _time_zones(config: AppConfig) -> Iterator[Finding]:
    """Days, hours and times without a zone must mean the same moments live and in a replay."""
    zones = {}
    for name in ("live", "backfill"):
        told = getattr(config.profiles, name).spark.get(_TIME_ZONE, "UTC")
        zones[name] = str(told)
        if not _is_zone(str(told)):
            yield (
                ("profiles", name),
                f"sets {_TIME_ZONE} to {told!r}, which is no time zone",
                "Write it like Europe/Berlin.",
            )
    if zones["live"] != zones["backfill"]:
        yield (
            ("profiles", "backfill"),
            f"has time zone {zones['backfill']}, live has {zones['live']}",
            f"Give both the same {_TIME_ZONE}: days and hours would mean other moments in a replay.",
        )


def _is_zone(text: str) -> bool:
    if _OFFSET.match(text):
        return True
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
