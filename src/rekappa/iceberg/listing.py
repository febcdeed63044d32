"""The data files of a table's current state, from its manifests: fast, and in parallel where they are many.

    for entry in listed_files(table, wanted, columns, Between(0, low, high)): ...

Several stretches can be asked for at once: reading the manifests is what takes the time. They are ruled out by their
partitions, files by their bounds. A table with row-level deletes goes the slow way,
through PyIceberg, which knows which deletes belong to which file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from rekappa.errors import SourceError
from rekappa.iceberg.decode import AskedColumn, Between, FileEntry, fitting, read_manifest

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

FEW = 50_000
"""Up to so many files are read in this process: starting others takes longer."""


def listed_files(table: Table, wanted: Any, columns: tuple[AskedColumn, ...], *between: Between) -> Iterator[FileEntry]:
    """Files that may hold rows which fit PyIceberg's expression `wanted`, with the bounds of these columns.

    `between` says the same again of single columns, in numbers; a file is answered that fits any of them. More files
    than fit may be answered, never fewer. Refuses equality deletes.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    manifests = [one for one in snapshot.manifests(table.io) if _live(one)]
    if any(one.content != 0 for one in manifests):
        for task in _with_deletes(table, wanted):
            entry = _entry(task.file, columns, bool(task.delete_files), between)
            if entry.fits or not between:
                yield entry
        return
    chosen = _fitting(table, manifests, wanted)
    io = {key: str(value) for key, value in table.io.properties.items()}
    read = partial(_read, io=io, columns=columns, between=between)
    asked = [(one.manifest_path, one.partition_spec_id) for one in chosen]
    if sum(_live(one) for one in chosen) <= FEW or len(asked) < 2:
        for one in asked:
            yield from read(one)
        return
    # Not forked: this process has threads, and with Spark a JVM behind it.
    with ProcessPoolExecutor(min(len(asked), os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for found in pool.map(read, asked):
            yield from found


def all_files(table: Table, columns: tuple[AskedColumn, ...] = ()) -> Iterator[FileEntry]:
    """Every data file of the table's current state."""
    from pyiceberg.expressions import AlwaysTrue

    return listed_files(table, AlwaysTrue(), columns)


def _read(
    manifest: tuple[str, int], io: dict[str, str], columns: tuple[AskedColumn, ...], between: tuple[Between, ...]
) -> list[FileEntry]:
    return read_manifest(*manifest, io, columns, between)


def _live(manifest: ManifestFile) -> int:
    """How many files it says are in the table; one that does not count may hold some."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return 1 if None in counts else sum(count or 0 for count in counts)


def _fitting(table: Table, manifests: list[ManifestFile], wanted: Any) -> list[ManifestFile]:
    from pyiceberg.expressions.visitors import inclusive_projection, manifest_evaluator

    schema, specs = table.schema(), table.specs()
    fits = {
        number: manifest_evaluator(spec, schema, inclusive_projection(schema, spec)(wanted), case_sensitive=True)
        for number, spec in specs.items()
    }
    return [one for one in manifests if fits[one.partition_spec_id](one)]


def _with_deletes(table: Table, wanted: Any) -> Iterator[Any]:
    try:
        yield from table.scan(row_filter=wanted).plan_files()
    except (ValueError, NotImplementedError) as error:
        if "equality deletes" not in str(error):
            raise
        raise SourceError(
            f"Cannot replay table {'.'.join(table.name())}: it has equality deletes, which can't be applied here",
            hint="Apply them first: Iceberg's rewrite_data_files with the option delete-file-threshold=1.",
        ) from error


def _entry(file: Any, columns: tuple[AskedColumn, ...], deletes: bool, between: tuple[Between, ...]) -> FileEntry:
    lower, upper = (
        tuple(column.read((bounds or {}).get(column.id)) for column in columns)
        for bounds in (file.lower_bounds, file.upper_bounds)
    )
    return FileEntry(
        file.file_path,
        file.file_format.value,
        file.record_count,
        file.file_size_in_bytes,
        file.spec_id,
        tuple(file.partition[place] for place in range(len(file.partition))),
        lower,
        upper,
        deletes,
        fitting(between, lower, upper),
    )
