"""A file or a folder of the storage root.

    plan = home.checkpoint("rmi", run) / "plan.jsonl.gz"
    plan.write(content)                   there whole or not at all
    query.option("checkpointLocation", folder.uri)

Folders come and go with the files in them: an object store has none. Nothing here is kept open or cached, so what
another machine has just written is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rekappa.errors import RunError
from rekappa.masking import hidden
from rekappa.storage.systems import LocalFiles, Storage

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a listing tells it."""

    name: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Location:
    """`path` is as its storage names it; `uri` and `str()` are for others to read."""

    storage: Storage
    path: str

    @classmethod
    def local(cls, path: Path) -> Location:
        return cls(LocalFiles(), str(path.absolute()))

    def __truediv__(self, name: str) -> Location:
        return replace(self, path=f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.storage.shown(self.path)

    @property
    def uri(self) -> str:
        """As Spark reads it: with its scheme, so that no other default file system is meant."""
        return self.storage.uri(self.path)

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    def exists(self) -> bool:
        """Whether there is a file, or a folder with something in it."""
        return bool(self._info().type.name != "NotFound")

    def names(self) -> list[str]:
        """What lies directly in this folder, sorted; nothing if there is no such folder."""
        return sorted(info.base_name for info in self._below(recursive=False))

    def read_bytes(self) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        with self.reading() as file:
            return file.read()

    def read_text(self) -> str:
        return self.read_bytes().decode()

    @contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """The file, open at its beginning; it can be read from anywhere in it. Raises FileNotFoundError."""
        with self._reached():
            opened = self.storage.files().open_input_file(self.path)
        with opened as file:
            yield file

    def write(self, content: bytes | str) -> None:
        """Write the file anew, with its folders. Others see what was there before or all of this, never a part."""
        with self._reached():
            self.storage.put(self.path, content.encode() if isinstance(content, str) else content)

    def modified(self) -> datetime:
        """When the file was written. Raises FileNotFoundError."""
        moment: datetime | None = self._info().mtime
        if moment is None:
            raise FileNotFoundError(str(self))
        return moment

    def size(self) -> int:
        """The bytes of the file, or of all files below."""
        info = self._info()
        if info.is_file:
            return int(info.size)
        return sum(one.size for one in self.files())

    def remove(self) -> None:
        """Remove the file, or the folder with all that is in it; nothing if it is not there."""
        info = self._info()
        with self._reached():
            if info.is_file:
                self.storage.files().delete_file(self.path)
            elif self.exists():
                self.storage.files().delete_dir(self.path)

    def files(self) -> Iterator[StoredFile]:
        """Every file below this folder, by its name from here; none if there is no such folder."""
        start = len(self.path.rstrip("/")) + 1
        for info in self._below(recursive=True):
            if info.is_file:
                yield StoredFile(info.path[start:], int(info.size), info.mtime)

    def share(self, source: Location) -> None:
        """Become the same file as another that nobody writes any more: a hard link where there is such a thing, or a
        copy, which may be younger. Raises FileNotFoundError."""
        if self.storage == source.storage:
            with self._reached():
                self.storage.share(source.path, self.path)
        else:
            self.write(source.read_bytes())

    def _info(self) -> FileInfo:
        with self._reached():
            return self.storage.files().get_file_info(self.path)

    def _below(self, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        chosen = FileSelector(self.path, allow_not_found=True, recursive=recursive)
        with self._reached():
            found = list(self.storage.files().get_file_info(chosen))
            if not found and self.storage.is_missing():
                raise OSError("there is no such bucket")
            return found

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """What a store behind a network says of itself, and not of a file, is told with the setting that names it."""
        try:
            yield
        except FileNotFoundError:
            raise
        except NotADirectoryError:
            raise RunError(
                f"Cannot use {self}: it is a file where a folder belongs",
                hint="Move it away: rekappa made no such file.",
            ) from None
        except OSError as error:
            if isinstance(self.storage, LocalFiles):
                raise
            why = hidden(" ".join(str(error).split()))
            raise RunError(f"Cannot use the storage at {self}: {why}", hint=_REACHED) from error


_REACHED = (
    "Is it up? REKAPPA_STORAGE, or the file `storage` of the project folder, says where it is: bucket, endpoint, "
    "region. Keys come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or the machine's role."
)
