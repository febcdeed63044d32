"""Row-level deletes: which rows of which files are gone, from position deletes and deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping

from rekappa.errors import SourceError
from rekappa.replay.splits import planned_files


def deleted_positions(metadata: str, io: Mapping[str, str], snapshot: int | None = None) -> dict[str, bytes]:
    """Positions of deleted rows of every file that has any: ascending little-endian 64-bit numbers, by path.

    `metadata` is the table's metadata file, `snapshot` the version that was planned.
    """
    import numpy as np
    from pyiceberg.io.pyarrow import _read_deletes
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata, dict(io))
    try:
        tasks = [task for task in planned_files(table, None, snapshot=snapshot) if task.delete_files]
    except ValueError as error:
        raise SourceError(
            f"Cannot apply the row-level deletes of {'.'.join(table.name())}: {error}",
            hint="The snapshot that was planned may have expired. Plan again.",
        ) from error
    vectors = {file.file_path: _read_deletes(table.io, file) for task in tasks for file in task.delete_files}
    found: dict[str, bytes] = {}
    for task in tasks:
        path = task.file.file_path
        arrays = [
            np.asarray(vectors[file.file_path][path]) for file in task.delete_files if path in vectors[file.file_path]
        ]
        gone = np.unique(np.concatenate(arrays)) if arrays else np.array([], "<i8")
        found[path] = gone.astype("<i8").tobytes()
    return found
