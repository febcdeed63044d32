"""A checkpoint's files where they are: listed, read, and taken over into another folder."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from rekappa.checkpoints.points import CheckpointFile, Named
from rekappa.errors import RunError
from rekappa.storage.location import Location

_ADDRESSED = "/_metadata/v2/"
"""Where Spark keeps descriptions of custom state that name other files of the checkpoint by their whole address."""


def listed(folder: Location) -> dict[str, CheckpointFile]:
    """Every file below the folder, by its name there; none if there is no such folder. Files may go meanwhile."""
    return {one.name: CheckpointFile(one.name, one.size, one.modified) for one in folder.files()}


def named_in(folder: Location) -> Named:
    """Asks the RocksDB snapshots of this checkpoint which files they need."""
    return partial(_named, folder)


def _named(folder: Location, snapshot: str) -> tuple[str, ...]:
    path = folder / snapshot
    try:
        with path.reading() as file, zipfile.ZipFile(file) as packed:
            version, _, text = packed.read("metadata").decode().partition("\n")
        if version != "v1":
            raise RunError(f"Cannot read {path}: it is of version {version!r}, this rekappa knows 'v1'")
        told = json.loads(text)
        return tuple(one["dfsSstFileName"] for one in told["sstFiles"])
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise RunError(f"Cannot read {path}: it is damaged ({error})") from error


@contextmanager
def appearing(target: Location, mark: str) -> Iterator[Location]:
    """A folder to fill, whose last file is `mark`: without that one it counts as not there. Left by an exception, it
    is removed; what a kill has left is removed by the next who fills it.

    A folder can't be renamed in an object store, so there is no other moment at which it would appear as a whole.
    Refuses with `FileExistsError` where the target is there already.
    """
    if (target / mark).exists():
        raise FileExistsError(str(target))
    target.remove()
    try:
        yield target
    except BaseException:
        target.remove()
        raise


def take_over(source: Location, names: Iterable[str], into: Location) -> None:
    """Put these files of a checkpoint into another folder.

    Spark never writes into a file that it has finished, so both folders may share it. A file that Spark has removed
    meanwhile raises `FileNotFoundError`.
    """
    for name in names:
        place = into / name
        if _ADDRESSED not in f"/{name}":
            place.share(source / name)
        elif not name.endswith(".crc"):
            place.write((source / name).read_text().replace(source.uri, into.uri))


def size_of(files: Mapping[str, CheckpointFile], names: Iterable[str]) -> int:
    """Bytes of these files together."""
    return sum(files[name].size for name in names)
