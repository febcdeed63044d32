"""A new checkpoint that goes on after one batch of another: from the list of files that the batch needs, with an id of
its own. The other one stays as it is, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import uuid4

from rekappa.checkpoints.files import listed, named_in, take_over
from rekappa.checkpoints.points import needed_files, restart_points
from rekappa.errors import RunError
from rekappa.storage.location import Location


def files_of(folder: Location, batch: int) -> tuple[str, ...]:
    """The files that a fork after this batch needs. Refuses one that lacks any, RocksDB's own included."""
    files = listed(folder)
    named = named_in(folder)
    logs = {name: file for name, file in files.items() if not name.startswith("commits/") or name == f"commits/{batch}"}
    point = next(iter(restart_points(logs, named)), None)
    if point is None or point.lacking:
        lacking = (f"commits/{batch}",) if point is None else point.lacking
        raise RunError(
            f"Cannot restore batch {batch} of {folder}: it lacks {', '.join(lacking[:3])}",
            hint="`rekappa checkpoints APP --verify` says which batches can be restored.",
        )
    return needed_files(files, batch, named)


def fork(source: Location, names: Sequence[str], into: Location) -> None:
    """Put the files into another folder and give the query a new id.

    Iceberg's and other sinks pass over batch numbers that they have seen of a query's id.
    """
    take_over(source, names, into)
    (into / "metadata").write(json.dumps({"id": str(uuid4())}))
