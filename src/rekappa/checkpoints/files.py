"""A checkpoint's files where they are: listed, read, and taken over into another folder by hard links or copies."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from rekappa.checkpoints.points import CheckpointFile, Named
from rekappa.errors import RunError
from rekappa.home import local_uri

_HIDDEN = ".unfinished-"
_ADDRESSED = "/_metadata/v2/"
"""Where Spark keeps descriptions of custom state that name other files of the checkpoint by their whole address."""


def listed(folder: Path) -> dict[str, CheckpointFile]:
    """Every file below the folder, by its name there; none if there is no such folder. Files may go meanwhile."""
    found: dict[str, CheckpointFile] = {}
    waiting = [""]
    while waiting:
        above = waiting.pop()
        try:
            entries = list(os.scandir(folder / above))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = f"{above}{entry.name}"
            if entry.is_dir():
                waiting.append(f"{name}/")
                continue
            try:
                facts = entry.stat()
            except FileNotFoundError:
                continue
            found[name] = CheckpointFile(name, facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC))
    return found


def named_in(folder: Path) -> Named:
    """Asks the RocksDB snapshots of this checkpoint which files they need."""
    return partial(_named, folder)


def _named(folder: Path, snapshot: str) -> tuple[str, ...]:
    path = folder / snapshot
    try:
        with zipfile.ZipFile(path) as packed:
            version, _, text = packed.read("metadata").decode().partition("\n")
        if version != "v1":
            raise RunError(f"Cannot read {path}: it is of version {version!r}, this rekappa knows 'v1'")
        told = json.loads(text)
        return tuple(one["dfsSstFileName"] for one in told["sstFiles"])
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise RunError(f"Cannot read {path}: it is damaged ({error})") from error


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A hidden folder to fill; at the end of the `with` it becomes `target`, which is whole then or not there at all.

    Refuses with `FileExistsError` where the target is there already.
    """
    hidden = target.with_name(f"{_HIDDEN}{target.name}-{uuid4().hex[:8]}")
    hidden.mkdir(parents=True)
    try:
        yield hidden
        if target.exists():
            raise FileExistsError(target)
        hidden.rename(target)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


def take_over(source: Path, names: Iterable[str], into: Path, final: Path | None = None) -> None:
    """Put these files of a checkpoint into another folder, which will be called `final`, if that is another name.

    Spark never writes into a file that it has finished, so both folders may share it. A file that Spark has removed
    meanwhile raises `FileNotFoundError`.
    """
    for name in names:
        place = into / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if _ADDRESSED not in f"/{name}":
            _link(source / name, place)
        elif not name.endswith(".crc"):
            told = (source / name).read_text()
            place.write_text(told.replace(local_uri(source), local_uri(final or into)))


def _link(source: Path, target: Path) -> None:
    """A hard link; a copy with its times where the file system knows none, or where it is another one."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)


def size_of(files: Mapping[str, CheckpointFile], names: Iterable[str]) -> int:
    """Bytes of these files together."""
    return sum(files[name].size for name in names)
