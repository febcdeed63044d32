"""Opening data files: local ones directly, the rest through PyIceberg's file systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile


def local_path(path: str) -> str | None:
    """The path on this machine's file system, None for an object store."""
    if path.startswith("file:"):
        # Taken literally, as Hadoop does: percent signs in it are part of the names on disk.
        return path.removeprefix("file:").removeprefix("//")
    return None if "://" in path else path


def open_parquet(path: str, io: Mapping[str, str]) -> ParquetFile:
    """Open a Parquet file; `io` are the catalog's file system properties. Raises what the file system raises."""
    from pyarrow.parquet import ParquetFile

    local = local_path(path)
    if local is not None:
        return ParquetFile(local, memory_map=True)
    from pyiceberg.io import load_file_io

    handle: Any = load_file_io(dict(io), path).new_input(path).open()
    return ParquetFile(handle, pre_buffer=True)


def leaf(metadata: FileMetaData, name: str, field_id: int) -> int | None:
    """Position of a leaf column in the file: by its Iceberg field id, whatever it was called when the file was written.

    Files that were added to the table from elsewhere have no ids: in those it is found by its name.
    """
    known = leaf_positions(metadata)
    if known:
        return known.get(field_id)
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    return paths.index(name) if name in paths else None


def leaf_positions(metadata: FileMetaData) -> dict[int, int]:
    """Position of each leaf column in the file, by its Iceberg field id (absent for files without ids)."""
    schema = metadata.schema.to_arrow_schema()
    found: dict[int, int] = {}
    position = 0

    def walk(field: Any) -> None:
        nonlocal position
        kind = field.type
        if _is_nested(kind):
            for child in _children(kind):
                walk(child)
            return
        field_id = field_id_of(field)
        if field_id is not None:
            found[field_id] = position
        position += 1

    for field in schema:
        walk(field)
    return found


def field_id_of(field: Any) -> int | None:
    """The Iceberg field id that the file records for a field."""
    recorded = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if recorded is None else int(recorded)


def _is_nested(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind))


def _children(kind: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_struct(kind):
        return [kind.field(position) for position in range(kind.num_fields)]
    return [kind.value_field]
